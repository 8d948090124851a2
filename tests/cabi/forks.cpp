// Forks again and again while other threads call: every child can call, too. Prints how many children ended as they should.
#include <dlfcn.h>
#include <link.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_gelu_v2.h"

using Look = int (*)(dl_phdr_info *, size_t, void *);

// The loader's list of libraries, looked at slowly: it has a lock that forks do not free, and more of them meet it so.
extern "C" int dl_iterate_phdr(Look look, void *data)
{
    static const auto real = reinterpret_cast<int (*)(Look, void *)>(dlsym(RTLD_NEXT, "dl_iterate_phdr"));
    std::pair<Look, void *> asked{look, data};
    const Look slowly = [](dl_phdr_info *info, size_t size, void *given) {
        const auto &[see, what] = *static_cast<std::pair<Look, void *> *>(given);
        usleep(100);
        return see(info, size, what);
    };
    return real(slowly, &asked);
}

namespace {

constexpr int64_t kCount = 40000;  // more than what the calling thread would compute
constexpr std::size_t kBytes = kCount * sizeof(float);

// Everything from memory to a result; 0 where it is right.
int Compute()
{
    std::vector<float> host(kCount, 100.0F), result(kCount);
    void *x = nullptr, *out = nullptr;
    aclrtStream stream = nullptr;
    int status = aclrtSetDevice(0) + aclrtCreateStream(&stream);
    status += aclrtMalloc(&x, kBytes, ACL_MEM_MALLOC_HUGE_FIRST) + aclrtMalloc(&out, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
    status += aclrtMemcpy(x, kBytes, host.data(), kBytes, ACL_MEMCPY_HOST_TO_DEVICE);
    aclTensor *input = aclCreateTensor(&kCount, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kCount, 1, x);
    aclTensor *output = aclCreateTensor(&kCount, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kCount, 1, out);
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    status += aclnnGeluV2GetWorkspaceSize(input, 0, output, &size, &executor) + aclnnGeluV2(nullptr, 0, executor, stream);
    status += aclrtSynchronizeStream(stream);
    status += aclrtMemcpy(result.data(), kBytes, out, kBytes, ACL_MEMCPY_DEVICE_TO_HOST);
    status += aclDestroyTensor(input) + aclDestroyTensor(output) + aclrtFree(x) + aclrtFree(out) + aclrtDestroyStream(stream);
    return status + (result == host ? 0 : 1);
}

}  // namespace

int main(int, char **words)
{
    const int children = std::atoi(words[1]);
    aclInit(nullptr);
    int status = Compute();
    std::atomic<bool> over{false};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
        threads.emplace_back([&] {
            while (!over) {
                wrong += Compute() != 0;
            }
        });
    }
    int right = 0;
    for (int i = 0; i < children; ++i) {
        usleep(3000);
        const pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(Compute() != 0);
        }
        int ended = 0;
        waitpid(child, &ended, 0);
        right += WIFEXITED(ended) && WEXITSTATUS(ended) == 0;
    }
    over = true;
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::printf("%d\n", right);
    return status + wrong;
}
