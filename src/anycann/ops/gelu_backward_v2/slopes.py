"""The derivative d of GELU in Triton: the operations of derivative.py in the same order, so the same bits."""

from typing import Any

import numpy as np
import triton.language as tl

from anycann.backends.gpu import fma, jit
from anycann.backends.gpu_exp import LIFTED, MAGIC, bits, entry, even_quadratic, exp2_pair, exp_pair, piecewise, scaled
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
_QUARTER = tl.constexpr(QUARTER_OCTAVE)
_K1, _K1_LOW = tl.constexpr(fitted.K1_HIGH), tl.constexpr(fitted.K1_LOW)
_K3, _K3_LOW = tl.constexpr(fitted.K3_HIGH), tl.constexpr(fitted.K3_LOW)


def packed(mode: str) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The tables of a mode, one after the other."""
    return np.concatenate([np.asarray(part, np.float32).ravel() for part in _PARTS[mode]])


@jit
def _finish(x: tl.tensor, g: tl.tensor, scale: tl.constexpr) -> tl.tensor:
    """-scale g for negative x, 1 + scale g for positive."""
    return fma(g, tl.where(x > 0.0, scale, -scale), tl.where(x > 0.0, 1.0, 0.0))


@jit
def _near(x: tl.tensor, t: tl.tensor, p: tl.tensor, terms: tl.constexpr) -> tl.tensor:
    i = bits(fma(t, 3.0, MAGIC)) & (_NEAR - 1)
    return _finish(x, piecewise(p, _NEAR, _NEAR, terms, i, t - entry(p, 0, i)), 1.0)


@jit
def _far(x: tl.tensor, t: tl.tensor, pair: tl.tuple, p: tl.tensor, first: tl.constexpr) -> tl.tensor:
    e, magic_n = pair
    i = (bits(t) >> _QUARTER) & (_FAR - 1)
    line = piecewise(p, first + _FAR, _FAR, 2, i, t)
    rest = piecewise(p, first + 3 * _FAR, _FAR, _FAR_TERMS, i, t - entry(p, first, i))
    w = line + fma(e, line + rest, rest)
    return _finish(x, w * scaled(magic_n), LIFTED)


@jit
def _far_none(x: tl.tensor, t: tl.tensor, p: tl.tensor) -> tl.tensor:
    end = tl.where(t > _NONE_END, _NONE_END, t)
    half = end * 0.5
    a = end * half
    d = _far(x, end, exp_pair(a, fma(end, half, -a)), p, _NEAR + _NEAR * _NONE_TERMS)
    return tl.where(t < float("inf"), d, float("nan"))


@jit
def _far_tanh(x: tl.tensor, t: tl.tensor, p: tl.tensor) -> tl.tensor:
    end = tl.where(t > _TANH_END, _TANH_END, t)
    k, k_low = even_quadratic(end, _K1, _K1_LOW, _K3, _K3_LOW)
    d = _far(x, end, exp2_pair(end, k, k_low), p, _NEAR + _NEAR * _TANH_TERMS)
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
