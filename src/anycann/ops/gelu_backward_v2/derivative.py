"""The derivative d of GELU in float32 vectors, within 2 ULP everywhere (below the normal range, of the smallest normal).

With t = |x|, d(-t) = -g(t) and d(t) = 1 + g(t), where g(t) = exp(-a(t)) B(t) never cancels:

* none: a = t^2 / 2, B = (t - Mills ratio(t)) / sqrt(2 pi);
* tanh: a = 2u(t), B = (t a'(t) - 1 - e) / (1 + e)^2 with e = exp(-a).

Near, up to t = 5, g is a polynomial on each of 16 intervals, expanded at the root of g where it has one, else where its constant is
almost a float32. Far lanes, which real data seldom has, are computed in addition where a vector has some:

1. exp(-a) = 2^n (1 + E), as cpu_exp.py makes it.
2. B = line + P on each of eight intervals. The line is exact, so only the small P is rounded.
3. line + (P + E (line + P)) is g / 2^n rounded once, scaled by 2^(n + 64), a normal number; the scaling by 2^-64 and the 1 are the last
   fused multiply-add: underflow is gradual.

Whether a lane is near or far depends on its own value only, and every target does the same operations in the same order: the bits do
not depend on the target, nor on the other lanes.
"""

import math

from anycann.backends.cpu import device
from anycann.backends.cpu_exp import LIFT, MAGIC, even_quadratic, exp2_pair, exp_pair, scaled
from anycann.backends.cpu_math import Piecewise, piecewise
from anycann.backends.cpu_simd import Table, absolute, any_lane, bits, f32x16, fma, lookup, select, splat
from anycann.ops.gelu_backward_v2 import coefficients as fitted
from anycann.ops.gelu_backward_v2.coefficients import K1_HIGH, K1_LOW, K3_HIGH, K3_LOW, NEAR_END
from anycann.ops.gelu_backward_v2.pieces import NONE_END, QUARTER_OCTAVE, TANH_END

__all__ = ["derivative_none", "derivative_tanh"]

_NONE_CENTRES, _NONE_NEAR = Table(fitted.NONE_NEAR_CENTRES), Piecewise(fitted.NONE_NEAR)
_TANH_CENTRES, _TANH_NEAR = Table(fitted.TANH_NEAR_CENTRES), Piecewise(fitted.TANH_NEAR)
_NONE_FAR_CENTRES, _NONE_LINES, _NONE_FAR = Table(fitted.NONE_FAR_CENTRES), Piecewise(fitted.NONE_FAR_LINES), Piecewise(fitted.NONE_FAR)
_TANH_FAR_CENTRES, _TANH_LINES, _TANH_FAR = Table(fitted.TANH_FAR_CENTRES), Piecewise(fitted.TANH_FAR_LINES), Piecewise(fitted.TANH_FAR)

_INFINITY, _NAN = math.inf, math.nan


@device
def _finish(x: f32x16, g: f32x16, scale: float) -> f32x16:
    """-scale g for negative x, 1 + scale g for positive."""
    positive = x > 0.0
    return fma(g, select(positive, splat(scale), -scale), select(positive, splat(1.0), 0.0))


@device
def _near(x: f32x16, t: f32x16, centres: Table, coefficients: Piecewise) -> f32x16:
    i = bits(fma(t, 3.0, MAGIC))
    return _finish(x, piecewise(coefficients, i, t - lookup(centres, i)), 1.0)


@device
def _far(x: f32x16, t: f32x16, e: f32x16, magic_n: f32x16, centres: Table, lines: Piecewise, coefficients: Piecewise) -> f32x16:
    i = bits(t) >> QUARTER_OCTAVE
    line = piecewise(lines, i, t)
    p = piecewise(coefficients, i, t - lookup(centres, i))
    w = line + fma(e, line + p, p)
    return _finish(x, w * scaled(magic_n), 2.0**-LIFT)


@device
def _far_none(x: f32x16, t: f32x16) -> f32x16:
    end = select(t > NONE_END, NONE_END, t)
    half = end * 0.5
    a = end * half
    e, magic_n = exp_pair(a, fma(end, half, -a))
    d = _far(x, end, e, magic_n, _NONE_FAR_CENTRES, _NONE_LINES, _NONE_FAR)
    return select(t < _INFINITY, d, _NAN)


@device
def _far_tanh(x: f32x16, t: f32x16) -> f32x16:
    end = select(t > TANH_END, TANH_END, t)
    k, k_low = even_quadratic(end, K1_HIGH, K1_LOW, K3_HIGH, K3_LOW)
    e, magic_n = exp2_pair(end, k, k_low)
    d = _far(x, end, e, magic_n, _TANH_FAR_CENTRES, _TANH_LINES, _TANH_FAR)
    return select(x == x, d, _NAN)


@device
def derivative_none(x: f32x16) -> f32x16:
    """d of the exact GELU: Phi(x) + x phi(x). NaN for NaN and both infinities."""
    t = absolute(x)
    d = _near(x, t, _NONE_CENTRES, _NONE_NEAR)
    far = ~(t <= NEAR_END)
    if any_lane(far):
        d = select(far, _far_none(x, t), d)
    return d


@device
def derivative_tanh(x: f32x16) -> f32x16:
    """d of the tanh GELU. NaN for NaN, 1 for +inf, -0 for -inf: the limits, and the values already far before."""
    t = absolute(x)
    d = _near(x, t, _TANH_CENTRES, _TANH_NEAR)
    far = ~(t <= NEAR_END)
    if any_lane(far):
        d = select(far, _far_tanh(x, t), d)
    return d
