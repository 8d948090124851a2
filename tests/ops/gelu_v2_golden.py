"""Golden values of GELU itself: with many digits, and in float64 compiled for walks over billions of inputs."""

import math

import numba
import numpy as np
from gelu_golden import NORMAL, SUBNORMAL
from mpmath import mp, mpf

from anycann.backends.cpu_simd import F32, LANES, load, store
from anycann.ops.gelu_v2.value import value_none, value_tanh

_SLOPE = math.sqrt(8 / math.pi)


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
    a = _SLOPE * (x + 0.044715 * x * x * x)
    e = math.exp(-abs(a))
    return x / (1 + e) if a > 0 else x * e / (1 + e)


def _walk(golden):
    @numba.njit(nogil=True, error_model="numpy")
    def walk(x, got, worst):
        """Raise the worst errors (in ULP) and where they are: normal results, and those below in ULP of the smallest normal."""
        for k in range(x.size):
            g = golden(np.float64(x[k]))
            size = abs(g)
            kind = NORMAL if size >= 2.0**-126 else SUBNORMAL
            ulp = math.ldexp(1.0, math.frexp(size)[1] - 24) if kind == NORMAL else 2.0**-149
            error = abs(np.float64(got[k]) - g) / ulp
            if not error <= worst[kind, 0]:  # NaN counts as worse than anything
                worst[kind, 0], worst[kind, 1] = error, x[k]

    return walk


walks = {"none": _walk(golden_none), "tanh": _walk(golden_tanh)}


def _kernel(value):
    def run(x, y, n):
        for i in range(0, n, LANES):
            store(F32, y, i, value(load(F32, x, i)))

    return numba.njit(nogil=True, error_model="numpy")(run).compile(numba.void(*[numba.intp] * 3))


_kernels = {"none": _kernel(value_none), "tanh": _kernel(value_tanh)}


def value(x, mode):
    """y of float32 numbers as kernels compute it."""
    padded = np.zeros(-(-x.size // LANES) * LANES, np.float32)
    padded[: x.size] = x
    y = np.empty_like(padded)
    _kernels[mode](padded.ctypes.data, y.ctypes.data, padded.size)
    return y[: x.size]


def worst_errors(x, mode):
    """[[worst ULP, where] of normal results, the same below] for float32 numbers."""
    worst = np.zeros((2, 2))
    walks[mode](x, value(x, mode), worst)
    return worst
