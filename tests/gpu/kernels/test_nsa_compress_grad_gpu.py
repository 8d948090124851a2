"""nsa_compress_grad on the GPU: the bits of the CPU, in the written order of the sums."""

import numpy as np
import pytest
from kernels import compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, with_special_values

from anycann import nsa_compress_grad
from anycann.ops.windows import windows

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def check(dtype, tokens, heads, width, block, stride, lengths=None, layout="plain", special=False):
    kind = DTYPES[dtype]
    count = windows(lengths, tokens, block, stride)
    arrays = normal((count, heads, width), kind), normal((tokens, heads, width), kind, 1), normal((block, heads), kind, 2)
    if special:
        arrays = tuple(with_special_values(array, seed) for seed, array in enumerate(arrays))
    grad, x, weight = (lay(array, layout) for array in arrays)
    outs = [Watched(x.shape, kind, layout), Watched(weight.shape, kind, layout)]
    compare(nsa_compress_grad, (grad, x, weight, lengths, block, stride, 0, "TND"), outs, (tokens, heads, width, block, stride, lengths))


@every_dtype
@pytest.mark.parametrize(
    ("width", "block", "stride"), [(16, 32, 16), (48, 64, 16), (192, 32, 16), (32, 64, 48), (32, 32, 32), (16, 128, 32)]
)
def test_windows(dtype, width, block, stride):
    check(dtype, 210, 2, width, block, stride)


def test_rows_of_several_runs():
    for width in (256, 528):
        check("bfloat16", 70, 1, width, 32, 16)
    check("float32", 40, 1, 272, 32, 32)


@every_dtype
def test_more_than_one_partial_sum(dtype):
    check(dtype, 2060, 1, 16, 32, 16)


@pytest.mark.parametrize(
    "lengths", [(0, 40, 300, 300, 1055, 1100), (13, 290, 300, 1100), (1100,), (1023, 1025, 1100), tuple(range(50, 1101, 50))]
)
def test_several_sequences(lengths):
    check("bfloat16", 1100, 1, 16, 32, 16, lengths)
    check("float32", 1100, 1, 16, 64, 48, lengths)


@every_dtype
def test_special_values(dtype):
    check(dtype, 150, 2, 32, 64, 16, special=True)


def test_sequences_shorter_than_a_window():
    check("float32", 20, 2, 16, 32, 16)
    check("bfloat16", 60, 1, 16, 48, 16, (20, 40, 60))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    for dtype in ("bfloat16", "float32"):
        check(dtype, 100, 2, 32, 32, 16, None, layout)


def test_tables_hold_every_token_once():
    from anycann.ops.nsa_compress_grad.gpu import _tables

    for lengths in (None, (0, 40, 300, 300, 2055, 3100), (1024, 2048, 3100), (3100,)):
        segments, ranges = _tables(lengths, 3100, 32, 16)
        assert ranges[0] == 0
        assert ranges[-1] == len(segments)
        assert [*segments[1:, 0]] == [*segments[:-1, 1]]
        for chunk in range(len(ranges) - 1):
            low, high = ranges[chunk : chunk + 2]
            assert set(segments[low:high, 0] // 1024) | set((segments[low:high, 1] - 1) // 1024) == {chunk}
        np.testing.assert_array_equal(segments[:, 5], (segments[:, 0] - segments[:, 2]) // 16 * 16)
