"""layer_norm_grad_beta on the GPU: the bits of the CPU, in the written order of the sums."""

import numpy as np
import pytest
from kernels import DEVICE, compare, poisoned
from operands import DTYPES, LAYOUTS, Watched, lay, normal, with_special_values

from anycann import layer_norm_grad_beta

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_dtype
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (15, 63), (17, 129), (2100, 3), (0, 5)])
def test_rows_and_columns(dtype, rows, width):
    kind = DTYPES[dtype]
    x, dy = normal((rows, width), kind), normal((rows, width), kind, 1)
    compare(layer_norm_grad_beta, (x, dy), [Watched((width,), kind), Watched((width,), kind)])


@pytest.mark.parametrize("width", [1025] if DEVICE == "cpu" else [1025, 5120, 7168])
def test_wide_rows(width):
    kind = DTYPES["bfloat16"]
    x, dy = normal((20, width), kind), normal((20, width), kind, 1)
    compare(layer_norm_grad_beta, (x, dy), [Watched((width,), kind), Watched((width,), kind)])


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    kind = DTYPES[dtype]
    x, dy = lay(normal((3, 7, 20), kind), layout), lay(normal((3, 7, 20), kind, 1), "padded")
    compare(layer_norm_grad_beta, (x, dy), [Watched((20,), kind, layout), Watched((20,), kind, "strided")])


@every_dtype
def test_special_values_and_signs_of_zero(dtype):
    kind = DTYPES[dtype]
    x, dy = (with_special_values(normal((40, 33), kind, seed), seed) for seed in (1, 2))
    compare(layer_norm_grad_beta, (x, dy), [poisoned((33,), kind), poisoned((33,), kind)])
    zeros = np.full((20, 8), -0.0, kind)
    compare(layer_norm_grad_beta, (np.ones_like(zeros), zeros), [poisoned((8,), kind), poisoned((8,), kind)])
    compare(layer_norm_grad_beta, (np.broadcast_to(x[0], (40, 33)), dy), [poisoned((33,), kind), poisoned((33,), kind)])
