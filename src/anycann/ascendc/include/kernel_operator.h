// anycann's Ascend C: what a kernel includes. The emulated vector core, its instructions and the layer-norm functions.
#ifndef ANYCANN_KERNEL_OPERATOR_H
#define ANYCANN_KERNEL_OPERATOR_H

#include "emu/layernorm.h"
#include "emu/launch.h"
#include "emu/print.h"
#include "emu/unsupported.h"

#endif
