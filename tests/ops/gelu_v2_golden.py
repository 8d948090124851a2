"""Golden values of GELU itself: with many digits, and in float64 compiled for walks over billions of inputs."""

import math

import numba
from gelu_walks import SLOPE, Walks
from mpmath import mp, mpf

from anycann.ops.gelu_v2.value import value_none, value_tanh


def exact(x: float, mode: str) -> mpf:
    """y(x) to 35 digits at least, relative, for finite x."""
    with mp.workprec(180):
        x = mpf(x)
        if mode == "none":
            return x * mp.erfc(-x / mp.sqrt(2)) / 2
        a = mp.sqrt(8 / mp.pi) * (x + mpf("0.044715") * x**3)
        e = mp.exp(-abs(a))
        return x * (1 if a > 0 else e) / (1 + e)


@numba.njit(nogil=True, error_model="numpy")
def golden_none(x):
    return 0.5 * x * math.erfc(x * -0.7071067811865476)


@numba.njit(nogil=True, error_model="numpy")
def golden_tanh(x):
    a = SLOPE * (x + 0.044715 * x * x * x)
    e = math.exp(-abs(a))
    return x / (1 + e) if a > 0 else x * e / (1 + e)


value = Walks((value_none, value_tanh), (golden_none, golden_tanh))
