// Faults of the processor in a kernel: a pointer to no memory, a division by 0, a stack that is full; and the assert of C. They end the
// block, not the process.
#include "faults.h"

#include <csetjmp>
#include <csignal>

#include <pthread.h>
#include <ucontext.h>

namespace anycann {
namespace emu {

struct Trap {
    sigjmp_buf back;
    int signal = 0, code = 0;
    const void* address = nullptr;
    std::uintptr_t counter = 0;
};

static std::uintptr_t CounterOf([[maybe_unused]] const void* context)
{
#if defined(__linux__) && defined(__x86_64__)
    return static_cast<std::uintptr_t>(static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
#elif defined(__linux__) && defined(__aarch64__)
    return static_cast<const ucontext_t*>(context)->uc_mcontext.pc;
#else
    return 0;
#endif
}

static thread_local Trap* tTrap = nullptr;

static constexpr int kSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
static constexpr int kCount = sizeof kSignals / sizeof *kSignals;
static struct sigaction before[kCount];  // whose signals these are where no kernel runs
static volatile std::sig_atomic_t passed[kCount];

static void Caught(int signal, siginfo_t* info, void* context)
{
    Trap* trap = tTrap;
    if (trap != nullptr && info->si_code > 0) {  // of this thread's own instruction, not sent by somebody
        tTrap = nullptr;
        trap->signal = signal;
        trap->code = info->si_code;
        trap->address = info->si_addr;
        trap->counter = CounterOf(context);
        siglongjmp(trap->back, 1);
    }
    for (int i = 0; i < kCount; ++i) {
        if (kSignals[i] == signal) {  // the instruction runs once more, for those who were there before; who comes back has nothing to do
            struct sigaction plain {};
            plain.sa_handler = SIG_DFL;
            sigaction(signal, passed[i] != 0 ? &plain : &before[i], nullptr);
            passed[i] = 1;
            if (info->si_code <= 0) {
                raise(signal);
            }
        }
    }
}

static std::mutex signalsMutex;
void SignalsLock() { signalsMutex.lock(); }
void SignalsUnlock() { signalsMutex.unlock(); }

void TakeSignals()
{
#if !defined(__SANITIZE_ADDRESS__)  // which reports faults itself
    std::lock_guard<std::mutex> lock(signalsMutex);
    for (int i = 0; i < kCount; ++i) {
        struct sigaction now {};
        sigaction(kSignals[i], nullptr, &now);
        if ((now.sa_flags & SA_SIGINFO) == 0 || now.sa_sigaction != &Caught) {
            before[i] = now;
            passed[i] = 0;
            struct sigaction ours {};
            ours.sa_sigaction = &Caught;
            ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
            sigaction(kSignals[i], &ours, nullptr);
        }
    }
#endif
}

// A stack for the handler, as the kernel's may be full.
class HandlersStack {
public:
    HandlersStack() : memory_(new char[kBytes])
    {
        stack_t stack{};
        stack.ss_sp = memory_.get();
        stack.ss_size = kBytes;
        sigaltstack(&stack, nullptr);
    }
    ~HandlersStack()
    {
        stack_t none{};
        none.ss_flags = SS_DISABLE;
        sigaltstack(&none, nullptr);
    }

private:
    static constexpr std::size_t kBytes = 1 << 16;
    std::unique_ptr<char[]> memory_;
};

static bool BelowTheStack([[maybe_unused]] std::intptr_t address)
{
#if defined(__linux__)
    constexpr std::intptr_t kNear = 1 << 20, kPage = 1 << 12;
    pthread_attr_t attributes;
    void* lowest = nullptr;
    std::size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) {
        return false;
    }
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    const std::intptr_t end = reinterpret_cast<std::intptr_t>(lowest);
    return end - kNear <= address && address < end + kPage;
#else
    return false;
#endif
}

static std::string Described(const Trap& trap)
{
    constexpr std::intptr_t kUnifiedBuffer = 1 << 18;
    const std::intptr_t address = reinterpret_cast<std::intptr_t>(trap.address);
    if (trap.signal == SIGFPE && trap.code != FPE_INTDIV) {
        return "the kernel computed with a floating-point trap on, which it had set itself";
    }
    if (trap.signal == SIGFPE) {
        return "the kernel divided an integer by 0, or the smallest one by -1";
    }
    if (trap.signal == SIGILL) {
        return "the kernel came to an instruction that stands where a program cannot go on";
    }
    if (BelowTheStack(address)) {
        return "the kernel's stack is full: a recursion without end, or large arrays";
    }
#if defined(SI_KERNEL)
    if (trap.code == SI_KERNEL) {
        return "the kernel read or wrote at what can be no address";
    }
#endif
    if (0 <= address && address < kUnifiedBuffer) {
        return Format("the kernel read or wrote at address %#llx, by a null pointer, or by one made of a LocalTensor's place in the Unified Buffer",
                      static_cast<unsigned long long>(address));
    }
    return Format("the kernel read or wrote at address %#llx, where no memory for it is", static_cast<unsigned long long>(address));
}

Ending CallKernel(void (*call)(void*), void* context)
{
    static thread_local HandlersStack stack;
    struct Scope {
        explicit Scope(Trap* trap) { tTrap = trap; }
        ~Scope() { tTrap = nullptr; }
    };
    Trap trap;
    if (sigsetjmp(trap.back, 0) != 0) {
        AtomicRelease();
        return {true, trap.signal == 0 ? std::string() : Described(trap), trap.counter};
    }
    const Scope scope(&trap);
    call(context);
    return {false, std::string(), 0};
}

}  // namespace emu
}  // namespace anycann

#if defined(__GLIBC__)
extern "C" {

[[noreturn]] void __assert_fail(const char* condition, const char* file, unsigned line, const char* function) noexcept;

// What `assert` calls in sources with kernels. It may not throw: compilers count on that.
[[noreturn]] void anycann_ascendc_assert_fail(const char* condition, const char* file, unsigned line, const char* function) noexcept
{
    using namespace anycann::emu;
    Trap* trap = tTrap;
    if (trap == nullptr) {
        __assert_fail(condition, file, line, function);
    }
    tTrap = nullptr;
    Note(Current(), "assert", Loc{file, static_cast<int>(line)}, "assert", nullptr, Format("%s does not hold", condition));
    siglongjmp(trap->back, 1);
}
}
#endif
