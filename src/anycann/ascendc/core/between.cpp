// After the launch: blocks that touched the same global memory at the same time. Works on the accesses that the cores wrote down, so the
// result does not depend on how the threads happened to run.
#include "state.h"

#include <algorithm>

namespace anycann {
namespace emu {

struct Span {
    const GmAccess* access;
    std::size_t block;
    Access kind;
};

static bool Harmless(const Span& a, const Span& b)
{
    return a.block == b.block || a.access->epoch != b.access->epoch || (a.kind == Access::Read && b.kind == Access::Read) ||
           (a.kind == Access::Add && b.kind == Access::Add);
}

static const char* Did(Access kind) { return kind == Access::Read ? "reads" : kind == Access::Write ? "writes" : "adds to"; }

static std::string Where(const Launch& launch, std::int64_t begin, std::int64_t end)
{
    for (const Launch::Region& region : launch.regions) {
        if (begin >= region.begin && begin < region.end) {
            return Format("bytes %lld to %lld of %s", static_cast<long long>(begin - region.begin), static_cast<long long>(end - 1 - region.begin), region.name.c_str());
        }
    }
    return Format("%lld bytes of global memory", static_cast<long long>(end - begin));
}

static void AddConflict(Launch& launch, const Span& a, const Span& b)
{
    const bool swap = a.kind == Access::Read;  // name the writer first
    const Span& first = swap ? b : a;
    const Span& second = swap ? a : b;
    const Launch::Finished &one = launch.finished[first.block], &two = launch.finished[second.block];
    const Site &siteOne = one.sites[first.access->site], &siteTwo = two.sites[second.access->site];
    for (Report& seen : launch.reports) {
        if (seen.rule == "gm-conflict" && seen.loc.line == siteOne.loc.line && seen.alsoLoc.line == siteTwo.loc.line) {
            seen.cores.insert({one.block, two.block});
            return;
        }
    }
    const std::int64_t begin = std::max(a.access->begin, b.access->begin), end = std::min(a.access->end, b.access->end);
    Report report;
    report.rule = "gm-conflict";
    report.api = siteOne.api;
    report.loc = siteOne.loc;
    report.cores = {one.block, two.block};
    report.what = Format("core %lld %s %s and core %lld %s them, with no SyncAll between", static_cast<long long>(one.block), Did(first.kind),
                         Where(launch, begin, end).c_str(), static_cast<long long>(two.block), Did(second.kind));
    if (first.access->scalar) {
        report.what += "; SetValue on global memory writes back its whole 32-byte block";
    }
    report.also = Format("the access of core %lld", static_cast<long long>(two.block));
    report.alsoLoc = siteTwo.loc;
    report.advice = "give each block its own part, use SetAtomicAdd, or put SyncAll between";
    launch.reports.push_back(report);
}

void CheckBetweenCores(Launch& launch)
{
    std::sort(launch.finished.begin(), launch.finished.end(), [](const Launch::Finished& a, const Launch::Finished& b) { return a.block < b.block; });
    std::vector<Span> spans;
    bool writes = false;
    for (std::size_t block = 0; block < launch.finished.size(); ++block) {
        for (const Access kind : {Access::Read, Access::Write, Access::Add}) {
            for (const GmAccess& access : launch.finished[block].accesses[static_cast<std::size_t>(kind)]) {
                spans.push_back(Span{&access, block, kind});
                writes = writes || kind != Access::Read;
            }
        }
    }
    if (!writes) {
        return;
    }
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
        return a.access->begin != b.access->begin ? a.access->begin < b.access->begin : a.block < b.block;
    });
    // Sweep by address. Reads are kept apart, so that many readers of one place cost nothing.
    std::vector<Span> reads, changes;
    const auto drop = [](std::vector<Span>& open, std::int64_t begin) {
        open.erase(std::remove_if(open.begin(), open.end(), [begin](const Span& s) { return s.access->end <= begin; }), open.end());
    };
    for (const Span& span : spans) {
        drop(changes, span.access->begin);
        for (const Span& other : changes) {
            if (!Harmless(span, other)) {
                AddConflict(launch, other, span);
            }
        }
        if (span.kind == Access::Read) {
            reads.push_back(span);
            continue;
        }
        drop(reads, span.access->begin);
        for (const Span& other : reads) {
            if (!Harmless(span, other)) {
                AddConflict(launch, other, span);
            }
        }
        changes.push_back(span);
    }
}

}  // namespace emu
}  // namespace anycann
