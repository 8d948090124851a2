"""float32 results of the layer-norm family whose terms cancel: within half a ULP of the formula in float64, for all that cancels."""

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
