// Order between the pipes of a core and between cores; which core this is; atomic stores.
#ifndef ANYCANN_EMU_SYNC_H
#define ANYCANN_EMU_SYNC_H

#include "emu/pipe.h"

namespace AscendC {

template <HardEvent event>
void SetFlag(int32_t id, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    constexpr anycann::emu::Events e = anycann::emu::EventOf(event);
    static_assert(e.vector, "anycann emulates the vector core: SetFlag takes events between S, V, MTE2 and MTE3 only");
    anycann::emu::FlagSet(e.name, e.from, e.to, id, loc);
}

template <HardEvent event>
void WaitFlag(int32_t id, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    constexpr anycann::emu::Events e = anycann::emu::EventOf(event);
    static_assert(e.vector, "anycann emulates the vector core: WaitFlag takes events between S, V, MTE2 and MTE3 only");
    anycann::emu::FlagWait(e.name, e.from, e.to, id, loc);
}

// Orders a pipe with itself, which the emulation always has, or (PIPE_ALL) every pipe of the core with every other.
template <pipe_t pipe>
void PipeBarrier(anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    if (pipe == PIPE_ALL) {
        anycann::emu::BarrierAll(loc);
    }
}

template <bool isAIVOnly = true>
void SyncAll(anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    static_assert(isAIVOnly, "anycann emulates the vector core: SyncAll<false> (cube and vector together) is not supported");
    anycann::emu::BarrierCores(loc);
}

// The software form. Its workspaces are not needed here; blocks that do not take part cannot be told apart, so all must.
template <bool isAIVOnly = true>
void SyncAll(const GlobalTensor<int32_t>& gmWorkspace, const LocalTensor<int32_t>& ubWorkspace, int32_t usedCores = 0,
             anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    static_assert(isAIVOnly, "anycann emulates the vector core: SyncAll<false> (cube and vector together) is not supported");
    const int64_t blocks = anycann::emu::BlockCount();
    if (usedCores != 0 && usedCores != blocks) {
        anycann::emu::Stop("sync-all", loc, "SyncAll", "usedCores is %d but %d blocks were launched", static_cast<int>(usedCores), static_cast<int>(blocks));
    }
    if (static_cast<int64_t>(gmWorkspace.GetSize()) < blocks * 8 || static_cast<int64_t>(ubWorkspace.GetSize()) < blocks * 8) {
        anycann::emu::Stop("sync-all", loc, "SyncAll", "the workspaces need 32 bytes for each of the %d blocks; gmWorkspace has %d bytes, ubWorkspace %d",
                           static_cast<int>(blocks), static_cast<int>(gmWorkspace.GetSize() * 4), static_cast<int>(ubWorkspace.GetSize() * 4));
    }
    anycann::emu::BarrierCores(loc);
}

inline int64_t GetBlockIdx() { return anycann::emu::BlockIndex(); }
inline int64_t GetBlockNum() { return anycann::emu::BlockCount(); }
inline int64_t GetSubBlockIdx() { return 0; }
inline int64_t GetSubBlockNum() { return 1; }
inline int64_t GetTaskRation() { return 1; }

// From here to SetAtomicNone, copies from UB to GM add to what is there.
template <typename T>
void SetAtomicAdd(anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    static_assert(anycann::emu::OneOf<T, float, half, bfloat16_t, int32_t, int16_t, int8_t>,
                  "SetAtomicAdd takes float, half, bfloat16_t, int32_t, int16_t or int8_t");
    anycann::emu::SetAtomic(anycann::emu::AdditionType<T>(), loc);
}
inline void SetAtomicNone(anycann::emu::Loc loc = anycann::emu::Loc::current()) { anycann::emu::SetAtomic(nullptr, loc); }

}  // namespace AscendC


#endif
