// Gradients of the NSA compression. Two sequences of 48 and 32 tokens lie one after the other; windows of 32 tokens, 16 apart,
// give two compressed tokens of the first and one of the second.
//
//     anycann run examples/nsa_compress_grad.cpp
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_nsa_compress_grad.h"

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

// Halves in device memory, all of one value to begin with.
class Tensor {
public:
    Tensor(std::vector<int64_t> shape, float value)
    {
        size_t count = 1;
        for (int64_t size : shape) {
            count *= static_cast<size_t>(size);
        }
        const std::vector<aclFloat16> values(count, aclFloatToFloat16(value));
        bytes_ = count * sizeof(aclFloat16);
        NEED(aclrtMalloc(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        NEED(aclrtMemcpy(memory_, bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE));
        handle_ = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT16, nullptr, 0, ACL_FORMAT_ND, shape.data(), shape.size(), memory_);
    }
    Tensor(const Tensor&) = delete;
    ~Tensor()
    {
        aclDestroyTensor(handle_);
        aclrtFree(memory_);
    }
    aclTensor* get() const { return handle_; }
    std::vector<float> Read() const
    {
        std::vector<aclFloat16> halves(bytes_ / sizeof(aclFloat16));
        NEED(aclrtMemcpy(halves.data(), bytes_, memory_, bytes_, ACL_MEMCPY_DEVICE_TO_HOST));
        std::vector<float> values;
        for (aclFloat16 half : halves) {
            values.push_back(aclFloat16ToFloat(half));
        }
        return values;
    }

private:
    size_t bytes_ = 0;
    void* memory_ = nullptr;
    aclTensor* handle_ = nullptr;
};

}  // namespace

int main()
try {
    constexpr int64_t kTokens = 80, kHeads = 1, kWidth = 16, kBlock = 32, kStride = 16, kWindows = 3;
    Device device;
    const Tensor outputGrad({kWindows, kHeads, kWidth}, 0.5f);
    const Tensor input({kTokens, kHeads, kWidth}, 2.0f);
    const Tensor weight({kBlock, kHeads}, 0.25f);
    const Tensor inputGrad({kTokens, kHeads, kWidth}, -1.0f);
    const Tensor weightGrad({kBlock, kHeads}, -1.0f);

    const int64_t ends[] = {48, 80};  // running sums of the lengths
    aclIntArray* sequences = aclCreateIntArray(ends, 2);
    char layout[] = "TND";
    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    NEED(aclnnNsaCompressGradGetWorkspaceSize(outputGrad.get(), input.get(), weight.get(), sequences, kBlock, kStride, 0, layout,
                                              inputGrad.get(), weightGrad.get(), &size, &executor));
    aclDestroyIntArray(sequences);  // phase 1 has read it
    void* workspace = nullptr;
    if (size > 0) {
        NEED(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    NEED(aclnnNsaCompressGrad(workspace, size, executor, device.stream));
    NEED(aclrtSynchronizeStream(device.stream));
    if (workspace != nullptr) {
        NEED(aclrtFree(workspace));
    }

    const std::vector<float> tokens = inputGrad.Read(), places = weightGrad.Read();
    for (int64_t token = 0; token < kTokens; token += 16) {  // a token in two windows gets twice as much
        std::printf("inputGrad of token %2d: %g\n", static_cast<int>(token), tokens[token * kWidth]);
    }
    std::printf("weightGrad of every place: %g and %g\n", places.front(), places.back());
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
