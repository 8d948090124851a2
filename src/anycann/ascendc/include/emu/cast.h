// Cast: every pair of types that a vector core converts, in every rounding mode.
#ifndef ANYCANN_EMU_CAST_H
#define ANYCANN_EMU_CAST_H

#include "emu/vector.h"

namespace anycann {
namespace emu {

// long double holds every int64_t and every float exactly on the machines supported here.
using Exact = long double;

inline Exact RoundToInteger(Exact value, AscendC::RoundMode mode)
{
    switch (mode) {
        case AscendC::RoundMode::CAST_FLOOR: return std::floor(value);
        case AscendC::RoundMode::CAST_CEIL: return std::ceil(value);
        case AscendC::RoundMode::CAST_ROUND: return std::round(value);
        case AscendC::RoundMode::CAST_TRUNC: return std::trunc(value);
        case AscendC::RoundMode::CAST_ODD: {
            const Exact low = std::floor(value);
            return low == value || std::fmod(low, Exact{2}) != 0 ? low : low + 1;
        }
        default: return std::nearbyint(value);
    }
}

template <typename T>
std::uint32_t RawBits(T value)
{
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <typename T>
T FromRawBits(std::uint32_t bits)
{
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The float, half or bfloat16_t that `mode` chooses for a finite or infinite value: from the candidate toward zero and its neighbour.
template <typename D>
D RoundToFloat(Exact value, AscendC::RoundMode mode)
{
    const bool negative = std::signbit(value);
    const Exact magnitude = std::fabs(value);
    D down = static_cast<D>(static_cast<float>(magnitude));
    while (static_cast<Exact>(static_cast<float>(down)) > magnitude) {
        down = FromRawBits<D>(RawBits(down) - 1);
    }
    const D infinity = static_cast<D>(std::numeric_limits<float>::infinity());
    const D up = RawBits(down) == RawBits(infinity) ? down : FromRawBits<D>(RawBits(down) + 1);
    const Exact low = static_cast<float>(down);
    bool away = false;
    if (low != magnitude) {
        // Past the largest finite value the neighbour counts as the next power of two.
        const Exact high = RawBits(up) == RawBits(infinity) ? 2 * low - static_cast<float>(FromRawBits<D>(RawBits(down) - 1)) : static_cast<float>(up);
        const bool odd = (RawBits(down) & 1) != 0;
        switch (mode) {
            case AscendC::RoundMode::CAST_FLOOR: away = negative; break;
            case AscendC::RoundMode::CAST_CEIL: away = !negative; break;
            case AscendC::RoundMode::CAST_TRUNC: break;
            case AscendC::RoundMode::CAST_ODD: away = !odd; break;
            case AscendC::RoundMode::CAST_ROUND: away = magnitude - low >= high - magnitude; break;
            default: away = magnitude - low > high - magnitude || (magnitude - low == high - magnitude && odd); break;
        }
    }
    const std::uint32_t sign = negative ? (sizeof(D) == 2 ? 0x8000u : 0x80000000u) : 0u;
    return FromRawBits<D>(RawBits(away ? up : down) | sign);
}

template <typename D, typename S>
D Convert(S source, AscendC::RoundMode mode)
{
    if constexpr (std::is_integral<D>::value && std::is_integral<S>::value) {
        const int64_t value = static_cast<int64_t>(source);
        const int64_t low = std::numeric_limits<D>::lowest();
        const int64_t high = static_cast<int64_t>(std::numeric_limits<D>::max());
        return static_cast<D>(value < low ? low : value > high ? high : value);
    } else if constexpr (std::is_integral<D>::value) {  // saturates; NaN becomes 0
        const float value = source;
        if (value != value) {
            return 0;
        }
        const Exact rounded = RoundToInteger(value, mode);
        const Exact low = std::numeric_limits<D>::lowest();
        const Exact high = static_cast<Exact>(std::numeric_limits<D>::max());
        return rounded <= low ? std::numeric_limits<D>::lowest() : rounded >= high ? std::numeric_limits<D>::max() : static_cast<D>(rounded);
    } else if constexpr (std::is_same<D, float>::value && std::is_same<S, float>::value) {  // to an integer, kept as float
        return source != source || std::isinf(source) ? source : static_cast<float>(RoundToInteger(source, mode));
    } else if constexpr (std::is_integral<S>::value) {
        return RoundToFloat<D>(static_cast<Exact>(source), mode);
    } else {
        const float value = source;
        if (value != value || std::is_same<D, float>::value || mode == AscendC::RoundMode::CAST_NONE || mode == AscendC::RoundMode::CAST_RINT) {
            return static_cast<D>(value);
        }
        return RoundToFloat<D>(value, mode);
    }
}

template <typename D, typename S>
constexpr bool CanCast()
{
    return (std::is_same<S, half>::value && OneOf<D, float, int32_t, int16_t, int8_t, uint8_t>) ||
           (std::is_same<S, float>::value && OneOf<D, float, half, bfloat16_t, int64_t, int32_t, int16_t>) ||
           (std::is_same<S, bfloat16_t>::value && OneOf<D, float, int32_t>) || (OneOf<S, int8_t, uint8_t> && std::is_same<D, half>::value) ||
           (std::is_same<S, int16_t>::value && OneOf<D, half, float>) || (std::is_same<S, int32_t>::value && OneOf<D, float, int64_t, int16_t, half>) ||
           (std::is_same<S, int64_t>::value && OneOf<D, int32_t, float>);
}

}  // namespace emu
}  // namespace anycann

namespace AscendC {

// CAST_NONE on a cast that loses digits means CAST_RINT. Casts to integers saturate.
template <typename D, typename S, bool isSetMask = true>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, RoundMode mode, int64_t count, ANYCANN_HERE)
{
    static_assert(anycann::emu::CanCast<D, S>(), "AscendC::Cast does not convert between these two types on a vector core");
    static_assert(isSetMask, "anycann does not support isSetMask = false in AscendC::Cast");
    anycann::emu::Unary("Cast", dst, src, count, loc, [mode](S x, D) { return anycann::emu::Convert<D>(x, mode); });
}
template <typename D, typename S, bool isSetMask = true, typename Mask = uint64_t>
void Cast(const LocalTensor<D>& dst, const LocalTensor<S>& src, RoundMode mode, Mask mask, int64_t repeatTimes, const UnaryRepeatParams& params, ANYCANN_HERE)
{
    static_assert(anycann::emu::CanCast<D, S>(), "AscendC::Cast does not convert between these two types on a vector core");
    static_assert(isSetMask, "anycann does not support isSetMask = false in AscendC::Cast");
    const anycann::emu::Mask lanes("Cast", mask, anycann::emu::LanesPerRepeat<D, S>(), loc);
    anycann::emu::UnaryLanes("Cast", dst, src, lanes, repeatTimes, params, loc, [mode](S x, D) { return anycann::emu::Convert<D>(x, mode); });
}

}  // namespace AscendC

#endif
