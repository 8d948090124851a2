// The host side of the layer-norm functions: how large a temporary buffer may be, and the tiling for one. Sizes are in bytes.
// A function that cannot fill a tiling says why on stderr, leaves it as it was and returns false.
#ifndef ANYCANN_TILING_API_H
#define ANYCANN_TILING_API_H

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "emu/layernorm_fields.h"
#include "kernel_tiling/kernel_tiling.h"
#include "register/tilingdata_base.h"

namespace ge {

class Shape {
public:
    Shape() = default;
    Shape(std::initializer_list<std::int64_t> dims) : dims_(dims) {}
    explicit Shape(std::vector<std::int64_t> dims) : dims_(std::move(dims)) {}
    std::size_t GetDimNum() const { return dims_.size(); }
    std::int64_t GetDim(std::size_t i) const { return i < dims_.size() ? dims_[i] : 0; }
    std::vector<std::int64_t> GetDims() const { return dims_; }
    std::int64_t GetShapeSize() const
    {
        std::int64_t size = 1;
        for (const std::int64_t dim : dims_) {
            size *= dim;
        }
        return size;
    }

private:
    std::vector<std::int64_t> dims_;
};

}  // namespace ge

namespace optiling {

// A host class with the fields of a kernel struct; Load takes them all at once.
#define ANYCANN_HOST_FIELD(name) TILING_DATA_FIELD_DEF(uint32_t, name)
#define ANYCANN_HOST_LOAD(name) set_##name(from.name);
#define ANYCANN_HOST_TILING(type)                \
    BEGIN_TILING_DATA_DEF(type)                  \
    ANYCANN_##type(ANYCANN_HOST_FIELD)           \
public:                                          \
    void Load(const ::type& from) { ANYCANN_##type(ANYCANN_HOST_LOAD) } \
    END_TILING_DATA_DEF;

ANYCANN_HOST_TILING(LayerNormGradBetaTiling)
ANYCANN_HOST_TILING(LayerNormGradTiling)
ANYCANN_HOST_TILING(LayerNormTiling)

#undef ANYCANN_HOST_FIELD
#undef ANYCANN_HOST_LOAD
#undef ANYCANN_HOST_TILING

}  // namespace optiling

namespace AscendC {

using TensorShape = ge::Shape;  // {B, S, H, originalH}; without the last, originalH = H

namespace emu_host {

struct Rows {
    std::uint32_t b, s, h, originalH;
    std::uint64_t bsh;
};

inline bool Refuse(const char* function, const char* format, ...) __attribute__((format(printf, 2, 3)));
inline bool Refuse(const char* function, const char* format, ...)
{
    std::fprintf(stderr, "anycann: %s: ", function);
    va_list arguments;
    va_start(arguments, format);
    std::vfprintf(stderr, format, arguments);
    va_end(arguments);
    std::fputc('\n', stderr);
    return false;
}

inline bool Split(const char* function, const ge::Shape& shape, Rows& rows)
{
    if (shape.GetDimNum() != 3 && shape.GetDimNum() != 4) {
        return Refuse(function, "the shape must be {B, S, H} or {B, S, H, originalH}; it has %d dimensions", static_cast<int>(shape.GetDimNum()));
    }
    const std::int64_t h = shape.GetDim(2), originalH = shape.GetDimNum() == 4 ? shape.GetDim(3) : h;
    if (shape.GetDim(0) < 1 || shape.GetDim(1) < 1 || h < 1 || originalH < 1 || originalH > h) {
        return Refuse(function, "the dimensions must be positive and originalH at most H; got {%lld, %lld, %lld, %lld}", static_cast<long long>(shape.GetDim(0)),
                      static_cast<long long>(shape.GetDim(1)), static_cast<long long>(h), static_cast<long long>(originalH));
    }
    rows.b = static_cast<std::uint32_t>(shape.GetDim(0));
    rows.s = static_cast<std::uint32_t>(shape.GetDim(1));
    rows.h = static_cast<std::uint32_t>(h);
    rows.originalH = static_cast<std::uint32_t>(originalH);
    const std::int64_t most = 0xffffffff;
    if (shape.GetDim(0) > most || shape.GetDim(1) > most / shape.GetDim(0) || h > most / (shape.GetDim(0) * shape.GetDim(1))) {
        return Refuse(function, "the fields of a tiling have 32 bits; {%lld, %lld, %lld} are more elements", static_cast<long long>(shape.GetDim(0)),
                      static_cast<long long>(shape.GetDim(1)), static_cast<long long>(h));
    }
    rows.bsh = static_cast<std::uint64_t>(rows.b) * rows.s * rows.h;
    return true;
}

inline std::uint64_t UpTo32(std::uint64_t bytes) { return (bytes + 31) / 32 * 32; }

inline bool Store(const char* function, std::uint64_t max, std::uint64_t min, std::uint32_t& maxValue, std::uint32_t& minValue)
{
    if (max > 0xffffffffull) {
        return Refuse(function, "the sizes do not fit 32 bits");
    }
    maxValue = static_cast<std::uint32_t>(max);
    minValue = static_cast<std::uint32_t>(min);
    return true;
}

template <typename Tiling>
void FillRows(Tiling& t, const Rows& rows, std::uint32_t one, std::uint32_t& rounds)
{
    const std::uint32_t bsh = static_cast<std::uint32_t>(rows.bsh);
    t.bLength = rows.b;
    t.sLength = rows.s;
    t.hLength = rows.h;
    t.originalHLength = rows.originalH;
    t.bshLength = bsh;
    t.bsLength = rows.b * rows.s;
    rounds = bsh / one;
    t.inputTailSize = bsh % one;
    t.inputTailPos = bsh - t.inputTailSize;
}

inline void Assign(::LayerNormGradBetaTiling& to, const ::LayerNormGradBetaTiling& from) { to = from; }
inline void Assign(::LayerNormGradTiling& to, const ::LayerNormGradTiling& from) { to = from; }
inline void Assign(::LayerNormTiling& to, const ::LayerNormTiling& from) { to = from; }
template <typename Host, typename Kernel>
void Assign(Host& to, const Kernel& from) { to.Load(from); }

// The largest whole number of rows that fits, never more than there are; 0 when not even one does.
inline std::uint32_t WholeRows(std::uint64_t elements, const Rows& rows)
{
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(elements / rows.h * rows.h, rows.bsh));
}

}  // namespace emu_host

inline bool GetLayerNormGradBetaMaxMinTmpSize(const ge::Shape& srcShape, const uint32_t typeSize, const bool, uint32_t& maxValue, uint32_t& minValue)
{
    constexpr const char* name = "GetLayerNormGradBetaMaxMinTmpSize";
    emu_host::Rows rows{};
    if (!emu_host::Split(name, srcShape, rows)) {
        return false;
    }
    const std::uint64_t k = typeSize == 2 ? 4 : 2;
    return emu_host::Store(name, k * rows.bsh * 4, k * rows.h * 4, maxValue, minValue);
}

template <typename Tiling>
bool GetLayerNormGradBetaNDTilingInfo(const ge::Shape& srcShape, const uint32_t stackBufferSize, const uint32_t typeSize, const bool, Tiling& tiling)
{
    constexpr const char* name = "GetLayerNormGradBetaNDTilingInfo";
    emu_host::Rows rows{};
    if (!emu_host::Split(name, srcShape, rows)) {
        return false;
    }
    const bool isHalf = typeSize == 2;
    const std::uint32_t n = stackBufferSize / 4;
    if (n < 2 * rows.h) {
        return emu_host::Refuse(name, "%u bytes of temporary buffer are too few for H = %u: at least %u are needed", stackBufferSize, rows.h, 8 * rows.h);
    }
    const std::uint32_t one = emu_host::WholeRows(isHalf ? (n - 2 * rows.h) / 2 : n, rows);
    if (one == 0) {
        return emu_host::Refuse(name, "%u bytes of temporary buffer do not hold one row of H = %u: at least %u are needed", stackBufferSize, rows.h, 16 * rows.h);
    }
    ::LayerNormGradBetaTiling t;
    emu_host::FillRows(t, rows, one, t.loopRound);
    t.stackBufferSize = n;
    t.oneCalSize = one;
    t.numberOfTmpBuf = isHalf ? 2 : 1;
    t.bsTailSize = t.inputTailSize / rows.h;
    t.bshCurLength = one;
    t.bsCurLength = one / rows.h;
    t.betaTempTensorPos = isHalf ? rows.h : 0;
    t.inputDyTmpTensorPos = isHalf ? 2 * rows.h : 0;
    t.resForGammaTmpTensorPos = isHalf ? 2 * rows.h + one : 0;
    emu_host::Assign(tiling, t);
    return true;
}

inline bool GetLayerNormGradMaxMinTmpSize(const ge::Shape& srcShape, const uint32_t typeSize, const bool isReuseSource, uint32_t& maxValue, uint32_t& minValue)
{
    constexpr const char* name = "GetLayerNormGradMaxMinTmpSize";
    emu_host::Rows rows{};
    if (!emu_host::Split(name, srcShape, rows)) {
        return false;
    }
    const std::uint64_t k = typeSize == 2 ? 9 : isReuseSource ? 4 : 6, square = static_cast<std::uint64_t>(rows.h) * rows.h;
    return emu_host::Store(name, k * typeSize * std::max(rows.bsh, square), k * typeSize * std::min(rows.bsh, square), maxValue, minValue);
}

template <typename Tiling>
bool GetLayerNormGradNDTilingInfo(const ge::Shape& srcShape, const uint32_t stackBufferSize, const uint32_t typeSize, const bool isReuseSource, Tiling& tiling)
{
    constexpr const char* name = "GetLayerNormGradNDTilingInfo";
    emu_host::Rows rows{};
    if (!emu_host::Split(name, srcShape, rows)) {
        return false;
    }
    const std::uint32_t k = typeSize == 2 ? 9 : isReuseSource ? 4 : 6;
    const std::uint32_t one = emu_host::WholeRows(stackBufferSize / (k * typeSize), rows);
    if (one == 0) {
        return emu_host::Refuse(name, "%u bytes of temporary buffer do not hold one row of H = %u: at least %u are needed", stackBufferSize, rows.h, k * typeSize * rows.h);
    }
    ::LayerNormGradTiling t;
    emu_host::FillRows(t, rows, one, t.loopRound);
    t.stackBufferSize = stackBufferSize / 4;
    t.oneCalSize = one;
    t.numberOfTmpBuf = k;
    emu_host::Assign(tiling, t);
    return true;
}

inline bool GetLayerNormMaxMinTmpSize(const ge::Shape& srcShape, const uint32_t typeSize, const bool isReuseSource, uint32_t& maxValue, uint32_t& minValue)
{
    constexpr const char* name = "GetLayerNormMaxMinTmpSize";
    emu_host::Rows rows{};
    if (!emu_host::Split(name, srcShape, rows)) {
        return false;
    }
    const std::uint64_t k = typeSize == 4 && isReuseSource ? 2 : 3, mv = emu_host::UpTo32(std::uint64_t{rows.b} * rows.s * 4);
    return emu_host::Store(name, k * emu_host::UpTo32(rows.bsh * 4) + 2 * mv, k * emu_host::UpTo32(std::uint64_t{rows.h} * 4) + 2 * mv, maxValue, minValue);
}

template <typename Tiling>
bool GetLayerNormNDTilingInfo(const ge::Shape& srcShape, const uint32_t stackBufferSize, const uint32_t typeSize, const bool isReuseSource, Tiling& tiling)
{
    constexpr const char* name = "GetLayerNormNDTilingInfo";
    emu_host::Rows rows{};
    if (!emu_host::Split(name, srcShape, rows)) {
        return false;
    }
    const std::uint32_t k = typeSize == 4 && isReuseSource ? 2 : 3;
    const std::uint64_t mv = emu_host::UpTo32(std::uint64_t{rows.b} * rows.s * 4);
    const std::uint32_t one = stackBufferSize > 2 * mv ? emu_host::WholeRows((stackBufferSize - 2 * mv) / 4 / k, rows) : 0;
    if (one == 0) {
        return emu_host::Refuse(name, "%u bytes of temporary buffer do not hold one row of H = %u: at least %u are needed", stackBufferSize, rows.h,
                                static_cast<unsigned>(k * emu_host::UpTo32(std::uint64_t{rows.h} * 4) + 2 * mv));
    }
    ::LayerNormTiling t;
    emu_host::FillRows(t, rows, one, t.loopRound);
    t.tmpBufSize = stackBufferSize / 4;
    t.oneTmpSize = one;
    t.numberOfTmpBuf = k;
    emu_host::Assign(tiling, t);
    return true;
}

}  // namespace AscendC

#endif
