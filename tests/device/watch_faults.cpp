// A program that makes the mistake that its argument names.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

#include "acl/acl.h"

namespace {

struct Holder {
    void *memory = nullptr;
    ~Holder() { aclrtFree(memory); }
};

Holder holder;  // frees after main: nothing is left

float Sum(const float *values, int count)
{
    float sum = 0;
    for (int i = 0; i < count; ++i) {
        sum += values[i];
    }
    return sum;
}

}  // namespace

int main(int argc, char **argv)
{
    const std::string mistake = argc > 1 ? argv[1] : "none";
    std::ios::sync_with_stdio(false);
    aclInit(nullptr);
    aclrtSetDevice(0);
    aclrtMalloc(&holder.memory, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    void *memory = nullptr;
    aclrtMalloc(&memory, 100, ACL_MEM_MALLOC_HUGE_FIRST);
    aclrtMemset(memory, 100, 0, 100);
    float *values = static_cast<float *>(memory);
    std::cout << "begun";
    if (mistake == "read") {
        std::cout << Sum(values + 2, 3);
    } else if (mistake == "write") {
        values[3] = 1;
    } else if (mistake == "past") {
        values[40] = 1;
    } else if (mistake == "copy") {
        char bytes[64];
        std::memcpy(bytes, memory, sizeof bytes);
        std::cout << bytes[0];
    } else if (mistake == "freed") {
        aclrtFree(memory);
        std::cout << Sum(values, 1);
    } else if (mistake == "stranger") {
        *reinterpret_cast<volatile int *>(8) = 1;
    } else if (mistake == "refused" || mistake == "gone") {
        if (mistake == "gone") {
            std::remove(argv[0]);
        }
        std::cout << ' ' << aclrtMalloc(&memory, 0, ACL_MEM_MALLOC_HUGE_FIRST) << ' ' << aclrtFree(memory) << ' ' << aclrtFree(memory);
        return 0;
    } else if (mistake == "leak" || mistake == "leak and fail") {
        return mistake == "leak" ? 0 : 7;
    }
    aclrtFree(memory);
    aclrtResetDevice(0);
    aclFinalize();
    return 0;
}
