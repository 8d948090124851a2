"""GELU itself in float32 vectors, within 2 ULP everywhere (below the normal range, of the smallest normal).

With t = |x|, y(-t) = -t q(t) and y(t) = t - t q(t), where t q(t) = exp(-a(t)) B(t) never cancels:

* none: q = Phi(-t), a = t^2 / 2, B = t Mills ratio(t) / sqrt(2 pi);
* tanh: q = sigmoid(-a), a = 2u(t), B = t / (1 + exp(-a)).

Near, up to t = 4, q is a polynomial on each of 16 intervals, expanded where its constant is almost a float32. Far lanes, which real data
seldom has, are computed in addition where a vector has some: exp(-a) = 2^n (1 + E) as cpu_exp.py makes it, and B = 0.391 + P on each of
eight intervals (none), or B = t - t exp(-a), the square of exp(-a) being too small to count (tanh). B (1 + E) is rounded once and
scaled by 2^(n + 64), a normal number; the scaling by 2^-64 and the t are the last fused multiply-add: underflow is gradual.

Whether a lane is near or far depends on its own value only, and every target does the same operations in the same order: the bits do
not depend on the target, nor on the other lanes.
"""

from anycann.backends.cpu import device
from anycann.backends.cpu_exp import LIFT, MAGIC, even_quadratic, exp2_pair, exp_pair, scaled
from anycann.backends.cpu_math import Piecewise, piecewise
from anycann.backends.cpu_simd import Table, absolute, any_lane, bits, f32x16, fma, lookup, select, splat
from anycann.ops.gelu_v2 import coefficients as fitted
from anycann.ops.gelu_v2.coefficients import K1_HIGH, K1_LOW, K3_HIGH, K3_LOW, NEAR_END, NONE_FAR_LINE

__all__ = ["value_none", "value_tanh"]

_NONE_CENTRES, _NONE_NEAR = Table(fitted.NONE_NEAR_CENTRES), Piecewise(fitted.NONE_NEAR)
_TANH_CENTRES, _TANH_NEAR = Table(fitted.TANH_NEAR_CENTRES), Piecewise(fitted.TANH_NEAR)
_FAR_CENTRES, _FAR = Table(fitted.NONE_FAR_CENTRES), Piecewise(fitted.NONE_FAR)

_NONE_END, _TANH_END = 14.7, 11.2  # from here on y rounds to -0 and x
_NEAR_SCALE = 15 / NEAR_END
_QUARTER_OCTAVE = 21  # bits(t) >> 21 counts the quarters of the octaves
_LOWER = 2.0**-LIFT


@device
def _limit(x: f32x16) -> f32x16:
    """What x Phi(x) tends to: x, or -0 for negative x; zeros keep their sign."""
    return select(x >= 0.0, x, splat(-0.0))


@device
def _near(x: f32x16, t: f32x16, centres: Table, coefficients: Piecewise) -> f32x16:
    i = bits(fma(t, _NEAR_SCALE, MAGIC))
    return fma(-t, piecewise(coefficients, i, t - lookup(centres, i)), _limit(x))


@device
def _far_none(x: f32x16, t: f32x16) -> f32x16:
    end = select(t > _NONE_END, splat(_NONE_END), t)
    half = end * 0.5
    a = end * half
    e, magic_n = exp_pair(a, fma(end, half, -a))
    i = bits(end) >> _QUARTER_OCTAVE
    p = piecewise(_FAR, i, end - lookup(_FAR_CENTRES, i))
    w = NONE_FAR_LINE + fma(e, NONE_FAR_LINE + p, p)
    return fma(w * scaled(magic_n), -_LOWER, _limit(x))


@device
def _far_tanh(x: f32x16, t: f32x16) -> f32x16:
    end = select(t > _TANH_END, splat(_TANH_END), t)
    k, k_low = even_quadratic(end, K1_HIGH, K1_LOW, K3_HIGH, K3_LOW)
    e, magic_n = exp2_pair(end, k, k_low)
    scale = scaled(magic_n)
    z = scale * _LOWER
    z = fma(z, e, z)
    w = fma(fma(-z, e, e) - z, end, end)
    return fma(w * scale, -_LOWER, _limit(x))


@device
def value_none(x: f32x16) -> f32x16:
    """The exact GELU, x Phi(x). x for +inf, -0 for -inf, NaN for NaN."""
    t = absolute(x)
    y = _near(x, t, _NONE_CENTRES, _NONE_NEAR)
    far = ~(t <= NEAR_END)
    if any_lane(far):
        y = select(far, _far_none(x, t), y)
    return y


@device
def value_tanh(x: f32x16) -> f32x16:
    """The tanh GELU, x sigmoid(2u). x for +inf, -0 for -inf, NaN for NaN."""
    t = absolute(x)
    y = _near(x, t, _TANH_CENTRES, _TANH_NEAR)
    far = ~(t <= NEAR_END)
    if any_lane(far):
        y = select(far, _far_tanh(x, t), y)
    return y
