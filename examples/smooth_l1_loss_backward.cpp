// A loss and its gradient. The forward operator gives the mean of all losses, the backward operator the gradient of that mean;
// finite differences of the loss confirm it.
//
//     anycann run examples/smooth_l1_loss_backward.cpp
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_smooth_l1_loss.h"
#include "aclnnop/aclnn_smooth_l1_loss_backward.h"

namespace {

constexpr int64_t kMean = 1;
constexpr float kBeta = 0.5f;

void Need(int status, const char* call)
{
    if (status != ACL_SUCCESS) {
        const char* text = aclGetRecentErrMsg();
        throw std::runtime_error(std::string(call) + " gave " + std::to_string(status) + "\n" + (text ? text : ""));
    }
}
#define NEED(call) Need(call, #call)

struct Device {
    aclrtStream stream = nullptr;
    Device()
    {
        NEED(aclInit(nullptr));
        NEED(aclrtSetDevice(0));
        NEED(aclrtCreateStream(&stream));
    }
    ~Device()
    {
        aclrtDestroyStream(stream);
        aclrtResetDevice(0);
        aclFinalize();
    }
};

class Tensor {
public:
    Tensor(std::vector<int64_t> shape, const std::vector<float>& values) : bytes_(values.size() * sizeof(float))
    {
        NEED(aclrtMalloc(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        Write(values);
        handle_ = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), shape.size(), memory_);
    }
    Tensor(const Tensor&) = delete;
    ~Tensor()
    {
        aclDestroyTensor(handle_);
        aclrtFree(memory_);
    }
    aclTensor* get() const { return handle_; }
    void Write(const std::vector<float>& values) { NEED(aclrtMemcpy(memory_, bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE)); }
    std::vector<float> Read() const
    {
        std::vector<float> values(bytes_ / sizeof(float));
        NEED(aclrtMemcpy(values.data(), bytes_, memory_, bytes_, ACL_MEMCPY_DEVICE_TO_HOST));
        return values;
    }

private:
    size_t bytes_;
    void* memory_ = nullptr;
    aclTensor* handle_ = nullptr;
};

// Phase 2 of any operator, with the workspace that its phase 1 asked for.
template <typename Second>
void Finish(Second second, uint64_t size, aclOpExecutor* executor, aclrtStream stream)
{
    void* workspace = nullptr;
    if (size > 0) {
        NEED(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    NEED(second(workspace, size, executor, stream));
    NEED(aclrtSynchronizeStream(stream));
    if (workspace != nullptr) {
        NEED(aclrtFree(workspace));
    }
}

float Loss(const Device& device, const Tensor& prediction, const Tensor& target)
{
    const Tensor loss({}, {0.0f});  // no dimensions: a single value
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
    Tensor prediction({2, 3}, values);
    const Tensor target({2, 1}, {0.5f, 1.0f});  // one for each row
    std::printf("loss: %.6f\n", Loss(device, prediction, target));

    const Tensor one({1}, {1.0f});
    const Tensor gradient({2, 3}, std::vector<float>(6));
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
