// For programs that run a kernel on host memory: GmAlloc, GmFree, ICPU_RUN_KF.
#ifndef ANYCANN_TIKICPULIB_H
#define ANYCANN_TIKICPULIB_H

#include <cstdint>

#include "kernel_operator.h"

enum class KernelMode { MIX_MODE, AIC_MODE, AIV_MODE };

namespace AscendC {

// Global memory with a known size, so that a copy past its end is found. Contents are undefined until written.
inline void* GmAlloc(std::size_t bytes) { return anycann_ascendc_gm_alloc(bytes); }
inline void GmFree(void* address) { anycann_ascendc_gm_free(address); }
inline void SetKernelMode(KernelMode) {}

}  // namespace AscendC

#endif
