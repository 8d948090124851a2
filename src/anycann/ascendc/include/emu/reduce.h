// Reductions. Sums are binary trees of neighbours inside a 256-byte repeat (a 32-byte block for BlockReduce), each addition rounded to the
// element type; lanes that the mask leaves out add nothing. The count form then adds the repeats in order.
#ifndef ANYCANN_EMU_REDUCE_H
#define ANYCANN_EMU_REDUCE_H

#include "emu/select.h"

namespace anycann {
namespace emu {

template <typename T, typename Read>
T TreeSum(int lanes, Read lane)  // `lanes` a power of two; `lane(i)` gives 0 where nothing is selected
{
    T level[128];
    for (int i = 0; i < lanes; ++i) {
        level[i] = lane(i);
    }
    for (int width = lanes / 2; width >= 1; width /= 2) {
        for (int i = 0; i < width; ++i) {
            level[i] = static_cast<T>(Wide<T>(level[2 * i]) + Wide<T>(level[2 * i + 1]));
        }
    }
    return level[0];
}

template <typename T>
struct Best {
    T value;
    int64_t index = -1;
    void Offer(T candidate, int64_t at, bool largest)  // the first of equals stays; a NaN wins
    {
        const Wide<T> c = candidate, v = value;
        if (index < 0 || (v == v && (c != c || (largest ? c > v : c < v)))) {
            value = candidate;
            index = at;
        }
    }
};

template <typename T>
T IndexBits(int64_t index)  // an index stored in an element of a floating type
{
    T element;
    const uint32_t wide = static_cast<uint32_t>(index);
    const uint16_t narrow = static_cast<uint16_t>(index);
    std::memcpy(&element, sizeof(T) == 2 ? static_cast<const void*>(&narrow) : static_cast<const void*>(&wide), sizeof(T));
    return element;
}

template <typename T>
int64_t WorkBytes(int64_t count)  // one result per repeat, to a whole block
{
    return UpTo32(AscendC::DivCeil<int64_t>(count, LanesPerRepeat<T>()) * static_cast<int64_t>(sizeof(T)));
}

template <typename T>
void ReduceExtreme(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, int64_t count,
                   bool withIndex, bool largest, const Loc& loc)
{
    if (CheckedElements(api, count, loc) == 0) {
        Stop("parameter", loc, api, "the count is 0: there is nothing to reduce");
    }
    Op op(api, Pipe::V, loc);
    op.Read(src.view(), count * static_cast<int64_t>(sizeof(T)));
    op.Write(work.view(), WorkBytes<T>(count));
    Best<T> best{T(0)};
    for (int64_t i = 0; i < count; ++i) {
        best.Offer(src.Data()[i], i, largest);
    }
    op.Forget(work.view(), WorkBytes<T>(count));
    op.Write(dst.view(), static_cast<int64_t>(sizeof(T)) * (withIndex ? 2 : 1), sizeof(T));
    dst.Data()[0] = best.value;
    if (withIndex) {
        dst.Data()[1] = IndexBits<T>(best.index);
    }
}

// The mask + repeat form: the index counts the lanes of all repeats, selected or not.
template <typename T>
void ReduceExtremeLanes(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, const AscendC::LocalTensor<T>& work, Mask mask,
                        int64_t repeats, int64_t srcRepStride, bool withIndex, bool largest, const Loc& loc)
{
    Op op(api, Pipe::V, loc);
    const Lanes from = MakeLanes(api, mask.low, mask.high, repeats, LanesPerRepeat<T>(), sizeof(T), {1, static_cast<int>(srcRepStride)}, loc);
    const int64_t workBytes = UpTo32(repeats * static_cast<int64_t>(sizeof(T)));
    op.ReadLanes(src.view(), from);
    op.Write(work.view(), workBytes);
    Best<T> best{T(0)};
    for (int r = 0; r < from.repeats; ++r) {
        for (int lane = 0; lane < from.perRepeat; ++lane) {
            if (from.On(lane)) {
                best.Offer(src.Data()[from.At(r, lane)], int64_t{r} * from.perRepeat + lane, largest);
            }
        }
    }
    op.Forget(work.view(), workBytes);
    op.Write(dst.view(), static_cast<int64_t>(sizeof(T)) * (withIndex ? 2 : 1), sizeof(T));
    dst.Data()[0] = best.value;
    if (withIndex) {
        dst.Data()[1] = IndexBits<T>(best.index);
    }
}

template <typename T>
void WholeExtreme(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, Mask mask, int64_t repeats, int64_t dstRepStride,
                  Steps srcSteps, AscendC::ReduceOrder order, bool largest, const Loc& loc)
{
    using AscendC::ReduceOrder;
    Op op(api, Pipe::V, loc);
    const Lanes from = MakeLanes(api, mask.low, mask.high, repeats, LanesPerRepeat<T>(), sizeof(T), srcSteps, loc);
    const bool pair = order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_INDEX_VALUE;
    const int64_t step = dstRepStride * (pair ? 2 : 1);  // in results
    op.ReadLanes(src.view(), from);
    for (int r = 0; r < from.repeats; ++r) {
        op.WriteAt(dst.view(), r * step * static_cast<int64_t>(sizeof(T)), static_cast<int64_t>(sizeof(T)) * (pair ? 2 : 1));
    }
    op.ResultsApart(dst.view(), step * static_cast<int64_t>(sizeof(T)), static_cast<int64_t>(sizeof(T)) * (pair ? 2 : 1), src.view(), from);
    for (int r = 0; r < from.repeats; ++r) {
        Best<T> best{T(0)};
        for (int lane = 0; lane < from.perRepeat; ++lane) {
            if (from.On(lane)) {
                best.Offer(src.Data()[from.At(r, lane)], lane, largest);
            }
        }
        T* out = dst.Data() + r * step;
        const bool valueFirst = order == ReduceOrder::ORDER_VALUE_INDEX || order == ReduceOrder::ORDER_ONLY_VALUE;
        out[0] = valueFirst ? best.value : IndexBits<T>(best.index);
        if (pair) {
            out[1] = valueFirst ? IndexBits<T>(best.index) : best.value;
        }
    }
}

template <typename T, typename F>
void BlockReduce(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src, int64_t repeats, Mask mask, int64_t dstRepStride,
                 Steps srcSteps, const Loc& loc, F reduce)
{
    constexpr int perBlock = static_cast<int>(32 / sizeof(T));
    Op op(api, Pipe::V, loc);
    const Lanes from = MakeLanes(api, mask.low, mask.high, repeats, LanesPerRepeat<T>(), sizeof(T), srcSteps, loc);
    op.ReadLanes(src.view(), from);
    for (int r = 0; r < from.repeats; ++r) {
        op.WriteAt(dst.view(), r * dstRepStride * 8 * static_cast<int64_t>(sizeof(T)), 8 * static_cast<int64_t>(sizeof(T)));
    }
    op.ResultsApart(dst.view(), dstRepStride * 8 * static_cast<int64_t>(sizeof(T)), 8 * static_cast<int64_t>(sizeof(T)), src.view(), from);
    for (int r = 0; r < from.repeats; ++r) {
        for (int block = 0; block < 8; ++block) {
            dst.Data()[(r * dstRepStride) * 8 + block] = reduce(from, r, block * perBlock, perBlock);
        }
    }
}

template <typename T>
auto BlockExtreme(const AscendC::LocalTensor<T>& src, bool largest)
{
    return [src, largest](const Lanes& from, int r, int first, int width) {
        Best<T> best{T(0)};
        for (int lane = first; lane < first + width; ++lane) {
            if (from.On(lane)) {
                best.Offer(src.Data()[from.At(r, lane)], lane, largest);
            }
        }
        return best.value;
    };
}

}  // namespace emu
}  // namespace anycann

#define ANYCANN_REDUCE_TYPES(NAME) static_assert(anycann::emu::OneOf<T, half, float>, "AscendC::" #NAME " takes half or float")

namespace AscendC {

template <typename T, bool isSetMask = true>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, int64_t count, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(ReduceSum);
    constexpr int lanes = anycann::emu::LanesPerRepeat<T>();
    if (anycann::emu::CheckedElements("ReduceSum", count, loc) == 0) {
        anycann::emu::Stop("parameter", loc, "ReduceSum", "the count is 0: there is nothing to reduce");
    }
    anycann::emu::Op op("ReduceSum", anycann::emu::Pipe::V, loc);
    op.Read(src.view(), count * static_cast<int64_t>(sizeof(T)));
    op.Write(sharedTmpBuffer.view(), anycann::emu::WorkBytes<T>(count));
    const T* s = src.Data();
    T total = T(0);
    for (int64_t start = 0; start < count; start += lanes) {
        const T part = anycann::emu::TreeSum<T>(lanes, [=](int i) { return start + i < count ? s[start + i] : T(0); });
        total = start == 0 ? part : static_cast<T>(anycann::emu::Wide<T>(total) + anycann::emu::Wide<T>(part));
    }
    op.Forget(sharedTmpBuffer.view(), anycann::emu::WorkBytes<T>(count));
    op.Write(dst.view(), sizeof(T), sizeof(T));
    dst.Data()[0] = total;
}

// One sum per repeat; results lie dstRepStride elements apart.
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void WholeReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, int64_t repeatTimes, int64_t dstRepStride, int64_t srcBlkStride,
                    int64_t srcRepStride, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(WholeReduceSum);
    const anycann::emu::Mask m("WholeReduceSum", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    const anycann::emu::Steps steps{static_cast<int>(srcBlkStride), static_cast<int>(srcRepStride)};
    const anycann::emu::Lanes from = anycann::emu::MakeLanes("WholeReduceSum", m.low, m.high, repeatTimes, anycann::emu::LanesPerRepeat<T>(), sizeof(T), steps, loc);
    anycann::emu::Op op("WholeReduceSum", anycann::emu::Pipe::V, loc);
    op.ReadLanes(src.view(), from);
    for (int r = 0; r < from.repeats; ++r) {
        op.WriteAt(dst.view(), r * dstRepStride * static_cast<int64_t>(sizeof(T)), sizeof(T));
    }
    op.ResultsApart(dst.view(), dstRepStride * static_cast<int64_t>(sizeof(T)), sizeof(T), src.view(), from);
    for (int r = 0; r < from.repeats; ++r) {
        dst.Data()[r * dstRepStride] = anycann::emu::TreeSum<T>(from.perRepeat, [&](int lane) { return from.On(lane) ? src.Data()[from.At(r, lane)] : T(0); });
    }
}

// The mask + repeat form: the sums of the repeats, added in order.
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void ReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, Mask mask, int64_t repeatTimes,
               int64_t srcRepStride, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(ReduceSum);
    const anycann::emu::Mask m("ReduceSum", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    const anycann::emu::Lanes from =
        anycann::emu::MakeLanes("ReduceSum", m.low, m.high, repeatTimes, anycann::emu::LanesPerRepeat<T>(), sizeof(T), {1, static_cast<int>(srcRepStride)}, loc);
    anycann::emu::Op op("ReduceSum", anycann::emu::Pipe::V, loc);
    const int64_t work = anycann::emu::UpTo32(repeatTimes * static_cast<int64_t>(sizeof(T)));
    op.ReadLanes(src.view(), from);
    op.Write(sharedTmpBuffer.view(), work);
    T total = T(0);
    for (int r = 0; r < from.repeats; ++r) {
        const T part = anycann::emu::TreeSum<T>(from.perRepeat, [&](int lane) { return from.On(lane) ? src.Data()[from.At(r, lane)] : T(0); });
        total = r == 0 ? part : static_cast<T>(anycann::emu::Wide<T>(total) + anycann::emu::Wide<T>(part));
    }
    op.Forget(sharedTmpBuffer.view(), work);
    op.Write(dst.view(), sizeof(T), sizeof(T));
    dst.Data()[0] = total;
}

// The extreme value and, with calIndex, its index as bits in the second element. Of equal values the first counts.
template <typename T>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, int64_t count, bool calIndex = false, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(ReduceMax);
    anycann::emu::ReduceExtreme("ReduceMax", dst, src, sharedTmpBuffer, count, calIndex, true, loc);
}
template <typename T, typename Mask = uint64_t>
void ReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, Mask mask, int64_t repeatTimes,
               int64_t srcRepStride, bool calIndex = false, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(ReduceMax);
    const anycann::emu::Mask m("ReduceMax", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::ReduceExtremeLanes("ReduceMax", dst, src, sharedTmpBuffer, m, repeatTimes, srcRepStride, calIndex, true, loc);
}
template <typename T>
void ReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, int64_t count, bool calIndex = false, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(ReduceMin);
    anycann::emu::ReduceExtreme("ReduceMin", dst, src, sharedTmpBuffer, count, calIndex, false, loc);
}
template <typename T, typename Mask = uint64_t>
void ReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<T>& sharedTmpBuffer, Mask mask, int64_t repeatTimes,
               int64_t srcRepStride, bool calIndex = false, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(ReduceMin);
    const anycann::emu::Mask m("ReduceMin", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::ReduceExtremeLanes("ReduceMin", dst, src, sharedTmpBuffer, m, repeatTimes, srcRepStride, calIndex, false, loc);
}

template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void WholeReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, int64_t repeatTimes, int64_t dstRepStride, int64_t srcBlkStride,
                    int64_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(WholeReduceMax);
    const anycann::emu::Mask m("WholeReduceMax", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::WholeExtreme("WholeReduceMax", dst, src, m, repeatTimes, dstRepStride, {static_cast<int>(srcBlkStride), static_cast<int>(srcRepStride)}, order, true, loc);
}
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void WholeReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, int64_t repeatTimes, int64_t dstRepStride, int64_t srcBlkStride,
                    int64_t srcRepStride, ReduceOrder order = ReduceOrder::ORDER_VALUE_INDEX, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(WholeReduceMin);
    const anycann::emu::Mask m("WholeReduceMin", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::WholeExtreme("WholeReduceMin", dst, src, m, repeatTimes, dstRepStride, {static_cast<int>(srcBlkStride), static_cast<int>(srcRepStride)}, order, false, loc);
}

// One result per 32-byte block, eight per repeat; the eight of the next repeat lie dstRepStride * 8 elements further on.
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void BlockReduceSum(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t repeatTimes, Mask mask, int64_t dstRepStride, int64_t srcBlkStride,
                    int64_t srcRepStride, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(BlockReduceSum);
    const anycann::emu::Mask m("BlockReduceSum", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::BlockReduce("BlockReduceSum", dst, src, repeatTimes, m, dstRepStride, {static_cast<int>(srcBlkStride), static_cast<int>(srcRepStride)}, loc,
                              [&](const anycann::emu::Lanes& from, int r, int first, int width) {
                                  return anycann::emu::TreeSum<T>(width, [&](int i) { return from.On(first + i) ? src.Data()[from.At(r, first + i)] : T(0); });
                              });
}
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void BlockReduceMax(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t repeatTimes, Mask mask, int64_t dstRepStride, int64_t srcBlkStride,
                    int64_t srcRepStride, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(BlockReduceMax);
    const anycann::emu::Mask m("BlockReduceMax", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::BlockReduce("BlockReduceMax", dst, src, repeatTimes, m, dstRepStride, {static_cast<int>(srcBlkStride), static_cast<int>(srcRepStride)}, loc,
                              anycann::emu::BlockExtreme(src, true));
}
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void BlockReduceMin(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t repeatTimes, Mask mask, int64_t dstRepStride, int64_t srcBlkStride,
                    int64_t srcRepStride, ANYCANN_HERE)
{
    ANYCANN_REDUCE_TYPES(BlockReduceMin);
    const anycann::emu::Mask m("BlockReduceMin", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::BlockReduce("BlockReduceMin", dst, src, repeatTimes, m, dstRepStride, {static_cast<int>(srcBlkStride), static_cast<int>(srcRepStride)}, loc,
                              anycann::emu::BlockExtreme(src, false));
}

}  // namespace AscendC

#endif
