"""The values of GELU: tables, float32 formulas and the reference against golden values."""

import platform

import ml_dtypes
import numpy as np
import pytest
from gelu_v2_golden import exact, golden_none, golden_tanh, value
from gelu_walks import MODES, NORMAL, SUBNORMAL, around, digest, digest_on, nearest
from mpmath import mp

from anycann.ops.gelu_v2.reference import reference
from anycann.ops.gelu_v2.tables import table

DTYPES = {"float16": (np.dtype(np.float16), 11, -24), "bfloat16": (np.dtype(ml_dtypes.bfloat16), 8, -133)}
FAR = 40.0  # beyond, y is x or 0 within 1e-300

modes = pytest.mark.parametrize("mode", MODES)


def inputs(dtype):
    with np.errstate(invalid="ignore"):
        return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype][0]).astype(np.float64)


def stored(entries, dtype):
    """Entries of a table as the kernel stores them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return entries.astype(DTYPES[dtype][0]).astype(np.float64)


def reference_error(golden):
    return 1e-13 * abs(golden) + 1e-60


@modes
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_16_bit_result_is_correctly_rounded_and_the_reference_right(dtype, mode):
    _, digits, smallest = DTYPES[dtype]
    x, got, want = inputs(dtype), stored(table(dtype, MODES.index(mode)), dtype), reference(inputs(dtype), MODES.index(mode))
    for k in np.flatnonzero(np.abs(x) <= FAR):
        golden = exact(x[k], mode)
        assert got[k] == float(nearest(golden, digits, smallest)), f"{x[k]} in {dtype}"
        assert abs(want[k] - golden) <= reference_error(golden), f"reference of {x[k]}"


@modes
@pytest.mark.parametrize("dtype", DTYPES)
def test_results_of_what_is_far_or_not_finite(dtype, mode):
    x, got = inputs(dtype), stored(table(dtype, MODES.index(mode)), dtype)
    far, number = np.abs(x) > FAR, ~np.isnan(x)
    np.testing.assert_array_equal(got[far], np.where(x[far] > 0, x[far], 0))
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(x[number]))
    np.testing.assert_array_equal(np.isnan(got), ~number)
    assert set(table(dtype, MODES.index(mode))[~number].view(np.uint32)) == {0x7FC00000}


def many_points():
    """A million float32: all binades, the ends and the middle of every piece, and both tails."""
    rng = np.random.default_rng(7)
    binades = (np.arange(255, dtype=np.uint32) << 23).repeat(1500) | rng.integers(0, 1 << 23, 255 * 1500, dtype=np.uint32)
    edges = [*(np.arange(1, 31) * (2 / 15)), 4, *range(5, 15), 2.0**-126, 1e-45, 14.7, 11.2]
    tails = rng.uniform(4, 14.8, 150_000).astype(np.float32)
    middle = rng.uniform(0, 4, 150_000).astype(np.float32)
    both = np.concatenate([binades.view(np.float32), tails, middle, *(around(x, 500) for x in edges)])
    return np.concatenate([both, -both])


@modes
def test_float32_is_within_2_ulp_on_a_million_points(mode):
    x = many_points()
    assert x.size > 1_000_000
    worst = value.worst_errors(x, mode)
    assert worst[NORMAL, 0] <= 2, f"{worst[NORMAL]}"
    assert worst[SUBNORMAL, 0] <= 2, f"{worst[SUBNORMAL]}"


@modes
def test_the_float64_golden_of_the_walks_and_the_reference(mode):
    golden = golden_none if mode == "none" else golden_tanh
    for x in many_points()[::997].astype(np.float64).tolist():
        want = exact(x, mode)
        assert abs(golden(x) - want) <= reference_error(want), x
        assert abs(float(reference(x, MODES.index(mode))) - want) <= reference_error(want), x


@modes
def test_float32_against_many_digits(mode):
    rng = np.random.default_rng(9)
    for x in np.concatenate([rng.uniform(-14, 6, 2000), rng.standard_normal(500) * 1e-3]).astype(np.float32):
        want = exact(float(x), mode)
        ulp = mp.ldexp(1, max(int(mp.frexp(want)[1]) - 24, -149))
        assert abs(float(value(np.array([x]), mode)[0]) - want) <= 2 * ulp, x


@modes
def test_float32_special_values(mode):
    nan = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0xFFFFFFFF], np.uint32).view(np.float32)
    x = np.concatenate([np.array([np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 14.8, -14.8, 3e-45, -3e-45], np.float32), nan])
    y = value(x, mode)
    np.testing.assert_array_equal(y, np.float32([np.inf, 0, 0, 0, 3.4e38, 0, 14.8, 0, 1e-45, -1e-45, *[np.nan] * 4]))
    assert np.array_equal(np.signbit(y[:10]), np.signbit(x[:10]))


@modes
def test_a_lane_does_not_depend_on_the_others(mode):
    value.check_lanes(mode)


def digest_of_points():
    """What both modes give for points of all kinds, in one number."""
    every = np.concatenate([many_points()[::9], np.float32([np.inf, -np.inf])])
    return digest(value, every)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for older x86-64 CPUs")
@pytest.mark.parametrize(("cpu", "features"), [("haswell", "+avx2,+fma,+f16c"), ("x86-64", "")])
def test_other_targets_give_the_same_bits(cpu, features):
    assert digest_on(cpu, features, "test_gelu_v2_numerics") == digest_of_points()


@pytest.mark.slow
@modes
@pytest.mark.parametrize("stride", [401, 1], ids=["ten million", "all"])
def test_every_float32(stride, mode):
    value.check_every_float32(stride, mode)
