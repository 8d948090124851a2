// TPipe's bookkeeping: buffers, queues and their states.
#include "state.h"

#include <algorithm>
#include <exception>

namespace anycann {
namespace emu {

void PipeOpen(const void* pipe, const Loc& loc)
{
    Core& core = Current();
    if (!core.launch) {
        return;  // a TPipe outside a kernel owns nothing
    }
    if (core.pipe != nullptr && core.pipe != pipe) {
        Report& report = Note(core, "one-pipe", loc, "TPipe", nullptr, "a second TPipe is made while the first still lives: both hand out the same bytes");
        report.also = "the first was made here";
        report.alsoLoc = core.pipeLoc;
    }
    core.pipe = pipe;
    core.pipeLoc = loc;
    core.used = 0;
    core.buffers = 0;
}

void PipeReset(const void* pipe)
{
    Core& core = Current();
    CheckLeaks(core, pipe);
    for (Queue& queue : core.queues) {
        queue.closed = queue.closed || queue.pipe == pipe;
    }
    core.used = 0;
    core.buffers = 0;
}

void PipeClose(const void* pipe)
{
    Core& core = Current();
    if (!core.launch || core.pipe != pipe) {
        return;
    }
    if (std::uncaught_exceptions() == 0) {
        CheckLeaks(core, pipe);
    }
    for (Queue& queue : core.queues) {
        queue.closed = queue.closed || queue.pipe == pipe;
    }
    core.JoinAll();  // the destructor waits for every pipe
    core.pipe = nullptr;
    core.used = 0;
    core.buffers = 0;
}

const void* CurrentPipe(const Loc& loc)
{
    Core& core = Current();
    if (core.pipe == nullptr) {
        Fail(core, "one-pipe", loc, "GetTPipePtr", nullptr, "no TPipe lives on this core");
    }
    return core.pipe;
}

static void Undefine(Core& core, std::int64_t offset, std::int64_t bytes)
{
    std::memset(core.ub + offset, 0xff, static_cast<std::size_t>(bytes));
    std::memset(core.written.data() + offset, 0, static_cast<std::size_t>(bytes));
}

Queue* PipeInit(const void* pipe, Queue* before, const QueueShape& shape, std::int64_t number, std::int64_t bytes, const Loc& loc)
{
    Core& core = Current();
    core.Tick("InitBuffer", loc);
    if (before != nullptr && !before->closed) {
        Report report;
        report.rule = "init-twice";
        report.what = "this queue or buffer was already initialised: the first buffers are lost";
        report.also = "first here";
        report.alsoLoc = before->initialised;
        report.api = "InitBuffer";
        report.loc = loc;
        Fail(core, report);
    }
    if (bytes <= 0 || bytes > 0xffffffffll) {
        Fail(core, "buffer-count", loc, "InitBuffer", nullptr, Format("the length is %lld bytes; it must be more than 0", static_cast<long long>(bytes)));
    }
    if (number < 1 || number > 64) {
        Fail(core, "buffer-count", loc, "InitBuffer", nullptr, Format("num is %lld; it must be 1 to 64", static_cast<long long>(number)));
    }
    if (core.buffers + number > 64) {
        Fail(core, "buffer-count", loc, "InitBuffer", nullptr,
             Format("%lld buffers are handed out already, %lld more make %lld: a TPipe has at most 64", static_cast<long long>(core.buffers),
                    static_cast<long long>(number), static_cast<long long>(core.buffers + number)));
    }
    const std::int64_t each = (bytes + 31) / 32 * 32, limit = core.launch->UbLimit();
    if (core.used + number * each > limit) {
        Fail(core, "ub-overflow", loc, "InitBuffer", nullptr,
             Format("%lld buffers of %lld bytes do not fit: %lld of the %lld bytes of Unified Buffer are handed out, %lld are left (the core has %lld bytes, %lld at the "
                    "top are reserved)",
                    static_cast<long long>(number), static_cast<long long>(each), static_cast<long long>(core.used), static_cast<long long>(limit),
                    static_cast<long long>(limit - core.used), static_cast<long long>(core.launch->ubBytes), static_cast<long long>(core.launch->ubReserved)));
    }
    const auto beside = std::count_if(core.queues.begin(), core.queues.end(), [&loc](const Queue& other) {
        return !other.closed && other.initialised.line == loc.line && other.initialised.file == loc.file;
    });
    core.queues.emplace_back();
    Queue& queue = core.queues.back();
    queue.shape = shape;
    queue.pipe = pipe;
    queue.initialised = loc;
    queue.nth = static_cast<int>(beside);
    for (int i = 0; i < number; ++i) {
        Slot slot{};
        slot.owner = &queue;
        slot.index = i;
        slot.offset = core.used;
        slot.bytes = each;
        slot.state = shape.plain ? SlotState::Plain : SlotState::Free;
        queue.slots.push_back(slot);
        Undefine(core, core.used, each);
        std::fill_n(core.cells.begin() + core.used / 32, each / 32, Cell());
        core.used += each;
    }
    core.buffers += number;
    core.peak = std::max(core.peak, core.used);
    return &queue;
}

static View ViewOf(Core& core, Slot& slot)
{
    View view;
    view.ub = core.ub;
    view.slot = &slot;
    view.generation = slot.generation;
    view.begin = slot.offset;
    view.bytes = slot.bytes;
    return view;
}

static void Ready(Core& core, const Queue* queue, const QueueShape& shape, const char* api, const Loc& loc)
{
    core.Tick(api, loc);
    if (queue == nullptr) {
        Fail(core, "no-init-buffer", loc, api, nullptr, Format("this %s queue has no buffers: InitBuffer was not called for it", PositionName(shape.position).c_str()));
    }
    if (queue->closed) {
        Fail(core, "no-init-buffer", loc, api, &queue->slots.front(), "the TPipe that owns this queue's buffers is gone");
    }
}

static void CheckLive(Core& core, const Queue& queue, const Loc& loc)
{
    std::int64_t live = 0;
    for (const Queue& other : core.queues) {
        if (!other.shape.plain && !other.closed && other.shape.position == queue.shape.position) {
            live += std::count_if(other.slots.begin(), other.slots.end(), [](const Slot& s) { return s.state != SlotState::Free; });
        }
    }
    if (live > core.launch->eventIds) {
        Note(core, "live-tensors", loc, "AllocTensor", nullptr,
             Format("%lld tensors of position %s are out at once; this product has event ids for %lld", static_cast<long long>(live),
                    PositionName(queue.shape.position).c_str(), static_cast<long long>(core.launch->eventIds)));
    }
}

View QueueAlloc(Queue* queue, const QueueShape& shape, const Loc& loc)
{
    Core& core = Current();
    Ready(core, queue, shape, "AllocTensor", loc);
    for (std::size_t i = 0; i < queue->slots.size(); ++i) {  // in turn, so that two buffers really alternate
        Slot& slot = queue->slots[(queue->next + i) % queue->slots.size()];
        if (slot.state == SlotState::Free) {
            queue->next = static_cast<std::size_t>(slot.index) + 1;
            slot.state = SlotState::Occupied;
            ++slot.generation;
            slot.allocated = loc;
            core.At(shape.pipeIn).Join(slot.emptied);
            Undefine(core, slot.offset, slot.bytes);
            CheckLive(core, *queue, loc);
            TraceMark(core, kQueueTrack, "AllocTensor", loc);
            return ViewOf(core, slot);
        }
    }
    Report report;
    report.rule = "alloc-hang";
    report.api = "AllocTensor";
    report.loc = loc;
    report.queue = QueueText(*queue);
    report.what = Format("none of the queue's %d buffers is free: AllocTensor would hang", static_cast<int>(queue->slots.size()));
    report.also = queue->slots.front().state == SlotState::Queued ? "buffer 0 is in the queue since here" : "buffer 0 was handed out here and has not come back";
    report.alsoLoc = queue->slots.front().state == SlotState::Queued ? queue->slots.front().queued : queue->slots.front().allocated;
    Fail(core, report);
}

static Slot& Owned(Core& core, Queue& queue, const View& view, const char* api, const Loc& loc)
{
    if (view.slot == nullptr) {
        Fail(core, "no-memory", loc, api, nullptr, "the tensor has no memory: it did not come from AllocTensor or DeQue");
    }
    Slot& slot = *view.slot;
    if (slot.owner != &queue) {
        Report report;
        report.rule = "wrong-queue";
        report.api = api;
        report.loc = loc;
        report.queue = QueueText(queue);
        report.what = Format("the tensor belongs to %s, not to this queue", QueueText(*slot.owner).c_str());
        report.also = slot.owner->shape.plain ? "that buffer was made here" : "it was allocated here";
        report.alsoLoc = slot.owner->shape.plain ? slot.owner->initialised : slot.allocated;
        Fail(core, report);
    }
    return slot;
}

void QueueEnQue(Queue* queue, const QueueShape& shape, const View& view, const Loc& loc)
{
    Core& core = Current();
    Ready(core, queue, shape, "EnQue", loc);
    Slot& slot = Owned(core, *queue, view, "EnQue", loc);
    if (slot.state == SlotState::Queued) {
        Fail(core, "enque-twice", loc, "EnQue", &slot, "the tensor is in the queue already (" + PlaceText(slot.queued) + ")");
    }
    if (slot.state == SlotState::Free || slot.generation != view.generation) {
        Fail(core, "use-after-free", loc, "EnQue", &slot, "the tensor was given back by FreeTensor (" + PlaceText(slot.freed) + ")");
    }
    if (static_cast<int>(queue->fifo.size()) >= shape.depth) {
        Fail(core, "beyond-depth", loc, "EnQue", &slot,
             Format("the queue holds %d tensors already, its depth is %d", static_cast<int>(queue->fifo.size()), shape.depth));
    }
    ++core.At(shape.pipeIn).at[Index(shape.pipeIn)];
    slot.state = SlotState::Queued;
    slot.queued = loc;
    slot.filled = core.At(shape.pipeIn);
    queue->fifo.push_back(&slot);
    queue->deepest = std::max(queue->deepest, queue->fifo.size());
    TraceMark(core, kQueueTrack, "EnQue", loc);
}

View QueueDeQue(Queue* queue, const QueueShape& shape, const Loc& loc)
{
    Core& core = Current();
    Ready(core, queue, shape, "DeQue", loc);
    if (queue->fifo.empty()) {
        Report report;
        report.rule = "deque-empty";
        report.api = "DeQue";
        report.loc = loc;
        report.queue = QueueText(*queue);
        report.what = "nothing is in the queue: DeQue would hang";
        for (const Slot& slot : queue->slots) {
            if (slot.state == SlotState::Occupied) {
                report.also = "a tensor was allocated here and not put in with EnQue";
                report.alsoLoc = slot.allocated;
            }
        }
        Fail(core, report);
    }
    Slot& slot = *queue->fifo.front();
    queue->fifo.pop_front();
    slot.state = SlotState::Out;
    core.At(shape.pipeOut).Join(slot.filled);
    TraceMark(core, kQueueTrack, "DeQue", loc);
    return ViewOf(core, slot);
}

void QueueFree(Queue* queue, const QueueShape& shape, const View& view, const Loc& loc)
{
    Core& core = Current();
    Ready(core, queue, shape, "FreeTensor", loc);
    Slot& slot = Owned(core, *queue, view, "FreeTensor", loc);
    if (slot.state == SlotState::Free || slot.generation != view.generation) {
        Fail(core, "double-free", loc, "FreeTensor", &slot, "the tensor was given back before (" + PlaceText(slot.freed) + ")");
    }
    if (slot.state == SlotState::Queued) {
        Fail(core, "use-after-enque", loc, "FreeTensor", &slot, "the tensor is still in the queue (" + PlaceText(slot.queued) + "): DeQue it first");
    }
    ++core.At(shape.pipeOut).at[Index(shape.pipeOut)];
    slot.state = SlotState::Free;
    slot.freed = loc;
    slot.emptied = core.At(shape.pipeOut);
    TraceMark(core, kQueueTrack, "FreeTensor", loc);
}

int QueueCount(const Queue* queue) { return queue == nullptr ? 0 : static_cast<int>(queue->fifo.size()); }

int QueueIdle(const Queue* queue)
{
    if (queue == nullptr) {
        return 0;
    }
    return static_cast<int>(std::count_if(queue->slots.begin(), queue->slots.end(), [](const Slot& s) { return s.state == SlotState::Free; }));
}

View BufferGet(Queue* queue, std::int64_t offset, std::int64_t bytes, const Loc& loc)
{
    Core& core = Current();
    const QueueShape shape{static_cast<int>(11), 0, Pipe::V, Pipe::V, true};
    Ready(core, queue, queue == nullptr ? shape : queue->shape, "Get", loc);
    Slot& slot = queue->slots.front();
    View view = ViewOf(core, slot);
    const std::int64_t wanted = bytes == kRest ? slot.bytes - offset : bytes;
    if (offset < 0 || wanted < 0 || offset + wanted > slot.bytes) {
        Fail(core, "tensor-range", loc, "Get", &slot,
             Format("%lld bytes from byte %lld were asked of a buffer of %lld bytes", static_cast<long long>(wanted), static_cast<long long>(offset),
                    static_cast<long long>(slot.bytes)));
    }
    view.begin += offset;
    view.bytes = wanted;
    return view;
}

View StackRest(const char* api, std::int64_t bytes, const Loc& loc)
{
    Core& core = Current();
    const std::int64_t left = core.launch->UbLimit() - core.used;
    if (left < bytes) {
        Fail(core, "tmp-size", loc, api, nullptr,
             Format("the tiling was made for a temporary buffer of %lld bytes; InitBuffer left %lld of %lld", static_cast<long long>(bytes),
                    static_cast<long long>(left), static_cast<long long>(core.launch->UbLimit())));
    }
    core.peak = std::max(core.peak, core.used + bytes);
    const std::int64_t whole = (bytes + 31) / 32 * 32;
    core.stack.shape = QueueShape{11, 0, Pipe::V, Pipe::V, true};
    core.stack.initialised = loc;
    core.stack.slots.clear();
    Slot slot{};
    slot.owner = &core.stack;
    slot.offset = core.used;
    slot.bytes = whole;
    slot.state = SlotState::Plain;
    core.stack.slots.push_back(slot);
    Undefine(core, core.used, whole);
    std::fill_n(core.cells.begin() + core.used / 32, whole / 32, Cell());
    return ViewOf(core, core.stack.slots.front());
}

void CheckLeaks(Core& core, const void* pipe)
{
    for (Queue& queue : core.queues) {
        if (queue.closed || queue.shape.plain || (pipe != nullptr && queue.pipe != pipe)) {
            continue;
        }
        for (Slot& slot : queue.slots) {
            if (slot.state == SlotState::Free) {
                continue;
            }
            const bool queued = slot.state == SlotState::Queued;
            Note(core, "leak", queued ? slot.queued : slot.allocated, queued ? "EnQue" : "AllocTensor", &slot,
                 queued ? "the tensor put into the queue here was never taken out: no DeQue, no FreeTensor before the kernel ended"
                        : "the tensor allocated here was never given back: no FreeTensor before the kernel ended");
        }
    }
}

}  // namespace emu
}  // namespace anycann
