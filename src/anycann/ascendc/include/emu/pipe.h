// TPipe, TQue, TQueBind, TBuf: who owns which bytes of the Unified Buffer, and when.
#ifndef ANYCANN_EMU_PIPE_H
#define ANYCANN_EMU_PIPE_H

#include "emu/tensor.h"

namespace anycann {
namespace emu {

constexpr bool IsVector(AscendC::TPosition p) { return p == AscendC::TPosition::VECIN || p == AscendC::TPosition::VECOUT || p == AscendC::TPosition::VECCALC; }
constexpr bool IsUser(AscendC::TPosition p) { return IsVector(p) || p == AscendC::TPosition::GM; }
constexpr Pipe PipeInto(AscendC::TPosition p) { return p == AscendC::TPosition::VECIN ? Pipe::MTE2 : Pipe::V; }
constexpr Pipe PipeOutOf(AscendC::TPosition p) { return p == AscendC::TPosition::VECOUT ? Pipe::MTE3 : Pipe::V; }

}  // namespace emu
}  // namespace anycann

namespace AscendC {

// A queue from one position to another: buffers go FREE -> AllocTensor -> EnQue -> DeQue -> FreeTensor -> FREE.
template <TPosition src, TPosition dst, int32_t depth, auto mask = 0>
class TQueBind {
    static_assert(anycann::emu::IsVector(src) && anycann::emu::IsVector(dst),
                  "anycann emulates the vector core: queues exist at VECIN, VECOUT and VECCALC; the cube positions (A1, B1, CO1, ...) are not supported");
    static_assert(depth >= 1, "anycann supports queues of depth 1 and more; depth 0 (in-place AllocTensor) is not supported");

public:
    template <typename T>
    LocalTensor<T> AllocTensor(anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        return LocalTensor<T>(anycann::emu::QueueAlloc(queue_, Shape(), loc), src);
    }
    template <typename T>
    bool EnQue(const LocalTensor<T>& tensor, anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        anycann::emu::QueueEnQue(queue_, Shape(), tensor.view(), loc);
        return true;
    }
    template <typename T>
    LocalTensor<T> DeQue(anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        return LocalTensor<T>(anycann::emu::QueueDeQue(queue_, Shape(), loc), dst);
    }
    // For a buffer that is filled, computed on in place and emptied: which step ends (EnQue) and which begins (DeQue). GM to VECIN is a copy in,
    // VECOUT to GM a copy out; what lies between is computed.
    template <TPosition from, TPosition to, typename T>
    bool EnQue(const LocalTensor<T>& tensor, anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        anycann::emu::QueueEnQue(queue_, Step<from, to>(), tensor.view(), loc);
        return true;
    }
    template <TPosition from, TPosition to, typename T>
    LocalTensor<T> DeQue(anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        return LocalTensor<T>(anycann::emu::QueueDeQue(queue_, Step<from, to>(), loc), dst);
    }
    template <typename T>
    void FreeTensor(const LocalTensor<T>& tensor, anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        anycann::emu::QueueFree(queue_, Shape(), tensor.view(), loc);
    }
    void FreeAllEvent() {}
    bool VacantInQue() const { return anycann::emu::QueueCount(queue_) < depth; }
    bool HasTensorInQue() const { return anycann::emu::QueueCount(queue_) > 0; }
    int32_t GetTensorCountInQue() const { return anycann::emu::QueueCount(queue_); }
    bool HasIdleBuffer() const { return anycann::emu::QueueIdle(queue_) > 0; }

private:
    friend class TPipe;
    static constexpr anycann::emu::QueueShape Shape()
    {
        return {static_cast<int>(src), depth, anycann::emu::PipeInto(src), anycann::emu::PipeOutOf(dst), false};
    }
    template <TPosition from, TPosition to>
    static constexpr anycann::emu::QueueShape Step()
    {
        static_assert(anycann::emu::IsUser(from) && anycann::emu::IsUser(to),
                      "anycann emulates the vector core: EnQue and DeQue go between GM, VECIN, VECCALC and VECOUT");
        using anycann::emu::Pipe;
        return {static_cast<int>(src), depth, from == TPosition::GM ? Pipe::MTE2 : Pipe::V, to == TPosition::GM ? Pipe::MTE3 : Pipe::V, false};
    }
    anycann::emu::Queue* queue_ = nullptr;
};

template <TPosition pos, int32_t depth, auto mask = 0>
class TQue : public TQueBind<pos, pos, depth, mask> {};

// A buffer without queue states: the program orders its pipes itself, with flags or barriers.
template <TPosition pos = TPosition::VECCALC>
class TBuf {
    static_assert(anycann::emu::IsVector(pos), "anycann emulates the vector core: a TBuf lives at VECIN, VECOUT or VECCALC");

public:
    template <typename T>
    LocalTensor<T> Get(anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        return LocalTensor<T>(anycann::emu::BufferGet(buffer_, 0, anycann::emu::kRest, loc), pos);
    }
    template <typename T>
    LocalTensor<T> Get(int64_t count, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        return LocalTensor<T>(anycann::emu::BufferGet(buffer_, 0, count * static_cast<int64_t>(sizeof(T)), loc), pos);
    }
    template <typename T>
    LocalTensor<T> GetWithOffset(int64_t count, int64_t byteOffset, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        return LocalTensor<T>(anycann::emu::BufferGet(buffer_, byteOffset, count * static_cast<int64_t>(sizeof(T)), loc), pos);
    }

private:
    friend class TPipe;
    anycann::emu::Queue* buffer_ = nullptr;
};

class TPipe {
public:
    TPipe(anycann::emu::Loc loc = anycann::emu::Loc::current()) { anycann::emu::PipeOpen(this, loc); }
    ~TPipe() { anycann::emu::PipeClose(this); }
    TPipe(const TPipe&) = delete;
    TPipe& operator=(const TPipe&) = delete;

    template <TPosition src, TPosition dst, int32_t depth, auto mask>
    bool InitBuffer(TQueBind<src, dst, depth, mask>& queue, int64_t number, int64_t bytes, anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        queue.queue_ = anycann::emu::PipeInit(this, queue.queue_, queue.Shape(), number, bytes, loc);
        return true;
    }
    template <TPosition pos>
    bool InitBuffer(TBuf<pos>& buffer, int64_t bytes, anycann::emu::Loc loc = anycann::emu::Loc::current())
    {
        const anycann::emu::QueueShape shape{static_cast<int>(pos), 0, anycann::emu::Pipe::V, anycann::emu::Pipe::V, true};
        buffer.buffer_ = anycann::emu::PipeInit(this, buffer.buffer_, shape, 1, bytes, loc);
        return true;
    }
    void Init(anycann::emu::Loc loc = anycann::emu::Loc::current()) { anycann::emu::PipeOpen(this, loc); }
    void Reset() { anycann::emu::PipeReset(this); }
    void Destroy() { anycann::emu::PipeClose(this); }

    event_t FetchEventID(HardEvent event, anycann::emu::Loc loc = anycann::emu::Loc::current()) const { return Event(event, false, loc); }
    template <HardEvent event>
    event_t FetchEventID(anycann::emu::Loc loc = anycann::emu::Loc::current()) const { return Event(event, false, loc); }
    template <HardEvent event>
    event_t AllocEventID(anycann::emu::Loc loc = anycann::emu::Loc::current()) const { return Event(event, true, loc); }
    template <HardEvent event>
    void ReleaseEventID(int64_t id, anycann::emu::Loc loc = anycann::emu::Loc::current()) const
    {
        constexpr anycann::emu::Events e = anycann::emu::EventOf(event);
        anycann::emu::FlagRelease(e.name, e.from, e.to, static_cast<int>(id), loc);
    }

private:
    static event_t Event(HardEvent event, bool take, const anycann::emu::Loc& loc)
    {
        const anycann::emu::Events e = anycann::emu::EventOf(event);
        return static_cast<event_t>(anycann::emu::FlagFetch(e.name, e.from, e.to, take, loc));
    }
};

inline TPipe* GetTPipePtr(anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    return const_cast<TPipe*>(static_cast<const TPipe*>(anycann::emu::CurrentPipe(loc)));
}

}  // namespace AscendC

#endif
