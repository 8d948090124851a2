// half and bfloat16_t: two bytes each, software conversions that round to nearest even. A NaN becomes the canonical quiet NaN.
// Arithmetic on them happens in float: `half c = a + b` rounds once, when it is stored.
#ifndef ANYCANN_EMU_HALF_H
#define ANYCANN_EMU_HALF_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

// Constants of these types need a compiler that knows the bits of a float while it compiles: g++ 11, clang++ 9.
#ifdef __has_builtin
#if __has_builtin(__builtin_bit_cast)
#define ANYCANN_CONSTEXPR constexpr
#endif
#endif

namespace anycann {
namespace emu {

#ifdef ANYCANN_CONSTEXPR
constexpr std::uint32_t BitsOf(float value) { return __builtin_bit_cast(std::uint32_t, value); }
constexpr float FloatOf(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }
#else
#define ANYCANN_CONSTEXPR inline
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
#endif

ANYCANN_CONSTEXPR std::uint16_t HalfBits(float value)
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

ANYCANN_CONSTEXPR float HalfValue(std::uint16_t half)
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

ANYCANN_CONSTEXPR std::uint16_t BfloatBits(float value)
{
    const std::uint32_t bits = BitsOf(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return static_cast<std::uint16_t>(((bits >> 16) & 0x8000u) | 0x7fc0u);
    }
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

ANYCANN_CONSTEXPR float BfloatValue(std::uint16_t bfloat) { return FloatOf(static_cast<std::uint32_t>(bfloat) << 16); }

// Numbers of every type but float, which has a constructor of its own, and the other type of two bytes.
template <typename A, typename Other>
constexpr bool IsNumberBeside = (std::is_arithmetic<A>::value && !std::is_same<A, float>::value) || std::is_same<A, Other>::value;

}  // namespace emu
}  // namespace anycann

struct bfloat16_t;

struct half {
    std::uint16_t bits;
    half() = default;
    ANYCANN_CONSTEXPR half(float value) : bits(anycann::emu::HalfBits(value)) {}
    template <typename A, typename = std::enable_if_t<anycann::emu::IsNumberBeside<A, bfloat16_t>>>
    ANYCANN_CONSTEXPR half(A value) : bits(anycann::emu::HalfBits(static_cast<float>(value))) {}
    ANYCANN_CONSTEXPR operator float() const { return anycann::emu::HalfValue(bits); }
    ANYCANN_CONSTEXPR half operator-() const { return -float(*this); }
    half& operator+=(float other) { return *this = half(float(*this) + other); }
    half& operator-=(float other) { return *this = half(float(*this) - other); }
    half& operator*=(float other) { return *this = half(float(*this) * other); }
    half& operator/=(float other) { return *this = half(float(*this) / other); }
    half& operator++() { return *this += 1; }
    half& operator--() { return *this -= 1; }
    half operator++(int) { return std::exchange(*this, half(float(*this) + 1)); }
    half operator--(int) { return std::exchange(*this, half(float(*this) - 1)); }
};

struct bfloat16_t {
    std::uint16_t bits;
    bfloat16_t() = default;
    ANYCANN_CONSTEXPR bfloat16_t(float value) : bits(anycann::emu::BfloatBits(value)) {}
    template <typename A, typename = std::enable_if_t<anycann::emu::IsNumberBeside<A, half>>>
    ANYCANN_CONSTEXPR bfloat16_t(A value) : bits(anycann::emu::BfloatBits(static_cast<float>(value))) {}
    ANYCANN_CONSTEXPR operator float() const { return anycann::emu::BfloatValue(bits); }
    ANYCANN_CONSTEXPR bfloat16_t operator-() const { return -float(*this); }
    bfloat16_t& operator+=(float other) { return *this = bfloat16_t(float(*this) + other); }
    bfloat16_t& operator-=(float other) { return *this = bfloat16_t(float(*this) - other); }
    bfloat16_t& operator*=(float other) { return *this = bfloat16_t(float(*this) * other); }
    bfloat16_t& operator/=(float other) { return *this = bfloat16_t(float(*this) / other); }
    bfloat16_t& operator++() { return *this += 1; }
    bfloat16_t& operator--() { return *this -= 1; }
    bfloat16_t operator++(int) { return std::exchange(*this, bfloat16_t(float(*this) + 1)); }
    bfloat16_t operator--(int) { return std::exchange(*this, bfloat16_t(float(*this) - 1)); }
};

static_assert(sizeof(half) == 2 && sizeof(bfloat16_t) == 2, "half and bfloat16_t are two bytes");

namespace AscendC {
inline float ToFloat(const bfloat16_t& value) { return value; }
inline bfloat16_t ToBfloat16(float value) { return bfloat16_t(value); }
}  // namespace AscendC

#endif
