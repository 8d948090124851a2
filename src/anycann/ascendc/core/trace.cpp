// The timeline, as Chrome trace events. Times are those of a simple model (a fixed start and so many bytes a cycle), not of a device.
#include "state.h"

#include <cstring>

namespace anycann {
namespace emu {

void TraceSpan(Core& core, int track, const char* name, double start, double length, std::int64_t bytes, const Loc& loc)
{
    if (core.launch->trace) {
        core.events.push_back(TraceEvent{core.block, track, name, start, length, bytes, loc});
    }
}

void TraceMark(Core& core, int track, const char* name, const Loc& loc)
{
    if (core.launch->trace) {
        core.events.push_back(TraceEvent{core.block, track, name, core.issue, -1, 0, loc});
    }
}

std::string TraceJson(const Launch& launch)
{
    static const char* const tracks[] = {"S scalar", "V vector", "MTE2 GM to UB", "MTE3 UB to GM", "queues", "flags"};
    std::string json = "{\"displayTimeUnit\": \"ns\", \"otherData\": {\"kernel\": \"" + launch.kernel +
                       "\", \"time\": \"of a simple model, 1 cycle = 1 ns, not of a device\"},\n\"traceEvents\": [\n";
    const std::int64_t cores = launch.blocks;
    for (std::int64_t core = 0; core < cores; ++core) {
        json += Format("{\"ph\": \"M\", \"pid\": %lld, \"name\": \"process_name\", \"args\": {\"name\": \"core %lld\"}},\n", static_cast<long long>(core), static_cast<long long>(core));
        for (int track = 0; track < 6; ++track) {
            json += Format("{\"ph\": \"M\", \"pid\": %lld, \"tid\": %d, \"name\": \"thread_name\", \"args\": {\"name\": \"%s\"}},\n", static_cast<long long>(core), track,
                           tracks[track]);
        }
    }
    for (const TraceEvent& event : launch.events) {
        const char* slash = std::strrchr(event.loc.file, '/');
        const std::string place = Format("%s:%d", slash != nullptr ? slash + 1 : event.loc.file, event.loc.line);
        if (event.length < 0) {
            json += Format("{\"ph\": \"i\", \"s\": \"t\", \"pid\": %lld, \"tid\": %d, \"name\": \"%s\", \"ts\": %.3f, \"args\": {\"at\": \"%s\"}},\n",
                           static_cast<long long>(event.core), event.track, event.name, event.start / 1000, place.c_str());
        } else {
            json += Format("{\"ph\": \"X\", \"pid\": %lld, \"tid\": %d, \"name\": \"%s\", \"ts\": %.3f, \"dur\": %.3f, \"args\": {\"bytes\": %lld, \"at\": \"%s\"}},\n",
                           static_cast<long long>(event.core), event.track, event.name, event.start / 1000, event.length / 1000, static_cast<long long>(event.bytes),
                           place.c_str());
        }
    }
    if (json.compare(json.size() - 2, 2, ",\n") == 0) {
        json.erase(json.size() - 2);
    }
    return json + "\n]}\n";
}

}  // namespace emu
}  // namespace anycann
