// What an instruction may touch: live tensors, inside their bounds, written before they are read, and ordered after whoever touched the same
// 32-byte block before on another pipe.
#include "state.h"

#include <algorithm>

// The C runtime library, where it is loaded: the live device memory that holds an address; 0 when there is one.
extern "C" int anycann_device_block(const void* address, void** base, std::size_t* bytes) __attribute__((weak));

namespace anycann {
namespace emu {

constexpr std::uint32_t kWholeBlock = 0xffffffffu;

Op::Op(const char* name, Pipe pipe, const Loc& loc) : name_(name), loc_(loc), pipe_(pipe)
{
    Core& core = Current();
    core.Tick(name, loc);
    checked_ = core.launch->check;
    site_ = core.SiteId(name, loc);
    time_ = ++core.At(pipe).at[Index(pipe)];
}

// The timeline's model, not a device's: a fixed start and so many bytes a cycle.
Op::~Op()
{
    Core& core = Current();
    double length = 1;
    if (pipe_ == Pipe::V) {
        length = 20 + static_cast<double>(longest_) / 256;
    } else if (pipe_ != Pipe::S) {
        length = 100 + static_cast<double>(longest_) / 64;
    }
    Clock& clock = core.At(pipe_);
    const double start = std::max(clock.time, core.issue);
    clock.time = start + length;
    if (pipe_ == Pipe::S) {
        core.issue = clock.time;
    }
    TraceSpan(core, static_cast<int>(pipe_), name_, start, length, longest_, loc_);
}

static const char* const kEvents[kPipes][kPipes] = {
    {"", "S_V", "S_MTE2", "S_MTE3"}, {"V_S", "", "V_MTE2", "V_MTE3"}, {"MTE2_S", "MTE2_V", "", "MTE2_MTE3"}, {"MTE3_S", "MTE3_V", "MTE3_MTE2", ""}};

static void NoteRace(Core& core, const Slot* slot, const Loc& loc, const char* api, Pipe pipe, bool write, Pipe earlier, std::uint32_t site, bool earlierWrote,
                     const std::string& where)
{
    const Site& before = core.sites[site];
    for (const Report& seen : core.reports) {
        if (seen.rule == "missing-sync" && seen.loc.line == loc.line && seen.loc.file == loc.file && seen.alsoLoc.line == before.loc.line) {
            return;
        }
    }
    const char* event = kEvents[Index(earlier)][Index(pipe)];
    Report& report = Note(core, "missing-sync", loc, api, slot,
                          Format("%s (pipe %s) %s %s that %s (pipe %s) %s, and nothing makes the second wait for the first", api, PipeName(pipe),
                                 write ? "writes" : "reads", where.c_str(), before.api, PipeName(earlier), earlierWrote ? "wrote" : "reads"));
    report.pipe = PipeName(pipe);
    report.also = Format("the %s on pipe %s", before.api, PipeName(earlier));
    report.alsoLoc = before.loc;
    report.advice = Format("after the first: SetFlag<HardEvent::%s>(id), before the second: WaitFlag<HardEvent::%s>(id)%s", event, event,
                           slot != nullptr && earlier != Pipe::S && pipe != Pipe::S ? "; or pass the tensor through EnQue and DeQue of a queue that joins these pipes" : "");
}

// Compares one access with the last ones of a block and takes its place.
static bool Order(Core& core, Cell& cell, Pipe pipe, std::uint32_t time, std::uint32_t site, bool write, Pipe& earlier, std::uint32_t& earlierSite, bool& earlierWrote)
{
    const std::size_t p = Index(pipe);
    const Clock& known = core.clocks[p];
    bool race = false;
    if (cell.writeTime != 0 && cell.writePipe != pipe && cell.writeTime > known.at[Index(cell.writePipe)]) {
        race = true;
        earlier = cell.writePipe;
        earlierSite = cell.writeSite;
        earlierWrote = true;
    }
    if (!write) {
        if (pipe != Pipe::S) {  // the scalar unit issues the others: its reads are over before anything later begins
            cell.readTime[p] = time;
            cell.readSite[p] = site;
        }
        return race;
    }
    for (std::size_t q = 0; q < kPipes && !race; ++q) {
        if (q != p && cell.readTime[q] > known.at[q]) {
            race = true;
            earlier = static_cast<Pipe>(q);
            earlierSite = cell.readSite[q];
            earlierWrote = false;
        }
    }
    cell.writeTime = time;
    cell.writePipe = pipe;
    cell.writeSite = site;
    cell.readTime.fill(0);
    return race;
}

// The same for bytes of a block of global memory; `before` is the access that nothing orders before this one.
static bool Order(const Core& core, GmCell& cell, const Touched& now, Touched& before)
{
    const Clock& known = core.clocks[Index(now.pipe)];
    bool race = false;
    const auto compare = [&](Touched& earlier) {
        if ((earlier.bytes & now.bytes) == 0) {
            return;
        }
        if (earlier.pipe != now.pipe && (earlier.write || now.write) && earlier.time > known.at[Index(earlier.pipe)] && (!race || earlier.write)) {
            race = true;
            before = earlier;
        }
        if (now.write || (earlier.pipe == now.pipe && !earlier.write)) {
            earlier.bytes &= ~now.bytes;
        }
    };
    compare(cell.first);
    if (!cell.others.empty()) {
        std::for_each(cell.others.begin(), cell.others.end(), compare);
        cell.others.erase(std::remove_if(cell.others.begin(), cell.others.end(), [](const Touched& one) { return one.bytes == 0; }), cell.others.end());
    }
    if (!now.write && now.pipe == Pipe::S) {
        return race;  // over before anything later begins
    }
    if (cell.first.bytes == 0) {
        cell.first = now;
    } else {
        cell.others.push_back(now);
    }
    return race;
}

static void CheckState(Core& core, const View& view, const char* api, const Loc& loc)
{
    if (view.slot == nullptr) {
        Fail(core, "no-memory", loc, api, nullptr, "an operand has no memory: it is a LocalTensor that no AllocTensor, DeQue or Get has filled");
    }
    const Slot& slot = *view.slot;
    if (slot.state == SlotState::Plain) {
        if (slot.owner->closed) {
            Fail(core, "use-after-free", loc, api, &slot, "the TPipe that owns this buffer is gone");
        }
        return;
    }
    if (slot.state == SlotState::Free || slot.generation != view.generation) {
        Fail(core, "use-after-free", loc, api, &slot, "an operand was given back by FreeTensor (" + PlaceText(slot.freed) + ")");
    }
    if (slot.state == SlotState::Queued) {
        Fail(core, "use-after-enque", loc, api, &slot, "an operand is in the queue since EnQue (" + PlaceText(slot.queued) + "): it belongs to whoever takes it out");
    }
}

void Op::Touch(const View& view, std::int64_t offset, std::int64_t bytes, int align, bool write)
{
    longest_ = std::max(longest_, bytes);
    if (!checked_ && view.slot != nullptr) {
        return;
    }
    Core& core = Current();
    CheckState(core, view, name_, loc_);
    if (bytes == 0) {
        return;
    }
    const Slot& slot = *view.slot;
    const std::int64_t begin = view.begin + offset, end = begin + bytes;
    if (offset < 0 || bytes < 0 || offset + bytes > view.bytes || begin < slot.offset || end > slot.offset + slot.bytes) {
        Fail(core, "tensor-range", loc_, name_, &slot,
             Format("%s %s bytes %lld to %lld of a tensor of %lld bytes (its buffer has %lld)", name_, write ? "writes" : "reads", static_cast<long long>(offset),
                    static_cast<long long>(offset + bytes - 1), static_cast<long long>(view.bytes), static_cast<long long>(slot.bytes)));
    }
    if (begin % align != 0) {
        Fail(core, "unaligned", loc_, name_, &slot,
             Format("an operand starts %lld bytes into its buffer; %s needs a multiple of %d", static_cast<long long>(begin - slot.offset), name_, align));
    }
    std::uint8_t* flags = core.written.data() + begin;
    if (write) {
        std::memset(flags, 1, static_cast<std::size_t>(bytes));
    } else if (const void* hole = std::memchr(flags, 0, static_cast<std::size_t>(bytes))) {
        const std::int64_t at = static_cast<const std::uint8_t*>(hole) - core.written.data();
        Note(core, "read-unwritten", loc_, name_, &slot,
             Format("%s reads bytes %lld to %lld of the buffer, and nothing has written byte %lld since it was handed out", name_,
                    static_cast<long long>(begin - slot.offset), static_cast<long long>(end - 1 - slot.offset), static_cast<long long>(at - slot.offset)));
        std::memset(flags, 1, static_cast<std::size_t>(bytes));  // once is enough
    }
    Pipe earlier = Pipe::S;
    std::uint32_t site = 0;
    bool wrote = false;
    for (std::int64_t block = begin / 32; block <= (end - 1) / 32; ++block) {
        if (Order(core, core.cells[static_cast<std::size_t>(block)], pipe_, time_, site_, write, earlier, site, wrote)) {
            NoteRace(core, &slot, loc_, name_, pipe_, write, earlier, site, wrote,
                     Format("UB bytes %lld to %lld of the buffer", static_cast<long long>(block * 32 - slot.offset), static_cast<long long>(block * 32 + 31 - slot.offset)));
        }
    }
}

void Op::Read(const View& view, std::int64_t bytes, int align) { Touch(view, 0, bytes, align, false); }
void Op::Write(const View& view, std::int64_t bytes, int align) { Touch(view, 0, bytes, align, true); }
void Op::ReadAt(const View& view, std::int64_t offset, std::int64_t bytes, int align) { Touch(view, offset, bytes, align, false); }
void Op::WriteAt(const View& view, std::int64_t offset, std::int64_t bytes, int align) { Touch(view, offset, bytes, align, true); }

// Runs of selected lanes that lie next to each other are one access.
void Op::WalkLanes(const View& view, const Lanes& lanes, bool write)
{
    std::int64_t begin = 0, end = -1;
    const std::int64_t size = lanes.itemSize;
    Touch(view, 0, 0, 32, write);
    if (checked_ && view.begin % 32 != 0) {
        Fail(Current(), "unaligned", loc_, name_, view.slot, Format("an operand starts %lld bytes into its buffer; %s needs a multiple of 32", static_cast<long long>(view.begin - view.slot->offset), name_));
    }
    for (int r = 0; r < lanes.repeats; ++r) {
        for (int lane = 0; lane < lanes.perRepeat; ++lane) {
            if (!lanes.On(lane)) {
                continue;
            }
            const std::int64_t at = lanes.At(r, lane) * size;
            if (at != end) {
                if (end > begin) {
                    Touch(view, begin, end - begin, 1, write);
                }
                begin = at;
            }
            end = at + size;
        }
    }
    if (end > begin) {
        Touch(view, begin, end - begin, 1, write);
    }
}

void Op::ReadLanes(const View& view, const Lanes& lanes) { WalkLanes(view, lanes, false); }
void Op::WriteLanes(const View& view, const Lanes& lanes) { WalkLanes(view, lanes, true); }

void Op::Forget(const View& view, std::int64_t bytes)
{
    if (checked_) {
        Core& core = Current();
        std::memset(core.ub + view.begin, 0xff, static_cast<std::size_t>(bytes));
        std::memset(core.written.data() + view.begin, 0, static_cast<std::size_t>(bytes));
    }
}

void Op::NoOverlap(const View& a, std::int64_t aBytes, const char* aName, const View& b, std::int64_t bBytes, const char* bName)
{
    if (checked_ && a.begin < b.begin + bBytes && b.begin < a.begin + aBytes) {
        Fail(Current(), "overlap", loc_, name_, a.slot, Format("%s and %s share bytes", aName, bName));
    }
}

void Op::NoteOverlap(const View& dst, const View& src)
{
    const std::int64_t away = src.begin - dst.begin;
    Note(Current(), "overlap", loc_, name_, dst.slot,
         away != 0 ? Format("the destination overlaps a source that starts %lld bytes away: in which order the lanes run is not defined", static_cast<long long>(away))
                   : std::string("the destination begins where a source does, and its elements lie elsewhere: some are written over before they are read"));
}

static bool Apart(const View& dst, std::int64_t dstBytes, const View& src, std::int64_t srcBytes)
{
    return dst.begin >= src.begin + srcBytes || src.begin >= dst.begin + dstBytes;
}

void Op::SameOrApart(const View& dst, std::int64_t dstBytes, const View& src, std::int64_t srcBytes)
{
    if (checked_ && !Apart(dst, dstBytes, src, srcBytes) && (dst.begin != src.begin || dstBytes > srcBytes)) {
        NoteOverlap(dst, src);
    }
}

// Whether a lane reads what an earlier repeat wrote, or what another lane of its own repeat writes.
static bool Disturbed(const View& dst, const Lanes& to, const View& src, const Lanes& from)
{
    std::vector<int> writer(static_cast<std::size_t>(to.Extent()), -1);  // of each byte of the destination: the last repeat
    for (int r = 0; r < to.repeats; ++r) {
        for (const bool written : {false, true}) {  // before this repeat, and after it
            for (int lane = 0; lane < from.perRepeat; ++lane) {
                const std::int64_t own = to.At(r, lane) * to.itemSize, read = src.begin - dst.begin + from.At(r, lane) * from.itemSize;
                for (std::int64_t at = read; from.On(lane) && at < read + from.itemSize; ++at) {
                    const bool inside = at >= 0 && at < static_cast<std::int64_t>(writer.size()) && !(written && at >= own && at < own + to.itemSize);
                    if (inside && writer[static_cast<std::size_t>(at)] >= (written ? r : 0)) {
                        return true;
                    }
                }
            }
            for (int lane = 0; lane < to.perRepeat; ++lane) {
                if (to.On(lane)) {
                    std::fill_n(writer.begin() + to.At(r, lane) * to.itemSize, to.itemSize, r);
                }
            }
        }
    }
    return false;
}

void Op::SameOrApart(const View& dst, const Lanes& to, const View& src, const Lanes& from)
{
    const bool alike = to.itemSize == from.itemSize && to.blockStride == from.blockStride && to.repeatStride == from.repeatStride;
    const bool same = dst.begin == src.begin && (alike || to.itemSize < from.itemSize);
    if (checked_ && !same && !Apart(dst, to.Extent(), src, from.Extent()) && Disturbed(dst, to, src, from)) {
        NoteOverlap(dst, src);
    }
}

// Whether a repeat reads results of an earlier one, or has its own among its sources and not where these begin.
static bool Disturbed(std::int64_t away, std::int64_t step, std::int64_t width, const Lanes& from)
{
    std::vector<bool> written(static_cast<std::size_t>((from.repeats - 1) * step + width), false);
    for (int r = 0; r < from.repeats; ++r) {
        const std::int64_t begin = r * step;
        const bool inPlace = away + from.At(r, 0) * from.itemSize == begin;
        for (int lane = 0; lane < from.perRepeat; ++lane) {
            const std::int64_t read = away + from.At(r, lane) * from.itemSize;
            for (std::int64_t at = read; from.On(lane) && at < read + from.itemSize; ++at) {
                const bool own = at >= begin && at < begin + width && !inPlace;
                if (own || (at >= 0 && at < static_cast<std::int64_t>(written.size()) && written[static_cast<std::size_t>(at)])) {
                    return true;
                }
            }
        }
        std::fill_n(written.begin() + begin, width, true);
    }
    return false;
}

void Op::ResultsApart(const View& dst, std::int64_t step, std::int64_t width, const View& src, const Lanes& from)
{
    if (checked_ && from.repeats > 0 && !Apart(dst, (from.repeats - 1) * step + width, src, from.Extent()) &&
        Disturbed(src.begin - dst.begin, step, width, from)) {
        NoteOverlap(dst, src);
    }
}

static const Launch::Region* FindRegion(const Launch& launch, std::int64_t begin, std::int64_t end)
{
    for (const Launch::Region& region : launch.regions) {
        if (begin >= region.begin && end <= region.end) {
            return &region;
        }
    }
    return nullptr;
}

static std::string NearestRegion(const Launch& launch, std::int64_t begin)
{
    for (const Launch::Region& region : launch.regions) {
        if (begin >= region.begin && (begin < region.end || (begin == region.end && launch.bounded))) {
            return Format("%s has %lld bytes, the access begins at byte %lld", region.name.c_str(), static_cast<long long>(region.end - region.begin),
                          static_cast<long long>(begin - region.begin));
        }
    }
    return std::string();
}

// A program that runs against the C runtime: its kernels may touch what aclrtMalloc handed out.
static void CheckDeviceBlock(Core& core, std::int64_t begin, std::int64_t end, const Loc& loc, const char* api)
{
    if (anycann_device_block == nullptr) {
        return;
    }
    void* base = nullptr;
    std::size_t bytes = 0;
    if (anycann_device_block(reinterpret_cast<const void*>(static_cast<std::intptr_t>(begin)), &base, &bytes) != 0) {
        Fail(core, "gm-range", loc, api, nullptr, "the global address is not device memory: past the end of an allocation, a host pointer, or memory that was freed");
    }
    const std::int64_t first = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(base));
    if (end > first + static_cast<std::int64_t>(bytes)) {
        Fail(core, "gm-range", loc, api, nullptr,
             Format("%s touches bytes %lld to %lld of device memory of %lld bytes", api, static_cast<long long>(begin - first), static_cast<long long>(end - 1 - first),
                    static_cast<long long>(bytes)));
    }
}

static void LogGm(Core& core, Access kind, std::int64_t begin, std::int64_t end, std::uint32_t site, bool scalar)
{
    std::vector<GmAccess>& list = core.accesses[static_cast<std::size_t>(kind)];
    if (!list.empty() && list.back().site == site && list.back().epoch == core.epoch && list.back().scalar == scalar && begin <= list.back().end &&
        end >= list.back().begin) {
        list.back().begin = std::min(list.back().begin, begin);
        list.back().end = std::max(list.back().end, end);
        return;
    }
    list.push_back(GmAccess{begin, end, site, core.epoch, scalar});
}

void Op::TouchGm(const GmView& view, std::int64_t offset, std::int64_t bytes, int itemSize, bool write)
{
    longest_ = std::max(longest_, bytes);
    Core& core = Current();
    (write ? core.bytesWritten : core.bytesRead) += bytes;
    if (!checked_ || bytes == 0) {
        return;
    }
    if (view.base == nullptr) {
        Fail(core, "gm-range", loc_, name_, nullptr, "the global address is null: SetGlobalBuffer was not called, or the argument was None");
    }
    const std::int64_t base = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(view.base));
    const std::int64_t from = view.begin + offset, begin = base + from, end = begin + bytes;
    if (from < 0 || bytes < 0 || (view.bytes >= 0 && from + bytes > view.bytes)) {
        Fail(core, "gm-range", loc_, name_, nullptr,
             Format("%s %s bytes %lld to %lld of a GlobalTensor that SetGlobalBuffer gave %lld bytes", name_, write ? "writes" : "reads", static_cast<long long>(from),
                    static_cast<long long>(from + bytes - 1), static_cast<long long>(view.bytes)));
    }
    const Launch::Region* region = FindRegion(*core.launch, begin, end);
    if (region == nullptr && (core.launch->bounded || !NearestRegion(*core.launch, begin).empty())) {
        const std::string near = NearestRegion(*core.launch, begin);
        Fail(core, "gm-range", loc_, name_, nullptr,
             Format("%s %s %lld bytes past the end of global memory: %s", name_, write ? "writes" : "reads", static_cast<long long>(bytes),
                    near.empty() ? "the address lies in none of the kernel's arguments" : near.c_str()));
    }
    if (region == nullptr) {
        CheckDeviceBlock(core, begin, end, loc_, name_);
    }
    if (region != nullptr && write && !region->writable) {
        Fail(core, "gm-range", loc_, name_, nullptr, Format("%s writes to %s, which is read-only", name_, region->name.c_str()));
    }
    const std::int64_t origin = region != nullptr ? region->begin : 0;
    if ((begin - origin) % itemSize != 0) {
        Fail(core, "unaligned", loc_, name_, nullptr, Format("the global address is not a multiple of the element size %d", itemSize));
    }
    const bool scalar = pipe_ == Pipe::S, adds = write && core.atomicType != nullptr && !scalar;
    if (scalar && write) {  // the scalar unit writes whole cache lines back
        const std::int64_t line = (begin - origin) / 32 * 32 + origin;
        LogGm(core, Access::Write, line, std::max(line + 32, end), site_, true);
    } else {
        LogGm(core, adds ? Access::Add : write ? Access::Write : Access::Read, begin, end, site_, scalar);
    }
    for (std::int64_t block = (begin - origin) / 32; block <= (end - 1 - origin) / 32; ++block) {
        const std::int64_t number = block + (origin + 31) / 32 * 4;  // distinct for distinct regions: an origin is worth more blocks than it has
        std::unique_ptr<Page>& page = core.pages[number / kCellsPerPage];
        if (!page) {
            page.reset(new Page());
        }
        const std::int64_t low = std::max(begin - origin, block * 32) - block * 32, high = std::min(end - origin, block * 32 + 32) - block * 32;
        const std::uint32_t bytes = high - low == 32 ? kWholeBlock : ((1u << (high - low)) - 1) << low;
        Touched before{};
        if (Order(core, (*page)[static_cast<std::size_t>(number % kCellsPerPage)], {bytes, time_, site_, pipe_, write}, before)) {
            NoteRace(core, nullptr, loc_, name_, pipe_, write, before.pipe, before.site, before.write,
                     region != nullptr ? Format("global memory (%s, byte %lld)", region->name.c_str(), static_cast<long long>(block * 32)) : std::string("global memory"));
        }
    }
}

void Op::ReadGm(const GmView& view, std::int64_t offset, std::int64_t bytes, int itemSize) { TouchGm(view, offset, bytes, itemSize, false); }
void Op::WriteGm(const GmView& view, std::int64_t offset, std::int64_t bytes, int itemSize) { TouchGm(view, offset, bytes, itemSize, true); }

}  // namespace emu
}  // namespace anycann
