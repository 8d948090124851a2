"""layer_norm_grad: pdX and resForGamma against the formula with sums that lose nothing, and as part of a whole backward pass."""

import math

import numpy as np
import pytest
from operands import DTYPES, LAYOUTS, THREADS, Watched, at_the_edge, for_all_threads, lay, normal, raw

import anycann
from anycann.check.standards import ulp
from anycann.runtime import operator_of

BLOCK = 1024
STEP = 2.0**-24


def problem(shape, dtype, seed=0, statistics=None):
    """dy, x, variance, mean and gamma; the mean is that of x but for its rounding."""
    dy, x = normal(shape, dtype, seed), (normal(shape, np.float32, seed + 1) * 3 - 2).astype(dtype)
    wide = x.astype(np.float64)
    kind = dtype if statistics is None else statistics
    statistics = (np.asarray(each).astype(kind) for each in (wide.var(-1), wide.mean(-1)))
    return dy, x, *statistics, normal(shape[-1:], dtype, seed + 2)


def golden(dy, x, variance, mean, gamma, epsilon=1e-5):
    """pdX and resForGamma with their allowed errors."""
    wide = [np.asarray(each, np.float64) for each in (dy, x, variance, mean, gamma)]
    width, shape = dy.shape[-1], dy.shape
    a, c = (wide[0] * wide[4]).reshape(-1, width), (wide[1] - wide[3][..., None]).reshape(-1, width)
    r = (wide[2] + np.float64(np.float32(epsilon))).reshape(-1, 1) ** -0.5

    def sums(terms):
        return np.array([[math.fsum(row)] for row in terms])

    pd_var = sums(-0.5 * a * c * r**3)
    pd_mean = sums(-a * r) + pd_var * sums(-2 * c) / width
    error = 8 * STEP * (np.abs(a) + sums(np.abs(a)) / width + np.abs(c * r) * sums(np.abs(a * c * r)) / width) * r
    values = (a * r + pd_var * 2 * c / width + pd_mean / width, error), (c * r, 3 * STEP * np.abs(c * r))
    return [tuple(each.reshape(shape) for each in pair) for pair in values]


def assert_close(got, value, error):
    half = 0.0 if got.dtype == np.float32 else ulp(np.abs(value) + error, got.dtype.name) / 2
    wrong = ~(np.abs(got.astype(np.float64) - value) <= error + half + 1e-45)
    assert not wrong.any(), (np.argwhere(wrong)[:3], got[wrong][:3], value[wrong][:3])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 37, 128, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 19])
def test_gradient_and_normalised_input(name, width):
    for statistics in (None, np.float32):
        given_ = problem((2, 3, width), DTYPES[name], width, statistics)
        for got, want in zip(anycann.layer_norm_grad(*given_), golden(*given_), strict=True):
            assert got.dtype == DTYPES[name]
            assert_close(got, *want)


def test_a_mean_that_is_not_that_of_the_input():
    dy, x, variance, mean, gamma = problem((4, 300), np.float32, 3)
    given_ = dy, x, variance, mean + 5, gamma
    for got, want in zip(anycann.layer_norm_grad(*given_, 0.5), golden(*given_, 0.5), strict=True):
        np.testing.assert_allclose(got, want[0], rtol=1e-4, atol=1e-4)


def test_with_layer_norm_grad_beta_it_is_layer_norm_backward():
    dy, x = normal((50, 64), np.float32, 4), normal((50, 64), np.float32, 5)
    gamma = normal((64,), np.float32, 6)
    _, mean, rstd = anycann.layer_norm(x, (64,), eps=1e-5)
    variance = x.astype(np.float64).var(1).astype(np.float32)
    pd_x, normalised = anycann.layer_norm_grad(dy, x, variance, mean[:, 0], gamma, 1e-5)
    sums = anycann.layer_norm_grad_beta(normalised, dy)
    for one, other in zip((pd_x, *sums), anycann.layer_norm_backward(dy, x, (64,), mean, rstd, gamma), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(35, 37), (3, 7, 9, 5), (2, BLOCK + 7), (11,)])
def test_layouts(name, layout, shape):
    given_ = problem(shape, DTYPES[name], 7)
    expected = anycann.layer_norm_grad(*given_)
    outs = [Watched(shape, DTYPES[name], layout) for _ in range(2)]
    anycann.layer_norm_grad(*(lay(each, layout) for each in given_), out=tuple(out.array for out in outs))
    assert all(raw(out.check()) == raw(want) for out, want in zip(outs, expected, strict=True))


def test_threads_do_not_matter():
    given_ = problem((500, 333), np.float32, 8)
    assert len(for_all_threads(lambda: anycann.layer_norm_grad(*given_), THREADS)) == 1


@pytest.mark.parametrize("end", [True, False])
def test_nothing_is_touched_beside_the_operands(end):
    for width in (1, 15, 31, 100):
        given_ = problem((19, width), np.float16, 9)
        expected = anycann.layer_norm_grad(*given_)
        with at_the_edge(*given_, *expected, end=end) as arrays:
            anycann.layer_norm_grad(*arrays[:5], out=tuple(arrays[5:]))
            assert all(raw(out) == raw(want) for out, want in zip(arrays[5:], expected, strict=True))


def test_empty_inputs():
    for shape in ((0, 5), (3, 0), (2, 0, 4)):
        assert [one.shape for one in anycann.layer_norm_grad(*problem_of_nothing(shape))] == [shape, shape]


def problem_of_nothing(shape):
    return [np.zeros(each, np.float32) for each in (shape, shape, shape[:-1], shape[:-1], shape[-1:])]


@pytest.mark.parametrize("order", [(0.0, -0.0), (-0.0, 0.0)])
def test_zero_has_no_sign_as_an_attribute(order):
    zero = np.array([-0.0], np.float32)
    inputs = np.ones((1, 2), np.float32), np.array([[1, 3]], np.float32), zero, np.zeros(1, np.float32), np.ones(2, np.float32)
    operator_of(anycann.layer_norm_grad).forget()
    results = [anycann.layer_norm_grad(*inputs, epsilon) for epsilon in order]
    assert all(np.array_equal(res_for_gamma, np.full((1, 2), np.inf)) for _, res_for_gamma in results)
