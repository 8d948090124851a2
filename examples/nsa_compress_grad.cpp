// Gradients of the NSA compression. Two sequences of 48 and 32 tokens lie one after the other; windows of 32 tokens, 16 apart,
// give two compressed tokens of the first and one of the second.
//
//     anycann run examples/nsa_compress_grad.cpp
#include "aclnnop/aclnn_nsa_compress_grad.h"
#include "helpers.h"

namespace {

// Halves in device memory, all of one value to begin with.
struct Halves : Tensor<aclFloat16> {
    static size_t Count(const std::vector<int64_t>& shape)
    {
        size_t count = 1;
        for (int64_t size : shape) {
            count *= static_cast<size_t>(size);
        }
        return count;
    }
    Halves(const std::vector<int64_t>& shape, float value)
        : Tensor(shape, std::vector<aclFloat16>(Count(shape), aclFloatToFloat16(value)))
    {
    }
};

}  // namespace

int main()
try {
    constexpr int64_t kTokens = 80, kHeads = 1, kWidth = 16, kBlock = 32, kStride = 16, kWindows = 3;
    Device device;
    const Halves outputGrad({kWindows, kHeads, kWidth}, 0.5f);
    const Halves input({kTokens, kHeads, kWidth}, 2.0f);
    const Halves weight({kBlock, kHeads}, 0.25f);
    const Halves inputGrad({kTokens, kHeads, kWidth}, -1.0f);
    const Halves weightGrad({kBlock, kHeads}, -1.0f);

    const int64_t ends[] = {48, 80};  // running sums of the lengths
    aclIntArray* sequences = aclCreateIntArray(ends, 2);
    char layout[] = "TND";
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    NEED(aclnnNsaCompressGradGetWorkspaceSize(outputGrad.get(), input.get(), weight.get(), sequences, kBlock, kStride, 0, layout,
                                              inputGrad.get(), weightGrad.get(), &size, &executor));
    aclDestroyIntArray(sequences);  // phase 1 has read it
    Finish(aclnnNsaCompressGrad, size, executor, device.stream);

    const std::vector<aclFloat16> tokens = inputGrad.Read(), places = weightGrad.Read();
    for (int64_t token = 0; token < kTokens; token += 16) {  // a token in two windows gets twice as much
        std::printf("inputGrad of token %2d: %g\n", static_cast<int>(token), aclFloat16ToFloat(tokens[token * kWidth]));
    }
    std::printf("weightGrad of every place: %g and %g\n", aclFloat16ToFloat(places.front()), aclFloat16ToFloat(places.back()));
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
