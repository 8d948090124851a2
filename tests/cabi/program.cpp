// Every way in which this program is run prints one line; the first word of the command line chooses it.
#include <acl/acl.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "aclnn_smooth_l1_loss_backward.h"
#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "aclnnop/level2/aclnn_moe_token_permute_grad.h"

#ifdef OPENS

// Links nothing, opens one library and looks everything up there.
int main(int, char **words)
{
    void *handle = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        std::printf("%s\n", dlerror());
        return 1;
    }
    aclError (*initialize)(const char *) = nullptr;
    aclScalar *(*create)(void *, aclDataType) = nullptr;
    void *symbols[] = {dlsym(handle, "aclInit"), dlsym(handle, "aclCreateScalar")};
    std::memcpy(&initialize, &symbols[0], sizeof initialize);
    std::memcpy(&create, &symbols[1], sizeof create);
    float one = 1;
    const int status = initialize(nullptr);
    std::printf("%d %d\n", status, create(&one, ACL_FLOAT) != nullptr);
    return dlclose(handle);
}

#else

namespace {

struct Operand {
    void *data = nullptr;
    aclTensor *tensor = nullptr;

    explicit Operand(const std::vector<float> &values)
    {
        const int64_t count = static_cast<int64_t>(values.size());
        aclrtMalloc(&data, values.size() * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST);
        aclrtMemcpy(data, values.size() * sizeof(float), values.data(), values.size() * sizeof(float), ACL_MEMCPY_HOST_TO_DEVICE);
        tensor = aclCreateTensor(&count, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &count, 1, data);
    }
    Operand(const Operand &) = delete;
    Operand &operator=(const Operand &) = delete;
    ~Operand()
    {
        aclDestroyTensor(tensor);
        aclrtFree(data);
    }
};

int Gelu()
{
    aclrtStream stream = nullptr;
    aclrtSetDevice(0);
    aclrtCreateStream(&stream);
    std::vector<float> result(3);
    {
        const Operand gradient({2, 2, 2}), self({-1, 0, 2}), made(result);
        char none[] = "none";
        uint64_t size = 1;
        aclOpExecutor *executor = nullptr;
        int status = aclnnGeluBackwardV2GetWorkspaceSize(gradient.tensor, self.tensor, none, made.tensor, &size, &executor);
        status = status == 0 ? aclnnGeluBackwardV2(nullptr, size, executor, stream) : status;
        status = status == 0 ? aclrtSynchronizeStream(stream) : status;
        if (status != 0) {
            std::printf("%d %s\n", status, aclGetRecentErrMsg());
            return 1;
        }
        aclrtMemcpy(result.data(), 12, made.data, 12, ACL_MEMCPY_DEVICE_TO_HOST);
    }
    std::printf("%.6f %.6f %.6f\n", result[0], result[1], result[2]);
    return aclrtDestroyStream(stream) + aclrtResetDevice(0);
}

int Threads()
{
    std::vector<std::thread> threads;
    std::vector<int> status(8, -1);
    for (int &each : status) {
        threads.emplace_back([&each] { each = aclrtSetDevice(0) + aclrtSetDevice(99); });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (const int each : status) {
        std::printf("%d ", each);
    }
    std::printf("\n");
    return Gelu();  // the thread that started Python is gone
}

int Shape()
{
    const int64_t dims[] = {2, 3, 4};
    aclTensor *tensor = aclCreateTensor(dims, 3, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 3, nullptr);
    int64_t *found = nullptr;
    uint64_t count = 0;
    const int status = aclGetViewShape(tensor, &found, &count);
    std::printf("%d %d", status, static_cast<int>(count));
    for (uint64_t i = 0; i < count; ++i) {
        std::printf(" %d", static_cast<int>(found[i]));
    }
    std::printf("\n");
    delete[] found;
    return aclDestroyTensor(tensor);
}

// Answers of each kind of result, also where Python cannot be started.
int Answers()
{
    std::printf("%d %d %d %g %s\n", aclInit(nullptr), aclnnInit(nullptr), aclCreateIntArray(nullptr, 0) != nullptr,
                static_cast<double>(aclFloat16ToFloat(0x3C00)), aclrtGetSocName() == nullptr ? "null" : aclrtGetSocName());
    return 0;
}

}  // namespace

int main(int count, char **words)
{
    const char *what = count > 1 ? words[1] : "gelu";
    if (std::strcmp(what, "threads") == 0) {
        return Threads();
    }
    if (std::strcmp(what, "shape") == 0) {
        return Shape();
    }
    return std::strcmp(what, "answers") == 0 ? Answers() : Gelu();
}

#endif
