// What is queued when a program ends is done, while the libraries that do it are still there.
#include <Python.h>

#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <cstdlib>

#include "acl/acl_base.h"
#include "inside.h"

namespace {

// Guards what follows, and the loader's own lock, which is not free in a child that is forked while a thread holds it.
pthread_mutex_t looking = PTHREAD_MUTEX_INITIALIZER;
unsigned long long loaded = 0;
pid_t owner = 0;

void Lock() { pthread_mutex_lock(&looking); }
void Unlock() { pthread_mutex_unlock(&looking); }

__attribute__((constructor)) void HoldAroundForks() { pthread_atfork(Lock, Unlock, Unlock); }

int CountLoaded(dl_phdr_info *info, size_t, void *count)
{
    *static_cast<unsigned long long *>(count) = info->dlpi_adds;
    return 1;  // every library says the same
}

void FinishWork()
{
    if (getpid() == owner) {  // streams have no threads in a forked process
        CallPython("anycann.device.queues", "wait_for_all");
    }
}

}  // namespace

extern "C" {

// What ends a process runs in reverse order, the destructors of libraries among it. So that they find the work done, its end is
// registered again whenever a call may have loaded libraries.
ANYCANN_API void anycann_libraries_loaded(void)
{
    unsigned long long now = 0;
    Lock();
    dl_iterate_phdr(CountLoaded, &now);
    if (loaded != now) {
        loaded = now;
        owner = getpid();
        std::atexit(FinishWork);
    }
    Unlock();
}

}  // extern "C"
