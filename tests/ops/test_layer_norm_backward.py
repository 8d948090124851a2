"""layer_norm_backward: gradients against the formula in exact or float64 sums, and the column sums bit for bit in their written order."""

import itertools
import math

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
    seeds,
)

import anycann
from anycann.check.standards import ulp

BLOCK, ROWS_PER_PARTIAL = 1024, 1024
STEP = 2.0**-24


def problem(shape, axes, dtype, seed=0, statistics=np.float32):
    """dy, x, the normalised shape, mean, rstd (as the forward gives them, rounded to a dtype) and weight."""
    dy, x, inner = normal(shape, dtype, seed), (normal(shape, np.float32, seed + 1) * 2 + 1).astype(dtype), shape[-axes:]
    _, mean, rstd = anycann.layer_norm(x, inner)
    return dy, x, inner, mean.astype(statistics), rstd.astype(statistics), normal(inner, dtype, seed + 2)


def golden(dy, x, inner, mean, rstd, weight=None):
    """gradInput and its allowed error, with sums over rows that lose nothing."""
    width = math.prod(inner)
    d, x, m, r = (np.asarray(each, np.float64).reshape(-1, count) for each, count in ((dy, width), (x, width), (mean, 1), (rstd, 1)))
    g, c = d * (1.0 if weight is None else np.asarray(weight, np.float64).ravel()), (x - m) * r

    def means(terms):
        return np.array([[math.fsum(row) / width] for row in terms])

    error = 8 * STEP * (np.abs(g) + means(np.abs(g)) + np.abs(c) * means(np.abs(g * c))) * r
    return ((g - means(g) - c * means(g * c)) * r).reshape(dy.shape), error.reshape(dy.shape)


def assert_close(got, value, error):
    half = 0.0 if got.dtype == np.float32 else ulp(np.abs(value) + error, got.dtype.name) / 2
    wrong = ~(np.abs(got.astype(np.float64) - value) <= error + half + 1e-45)
    assert not wrong.any(), (np.argwhere(wrong)[:3], got[wrong][:3], value[wrong][:3])


def columns(dy, x, mean, rstd, dtype):
    """gradWeight and gradBias in their written order: the sums of layer_norm_grad_beta over float32, rounded to another dtype once."""
    width = dy.shape[-1]
    d, normalised = (each.reshape(-1, width) for each in (dy, x))
    normalised = (normalised.astype(np.float32) - mean.astype(np.float32).reshape(-1, 1)) * rstd.astype(np.float32).reshape(-1, 1)
    sums = []
    for terms in (d.astype(np.float32) * normalised, d.astype(np.float32)):
        partials = []
        for start in range(0, len(terms), ROWS_PER_PARTIAL):
            part = terms[start : start + ROWS_PER_PARTIAL]
            runs = [np.add.accumulate(part[r : r + 16], 0, np.float32)[-1].astype(np.float64) for r in range(0, len(part), 16)]
            partials.append(np.add.accumulate(runs, 0)[-1])
        sums.append(np.add.accumulate(partials, 0)[-1] if partials else np.zeros(width))
    return [total.astype(np.float32) if dtype == np.float32 else total.astype(dtype) for total in sums]


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("width", [1, 2, 15, 16, 17, 37, 128, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 19])
def test_gradient_of_the_input(name, width):
    dy, x, inner, mean, rstd, weight = problem((5, width), 1, DTYPES[name])
    for w in (weight, None, weight.astype(np.float32)):
        got = anycann.layer_norm_backward(dy, x, inner, mean, rstd, w)[0]
        assert got.dtype == x.dtype
        assert_close(got, *golden(dy, x, inner, mean, rstd, w))


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33, 1023, 1024, 1025, 3100])
def test_column_sums_have_the_bits_of_their_written_order(rows):
    dy, x, inner, mean, rstd, weight = problem((rows, 21), 1, np.float32, rows)
    got = anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight)
    for one, want in zip(got[1:], columns(dy, x, mean, rstd, np.dtype(np.float32)), strict=True):
        assert_same(one, want)
    normalised = (x - mean) * rstd
    for one, want in zip(got[1:], anycann.layer_norm_grad_beta(normalised, dy), strict=True):
        assert raw(one) == raw(want)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_column_sums_of_16_bits_are_rounded_once_and_keep_float32_where_the_weight_has_it(name):
    dy, x, inner, mean, rstd, weight = problem((700, 40), 1, DTYPES[name], 5)
    single = columns(dy, x, mean, rstd, np.dtype(np.float32))
    narrow = anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight)
    wide = anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight.astype(np.float32))
    assert raw(narrow[0]) == raw(wide[0])
    for one, other, want in zip(narrow[1:], wide[1:], single, strict=True):
        assert (one.dtype, other.dtype) == (DTYPES[name], np.float32)
        assert_same(other, want)
        assert (np.abs(one.astype(np.float64) - want) <= ulp(want.astype(np.float64), name) * 0.501).all()


def test_ones_are_counted():
    rows = 32768
    ones, statistic = np.ones((rows, 3), np.float16), np.ones((rows, 1), np.float32)
    _, weight, bias = anycann.layer_norm_backward(ones, 2 * ones, (3,), statistic, statistic)
    assert weight.tolist() == bias.tolist() == [32768.0] * 3


@pytest.mark.parametrize("name", DTYPES)
def test_statistics_of_16_bits_are_widened(name):
    given_ = problem((6, 50), 1, np.float32, 6, DTYPES[name])
    dy, x, inner, mean, rstd, weight = given_
    wide = anycann.layer_norm_backward(dy, x, inner, mean.astype(np.float32), rstd.astype(np.float32), weight)
    assert all(raw(one) == raw(other) for one, other in zip(anycann.layer_norm_backward(*given_), wide, strict=True))


@pytest.mark.parametrize("mask", list(itertools.product((False, True), repeat=3)))
def test_output_mask(mask):
    given_ = problem((40, 33), 1, np.float32, 7)
    expected = anycann.layer_norm_backward(*given_)
    for kind in (tuple, list, np.array, lambda mask: [np.bool_(chosen) for chosen in mask]):
        got = anycann.layer_norm_backward(*given_, output_mask=kind(mask))
        assert [one is not None for one in got] == list(mask)
        assert all(raw(one) == raw(want) for one, want in zip(got, expected, strict=True) if one is not None)
    outs = [Watched(one.shape, one.dtype) for one in expected]
    kept = [raw(out.array) for out in outs]
    got = anycann.layer_norm_backward(*given_, output_mask=mask, out=tuple(out.array for out in outs))
    for one, out, before, want, chosen in zip(got, outs, kept, expected, mask, strict=True):
        assert (one is out.array) == chosen
        assert raw(out.array) == (raw(want) if chosen else before)


def test_the_bias_does_not_matter():
    given_ = problem((9, 12), 1, np.float32, 8)
    plain = anycann.layer_norm_backward(*given_)
    assert all(map(np.array_equal, plain, anycann.layer_norm_backward(*given_, np.full(12, np.nan, np.float32))))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("shape", "axes"), [((35, 37), 1), ((3, 7, 9, 5), 2), ((2, BLOCK + 7), 1), ((20, 40, 30), 2)])
def test_layouts(name, layout, shape, axes):
    dy, x, inner, mean, rstd, weight = problem(shape, axes, DTYPES[name], 9)
    expected = anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight)
    outs = [Watched(want.shape, want.dtype, layout) for want in expected]
    laid = [lay(each, layout) for each in (dy, x, mean, rstd, weight)]
    anycann.layer_norm_backward(laid[0], laid[1], inner, *laid[2:], out=tuple(out.array for out in outs))
    for out, want in zip(outs, expected, strict=True):
        assert raw(out.check()) == raw(want)


@settings(max_examples=50, deadline=None)
@given(dtypes, layouts, layouts, st.integers(1, 40), st.integers(1, 70), seeds)
def test_any_layouts_of_operands_and_outputs(name, source, target, rows, width, seed):
    dy, x, inner, mean, rstd, weight = problem((rows, width), 1, DTYPES[name], seed % 1000)
    expected = anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight)
    outs = [Watched(want.shape, want.dtype, target) for want in expected]
    anycann.layer_norm_backward(
        lay(dy, target), lay(x, source), inner, lay(mean, source), rstd, weight, out=tuple(out.array for out in outs)
    )
    assert all(raw(out.check()) == raw(want) for out, want in zip(outs, expected, strict=True))


def test_broadcast_gradients():
    _, x, inner, mean, rstd, weight = problem((30, 25), 1, np.float32, 10)
    for view in (np.broadcast_to(np.float32(1.5), x.shape), np.broadcast_to(normal((25,), np.float32), x.shape)):
        got = anycann.layer_norm_backward(view, x, inner, mean, rstd, weight)
        want = anycann.layer_norm_backward(view.copy(), x, inner, mean, rstd, weight)
        assert all(map(np.array_equal, got, want))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(3, 11, 13, 192), (2, 300, 40), (3, 50, 2048), (67, 5, 96), (4, 50, 3, 33)])
def test_rows_that_lie_side_by_side(name, shape):
    dy, x, inner, mean, rstd, weight = problem(shape, 1, DTYPES[name])
    want = b"".join(map(raw, anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight)))
    for first, second in ((0, 0), (0, 1), (1, 1), (2, 1), (2, 2), (3, 2)):
        pair = closer_than_rows(dy, 1)[first], closer_than_rows(x, 1)[second]
        assert for_all_threads(lambda pair=pair: anycann.layer_norm_backward(*pair, inner, mean, rstd, weight)) == {want}
    pair = closer_than_rows(dy, 1)[0], x
    assert for_all_threads(lambda: anycann.layer_norm_backward(*pair, inner, mean, rstd, weight)) == {want}


@pytest.mark.parametrize("name", DTYPES)
def test_threads_do_not_matter(name):
    given_ = problem((2100, 130), 1, DTYPES[name], 11)
    assert len(for_all_threads(lambda: anycann.layer_norm_backward(*given_), THREADS)) == 1


@pytest.mark.parametrize("end", [True, False])
def test_nothing_is_touched_beside_the_operands(end):
    for width in (1, 15, 31, 100):
        dy, x, inner, mean, rstd, weight = problem((19, width), 1, np.float16, 12)
        expected = anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight)
        with at_the_edge(dy, x, mean, rstd, weight, *expected, end=end) as (a, b, c, d, e, *outs):
            for out in outs:
                out[...] = 0
            anycann.layer_norm_backward(a, b, inner, c, d, e, out=tuple(outs))
            assert all(raw(out) == raw(want) for out, want in zip(outs, expected, strict=True))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("width", [96, 2048])
def test_large_outputs_anywhere_in_memory(name, width):
    rows = (1 << 23) // DTYPES[name].itemsize // width + 5
    dy, x, inner, mean, rstd, weight = problem((rows, width), 1, DTYPES[name])
    dy[7, 3], half = np.nan, rows // 2
    parts = [anycann.layer_norm_backward(dy[p], x[p], inner, mean[p], rstd[p], weight)[0] for p in (slice(half), slice(half, None))]
    for offset in (0, 1, 2, 8, 31):
        out = Watched((rows, width), DTYPES[name], "plain", offset)
        anycann.layer_norm_backward(dy, x, inner, mean, rstd, weight, None, (True, False, False), out=(out.array, None, None))
        assert raw(out.check()) == b"".join(map(raw, parts)), offset


def test_without_rows_the_sums_are_zero():
    x, statistic = np.zeros((0, 7), np.float32), np.zeros((0, 1), np.float32)
    got = anycann.layer_norm_backward(x, x, (7,), statistic, statistic)
    assert got[0].shape == (0, 7)
    for one in got[1:]:
        assert_same(one, np.zeros(7, np.float32))
    x, statistic = np.zeros((4, 0), np.float32), np.zeros((4, 1), np.float32)
    assert [one.shape for one in anycann.layer_norm_backward(x, x, (0,), statistic, statistic)] == [(4, 0), (0,), (0,)]


def test_it_is_the_derivative_of_the_forward():
    x = normal((3, 6), np.float32, 13).astype(np.float64)
    weight, bias, dy = (normal(shape, np.float32, seed).astype(np.float64) for shape, seed in (((6,), 14), ((6,), 15), ((3, 6), 16)))

    def loss(x, weight, bias):
        mean, variance = x.mean(1, keepdims=True), x.var(1, keepdims=True)
        return (dy * ((x - mean) / np.sqrt(variance + 1e-5) * weight + bias)).sum()

    single = [each.astype(np.float32) for each in (x, weight, bias, dy)]
    _, mean, rstd = anycann.layer_norm(single[0], (6,))
    got = anycann.layer_norm_backward(single[3], single[0], (6,), mean, rstd, single[1], single[2])
    for place, (argument, gradient) in enumerate(zip((x, weight, bias), got, strict=True)):
        for index in np.ndindex(argument.shape):
            low, high = ([each.copy() for each in (x, weight, bias)] for _ in range(2))
            low[place][index] -= 1e-6
            high[place][index] += 1e-6
            assert gradient[index] == pytest.approx((loss(*high) - loss(*low)) / 2e-6, rel=1e-4, abs=1e-4)
