// gelu(x) of a few numbers, as small as a program for aclnn can be. Every status is added up; 0 in the end means that all went well.
#include <cstdint>
#include <cstdio>

#include "acl/acl.h"
#include "aclnn_gelu_v2.h"

int main()
{
    constexpr int64_t kCount = 5;
    constexpr size_t kBytes = kCount * sizeof(float);
    const float input[kCount] = {-2.0f, -1.0f, 0.0f, 1.0f, 2.0f};
    float output[kCount] = {};

    int status = aclInit(nullptr) + aclrtSetDevice(0);
    void *x = nullptr, *y = nullptr;
    status += aclrtMalloc(&x, kBytes, ACL_MEM_MALLOC_HUGE_FIRST) + aclrtMalloc(&y, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
    status += aclrtMemcpy(x, kBytes, input, kBytes, ACL_MEMCPY_HOST_TO_DEVICE);
    aclTensor* xTensor = aclCreateTensor(&kCount, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kCount, 1, x);
    aclTensor* yTensor = aclCreateTensor(&kCount, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kCount, 1, y);

    uint64_t size = 0;
    aclOpExecutor* executor = nullptr;
    status += aclnnGeluV2GetWorkspaceSize(xTensor, 0, yTensor, &size, &executor);
    void* workspace = nullptr;
    if (size > 0) {
        status += aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST);
    }
    status += aclnnGeluV2(workspace, size, executor, nullptr) + aclrtSynchronizeStream(nullptr);  // null: the default stream
    status += aclrtMemcpy(output, kBytes, y, kBytes, ACL_MEMCPY_DEVICE_TO_HOST);

    for (int64_t i = 0; i < kCount; ++i) {
        std::printf("gelu(%g) = %.6f\n", input[i], output[i]);
    }
    status += aclDestroyTensor(xTensor) + aclDestroyTensor(yTensor) + aclrtFree(x) + aclrtFree(y);
    status += workspace == nullptr ? 0 : aclrtFree(workspace);
    status += aclrtResetDevice(0) + aclFinalize();
    return status == 0 ? 0 : 1;
}
