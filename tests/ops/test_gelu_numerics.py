"""The factor d of the GELU gradient: tables, float32 formulas and the reference against golden values."""

import platform
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from gelu_golden import derivative, exact, golden_none, golden_tanh
from gelu_walks import MODES, NORMAL, SUBNORMAL, around, digest, digest_on, float32, nearest
from mpmath import mp

from anycann.ops.gelu_backward_v2.reference import reference
from anycann.ops.gelu_backward_v2.tables import table

ROOT = Path(__file__).parents[2]
DTYPES = {"float16": (np.dtype(np.float16), 11, -24), "bfloat16": (np.dtype(ml_dtypes.bfloat16), 8, -133)}
ROOTS = {"none": -0.7517915246935645, "tanh": -0.7524614220710163}
FAR = 40.0  # beyond, d is 0 or 1 within 1e-300

modes = pytest.mark.parametrize("mode", MODES)


def inputs(dtype):
    with np.errstate(invalid="ignore"):
        return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype][0]).astype(np.float64)


def reference_error(x, golden):
    """What the float64 formulas may be off: relative to what float32 can show, but absolute beside the root, where they cancel."""
    return 1e-13 * abs(golden) + 1e-60 + 1e-16 * (abs(x) < 1)


@modes
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_entry_and_its_second_rounding_and_the_reference_are_right(dtype, mode):
    kind, digits, smallest = DTYPES[dtype]
    x, entries = inputs(dtype), table(dtype, mode)
    again = entries.astype(kind).astype(np.float64)
    d = reference(1.0, x, mode)
    assert entries.dtype == np.float32
    for k in np.flatnonzero(np.abs(x) <= FAR):
        golden = exact(x[k], mode)
        assert entries[k] == float(nearest(golden, 24, -149)), f"entry of {x[k]}"
        assert again[k] == float(nearest(golden, digits, smallest)), f"{x[k]} rounded to {dtype}"
        assert abs(d[k] - golden) <= reference_error(x[k], golden), f"reference of {x[k]}"


@modes
@pytest.mark.parametrize("dtype", DTYPES)
def test_entries_of_what_is_far_or_not_finite(dtype, mode):
    x, entries = inputs(dtype), table(dtype, mode)
    far = np.isfinite(x) & (np.abs(x) > FAR)
    np.testing.assert_array_equal(entries[far], x[far] > 0)
    np.testing.assert_array_equal(entries[np.isinf(x)], [np.nan, np.nan] if mode == "none" else [1, 0])
    assert np.isnan(entries[np.isnan(x)]).all()


@pytest.mark.parametrize("mode", MODES)
def test_the_reference_beside_the_root_and_in_its_limits(mode):
    d = reference(np.array([2.0, 2.0, 3.0]), np.array([np.inf, -np.inf, np.nan]), mode)
    np.testing.assert_array_equal(d, [np.nan] * 3 if mode == "none" else [2, 0, np.nan])
    np.testing.assert_array_equal(reference(3.0, np.array([1e30, -1e30, 0.0]), mode), [3, 0, 1.5])


def many_points(mode):
    """A million float32: all binades, the ends and the middle of every piece, the root of d, and both tails."""
    rng = np.random.default_rng(7)
    binades = (np.arange(255, dtype=np.uint32) << 23).repeat(1500) | rng.integers(0, 1 << 23, 255 * 1500, dtype=np.uint32)
    edges = [*(np.arange(1, 32) / 6), 5, *range(6, 15), 2.0**-126, 1e-45, 14.7, 11.2]
    tails = rng.uniform(5, 14.8, 150_000).astype(np.float32)
    middle = rng.uniform(0, 5, 150_000).astype(np.float32)
    both = np.concatenate([float32(binades, False), tails, middle, *(around(x, 500) for x in edges)])
    return np.concatenate([both, -both, around(ROOTS[mode], 20_000)])


@modes
def test_float32_is_within_2_ulp_on_a_million_points(mode):
    x = many_points(mode)
    assert x.size > 1_000_000
    worst = derivative.worst_errors(x, mode)
    assert worst[NORMAL, 0] <= 2, f"{worst[NORMAL]}"
    assert worst[SUBNORMAL, 0] <= 2, f"{worst[SUBNORMAL]}"


@modes
def test_the_float64_golden_of_the_walks(mode):
    x = many_points(mode)[::7].astype(np.float64)
    golden = np.array([(golden_none if mode == "none" else golden_tanh)(value) for value in x[::10]])
    want = reference(1.0, x[::10], mode)
    assert np.all(np.abs(golden - want) <= 2 * reference_error(x[::10], want))  # each of the two formulas may be off


@modes
def test_float32_keeps_its_accuracy_at_the_root_of_d(mode):
    """Where float64 formulas cancel, too."""
    x = around(ROOTS[mode], 600)
    for value, got in zip(x.tolist(), derivative(x, mode).tolist(), strict=True):
        golden = exact(value, mode)
        assert abs(got - golden) <= 2 * mp.ldexp(1, int(mp.frexp(golden)[1]) - 24), value


@modes
def test_float32_special_values(mode):
    nan = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0xFFFFFFFF], np.uint32).view(np.float32)
    x = np.concatenate([np.array([np.inf, -np.inf, 0.0, -0.0, 3.4e38, -3.4e38, 14.8, -14.8, 1e-45], np.float32), nan])
    limits = [np.nan, np.nan] if mode == "none" else [1, 0]
    d = derivative(x, mode)
    np.testing.assert_array_equal(d, [*limits, 0.5, 0.5, 1, 0, 1, 0, 0.5, *[np.nan] * 4])
    assert set(d[np.isnan(d)].view(np.uint32)) == {0x7FC00000}


@modes
def test_a_lane_does_not_depend_on_the_others(mode):
    derivative.check_lanes(mode)


@modes
def test_float32_times_any_gradient_is_within_5_ulp(mode):
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(-12, 6, 200_000), around(ROOTS[mode], 1000)]).astype(np.float32)
    grad = (rng.standard_normal(x.size) * 2.0 ** rng.integers(-20, 20, x.size)).astype(np.float32)
    d = reference(1.0, x, mode)
    golden = d * grad.astype(np.float64)
    normal = (np.abs(d) >= 2.0**-126) & (np.abs(golden) >= 2.0**-126)
    error = np.abs((derivative(x, mode) * grad).astype(np.float64) - golden)[normal]
    assert np.all(error <= 5 * np.exp2(np.floor(np.log2(np.abs(golden[normal]))) - 23))


@modes
@pytest.mark.parametrize("dtype", DTYPES)
def test_16_bit_times_any_gradient_is_within_0_51_ulp(dtype, mode):
    kind, digits, smallest = DTYPES[dtype]
    rng = np.random.default_rng(11)
    x, entries = inputs(dtype), table(dtype, mode)
    grad = (rng.standard_normal(x.size) * 2.0 ** rng.integers(-8, 8, x.size)).astype(kind).astype(np.float32)
    d = reference(1.0, x, mode)
    with np.errstate(over="ignore", invalid="ignore", under="ignore", divide="ignore"):
        got = (grad * entries).astype(kind).astype(np.float64)
        golden = d * grad
        ulp = np.exp2(np.maximum(np.floor(np.log2(np.abs(golden))) - (digits - 1), smallest))
        counted = (np.abs(d) >= 2.0**-126) & np.isfinite(got) & (golden != 0)
        assert counted.sum() > 30_000
        assert np.all(np.abs(got - golden)[counted] <= 0.51 * ulp[counted])


def digest_of_points():
    """What both modes give for points of all kinds, in one number."""
    every = np.concatenate([many_points("none")[::9], np.float32([np.inf, -np.inf, np.nan])])
    return digest(derivative, every)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for older x86-64 CPUs")
@pytest.mark.parametrize(("cpu", "features"), [("haswell", "+avx2,+fma,+f16c"), ("x86-64", "")])
def test_other_targets_give_the_same_bits(cpu, features):
    assert digest_on(cpu, features, "test_gelu_numerics") == digest_of_points()


@pytest.mark.parametrize(
    ("module", "path"),
    [
        ("forward", "ops/gelu_v2/coefficients.py"),
        ("backward", "ops/gelu_backward_v2/coefficients.py"),
        ("exponentials", "backends/cpu_exp_coefficients.py"),
    ],
)
def test_the_fitting_script_gives_the_constants_that_we_ship(module, path):
    run = subprocess.run([sys.executable, ROOT / "tools" / "fit_gelu.py", module], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout == (ROOT / "src/anycann" / path).read_text()


@pytest.mark.slow
@modes
@pytest.mark.parametrize("stride", [401, 1], ids=["ten million", "all"])
def test_every_float32(stride, mode):
    derivative.check_every_float32(stride, mode)
