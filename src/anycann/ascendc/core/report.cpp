// Findings as a reader sees them: where, what, the rule, what to do.
#include "state.h"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <unistd.h>

namespace anycann {
namespace emu {

struct Rule {
    const char* name;
    const char* rule;
    const char* advice;  // {queue} stands for the queue's name
};

static const Rule kRules[] = {
    {"leak", "every AllocTensor is answered by one FreeTensor on the same queue", "call {queue}.FreeTensor(tensor) after the last instruction that uses the tensor"},
    {"double-free", "a tensor goes back once", "remove one of the two FreeTensor calls"},
    {"wrong-queue", "a tensor goes into, and back to, the queue whose AllocTensor made it", "use the tensor's own queue"},
    {"use-after-enque", "between EnQue and DeQue a tensor belongs to the queue", "use the tensor before EnQue, or the one that DeQue returns"},
    {"use-after-free", "after FreeTensor the buffer may hold anything", "move FreeTensor after the last use"},
    {"enque-twice", "a tensor is put into its queue once", "remove one of the two EnQue calls"},
    {"beyond-depth", "a queue holds at most `depth` tensors", "DeQue before the next EnQue, or give the TQue a greater depth"},
    {"alloc-hang", "AllocTensor waits until a buffer of the queue is free", "FreeTensor before the next AllocTensor, or give InitBuffer more buffers"},
    {"deque-empty", "DeQue waits until something is in the queue", "EnQue the tensor first, on this queue"},
    {"no-init-buffer", "a queue has no memory before pipe.InitBuffer", "call pipe.InitBuffer(queue, num, bytes) first"},
    {"init-twice", "InitBuffer is called once for each queue or buffer", "remove the second call, or call pipe.Reset() between"},
    {"buffer-count", "InitBuffer takes 1 to 64 buffers of more than 0 bytes, and a TPipe has at most 64 in all", "ask for fewer buffers, or longer ones"},
    {"ub-overflow", "all buffers together fit the Unified Buffer", "use smaller tiles, or fewer buffers in a queue"},
    {"one-pipe", "one TPipe lives on a core at a time", "keep one TPipe and pass a pointer to it"},
    {"live-tensors", "each tensor that is out holds an event id", "FreeTensor earlier, or cut one TBuf into parts"},
    {"no-memory", "an operand is a tensor from AllocTensor, DeQue or TBuf::Get", "assign the tensor before the instruction"},
    {"tensor-range", "an instruction stays inside its tensors", "check the count, the offset and the bytes given to InitBuffer"},
    {"gm-range", "an access stays inside the global memory that the kernel was given", "check the count, the offset and the size of the argument"},
    {"unaligned", "copies move multiples of 32 bytes and operands start on 32-byte boundaries", "round the count up, or use DataCopyPad for the rest"},
    {"read-unwritten", "memory holds anything until it is written", "fill the tensor first: a missing DataCopy or Duplicate, or a count that is too long"},
    {"missing-sync", "pipes run at the same time; only flags, barriers and queues order them", ""},
    {"flag-set-twice", "each SetFlag is answered by one WaitFlag before it is set again", "wait in between, or use another event id"},
    {"set-without-wait", "each SetFlag is answered by one WaitFlag", "add the WaitFlag, or remove the SetFlag"},
    {"wait-without-set", "each WaitFlag follows a SetFlag of the same event and id", "set the flag first, with the same HardEvent and id"},
    {"event-id", "event ids are few and go back when they are no longer needed", "use ids below the limit, release those of AllocEventID"},
    {"gm-conflict", "blocks run at the same time; two may touch the same global memory only to read, or to add atomically",
     "give each block its own part, use SetAtomicAdd, or put SyncAll between"},
    {"tmp-size", "the temporary buffer has at least the bytes that the tiling was made for",
     "make the buffer longer, or the tiling for fewer bytes (not below the minimum)"},
    {"tiling", "the kernel reads the tiling that the host wrote", "fill the struct with the tiling function and describe its fields in the kernel's order"},
    {"overlap", "these operands do not share memory", "give them separate tensors"},
    {"mask", "a mask selects lanes of one repeat; repeats and strides fit 8 and 16 bits", "split the instruction"},
    {"parameter", "the instruction's parameters are in range", "see the numbers above"},
    {"sync-all", "every block reaches every SyncAll, and all blocks run at the same time", "launch as many blocks as take part, and no more than the product has cores"},
    {"time-limit", "a kernel ends", "look for a loop that does not end; a longer limit is a parameter of the launch"},
    {"atomic-left-on", "SetAtomicNone ends what SetAtomicAdd began", "call SetAtomicNone after the last atomic copy"},
    {"exception", "device code throws nothing", "see the message; the standard library's containers do not exist on a device"},
    {"fault", "pointers lead into the memory that a kernel was given, and no integer is divided by 0",
     "look at the arguments and the tiling for null pointers and zeros, and at what pointers are indexed with"},
    {"assert", "the kernel's own ASSERT", "see the condition"},
};

static const Rule& RuleOf(const std::string& name)
{
    for (const Rule& rule : kRules) {
        if (name == rule.name) {
            return rule;
        }
    }
    static const Rule unknown{"", "", ""};
    return unknown;
}

std::string Format(const char* format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

static std::string Shown(const char* file)
{
    char here[4096];
    const std::string path = file, prefix = getcwd(here, sizeof here) != nullptr ? std::string(here) + "/" : std::string("/");
    return path.compare(0, prefix.size(), prefix) == 0 ? path.substr(prefix.size()) : path;
}

std::string PlaceText(const Loc& loc) { return Format("%s:%d", Shown(loc.file).c_str(), loc.line); }

static std::string SourceLine(const Loc& loc)
{
    std::ifstream file(loc.file);
    std::string line;
    for (int i = 0; i < loc.line; ++i) {
        if (!std::getline(file, line)) {
            return std::string();
        }
    }
    return line;
}

// C++ keeps no names at run time: the name is the first argument of the InitBuffer call, read from the source. Of several calls on a line the
// queue's is the one that its number says; a call in a loop is met again and again.
std::string QueueName(const Queue& queue)
{
    const std::string line = SourceLine(queue.initialised);
    std::vector<std::string> names;
    for (std::size_t at = 0; (at = line.find("InitBuffer", at)) != std::string::npos && (at = line.find('(', at)) != std::string::npos;) {
        const std::size_t end = line.find(',', at);
        std::string name = end == std::string::npos ? std::string() : line.substr(at + 1, end - at - 1);
        name.erase(std::remove_if(name.begin(), name.end(), [](unsigned char c) { return std::isspace(c) != 0; }), name.end());
        names.push_back(name);
    }
    return names.empty() ? std::string() : names[static_cast<std::size_t>(queue.nth) % names.size()];
}

std::string QueueText(const Queue& queue)
{
    const std::string name = QueueName(queue), position = PositionName(queue.shape.position);
    if (queue.slots.empty() || name.empty()) {
        return Format("%s of %s", queue.shape.plain ? "the buffer" : "the queue", PlaceText(queue.initialised).c_str());
    }
    if (queue.shape.plain) {
        return Format("TBuf %s (%s)", name.c_str(), position.c_str());
    }
    return Format("queue %s (%s, %d x %lld bytes, depth %d)", name.c_str(), position.c_str(), static_cast<int>(queue.slots.size()),
                  static_cast<long long>(queue.slots.front().bytes), queue.shape.depth);
}

static std::string WithQueue(std::string text, const std::string& name)
{
    const std::size_t at = text.find("{queue}");
    return at == std::string::npos ? text : text.replace(at, 7, name.empty() ? "the queue" : name);
}

Report MakeReport(const Core& core, const char* rule, const Loc& loc, const char* api, std::string what)
{
    Report report;
    report.rule = rule;
    report.loc = loc;
    report.api = api;
    report.what = std::move(what);
    report.cores.insert(core.block);
    report.advice = WithQueue(RuleOf(rule).advice, std::string());
    return report;
}

Report& Note(Core& core, const char* rule, const Loc& loc, const char* api, const Slot* slot, std::string what)
{
    Report report = MakeReport(core, rule, loc, api, std::move(what));
    if (slot != nullptr) {
        report.advice = WithQueue(RuleOf(rule).advice, QueueName(*slot->owner));
        report.queue = slot->owner == &core.stack ? std::string("the rest of the Unified Buffer") : QueueText(*slot->owner);
        report.buffer = slot->owner->shape.plain ? -1 : slot->index;
    }
    core.reports.push_back(report);
    return core.reports.back();
}

void Fail(Core& core, Report& report)
{
    report.cores.insert(core.block);
    if (report.advice.empty()) {
        report.advice = WithQueue(RuleOf(report.rule).advice, std::string());
    }
    core.reports.push_back(report);
    throw StopCore();
}

void Fail(Core& core, const char* rule, const Loc& loc, const char* api, const Slot* slot, std::string what)
{
    Note(core, rule, loc, api, slot, std::move(what));
    throw StopCore();
}

void Stop(const char* rule, const Loc& loc, const char* api, const char* format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    Fail(Current(), rule, loc, api, nullptr, text);
}

std::string CoresText(const std::set<std::int64_t>& cores, std::int64_t blocks)
{
    if (blocks > 1 && static_cast<std::int64_t>(cores.size()) == blocks) {
        return Format("all %lld cores", static_cast<long long>(blocks));
    }
    std::string text = cores.size() == 1 ? "core " : "cores ";
    std::size_t shown = 0;
    for (const std::int64_t core : cores) {
        if (shown == 8) {
            return text + Format(" and %d more", static_cast<int>(cores.size() - shown));
        }
        text += Format(shown++ == 0 ? "%lld" : ", %lld", static_cast<long long>(core));
    }
    return text;
}

static void AddSource(std::string& text, const Loc& loc)
{
    const std::string line = SourceLine(loc);
    const std::size_t first = line.find_first_not_of(" \t");
    if (first != std::string::npos) {
        text += Format("   %6d | ", loc.line) + line.substr(first) + "\n";
    }
}

static std::string ReportText(const Report& report, std::int64_t blocks)
{
    const Rule& rule = RuleOf(report.rule);
    std::string text = report.api.empty() ? std::string("before its first call") : PlaceText(report.loc) + ": " + report.api;
    text += "  [" + report.rule + "]\n";
    AddSource(text, report.loc);
    text += "   where  " + CoresText(report.cores, blocks);
    text += report.pipe.empty() ? "" : ", pipe " + report.pipe;
    text += report.queue.empty() ? "" : ", " + report.queue;
    text += report.buffer >= 0 ? Format(", buffer %d", report.buffer) : "";
    text += "\n   what   " + report.what + "\n";
    if (!report.also.empty()) {
        text += "   also   " + PlaceText(report.alsoLoc) + ": " + report.also + "\n";
        AddSource(text, report.alsoLoc);
    }
    text += std::string("   rule   ") + rule.rule + "\n   do     " + report.advice + "\n";
    return text;
}

std::string FindingsText(Launch& launch)
{
    const int count = static_cast<int>(launch.reports.size());
    std::string text = Format("%d %s in kernel %s (%lld %s):\n", count, count == 1 ? "mistake" : "mistakes", launch.kernel.c_str(), static_cast<long long>(launch.blocks),
                              launch.blocks == 1 ? "block" : "blocks");
    for (const Report& report : launch.reports) {
        text += "\n" + ReportText(report, launch.blocks);
    }
    return text;
}

static std::string Quoted(const std::string& text)
{
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            out += Format("\\u%04x", c);
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string FindingsJson(Launch& launch, bool abandoned)
{
    std::string json = "{\"abandoned\": " + std::string(abandoned ? "true" : "false") + ", \"reports\": [";
    const char* separator = "";
    for (const Report& report : launch.reports) {
        json += std::string(separator) + "{\"rule\": " + Quoted(report.rule) + ", \"file\": " + Quoted(report.loc.file) + Format(", \"line\": %d", report.loc.line) +
                ", \"api\": " + Quoted(report.api) + ", \"pipe\": " + Quoted(report.pipe) + ", \"queue\": " + Quoted(report.queue) +
                Format(", \"buffer\": %d", report.buffer) + ", \"what\": " + Quoted(report.what) + ", \"also_file\": " + Quoted(report.alsoLoc.file) +
                Format(", \"also_line\": %d", report.alsoLoc.line) + ", \"also\": " + Quoted(report.also) + ", \"rule_text\": " + Quoted(RuleOf(report.rule).rule) +
                ", \"advice\": " + Quoted(report.advice) + ", \"cores\": [";
        const char* comma = "";
        for (const std::int64_t core : report.cores) {
            json += comma + std::to_string(core);
            comma = ", ";
        }
        json += "]}";
        separator = ", ";
    }
    json += Format("], \"summary\": {\"ub_peak\": %lld, \"ub_limit\": %lld, \"gm_read\": %lld, \"gm_written\": %lld, \"instructions\": %lld, \"queues\": {",
                   static_cast<long long>(launch.ubPeak), static_cast<long long>(launch.UbLimit()), static_cast<long long>(launch.bytesRead),
                   static_cast<long long>(launch.bytesWritten), static_cast<long long>(launch.instructions));
    separator = "";
    std::map<std::string, std::size_t> queues;  // those of an InitBuffer in a loop have one name
    for (const auto& depth : launch.depths) {
        queues[depth.second.queue] = std::max(queues[depth.second.queue], depth.second.most);
    }
    for (const auto& [queue, most] : queues) {
        json += separator + Quoted(queue) + ": " + std::to_string(most);
        separator = ", ";
    }
    return json + "}}}";
}

}  // namespace emu
}  // namespace anycann
