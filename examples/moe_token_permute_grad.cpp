// Three tokens went to two experts each, as rows of one permuted matrix. Here the gradients of those rows come back to the tokens:
// each token gets the sum of its two rows. One of token 2's rows was dropped, its index lies beyond the last row.
//
//     anycann run examples/moe_token_permute_grad.cpp
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_moe_token_permute_grad.h"

namespace {

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

constexpr aclDataType TypeOf(int32_t) { return ACL_INT32; }
constexpr aclDataType TypeOf(aclFloat16) { return ACL_FLOAT16; }

template <typename T>
class Tensor {
public:
    Tensor(std::vector<int64_t> shape, const std::vector<T>& values) : bytes_(values.size() * sizeof(T))
    {
        NEED(aclrtMalloc(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        NEED(aclrtMemcpy(memory_, bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE));
        handle_ = aclCreateTensor(shape.data(), shape.size(), TypeOf(T{}), nullptr, 0, ACL_FORMAT_ND, shape.data(), shape.size(), memory_);
    }
    Tensor(const Tensor&) = delete;
    ~Tensor()
    {
        aclDestroyTensor(handle_);
        aclrtFree(memory_);
    }
    aclTensor* get() const { return handle_; }
    std::vector<T> Read() const
    {
        std::vector<T> values(bytes_ / sizeof(T));
        NEED(aclrtMemcpy(values.data(), bytes_, memory_, bytes_, ACL_MEMCPY_DEVICE_TO_HOST));
        return values;
    }

private:
    size_t bytes_;
    void* memory_ = nullptr;
    aclTensor* handle_ = nullptr;
};

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
    void* workspace = nullptr;
    if (size > 0) {
        NEED(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    NEED(aclnnMoeTokenPermuteGrad(workspace, size, executor, device.stream));
    NEED(aclrtSynchronizeStream(device.stream));
    if (workspace != nullptr) {
        NEED(aclrtFree(workspace));
    }

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
