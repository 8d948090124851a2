#include "launch_pool.h"

#include "faults.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <thread>

#include <pthread.h>
#include <unistd.h>

namespace anycann {
namespace emu {

static std::mutex poolMutex;
static std::mutex gmMutex;

// Every job gets a thread at once: cores wait for each other. The pool is never destroyed, its threads die with the process.
ThreadPool& Pool()
{
    static ThreadPool* pool = nullptr;
    std::lock_guard<std::mutex> lock(poolMutex);
    if (pool == nullptr || pool->process() != getpid()) {  // after a fork no thread is left
        pool = new ThreadPool(getpid());
    }
    return *pool;
}

void ThreadPool::Start(std::function<void()> job)
{
    std::lock_guard<std::mutex> lock(mutex_);
    jobs_.push_back(std::move(job));
    if (idle_ >= jobs_.size()) {
        wake_.notify_one();
    } else {
        std::thread(&ThreadPool::Serve, this).detach();
    }
}

void ThreadPool::Serve()
{
    for (;;) {
        std::function<void()> job;
        {
            std::unique_lock<std::mutex> lock(mutex_);
            ++idle_;
            wake_.wait(lock, [this] { return !jobs_.empty(); });
            --idle_;
            job = std::move(jobs_.front());
            jobs_.pop_front();
        }
        job();
    }
}

static std::map<std::int64_t, std::int64_t>& GmBlocks()
{
    static auto* blocks = new std::map<std::int64_t, std::int64_t>;
    return *blocks;
}

void AddHostRegions(Launch& launch)
{
    std::lock_guard<std::mutex> lock(gmMutex);
    for (const auto& block : GmBlocks()) {
        launch.regions.push_back({block.first, block.first + block.second, Format("GmAlloc'd memory of %lld bytes", static_cast<long long>(block.second)), true});
    }
}

// No other thread holds the locks of the process while it forks: the child can launch. Nobody takes two of them.
static void LockForFork()
{
    poolMutex.lock();
    gmMutex.lock();
    SignalsLock();
    AtomicLock();
}

static void UnlockAfterFork()
{
    AtomicUnlock();
    SignalsUnlock();
    gmMutex.unlock();
    poolMutex.unlock();
}

__attribute__((constructor)) static void HoldAroundForks() { pthread_atfork(LockForFork, UnlockAfterFork, UnlockAfterFork); }

}  // namespace emu
}  // namespace anycann

extern "C" {

void* anycann_ascendc_gm_alloc(std::size_t bytes)
{
    void* memory = nullptr;
    if (posix_memalign(&memory, 512, std::max<std::size_t>(bytes, 1)) != 0) {
        throw std::bad_alloc();
    }
    std::memset(memory, 0xff, bytes);
    std::lock_guard<std::mutex> lock(anycann::emu::gmMutex);
    anycann::emu::GmBlocks()[static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(memory))] = static_cast<std::int64_t>(bytes);
    return memory;
}

void anycann_ascendc_gm_free(void* address)
{
    std::lock_guard<std::mutex> lock(anycann::emu::gmMutex);
    anycann::emu::GmBlocks().erase(static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(address)));
    std::free(address);
}
}
