"""Golden values of the GELU derivative d: with many digits, and in float64 compiled for walks over billions of inputs."""

import math

import numba
from gelu_walks import SLOPE, Walks
from mpmath import mp, mpf

from anycann.ops.gelu_backward_v2.derivative import derivative_none, derivative_tanh


def exact(x: float, mode: str) -> mpf:
    """d(x) to 35 digits at least, relative, for finite x."""
    with mp.workprec(180):
        x = mpf(x)
        if mode == "none":
            return mp.erfc(-x / mp.sqrt(2)) / 2 + x * mp.exp(-x * x / 2) / mp.sqrt(2 * mp.pi)
        a = mp.sqrt(8 / mp.pi) * (x + mpf("0.044715") * x**3)
        e = mp.exp(-abs(a))
        sigmoid = (1 if a > 0 else e) / (1 + e)
        return sigmoid + x * e / (1 + e) ** 2 * mp.sqrt(8 / mp.pi) * (1 + 3 * mpf("0.044715") * x * x)


@numba.njit(nogil=True, error_model="numpy")
def golden_none(x):
    return 0.5 * math.erfc(x * -0.7071067811865476) + x * math.exp(-0.5 * x * x) * 0.3989422804014327


@numba.njit(nogil=True, error_model="numpy")
def golden_tanh(x):
    a = SLOPE * (x + 0.044715 * x * x * x)
    e = math.exp(-abs(a))
    sigmoid = 1 / (1 + e) if a > 0 else e / (1 + e)
    return sigmoid + x * (e / ((1 + e) * (1 + e))) * SLOPE * (1 + 3 * 0.044715 * x * x)


derivative = Walks((derivative_none, derivative_tanh), (golden_none, golden_tanh))
