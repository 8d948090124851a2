"""What the tests of GELU and of its derivative share: float32 formulas beside golden values, over billions of inputs."""

import hashlib
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
from mpmath import mp, mpf

from anycann.backends.cpu_simd import F32, LANES, load, store

MODES = ("none", "tanh")
NORMAL, SUBNORMAL = 0, 1
SLOPE = math.sqrt(8 / math.pi)
INFINITY_BITS = 0x7F800000


def nearest(value: mpf, digits: int, smallest: int) -> mpf:
    """Value rounded half to even to this many binary digits, but to no finer a multiple than 2^smallest."""
    if value == 0:
        return mpf(0)
    exponent = max(int(mp.frexp(value)[1]) - digits, smallest)
    with mp.workprec(180):
        return mp.ldexp(mp.nint(mp.ldexp(value, -exponent)), exponent)


def float32(bits, negative):
    """The numbers whose bits without the sign these are."""
    return (np.asarray(bits, np.uint32) | np.uint32(0x80000000 if negative else 0)).view(np.float32)


def around(x, count):
    """The count float32 on either side of x, and x."""
    middle = int(np.abs(np.float32(x)).view(np.uint32))
    return float32(np.arange(max(middle - count, 0), middle + count + 1), x < 0)


def digest(function, x):
    """What both modes give, in one number."""
    return hashlib.sha256(b"".join(function(x, mode).tobytes() for mode in MODES)).hexdigest()


def digest_on(cpu, features, module):
    """What `digest_of_points()` of a test module gives in a process that compiles for another CPU."""
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    program = f"from {module} import digest_of_points; print(digest_of_points())"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


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


def _kernel(formula):
    def run(x, y, n):
        for i in range(0, n, LANES):
            store(F32, y, i, formula(load(F32, x, i)))

    return numba.njit(nogil=True, error_model="numpy")(run).compile(numba.void(*[numba.intp] * 3))


class Walks:
    """The float32 formulas of both modes, as kernels compute them, and their errors against float64 ones."""

    def __init__(self, formulas, goldens):
        self.kernels = dict(zip(MODES, map(_kernel, formulas), strict=True))
        self.walks = dict(zip(MODES, map(_walk, goldens), strict=True))

    def __call__(self, x, mode):
        padded = np.zeros(-(-x.size // LANES) * LANES, np.float32)
        padded[: x.size] = x
        y = np.empty_like(padded)
        self.kernels[mode](padded.ctypes.data, y.ctypes.data, padded.size)
        return y[: x.size]

    def worst_errors(self, x, mode):
        """[[worst ULP, where] of normal results, the same below] for float32 numbers."""
        worst = np.zeros((2, 2))
        self.walks[mode](x, self(x, mode), worst)
        return worst

    def check_every_float32(self, stride, mode):
        """All finite float32, or each so many-th of them, are within 2 ULP."""

        def worst_of(start):
            bits = np.arange(start, min(start + (stride << 20), INFINITY_BITS), stride, dtype=np.uint32)
            return np.array([self.worst_errors(float32(bits, negative), mode) for negative in (False, True)])

        with ThreadPoolExecutor(2) as pool:
            found = np.concatenate(list(pool.map(worst_of, range(0, INFINITY_BITS, stride << 20))))
        for kind, name in ((NORMAL, "normal"), (SUBNORMAL, "below")):
            error, where = max(found[:, kind].tolist())
            print(f"{mode}, every {stride}: {name} {error:.4f} ULP at {where!r}")
            assert error <= 2

    def check_lanes(self, mode):
        """A result does not depend on what is computed beside it."""
        rng = np.random.default_rng(3)
        x = (rng.standard_normal(4096) * 4).astype(np.float32)
        order = rng.permutation(x.size)
        y = self(x, mode)
        np.testing.assert_array_equal(self(x[order], mode).view(np.uint32), y[order].view(np.uint32))
        for k in range(0, x.size, 97):
            np.testing.assert_array_equal(self(x[k : k + 1].repeat(16), mode), y[k].repeat(16))
