// What the emulated instructions need from a simulated core: where they are called from, which bytes they touch, when to stop.
// The functions declared here live in the core library, compiled once; this header stays light so that kernels compile fast.
#ifndef ANYCANN_EMU_CORE_H
#define ANYCANN_EMU_CORE_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace anycann {
namespace emu {

// The place of a call in the user's source: a trailing default argument of every public function.
struct Loc {
    const char* file;
    int line;
    static constexpr Loc current(const char* f = __builtin_FILE(), int l = __builtin_LINE()) { return Loc{f, l}; }
};

// The pipes whose order is tracked. Cube pipes do not exist here.
enum class Pipe : std::uint8_t { S, V, MTE2, MTE3 };
constexpr int kPipes = 4;

struct Slot;   // a buffer that TPipe handed out
struct Queue;  // the run-time side of a TQue or TBuf

// What a LocalTensor is: bytes [begin, begin + bytes) of the Unified Buffer, inside one slot and one allocation of it.
struct View {
    std::uint8_t* ub = nullptr;
    Slot* slot = nullptr;
    std::uint32_t generation = 0;
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
};

// What a GlobalTensor is: `bytes` from `base` were promised by SetGlobalBuffer (-1: no promise), the tensor starts at `begin`.
struct GmView {
    std::uint8_t* base = nullptr;
    std::int64_t begin = 0;
    std::int64_t bytes = -1;
};

// The lanes of a mask + repeat instruction on one operand; strides in 32-byte blocks.
struct Lanes {
    std::uint64_t mask[2];
    int repeats;
    int perRepeat;
    int itemSize;
    int blockStride;
    int repeatStride;

    bool On(int lane) const { return ((mask[lane >> 6] >> (lane & 63)) & 1) != 0; }
    std::int64_t At(int repeat, int lane) const  // element offset from the start of the operand
    {
        const int perBlock = 32 / itemSize;
        return std::int64_t{repeat} * repeatStride * perBlock + std::int64_t{lane / perBlock} * blockStride * perBlock + lane % perBlock;
    }
    std::int64_t Extent() const  // the bytes from the first to the last that they may touch
    {
        const std::int64_t blocks = std::int64_t{perRepeat} * itemSize / 32;
        return repeats == 0 ? 0 : 32 * (std::int64_t{repeats - 1} * repeatStride + (blocks - 1) * blockStride + 1);
    }
};

[[noreturn]] void Stop(const char* rule, const Loc& loc, const char* api, const char* format, ...) __attribute__((format(printf, 4, 5)));

#ifndef ANYCANN_FAST
// One instruction: says which bytes it reads and writes before it does; the destructor closes it in the timeline.
class Op {
public:
    Op(const char* name, Pipe pipe, const Loc& loc);
    ~Op();
    Op(const Op&) = delete;
    Op& operator=(const Op&) = delete;
    void Read(const View& view, std::int64_t bytes, int align = 32);
    void Write(const View& view, std::int64_t bytes, int align = 32);
    void ReadAt(const View& view, std::int64_t offset, std::int64_t bytes, int align = 1);
    void WriteAt(const View& view, std::int64_t offset, std::int64_t bytes, int align = 1);
    void ReadLanes(const View& view, const Lanes& lanes);
    void WriteLanes(const View& view, const Lanes& lanes);
    void ReadGm(const GmView& view, std::int64_t offset, std::int64_t bytes, int itemSize);
    void WriteGm(const GmView& view, std::int64_t offset, std::int64_t bytes, int itemSize);
    void Forget(const View& view, std::int64_t bytes);                   // contents undefined from here on
    // A destination may be a source, not a shifted part of it; it may begin where a source of wider elements does, not one of narrower ones.
    void SameOrApart(const View& dst, std::int64_t dstBytes, const View& src, std::int64_t srcBytes);
    void SameOrApart(const View& dst, const Lanes& to, const View& src, const Lanes& from);
    // Each repeat reduces its lanes to `width` bytes, `step` bytes behind those of the one before: no later repeat may read them, and its own
    // only where they begin.
    void ResultsApart(const View& dst, std::int64_t step, std::int64_t width, const View& src, const Lanes& from);
    void NoOverlap(const View& a, std::int64_t aBytes, const char* aName, const View& b, std::int64_t bBytes, const char* bName);

private:
    const char* name_;
    Loc loc_;
    std::uint32_t site_;
    std::uint32_t time_;
    Pipe pipe_;
    bool checked_;
    std::int64_t longest_ = 0;
    void Touch(const View& view, std::int64_t offset, std::int64_t bytes, int align, bool write);
    void NoteOverlap(const View& dst, const View& src);
    void TouchGm(const GmView& view, std::int64_t offset, std::int64_t bytes, int itemSize, bool write);
    void WalkLanes(const View& view, const Lanes& lanes, bool write);
};
#else
class Op {
public:
    Op(const char*, Pipe, const Loc&) {}
    void Read(const View&, std::int64_t, int = 32) {}
    void Write(const View&, std::int64_t, int = 32) {}
    void ReadAt(const View&, std::int64_t, std::int64_t, int = 1) {}
    void WriteAt(const View&, std::int64_t, std::int64_t, int = 1) {}
    void ReadLanes(const View&, const Lanes&) {}
    void WriteLanes(const View&, const Lanes&) {}
    void ReadGm(const GmView&, std::int64_t, std::int64_t, int) {}
    void WriteGm(const GmView&, std::int64_t, std::int64_t, int) {}
    void Forget(const View&, std::int64_t) {}
    void NoOverlap(const View&, std::int64_t, const char*, const View&, std::int64_t, const char*) {}
    void SameOrApart(const View&, std::int64_t, const View&, std::int64_t) {}
    void SameOrApart(const View&, const Lanes&, const View&, const Lanes&) {}
    void ResultsApart(const View&, std::int64_t, std::int64_t, const View&, const Lanes&) {}
};
#endif

// Queues and buffers. `pipeIn` fills a buffer, `pipeOut` empties it.
struct QueueShape {
    int position;
    int depth;
    Pipe pipeIn;
    Pipe pipeOut;
    bool plain;  // a TBuf: no states
};

void PipeOpen(const void* pipe, const Loc& loc);
void PipeClose(const void* pipe);
void PipeReset(const void* pipe);
Queue* PipeInit(const void* pipe, Queue* before, const QueueShape& shape, std::int64_t number, std::int64_t bytes, const Loc& loc);
const void* CurrentPipe(const Loc& loc);
View QueueAlloc(Queue* queue, const QueueShape& shape, const Loc& loc);
void QueueEnQue(Queue* queue, const QueueShape& shape, const View& view, const Loc& loc);
View QueueDeQue(Queue* queue, const QueueShape& shape, const Loc& loc);
void QueueFree(Queue* queue, const QueueShape& shape, const View& view, const Loc& loc);
int QueueCount(const Queue* queue);  // tensors in it
int QueueIdle(const Queue* queue);   // buffers that are free
constexpr std::int64_t kRest = INT64_MIN;
View BufferGet(Queue* queue, std::int64_t offset, std::int64_t bytes, const Loc& loc);  // kRest: all bytes behind the offset
View StackRest(const char* api, std::int64_t bytes, const Loc& loc);  // what InitBuffer left of the Unified Buffer; stops when it is smaller

// Synchronisation and identity.
void FlagSet(const char* event, Pipe from, Pipe to, int id, const Loc& loc);
void FlagWait(const char* event, Pipe from, Pipe to, int id, const Loc& loc);
int FlagFetch(const char* event, Pipe from, Pipe to, bool take, const Loc& loc);
void FlagRelease(const char* event, Pipe from, Pipe to, int id, const Loc& loc);
void BarrierAll(const Loc& loc);
void BarrierCores(const Loc& loc);
std::int64_t BlockIndex();
std::int64_t BlockCount();
std::uint64_t TilingKey();
void SetAtomic(const char* type, const Loc& loc);  // null: none
const char* AtomicType();
void AtomicLock();
void AtomicUnlock();

}  // namespace emu
}  // namespace anycann

#endif
