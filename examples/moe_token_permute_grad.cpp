// Three tokens went to two experts each, as rows of one permuted matrix. Here the gradients of those rows come back to the tokens:
// each token gets the sum of its two rows. One of token 2's rows was dropped, its index lies beyond the last row.
//
//     anycann run examples/moe_token_permute_grad.cpp
#include "aclnnop/aclnn_moe_token_permute_grad.h"
#include "helpers.h"

namespace {

std::vector<aclFloat16> Halves(const std::vector<float>& values)
{
    std::vector<aclFloat16> made;
    for (float value : values) {
        made.push_back(aclFloatToFloat16(value));
    }
    return made;
}

}  // namespace

int main()
try {
    constexpr int64_t kTokens = 3, kChoices = 2, kWidth = 4, kRows = 5;
    Device device;
    const Tensor<aclFloat16> rows(
        {kRows, kWidth}, Halves({1, 2, 3, 4, 10, 20, 30, 40, 0.5f, 0.25f, 0.125f, 0.0625f, -1, -1, -1, -1, 100, 200, 300, 400}));
    const Tensor<int32_t> rowOfChoice({kTokens * kChoices}, {1, 0, 3, 2, 4, 5});  // token 0: rows 1 and 0; row 5 does not exist
    const Tensor<aclFloat16> tokens({kTokens, kWidth}, std::vector<aclFloat16>(kTokens * kWidth));

    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    NEED(aclnnMoeTokenPermuteGradGetWorkspaceSize(rows.get(), rowOfChoice.get(), kChoices, false, tokens.get(), &size, &executor));
    Finish(aclnnMoeTokenPermuteGrad, size, executor, device.stream);

    const std::vector<aclFloat16> found = tokens.Read();
    for (int64_t token = 0; token < kTokens; ++token) {
        std::printf("token %d:", static_cast<int>(token));
        for (int64_t i = 0; i < kWidth; ++i) {
            std::printf(" %g", aclFloat16ToFloat(found[token * kWidth + i]));
        }
        std::printf("\n");
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
