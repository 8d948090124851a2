// One check, many runs: an executor that was made repeatable serves batch after batch, each at an address of its own.
//
//     anycann run examples/repeatable_executor.cpp
#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "helpers.h"

namespace {

// Device memory for floats.
class Memory {
public:
    explicit Memory(const std::vector<float>& values) : bytes_(values.size() * sizeof(float))
    {
        NEED(aclrtMalloc(&address_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        NEED(aclrtMemcpy(address_, bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    Memory(const Memory&) = delete;
    ~Memory() { aclrtFree(address_); }
    void* At(int64_t element) const { return static_cast<float*>(address_) + element; }
    float Read(int64_t element) const
    {
        float value = 0;
        NEED(aclrtMemcpy(&value, sizeof value, At(element), sizeof value, ACL_MEMCPY_DEVICE_TO_HOST));
        return value;
    }

private:
    size_t bytes_;
    void* address_ = nullptr;
};

constexpr int64_t kBatches = 4, kLength = 1000;

// Describes one batch; where it lies is said before each run.
aclTensor* Batch(void* address)
{
    return aclCreateTensor(&kLength, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kLength, 1, address);
}

}  // namespace

int main()
try {
    Device device;
    std::vector<float> values(kBatches * kLength);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i) / kLength;  // batch b holds b to b + 1
    }
    const Memory x(values), ones(std::vector<float>(kLength, 1.0f)), gradients(std::vector<float>(values.size()));

    aclTensor* xBatch = Batch(x.At(0));
    aclTensor* incoming = Batch(ones.At(0));
    aclTensor* gradient = Batch(gradients.At(0));
    char approximate[] = "none";
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    NEED(aclnnGeluBackwardV2GetWorkspaceSize(incoming, xBatch, approximate, gradient, &size, &executor));
    NEED(aclSetAclOpExecutorRepeatable(executor));  // from here on it is ours to destroy
    void* workspace = nullptr;
    if (size > 0) {
        NEED(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }

    for (int64_t batch = 0; batch < kBatches; ++batch) {
        NEED(aclSetInputTensorAddr(executor, 1, xBatch, x.At(batch * kLength)));  // inputs are counted from 0: gradOutput, self
        NEED(aclSetOutputTensorAddr(executor, 0, gradient, gradients.At(batch * kLength)));
        NEED(aclnnGeluBackwardV2(workspace, size, executor, device.stream));
    }
    NEED(aclrtSynchronizeStream(device.stream));

    for (int64_t batch = 0; batch < kBatches; ++batch) {
        const int64_t first = batch * kLength;
        std::printf("batch %d: gradient at %g is %.6f\n", static_cast<int>(batch), values[first], gradients.Read(first));
    }
    NEED(aclDestroyAclOpExecutor(executor));
    for (aclTensor* tensor : {xBatch, incoming, gradient}) {
        aclDestroyTensor(tensor);
    }
    if (workspace != nullptr) {
        NEED(aclrtFree(workspace));
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
