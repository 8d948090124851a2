"""gelu_v2 on the GPU: the bits of the CPU."""

import numpy as np
import pytest
from kernels import compare, poisoned
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values

from anycann import gelu_v2

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_mode = pytest.mark.parametrize("mode", ["none", "tanh"])


@every_dtype
@every_mode
@pytest.mark.parametrize("size", [1, 63, 1025, 5120])
def test_sizes(dtype, mode, size):
    x = with_special_values(normal((size,), DTYPES[dtype], 1, 3.0), 2)
    compare(gelu_v2, (x, mode), [Watched((size,), x.dtype)])


@every_mode
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_input(dtype, mode):
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    compare(gelu_v2, (x, mode), [poisoned(x.shape, x.dtype)])


@every_mode
def test_float32_inputs_of_every_size(mode, points):
    x = rng(3).integers(0, 1 << 32, points, dtype=np.uint32).view(np.float32)
    x[::2] = normal(x[::2].shape, np.float32, 4, 4.0)
    compare(gelu_v2, (x, mode), [poisoned(x.shape, x.dtype)])


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    x = lay(normal((3, 5, 40), DTYPES[dtype]), layout)
    compare(gelu_v2, (x, "none"), [Watched((3, 5, 40), x.dtype, "padded")])
