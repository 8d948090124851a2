// The state of a launch and of its simulated cores. Private to the core library.
#ifndef ANYCANN_CORE_STATE_H
#define ANYCANN_CORE_STATE_H

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "emu/core.h"
#include "emu/launch.h"

namespace anycann {
namespace emu {

// A point in the order of instructions: the last instruction of each pipe that is known to be over.
struct Clock {
    std::array<std::uint32_t, kPipes> at{};
    double time = 0;  // of the timeline's model
    void Join(const Clock& other);
};

struct Site {
    const char* api;
    Loc loc;
    bool operator==(const Site& other) const { return api == other.api && loc.file == other.loc.file && loc.line == other.loc.line; }
};
struct SiteHash {
    std::size_t operator()(const Site& site) const
    {
        return reinterpret_cast<std::size_t>(site.loc.file) * 1000003u + static_cast<std::size_t>(site.loc.line) * 31u + reinterpret_cast<std::size_t>(site.api);
    }
};

enum class SlotState { Free, Occupied, Queued, Out, Plain };

struct Slot {
    Queue* owner;
    int index;
    std::int64_t offset, bytes;
    SlotState state = SlotState::Free;
    std::uint32_t generation = 0;
    Loc allocated{"", 0}, queued{"", 0}, freed{"", 0};
    Clock filled, emptied;  // what EnQue and FreeTensor ordered
};

struct Queue {
    QueueShape shape;
    const void* pipe;
    Loc initialised;
    std::deque<Slot> slots;
    std::deque<Slot*> fifo;
    std::size_t deepest = 0, next = 0;
    int nth = 0;  // of the living ones that were initialised on this line
    bool closed = false;
};

// Who touched a 32-byte block of the Unified Buffer last. Times are instruction numbers of a pipe, 0: nobody.
struct Cell {
    std::uint32_t writeTime = 0, writeSite = 0;
    std::array<std::uint32_t, kPipes> readTime{};
    std::array<std::uint32_t, kPipes> readSite{};
    Pipe writePipe = Pipe::S;
};
// Global memory is told apart by bytes: who touched those of a 32-byte block that `bytes` marks, and, mostly nobody, who touched others.
struct Touched {
    std::uint32_t bytes = 0, time = 0, site = 0;
    Pipe pipe = Pipe::S;
    bool write = false;
};
struct GmCell {
    Touched first;
    std::vector<Touched> others;
};
constexpr int kCellsPerPage = 128;
using Page = std::array<GmCell, kCellsPerPage>;

enum class Access { Read, Write, Add };
struct GmAccess {  // for the check between cores
    std::int64_t begin, end;
    std::uint32_t site, epoch;
    bool scalar;
};

struct Flag {
    bool set = false, taken = false;
    Loc loc{"", 0};
    Clock clock;
};

struct Report {
    std::string rule, api, pipe, queue, what, also, advice;
    Loc loc{"", 0}, alsoLoc{"", 0};
    int buffer = -1;
    std::set<std::int64_t> cores;
    std::uintptr_t counter = 0;  // of an instruction at fault
    std::string fault;  // and what it did
};

struct TraceEvent {
    std::int64_t core;
    int track;
    const char* name;
    double start, length;
    std::int64_t bytes;
    Loc loc;
};

struct StopCore {};

struct Core;

struct Launch {
    std::string kernel;
    void (*call)(void*) = nullptr;
    void* context = nullptr;
    std::int64_t blocks = 1, cores = 1, ubBytes = 0, ubReserved = 0, eventIds = 8;
    std::uint64_t tilingKey = 0;
    bool check = true, trace = false, bounded = false;
    std::chrono::steady_clock::time_point deadline;
    double timeoutSeconds = 0;
    struct Region {
        std::int64_t begin, end;
        std::string name;
        bool writable;
    };
    std::vector<Region> regions;

    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<bool> stopping{false};
    std::int64_t running = 0;  // worker threads
    std::int64_t arrived = 0, round = 0;  // SyncAll
    std::set<std::int64_t> ended;         // blocks
    std::string hangs;                    // why the blocks that wait in SyncAll wait in vain
    bool late = false;                    // the time limit came while blocks waited in SyncAll
    double syncTime = 0, syncOut = 0;
    bool broken = false;  // a block was stopped by a mistake of its own
    std::vector<Report> reports;
    std::vector<TraceEvent> events;
    struct Finished {
        std::int64_t block;
        std::array<std::vector<GmAccess>, 3> accesses;
        std::vector<Site> sites;
    };
    std::vector<Finished> finished;
    std::int64_t ubPeak = 0, bytesRead = 0, bytesWritten = 0, instructions = 0;
    struct Depth {
        std::string queue;
        std::size_t most;
    };
    std::map<std::tuple<const char*, int, int>, Depth> depths;  // by the place of InitBuffer and which it was there
    std::vector<Core*> active;

    std::int64_t UbLimit() const { return ubBytes - ubReserved; }
};

struct Core {
    std::shared_ptr<Launch> launch;
    std::int64_t block = 0;
    std::unique_ptr<std::uint8_t[]> memory;
    std::uint8_t* ub = nullptr;  // in it, on a 64-byte boundary
    std::int64_t ubSize = 0;
    std::vector<std::uint8_t> written;  // per byte
    std::vector<Cell> cells;
    std::array<Clock, kPipes> clocks;
    double issue = 0;
    std::map<std::pair<const char*, int>, Flag> flags;
    std::deque<Queue> queues;
    const void* pipe = nullptr;
    Loc pipeLoc{"", 0};
    Queue stack{};  // the rest of the UB, for functions that take what is left
    std::int64_t used = 0, peak = 0;
    std::int64_t buffers = 0;
    std::unordered_map<std::int64_t, std::unique_ptr<Page>> pages;
    std::array<std::vector<GmAccess>, 3> accesses;
    std::vector<Site> sites;
    std::unordered_map<Site, std::uint32_t, SiteHash> siteIds;
    std::uint32_t epoch = 0;
    const char* atomicType = nullptr;
    Loc atomicLoc{"", 0};
    std::int64_t bytesRead = 0, bytesWritten = 0;
    std::atomic<std::int64_t> instructions{0};
    std::atomic<const char*> lastApi{""}, lastFile{""};
    std::atomic<int> lastLine{0};
    std::vector<Report> reports;
    std::vector<TraceEvent> events;

    void Begin(const std::shared_ptr<Launch>& launch, std::int64_t block);
    std::uint32_t SiteId(const char* api, const Loc& loc);
    Clock& At(Pipe which) { return clocks[static_cast<std::size_t>(which)]; }
    void Tick(const char* api, const Loc& loc);
    void JoinAll();
};

Core& Current();
std::size_t Index(Pipe pipe);
const char* PipeName(Pipe pipe);
std::string PositionName(int position);
std::string QueueName(const Queue& queue);
std::string QueueText(const Queue& queue);
std::string PlaceText(const Loc& loc);
std::string CoresText(const std::set<std::int64_t>& cores, std::int64_t blocks);
std::string Format(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Findings. Fail stops the core; Note goes on.
Report MakeReport(const Core& core, const char* rule, const Loc& loc, const char* api, std::string what);
Report& Note(Core& core, const char* rule, const Loc& loc, const char* api, const Slot* slot, std::string what);
[[noreturn]] void Fail(Core& core, const char* rule, const Loc& loc, const char* api, const Slot* slot, std::string what);
[[noreturn]] void Fail(Core& core, Report& report);

void CheckEnd(Core& core);                            // leaks, flags, atomics; called when the kernel function has returned
void CheckLeaks(Core& core, const void* pipe);
void CheckBetweenCores(Launch& launch);
std::string FindingsJson(Launch& launch, bool abandoned);
std::string FindingsText(Launch& launch);
std::string TraceJson(const Launch& launch);
void TraceSpan(Core& core, int track, const char* name, double start, double length, std::int64_t bytes, const Loc& loc);
void TraceMark(Core& core, int track, const char* name, const Loc& loc);
constexpr int kQueueTrack = 4, kFlagTrack = 5;

}  // namespace emu
}  // namespace anycann

#endif
