"""Exponentials for CPU kernels that lose nothing to a large exponent: 2^n (1 + e), with n as it comes from the addition of MAGIC.

The exponent is kept in two floats until n is taken off, and 1 + e is never rounded: whoever multiplies by it adds e times the other
factor. `scaled` makes 2^n of the bits of MAGIC + n, lifted so that it stays a normal number where the product underflows.
"""

from anycann.backends.cpu import device
from anycann.backends.cpu_exp_coefficients import EXP, EXP2, LN2, LN2_HIGH, LN2_LOW, LOG2_E
from anycann.backends.cpu_math import Polynomial, polynomial
from anycann.backends.cpu_simd import bits, f32x16, fma, from_bits

__all__ = ["LIFT", "MAGIC", "even_quadratic", "exp2_pair", "exp_pair", "scaled"]

MAGIC = 1.5 * 2.0**23  # added to a float, it leaves the nearest integer in the low bits
LIFT = 64  # `scaled` is 2^(n + 64), to be followed by a multiplication by 2^-64

_EXPONENT_BIAS = (127 + LIFT) << 23
_EXP, _EXP2 = Polynomial(EXP), Polynomial(EXP2)


@device
def exp_pair(a: f32x16, a_low: f32x16) -> tuple[f32x16, f32x16]:
    """(e, MAGIC + n) of exp(-(a + a_low)), for a from 0 to 108."""
    magic_n = fma(a, -LOG2_E, MAGIC)
    n = magic_n - MAGIC
    r = fma(n, -LN2_HIGH, -a) + fma(n, -LN2_LOW, -a_low)
    return fma(r * r, polynomial(_EXP, r), r), magic_n


@device
def exp2_pair(t: f32x16, k: f32x16, k_low: f32x16) -> tuple[f32x16, f32x16]:
    """(e, MAGIC + n) of 2^-(t (k + k_low)), for exponents down to -190."""
    magic_n = fma(-t, k, MAGIC)
    n = magic_n - MAGIC
    r = fma(-t, k_low, fma(-t, k, -n))
    return fma(r, LN2, (r * r) * polynomial(_EXP2, r)), magic_n


@device
def even_quadratic(t: f32x16, c0: float, c0_low: float, c2: float, c2_low: float) -> tuple[f32x16, f32x16]:
    """c0 + c2 t^2 in two floats, of constants in two floats."""
    square = t * t
    square_low = fma(t, t, -square)
    high = fma(square, c2, c0)
    return high, fma(square, c2, c0 - high) + fma(square_low, c2, fma(square, c2_low, c0_low))


@device
def scaled(magic_n: f32x16) -> f32x16:
    """2^(n + LIFT), for n + LIFT from -126 to 127."""
    return from_bits((bits(magic_n) << 23) + _EXPONENT_BIAS)
