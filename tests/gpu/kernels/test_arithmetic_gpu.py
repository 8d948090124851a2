"""The fused multiplication and addition of kernels, on the device and as the interpreter has it."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import triton.language as tl
from kernels import DEVICE, Mirror
from operands import rng

from anycann.backends.gpu import Start, cdiv, fma, jit

BLOCK = 1024


@jit
def _fma(p_a, p_b, p_c, p_out, count, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kind, m = tl.pointer_type(tl.float64), i < count
    a, b, c = tl.load(p_a.to(kind) + i, m), tl.load(p_b.to(kind) + i, m), tl.load(p_c.to(kind) + i, m)
    tl.store(p_out.to(kind) + i, fma(a, b, c), m)


def fused(*operands):
    out = np.full(len(operands[0]), np.nan)
    arrays = [*map(np.ascontiguousarray, operands), out]
    mirrors = [*map(Mirror, arrays)]
    Start(_fma, cdiv(len(out), BLOCK), DEVICE, 4, len(out), BLOCK)(*[mirror.start for mirror in mirrors])
    mirrors[-1].back()
    return arrays[-1]


def exactly(a, b, c):
    return [float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)]


def sized(generator, size, reach):
    return generator.standard_normal(size) * 2.0 ** generator.integers(-reach, reach + 1, size)


@pytest.mark.parametrize("reach", [0, 3, 60, 440])
def test_float64_is_rounded_once(reach):
    generator = rng(reach)
    a, b, c = sized(generator, 3000, reach), sized(generator, 3000, reach), sized(generator, 3000, reach)
    c[::2] = -a[::2] * b[::2] * (1 + generator.integers(-4, 5, 1500) * 2.0**-52)  # little is left
    out = fused(a, b, c)
    assert (out == exactly(a, b, c)).all()
    assert (out != a * b + c).any()


def test_halves_of_a_unit_and_what_is_far_below_them():
    generator = rng(1)
    a, b = (1 + 2.0 ** -generator.integers(20, 40, 3000) for _ in range(2))
    c = generator.choice([-1.0, 0.0, 1.0], 3000) * 2.0 ** generator.integers(-110, 54, 3000)
    assert (fused(a, b, c) == exactly(a, b, c)).all()


def test_zeros_infinities_and_nan():
    a, b, c = np.array(list(itertools.product([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], repeat=3))).T
    with np.errstate(invalid="ignore"):
        expected = a * b + c
    np.testing.assert_array_equal(fused(a, b, c), expected)
    finite = ~np.isnan(expected)
    assert (np.signbit(fused(a, b, c)) == np.signbit(expected))[finite].all()
