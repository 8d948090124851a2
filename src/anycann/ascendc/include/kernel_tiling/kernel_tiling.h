// The tiling structs a kernel receives, visible without a namespace.
#ifndef ANYCANN_KERNEL_TILING_H
#define ANYCANN_KERNEL_TILING_H

#include <cstdint>

#include "emu/layernorm_fields.h"

#define ANYCANN_MEMBER(name) uint32_t name = 0;

struct LayerNormGradBetaTiling {
    ANYCANN_LayerNormGradBetaTiling(ANYCANN_MEMBER)
};

struct LayerNormGradTiling {
    ANYCANN_LayerNormGradTiling(ANYCANN_MEMBER)
};

struct LayerNormTiling {
    ANYCANN_LayerNormTiling(ANYCANN_MEMBER)
};

#undef ANYCANN_MEMBER

static_assert(sizeof(LayerNormGradBetaTiling) == 80, "20 fields of 4 bytes");

#endif
