"""The derivative d of GELU in float32 vectors, within 2 ULP everywhere (below the normal range, of the smallest normal).

With t = |x|, d(-t) = -g(t) and d(t) = 1 + g(t), where g(t) = exp(-a(t)) B(t) never cancels:

* none: a = t^2 / 2, B = (t - Mills ratio(t)) / sqrt(2 pi);
* tanh: a = 2u(t), B = (t a'(t) - 1 - e) / (1 + e)^2 with e = exp(-a).

Near, up to t = 5, g is a polynomial on each of 16 intervals, expanded at the root of g where it has one, else where its constant is
almost a float32. Far lanes, which real data seldom has, are computed in addition where a vector has some:

1. exp(-a) = 2^n (1 + E). a is kept in two floats until n is taken off, and 1 + E is never rounded.
2. B = line + P on each of eight intervals. The line is exact, so only the small P is rounded.
3. line + (P + E (line + P)) is g / 2^n rounded once; the scaling by 2^n and the 1 are the last fused multiply-add: underflow is gradual.

Whether a lane is near or far depends on its own value only, and every target does the same operations in the same order: the bits do
not depend on the target, nor on the other lanes.
"""

import math

from anycann.backends.cpu import device
from anycann.backends.cpu_math import Piecewise, Polynomial, piecewise, polynomial
from anycann.backends.cpu_simd import Table, absolute, any_lane, bits, f32x16, fma, from_bits, lookup, select, splat
from anycann.ops.gelu_backward_v2 import coefficients as fitted
from anycann.ops.gelu_backward_v2.coefficients import K1_HIGH, K1_LOW, K3_HIGH, K3_LOW, LN2, LN2_HIGH, LN2_LOW, LOG2_E, NEAR_END

__all__ = ["derivative_none", "derivative_tanh"]

_NONE_CENTRES, _NONE_NEAR = Table(fitted.NONE_NEAR_CENTRES), Piecewise(fitted.NONE_NEAR)
_TANH_CENTRES, _TANH_NEAR = Table(fitted.TANH_NEAR_CENTRES), Piecewise(fitted.TANH_NEAR)
_NONE_FAR_CENTRES, _NONE_LINES, _NONE_FAR = Table(fitted.NONE_FAR_CENTRES), Piecewise(fitted.NONE_FAR_LINES), Piecewise(fitted.NONE_FAR)
_TANH_FAR_CENTRES, _TANH_LINES, _TANH_FAR = Table(fitted.TANH_FAR_CENTRES), Piecewise(fitted.TANH_FAR_LINES), Piecewise(fitted.TANH_FAR)
_EXP, _EXP2 = Polynomial(fitted.EXP), Polynomial(fitted.EXP2)

_NONE_END, _TANH_END = 14.7, 11.2  # from here on d rounds to its limits 0 and 1
_MAGIC = 1.5 * 2.0**23  # added to a float, it leaves the nearest integer in the low bits
_QUARTER_OCTAVE = 21  # bits(t) >> 21 counts the quarters of the octaves
_LIFT = 64  # g is scaled by 2^(n + 64), a normal number, and then by 2^-64
_EXPONENT_BIAS = (127 + _LIFT) << 23
_INFINITY, _NAN = math.inf, math.nan


@device
def _finish(x: f32x16, g: f32x16, scale: float) -> f32x16:
    """-scale g for negative x, 1 + scale g for positive."""
    positive = x > 0.0
    return fma(g, select(positive, splat(scale), -scale), select(positive, splat(1.0), 0.0))


@device
def _near(x: f32x16, t: f32x16, centres: Table, coefficients: Piecewise) -> f32x16:
    i = bits(fma(t, 3.0, _MAGIC))
    return _finish(x, piecewise(coefficients, i, t - lookup(centres, i)), 1.0)


@device
def _far(x: f32x16, t: f32x16, e: f32x16, magic_n: f32x16, centres: Table, lines: Piecewise, coefficients: Piecewise) -> f32x16:
    i = bits(t) >> _QUARTER_OCTAVE
    line = piecewise(lines, i, t)
    p = piecewise(coefficients, i, t - lookup(centres, i))
    w = line + fma(e, line + p, p)
    return _finish(x, w * from_bits((bits(magic_n) << 23) + _EXPONENT_BIAS), 2.0**-_LIFT)


@device
def _far_none(x: f32x16, t: f32x16) -> f32x16:
    end = select(t > _NONE_END, _NONE_END, t)
    half = end * 0.5
    a = end * half
    a_low = fma(end, half, -a)
    magic_n = fma(a, -LOG2_E, _MAGIC)
    n = magic_n - _MAGIC
    r = fma(n, -LN2_HIGH, -a) + fma(n, -LN2_LOW, -a_low)
    e = fma(r * r, polynomial(_EXP, r), r)
    d = _far(x, end, e, magic_n, _NONE_FAR_CENTRES, _NONE_LINES, _NONE_FAR)
    return select(t < _INFINITY, d, _NAN)


@device
def _far_tanh(x: f32x16, t: f32x16) -> f32x16:
    end = select(t > _TANH_END, _TANH_END, t)
    square = end * end
    square_low = fma(end, end, -square)
    k = fma(square, K3_HIGH, K1_HIGH)
    k_low = fma(square, K3_HIGH, K1_HIGH - k) + fma(square_low, K3_HIGH, fma(square, K3_LOW, K1_LOW))
    magic_n = fma(-end, k, _MAGIC)
    n = magic_n - _MAGIC
    r = fma(-end, k_low, fma(-end, k, -n))
    e = fma(r, LN2, (r * r) * polynomial(_EXP2, r))
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
