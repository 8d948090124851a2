// DataCopy and DataCopyPad between global memory and the Unified Buffer, and inside it.
#ifndef ANYCANN_EMU_COPY_H
#define ANYCANN_EMU_COPY_H

#include "emu/sync.h"

namespace anycann {
namespace emu {

// A strided copy: `count` blocks of `length` bytes; the start of the next block lies `gm` / `ub` bytes further on.
struct Blocks {
    int64_t count, length, gm, ub;
};

inline int64_t UpTo32(int64_t bytes) { return (bytes + 31) / 32 * 32; }

template <typename T>
int64_t CheckedCount(const char* api, int64_t count, const Loc& loc)
{
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (count < 0 || count > 0xffffffffll / static_cast<int64_t>(sizeof(T))) {
        Stop("unaligned", loc, api, "the count is %lld elements", static_cast<long long>(count));
    }
    if (bytes % 32 != 0) {
        Stop("unaligned", loc, api, "%lld elements of %d bytes are %lld bytes, which is not a multiple of 32: a device drops the last %lld bytes without a word",
             static_cast<long long>(count), static_cast<int>(sizeof(T)), static_cast<long long>(bytes), static_cast<long long>(bytes % 32));
    }
    return bytes;
}

inline void CheckBlocks(const char* api, const Blocks& b, int64_t longest, const Loc& loc)
{
    if (b.count < 1 || b.count > 4095 || b.length < 1 || b.length > longest) {
        Stop("parameter", loc, api, "blockCount must be 1 to 4095 and blockLen 1 to %lld bytes; got %lld blocks of %lld bytes", static_cast<long long>(longest),
             static_cast<long long>(b.count), static_cast<long long>(b.length));
    }
}

template <typename T>
void StoreToGm(T* to, const T* from, int64_t bytes, const Loc& loc)
{
    const char* atomic = AtomicType();
    if (atomic == nullptr) {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
        return;
    }
    if (std::strcmp(atomic, AdditionType<T>()) != 0) {
        Stop("parameter", loc, "DataCopy", "SetAtomicAdd was called for elements of type %s, the copy has elements of type %s", atomic, AdditionType<T>());
    }
    AtomicLock();
    for (int64_t i = 0; i < bytes / static_cast<int64_t>(sizeof(T)); ++i) {
        to[i] = static_cast<T>(to[i] + from[i]);
    }
    AtomicUnlock();
}

template <typename T>
void CopyBlocksIn(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, const Blocks& b, int64_t left, int64_t right,
                  const T* padding, const Loc& loc)
{
    Op op(api, Pipe::MTE2, loc);
    const int64_t whole = UpTo32(left + b.length + right);
    for (int64_t i = 0; i < b.count; ++i) {
        op.ReadGm(src.view(), i * b.gm, b.length, sizeof(T));
        op.WriteAt(dst.view(), i * b.ub, whole, 32);
    }
    for (int64_t i = 0; i < b.count; ++i) {
        uint8_t* to = reinterpret_cast<uint8_t*>(dst.Data()) + i * b.ub;
        std::memset(to, 0xff, static_cast<std::size_t>(whole));  // what a device leaves in padding is not defined
        std::memcpy(to + left, reinterpret_cast<const uint8_t*>(src.Data()) + i * b.gm, static_cast<std::size_t>(b.length));
        for (int64_t at = 0; padding != nullptr && at < left; at += static_cast<int64_t>(sizeof(T))) {
            std::memcpy(to + at, padding, sizeof(T));
        }
        for (int64_t at = 0; padding != nullptr && at < right; at += static_cast<int64_t>(sizeof(T))) {
            std::memcpy(to + left + b.length + at, padding, sizeof(T));
        }
    }
}

template <typename T>
void CopyBlocksOut(const char* api, const AscendC::GlobalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const Blocks& b, const Loc& loc)
{
    Op op(api, Pipe::MTE3, loc);
    for (int64_t i = 0; i < b.count; ++i) {
        op.ReadAt(src.view(), i * b.ub, b.length, 32);
        op.WriteGm(dst.view(), i * b.gm, b.length, sizeof(T));
    }
    for (int64_t i = 0; i < b.count; ++i) {
        T* to = reinterpret_cast<T*>(reinterpret_cast<uint8_t*>(dst.Data()) + i * b.gm);
        StoreToGm(to, reinterpret_cast<const T*>(reinterpret_cast<const uint8_t*>(src.Data()) + i * b.ub), b.length, loc);
    }
}

// Inside the UB, where `gm` stands for the source: a block may be copied onto itself, not onto a part of itself or a block that comes later.
inline void BlocksApart(Op& op, View dst, const View& src, const Blocks& b)
{
    const int64_t last = b.count - 1;
    if (dst.begin >= src.begin + last * b.gm + b.length || src.begin >= dst.begin + last * b.ub + b.length) {
        return;
    }
    for (int64_t i = 0; i < b.count; ++i, dst.begin += b.ub) {
        View from = src;
        from.begin += i * b.gm;
        op.SameOrApart(dst, b.length, from, b.length);
        for (int64_t j = i + 1; j < b.count; ++j) {
            from.begin += b.gm;
            op.NoOverlap(dst, b.length, "a block of the destination", from, b.length, "one that is copied later");
        }
    }
}

inline Blocks PadBlocks(const char* api, int64_t count, int64_t length, int64_t gmGap, int64_t ubGap, int64_t padding, const Loc& loc)
{
    const Blocks b{count, length, length + gmGap, UpTo32(length + padding) + ubGap * 32};
    CheckBlocks(api, b, (1 << 21) - 1, loc);
    return b;
}

template <typename T>
void CopyPadIn(const AscendC::LocalTensor<T>& dst, const AscendC::GlobalTensor<T>& src, int64_t count, int64_t length, int64_t gmGap, int64_t ubGap, bool isPad,
               int64_t left, int64_t right, T value, const Loc& loc)
{
    left = isPad ? left * static_cast<int64_t>(sizeof(T)) : 0;
    right = isPad ? right * static_cast<int64_t>(sizeof(T)) : 0;
    if (left > 32 || right > 32) {
        Stop("parameter", loc, "DataCopyPad", "leftPadding and rightPadding may cover at most 32 bytes each; got %lld and %lld bytes", static_cast<long long>(left),
             static_cast<long long>(right));
    }
    CopyBlocksIn("DataCopyPad", dst, src, PadBlocks("DataCopyPad", count, length, gmGap, ubGap, left + right, loc), left, right, isPad ? &value : nullptr, loc);
}

}  // namespace emu
}  // namespace anycann

namespace AscendC {

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, int64_t count, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    const int64_t bytes = anycann::emu::CheckedCount<T>("DataCopy", count, loc);
    anycann::emu::Op op("DataCopy", anycann::emu::Pipe::MTE2, loc);
    op.ReadGm(src.view(), 0, bytes, sizeof(T));
    op.Write(dst.view(), bytes);
    std::memcpy(dst.Data(), src.Data(), static_cast<std::size_t>(bytes));
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, int64_t count, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    const int64_t bytes = anycann::emu::CheckedCount<T>("DataCopy", count, loc);
    anycann::emu::Op op("DataCopy", anycann::emu::Pipe::MTE3, loc);
    op.Read(src.view(), bytes);
    op.WriteGm(dst.view(), 0, bytes, sizeof(T));
    anycann::emu::StoreToGm(dst.Data(), src.Data(), bytes, loc);
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t count, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    const int64_t bytes = anycann::emu::CheckedCount<T>("DataCopy", count, loc);
    anycann::emu::Op op("DataCopy", anycann::emu::Pipe::V, loc);
    op.Read(src.view(), bytes);
    op.Write(dst.view(), bytes);
    op.SameOrApart(dst.view(), bytes, src.view(), bytes);
    std::memmove(dst.Data(), src.Data(), static_cast<std::size_t>(bytes));
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    const anycann::emu::Blocks b{p.blockCount, p.blockLen * 32, (p.blockLen + p.srcStride) * 32, (p.blockLen + p.dstStride) * 32};
    anycann::emu::CheckBlocks("DataCopy", b, 65535 * 32, loc);
    anycann::emu::CopyBlocksIn<T>("DataCopy", dst, src, b, 0, 0, nullptr, loc);
}

template <typename T>
void DataCopy(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    const anycann::emu::Blocks b{p.blockCount, p.blockLen * 32, (p.blockLen + p.dstStride) * 32, (p.blockLen + p.srcStride) * 32};
    anycann::emu::CheckBlocks("DataCopy", b, 65535 * 32, loc);
    anycann::emu::CopyBlocksOut<T>("DataCopy", dst, src, b, loc);
}

template <typename T>
void DataCopy(const LocalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    const int64_t length = p.blockLen * 32;
    const anycann::emu::Blocks b{p.blockCount, length, (p.blockLen + p.srcStride) * 32, (p.blockLen + p.dstStride) * 32};
    anycann::emu::CheckBlocks("DataCopy", b, 65535 * 32, loc);
    anycann::emu::Op op("DataCopy", anycann::emu::Pipe::V, loc);
    for (int64_t i = 0; i < b.count; ++i) {
        op.ReadAt(src.view(), i * b.gm, length, 32);
        op.WriteAt(dst.view(), i * b.ub, length, 32);
    }
    anycann::emu::BlocksApart(op, dst.view(), src.view(), b);
    for (int64_t i = 0; i < b.count; ++i) {
        std::memmove(reinterpret_cast<uint8_t*>(dst.Data()) + i * b.ub, reinterpret_cast<const uint8_t*>(src.Data()) + i * b.gm, static_cast<std::size_t>(length));
    }
}

// Block length and GM gaps in bytes, UB gaps in 32-byte blocks; every block starts on a 32-byte boundary of the UB.
template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyExtParams& p, const DataCopyPadExtParams<T>& pad,
                 anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    anycann::emu::CopyPadIn(dst, src, p.blockCount, p.blockLen, p.srcStride, p.dstStride, pad.isPad, pad.leftPadding, pad.rightPadding, pad.paddingValue, loc);
}

template <typename T>
void DataCopyPad(const LocalTensor<T>& dst, const GlobalTensor<T>& src, const DataCopyParams& p, const DataCopyPadParams& pad,
                 anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    T value;
    std::memcpy(&value, &pad.paddingValue, sizeof(T));
    anycann::emu::CopyPadIn(dst, src, p.blockCount, p.blockLen, p.srcStride, p.dstStride, pad.isPad, pad.leftPadding, pad.rightPadding, value, loc);
}

template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyExtParams& p, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    anycann::emu::CopyBlocksOut("DataCopyPad", dst, src, anycann::emu::PadBlocks("DataCopyPad", p.blockCount, p.blockLen, p.dstStride, p.srcStride, 0, loc), loc);
}

template <typename T>
void DataCopyPad(const GlobalTensor<T>& dst, const LocalTensor<T>& src, const DataCopyParams& p, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    anycann::emu::CopyBlocksOut("DataCopyPad", dst, src, anycann::emu::PadBlocks("DataCopyPad", p.blockCount, p.blockLen, p.dstStride, p.srcStride, 0, loc), loc);
}

// Writes `size` elements of global memory.
template <typename T>
void InitGlobalMemory(const GlobalTensor<T>& gm, uint64_t size, anycann::emu::SameT<T> value, anycann::emu::Loc loc = anycann::emu::Loc::current())
{
    if (size > static_cast<uint64_t>(INT64_MAX) / 2 / sizeof(T)) {
        anycann::emu::Stop("gm-range", loc, "InitGlobalMemory", "the size is %llu elements, which no memory has: a subtraction below 0, or a wrong factor",
                           static_cast<unsigned long long>(size));
    }
    anycann::emu::Op op("InitGlobalMemory", anycann::emu::Pipe::MTE3, loc);
    op.WriteGm(gm.view(), 0, static_cast<int64_t>(size * sizeof(T)), sizeof(T));
    for (uint64_t i = 0; i < size; ++i) {
        gm.Data()[i] = value;
    }
}

// Here the whole workspace belongs to the user: the system keeps nothing in front of it.
inline GM_ADDR GetUserWorkspace(GM_ADDR workspace) { return workspace; }
inline void SetSysWorkspace(GM_ADDR) {}

}  // namespace AscendC

#endif
