// What a kernel says and claims: PRINTF, printf, ASSERT, ascendc_assert, and the assert of C.
#ifndef ANYCANN_EMU_PRINT_H
#define ANYCANN_EMU_PRINT_H

#include <cstdarg>
#include <cstdio>
#include <string>

#include "emu/names.h"

namespace anycann {
namespace emu {

// printf takes numbers of C only: the types of two bytes print as floats.
template <typename T>
T Printable(T value) { return value; }
inline float Printable(half value) { return value; }
inline float Printable(bfloat16_t value) { return value; }

inline std::string Written(const char* format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int size = std::vsnprintf(nullptr, 0, format, arguments);
    std::string text(static_cast<std::size_t>(size < 0 ? 0 : size) + 1, '\0');
    std::vsnprintf(&text[0], text.size(), format, again);
    va_end(again);
    va_end(arguments);
    text.pop_back();
    return text;
}

// The text is made before the stream is touched, whose lock a block that is stopped meanwhile would keep.
template <typename... A>
int Print(const char* format, A... values)
{
    const std::string text = Written(format, values...);
    return static_cast<int>(std::fwrite(text.data(), 1, text.size(), stdout));
}

inline void Claim(const char* api, const Loc& loc, const char* condition, bool holds)
{
    if (!holds) {
        Stop("assert", loc, api, "%s does not hold", condition);
    }
}
// With a message and its values; the text of the condition is what stands before the message.
template <typename... A>
void Claim(const char* api, const Loc& loc, const char* arguments, bool holds, const char* format, A... values)
{
    if (!holds) {
        const std::string all = arguments, said = std::string("%s does not hold: ") + format;
        Stop("assert", loc, api, said.c_str(), all.substr(0, all.find(", \"")).c_str(), Printable(values)...);
    }
}

}  // namespace emu
}  // namespace anycann

namespace AscendC {

// To the standard output of the program; half and bfloat16_t are floats for the format.
template <typename... A>
int PRINTF(const char* format, A... values) { return anycann::emu::Print(format, anycann::emu::Printable(values)...); }
template <typename... A>
int printf(const char* format, A... values) { return anycann::emu::Print(format, anycann::emu::Printable(values)...); }

}  // namespace AscendC

using AscendC::PRINTF;

#ifndef ASSERT
#define ASSERT(...) anycann::emu::Claim("ASSERT", anycann::emu::Loc::current(), #__VA_ARGS__, __VA_ARGS__)
#endif
#if defined(__GLIBC__)  // what <assert.h> calls, wherever it is included: a kernel's claim ends the kernel, any other one the process
extern "C" [[noreturn]] void anycann_ascendc_assert_fail(const char* condition, const char* file, unsigned line, const char* function) noexcept;
#define __assert_fail anycann_ascendc_assert_fail
#endif
#define ascendc_assert(...) anycann::emu::Claim("ascendc_assert", anycann::emu::Loc::current(), #__VA_ARGS__, __VA_ARGS__)

#endif
