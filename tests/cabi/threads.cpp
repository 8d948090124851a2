// threads CALLS: 64 threads, CALLS two-phase calls each, over 32 streams; the results must have the bits of serial calls, and every
// thread must read its own errors. cost CALLS: the time of the first call and the mean of further ones, 64 elements each.
#include <acl/acl.h>

#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "aclnnop/aclnn_gelu_backward_v2.h"

namespace {

constexpr int kThreads = 64, kStreams = 32, kInputs = 8;
constexpr std::int64_t kCount = 64;
constexpr std::size_t kBytes = kCount * sizeof(float);

void Check(int status, const char *what)
{
    if (status != 0) {
        const char *said = aclGetRecentErrMsg();
        std::printf("%s: %d %s\n", what, status, said == nullptr ? "" : said);
        std::fflush(stdout);
        std::_Exit(1);
    }
}

char *Device(std::size_t bytes)
{
    void *place = nullptr;
    Check(aclrtMalloc(&place, bytes, ACL_MEM_MALLOC_HUGE_FIRST), "aclrtMalloc");
    return static_cast<char *>(place);
}

aclTensor *Tensor(void *place) { return aclCreateTensor(&kCount, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, &kCount, 1, place); }

// One call of both phases; the tensors are gone before the results are there.
void Call(char *grad, char *x, char *out, aclrtStream stream)
{
    char approximate[] = "none";
    aclTensor *tensors[] = {Tensor(grad), Tensor(x), Tensor(out)};
    std::uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    Check(aclnnGeluBackwardV2GetWorkspaceSize(tensors[0], tensors[1], approximate, tensors[2], &size, &executor), "phase 1");
    Check(aclnnGeluBackwardV2(nullptr, size, executor, stream), "phase 2");
    for (aclTensor *tensor : tensors) {
        Check(aclDestroyTensor(tensor), "aclDestroyTensor");
    }
}

std::vector<float> Numbers(std::size_t count, unsigned seed)
{
    std::vector<float> numbers(count);
    for (float &number : numbers) {
        seed = seed * 1664525u + 1013904223u;
        number = static_cast<float>(static_cast<int>(seed >> 8) % 6000 - 3000) / 1000.0f;
    }
    return numbers;
}

char *Upload(const std::vector<float> &numbers)
{
    const std::size_t bytes = numbers.size() * sizeof(float);
    char *place = Device(bytes);
    Check(aclrtMemcpy(place, bytes, numbers.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE), "upload");
    return place;
}

std::vector<float> Download(const char *place, std::size_t count)
{
    std::vector<float> numbers(count);
    Check(aclrtMemcpy(numbers.data(), count * sizeof(float), place, count * sizeof(float), ACL_MEMCPY_DEVICE_TO_HOST), "download");
    return numbers;
}

// A refusal that names this thread, and nothing but it.
bool OwnText(int number)
{
    void *place = nullptr;
    if (aclrtMalloc(&place, 8, static_cast<aclrtMemMallocPolicy>(1000 + number)) != ACL_ERROR_INVALID_PARAM) {
        return false;
    }
    const char *said = aclGetRecentErrMsg();
    const std::string text = said == nullptr ? "" : said;
    return text.find("got " + std::to_string(1000 + number) + ".") != std::string::npos && text.find('\n') == std::string::npos &&
           aclGetRecentErrMsg() == nullptr;
}

int Threads(int calls)
{
    const std::size_t rows = static_cast<std::size_t>(kThreads) * kInputs, results = static_cast<std::size_t>(kThreads) * static_cast<std::size_t>(calls);
    Check(aclrtSetDevice(0), "aclrtSetDevice");
    char *grad = Upload(Numbers(rows * kCount, 1)), *x = Upload(Numbers(rows * kCount, 2));
    char *serial = Device(rows * kBytes), *out = Device(results * kBytes);
    for (std::size_t row = 0; row < rows; ++row) {
        Call(grad + row * kBytes, x + row * kBytes, serial + row * kBytes, nullptr);
    }
    std::vector<aclrtStream> streams(kStreams);
    for (aclrtStream &stream : streams) {
        Check(aclrtCreateStream(&stream), "aclrtCreateStream");
    }
    std::vector<char> wrong(kThreads, 0);
    std::vector<std::thread> threads;
    for (int number = 0; number < kThreads; ++number) {
        threads.emplace_back([=, &streams, &wrong] {
            Check(aclrtSetDevice(0), "aclrtSetDevice");
            for (int i = 0; i < calls; ++i) {
                const std::size_t row = (static_cast<std::size_t>(number) * kInputs + static_cast<std::size_t>(i % kInputs)) * kBytes;
                const std::size_t result = (static_cast<std::size_t>(number) * static_cast<std::size_t>(calls) + static_cast<std::size_t>(i)) * kBytes;
                Call(grad + row, x + row, out + result, streams[static_cast<std::size_t>(number + i) % kStreams]);
                if (i % 20 == 0 && !OwnText(number)) {
                    wrong[static_cast<std::size_t>(number)] = 1;
                }
            }
        });
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    for (aclrtStream stream : streams) {
        Check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
        Check(aclrtDestroyStream(stream), "aclrtDestroyStream");
    }
    const std::vector<float> expected = Download(serial, rows * kCount), found = Download(out, results * kCount);
    long different = 0, texts = 0;
    for (std::size_t i = 0; i < results; ++i) {
        const std::size_t row = i / static_cast<std::size_t>(calls) * kInputs + i % static_cast<std::size_t>(calls) % kInputs;
        different += std::memcmp(&found[i * kCount], &expected[row * kCount], kBytes) != 0;
    }
    for (char one : wrong) {
        texts += one;
    }
    for (char *place : {grad, x, serial, out}) {
        Check(aclrtFree(place), "aclrtFree");
    }
    std::printf("calls: %zu\ndifferent: %ld\nwrong texts: %ld\nfirst: %a\n", results, different, texts, static_cast<double>(expected[0]));
    return 0;
}

// Of the processor, for this thread: what a call takes when the machine has nothing else to do.
double Processor()
{
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double Seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int Cost(int calls)
{
    const double start = Seconds();
    Check(aclInit(nullptr), "aclInit");
    Check(aclrtSetDevice(0), "aclrtSetDevice");
    aclrtStream stream = nullptr;
    Check(aclrtCreateStream(&stream), "aclrtCreateStream");
    char *grad = Upload(Numbers(kCount, 1)), *x = Upload(Numbers(kCount, 2)), *out = Device(kBytes);
    Call(grad, x, out, stream);
    Check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
    std::printf("first: %.3f s\nfirst of the processor: %.3f s\n", Seconds() - start, Processor());
    char approximate[] = "none";
    aclTensor *tensors[] = {Tensor(grad), Tensor(x), Tensor(out)};
    double best = 1e9, own = 1e9;
    for (int round = 0; round < 5; ++round) {
        const double begin = Seconds(), begin_own = Processor();
        for (int i = 0; i < calls; ++i) {
            std::uint64_t size = 0;
            aclOpExecutor *executor = nullptr;
            Check(aclnnGeluBackwardV2GetWorkspaceSize(tensors[0], tensors[1], approximate, tensors[2], &size, &executor), "phase 1");
            Check(aclnnGeluBackwardV2(nullptr, size, executor, stream), "phase 2");
        }
        Check(aclrtSynchronizeStream(stream), "aclrtSynchronizeStream");
        const double mean = (Seconds() - begin) / calls;
        const double mean_own = (Processor() - begin_own) / calls;
        best = mean < best ? mean : best;
        own = mean_own < own ? mean_own : own;
    }
    std::printf("call: %.2f us\ncall of the processor: %.2f us\n", best * 1e6, own * 1e6);
    return 0;
}

}  // namespace

int main(int, char **words) { return std::string(words[1]) == "cost" ? Cost(std::atoi(words[2])) : Threads(std::atoi(words[2])); }
