"""layer_norm_backward on the GPU: the bits of the CPU, in the written order of the sums."""

import itertools

import numpy as np
import pytest
from kernels import DEVICE, cancelling, compare, poisoned
from operands import DTYPES, LAYOUTS, Watched, lay, normal, with_special_values

from anycann import layer_norm_backward
from anycann.backends import gpu_rows
from anycann.ops.layer_norm_backward import gpu

ALL = (True, True, True)
SINGLE = DTYPES["float32"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def problem(shape, kind, axes=1, statistics=SINGLE, parameter=None):
    """dy, x, the normalised shape, mean, rstd and weight."""
    inner, ones = shape[len(shape) - axes :], (*shape[: len(shape) - axes], *[1] * axes)
    mean, rstd = normal(ones, statistics, 3), np.abs(normal(ones, statistics, 4)) + statistics.type(0.1)
    return normal(shape, kind, 1), normal(shape, kind, 2), inner, mean, rstd, normal(inner, parameter or kind, 5)


def outputs(given, layout="plain", mask=ALL):
    """Room for the gradients of input, weight and bias."""
    x, inner, weight = given[1], given[2], given[5]
    kind = x.dtype if weight is None else weight.dtype
    made = Watched(x.shape, x.dtype, layout), Watched(inner, kind, layout), Watched(inner, kind, "strided")
    return [out if wanted else None for out, wanted in zip(made, mask, strict=True)]


@every_dtype
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (15, 63), (33, 20), (0, 5)])
def test_rows_and_columns(dtype, rows, width):
    given = problem((rows, width), DTYPES[dtype])
    compare(layer_norm_backward, (*given, None, ALL), outputs(given))


@pytest.mark.parametrize(("dtype", "width"), [("bfloat16", 1025)] if DEVICE == "cpu" else itertools.product(DTYPES, [1025, 5120, 20000]))
def test_long_rows(dtype, width):
    given = problem((3, width), DTYPES[dtype])
    compare(layer_norm_backward, (*given, None, ALL), outputs(given))


@pytest.mark.parametrize(("dtype", "rows", "side_by_side"), [("float16", 1100, 1), ("bfloat16", 2100, 64)])
def test_many_rows(dtype, rows, side_by_side, monkeypatch):
    monkeypatch.setattr(gpu, "_SIDE_BY_SIDE", side_by_side)
    given, mask = problem((rows, 3), DTYPES[dtype]), (False, True, True)
    compare(layer_norm_backward, (*given, None, mask), outputs(given, mask=mask))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_order_of_the_sums(dtype):
    _, x, inner, mean, rstd, _ = problem((20, 90), DTYPES[dtype])
    back = np.s_[::-1, ::-1]
    for large, scale, which in (
        (cancelling((20, 90), DTYPES[dtype], 1), np.full_like(rstd, 2.0**-40), 0),  # of gradInput little else is left
        (cancelling((90, 20), DTYPES[dtype], 2).T, rstd, 2),
    ):
        given = large, x, inner, mean, scale, None
        compare(layer_norm_backward, (*given, None, ALL), outputs(given))
        one, other = layer_norm_backward(*given), layer_norm_backward(large[back], x[back], inner, mean[::-1], scale[::-1])
        assert (one[which] != other[which][back[: one[which].ndim]]).any(), "another order gives other bits"


@pytest.mark.parametrize(("layout", "dtype"), [*zip(LAYOUTS, itertools.cycle(DTYPES))])
def test_layouts(dtype, layout):
    dy, x, inner, *rest = problem((2, 3, 5, 4), DTYPES[dtype], 2)
    given = lay(dy, layout), lay(x, "padded"), inner, *[lay(each, layout) for each in rest]
    compare(layer_norm_backward, (*given, None, ALL), outputs(given, layout))
    given = np.broadcast_to(dy[:1], dy.shape), lay(x, layout), *given[2:]
    compare(layer_norm_backward, (*given, None, ALL), outputs(given))


@pytest.mark.parametrize("mask", [mask for mask in itertools.product((False, True), repeat=3) if any(mask)])
def test_output_mask(mask):
    given = problem((18, 20), DTYPES["float16"])
    compare(layer_norm_backward, (*given, None, mask), outputs(given, mask=mask))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_of_the_statistics_and_of_the_weight(dtype):
    kind = DTYPES[dtype]
    for statistics, parameter in ((kind, None), (SINGLE, SINGLE), (kind, SINGLE)):
        given = problem((17, 33), kind, 1, statistics, parameter)
        compare(layer_norm_backward, (*given, None, ALL), outputs(given))
    without = *given[:5], None
    compare(layer_norm_backward, (*without, None, ALL), outputs(without))


def test_all_axes_are_normalised_and_offsets_may_be_wide(monkeypatch):
    monkeypatch.setattr(gpu_rows, "wide", lambda *given: True)
    for axes in (1, 3):
        given = problem((3, 4, 20), SINGLE, axes)
        compare(layer_norm_backward, (*given, None, ALL), outputs(given))


@every_dtype
def test_special_values_and_signs_of_zero(dtype):
    dy, x, inner, mean, rstd, weight = problem((36, 35), DTYPES[dtype])
    dy[::7, :9], x[1::7, 9:20] = with_special_values(dy[::7, :9], 1), with_special_values(x[1::7, 9:20], 2)
    outs = [poisoned(x.shape, x.dtype), poisoned(inner, x.dtype), poisoned(inner, x.dtype)]
    compare(layer_norm_backward, (dy, x, inner, mean, rstd, weight, None, ALL), outs)
    zeros = np.full_like(dy, -0.0)
    compare(layer_norm_backward, (zeros, np.abs(np.nan_to_num(x)), inner, mean * 0, rstd, weight, None, ALL), outs)
