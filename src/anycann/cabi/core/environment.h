// The floating-point environment of a call: rounding, traps and the flushing of small numbers that a program has chosen are its own.
#ifndef ANYCANN_CABI_ENVIRONMENT_H
#define ANYCANN_CABI_ENVIRONMENT_H

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

// The default one while it lives, for threads that are started as well; then that of the program again.
class DefaultEnvironment {
public:
#if defined(__x86_64__)
    // Saving everything takes long; a program seldom changes the part of long double.
    DefaultEnvironment() : vectors_(_mm_getcsr())
    {
        unsigned short old = 0;
        __asm__ volatile("fnstcw %0" : "=m"(old));
        changed_ = old != 0x37F;
        if (changed_) {
            std::fegetenv(&all_);
            std::fesetenv(FE_DFL_ENV);
        }
        _mm_setcsr(0x1F80);
    }
    ~DefaultEnvironment()
    {
        if (changed_) {
            std::fesetenv(&all_);
        }
        _mm_setcsr(vectors_);
    }
#else
    DefaultEnvironment()
    {
        std::fegetenv(&all_);
        std::fesetenv(FE_DFL_ENV);
    }
    ~DefaultEnvironment() { std::fesetenv(&all_); }
#endif
    DefaultEnvironment(const DefaultEnvironment &) = delete;
    DefaultEnvironment &operator=(const DefaultEnvironment &) = delete;

private:
    std::fenv_t all_;
#if defined(__x86_64__)
    unsigned vectors_;
    bool changed_;
#endif
};

#endif
