// What the files of this library share.
#ifndef ANYCANN_CABI_INSIDE_H
#define ANYCANN_CABI_INSIDE_H

// Call a function of a Python module without arguments, as long as there is an interpreter. What it raises is printed.
void CallPython(const char *module, const char *function);

#endif
