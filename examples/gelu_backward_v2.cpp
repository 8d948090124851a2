// The gradient of GELU, exact and by tanh. One row of incoming gradients serves every row of x, because operands broadcast.
//
//     anycann run examples/gelu_backward_v2.cpp
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_gelu_backward_v2.h"

// A call that was refused ends the program with the library's own words.
void Need(int status, const char* call)
{
    if (status != ACL_SUCCESS) {
        const char* text = aclGetRecentErrMsg();
        throw std::runtime_error(std::string(call) + " gave " + std::to_string(status) + "\n" + (text ? text : ""));
    }
}
#define NEED(call) Need(call, #call)

// Device 0 and a stream on it, for as long as this object lives.
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

// Floats in device memory, and the aclTensor that says how they lie there: in rows, without gaps.
class Tensor {
public:
    Tensor(std::vector<int64_t> shape, const std::vector<float>& values) : bytes_(values.size() * sizeof(float))
    {
        NEED(aclrtMalloc(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        NEED(aclrtMemcpy(memory_, bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE));
        handle_ = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, shape.data(), shape.size(), memory_);
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
        std::vector<float> values(bytes_ / sizeof(float));
        NEED(aclrtMemcpy(values.data(), bytes_, memory_, bytes_, ACL_MEMCPY_DEVICE_TO_HOST));
        return values;
    }

private:
    size_t bytes_;
    void* memory_ = nullptr;
    aclTensor* handle_ = nullptr;
};

int main()
try {
    Device device;
    const Tensor x({2, 4}, {-6.0f, -2.0f, -0.75f, 0.0f, 0.5f, 1.0f, 3.0f, 20.0f});
    const Tensor incoming({1, 4}, {1.0f, 1.0f, 1.0f, 2.0f});
    const Tensor gradient({2, 4}, std::vector<float>(8));

    for (std::string approximate : {"none", "tanh"}) {
        // Phase 1 checks the call and says how much memory it needs; phase 2 only runs.
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        NEED(aclnnGeluBackwardV2GetWorkspaceSize(incoming.get(), x.get(), &approximate[0], gradient.get(), &size, &executor));
        void* workspace = nullptr;
        if (size > 0) {
            NEED(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
        }
        NEED(aclnnGeluBackwardV2(workspace, size, executor, device.stream));
        NEED(aclrtSynchronizeStream(device.stream));
        if (workspace != nullptr) {
            NEED(aclrtFree(workspace));
        }

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
