// Running a kernel: one thread for each core, blocks in rounds, the barrier between cores, the time limit.
#include "faults.h"
#include "launch_pool.h"
#include "state.h"

#include <algorithm>
#include <cfenv>
#include <cstdlib>
#include <exception>
#include <unistd.h>

namespace anycann {
namespace emu {

// Ends the wait of the blocks in SyncAll, with the mutex held. All of them report what holds at this moment: that other blocks ended without
// arriving, or else the time limit; nothing where a block's own mistake keeps it from arriving.
static void StopWaiting(Launch& launch)
{
    if (!launch.broken && !launch.ended.empty()) {
        launch.hangs = Format("%lld of %lld blocks wait here and %s ended without reaching it: it would hang", static_cast<long long>(launch.arrived),
                              static_cast<long long>(launch.blocks), CoresText(launch.ended, launch.blocks).c_str());
    }
    launch.late = !launch.broken;
    launch.stopping = true;
    launch.changed.notify_all();
}

static void StopIfStuck(Launch& launch)  // when every block that can still move is waiting
{
    const std::int64_t ended = static_cast<std::int64_t>(launch.ended.size());
    if (!launch.stopping && launch.arrived > 0 && launch.arrived < launch.blocks && launch.arrived + ended == launch.blocks) {
        StopWaiting(launch);
    }
}

void BarrierCores(const Loc& loc)
{
    Core& core = Current();
    core.Tick("SyncAll", loc);
    Launch& launch = *core.launch;
    if (launch.blocks > launch.cores) {
        Fail(core, "sync-all", loc, "SyncAll", nullptr,
             Format("%lld blocks run in rounds on %lld cores; a block that waits for one of a later round would hang", static_cast<long long>(launch.blocks),
                    static_cast<long long>(launch.cores)));
    }
    core.JoinAll();
    std::unique_lock<std::mutex> lock(launch.mutex);
    const std::int64_t round = launch.round;
    launch.syncTime = std::max(launch.syncTime, core.issue);
    if (++launch.arrived == launch.blocks) {
        launch.arrived = 0;
        ++launch.round;
        launch.syncOut = launch.syncTime;
        launch.changed.notify_all();
    } else {
        StopIfStuck(launch);
    }
    while (launch.round == round && !launch.stopping) {
        if (launch.changed.wait_until(lock, launch.deadline) == std::cv_status::timeout && launch.round == round && !launch.stopping) {
            StopWaiting(launch);
        }
    }
    if (launch.round == round) {
        const std::string hangs = launch.hangs;
        const std::int64_t waiting = launch.arrived;
        const bool late = launch.late || !launch.broken;
        lock.unlock();
        if (!hangs.empty()) {
            Fail(core, "sync-all", loc, "SyncAll", nullptr, hangs);
        }
        if (late) {
            Fail(core, "time-limit", loc, "SyncAll", nullptr,
                 Format("the block waited here for more than %g seconds; %lld of %lld blocks arrived", launch.timeoutSeconds, static_cast<long long>(waiting),
                        static_cast<long long>(launch.blocks)));
        }
        throw StopCore();  // another block's mistake keeps this one from going on
    }
    lock.unlock();
    core.issue = launch.syncOut;
    for (Clock& clock : core.clocks) {
        clock.time = launch.syncOut;
    }
    ++core.epoch;
    TraceMark(core, kFlagTrack, "SyncAll", loc);
}

static void Merge(Launch& launch, Core& core)
{
    for (Report& report : core.reports) {
        const auto same = std::find_if(launch.reports.begin(), launch.reports.end(), [&report](const Report& other) {
            return other.rule == report.rule && other.loc.line == report.loc.line && other.alsoLoc.line == report.alsoLoc.line && other.queue == report.queue &&
                   other.counter == report.counter &&
                   std::strcmp(other.loc.file, report.loc.file) == 0;
        });
        if (same == launch.reports.end()) {
            launch.reports.push_back(report);
        } else {
            same->cores.insert(report.cores.begin(), report.cores.end());
        }
    }
    launch.events.insert(launch.events.end(), core.events.begin(), core.events.end());
    launch.ubPeak = std::max(launch.ubPeak, core.peak);
    launch.bytesRead += core.bytesRead;
    launch.bytesWritten += core.bytesWritten;
    launch.instructions += core.instructions;
    for (const Queue& queue : core.queues) {
        if (!queue.shape.plain) {
            const std::tuple<const char*, int, int> place{queue.initialised.file, queue.initialised.line, queue.nth};
            auto found = launch.depths.find(place);
            if (found == launch.depths.end()) {
                found = launch.depths.insert({place, Launch::Depth{QueueText(queue), 0}}).first;
            }
            found->second.most = std::max(found->second.most, queue.deepest);
        }
    }
    if (launch.check && launch.blocks > 1) {
        launch.finished.push_back(Launch::Finished{core.block, core.accesses, core.sites});
    }
}

// A mistake that no call notices: all that is known is which call came before it.
static Report AfterLastCall(const Core& core, const char* rule, const std::string& what)
{
    const char* api = core.lastApi;
    const char* but = core.launch->check ? "" : ", but for instructions on data, which only a checked run notes";
    return MakeReport(core, rule, Loc{core.lastFile, core.lastLine}, api, what + (*api != '\0' ? "; this was its last call" : "; it made no call") + but);
}

static void RunBlock(const std::shared_ptr<Launch>& launch, std::int64_t block)
{
    Core& core = Current();
    std::fesetenv(FE_DFL_ENV);  // threads begin with the traps, the rounding and the flushing of the program
    core.Begin(launch, block);
    {
        std::lock_guard<std::mutex> lock(launch->mutex);
        launch->active.push_back(&core);
    }
    bool stopped = true;
    try {
        const Ending ending = CallKernel(launch->call, launch->context);
        if (!ending.stopped) {
            CheckEnd(core);
            stopped = false;
        } else if (!ending.fault.empty()) {
            Report report = AfterLastCall(core, "fault", ending.fault);
            report.counter = ending.counter;
            report.fault = ending.fault;
            core.reports.push_back(report);
        }
    } catch (const StopCore&) {
        // what stopped it is in its reports
    } catch (const std::exception& error) {
        core.reports.push_back(AfterLastCall(core, "exception", Format("the kernel threw a C++ exception: %s", error.what())));
    } catch (...) {
        core.reports.push_back(AfterLastCall(core, "exception", "the kernel threw what is no std::exception"));
    }
    std::lock_guard<std::mutex> lock(launch->mutex);
    launch->broken = launch->broken || stopped;
    launch->active.erase(std::find(launch->active.begin(), launch->active.end(), &core));
    Merge(*launch, core);
    launch->ended.insert(block);
    StopIfStuck(*launch);
}

static void RunCore(const std::shared_ptr<Launch>& launch, std::int64_t first)
{
    for (std::int64_t block = first; block < launch->blocks; block += launch->cores) {
        RunBlock(launch, block);
    }
    Current().launch.reset();
    std::lock_guard<std::mutex> lock(launch->mutex);
    --launch->running;
    launch->changed.notify_all();
}

static void NoteAbandoned(Launch& launch)
{
    for (const Core* core : launch.active) {
        const std::string what = Format("the block did not end within %g seconds and calls nothing that could stop it", launch.timeoutSeconds);
        launch.reports.push_back(AfterLastCall(*core, "time-limit", what));
    }
}

struct Result {
    std::shared_ptr<Launch> launch;
    bool abandoned = false;
    std::string findings, trace, text;
};

static Result* Run(const AnycannLaunch& given)
{
    auto launch = std::make_shared<Launch>();
    launch->kernel = given.kernel;
    launch->call = given.call;
    launch->context = given.context;
    launch->blocks = given.blocks;
    launch->cores = given.cores;
    launch->ubBytes = given.ubBytes;
    launch->ubReserved = given.ubReserved;
    launch->eventIds = given.eventIds;
    launch->tilingKey = given.tilingKey;
    launch->check = given.check != 0;
    launch->trace = given.trace != 0;
    launch->bounded = given.regionCount >= 0;
    launch->timeoutSeconds = given.timeoutSeconds;
    for (std::int64_t i = 0; i < given.regionCount; ++i) {
        const std::int64_t begin = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(given.regions[i].address));
        launch->regions.push_back({begin, begin + given.regions[i].bytes, given.regions[i].name, given.regions[i].writable != 0});
    }
    if (!launch->bounded) {
        AddHostRegions(*launch);
    }
    const auto limit = std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(given.timeoutSeconds));
    launch->deadline = std::chrono::steady_clock::now() + limit;
    TakeSignals();
    const std::int64_t workers = std::min(launch->blocks, launch->cores);
    launch->running = workers;
    for (std::int64_t i = 0; i < workers; ++i) {
        Pool().Start([launch, i] { RunCore(launch, i); });
    }
    auto* result = new Result;
    result->launch = launch;
    std::unique_lock<std::mutex> lock(launch->mutex);
    const auto over = [&launch] { return launch->running == 0; };
    if (!launch->changed.wait_until(lock, launch->deadline + std::chrono::milliseconds(500), over)) {
        launch->stopping = true;
        launch->changed.notify_all();
        if (!launch->changed.wait_for(lock, std::chrono::seconds(1), over)) {
            result->abandoned = true;
            NoteAbandoned(*launch);
        }
    }
    if (!result->abandoned) {
        CheckBetweenCores(*launch);
    }
    for (Report& report : launch->reports) {
        const Loc place = PlaceOf(report.counter);
        if (place.line > 0) {
            report.loc = place;
            report.api = "code of the kernel";
            report.what = report.fault;
        }
    }
    result->findings = FindingsJson(*launch, result->abandoned);
    result->text = launch->reports.empty() ? std::string() : FindingsText(*launch);
    if (launch->trace) {
        result->trace = TraceJson(*launch);
    }
    return result;
}

static std::atomic<bool> failed{false};
static std::atomic<std::uint64_t> nextTilingKey{0};

// Makes the exit status 1. It is registered before main begins, and so runs after the destructors of the program's objects; to exit once
// more goes on with the handlers that are left, the runtime library's report among them.
__attribute__((constructor)) static void Register()
{
#if defined(__GLIBC__)
    on_exit(
        [](int status, void*) {
            if (failed && status != EXIT_FAILURE) {
                std::exit(EXIT_FAILURE);
            }
        },
        nullptr);
#else
    std::atexit([] {
        if (failed) {
            std::fflush(nullptr);
            _exit(EXIT_FAILURE);
        }
    });
#endif
}

// The first launch writes the file that was asked for, the others F.json.2, F.json.3, ...
static void WriteTrace(const std::string& trace)
{
    static std::atomic<int> launches{0};
    const int number = ++launches;
    const std::string path = std::getenv("ANYCANN_ASCENDC_TRACE") + (number > 1 ? "." + std::to_string(number) : std::string());
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file == nullptr) {
        std::fprintf(stderr, "anycann: cannot write the trace to %s\n", path.c_str());
        return;
    }
    std::fputs(trace.c_str(), file);
    std::fclose(file);
}

static int RunAndPrint(const AnycannLaunch& launch)
{
    const std::unique_ptr<Result> result(Run(launch));
    const int mistakes = static_cast<int>(result->launch->reports.size());
    if (launch.trace != 0) {
        WriteTrace(result->trace);
    }
    if (mistakes > 0) {
        std::fflush(stdout);
        std::fputs(result->text.c_str(), stderr);
        failed = true;
    }
    return mistakes;
}

struct Pending {
    AnycannLaunch launch;
    void (*release)(void*);
};

static int RunPending(void* pending)
{
    const std::unique_ptr<Pending> job(static_cast<Pending*>(pending));
    const int mistakes = RunAndPrint(job->launch);
    job->release(job->launch.context);
    return mistakes;
}

// A launch that does not take place.
static int Refuse(Pending* pending, int status, const std::string& why)
{
    const std::unique_ptr<Pending> job(pending);
    std::fflush(stdout);
    std::fprintf(stderr, "kernel %s was not run: %s\n", job->launch.kernel, why.c_str());
    failed = true;
    job->release(job->launch.context);
    return status;
}

}  // namespace emu
}  // namespace anycann

using anycann::emu::Result;

extern "C" {

// The C runtime library, where it is loaded: runs `job(context)` in the order of the stream; 0 when it took the job.
int anycann_stream_enqueue(void* stream, int (*job)(void*), void* context) __attribute__((weak));
int anycann_need_cores() __attribute__((weak));

void* anycann_ascendc_run(const AnycannLaunch* launch) { return anycann::emu::Run(*launch); }
const char* anycann_ascendc_findings(void* handle) { return static_cast<Result*>(handle)->findings.c_str(); }
const char* anycann_ascendc_text(void* handle) { return static_cast<Result*>(handle)->text.c_str(); }
const char* anycann_ascendc_trace(void* handle) { return static_cast<Result*>(handle)->trace.c_str(); }
void anycann_ascendc_free(void* handle) { delete static_cast<Result*>(handle); }
void anycann_ascendc_set_tiling_key(std::uint64_t key) { anycann::emu::nextTilingKey = key; }

int anycann_ascendc_start(const AnycannLaunch* launch, void* stream, void (*release)(void*))
{
    using namespace anycann::emu;
    constexpr std::int64_t kMostBlocks = 65535;
    constexpr int kInvalidParameter = 107000;
    auto* pending = new Pending{*launch, release};
    pending->launch.tilingKey = nextTilingKey;
    pending->launch.trace = std::getenv("ANYCANN_ASCENDC_TRACE") != nullptr ? 1 : 0;
    if (launch->blocks < 1 || launch->blocks > kMostBlocks) {
        return Refuse(pending, kInvalidParameter, Format("the number of blocks must be 1 to %lld; got %lld [%d]", static_cast<long long>(kMostBlocks),
                                                         static_cast<long long>(launch->blocks), kInvalidParameter));
    }
    if (anycann_stream_enqueue != nullptr && stream != nullptr) {
        const int status = anycann_stream_enqueue(stream, &RunPending, pending);
        return status == 0 ? 0 : Refuse(pending, status, Format("its stream does not take it; aclGetRecentErrMsg says why [%d]", status));
    }
    if (anycann_need_cores != nullptr && anycann_need_cores() != 0) {
        return Refuse(pending, 1, "simulated cores read and write memory of the CPU, and ANYCANN_DEVICE names another device");
    }
    return RunPending(pending);
}
}
