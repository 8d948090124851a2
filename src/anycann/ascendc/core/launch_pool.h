// Threads that wait for cores to simulate, and the global memory of programs without Python.
#ifndef ANYCANN_CORE_LAUNCH_POOL_H
#define ANYCANN_CORE_LAUNCH_POOL_H

#include <functional>

#include "state.h"

namespace anycann {
namespace emu {

class ThreadPool {
public:
    explicit ThreadPool(int process) : process_(process) {}
    void Start(std::function<void()> job);
    int process() const { return process_; }

private:
    void Serve();
    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<std::function<void()>> jobs_;
    std::size_t idle_ = 0;
    int process_;
};

ThreadPool& Pool();
void AddHostRegions(Launch& launch);  // what GmAlloc handed out, and device memory of the runtime library

}  // namespace emu
}  // namespace anycann

#endif
