"""moe_token_permute_grad on the GPU: the bits of the CPU."""

import numpy as np
import pytest
from kernels import compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values

from anycann import moe_token_permute_grad

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_dtype
@pytest.mark.parametrize("k", [1, 2, 6, 8, 16, 17, 20, 40])
def test_rows_of_a_token(dtype, k):
    kind, tokens = DTYPES[dtype], 3
    indices = rng(k).permutation(tokens * k).astype(np.int32)
    compare(moe_token_permute_grad, (normal((tokens * k, 70), kind), indices, k, False), [Watched((tokens, 70), kind)])


@every_dtype
@pytest.mark.parametrize("width", [1, 63, 1025, 5120, 7168])
def test_widths(dtype, width):
    kind = DTYPES[dtype]
    indices = np.array([3, 0, 1, 2], np.int32)
    compare(moe_token_permute_grad, (normal((4, width), kind), indices, 2, False), [Watched((2, width), kind)])


@every_dtype
def test_dropped_and_repeated_rows(dtype):
    kind = DTYPES[dtype]
    indices = np.array([0, 5, -1, 4, 2**31 - 1, -(2**31), 5, 6, -7, 3, 3, 1], np.int32)
    grad = with_special_values(normal((5, 40), kind), 1)
    grad[3] = -0.0
    compare(moe_token_permute_grad, (grad, indices, 3, False), [Watched((4, 40), kind)])
    compare(moe_token_permute_grad, (grad, np.array([3, -1], np.int32), 1, False), [Watched((2, 40), kind)])


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    kind = DTYPES[dtype]
    indices = lay(rng(1).permutation(12).astype(np.int32), "strided")
    compare(moe_token_permute_grad, (lay(normal((12, 33), kind), layout), indices, 2, False), [Watched((6, 33), kind, layout)])


def test_no_rows_at_all():
    compare(moe_token_permute_grad, (np.zeros((0, 9), np.float32), np.full(4, 7, np.int32), 2, False), [Watched((2, 9), np.float32)])
