// Element-wise instructions, in two forms: the first `count` elements, or mask + repeat (the mask as a lane count or as two words).
// half and bfloat16_t compute in float and round once; integers wrap; Exp, Ln, Rsqrt compute in double and round to float first.
#ifndef ANYCANN_EMU_VECTOR_H
#define ANYCANN_EMU_VECTOR_H

#include "emu/copy.h"

namespace anycann {
namespace emu {

template <typename T>
using Wide = std::conditional_t<std::is_integral<T>::value, int64_t, float>;

struct Steps {  // strides of one operand
    int block, repeat;
};

inline int64_t CheckedElements(const char* api, int64_t count, const Loc& loc)
{
    if (count < 0 || count > 0x7fffffff) {
        Stop("parameter", loc, api, "the count is %lld elements", static_cast<long long>(count));
    }
    return count;
}

inline Lanes MakeLanes(const char* api, uint64_t low, uint64_t high, int64_t repeats, int perRepeat, int itemSize, Steps steps, const Loc& loc)
{
    if (repeats < 0 || repeats > 255) {
        Stop("mask", loc, api, "repeatTimes must be 0 to 255; got %lld (the device keeps 8 bits of it)", static_cast<long long>(repeats));
    }
    if (steps.block < 0 || steps.block > 65535 || steps.repeat < 0 || steps.repeat > 65535) {
        Stop("mask", loc, api, "a stride is out of range: block stride %d, repeat stride %d", steps.block, steps.repeat);
    }
    return Lanes{{low, high}, static_cast<int>(repeats), perRepeat, itemSize, steps.block, steps.repeat};
}

// A mask in either spelling. Widest operand decides how many lanes a repeat has: 128 of 2 bytes, 64 of 4.
struct Mask {
    uint64_t low, high;
    Mask(const char* api, uint64_t count, int perRepeat, const Loc& loc) : low(0), high(0)
    {
        if (count < 1 || count > static_cast<uint64_t>(perRepeat)) {
            Stop("mask", loc, api, "the mask must select 1 to %d lanes of this element type; got %lld", perRepeat, static_cast<long long>(count));
        }
        low = count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
        high = count >= 128 ? ~uint64_t{0} : count > 64 ? (uint64_t{1} << (count - 64)) - 1 : 0;
    }
    Mask(const char* api, const uint64_t words[], int perRepeat, const Loc& loc) : low(words[0]), high(perRepeat > 64 ? words[1] : 0)
    {
        if (low == 0 && high == 0) {
            Stop("mask", loc, api, "the mask selects no lane of this element type");
        }
    }
};

template <typename... T>
constexpr int LanesPerRepeat()
{
    std::size_t widest = 2;
    ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
    return static_cast<int>(256 / widest);
}

template <typename T, typename F>
void Fill(const char* api, const AscendC::LocalTensor<T>& dst, int64_t count, const Loc& loc, F f)
{
    Op op(api, Pipe::V, loc);
    op.Write(dst.view(), CheckedElements(api, count, loc) * static_cast<int64_t>(sizeof(T)));
    T* d = dst.Data();
    for (int64_t i = 0; i < count; ++i) {
        d[i] = f(i);
    }
}

template <typename T, typename F>
void FillLanes(const char* api, const AscendC::LocalTensor<T>& dst, Mask mask, int64_t repeats, Steps dstSteps, const Loc& loc, F f)
{
    Op op(api, Pipe::V, loc);
    const Lanes to = MakeLanes(api, mask.low, mask.high, repeats, LanesPerRepeat<T>(), sizeof(T), dstSteps, loc);
    op.WriteLanes(dst.view(), to);
    T* d = dst.Data();
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < to.perRepeat; ++lane) {
            if (to.On(lane)) {
                d[to.At(r, lane)] = f(int64_t{r} * to.perRepeat + lane);
            }
        }
    }
}

template <typename D, typename S, typename F>
void Unary(const char* api, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src, int64_t count, const Loc& loc, F f)
{
    Op op(api, Pipe::V, loc);
    CheckedElements(api, count, loc);
    op.Read(src.view(), count * static_cast<int64_t>(sizeof(S)));
    op.Write(dst.view(), count * static_cast<int64_t>(sizeof(D)));
    op.SameOrApart(dst.view(), count * static_cast<int64_t>(sizeof(D)), src.view(), count * static_cast<int64_t>(sizeof(S)));
    D* d = dst.Data();
    const S* s = src.Data();
    for (int64_t i = 0; i < count; ++i) {
        d[i] = f(s[i], d[i]);
    }
}

template <typename D, typename S, typename F>
void UnaryLanes(const char* api, const AscendC::LocalTensor<D>& dst, const AscendC::LocalTensor<S>& src, Mask mask, int64_t repeats,
                const AscendC::UnaryRepeatParams& p, const Loc& loc, F f)
{
    Op op(api, Pipe::V, loc);
    const int perRepeat = LanesPerRepeat<D, S>();
    const Lanes to = MakeLanes(api, mask.low, mask.high, repeats, perRepeat, sizeof(D), {p.dstBlkStride, p.dstRepStride}, loc);
    const Lanes from = MakeLanes(api, mask.low, mask.high, repeats, perRepeat, sizeof(S), {p.srcBlkStride, p.srcRepStride}, loc);
    op.ReadLanes(src.view(), from);
    op.WriteLanes(dst.view(), to);
    op.SameOrApart(dst.view(), to, src.view(), from);
    D* d = dst.Data();
    const S* s = src.Data();
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < perRepeat; ++lane) {
            if (to.On(lane)) {
                D& out = d[to.At(r, lane)];
                out = f(s[from.At(r, lane)], out);
            }
        }
    }
}

template <typename T, typename F>
void Binary(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1, int64_t count,
            const Loc& loc, F f)
{
    Op op(api, Pipe::V, loc);
    const int64_t bytes = CheckedElements(api, count, loc) * static_cast<int64_t>(sizeof(T));
    op.Read(src0.view(), bytes);
    op.Read(src1.view(), bytes);
    op.Write(dst.view(), bytes);
    op.SameOrApart(dst.view(), bytes, src0.view(), bytes);
    op.SameOrApart(dst.view(), bytes, src1.view(), bytes);
    T* d = dst.Data();
    const T* a = src0.Data();
    const T* b = src1.Data();
    for (int64_t i = 0; i < count; ++i) {
        d[i] = static_cast<T>(f(Wide<T>(a[i]), Wide<T>(b[i])));
    }
}

template <typename T, typename F>
void BinaryLanes(const char* api, const AscendC::LocalTensor<T>& dst, const AscendC::LocalTensor<T>& src0, const AscendC::LocalTensor<T>& src1, Mask mask,
                 int64_t repeats, const AscendC::BinaryRepeatParams& p, const Loc& loc, F f)
{
    Op op(api, Pipe::V, loc);
    const int perRepeat = LanesPerRepeat<T>();
    const Lanes to = MakeLanes(api, mask.low, mask.high, repeats, perRepeat, sizeof(T), {p.dstBlkStride, p.dstRepStride}, loc);
    const Lanes from0 = MakeLanes(api, mask.low, mask.high, repeats, perRepeat, sizeof(T), {p.src0BlkStride, p.src0RepStride}, loc);
    const Lanes from1 = MakeLanes(api, mask.low, mask.high, repeats, perRepeat, sizeof(T), {p.src1BlkStride, p.src1RepStride}, loc);
    op.ReadLanes(src0.view(), from0);
    op.ReadLanes(src1.view(), from1);
    op.WriteLanes(dst.view(), to);
    op.SameOrApart(dst.view(), to, src0.view(), from0);
    op.SameOrApart(dst.view(), to, src1.view(), from1);
    T* d = dst.Data();
    const T* a = src0.Data();
    const T* b = src1.Data();
    for (int r = 0; r < to.repeats; ++r) {
        for (int lane = 0; lane < perRepeat; ++lane) {
            if (to.On(lane)) {
                d[to.At(r, lane)] = static_cast<T>(f(Wide<T>(a[from0.At(r, lane)]), Wide<T>(b[from1.At(r, lane)])));
            }
        }
    }
}

struct ScaleAndAdd {
    float scale;
    template <typename T, typename U>
    T operator()(U x, T d) const
    {
        const float product = float(x) * scale;
        return static_cast<T>(product + float(d));
    }
};

template <typename T, typename U, bool isSetMask>
constexpr void CheckAxpy()
{
    static_assert((OneOf<T, half, float> && std::is_same<T, U>::value) || (std::is_same<T, float>::value && std::is_same<U, half>::value),
                  "AscendC::Axpy takes half, float, or a half source with a float destination");
    static_assert(isSetMask, "anycann does not support isSetMask = false in AscendC::Axpy");
}

template <typename W>
W Larger(W a, W b) { return a != a || a > b ? a : b; }  // a NaN wins
template <typename W>
W Smaller(W a, W b) { return a != a || a < b ? a : b; }
template <typename W>
W Quotient(W a, W b) { return a / b; }

}  // namespace emu
}  // namespace anycann

#define ANYCANN_TYPES(NAME, ...)                                                                                                             \
    static_assert(anycann::emu::OneOf<T, __VA_ARGS__>, "AscendC::" #NAME " does not take this element type; it takes " #__VA_ARGS__);        \
    static_assert(isSetMask, "anycann does not support isSetMask = false in AscendC::" #NAME)
#define ANYCANN_HERE anycann::emu::Loc loc = anycann::emu::Loc::current()

// The forms of dst = f(src0, src1).
#define ANYCANN_BINARY(NAME, EXPRESSION, ...)                                                                                                \
    template <typename T, bool isSetMask = true>                                                                                             \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, int64_t count, ANYCANN_HERE)                \
    {                                                                                                                                        \
        ANYCANN_TYPES(NAME, __VA_ARGS__);                                                                                                    \
        anycann::emu::Binary(#NAME, dst, src0, src1, count, loc, [](auto a, auto b) { return EXPRESSION; });                                 \
    }                                                                                                                                        \
    template <typename T, bool isSetMask = true, typename Mask = uint64_t>                                                                   \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src0, const LocalTensor<T>& src1, Mask mask, int64_t repeatTimes,             \
              const BinaryRepeatParams& params, ANYCANN_HERE)                                                                                \
    {                                                                                                                                        \
        ANYCANN_TYPES(NAME, __VA_ARGS__);                                                                                                    \
        anycann::emu::BinaryLanes(#NAME, dst, src0, src1, anycann::emu::Mask(#NAME, mask, anycann::emu::LanesPerRepeat<T>(), loc),           \
                                  repeatTimes, params, loc, [](auto a, auto b) { return EXPRESSION; });                                      \
    }

// The forms of dst = f(src).
#define ANYCANN_UNARY(NAME, EXPRESSION, ...)                                                                                                 \
    template <typename T, bool isSetMask = true>                                                                                             \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, int64_t count, ANYCANN_HERE)                                             \
    {                                                                                                                                        \
        ANYCANN_TYPES(NAME, __VA_ARGS__);                                                                                                    \
        anycann::emu::Unary(#NAME, dst, src, count, loc, [](T x, T) {                                                                        \
            const auto a = anycann::emu::Wide<T>(x);                                                                                         \
            return static_cast<T>(EXPRESSION);                                                                                               \
        });                                                                                                                                  \
    }                                                                                                                                        \
    template <typename T, bool isSetMask = true, typename Mask = uint64_t>                                                                   \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, Mask mask, int64_t repeatTimes, const UnaryRepeatParams& params,         \
              ANYCANN_HERE)                                                                                                                  \
    {                                                                                                                                        \
        ANYCANN_TYPES(NAME, __VA_ARGS__);                                                                                                    \
        anycann::emu::UnaryLanes(#NAME, dst, src, anycann::emu::Mask(#NAME, mask, anycann::emu::LanesPerRepeat<T>(), loc), repeatTimes,      \
                                 params, loc, [](T x, T) {                                                                                   \
                                     const auto a = anycann::emu::Wide<T>(x);                                                                \
                                     return static_cast<T>(EXPRESSION);                                                                      \
                                 });                                                                                                         \
    }

// The forms of dst = f(src, scalar).
#define ANYCANN_SCALAR(NAME, EXPRESSION, ...)                                                                                                \
    template <typename T, bool isSetMask = true>                                                                                             \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, anycann::emu::SameT<T> scalarValue, int64_t count, ANYCANN_HERE)         \
    {                                                                                                                                        \
        ANYCANN_TYPES(NAME, __VA_ARGS__);                                                                                                    \
        anycann::emu::Unary(#NAME, dst, src, count, loc, [b = anycann::emu::Wide<T>(scalarValue)](T x, T) {                                  \
            const auto a = anycann::emu::Wide<T>(x);                                                                                         \
            return static_cast<T>(EXPRESSION);                                                                                               \
        });                                                                                                                                  \
    }                                                                                                                                        \
    template <typename T, bool isSetMask = true, typename Mask = uint64_t>                                                                   \
    void NAME(const LocalTensor<T>& dst, const LocalTensor<T>& src, anycann::emu::SameT<T> scalarValue, Mask mask, int64_t repeatTimes,      \
              const UnaryRepeatParams& params, ANYCANN_HERE)                                                                                 \
    {                                                                                                                                        \
        ANYCANN_TYPES(NAME, __VA_ARGS__);                                                                                                    \
        anycann::emu::UnaryLanes(#NAME, dst, src, anycann::emu::Mask(#NAME, mask, anycann::emu::LanesPerRepeat<T>(), loc), repeatTimes,      \
                                 params, loc, [b = anycann::emu::Wide<T>(scalarValue)](T x, T) {                                             \
                                     const auto a = anycann::emu::Wide<T>(x);                                                                \
                                     return static_cast<T>(EXPRESSION);                                                                      \
                                 });                                                                                                         \
    }

namespace AscendC {

ANYCANN_BINARY(Add, a + b, half, float, int16_t, int32_t)
ANYCANN_BINARY(Sub, a - b, half, float, int16_t, int32_t)
ANYCANN_BINARY(Mul, a * b, half, float, int16_t, int32_t)
ANYCANN_BINARY(Div, anycann::emu::Quotient(a, b), half, float)
ANYCANN_BINARY(Max, anycann::emu::Larger(a, b), half, float, int16_t, int32_t)
ANYCANN_BINARY(Min, anycann::emu::Smaller(a, b), half, float, int16_t, int32_t)
ANYCANN_BINARY(And, a& b, int16_t, uint16_t)
ANYCANN_BINARY(Or, a | b, int16_t, uint16_t)

ANYCANN_UNARY(Abs, std::fabs(a), half, float)
ANYCANN_UNARY(Exp, static_cast<float>(std::exp(static_cast<double>(a))), half, float)
ANYCANN_UNARY(Ln, static_cast<float>(std::log(static_cast<double>(a))), half, float)
ANYCANN_UNARY(Sqrt, std::sqrt(a), half, float)
ANYCANN_UNARY(Rsqrt, static_cast<float>(1.0 / std::sqrt(static_cast<double>(a))), half, float)
ANYCANN_UNARY(Reciprocal, 1.0f / a, half, float)
ANYCANN_UNARY(Relu, a > 0 ? a : 0, half, float, int32_t)
ANYCANN_UNARY(Not, ~a, int16_t, uint16_t)

ANYCANN_SCALAR(Adds, a + b, half, float, int16_t, int32_t)
ANYCANN_SCALAR(Muls, a* b, half, float, int16_t, int32_t)
ANYCANN_SCALAR(Maxs, anycann::emu::Larger(a, b), half, float, int16_t, int32_t)
ANYCANN_SCALAR(Mins, anycann::emu::Smaller(a, b), half, float, int16_t, int32_t)
ANYCANN_SCALAR(LeakyRelu, a >= 0 ? a : a * b, half, float)
ANYCANN_SCALAR(ShiftLeft, static_cast<int64_t>(static_cast<uint64_t>(a) << (b & 63)), int16_t, uint16_t, int32_t, uint32_t)
ANYCANN_SCALAR(ShiftRight, a >> (b & 63), int16_t, uint16_t, int32_t, uint32_t)

// dst = src * scalar + dst, the product rounded to float before it is added.
template <typename T, typename U, bool isSetMask = true>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, anycann::emu::SameT<U> scalarValue, int64_t count, ANYCANN_HERE)
{
    anycann::emu::CheckAxpy<T, U, isSetMask>();
    anycann::emu::Unary("Axpy", dst, src, count, loc, anycann::emu::ScaleAndAdd{scalarValue});
}
template <typename T, typename U, bool isSetMask = true, typename Mask = uint64_t>
void Axpy(const LocalTensor<T>& dst, const LocalTensor<U>& src, anycann::emu::SameT<U> scalarValue, Mask mask, int64_t repeatTimes,
          const UnaryRepeatParams& params, ANYCANN_HERE)
{
    anycann::emu::CheckAxpy<T, U, isSetMask>();
    const anycann::emu::Mask lanes("Axpy", mask, anycann::emu::LanesPerRepeat<T, U>(), loc);
    anycann::emu::UnaryLanes("Axpy", dst, src, lanes, repeatTimes, params, loc, anycann::emu::ScaleAndAdd{scalarValue});
}

template <typename T, bool isSetMask = true>
void Duplicate(const LocalTensor<T>& dst, anycann::emu::SameT<T> scalarValue, int64_t count, ANYCANN_HERE)
{
    ANYCANN_TYPES(Duplicate, half, bfloat16_t, int16_t, uint16_t, int32_t, uint32_t, float);
    anycann::emu::Fill("Duplicate", dst, count, loc, [scalarValue](int64_t) { return scalarValue; });
}
template <typename T, bool isSetMask = true, typename Mask = uint64_t>
void Duplicate(const LocalTensor<T>& dst, anycann::emu::SameT<T> scalarValue, Mask mask, int64_t repeatTimes, int32_t dstBlockStride,
               int32_t dstRepeatStride, ANYCANN_HERE)
{
    ANYCANN_TYPES(Duplicate, half, bfloat16_t, int16_t, uint16_t, int32_t, uint32_t, float);
    anycann::emu::FillLanes("Duplicate", dst, anycann::emu::Mask("Duplicate", mask, anycann::emu::LanesPerRepeat<T>(), loc), repeatTimes,
                            {dstBlockStride, dstRepeatStride}, loc, [scalarValue](int64_t) { return scalarValue; });
}

// dst[i] = first + i.
template <typename T>
void CreateVecIndex(const LocalTensor<T>& dst, anycann::emu::SameT<T> firstValue, int64_t count, ANYCANN_HERE)
{
    static_assert(anycann::emu::OneOf<T, int16_t, int32_t, half, float>, "AscendC::CreateVecIndex takes int16_t, int32_t, half or float");
    anycann::emu::Fill("CreateVecIndex", dst, count, loc, [firstValue](int64_t i) { return static_cast<T>(anycann::emu::Wide<T>(firstValue) + static_cast<anycann::emu::Wide<T>>(i)); });
}
template <typename T, typename Mask = uint64_t>
void CreateVecIndex(const LocalTensor<T>& dst, anycann::emu::SameT<T> firstValue, Mask mask, int64_t repeatTimes, int32_t dstBlkStride,
                    int32_t dstRepStride, ANYCANN_HERE)
{
    static_assert(anycann::emu::OneOf<T, int16_t, int32_t, half, float>, "AscendC::CreateVecIndex takes int16_t, int32_t, half or float");
    anycann::emu::FillLanes("CreateVecIndex", dst, anycann::emu::Mask("CreateVecIndex", mask, anycann::emu::LanesPerRepeat<T>(), loc), repeatTimes,
                            {dstBlkStride, dstRepStride}, loc,
                            [firstValue](int64_t i) { return static_cast<T>(anycann::emu::Wide<T>(firstValue) + static_cast<anycann::emu::Wide<T>>(i)); });
}

}  // namespace AscendC

#endif
