// A loss and its gradient. The forward operator gives the mean of all losses, the backward operator the gradient of that mean;
// finite differences of the loss confirm it.
//
//     anycann run examples/smooth_l1_loss_backward.cpp
#include "aclnnop/aclnn_smooth_l1_loss.h"
#include "aclnnop/aclnn_smooth_l1_loss_backward.h"
#include "helpers.h"

namespace {

constexpr int64_t kMean = 1;
constexpr float kBeta = 0.5f;

float Loss(const Device& device, const Tensor<float>& prediction, const Tensor<float>& target)
{
    const Tensor<float> loss({}, {0.0f});  // no dimensions: a single value
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    NEED(aclnnSmoothL1LossGetWorkspaceSize(prediction.get(), target.get(), kMean, kBeta, loss.get(), &size, &executor));
    Finish(aclnnSmoothL1Loss, size, executor, device.stream);
    return loss.Read()[0];
}

}  // namespace

int main()
try {
    Device device;
    const std::vector<float> values = {-1.0f, 0.25f, 0.5f, 0.75f, 1.25f, 4.0f};
    Tensor<float> prediction({2, 3}, values);
    const Tensor<float> target({2, 1}, {0.5f, 1.0f});  // one for each row
    std::printf("loss: %.6f\n", Loss(device, prediction, target));

    const Tensor<float> one({1}, {1.0f});
    const Tensor<float> gradient({2, 3}, std::vector<float>(6));
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    NEED(aclnnSmoothL1LossBackwardGetWorkspaceSize(one.get(), prediction.get(), target.get(), kMean, kBeta, gradient.get(), &size, &executor));
    Finish(aclnnSmoothL1LossBackward, size, executor, device.stream);

    const std::vector<float> found = gradient.Read();
    const float step = 1.0f / 64;
    for (size_t i = 0; i < values.size(); ++i) {
        std::vector<float> moved = values;
        moved[i] += step;
        prediction.Write(moved);
        const float above = Loss(device, prediction, target);
        moved[i] -= 2 * step;
        prediction.Write(moved);
        const float below = Loss(device, prediction, target);
        std::printf("gradient[%zu]: %9.6f, by differences %6.3f\n", i, found[i], (above - below) / (2 * step));
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
