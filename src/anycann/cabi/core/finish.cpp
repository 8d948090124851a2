// What is queued when a program ends is done, while the libraries that do it are still there.
#include <Python.h>

#include <link.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

#include "acl/acl_base.h"
#include "inside.h"

namespace {

std::atomic<unsigned long long> loaded{0};
std::atomic<pid_t> owner{0};

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
    dl_iterate_phdr(CountLoaded, &now);
    if (loaded.exchange(now) != now) {
        owner = getpid();
        std::atexit(FinishWork);
    }
}

}  // extern "C"
