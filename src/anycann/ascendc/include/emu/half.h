// half and bfloat16_t: two bytes each, software conversions that round to nearest even. A NaN becomes the canonical quiet NaN.
// Arithmetic on them happens in float: `half c = a + b` rounds once, when it is stored.
#ifndef ANYCANN_EMU_HALF_H
#define ANYCANN_EMU_HALF_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace anycann {
namespace emu {

inline std::uint32_t BitsOf(float value)
{
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline float FloatOf(std::uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

inline std::uint16_t HalfBits(float value)
{
    const std::uint32_t bits = BitsOf(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    std::uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return static_cast<std::uint16_t>(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) {  // 65520 and above
        return static_cast<std::uint16_t>(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) {  // below 2^-14: adding 0.5 rounds to multiples of 2^-24
        const float shifted = FloatOf(magnitude) + 0.5f;
        return static_cast<std::uint16_t>(sign | (BitsOf(shifted) - 0x3f000000u));
    }
    magnitude += 0xc8000fffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (magnitude >> 13));
}

inline float HalfValue(std::uint16_t half)
{
    const std::uint32_t sign = (half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu;
    const std::uint32_t mantissa = half & 0x3ffu;
    if (exponent == 31) {
        return FloatOf(sign | 0x7f800000u | (mantissa != 0 ? 0x400000u | (mantissa << 13) : 0u));
    }
    if (exponent == 0) {
        const float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;  // 2^-24
        return FloatOf(sign | BitsOf(value));
    }
    return FloatOf(sign | ((exponent + 112u) << 23) | (mantissa << 13));
}

inline std::uint16_t BfloatBits(float value)
{
    const std::uint32_t bits = BitsOf(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | 0x7fc0u);
    }
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float BfloatValue(std::uint16_t bfloat) { return FloatOf(static_cast<std::uint32_t>(bfloat) << 16); }

}  // namespace emu
}  // namespace anycann

struct half {
    std::uint16_t bits;
    half() = default;
    half(float value) : bits(anycann::emu::HalfBits(value)) {}
    template <typename A, typename = std::enable_if_t<std::is_arithmetic<A>::value && !std::is_same<A, float>::value>>
    half(A value) : bits(anycann::emu::HalfBits(static_cast<float>(value))) {}
    operator float() const { return anycann::emu::HalfValue(bits); }
    half& operator+=(float other) { return *this = half(float(*this) + other); }
    half& operator-=(float other) { return *this = half(float(*this) - other); }
    half& operator*=(float other) { return *this = half(float(*this) * other); }
    half& operator/=(float other) { return *this = half(float(*this) / other); }
};

struct bfloat16_t {
    std::uint16_t bits;
    bfloat16_t() = default;
    bfloat16_t(float value) : bits(anycann::emu::BfloatBits(value)) {}
    template <typename A, typename = std::enable_if_t<std::is_arithmetic<A>::value && !std::is_same<A, float>::value>>
    bfloat16_t(A value) : bits(anycann::emu::BfloatBits(static_cast<float>(value))) {}
    operator float() const { return anycann::emu::BfloatValue(bits); }
    bfloat16_t& operator+=(float other) { return *this = bfloat16_t(float(*this) + other); }
    bfloat16_t& operator-=(float other) { return *this = bfloat16_t(float(*this) - other); }
    bfloat16_t& operator*=(float other) { return *this = bfloat16_t(float(*this) * other); }
    bfloat16_t& operator/=(float other) { return *this = bfloat16_t(float(*this) / other); }
};

static_assert(sizeof(half) == 2 && sizeof(bfloat16_t) == 2, "half and bfloat16_t are two bytes");

namespace AscendC {
inline float ToFloat(const bfloat16_t& value) { return value; }
inline bfloat16_t ToBfloat16(float value) { return bfloat16_t(value); }
}  // namespace AscendC

#endif
