"""layer_norm_grad on the GPU: the bits of the CPU."""

import itertools

import numpy as np
import pytest
from kernels import DEVICE, cancelling, compare, poisoned
from operands import DTYPES, LAYOUTS, Watched, lay, normal, with_special_values

from anycann import layer_norm_grad
from anycann.backends import gpu_rows

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def problem(shape, kind, statistics=None, gamma=None):
    """dy, x, variance, mean and gamma."""
    rows, other = shape[:-1], statistics or kind
    variance, mean = np.abs(normal(rows, other, 3)) + other.type(0.1), normal(rows, other, 4)
    return normal(shape, kind, 1), normal(shape, kind, 2), variance, mean, normal(shape[-1:], gamma or kind, 5)


def outputs(x, layout="plain"):
    """Room for pdX and resForGamma."""
    return [Watched(x.shape, x.dtype, layout), Watched(x.shape, x.dtype, "padded")]


@every_dtype
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 63), (34, 129), (0, 5)])
def test_rows_and_columns(dtype, rows, width):
    given = problem((rows, width), DTYPES[dtype])
    compare(layer_norm_grad, (*given, 1e-5), outputs(given[0]))


@pytest.mark.parametrize(("dtype", "rows"), [("bfloat16", 5), ("float32", 2)])
@pytest.mark.parametrize("width", [1025] if DEVICE == "cpu" else [1025, 5120, 7168, 20000])
def test_long_rows(dtype, rows, width):
    given = problem((rows, width), DTYPES[dtype])
    compare(layer_norm_grad, (*given, 1e-5), outputs(given[0]))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_order_of_the_sums(dtype):
    dy, x, variance, mean, gamma = problem((20, 90), DTYPES[dtype])
    large = cancelling(x.shape, x.dtype, 1)
    compare(layer_norm_grad, (dy, large, variance, mean, gamma, 1e-5), outputs(x))
    variance, gamma = np.full_like(variance, 2.0**80), np.ones_like(gamma)  # of pdX little else is left
    compare(layer_norm_grad, (large, x, variance, mean, gamma, 1e-5), outputs(x))
    one, _ = layer_norm_grad(large, x, variance, mean, gamma)
    other, _ = layer_norm_grad(large[:, ::-1], x[:, ::-1], variance, mean, gamma)
    assert (one != other[:, ::-1]).any(), "another order gives other bits"


@pytest.mark.parametrize(("layout", "dtype"), [*zip(LAYOUTS, itertools.cycle(DTYPES))])
def test_layouts(dtype, layout):
    given = [lay(each, layout) for each in problem((2, 5, 20), DTYPES[dtype])]
    compare(layer_norm_grad, (*given, 1e-5), outputs(given[0], layout))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_dtypes_of_the_statistics_and_of_gamma(dtype):
    single = DTYPES["float32"]
    for statistics, gamma in ((single, None), (None, single), (single, single)):
        given = problem((6, 33), DTYPES[dtype], statistics, gamma)
        compare(layer_norm_grad, (*given, 1e-5), outputs(given[0]))


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 0.1, 1.0])
def test_epsilon_and_wide_offsets(epsilon, monkeypatch):
    monkeypatch.setattr(gpu_rows, "wide", lambda *given: True)
    given = problem((3, 17), DTYPES["float32"])
    compare(layer_norm_grad, (*given, epsilon), outputs(given[0]))


@every_dtype
def test_special_values(dtype):
    dy, x, variance, mean, gamma = problem((30, 35), DTYPES[dtype])
    dy[::3], x[1::3] = with_special_values(dy[::3], 1), with_special_values(x[1::3], 2)
    variance[:4], mean[4:6], mean[6] = [0, np.inf, np.nan, 0.5], [np.inf, np.nan], -0.0
    for epsilon in (0.0, 1e-5):
        compare(layer_norm_grad, (dy, x, variance, mean, gamma, epsilon), [poisoned(x.shape, x.dtype), poisoned(x.shape, x.dtype)])


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e15, 1e30])
def test_sizes_of_numbers(scale):
    dy, x, variance, mean, gamma = problem((8, 40), DTYPES["float32"])
    small, large = np.float32(scale), np.float32(1 / scale)
    for factors in ((small, large), (small, small), (large, small)):
        given = dy * factors[0], x * factors[1], variance, mean * factors[1], gamma
        compare(layer_norm_grad, (*given, 1e-5), [poisoned(x.shape, x.dtype), poisoned(x.shape, x.dtype)])
