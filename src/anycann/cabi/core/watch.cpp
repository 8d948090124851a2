// The check mode's part that cannot be Python: faults of host code that uses a device address, the end of the process and its status.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define ANYCANN_HAS_BACKTRACE
#endif

#include "acl/acl_base.h"
#include "inside.h"

namespace {

// The same as in device/watch_memory.py, which keeps them up to date.
struct Range {
    uint64_t low, end, size;
    uint32_t number, freed;
};

struct Table {
    const Range *ranges;
    uint64_t count, findings;
    uint64_t *of_all;
    const char *path, *mark;
};

constexpr int kFrames = 48, kShown = 8;

std::atomic<Table *> table{nullptr};
pid_t owner = 0;
int ending = 1;  // the status that the process ends with; one that stays where the system does not tell
struct sigaction before;

// A text in memory of its own: nothing here may allocate.
class Text {
public:
    Text &operator<<(const char *part)
    {
        while (*part != '\0' && length_ < sizeof text_) {
            text_[length_++] = *part++;
        }
        return *this;
    }

    Text &Number(uint64_t value, unsigned base = 10)
    {
        char digits[32];
        unsigned place = sizeof digits;
        digits[--place] = '\0';
        do {
            digits[--place] = "0123456789abcdef"[value % base];
            value /= base;
        } while (value != 0);
        return *this << (base == 16 ? "0x" : "") << digits + place;
    }

    void WriteTo(int file) const
    {
        if (write(file, text_, length_) < 0) {
            return;  // there is nobody left to tell
        }
    }

    const char *Whole()
    {
        text_[length_ < sizeof text_ ? length_ : sizeof text_ - 1] = '\0';
        return text_;
    }

private:
    char text_[2048];
    size_t length_ = 0;
};

const Range *Find(const Table &known, uintptr_t address)
{
    for (uint64_t i = 0; i < known.count; ++i) {
        const Range &range = known.ranges[i];
        if (range.low <= address && address < range.end) {
            return &range;
        }
    }
    return nullptr;
}

#if defined(__x86_64__)
const char *Verb(const ucontext_t &context) { return (context.uc_mcontext.gregs[REG_ERR] & 2) != 0 ? "wrote to" : "read"; }
uintptr_t Counter(const ucontext_t &context) { return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]); }
#elif defined(__aarch64__)
const char *Verb(const ucontext_t &) { return "used"; }
uintptr_t Counter(const ucontext_t &context) { return context.uc_mcontext.pc; }
#else
const char *Verb(const ucontext_t &) { return "used"; }
uintptr_t Counter(const ucontext_t &) { return 0; }
#endif

// Function and line of a place in the program, where it has debug information and the tool for it is there.
void Look(void *place, bool after)
{
    Dl_info info;
    if (dladdr(place, &info) == 0 || info.dli_fname == nullptr) {
        return;
    }
    const bool moved = static_cast<const ElfW(Ehdr) *>(info.dli_fbase)->e_type == ET_DYN;  // else addresses are those of the file
    const uintptr_t base = moved ? reinterpret_cast<uintptr_t>(info.dli_fbase) : 0;
    Text offset;
    offset.Number(reinterpret_cast<uintptr_t>(place) - base - (after ? 1 : 0), 16);
    const pid_t child = vfork();  // without what others do around a fork
    if (child == 0) {
        dup2(2, 1);
        const int none = open("/dev/null", O_WRONLY);
        dup2(none, 2);
        execlp("addr2line", "addr2line", "-C", "-f", "-p", "-e", info.dli_fname, offset.Whole(), static_cast<char *>(nullptr));
        _exit(127);
    }
    if (child > 0) {
        waitpid(child, nullptr, 0);
    }
}

bool OfTheSystem(void *place)
{
    Dl_info info;
    return dladdr(place, &info) == 0 || info.dli_fname == nullptr || std::strstr(info.dli_fname, "/libc.so") != nullptr ||
           std::strstr(info.dli_fname, "/libstdc++.so") != nullptr;
}

void ShowFrames(uintptr_t counter)
{
#ifdef ANYCANN_HAS_BACKTRACE
    void *frames[kFrames];
    const int count = backtrace(frames, kFrames);
    int first = 0;
    while (first < count && reinterpret_cast<uintptr_t>(frames[first]) != counter) {
        ++first;
    }
    first = first == count ? 0 : first;
    backtrace_symbols_fd(frames + first, count - first < kShown ? count - first : kShown, 2);
    for (int i = first; i < count; ++i) {
        if (!OfTheSystem(frames[i])) {
            Look(frames[i], i > first);
            return;
        }
    }
#else
    Look(reinterpret_cast<void *>(counter), false);
#endif
}

void Report(Table &known, const Range &range, uintptr_t address, const ucontext_t &context)
{
    const uint64_t offset = address - range.low;
    Text what;
    what << "host code " << Verb(context) << " device address ";
    what.Number(address, 16) << ": byte ";
    what.Number(offset) << (offset < range.size ? "" : ", past the end,") << " of allocation #";
    what.Number(range.number) << " of ";
    what.Number(range.size) << " bytes" << (range.freed != 0 ? ", which was freed." : ".");
    const char *kind = "host access to device memory";
    const char *mend = "Copy between host and device memory with aclrtMemcpy.";
    Text said;
    said << "anycann check: " << kind << "\n  " << what.Whole() << "\n  " << mend << "\n";
    said.WriteTo(2);
    ++known.findings;
    ++*known.of_all;
    if (known.mark != nullptr) {
        close(open(known.mark, O_WRONLY | O_CREAT, 0666));
    }
    const int file = known.path == nullptr ? -1 : open(known.path, O_WRONLY | O_APPEND | O_CREAT, 0666);
    if (file >= 0) {
        Text line;
        line << "{\"kind\": \"" << kind << "\", \"api\": \"\", \"parameter\": \"\", \"what\": \"" << what.Whole() << "\", \"mend\": \"" << mend
             << "\", \"allocation\": ";
        line.Number(range.number) << ", \"memory\": \"\", \"site\": \"\"}\n";
        line.WriteTo(file);
        close(file);
    }
    ShowFrames(Counter(context));
    Text last;
    last << "anycann check: ";
    last.Number(known.findings) << (known.findings == 1 ? " finding\n" : " findings\n");
    last.WriteTo(2);
}

// Say what is known of the address, and let the fault happen again as if nobody had looked.
void OnFault(int signal, siginfo_t *info, void *context)
{
    Table *known = table.load();
    const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    const Range *range = info->si_code > 0 && known != nullptr ? Find(*known, address) : nullptr;
    sigaction(signal, &before, nullptr);
    if (range != nullptr) {
        Report(*known, *range, address, *static_cast<const ucontext_t *>(context));
    }
    if (info->si_code <= 0) {
        raise(signal);
    }
}

// The rest of the report; in a process that runs Python itself, Python has written it before it ended. All that the program runs at its
// end is done, which may free what it holds.
void Finish()
{
    Table *known = table.load();
    if (known == nullptr) {
        return;
    }
    if (getpid() == owner) {  // what a forked process has not made is not its own to free
        CallPython("anycann.device.watch", "finish");
    }
    if (ending == 0 && known->findings != 0) {
        std::fflush(nullptr);
        _exit(1);
    }
}

// Two things happen at the end, of which the later one finishes: destructors of libraries, the program's own handlers before them; and the
// function that learns the status, which comes after them where these libraries are the program's, and before where it has loaded them.
#if defined(__GLIBC__)
int left = 2;

__attribute__((constructor)) void LearnTheStatus()
{
    on_exit(
        [](int status, void *) {
            ending = status;
            if (--left == 0) {
                Finish();
            }
        },
        nullptr);
}
#else
int left = 1;
#endif

__attribute__((destructor)) void Destroy()
{
    if (--left == 0) {
        Finish();
    }
}

}  // namespace

extern "C" {

// Begin to report faults; the table stays where it is.
ANYCANN_API void anycann_watch_start(uintptr_t address)
{
    owner = getpid();
    table.store(reinterpret_cast<Table *>(address));
#ifdef ANYCANN_HAS_BACKTRACE
    void *frames[1];
    backtrace(frames, 1);  // loads what it needs now, not in the handler
#endif
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}

}  // extern "C"
