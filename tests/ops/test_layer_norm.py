"""layer_norm: out against the formula with exact row sums, mean and rstd, for every dtype, layout and number of threads."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operands import (
    DTYPES,
    LAYOUTS,
    THREADS,
    Watched,
    assert_same,
    at_the_edge,
    closer_than_rows,
    dtypes,
    for_all_threads,
    lay,
    layouts,
    normal,
    raw,
    rng,
    seeds,
    single,
)

import anycann
from anycann.check.standards import ulp

BLOCK = 1024
WIDTHS = (1, 2, 15, 16, 17, 37, 128, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 19)
STEP = 2.0**-24


def golden(x, weight=None, bias=None, eps=1e-5):
    """Value, its allowed error before the last rounding, mean and rstd of rows, from exact rational sums."""
    rows = np.asarray(x, np.float64).reshape(-1, x.shape[-1])
    values, errors, means, scales = [], [], [], []
    for row in rows:
        exact = [Fraction(float(value)) for value in row]
        mean = sum(exact) / len(exact)
        centred = [value - mean for value in exact]
        variance = sum(value * value for value in centred) / len(exact)
        with mpmath.workprec(200):
            scale = 1 / mpmath.sqrt(mpmath.mpf(variance.numerator) / variance.denominator + mpmath.mpf(eps))
            normalised = [float(mpmath.mpf(value.numerator) / value.denominator * scale) for value in centred]
        product = np.array(normalised) * (1.0 if weight is None else np.asarray(weight, np.float64))
        value = product + (0.0 if bias is None else np.asarray(bias, np.float64))
        values.append(value)
        errors.append(4 * STEP * np.abs(product) + STEP * np.abs(value))
        means.append(float(mean))
        scales.append(float(scale))
    return np.array(values).reshape(x.shape), np.array(errors).reshape(x.shape), np.array(means), np.array(scales)


def assert_close(got, value, error, what=""):
    """Within the promised error, and for 16 bits half a unit in the last place besides."""
    half = 0.0 if got.dtype == np.float32 else ulp(np.abs(value) + error, got.dtype.name) / 2
    wrong = ~(np.abs(got.astype(np.float64) - value) <= error + half + 1e-45)
    assert not wrong.any(), (what, np.argwhere(wrong)[:3], got[wrong][:3], value[wrong][:3])


def assert_statistics(mean, rstd, want_mean, want_rstd):
    assert_same(mean.ravel(), want_mean.astype(np.float32))
    np.testing.assert_allclose(rstd.ravel(), want_rstd, rtol=0.51 * 2.0**-23, atol=0)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_value_mean_and_rstd(name, width):
    x = (normal((5, width), np.float32, width) * 3 + 7).astype(DTYPES[name])
    weight, bias = normal((width,), DTYPES[name], 1), normal((width,), DTYPES[name], 2)
    for w, b in ((weight, bias), (weight, None), (None, bias), (None, None), (single(weight), single(bias))):
        out, mean, rstd = anycann.layer_norm(x, (width,), w, b)
        value, error, want_mean, want_rstd = golden(x, w, b)
        assert out.dtype == x.dtype
        assert (mean.shape, rstd.shape, mean.dtype, rstd.dtype) == ((5, 1), (5, 1), np.float32, np.float32)
        assert_close(out, value, error)
        assert_statistics(mean, rstd, want_mean, want_rstd)


def test_large_means_cancel_nothing():
    for offset in (1e3, 1e6, -3e7):
        x = np.float32(offset) + normal((4, 777), np.float32, 3, scale=abs(offset) * 1e-5)
        value, error, mean, rstd = golden(x)
        out, got_mean, got_rstd = anycann.layer_norm(x, (777,))
        assert_close(out, value, error)
        assert_statistics(got_mean, got_rstd, mean, rstd)


def test_squares_beyond_float32_do_not_overflow():
    x = normal((3, 100), np.float32, 4, scale=1e30)
    value, error, *_ = golden(x)
    assert_close(anycann.layer_norm(x, (100,))[0], value, error)


def test_constant_rows_give_the_bias_and_nan_or_infinity_spoil_their_own_row_only():
    x, bias = np.full((4, 33), 3.7, np.float32), normal((33,), np.float32)
    x[1, 5], x[2, 0] = np.nan, np.inf
    out, mean, rstd = anycann.layer_norm(x, (33,), None, bias)
    assert_same(out[[0, 3]], np.stack([bias, bias]))
    assert np.isnan(out[1:3]).all()
    assert np.isnan(rstd[1:3]).all()
    assert_same(mean[[0, 3]], x[[0, 3], :1])
    assert mean[2] == np.inf


@pytest.mark.parametrize("eps", [0.0, 1e-12, 1.0, math.inf, -0.25])
def test_eps(eps):
    x = normal((3, 50), np.float32, 5, scale=2)
    out, _, rstd = anycann.layer_norm(x, (50,), eps=eps)
    wide = x.astype(np.float64)
    expected = 1 / np.sqrt(wide.var(1) + eps)
    np.testing.assert_allclose(rstd.ravel(), expected, rtol=1e-7)
    np.testing.assert_allclose(out, (wide - wide.mean(1, keepdims=True)) * expected[:, None], rtol=1e-5, atol=1e-6)


def test_several_axes_are_one_row():
    x = normal((3, 2, 5, 7), np.float32, 6)
    weight, bias = normal((5, 7), np.float32, 7), normal((5, 7), np.float32, 8)
    out, mean, rstd = anycann.layer_norm(x, (5, 7), weight, bias)
    flat = anycann.layer_norm(x.reshape(6, 35), (35,), weight.ravel(), bias.ravel())
    assert mean.shape == rstd.shape == (3, 2, 1, 1)
    for one, other in zip((out, mean, rstd), flat, strict=True):
        assert raw(one) == raw(other)
    whole, middle, _ = anycann.layer_norm(x, x.shape)
    assert middle.shape == (1, 1, 1, 1)
    assert raw(whole) == raw(anycann.layer_norm(x.reshape(1, -1), (210,))[0])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "axes"), [((5, 37), 1), ((3, 2, 9, 5), 2), ((2, BLOCK + 7), 1), ((3, 40, 30), 2)])
def test_layouts(name, layout, shape, axes):
    x, inner = normal(shape, DTYPES[name], 9), shape[-axes:]
    weight, bias = normal(inner, DTYPES[name], 10), normal(inner, DTYPES[name], 11)
    expected = anycann.layer_norm(x, inner, weight, bias)
    statistics = (*shape[:-axes], *(1,) * axes)
    outs = [Watched(shape, DTYPES[name], layout), *(Watched(statistics, np.float32, layout) for _ in range(2))]
    anycann.layer_norm(lay(x, layout), inner, lay(weight, layout), lay(bias, layout), out=tuple(out.array for out in outs))
    for out, want in zip(outs, expected, strict=True):
        assert raw(out.check()) == raw(want)


@settings(max_examples=60, deadline=None)
@given(dtypes, layouts, layouts, st.integers(1, 4), st.integers(1, 70), seeds)
def test_any_layouts_of_input_and_output(name, source, target, rows, width, seed):
    x = normal((rows, width), DTYPES[name], seed)
    expected = anycann.layer_norm(x, (width,))[0]
    out = Watched(x.shape, DTYPES[name], target)
    anycann.layer_norm(lay(x, source), (width,), out=(out.array, None, None))
    assert raw(out.check()) == raw(expected)


def test_broadcast_inputs():
    x, weight = np.broadcast_to(normal((37,), np.float32), (6, 37)), np.broadcast_to(np.float32(2.5), (37,))
    for view in (x, np.broadcast_to(normal((6, 1), np.float32), (6, 37))):
        assert raw(anycann.layer_norm(view, (37,), weight)[0]) == raw(anycann.layer_norm(view.copy(), (37,), weight.copy())[0])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(3, 11, 13, 192), (2, 300, 40), (3, 50, 2048), (2, 40, 5000), (67, 5, 96), (4, 50, 3, 33)])
def test_rows_that_lie_side_by_side(name, shape):
    x, weight = normal(shape, DTYPES[name], 21), normal(shape[-1:], DTYPES[name], 22)
    want = b"".join(map(raw, anycann.layer_norm(x, shape[-1:], weight)))
    for near in closer_than_rows(x, 1):
        assert for_all_threads(lambda near=near: anycann.layer_norm(near, shape[-1:], weight)) == {want}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("end", [True, False])
def test_nothing_is_touched_beside_the_operands(name, end):
    for width in (1, 15, 31, 100):
        x, weight, bias = (normal(shape, DTYPES[name], 12) for shape in ((3, width), (width,), (width,)))
        expected = anycann.layer_norm(x, (width,), weight, bias)
        with at_the_edge(x, weight, bias, *expected, end=end) as (a, b, c, *outs):
            for out in outs:
                out[...] = 0
            anycann.layer_norm(a, (width,), b, c, out=tuple(outs))
            assert all(raw(out) == raw(want) for out, want in zip(outs, expected, strict=True))


@pytest.mark.parametrize("name", DTYPES)
def test_threads_and_places_do_not_matter(name):
    x, weight = normal((300, 333), DTYPES[name], 13), normal((333,), DTYPES[name], 14)
    assert len(for_all_threads(lambda: anycann.layer_norm(x, (333,), weight), THREADS)) == 1
    whole = anycann.layer_norm(x, (333,), weight)
    part = anycann.layer_norm(x[17:29], (333,), weight)
    assert all(raw(one[17:29]) == raw(other) for one, other in zip(whole, part, strict=True))


@pytest.mark.parametrize("name", DTYPES)
def test_large_outputs_that_bypass_the_caches(name):
    rows = 2 * (1 << 22) // 1000
    x = normal((rows, 1001), DTYPES[name], 15)
    big = anycann.layer_norm(x, (1001,))[0]
    for start in (0, 4000, rows - 3):
        assert raw(big[start : start + 3]) == raw(anycann.layer_norm(x[start : start + 3], (1001,))[0])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("width", [96, 128, 2048])
def test_large_outputs_anywhere_in_memory(name, width):
    rows = (1 << 23) // DTYPES[name].itemsize // width + 5
    x, half = normal((rows, width), DTYPES[name], 15), rows // 2
    x[7, 3], x[rows - 1, 0] = np.nan, np.inf
    want = b"".join(raw(anycann.layer_norm(part, (width,))[0]) for part in (x[:half], x[half:]))
    sums = [np.empty((rows, 1), np.float32) for _ in range(2)]
    for offset in (0, 1, 2, 8, 31):
        out = Watched((rows, width), DTYPES[name], "plain", offset)
        anycann.layer_norm(x, (width,), out=(out.array, *sums))
        assert raw(out.check()) == want, offset


def test_empty_inputs():
    for shape, axes in (((0, 5), 1), ((3, 0, 5), 1), ((0,), 1)):
        out, mean, rstd = anycann.layer_norm(np.zeros(shape, np.float32), shape[-axes:])
        assert out.shape == shape
        assert mean.size == rstd.size == (1 if shape == (0,) else 0)
    _, mean, rstd = anycann.layer_norm(np.zeros((3, 0), np.float32), (0,))
    assert np.isnan(mean).all()
    assert np.isnan(rstd).all()


def test_statistics_that_are_not_asked_for_are_not_written():
    from anycann import aclnn

    x, out, mean = normal((4, 9), np.float32), np.zeros((4, 9), np.float32), np.zeros((4, 1), np.float32)
    for statistics in ((None, None), (mean, None), (None, mean)):
        size, executor = aclnn.aclnnLayerNormGetWorkspaceSize(x, [9], None, None, 1e-5, out, *statistics)
        aclnn.aclnnLayerNorm(aclnn.empty_workspace(size), size, executor, None)
        expected = anycann.layer_norm(x, [9])
        assert raw(out) == raw(expected[0])
        if mean is statistics[0] or mean is statistics[1]:
            assert raw(mean) == raw(expected[1 if mean is statistics[0] else 2])


def test_random_rows_of_many_scales():
    scales = np.exp(rng(16).uniform(-20, 20, (200, 1)))
    x = (normal((200, 65), np.float64, 17) * scales).astype(np.float32)
    value, error, mean, rstd = golden(x)
    out, got_mean, got_rstd = anycann.layer_norm(x, (65,))
    assert_close(out, value, error)
    assert_statistics(got_mean, got_rstd, mean, rstd)
