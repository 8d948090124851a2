// What the processor cannot do for a kernel becomes words.
#ifndef ANYCANN_CORE_FAULTS_H
#define ANYCANN_CORE_FAULTS_H

#include "state.h"

namespace anycann {
namespace emu {

// How a kernel ended: by itself, or stopped; for a fault of the processor, in words, else for what its reports say.
struct Ending {
    bool stopped;
    std::string fault;
};

// Calls a kernel. Where it is stopped, its objects are not destroyed.
Ending CallKernel(void (*call)(void*), void* context);

// Lets go of the lock of atomic additions where this thread was stopped while it held it.
void AtomicRelease();

}  // namespace emu
}  // namespace anycann

#endif
