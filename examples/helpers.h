// What the example programs share: calls that must succeed, the device, tensors on it, and the second phase of any operator.
#ifndef ANYCANN_EXAMPLES_HELPERS_H
#define ANYCANN_EXAMPLES_HELPERS_H

#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

// A call that was refused ends the program with the library's own words.
inline void Need(int status, const char* call)
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
    Device(const Device&) = delete;
    ~Device()
    {
        aclrtDestroyStream(stream);
        aclrtResetDevice(0);
        aclFinalize();
    }
};

constexpr aclDataType TypeOf(float) { return ACL_FLOAT; }
constexpr aclDataType TypeOf(aclFloat16) { return ACL_FLOAT16; }
constexpr aclDataType TypeOf(int32_t) { return ACL_INT32; }

// Numbers in device memory, and the aclTensor that says how they lie there: in rows, without gaps.
template <typename T>
class Tensor {
public:
    Tensor(std::vector<int64_t> shape, const std::vector<T>& values) : bytes_(values.size() * sizeof(T))
    {
        NEED(aclrtMalloc(&memory_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        Write(values);
        handle_ = aclCreateTensor(shape.data(), shape.size(), TypeOf(T{}), nullptr, 0, ACL_FORMAT_ND, shape.data(), shape.size(), memory_);
    }
    Tensor(const Tensor&) = delete;
    ~Tensor()
    {
        aclDestroyTensor(handle_);
        aclrtFree(memory_);
    }
    aclTensor* get() const { return handle_; }
    void Write(const std::vector<T>& values) { NEED(aclrtMemcpy(memory_, bytes_, values.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE)); }
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

// Phase 2 of an operator, with the workspace that its phase 1 asked for, to its end.
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

#endif
