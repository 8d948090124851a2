// Programs that end while operators are queued; the first word of the command line says how.
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "acl/acl.h"
#include "aclnnop/aclnn_gelu_backward_v2.h"
#include "aclnnop/aclnn_gelu_v2.h"

namespace {

constexpr int64_t kCount = int64_t{1} << 21;  // more than what the calling thread would compute
constexpr std::size_t kBytes = kCount * sizeof(float);

struct Program {
    aclrtStream stream = nullptr;
    void *x = nullptr, *out = nullptr;
    aclTensor *input = nullptr, *output = nullptr;
    std::vector<float> host = std::vector<float>(kCount);

    static aclTensor *Over(void *memory) { return aclCreateTensor(&kCount, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kCount, 1, memory); }

    void Begin()
    {
        aclInit(nullptr);
        aclrtSetDevice(0);
        aclrtCreateStream(&stream);
        aclrtMalloc(&x, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        aclrtMalloc(&out, kBytes, ACL_MEM_MALLOC_HUGE_FIRST);
        aclrtMemset(x, kBytes, 0, kBytes);
        input = Over(x);
        output = Over(out);
    }

    int Queue()
    {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        const int planned = aclnnGeluV2GetWorkspaceSize(input, 0, output, &size, &executor);
        return planned != 0 ? planned : aclnnGeluV2(nullptr, 0, executor, stream);
    }

    int QueueGradient()
    {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        char mode[] = "none";
        const int planned = aclnnGeluBackwardV2GetWorkspaceSize(input, input, mode, output, &size, &executor);
        return planned != 0 ? planned : aclnnGeluBackwardV2(nullptr, 0, executor, stream);
    }
};

Program program;

// What every signal does; the faults that the check mode reports left out.
std::vector<void *> Dispositions()
{
    std::vector<void *> found;
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction action = {};
        if (number != SIGSEGV && sigaction(number, nullptr, &action) == 0) {
            found.push_back(reinterpret_cast<void *>(action.sa_handler));
        }
    }
    return found;
}

// A handler of the program's own, or none, as operators are run again and again: it is still there, and so are those of other signals.
int Interrupt(bool own)
{
    std::signal(SIGINT, own ? [](int) { std::puts("handled"); } : SIG_DFL);
    std::signal(SIGXFSZ, SIG_IGN);
    const auto before = Dispositions();
    program.Begin();
    for (int i = 0; i < 3; ++i) {
        if (program.Queue() + program.QueueGradient() + aclrtSynchronizeStream(program.stream) != 0) {
            return 1;
        }
    }
    if (Dispositions() != before) {
        return 2;
    }
    std::raise(SIGINT);
    return program.Queue();
}

}  // namespace

int main(int, char **words)
{
    const std::string how = words[1];
    if (how == "interrupt" || how == "handler") {
        return Interrupt(how == "handler");
    }
    program.Begin();
    if (how == "bytes") {  // what was queued is done before functions of atexit that were registered before
        for (float &value : program.host) {
            value = 7;
        }
        std::atexit([] { std::printf("%g\n", program.host.back()); });
    }
    int status = program.Queue();
    if (how == "another") {
        aclrtSynchronizeStream(program.stream);
        status += program.QueueGradient();
    }
    for (int i = 0; how == "many" && i < 30; ++i) {
        status += program.Queue() + program.QueueGradient();
    }
    if (how == "bytes") {
        status += aclrtMemcpyAsync(program.host.data(), kBytes, program.out, kBytes, ACL_MEMCPY_DEVICE_TO_HOST, program.stream);
    } else if (how == "thread") {
        std::thread([] { std::exit(3); }).join();
    } else if (how == "child") {
        const pid_t child = fork();
        if (child == 0) {
            std::exit(5);
        }
        int ended = 0;
        waitpid(child, &ended, 0);
        return WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
    } else if (how == "ended") {
        aclrtResetDevice(0);
        aclFinalize();
    } else if (how == "at once") {
        _exit(4);
    }
    return status;
}
