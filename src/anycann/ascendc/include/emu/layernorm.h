// LayerNorm, LayerNormGrad and LayerNormGradBeta on local tensors [B, S, H]. Arithmetic is fp32, every operation rounded once, sums sequential;
// half is widened on reading and rounded once when it is written. Inputs are read before outputs are written, so an output may lie on an input.
#ifndef ANYCANN_EMU_LAYERNORM_H
#define ANYCANN_EMU_LAYERNORM_H

#include <initializer_list>
#include <vector>

#include "emu/reduce.h"
#include "emu/tiling_data.h"

namespace anycann {
namespace emu {

// A field of a tiling that others determine.
struct Determined {
    const char* name;
    uint32_t value;
    uint64_t expected;
};

inline void CheckDetermined(const char* api, std::initializer_list<Determined> fields, const Loc& loc)
{
    for (const Determined& field : fields) {
        if (field.value != field.expected) {
            Stop("tiling", loc, api, "the tiling contradicts itself: %s is %u, its other fields and the element type make it %llu", field.name, field.value,
                 static_cast<unsigned long long>(field.expected));
        }
    }
}

// What all three tilings have: the shape, and how many elements (whole rows) are worked on at a time.
template <typename Tiling>
void CheckRows(const char* api, const Tiling& t, uint32_t one, int itemSize, const Loc& loc)
{
    if (t.hLength == 0 || t.bLength == 0 || t.sLength == 0) {
        Stop("tiling", loc, api, "the tiling has bLength %u, sLength %u, hLength %u: it was not filled by the tiling function, or read with the wrong layout",
             t.bLength, t.sLength, t.hLength);
    }
    const uint64_t h = t.hLength, rows = uint64_t{t.bLength} * t.sLength;
    if (rows > UINT32_MAX / h || t.bshLength != rows * h || t.originalHLength > t.hLength || t.originalHLength == 0) {
        Stop("tiling", loc, api, "the tiling contradicts itself: bLength %u, sLength %u, hLength %u, originalHLength %u, bshLength %u", t.bLength, t.sLength,
             t.hLength, t.originalHLength, t.bshLength);
    }
    if (h * static_cast<uint32_t>(itemSize) % 32 != 0) {
        Stop("unaligned", loc, api, "H is %u elements of %d bytes, which is not a multiple of 32 bytes: pad H with zeros and pass the true length as originalHLength",
             t.hLength, itemSize);
    }
    if (one == 0 || one % h != 0 || one > t.bshLength) {
        Stop("tiling", loc, api, "the tiling contradicts itself: it works on %u elements at a time, which must be rows of %u, at most %u elements", one, t.hLength,
             t.bshLength);
    }
    const uint64_t tail = t.bshLength % one;
    CheckDetermined(api, {{"bsLength", t.bsLength, rows}, {"loopRound", t.loopRound, t.bshLength / one}, {"inputTailSize", t.inputTailSize, tail},
                          {"inputTailPos", t.inputTailPos, t.bshLength - tail}}, loc);
}

inline void CheckBuffer(const char* api, uint32_t words, uint64_t bytes, const Loc& loc)
{
    if (uint64_t{words} * 4 < bytes) {
        Stop("tiling", loc, api, "the tiling contradicts itself: its temporary buffer of %u words does not hold the %llu bytes that its other fields need", words,
             static_cast<unsigned long long>(bytes));
    }
}

inline void CheckTiling(const char* api, const LayerNormGradBetaTiling& t, int itemSize, bool, const Loc& loc)
{
    CheckRows(api, t, t.oneCalSize, itemSize, loc);
    const uint64_t h = t.hLength, one = t.oneCalSize;
    const bool half = itemSize == 2;  // widened in the buffer, behind the two sums
    CheckDetermined(api, {{"numberOfTmpBuf", t.numberOfTmpBuf, half ? 2u : 1u}, {"bsTailSize", t.bsTailSize, t.inputTailSize / h},
                          {"bshCurLength", t.bshCurLength, one}, {"bsCurLength", t.bsCurLength, one / h}, {"gammaTempTensorPos", t.gammaTempTensorPos, 0},
                          {"betaTempTensorPos", t.betaTempTensorPos, half ? h : 0}, {"inputDyTmpTensorPos", t.inputDyTmpTensorPos, half ? 2 * h : 0},
                          {"resForGammaTmpTensorPos", t.resForGammaTmpTensorPos, half ? 2 * h + one : 0}}, loc);
    CheckBuffer(api, t.stackBufferSize, half ? 4 * (2 * h + 2 * one) : 4 * (one > 2 * h ? one : 2 * h), loc);
}

inline void CheckTiling(const char* api, const LayerNormGradTiling& t, int itemSize, bool isReuseSource, const Loc& loc)
{
    CheckRows(api, t, t.oneCalSize, itemSize, loc);
    const uint64_t buffers = itemSize == 2 ? 9 : isReuseSource && t.numberOfTmpBuf == 4 ? 4 : 6;  // one made without reuse has more
    CheckDetermined(api, {{"numberOfTmpBuf", t.numberOfTmpBuf, buffers}}, loc);
    CheckBuffer(api, t.stackBufferSize, buffers * t.oneCalSize * static_cast<uint64_t>(itemSize), loc);
}

inline void CheckTiling(const char* api, const LayerNormTiling& t, int itemSize, bool isReuseSource, const Loc& loc)
{
    CheckRows(api, t, t.oneTmpSize, itemSize, loc);
    const uint64_t buffers = itemSize == 4 && isReuseSource && t.numberOfTmpBuf == 2 ? 2 : 3;
    CheckDetermined(api, {{"numberOfTmpBuf", t.numberOfTmpBuf, buffers}}, loc);
    CheckBuffer(api, t.tmpBufSize, 4 * buffers * t.oneTmpSize + 2 * static_cast<uint64_t>(UpTo32(4 * int64_t{t.bsLength})), loc);
}

// The temporary buffer: given by the caller or what is left of the Unified Buffer; the tiling says how many words are used.
inline View TakeTmp(const char* api, const View* shared, uint32_t words, const Loc& loc)
{
    const int64_t bytes = int64_t{words} * 4;
    if (shared == nullptr) {
        return StackRest(api, bytes, loc);
    }
    if (shared->bytes < bytes) {
        Stop("tmp-size", loc, api, "sharedTmpBuffer has %lld bytes, the tiling was made for %lld", static_cast<long long>(shared->bytes), static_cast<long long>(bytes));
    }
    return *shared;
}

template <typename T>
void WriteRounded(T* to, const std::vector<float>& from)
{
    for (std::size_t i = 0; i < from.size(); ++i) {
        to[i] = static_cast<T>(from[i]);
    }
}

struct Operand {
    const char* name;
    const View* view;
    int64_t bytes;
};

// The accesses of one call: inputs before the arithmetic, then the temporary buffer and the outputs; and which must keep apart.
template <std::size_t n>
void ReadInputs(Op& op, const Operand (&inputs)[n], const View& tmp, int64_t tmpBytes)
{
    for (const Operand& in : inputs) {
        op.Read(*in.view, in.bytes);
        op.NoOverlap(tmp, tmpBytes, "the temporary buffer", *in.view, in.bytes, in.name);
    }
}

template <std::size_t n>
void WriteOutputs(Op& op, const View& tmp, int64_t tmpBytes, const Operand* clobbered, const Operand (&outputs)[n])
{
    op.Write(tmp, tmpBytes);
    op.Forget(tmp, tmpBytes);
    if (clobbered != nullptr) {
        op.Forget(*clobbered->view, clobbered->bytes);
    }
    for (const Operand& out : outputs) {
        op.NoOverlap(tmp, tmpBytes, "the temporary buffer", *out.view, out.bytes, out.name);
        for (const Operand* other = outputs; other != &out; ++other) {
            op.NoOverlap(*other->view, other->bytes, other->name, *out.view, out.bytes, out.name);
        }
        op.Write(*out.view, out.bytes);
    }
}

template <typename T, bool isReuseSource>
void GradBeta(const AscendC::LocalTensor<T>& pdGamma, const AscendC::LocalTensor<T>& pdBeta, const AscendC::LocalTensor<T>& resForGamma,
              const AscendC::LocalTensor<T>& inputDy, const View* shared, const LayerNormGradBetaTiling& t, const Loc& loc)
{
    static_assert(OneOf<T, half, float>, "AscendC::LayerNormGradBeta takes half or float");
    static_assert(!isReuseSource || std::is_same<T, float>::value, "AscendC::LayerNormGradBeta: isReuseSource = true is for float only, not for half");
    constexpr const char* api = "LayerNormGradBeta";
    CheckTiling(api, t, sizeof(T), isReuseSource, loc);
    const View tmp = TakeTmp(api, shared, t.stackBufferSize, loc);
    const std::size_t h = t.hLength, rows = t.bsLength;
    std::vector<float> gamma(h, 0.0f), beta(h, 0.0f);
    const int64_t tmpBytes = int64_t{t.stackBufferSize} * 4;
    const int64_t inBytes = static_cast<int64_t>(rows * h * sizeof(T)), outBytes = static_cast<int64_t>(h * sizeof(T));
    const Operand dy{"inputDy", &inputDy.view(), inBytes};
    Op op(api, Pipe::V, loc);
    ReadInputs(op, {Operand{"resForGamma", &resForGamma.view(), inBytes}, dy}, tmp, tmpBytes);
    for (std::size_t row = 0; row < rows; ++row) {
        for (std::size_t i = 0; i < h; ++i) {
            const float d = inputDy.Data()[row * h + i];
            const float product = d * static_cast<float>(resForGamma.Data()[row * h + i]);
            gamma[i] = gamma[i] + product;
            beta[i] = beta[i] + d;
        }
    }
    WriteOutputs(op, tmp, tmpBytes, isReuseSource ? &dy : nullptr,
                 {Operand{"outputPdGamma", &pdGamma.view(), outBytes}, Operand{"outputPdBeta", &pdBeta.view(), outBytes}});
    WriteRounded(pdGamma.Data(), gamma);
    WriteRounded(pdBeta.Data(), beta);
}

template <typename T>
struct GradOperands {
    const AscendC::LocalTensor<T>&pdX, &resForGamma, &inputDy, &inputX, &inputVariance, &inputMean, &inputGamma;
};

template <typename T, bool isReuseSource>
void Grad(const GradOperands<T>& o, const View* shared, float epsilon, const LayerNormGradTiling& t, const Loc& loc)
{
    static_assert(OneOf<T, half, float>, "AscendC::LayerNormGrad takes half or float");
    static_assert(!isReuseSource || std::is_same<T, float>::value, "AscendC::LayerNormGrad: isReuseSource = true is for float only, not for half");
    constexpr const char* api = "LayerNormGrad";
    CheckTiling(api, t, sizeof(T), isReuseSource, loc);
    const View tmp = TakeTmp(api, shared, t.stackBufferSize, loc);
    const std::size_t h = t.hLength, width = t.originalHLength, rows = t.bsLength;
    const int64_t bshBytes = static_cast<int64_t>(rows * h * sizeof(T)), bsBytes = static_cast<int64_t>(rows * sizeof(T));
    const int64_t tmpBytes = int64_t{t.stackBufferSize} * 4;
    const Operand dy{"inputDy", &o.inputDy.view(), bshBytes};
    Op op(api, Pipe::V, loc);
    ReadInputs(op,
               {dy, Operand{"inputX", &o.inputX.view(), bshBytes}, Operand{"inputVariance", &o.inputVariance.view(), bsBytes},
                Operand{"inputMean", &o.inputMean.view(), bsBytes}, Operand{"inputGamma", &o.inputGamma.view(), static_cast<int64_t>(h * sizeof(T))}},
               tmp, tmpBytes);
    std::vector<float> pdX(rows * h, 0.0f), res(rows * h, 0.0f), a(width), c(width);
    const float n = static_cast<float>(width);
    for (std::size_t row = 0; row < rows; ++row) {
        const float r = 1.0f / std::sqrt(static_cast<float>(o.inputVariance.Data()[row]) + epsilon);
        const float cube = r * r * r;
        float pdVar = 0.0f, meanPart = 0.0f, centred = 0.0f;
        for (std::size_t i = 0; i < width; ++i) {
            a[i] = static_cast<float>(o.inputDy.Data()[row * h + i]) * static_cast<float>(o.inputGamma.Data()[i]);
            c[i] = static_cast<float>(o.inputX.Data()[row * h + i]) - static_cast<float>(o.inputMean.Data()[row]);
            pdVar += -0.5f * a[i] * c[i] * cube;
            meanPart += -a[i] * r;
            centred += -2.0f * c[i];
        }
        const float pdMean = meanPart + pdVar * (centred / n);
        for (std::size_t i = 0; i < width; ++i) {
            pdX[row * h + i] = a[i] * r + pdVar * (2.0f / n * c[i]) + pdMean / n;
            res[row * h + i] = c[i] * r;
        }
    }
    WriteOutputs(op, tmp, tmpBytes, isReuseSource ? &dy : nullptr,
                 {Operand{"outputPdX", &o.pdX.view(), bshBytes}, Operand{"resForGamma", &o.resForGamma.view(), bshBytes}});
    WriteRounded(o.pdX.Data(), pdX);
    WriteRounded(o.resForGamma.Data(), res);
}

template <typename T>
struct NormOperands {
    const AscendC::LocalTensor<T>&output, &outputMean, &outputVariance, &inputX, &gamma, &beta;
};

template <typename T, bool isReuseSource>
void Norm(const NormOperands<T>& o, const View* shared, float epsilon, const LayerNormTiling& t, const Loc& loc)
{
    static_assert(OneOf<T, half, float>, "AscendC::LayerNorm takes half or float");
    static_assert(!isReuseSource || std::is_same<T, float>::value, "AscendC::LayerNorm: isReuseSource = true is for float only, not for half");
    constexpr const char* api = "LayerNorm";
    CheckTiling(api, t, sizeof(T), isReuseSource, loc);
    const View tmp = TakeTmp(api, shared, t.tmpBufSize, loc);
    const std::size_t h = t.hLength, width = t.originalHLength, rows = t.bsLength;
    const int64_t bshBytes = static_cast<int64_t>(rows * h * sizeof(T)), bsBytes = static_cast<int64_t>(rows * sizeof(T)), hBytes = static_cast<int64_t>(h * sizeof(T));
    const int64_t tmpBytes = int64_t{t.tmpBufSize} * 4;
    const Operand x{"inputX", &o.inputX.view(), bshBytes};
    Op op(api, Pipe::V, loc);
    ReadInputs(op, {x, Operand{"gamma", &o.gamma.view(), hBytes}, Operand{"beta", &o.beta.view(), hBytes}}, tmp, tmpBytes);
    std::vector<float> y(rows * h, 0.0f), means(rows), variances(rows);
    const float n = static_cast<float>(width);
    for (std::size_t row = 0; row < rows; ++row) {
        const T* in = o.inputX.Data() + row * h;
        float sum = 0.0f, squares = 0.0f;
        for (std::size_t i = 0; i < width; ++i) {
            sum += static_cast<float>(in[i]);
        }
        means[row] = sum / n;
        for (std::size_t i = 0; i < width; ++i) {
            const float c = static_cast<float>(in[i]) - means[row];
            const float square = c * c;
            squares += square;
        }
        variances[row] = squares / n;
        const float r = 1.0f / std::sqrt(variances[row] + epsilon);
        for (std::size_t i = 0; i < width; ++i) {
            const float scaled = (static_cast<float>(in[i]) - means[row]) * r * static_cast<float>(o.gamma.Data()[i]);
            y[row * h + i] = scaled + static_cast<float>(o.beta.Data()[i]);
        }
    }
    WriteOutputs(op, tmp, tmpBytes, isReuseSource ? &x : nullptr,
                 {Operand{"output", &o.output.view(), bshBytes}, Operand{"outputMean", &o.outputMean.view(), bsBytes},
                  Operand{"outputVariance", &o.outputVariance.view(), bsBytes}});
    WriteRounded(o.output.Data(), y);
    WriteRounded(o.outputMean.Data(), means);
    WriteRounded(o.outputVariance.Data(), variances);
}

}  // namespace emu
}  // namespace anycann

namespace AscendC {

enum class DataFormat : uint8_t { ND };  // NZ lies otherwise, and is not emulated
struct LayerNormGradShapeInfo {
    DataFormat dataFormat = DataFormat::ND;
};

template <typename T, bool isReuseSource = false>
void LayerNormGradBeta(const LocalTensor<T>& outputPdGamma, const LocalTensor<T>& outputPdBeta, const LocalTensor<T>& resForGamma,
                       const LocalTensor<T>& inputDy, const LocalTensor<uint8_t>& sharedTmpBuffer, const LayerNormGradBetaTiling& tiling, ANYCANN_HERE)
{
    anycann::emu::GradBeta<T, isReuseSource>(outputPdGamma, outputPdBeta, resForGamma, inputDy, &sharedTmpBuffer.view(), tiling, loc);
}
template <typename T, bool isReuseSource = false>
void LayerNormGradBeta(const LocalTensor<T>& outputPdGamma, const LocalTensor<T>& outputPdBeta, const LocalTensor<T>& resForGamma,
                       const LocalTensor<T>& inputDy, const LayerNormGradBetaTiling& tiling, ANYCANN_HERE)
{
    anycann::emu::GradBeta<T, isReuseSource>(outputPdGamma, outputPdBeta, resForGamma, inputDy, nullptr, tiling, loc);
}

// Takes the variance, not its reciprocal root.
template <typename T, bool isReuseSource = false>
void LayerNormGrad(const LocalTensor<T>& outputPdX, const LocalTensor<T>& resForGamma, const LocalTensor<T>& inputDy, const LocalTensor<T>& inputX,
                   const LocalTensor<T>& inputVariance, const LocalTensor<T>& inputMean, const LocalTensor<T>& inputGamma,
                   const LocalTensor<uint8_t>& sharedTmpBuffer, anycann::emu::SameT<T> epsilon, const LayerNormGradTiling& tiling,
                   const LayerNormGradShapeInfo& = {}, ANYCANN_HERE)
{
    anycann::emu::Grad<T, isReuseSource>({outputPdX, resForGamma, inputDy, inputX, inputVariance, inputMean, inputGamma}, &sharedTmpBuffer.view(), epsilon, tiling, loc);
}
template <typename T, bool isReuseSource = false>
void LayerNormGrad(const LocalTensor<T>& outputPdX, const LocalTensor<T>& resForGamma, const LocalTensor<T>& inputDy, const LocalTensor<T>& inputX,
                   const LocalTensor<T>& inputVariance, const LocalTensor<T>& inputMean, const LocalTensor<T>& inputGamma,
                   anycann::emu::SameT<T> epsilon, const LayerNormGradTiling& tiling, const LayerNormGradShapeInfo& = {}, ANYCANN_HERE)
{
    anycann::emu::Grad<T, isReuseSource>({outputPdX, resForGamma, inputDy, inputX, inputVariance, inputMean, inputGamma}, nullptr, epsilon, tiling, loc);
}

template <typename T, bool isReuseSource = false>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance, const LocalTensor<T>& inputX,
               const LocalTensor<T>& gamma, const LocalTensor<T>& beta, const LocalTensor<uint8_t>& sharedTmpBuffer, anycann::emu::SameT<T> epsilon,
               const LayerNormTiling& tiling, ANYCANN_HERE)
{
    anycann::emu::Norm<T, isReuseSource>({output, outputMean, outputVariance, inputX, gamma, beta}, &sharedTmpBuffer.view(), epsilon, tiling, loc);
}
template <typename T, bool isReuseSource = false>
void LayerNorm(const LocalTensor<T>& output, const LocalTensor<T>& outputMean, const LocalTensor<T>& outputVariance, const LocalTensor<T>& inputX,
               const LocalTensor<T>& gamma, const LocalTensor<T>& beta, anycann::emu::SameT<T> epsilon, const LayerNormTiling& tiling, ANYCANN_HERE)
{
    anycann::emu::Norm<T, isReuseSource>({output, outputMean, outputVariance, inputX, gamma, beta}, nullptr, epsilon, tiling, loc);
}

}  // namespace AscendC

#endif
