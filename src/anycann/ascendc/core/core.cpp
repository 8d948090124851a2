// The order of instructions on one core: pipes, flags, barriers; what every instruction does first.
#include "faults.h"
#include "state.h"

#include <algorithm>

namespace anycann {
namespace emu {

thread_local Core tCore;

Core& Current() { return tCore; }
std::size_t Index(Pipe pipe) { return static_cast<std::size_t>(pipe); }

const char* PipeName(Pipe pipe)
{
    static const char* const names[] = {"S", "V", "MTE2", "MTE3"};
    return names[Index(pipe)];
}

std::string PositionName(int position)
{
    static const char* const names[] = {"GM", "A1", "A2", "B1", "B2", "C1", "C2", "CO1", "CO2", "VECIN", "VECOUT", "VECCALC"};
    return position >= 0 && position < 12 ? names[position] : "?";
}

void Clock::Join(const Clock& other)
{
    for (std::size_t p = 0; p < kPipes; ++p) {
        at[p] = std::max(at[p], other.at[p]);
    }
    time = std::max(time, other.time);
}

void Core::Begin(const std::shared_ptr<Launch>& l, std::int64_t b)
{
    launch = l;
    block = b;
    if (ubSize < l->ubBytes) {
        memory.reset(new std::uint8_t[static_cast<std::size_t>(l->ubBytes) + 64]);
        ub = memory.get() + (64 - reinterpret_cast<std::size_t>(memory.get()) % 64) % 64;
        written.assign(static_cast<std::size_t>(l->ubBytes), 0);
        cells.assign(static_cast<std::size_t>(l->ubBytes / 32), Cell());
        ubSize = l->ubBytes;
    }
    clocks.fill(Clock());
    issue = 0;
    flags.clear();
    queues.clear();
    pipe = nullptr;
    used = peak = buffers = 0;
    pages.clear();
    for (auto& list : accesses) {
        list.clear();
    }
    sites.clear();
    siteIds.clear();
    epoch = 0;
    atomicType = nullptr;
    bytesRead = bytesWritten = 0;
    instructions = 0;
    lastApi = lastFile = "";
    lastLine = 0;
    reports.clear();
    events.clear();
}

std::uint32_t Core::SiteId(const char* api, const Loc& loc)
{
    const auto [found, added] = siteIds.try_emplace(Site{api, loc}, static_cast<std::uint32_t>(sites.size()));
    if (added) {
        sites.push_back(found->first);
    }
    return found->second;
}

void Core::Tick(const char* api, const Loc& loc)
{
    lastApi.store(api, std::memory_order_relaxed);
    lastFile.store(loc.file, std::memory_order_relaxed);
    lastLine.store(loc.line, std::memory_order_relaxed);
    const std::int64_t count = instructions.fetch_add(1, std::memory_order_relaxed);
    issue += 4;
    if (launch->stopping.load(std::memory_order_relaxed)) {
        throw StopCore();
    }
    if (count % 256 == 255 && std::chrono::steady_clock::now() > launch->deadline) {
        Fail(*this, "time-limit", loc, api, nullptr,
             Format("the block has run for more than %g seconds and %lld instructions; it was stopped here", launch->timeoutSeconds, static_cast<long long>(count)));
    }
}

void Core::JoinAll()
{
    Clock all;
    for (const Clock& clock : clocks) {
        all.Join(clock);
    }
    all.time = std::max(all.time, issue);
    clocks.fill(all);
    issue = all.time;
}

void FlagSet(const char* event, Pipe from, Pipe to, int id, const Loc& loc)
{
    Core& core = Current();
    core.Tick("SetFlag", loc);
    if (id < 0 || id >= core.launch->eventIds) {
        Fail(core, "event-id", loc, "SetFlag", nullptr,
             Format("event id %d of %s does not exist: this product has %d per event", id, event, static_cast<int>(core.launch->eventIds)));
    }
    Flag& flag = core.flags[{event, id}];
    if (flag.set) {
        Report& report = Note(core, "flag-set-twice", loc, "SetFlag", nullptr, Format("event %s, id %d, is set a second time before anything waited for it", event, id));
        report.also = "it was set before here";
        report.alsoLoc = flag.loc;
    }
    ++core.At(from).at[Index(from)];
    flag.set = true;
    flag.loc = loc;
    flag.clock = core.At(from);
    flag.clock.time = std::max(flag.clock.time, core.issue);
    TraceMark(core, kFlagTrack, "SetFlag", loc);
    static_cast<void>(to);
}

void FlagWait(const char* event, Pipe from, Pipe to, int id, const Loc& loc)
{
    Core& core = Current();
    core.Tick("WaitFlag", loc);
    const auto found = core.flags.find({event, id});
    if (found == core.flags.end() || !found->second.set) {
        Fail(core, "wait-without-set", loc, "WaitFlag", nullptr,
             Format("pipe %s waits for event %s, id %d, which pipe %s has not been told to set: it would hang", PipeName(to), event, id, PipeName(from)));
    }
    found->second.set = false;
    core.At(to).Join(found->second.clock);
    if (to == Pipe::S) {  // the scalar unit issues the others: what they begin from here on, they begin after it waited
        for (Clock& clock : core.clocks) {
            clock.Join(found->second.clock);
        }
        core.issue = std::max(core.issue, core.At(to).time);
    }
    TraceMark(core, kFlagTrack, "WaitFlag", loc);
}

int FlagFetch(const char* event, Pipe, Pipe, bool take, const Loc& loc)
{
    Core& core = Current();
    for (int id = 0; id < core.launch->eventIds; ++id) {
        Flag& flag = core.flags[{event, id}];
        if (!flag.taken && !flag.set) {
            flag.taken = take;
            return id;
        }
    }
    Fail(core, "event-id", loc, take ? "AllocEventID" : "FetchEventID", nullptr,
         Format("all %d event ids of %s are in use: release them with ReleaseEventID", static_cast<int>(core.launch->eventIds), event));
}

void FlagRelease(const char* event, Pipe, Pipe, int id, const Loc& loc)
{
    Core& core = Current();
    const auto found = core.flags.find({event, id});
    if (found == core.flags.end() || !found->second.taken) {
        Fail(core, "event-id", loc, "ReleaseEventID", nullptr, Format("event id %d of %s was not allocated", id, event));
    }
    found->second.taken = false;
}

void BarrierAll(const Loc& loc)
{
    Core& core = Current();
    core.Tick("PipeBarrier", loc);
    core.JoinAll();
    TraceMark(core, kFlagTrack, "PipeBarrier<PIPE_ALL>", loc);
}

std::int64_t BlockIndex() { return Current().block; }
std::int64_t BlockCount() { return Current().launch->blocks; }
std::uint64_t TilingKey() { return Current().launch->tilingKey; }
void SetAtomic(const char* type, const Loc& loc)
{
    Core& core = Current();
    core.Tick(type == nullptr ? "SetAtomicNone" : "SetAtomicAdd", loc);
    core.atomicType = type;
    core.atomicLoc = loc;
}
const char* AtomicType() { return Current().atomicType; }
static std::mutex atomicMutex;
static thread_local bool tAtomic = false;
void AtomicLock()
{
    atomicMutex.lock();
    tAtomic = true;
}
void AtomicUnlock()
{
    tAtomic = false;
    atomicMutex.unlock();
}
void AtomicRelease()
{
    if (tAtomic) {
        AtomicUnlock();
    }
}

void CheckEnd(Core& core)
{
    for (const auto& entry : core.flags) {
        if (entry.second.set) {
            Note(core, "set-without-wait", entry.second.loc, "SetFlag", nullptr,
                 Format("event %s, id %d, was set here and nothing waited for it before the kernel ended: the next kernel on this core finds it set", entry.first.first,
                        entry.first.second));
        }
    }
    CheckLeaks(core, nullptr);
    if (core.atomicType != nullptr) {
        Note(core, "atomic-left-on", core.atomicLoc, "SetAtomicAdd", nullptr, "the kernel ended without SetAtomicNone: the next kernel's copies would add too");
    }
}

}  // namespace emu
}  // namespace anycann
