// What host code asks about the product. The values are those of the product that the file is compiled for.
#ifndef ANYCANN_PLATFORM_ASCENDC_H
#define ANYCANN_PLATFORM_ASCENDC_H

#include <cstdint>

#include "emu/launch.h"

namespace platform_ascendc {

enum class CoreMemType { L0_A, L0_B, L0_C, L1, L2, UB, HBM, RESERVED };

class PlatformAscendC {
public:
    explicit PlatformAscendC(const void* = nullptr) {}
    std::uint32_t GetCoreNum() const { return ANYCANN_CORES; }
    std::uint32_t GetCoreNumAiv() const { return ANYCANN_CORES; }
    // Only the Unified Buffer is emulated; other memories have no size here.
    void GetCoreMemSize(const CoreMemType& type, std::uint64_t& size) const { size = type == CoreMemType::UB ? ANYCANN_UB_BYTES - ANYCANN_UB_RESERVED : 0; }
    std::uint32_t GetLibApiWorkSpaceSize() const { return 0; }
};

class PlatformAscendCManager {
public:
    static PlatformAscendC* GetInstance()
    {
        static PlatformAscendC platform;
        return &platform;
    }
};

}  // namespace platform_ascendc

#endif
