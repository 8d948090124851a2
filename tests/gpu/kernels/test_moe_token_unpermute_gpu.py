"""moe_token_unpermute on the GPU: the bits of the CPU."""

import numpy as np
import pytest
from kernels import compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values

from anycann import moe_token_unpermute

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_dtype
@pytest.mark.parametrize("of_weights", DTYPES)
@pytest.mark.parametrize("k", [2, 20])
def test_weights(dtype, of_weights, k):
    kind, tokens = DTYPES[dtype], 3
    indices = rng(k).permutation(tokens * k).astype(np.int32)
    probs = normal((tokens, k), DTYPES[of_weights], 1)
    compare(moe_token_unpermute, (normal((tokens * k, 70), kind), indices, probs, False, None), [Watched((tokens, 70), kind)])


@every_dtype
def test_dropped_rows_zero_and_special_weights(dtype):
    kind = DTYPES[dtype]
    rows = with_special_values(normal((5, 40), kind), 1)
    indices = np.array([0, 5, -1, 4, 2**31 - 1, -(2**31), 1, 2, 3, 3, 3, 1], np.int32)
    probs = np.array([[0, 1, 1], [0.5, 1, 1], [0.0, -0.0, np.nan], [np.inf, -1e-3, 0]], kind)
    compare(moe_token_unpermute, (rows, indices, probs, False, None), [Watched((4, 40), kind)])


@every_dtype
@pytest.mark.parametrize("width", [1, 63, 1025, 5120])
def test_without_weights(dtype, width):
    kind = DTYPES[dtype]
    compare(
        moe_token_unpermute, (normal((4, width), kind), np.array([3, 0, 7, 2], np.int32), None, False, None), [Watched((4, width), kind)]
    )


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    rows, probs = lay(normal((12, 33), np.float16), layout), lay(normal((6, 2), np.float32), layout)
    indices = lay(rng(1).permutation(12).astype(np.int32), "strided")
    compare(moe_token_unpermute, (rows, indices, probs, False, None), [Watched((6, 33), np.float16, layout)])
