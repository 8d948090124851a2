// Python behind the libraries: the interpreter of this process if there is one, else one that is started at the first call.
// config.h is written when the libraries are built, for one interpreter.
#include <Python.h>

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string>

#include "acl/acl_base.h"
#include "config.h"
#include "environment.h"
#include "inside.h"

extern "C" PyObject *PyInit__anycann_cabi(void);
extern "C" void anycann_libraries_loaded(void);

namespace {

std::atomic<bool> ready{false};
pthread_once_t once = PTHREAD_ONCE_INIT;

void Complain(const std::string &what) { std::fprintf(stderr, "anycann: Python could not be started: %s\n", what.c_str()); }

// What the pending exception says, in one line.
std::string Pending()
{
    PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    std::string said = type == nullptr ? "no exception" : reinterpret_cast<PyTypeObject *>(type)->tp_name;
    PyObject *words = value == nullptr ? nullptr : PyObject_Str(value);
    const char *text = words == nullptr ? nullptr : PyUnicode_AsUTF8(words);
    if (text != nullptr && *text != '\0') {
        said += std::string(": ") + text;
    }
    for (char &letter : said) {
        letter = letter == '\n' ? ' ' : letter;
    }
    PyErr_Clear();
    Py_XDECREF(words);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return said;
}

// Hand the door to Python over; the interpreter's lock is held.
bool Connect(bool our_own)
{
    PyObject *paths = our_own ? PySys_GetObject("path") : nullptr;
    for (std::size_t i = 0; paths != nullptr && i < sizeof kFolders / sizeof *kFolders; ++i) {
        PyObject *folder = PyUnicode_DecodeFSDefault(kFolders[i]);
        if (folder != nullptr && PySequence_Contains(paths, folder) == 0) {
            PyList_Insert(paths, 0, folder);
        }
        Py_XDECREF(folder);
    }
    PyObject *door = PyInit__anycann_cabi();
    PyObject *bridge = door == nullptr ? nullptr : PyImport_ImportModule("anycann.cabi.bridge");
    PyObject *ffi = bridge == nullptr ? nullptr : PyObject_GetAttrString(door, "ffi");
    PyObject *lib = ffi == nullptr ? nullptr : PyObject_GetAttrString(door, "lib");
    PyObject *done = lib == nullptr ? nullptr : PyObject_CallMethod(bridge, "start", "OOs", ffi, lib, kInterface);
    if (done == nullptr) {
        Complain(Pending());
    }
    Py_XDECREF(lib);
    Py_XDECREF(ffi);
    Py_XDECREF(bridge);  // the door stays: its functions are called from here
    const bool connected = done != nullptr;
    Py_XDECREF(done);
    return connected;
}

PyStatus Initialize()
{
    PyPreConfig early;
    PyPreConfig_InitIsolatedConfig(&early);
    early.utf8_mode = 1;
    PyStatus status = Py_PreInitialize(&early);
    if (PyStatus_Exception(status)) {
        return status;
    }
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);  // no PYTHON* variables, no signal handlers, no command line
    config.user_site_directory = kUserSite;
    status = PyConfig_SetBytesString(&config, &config.program_name, kExecutable);
    if (!PyStatus_Exception(status)) {
        status = Py_InitializeFromConfig(&config);
    }
    PyConfig_Clear(&config);
    return status;
}

// The first import of this module makes an interrupt an exception of Python, which nobody here would see: it stays what the program
// has made of it.
void ImportSignals()
{
    struct sigaction before = {};
    sigaction(SIGINT, nullptr, &before);
    Py_XDECREF(PyImport_ImportModule("_signal"));
    sigaction(SIGINT, &before, nullptr);
}

// To our interpreter a fork of the program is one of its own: no thread is in the middle of something, and the child has the locks.
thread_local PyGILState_STATE before_fork;

void BeforeFork()
{
    before_fork = PyGILState_Ensure();
    PyOS_BeforeFork();
}

void AfterForkInParent()
{
    PyOS_AfterFork_Parent();
    PyGILState_Release(before_fork);
}

void AfterForkInChild()
{
    PyOS_AfterFork_Child();
    PyGILState_Release(before_fork);
}

void Start()
{
    if (Py_IsInitialized()) {
        if (std::strncmp(Py_GetVersion(), kVersion, sizeof kVersion - 1) != 0) {
            Complain("these libraries are for Python " + std::string(kVersion, sizeof kVersion - 2) + ", and the process runs Python " + Py_GetVersion() +
                     "; use those that `anycann config --home` of this Python names");
            return;
        }
        const PyGILState_STATE state = PyGILState_Ensure();
        ready.store(Connect(false));
        PyGILState_Release(state);
        return;
    }
    // Extension modules look for the interpreter's symbols in the whole process, wherever this library was loaded.
    dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    const PyStatus status = Initialize();
    if (PyStatus_Exception(status)) {
        Complain(std::string(kExecutable) + ": " + (status.err_msg == nullptr ? "no reason given" : status.err_msg));
        return;
    }
    ImportSignals();
    const bool connected = Connect(true);
    pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild);
    PyEval_SaveThread();
    ready.store(connected);
}

}  // namespace

void CallPython(const char *module, const char *function)
{
    if (Py_IsInitialized() == 0) {
        return;
    }
    const DefaultEnvironment ours;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *found = PyImport_ImportModule(module);
    PyObject *done = found == nullptr ? nullptr : PyObject_CallMethod(found, function, nullptr);
    if (done == nullptr) {
        PyErr_Print();
    }
    Py_XDECREF(done);
    Py_XDECREF(found);
    PyGILState_Release(state);
}

extern "C" {

// Whether the bodies of the functions can be called; says why not once.
ANYCANN_API int anycann_start(void)
{
    if (!ready.load(std::memory_order_acquire)) {
        pthread_once(&once, Start);
        if (ready.load()) {
            anycann_libraries_loaded();
        }
    }
    return ready.load(std::memory_order_acquire);
}

// Memory that a program releases with delete[].
ANYCANN_API int64_t *anycann_new_array(uint64_t count) { return new int64_t[count]; }

}  // extern "C"
