// Loads the libraries itself, unless they are there, and frees what it holds in functions that run at its end. A mistake, free twice, is
// made by whom the argument names: the program itself, or a child that calls exit or _exit.
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "acl/acl.h"

namespace {

void *early, *middle, *late;
decltype(aclrtFree) *release;

void End(const char *who, void *memory)
{
    std::printf("%s %d\n", who, release(memory));
}

struct Object {
    ~Object() { End("object", middle); }
} object;

__attribute__((destructor)) void Last() { End("destructor", late); }

template <class F>
F *Find(const char *name)
{
    return reinterpret_cast<F *>(dlsym(RTLD_DEFAULT, name));
}

void FreeTwice()
{
    void *memory = nullptr;
    Find<decltype(aclrtMalloc)>("aclrtMalloc")(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    release(memory);
    release(memory);
}

std::ofstream kept;  // flushed by its destructor

}  // namespace

int main(int, char **words)
{
    const std::string who = words[1];
    kept.open(words[2]);
    kept << "all";
    std::atexit([] { End("handler", early); });
    if (Find<void>("aclrtFree") == nullptr && dlopen("libascendcl.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
        return 2;
    }
    release = Find<decltype(aclrtFree)>("aclrtFree");
    Find<decltype(aclrtSetDevice)>("aclrtSetDevice")(0);
    for (void **place : {&early, &middle, &late}) {
        Find<decltype(aclrtMalloc)>("aclrtMalloc")(place, 64, ACL_MEM_MALLOC_HUGE_FIRST);
    }
    if (who == "program") {
        FreeTwice();
    } else if (who != "nobody") {
        kept.flush();
        const pid_t child = fork();
        if (child == 0) {
            FreeTwice();
            std::freopen("/dev/null", "w", stdout);
            if (who == "_exit") {
                _exit(0);
            }
            std::exit(0);
        }
        int ended = 0;
        waitpid(child, &ended, 0);
        std::printf("child %d\n", WEXITSTATUS(ended));
    }
    return 0;
}
