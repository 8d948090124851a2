// The layer-norm functions come with kernel_operator.h; this name is kept for kernels that include it.
#include "kernel_operator.h"
