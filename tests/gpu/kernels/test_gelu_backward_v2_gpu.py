"""gelu_backward_v2 on the GPU: the bits of the CPU."""

import numpy as np
import pytest
from kernels import compare, poisoned
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values

from anycann import gelu_backward_v2

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_mode = pytest.mark.parametrize("mode", ["none", "tanh"])


@every_dtype
@every_mode
@pytest.mark.parametrize("size", [1, 63, 1025, 5120])
def test_sizes(dtype, mode, size):
    kind = DTYPES[dtype]
    x = with_special_values(normal((size,), kind, 1, 3.0), 2)
    compare(gelu_backward_v2, (normal((size,), kind), x, mode), [Watched((size,), kind)])


@every_mode
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_input(dtype, mode):
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    grad = normal(x.shape, x.dtype)
    compare(gelu_backward_v2, (grad, x, mode), [poisoned(x.shape, x.dtype)])


@every_mode
def test_float32_inputs_of_every_size(mode, points):
    x = rng(3).integers(0, 1 << 32, points, dtype=np.uint32).view(np.float32)
    x[::2] = normal(x[::2].shape, np.float32, 4, 4.0)
    compare(gelu_backward_v2, (np.ones_like(x), x, mode), [poisoned(x.shape, x.dtype)])


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    kind = DTYPES[dtype]
    grad, x = lay(normal((3, 5, 40), kind), layout), lay(normal((3, 5, 40), kind, 1), "padded")
    compare(gelu_backward_v2, (grad, x, "none"), [Watched((3, 5, 40), kind, layout)])


@every_dtype
def test_broadcast_operands(dtype):
    kind = DTYPES[dtype]
    for shape, other in (((1,), (70,)), ((4, 1, 33), (1, 6, 33)), ((5, 1), (1, 65)), ((), (2, 40))):
        grad, x = normal(shape, kind), normal(other, kind, 1)
        compare(gelu_backward_v2, (grad, x, "tanh"), [poisoned(np.broadcast_shapes(shape, other), kind)])
    compare(gelu_backward_v2, (np.broadcast_to(normal((40,), kind), (3, 40)), normal((3, 40), kind), "none"), [poisoned((3, 40), kind)])


@pytest.mark.parametrize("first", DTYPES)
@pytest.mark.parametrize("second", DTYPES)
def test_mixed_dtypes(first, second):
    grad, x = normal((130,), DTYPES[first]), normal((130,), DTYPES[second], 1)
    kind = DTYPES[first] if first == second else np.dtype(np.float32)
    compare(gelu_backward_v2, (grad, x, "none"), [poisoned((130,), kind)])


def test_offsets_beyond_32_bits_are_wide():
    from anycann.backends.gpu import wide
    from anycann.dtypes import by_name
    from anycann.tensor import Tensor

    assert wide([Tensor(0, by_name("float32"), (3,), (1 << 30,))], 3, 1024)
    assert wide([Tensor(0, by_name("float32"), (1,), (1,))], (1 << 31) - 1000, 1024)
    assert not wide([Tensor(0, by_name("float32"), (2,), (1 << 30,))], 2, 1024)
