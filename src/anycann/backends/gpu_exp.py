"""Exponentials and piecewise polynomials for GPU kernels: the operations of cpu_exp.py and cpu_math.py in their order: the same bits."""

import triton.language as tl

from anycann.backends.cpu_exp_coefficients import EXP, EXP2, LN2, LN2_HIGH, LN2_LOW, LOG2_E
from anycann.backends.gpu import fma, jit

__all__ = ["LIFTED", "MAGIC", "bits", "entry", "even_quadratic", "exp2_pair", "exp_pair", "piecewise", "scaled"]

MAGIC = tl.constexpr(1.5 * 2.0**23)  # added to a float, it leaves the nearest integer in the low bits
LIFTED = tl.constexpr(2.0**-64)  # what follows a multiplication by `scaled`
_LIFT = tl.constexpr(64)
_EXP, _EXP2 = tl.constexpr(EXP), tl.constexpr(EXP2)
_LOG2_E, _LN2, _LN2_HIGH, _LN2_LOW = tl.constexpr(LOG2_E), tl.constexpr(LN2), tl.constexpr(LN2_HIGH), tl.constexpr(LN2_LOW)


@jit
def bits(x: tl.tensor) -> tl.tensor:
    """The bits of float32."""
    return x.to(tl.int32, bitcast=True)


@jit
def entry(p: tl.tensor, row: tl.constexpr, i: tl.tensor) -> tl.tensor:
    """Entry row + i of a table of float32."""
    return tl.load(p.to(tl.pointer_type(tl.float32)) + row + i)


@jit
def piecewise(p: tl.tensor, first: tl.constexpr, size: tl.constexpr, terms: tl.constexpr, i: tl.tensor, x: tl.tensor) -> tl.tensor:
    """The polynomial of interval i at x; its terms are rows of `size` entries."""
    result = entry(p, first + (terms - 1) * size, i)
    for k in tl.static_range(terms - 1):
        result = fma(result, x, entry(p, first + (terms - 2 - k) * size, i))
    return result


@jit
def _polynomial(coefficients: tl.constexpr, x: tl.tensor) -> tl.tensor:
    result = x * 0.0 + coefficients[4]
    for k in tl.static_range(4):
        result = fma(result, x, coefficients[3 - k])
    return result


@jit
def exp_pair(a: tl.tensor, a_low: tl.tensor) -> tl.tuple:
    """(e, MAGIC + n) of exp(-(a + a_low)), for a from 0 to 108."""
    magic_n = fma(a, -_LOG2_E, MAGIC)
    n = magic_n - MAGIC
    r = fma(n, -_LN2_HIGH, -a) + fma(n, -_LN2_LOW, -a_low)
    return fma(r * r, _polynomial(_EXP, r), r), magic_n


@jit
def exp2_pair(t: tl.tensor, k: tl.tensor, k_low: tl.tensor) -> tl.tuple:
    """(e, MAGIC + n) of 2^-(t (k + k_low)), for exponents down to -190."""
    magic_n = fma(-t, k, MAGIC)
    n = magic_n - MAGIC
    r = fma(-t, k_low, fma(-t, k, -n))
    return fma(r, _LN2, (r * r) * _polynomial(_EXP2, r)), magic_n


@jit
def even_quadratic(t: tl.tensor, c0: tl.constexpr, c0_low: tl.constexpr, c2: tl.constexpr, c2_low: tl.constexpr) -> tl.tuple:
    """c0 + c2 t^2 in two floats, of constants in two floats."""
    square = t * t
    square_low = fma(t, t, -square)
    high = fma(square, c2, c0)
    return high, fma(square, c2, -high + c0) + fma(square_low, c2, fma(square, c2_low, c0_low))


@jit
def scaled(magic_n: tl.tensor) -> tl.tensor:
    """2^(n + 64), for n + 64 from -126 to 127."""
    return ((bits(magic_n) << 23) + ((127 + _LIFT) << 23)).to(tl.float32, bitcast=True)
