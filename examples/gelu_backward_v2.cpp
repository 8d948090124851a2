// The gradient of GELU, exact and by tanh. One row of incoming gradients serves every row of x, because operands broadcast.
//
//     anycann run examples/gelu_backward_v2.cpp
#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "helpers.h"

int main()
try {
    Device device;
    const Tensor<float> x({2, 4}, {-6.0f, -2.0f, -0.75f, 0.0f, 0.5f, 1.0f, 3.0f, 20.0f});
    const Tensor<float> incoming({1, 4}, {1.0f, 1.0f, 1.0f, 2.0f});
    const Tensor<float> gradient({2, 4}, std::vector<float>(8));

    for (std::string approximate : {"none", "tanh"}) {
        // Phase 1 checks the call and says how much memory it needs; phase 2 only runs.
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        NEED(aclnnGeluBackwardV2GetWorkspaceSize(incoming.get(), x.get(), &approximate[0], gradient.get(), &size, &executor));
        Finish(aclnnGeluBackwardV2, size, executor, device.stream);

        std::printf("%s:", approximate.c_str());
        for (float value : gradient.Read()) {
            std::printf(" %.6g", value);
        }
        std::printf("\n");
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
