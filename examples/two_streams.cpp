// Two streams. One computes activations, the other waits for them with an event and computes gradients; events also take the time.
//
//     anycann run examples/two_streams.cpp
#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "aclnnop/aclnn_gelu_v2.h"
#include "helpers.h"

namespace {

struct Stream {
    aclrtStream handle = nullptr;
    Stream() { NEED(aclrtCreateStream(&handle)); }
    Stream(const Stream&) = delete;
    ~Stream() { aclrtDestroyStream(handle); }
};

struct Event {
    aclrtEvent handle = nullptr;
    Event() { NEED(aclrtCreateEvent(&handle)); }
    Event(const Event&) = delete;
    ~Event() { aclrtDestroyEvent(handle); }
};

constexpr int64_t kLength = 1 << 20;
constexpr size_t kBytes = kLength * sizeof(float);

struct Floats {
    void* memory = nullptr;
    aclTensor* handle = nullptr;
    Floats()
    {
        NEED(aclrtMalloc(&memory, kBytes, ACL_MEM_MALLOC_HUGE_FIRST));
        handle = aclCreateTensor(&kLength, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kLength, 1, memory);
    }
    Floats(const Floats&) = delete;
    ~Floats()
    {
        aclDestroyTensor(handle);
        aclrtFree(memory);
    }
};

// Phase 2 on a stream, without waiting. Neither operator needs a workspace for contiguous tensors.
template <typename Second>
void Queue(Second second, uint64_t size, aclOpExecutor* executor, const Stream& stream)
{
    if (size > 0) {
        throw std::runtime_error("this example has no workspace to give");
    }
    NEED(second(nullptr, 0, executor, stream.handle));
}

}  // namespace

int main()
try {
    Device device;
    {
        const Stream forward, backward;
        const Event begin, ready, end;
        const Floats x, y, gradient;
        const std::vector<float> values(kLength, 1.0f);
        std::vector<float> result(kLength);

        NEED(aclrtRecordEvent(begin.handle, forward.handle));
        NEED(aclrtMemcpyAsync(x.memory, kBytes, values.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE, forward.handle));
        uint64_t size = 0;
        aclOpExecutor* executor = nullptr;
        NEED(aclnnGeluV2GetWorkspaceSize(x.handle, 0, y.handle, &size, &executor));
        Queue(aclnnGeluV2, size, executor, forward);
        NEED(aclrtRecordEvent(ready.handle, forward.handle));

        NEED(aclrtStreamWaitEvent(backward.handle, ready.handle));  // nothing that follows on `backward` starts before y is there
        char approximate[] = "none";
        NEED(aclnnGeluBackwardV2GetWorkspaceSize(y.handle, x.handle, approximate, gradient.handle, &size, &executor));
        Queue(aclnnGeluBackwardV2, size, executor, backward);
        NEED(aclrtMemcpyAsync(result.data(), kBytes, gradient.memory, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, backward.handle));
        NEED(aclrtRecordEvent(end.handle, backward.handle));
        NEED(aclrtSynchronizeStream(backward.handle));

        float milliseconds = 0;
        NEED(aclrtEventElapsedTime(&milliseconds, begin.handle, end.handle));
        std::printf("gelu(1) * gelu'(1) = %.6f, everywhere: %s\n", result[0], result == std::vector<float>(kLength, result[0]) ? "yes" : "no");
        std::printf("the two streams took %s\n", milliseconds > 0 ? "some time" : "no time");
        std::fprintf(stderr, "%.3f ms\n", milliseconds);
    }
} catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
