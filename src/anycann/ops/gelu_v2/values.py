"""GELU in Triton: the operations of value.py in the same order, so the same bits."""

from typing import Any

import numpy as np
import triton.language as tl

from anycann.backends.gpu import constant, fma, jit
from anycann.backends.gpu_exp import LIFTED, MAGIC, bits, entry, even_quadratic, exp2_pair, exp_pair, piecewise, scaled
from anycann.ops.gelu_v2 import coefficients as fitted

__all__ = ["packed", "value"]

_PARTS = (
    (fitted.NONE_NEAR_CENTRES, fitted.NONE_NEAR, fitted.NONE_FAR_CENTRES, fitted.NONE_FAR),
    (fitted.TANH_NEAR_CENTRES, fitted.TANH_NEAR),
)
_NEAR, _FAR = tl.constexpr(16), tl.constexpr(8)  # intervals
_NONE_TERMS, _TANH_TERMS = tl.constexpr(len(fitted.NONE_NEAR)), tl.constexpr(len(fitted.TANH_NEAR))
_FAR_TERMS, _LINE = tl.constexpr(len(fitted.NONE_FAR)), tl.constexpr(fitted.NONE_FAR_LINE)
_NEAR_END, _NEAR_SCALE = tl.constexpr(fitted.NEAR_END), tl.constexpr(15 / fitted.NEAR_END)
_NONE_END, _TANH_END, _QUARTER = tl.constexpr(14.7), tl.constexpr(11.2), tl.constexpr(21)  # as in value.py
_K1, _K1_LOW = tl.constexpr(fitted.K1_HIGH), tl.constexpr(fitted.K1_LOW)
_K3, _K3_LOW = tl.constexpr(fitted.K3_HIGH), tl.constexpr(fitted.K3_LOW)


def packed(mode: int) -> "np.ndarray[Any, np.dtype[np.float32]]":
    """The tables of a mode, one after the other."""
    return np.concatenate([np.asarray(part, np.float32).ravel() for part in _PARTS[mode]])


@jit
def _limit(x: tl.tensor) -> tl.tensor:
    """What x Phi(x) tends to: x, or -0 for negative x; zeros keep their sign."""
    return tl.where(x >= 0.0, x, constant([], None, tl.float32))


@jit
def _near(x: tl.tensor, t: tl.tensor, p: tl.tensor, terms: tl.constexpr) -> tl.tensor:
    i = bits(fma(t, _NEAR_SCALE, MAGIC)) & (_NEAR - 1)
    return fma(t * -1.0, piecewise(p, _NEAR, _NEAR, terms, i, t - entry(p, 0, i)), _limit(x))


@jit
def _far_none(x: tl.tensor, t: tl.tensor, p: tl.tensor, first: tl.constexpr) -> tl.tensor:
    end = tl.where(t > _NONE_END, _NONE_END, t)
    half = end * 0.5
    a = end * half
    e, magic_n = exp_pair(a, fma(end, half, -a))
    i = (bits(end) >> _QUARTER) & (_FAR - 1)
    rest = piecewise(p, first + _FAR, _FAR, _FAR_TERMS, i, end - entry(p, first, i))
    w = fma(e, rest + _LINE, rest) + _LINE
    return fma(w * scaled(magic_n), -LIFTED, _limit(x))


@jit
def _far_tanh(x: tl.tensor, t: tl.tensor) -> tl.tensor:
    end = tl.where(t > _TANH_END, _TANH_END, t)
    k, k_low = even_quadratic(end, _K1, _K1_LOW, _K3, _K3_LOW)
    e, magic_n = exp2_pair(end, k, k_low)
    scale = scaled(magic_n)
    z = scale * LIFTED
    z = fma(z, e, z)
    w = fma(fma(-z, e, e) - z, end, end)
    return fma(w * scale, -LIFTED, _limit(x))


@jit
def value(x: tl.tensor, p: tl.tensor, TANH: tl.constexpr) -> tl.tensor:
    """y(x); p is the address of the packed tables. Lanes far from 0 cost more, where a program has some."""
    t = tl.abs(x)
    y = _near(x, t, p, _TANH_TERMS if TANH else _NONE_TERMS)
    far = (t <= _NEAR_END) == 0
    if tl.max(far.to(tl.int32), 0) > 0:
        y = tl.where(far, _far_tanh(x, t) if TANH else _far_none(x, t, p, _NEAR + _NEAR * _NONE_TERMS), y)
    return y
