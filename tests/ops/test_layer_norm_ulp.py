"""float32 results of the layer-norm family whose terms cancel: within half a ULP of the formula in float64, for all that cancels."""

import math

import numpy as np
import pytest

import anycann

HALF = 0.501


def ulps(result: np.ndarray, golden: np.ndarray) -> float:
    spacing = np.spacing(np.maximum(np.abs(golden), np.finfo(np.float32).tiny).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(result - golden) / spacing))


@pytest.mark.parametrize(("rows", "width"), [(64, 1024), (300, 100), (5, 4097), (1000, 7)])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_no_digits_are_lost_where_terms_cancel(rows: int, width: int, offset: float) -> None:
    rng = np.random.default_rng(rows)
    x = (rng.standard_normal((rows, width)) + offset).astype(np.float32)
    dy, weight, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, width), (width,), (width,)))
    wide, w, b, d = (array.astype(np.float64) for array in (x, weight, bias, dy))
    variance = wide.var(1, keepdims=True)
    exact_root = 1 / np.sqrt(variance + 1e-5)
    out, mean, rstd = anycann.layer_norm(x, (width,), weight, bias, 1e-5)
    assert ulps(out, (wide - wide.mean(1, keepdims=True)) * exact_root * w + b) < HALF
    assert ulps(mean, wide.mean(1, keepdims=True)) < HALF
    assert ulps(rstd, exact_root) < HALF

    c, r = wide - mean.astype(np.float64), rstd.astype(np.float64)
    g = d * w
    grad = anycann.layer_norm_backward(dy, x, (width,), mean, rstd, weight, bias)[0]
    assert ulps(grad, (g - g.mean(1, keepdims=True) - c * r * (g * c * r).mean(1, keepdims=True)) * r) < HALF

    given = variance.astype(np.float32).reshape(rows)
    root = 1 / np.sqrt(given.astype(np.float64)[:, None] + 1e-5)
    pd_variance = (-0.5 * g * c * root**3).sum(1, keepdims=True)
    pd_mean = (-g * root).sum(1, keepdims=True) + pd_variance * (-2 * c).mean(1, keepdims=True)
    pd_x = anycann.layer_norm_grad(dy, x, given, mean.reshape(rows), weight, 1e-5)[0]
    assert ulps(pd_x, g * root + pd_variance * 2 * c / width + pd_mean / width) < HALF


@pytest.mark.parametrize("size", [0.0, 1.0, 1e6, 1e30])
@pytest.mark.parametrize("place", [0, 1, -1])
@pytest.mark.parametrize("width", [2, 100, 8191, 65536])
def test_no_digits_are_lost_to_an_outlier_where_sums_are_taken_from(size: float, place: int, width: int) -> None:
    """The sums are taken of elements less the first: the worst that this can be is the one outlier of a long row."""
    x = np.random.default_rng(width).standard_normal((1, width)).astype(np.float32)
    x[0, place] = size
    wide = [float(value) for value in x[0]]
    mean = math.fsum(wide) / width
    variance = math.fsum((value - mean) ** 2 for value in wide) / width
    root = 1 / math.sqrt(variance + 1e-5)
    out, means, roots = anycann.layer_norm(x, (width,), eps=1e-5)
    assert ulps(roots, np.float64([[root]])) < HALF
    assert ulps(means, np.float64([[mean]])) < HALF
    assert ulps(out, (x.astype(np.float64) - mean) * root) < HALF


@pytest.mark.parametrize("value", [0.0, -3.25, 1e-30, 3e38])
def test_rows_of_one_value_have_no_variance(value: float) -> None:
    x = np.full((3, 4099), value, np.float32)
    out, mean, rstd = anycann.layer_norm(x, (4099,), eps=1e-5)
    assert np.all(out == 0)
    assert np.all(mean == np.float32(value))
    assert np.all(rstd == np.float32(1 / math.sqrt(1e-5)))


@pytest.mark.parametrize(
    ("first", "last", "mean"), [(np.inf, 1.0, np.inf), (1.0, -np.inf, -np.inf), (np.inf, -np.inf, np.nan), (np.nan, 1.0, np.nan)]
)
def test_rows_that_are_not_finite(first: float, last: float, mean: float) -> None:
    x = np.ones((1, 33), np.float32)
    x[0, 0], x[0, -1] = first, last
    out, means, roots = anycann.layer_norm(x, (33,))
    assert np.array_equal(means, np.float32([[mean]]), equal_nan=True)
    assert np.all(np.isnan(roots))
    assert np.all(np.isnan(out))
