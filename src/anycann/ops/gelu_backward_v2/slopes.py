"""The derivative d of GELU in Triton: the operations of derivative.py in the same order, so the same bits."""

from typing import Any

import numpy as np
import triton.language as tl

from anycann.backends.cpu_exp_coefficients import EXP, EXP2, LN2, LN2_HIGH, LN2_LOW, LOG2_E
from anycann.backends.gpu import fma, jit
from anycann.ops.gelu_backward_v2 import coefficients as fitted
from anycann.ops.gelu_backward_v2.pieces import NONE_END, QUARTER_OCTAVE, TANH_END

__all__ = ["derivative", "packed"]

_PARTS = {
    "none": (fitted.NONE_NEAR_CENTRES, fitted.NONE_NEAR, fitted.NONE_FAR_CENTRES, fitted.NONE_FAR_LINES, fitted.NONE_FAR),
    "tanh": (fitted.TANH_NEAR_CENTRES, fitted.TANH_NEAR, fitted.TANH_FAR_CENTRES, fitted.TANH_FAR_LINES, fitted.TANH_FAR),
}
_NEAR, _FAR = tl.constexpr(16), tl.constexpr(8)  # intervals
_NONE_TERMS, _TANH_TERMS = tl.constexpr(len(fitted.NONE_NEAR)), tl.constexpr(len(fitted.TANH_NEAR))
_FAR_TERMS = tl.constexpr(len(fitted.NONE_FAR))
_NEAR_END, _NONE_END, _TANH_END = tl.constexpr(fitted.NEAR_END), tl.constexpr(NONE_END), tl.constexpr(TANH_END)
_MAGIC, _LIFT, _QUARTER = tl.constexpr(1.5 * 2.0**23), tl.constexpr(64), tl.constexpr(QUARTER_OCTAVE)
_EXP, _EXP2 = tl.constexpr(EXP), tl.constexpr(EXP2)
_LOG2_E, _LN2, _LN2_HIGH, _LN2_LOW = tl.constexpr(LOG2_E), tl.constexpr(LN2), tl.constexpr(LN2_HIGH), tl.constexpr(LN2_LOW)
_K1, _K1_LOW = tl.constexpr(fitted.K1_HIGH), tl.constexpr(fitted.K1_LOW)
_K3, _K3_LOW = tl.constexpr(fitted.K3_HIGH), tl.constexpr(fitted.K3_LOW)


def packed(mode: str) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The tables of a mode, one after the other."""
    return np.concatenate([np.asarray(part, np.float32).ravel() for part in _PARTS[mode]])


@jit
def _bits(x: tl.tensor) -> tl.tensor:
    return x.to(tl.int32, bitcast=True)


@jit
def _entry(p: tl.tensor, row: tl.constexpr, i: tl.tensor) -> tl.tensor:
    return tl.load(p.to(tl.pointer_type(tl.float32)) + row + i)


@jit
def _piecewise(p: tl.tensor, first: tl.constexpr, size: tl.constexpr, terms: tl.constexpr, i: tl.tensor, x: tl.tensor) -> tl.tensor:
    """The polynomial of interval i at x; its terms are rows of `size` entries."""
    result = _entry(p, first + (terms - 1) * size, i)
    for k in tl.static_range(terms - 1):
        result = fma(result, x, _entry(p, first + (terms - 2 - k) * size, i))
    return result


@jit
def _polynomial(coefficients: tl.constexpr, x: tl.tensor) -> tl.tensor:
    result = x * 0.0 + coefficients[4]
    for k in tl.static_range(4):
        result = fma(result, x, coefficients[3 - k])
    return result


@jit
def _finish(x: tl.tensor, g: tl.tensor, scale: tl.constexpr) -> tl.tensor:
    """-scale g for negative x, 1 + scale g for positive."""
    return fma(g, tl.where(x > 0.0, scale, -scale), tl.where(x > 0.0, 1.0, 0.0))


@jit
def _near(x: tl.tensor, t: tl.tensor, p: tl.tensor, terms: tl.constexpr) -> tl.tensor:
    i = _bits(fma(t, 3.0, _MAGIC)) & (_NEAR - 1)
    return _finish(x, _piecewise(p, _NEAR, _NEAR, terms, i, t - _entry(p, 0, i)), 1.0)


@jit
def _far(x: tl.tensor, t: tl.tensor, e: tl.tensor, magic_n: tl.tensor, p: tl.tensor, first: tl.constexpr) -> tl.tensor:
    i = (_bits(t) >> _QUARTER) & (_FAR - 1)
    line = _piecewise(p, first + _FAR, _FAR, 2, i, t)
    rest = _piecewise(p, first + 3 * _FAR, _FAR, _FAR_TERMS, i, t - _entry(p, first, i))
    w = line + fma(e, line + rest, rest)
    scaled = ((_bits(magic_n) << 23) + ((127 + _LIFT) << 23)).to(tl.float32, bitcast=True)
    return _finish(x, w * scaled, 2.0**-64)


@jit
def _far_none(x: tl.tensor, t: tl.tensor, p: tl.tensor) -> tl.tensor:
    end = tl.where(t > _NONE_END, _NONE_END, t)
    half = end * 0.5
    a = end * half
    a_low = fma(end, half, -a)
    magic_n = fma(a, -_LOG2_E, _MAGIC)
    n = magic_n - _MAGIC
    r = fma(n, -_LN2_HIGH, -a) + fma(n, -_LN2_LOW, -a_low)
    d = _far(x, end, fma(r * r, _polynomial(_EXP, r), r), magic_n, p, _NEAR + _NEAR * _NONE_TERMS)
    return tl.where(t < float("inf"), d, float("nan"))


@jit
def _far_tanh(x: tl.tensor, t: tl.tensor, p: tl.tensor) -> tl.tensor:
    end = tl.where(t > _TANH_END, _TANH_END, t)
    square = end * end
    square_low = fma(end, end, -square)
    k = fma(square, _K3, _K1)
    k_low = fma(square, _K3, -k + _K1) + fma(square_low, _K3, fma(square, _K3_LOW, _K1_LOW))
    magic_n = fma(-end, k, _MAGIC)
    n = magic_n - _MAGIC
    r = fma(-end, k_low, fma(-end, k, -n))
    d = _far(x, end, fma(r, _LN2, (r * r) * _polynomial(_EXP2, r)), magic_n, p, _NEAR + _NEAR * _TANH_TERMS)
    return tl.where(x == x, d, float("nan"))


@jit
def derivative(x: tl.tensor, p: tl.tensor, TANH: tl.constexpr) -> tl.tensor:
    """d(x); p is the address of the packed tables. Lanes far from 0 cost more, where a program has some."""
    t = tl.abs(x)
    d = _near(x, t, p, _TANH_TERMS if TANH else _NONE_TERMS)
    far = (t <= _NEAR_END) == 0
    if tl.max(far.to(tl.int32), 0) > 0:
        d = tl.where(far, _far_tanh(x, t, p) if TANH else _far_none(x, t, p), d)
    return d
