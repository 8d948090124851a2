// The line of a kernel's source that an instruction was made from, as far as debug information and the tool that reads it say.
#include "faults.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__ELF__)
#include <link.h>
#endif

extern char** environ;

namespace anycann {
namespace emu {

#if defined(__ELF__)
// What a program prints, without a shell; nothing if it cannot run.
static std::string OutputOf(std::vector<std::string> words)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {  // children that others start meanwhile would keep it open
        return std::string();
    }
    std::vector<char*> arguments;
    for (std::string& word : words) {
        arguments.push_back(&word[0]);
    }
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const bool runs = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    std::string text;
    char part[1024];
    for (ssize_t count = 1; runs && (count > 0 || (count < 0 && errno == EINTR));) {
        count = read(ends[0], part, sizeof part);
        text.append(part, static_cast<std::size_t>(count > 0 ? count : 0));
    }
    close(ends[0]);
    while (runs && waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    return text;
}

// Kernels are compiled by whole names; a system's libraries were often compiled elsewhere.
static bool OfTheUser(const std::string& file)
{
    return file.compare(0, 1, "/") == 0 && file.compare(0, 5, "/usr/") != 0 && file.find("/anycann/ascendc/include/") == std::string::npos;
}

#endif

Loc PlaceOf([[maybe_unused]] std::uintptr_t counter)
{
#if defined(__ELF__)
    Dl_info info;
    if (counter == 0 || dladdr(reinterpret_cast<void*>(counter), &info) == 0 || info.dli_fname == nullptr) {
        return Loc{"", 0};
    }
    const bool moved = static_cast<const ElfW(Ehdr)*>(info.dli_fbase)->e_type == ET_DYN;  // else addresses are those of the file
    const std::uintptr_t base = moved ? reinterpret_cast<std::uintptr_t>(info.dli_fbase) : 0;
    const std::string text = OutputOf({"addr2line", "-i", "-e", info.dli_fname, Format("%#llx", static_cast<unsigned long long>(counter - base))});
    for (std::size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {  // from the innermost function outwards
        const std::string line = text.substr(begin, end - begin);
        const std::size_t colon = line.find_last_of(':');
        const int number = colon == std::string::npos ? 0 : std::atoi(line.c_str() + colon + 1);
        if (number > 0 && OfTheUser(line)) {
            return Loc{strdup(line.substr(0, colon).c_str()), number};  // for ever, as the names that compilers put into code
        }
    }
#endif
    return Loc{"", 0};
}

}  // namespace emu
}  // namespace anycann
