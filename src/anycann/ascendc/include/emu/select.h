// Compare writes one bit per element, least significant first; Select reads such bits. Gather and Brcb move elements.
#ifndef ANYCANN_EMU_SELECT_H
#define ANYCANN_EMU_SELECT_H

#include "emu/cast.h"

namespace anycann {
namespace emu {

template <typename W>
bool Holds(AscendC::CMPMODE mode, W a, W b)
{
    switch (mode) {
        case AscendC::CMPMODE::LT: return a < b;
        case AscendC::CMPMODE::GT: return a > b;
        case AscendC::CMPMODE::EQ: return a == b;
        case AscendC::CMPMODE::LE: return a <= b;
        case AscendC::CMPMODE::GE: return a >= b;
        default: return a != b;
    }
}

inline void SetBit(uint8_t* bits, int64_t i, bool on)
{
    const uint8_t bit = static_cast<uint8_t>(1u << (i & 7));
    bits[i >> 3] = static_cast<uint8_t>(on ? bits[i >> 3] | bit : bits[i >> 3] & ~bit);
}
inline bool GetBit(const uint8_t* bits, int64_t i) { return ((bits[i >> 3] >> (i & 7)) & 1) != 0; }

template <typename T>
void CheckWholeRepeats(const char* api, int64_t count, const Loc& loc)
{
    if (CheckedElements(api, count, loc) * static_cast<int64_t>(sizeof(T)) % 256 != 0) {
        Stop("unaligned", loc, api, "the count form works on whole 256-byte repeats; %lld elements of %d bytes are not", static_cast<long long>(count),
             static_cast<int>(sizeof(T)));
    }
}

template <typename T, typename U, typename B>
void CompareCount(const char* api, const AscendC::LocalTensor<U>& dst, const AscendC::LocalTensor<T>& src, const View* other, int64_t count, const Loc& loc,
                  AscendC::CMPMODE mode, B second)
{
    CheckWholeRepeats<T>(api, count, loc);
    Op op(api, Pipe::V, loc);
    op.Read(src.view(), count * static_cast<int64_t>(sizeof(T)));
    if (other != nullptr) {
        op.Read(*other, count * static_cast<int64_t>(sizeof(T)));
    }
    op.Write(dst.view(), count / 8);
    op.SameOrApart(dst.view(), count / 8, src.view(), count * static_cast<int64_t>(sizeof(T)));
    if (other != nullptr) {
        op.SameOrApart(dst.view(), count / 8, *other, count * static_cast<int64_t>(sizeof(T)));
    }
    uint8_t* bits = reinterpret_cast<uint8_t*>(dst.Data());
    for (int64_t i = 0; i < count; ++i) {
        SetBit(bits, i, Holds(mode, Wide<T>(src.Data()[i]), Wide<T>(second(i))));
    }
}

// Repeats write their bits one after the other; bits of lanes that the mask leaves out keep their value.
template <typename T, typename U, typename B>
void CompareLanes(const char* api, const AscendC::LocalTensor<U>& dst, const AscendC::LocalTensor<T>& src, const View* other, const Lanes& from,
                  const Lanes& otherFrom, const Loc& loc, AscendC::CMPMODE mode, B second)
{
    Op op(api, Pipe::V, loc);
    op.ReadLanes(src.view(), from);
    if (other != nullptr) {
        op.ReadLanes(*other, otherFrom);
    }
    op.Write(dst.view(), int64_t{from.repeats} * from.perRepeat / 8);
    op.ResultsApart(dst.view(), from.perRepeat / 8, from.perRepeat / 8, src.view(), from);
    if (other != nullptr) {
        op.ResultsApart(dst.view(), from.perRepeat / 8, from.perRepeat / 8, *other, otherFrom);
    }
    uint8_t* bits = reinterpret_cast<uint8_t*>(dst.Data());
    for (int r = 0; r < from.repeats; ++r) {
        for (int lane = 0; lane < from.perRepeat; ++lane) {
            if (from.On(lane)) {
                SetBit(bits, int64_t{r} * from.perRepeat + lane, Holds(mode, Wide<T>(src.Data()[from.At(r, lane)]), Wide<T>(second(otherFrom.At(r, lane)))));
            }
        }
    }
}

// Which bit decides element `lane` of repeat `r`: one register's worth again and again, or one bit after the other.
inline int64_t SelectBit(AscendC::SELMODE mode, int perRepeat, int64_t r, int64_t lane)
{
    return mode == AscendC::SELMODE::VSEL_CMPMASK_SPR ? lane : r * perRepeat + lane;
}

inline int64_t SelectBytes(AscendC::SELMODE mode, int perRepeat, int64_t elements)
{
    const int64_t bits = mode == AscendC::SELMODE::VSEL_CMPMASK_SPR && elements > perRepeat ? perRepeat : elements;
    return (bits + 7) / 8;
}

template <typename T, typename U, typename B>
void SelectCount(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& mask, const AscendC::LocalTensor<T>& src, const View* other, int64_t count,
                 const Loc& loc, AscendC::SELMODE mode, B second)
{
    constexpr int perRepeat = LanesPerRepeat<T>();
    Op op("Select", Pipe::V, loc);
    const int64_t bytes = CheckedElements("Select", count, loc) * static_cast<int64_t>(sizeof(T));
    op.Read(mask.view(), SelectBytes(mode, perRepeat, count));
    op.Read(src.view(), bytes);
    if (other != nullptr) {
        op.Read(*other, bytes);
    }
    op.Write(dst.view(), bytes);
    op.SameOrApart(dst.view(), bytes, src.view(), bytes);
    if (other != nullptr) {
        op.SameOrApart(dst.view(), bytes, *other, bytes);
    }
    op.NoOverlap(dst.view(), bytes, "the destination", mask.view(), SelectBytes(mode, perRepeat, count), "selMask");
    const uint8_t* bits = reinterpret_cast<const uint8_t*>(mask.Data());
    for (int64_t i = 0; i < count; ++i) {
        dst.Data()[i] = GetBit(bits, SelectBit(mode, perRepeat, i / perRepeat, i % perRepeat)) ? src.Data()[i] : second(i);
    }
}

template <typename T, typename U, typename B>
void SelectLanes(const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<U>& mask, const AscendC::LocalTensor<T>& src, const View* other, Mask lanes,
                 int64_t repeats, const AscendC::BinaryRepeatParams& p, const Loc& loc, AscendC::SELMODE mode, B second)
{
    constexpr int perRepeat = LanesPerRepeat<T>();
    Op op("Select", Pipe::V, loc);
    const Lanes to = MakeLanes("Select", lanes.low, lanes.high, repeats, perRepeat, sizeof(T), {p.dstBlkStride, p.dstRepStride}, loc);
    const Lanes from = MakeLanes("Select", lanes.low, lanes.high, repeats, perRepeat, sizeof(T), {p.src0BlkStride, p.src0RepStride}, loc);
    const Lanes from1 = MakeLanes("Select", lanes.low, lanes.high, repeats, perRepeat, sizeof(T), {p.src1BlkStride, p.src1RepStride}, loc);
    op.Read(mask.view(), SelectBytes(mode, perRepeat, repeats * perRepeat));
    op.ReadLanes(src.view(), from);
    if (other != nullptr) {
        op.ReadLanes(*other, from1);
    }
    op.WriteLanes(dst.view(), to);
    op.SameOrApart(dst.view(), to, src.view(), from);
    if (other != nullptr) {
        op.SameOrApart(dst.view(), to, *other, from1);
    }
    op.NoOverlap(dst.view(), to.Extent(), "the destination", mask.view(), SelectBytes(mode, perRepeat, repeats * perRepeat), "selMask");
    const uint8_t* bits = reinterpret_cast<const uint8_t*>(mask.Data());
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < perRepeat; ++lane) {
            if (to.On(lane)) {
                dst.Data()[to.At(r, lane)] = GetBit(bits, SelectBit(mode, perRepeat, r, lane)) ? src.Data()[from.At(r, lane)] : second(from1.At(r, lane));
            }
        }
    }
}

inline void CheckSelectMode(AscendC::SELMODE mode, bool scalar, const Loc& loc)
{
    if (scalar != (mode == AscendC::SELMODE::VSEL_TENSOR_SCALAR_MODE)) {
        Stop("parameter", loc, "Select", "%s", scalar ? "with a scalar the mode must be VSEL_TENSOR_SCALAR_MODE" : "with two tensors the mode must be VSEL_CMPMASK_SPR or VSEL_TENSOR_TENSOR_MODE");
    }
}

// One element of Gather's source, which must not lie in the `written` bytes of its destination.
template <typename T>
void ReadGathered(Op& op, const View& dst, int64_t written, const AscendC::LocalTensor<T>& src, int64_t at, int64_t element, const Loc& loc)
{
    if (at % static_cast<int64_t>(sizeof(T)) != 0) {
        Stop("unaligned", loc, "Gather", "offset %lld bytes (element %lld of srcOffset) is not a multiple of the element size %d", static_cast<long long>(at),
             static_cast<long long>(element), static_cast<int>(sizeof(T)));
    }
    op.ReadAt(src.view(), at, sizeof(T));
    View one = src.view();
    one.begin += at;
    op.NoOverlap(dst, written, "the destination", one, sizeof(T), "an element of the source");
}

}  // namespace emu
}  // namespace anycann

#define ANYCANN_COMPARE_TYPES(NAME) static_assert(anycann::emu::OneOf<T, half, float, int32_t>, "AscendC::" #NAME " takes half, float or int32_t")

namespace AscendC {

template <typename T, typename U>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode, int64_t count, ANYCANN_HERE)
{
    ANYCANN_COMPARE_TYPES(Compare);
    anycann::emu::CompareCount("Compare", dst, src0, &src1.view(), count, loc, mode, [&src1](int64_t i) { return src1.Data()[i]; });
}
template <typename T, typename U, typename Mask = uint64_t>
void Compare(const LocalTensor<U>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, CMPMODE mode, Mask mask, int64_t repeatTimes,
             const BinaryRepeatParams& p, ANYCANN_HERE)
{
    ANYCANN_COMPARE_TYPES(Compare);
    constexpr int lanes = anycann::emu::LanesPerRepeat<T>();
    const anycann::emu::Mask m("Compare", mask, lanes, loc);
    const anycann::emu::Lanes a = anycann::emu::MakeLanes("Compare", m.low, m.high, repeatTimes, lanes, sizeof(T), {p.src0BlkStride, p.src0RepStride}, loc);
    const anycann::emu::Lanes b = anycann::emu::MakeLanes("Compare", m.low, m.high, repeatTimes, lanes, sizeof(T), {p.src1BlkStride, p.src1RepStride}, loc);
    anycann::emu::CompareLanes("Compare", dst, src0, &src1.view(), a, b, loc, mode, [&src1](int64_t i) { return src1.Data()[i]; });
}

template <typename T, typename U>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, anycann::emu::SameT<T> src1Scalar, CMPMODE mode, int64_t count, ANYCANN_HERE)
{
    ANYCANN_COMPARE_TYPES(CompareScalar);
    anycann::emu::CompareCount("CompareScalar", dst, src0, nullptr, count, loc, mode, [src1Scalar](int64_t) { return src1Scalar; });
}
template <typename T, typename U, typename Mask = uint64_t>
void CompareScalar(const LocalTensor<U>& dst, const LocalTensor<T>& src0, anycann::emu::SameT<T> src1Scalar, CMPMODE mode, Mask mask, int64_t repeatTimes,
                   const UnaryRepeatParams& p, ANYCANN_HERE)
{
    ANYCANN_COMPARE_TYPES(CompareScalar);
    constexpr int lanes = anycann::emu::LanesPerRepeat<T>();
    const anycann::emu::Mask m("CompareScalar", mask, lanes, loc);
    const anycann::emu::Lanes a = anycann::emu::MakeLanes("CompareScalar", m.low, m.high, repeatTimes, lanes, sizeof(T), {p.srcBlkStride, p.srcRepStride}, loc);
    anycann::emu::CompareLanes("CompareScalar", dst, src0, nullptr, a, a, loc, mode, [src1Scalar](int64_t) { return src1Scalar; });
}

template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1, SELMODE mode, int64_t count,
            ANYCANN_HERE)
{
    static_assert(anycann::emu::OneOf<T, half, float>, "AscendC::Select takes half or float");
    anycann::emu::CheckSelectMode(mode, false, loc);
    anycann::emu::SelectCount(dst, selMask, src0, &src1.view(), count, loc, mode, [&src1](int64_t i) { return src1.Data()[i]; });
}
template <typename T, typename U>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, anycann::emu::SameT<T> src1, SELMODE mode, int64_t count,
            ANYCANN_HERE)
{
    static_assert(anycann::emu::OneOf<T, half, float>, "AscendC::Select takes half or float");
    anycann::emu::CheckSelectMode(mode, true, loc);
    anycann::emu::SelectCount(dst, selMask, src0, nullptr, count, loc, mode, [src1](int64_t) { return src1; });
}
template <typename T, typename U, typename Mask = uint64_t>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, const LocalTensor<T>& src1, SELMODE mode, Mask mask,
            int64_t repeatTimes, const BinaryRepeatParams& params, ANYCANN_HERE)
{
    static_assert(anycann::emu::OneOf<T, half, float>, "AscendC::Select takes half or float");
    anycann::emu::CheckSelectMode(mode, false, loc);
    const anycann::emu::Mask m("Select", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::SelectLanes(dst, selMask, src0, &src1.view(), m, repeatTimes, params, loc, mode, [&src1](int64_t i) { return src1.Data()[i]; });
}
template <typename T, typename U, typename Mask = uint64_t>
void Select(const LocalTensor<T>& dst, const LocalTensor<U>& selMask, const LocalTensor<T>& src0, anycann::emu::SameT<T> src1, SELMODE mode, Mask mask,
            int64_t repeatTimes, const BinaryRepeatParams& params, ANYCANN_HERE)
{
    static_assert(anycann::emu::OneOf<T, half, float>, "AscendC::Select takes half or float");
    anycann::emu::CheckSelectMode(mode, true, loc);
    const anycann::emu::Mask m("Select", mask, anycann::emu::LanesPerRepeat<T>(), loc);
    anycann::emu::SelectLanes(dst, selMask, src0, nullptr, m, repeatTimes, params, loc, mode, [src1](int64_t) { return src1; });
}

// dst[i] = the element of src that lies srcBaseAddr + srcOffset[i] bytes from its start.
template <typename T>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, uint32_t srcBaseAddr, int64_t count, ANYCANN_HERE)
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "AscendC::Gather takes elements of 2 or 4 bytes");
    anycann::emu::Op op("Gather", anycann::emu::Pipe::V, loc);
    op.Read(srcOffset.view(), anycann::emu::CheckedElements("Gather", count, loc) * 4);
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < count; ++i) {
        anycann::emu::ReadGathered(op, dst.view(), bytes, src, int64_t{srcBaseAddr} + srcOffset.Data()[i], i, loc);
    }
    op.Write(dst.view(), bytes);
    op.SameOrApart(dst.view(), bytes, srcOffset.view(), count * 4);
    for (int64_t i = 0; i < count; ++i) {
        dst.Data()[i] = src.Data()[(int64_t{srcBaseAddr} + srcOffset.Data()[i]) / static_cast<int64_t>(sizeof(T))];
    }
}
// The mask + repeat form: the offsets of a repeat follow those of the one before, results lie dstRepStride blocks further on.
template <typename T, typename Mask = uint64_t>
void Gather(const LocalTensor<T>& dst, const LocalTensor<T>& src, const LocalTensor<uint32_t>& srcOffset, uint32_t srcBaseAddr, Mask mask, int64_t repeatTimes,
            int32_t dstRepStride, ANYCANN_HERE)
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "AscendC::Gather takes elements of 2 or 4 bytes");
    constexpr int perRepeat = anycann::emu::LanesPerRepeat<T>();
    const anycann::emu::Mask m("Gather", mask, perRepeat, loc);
    const anycann::emu::Lanes to = anycann::emu::MakeLanes("Gather", m.low, m.high, repeatTimes, perRepeat, sizeof(T), {1, dstRepStride}, loc);
    const anycann::emu::Lanes from = anycann::emu::MakeLanes("Gather", m.low, m.high, repeatTimes, perRepeat, 4, {1, perRepeat / 8}, loc);
    anycann::emu::Op op("Gather", anycann::emu::Pipe::V, loc);
    op.ReadLanes(srcOffset.view(), from);
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < perRepeat; ++lane) {
            if (to.On(lane)) {
                anycann::emu::ReadGathered(op, dst.view(), to.Extent(), src, int64_t{srcBaseAddr} + srcOffset.Data()[from.At(r, lane)], from.At(r, lane), loc);
            }
        }
    }
    op.WriteLanes(dst.view(), to);
    op.SameOrApart(dst.view(), to, srcOffset.view(), from);
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < perRepeat; ++lane) {
            if (to.On(lane)) {
                dst.Data()[to.At(r, lane)] = src.Data()[(int64_t{srcBaseAddr} + srcOffset.Data()[from.At(r, lane)]) / static_cast<int64_t>(sizeof(T))];
            }
        }
    }
}

// Each repeat spreads 8 elements of src over 8 blocks of dst.
template <typename T>
void Brcb(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t repeatTimes, const BrcbRepeatParams& params, ANYCANN_HERE)
{
    static_assert(sizeof(T) == 2 || sizeof(T) == 4, "AscendC::Brcb takes elements of 2 or 4 bytes");
    constexpr int perBlock = static_cast<int>(32 / sizeof(T));
    anycann::emu::Op op("Brcb", anycann::emu::Pipe::V, loc);
    const anycann::emu::Lanes to = anycann::emu::MakeLanes("Brcb", ~uint64_t{0}, ~uint64_t{0}, repeatTimes, 8 * perBlock, sizeof(T), {params.dstBlkStride, params.dstRepStride}, loc);
    op.Read(src.view(), repeatTimes * 8 * static_cast<int64_t>(sizeof(T)));
    op.WriteLanes(dst.view(), to);
    op.NoOverlap(dst.view(), to.Extent(), "the destination", src.view(), repeatTimes * 8 * static_cast<int64_t>(sizeof(T)), "the source");
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < to.perRepeat; ++lane) {
            dst.Data()[to.At(r, lane)] = src.Data()[r * 8 + lane / perBlock];
        }
    }
}

}  // namespace AscendC

#endif
