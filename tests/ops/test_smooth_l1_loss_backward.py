"""The smooth L1 gradient against its definition: the float32 evaluation in the stated order, bit for bit."""

import importlib
import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operands import (
    DTYPES,
    LAYOUTS,
    Watched,
    assert_layouts_do_not_matter,
    assert_same,
    at_the_edge,
    dtypes,
    for_all_threads,
    lay,
    layouts,
    normal,
    rng,
    round_double,
    seeds,
    single,
    with_special_values,
)

from anycann import smooth_l1_loss_backward
from anycann.ops.smooth_l1_loss_backward.reference import reference

BETAS = (1.0, 0.5, 0.7, 3.0, 2.0**-20, 2.0**-127, 2.0**-130, 1e-45, 2.0**126, 0.0, np.inf)
REDUCTIONS = ("none", "mean", "sum")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def nearest_reciprocal(n):
    """1 / n rounded once to float32, by comparing candidates exactly."""
    guess = np.float32(1 / n)
    candidates = [guess, np.nextafter(guess, np.float32(0)), np.nextafter(guess, np.float32(2))]
    return min(candidates, key=lambda c: (abs(Fraction(float(c)) - Fraction(1, n)), int(c.view(np.uint32)) & 1))


def expected(grad_out, x, target, reduction, beta, dtype):
    """x = self - target; d = x / beta or sign(x); d * gradOut; * norm: each in float32."""
    grad_out, x, target = single(grad_out), single(x), single(target)
    with np.errstate(all="ignore"):
        difference = x - target
        beta = np.float32(beta)
        sign = np.where(np.isnan(difference), difference, np.float32(1) * (difference > 0) - np.float32(1) * (difference < 0))
        d = np.where(np.abs(difference) < beta, difference / beta, sign).astype(np.float32)
        product = d * grad_out
        if reduction == "mean" and product.size:
            product = product * nearest_reciprocal(difference.size)
        assert product.dtype == np.float32
        return product.astype(dtype)


def check(grad_out, x, target, reduction, beta, dtype, layout="plain"):
    shape = np.broadcast_shapes(grad_out.shape, x.shape, target.shape)
    out = Watched(shape, DTYPES[dtype], layout)
    result = smooth_l1_loss_backward(grad_out, x, target, reduction, beta, out=out.array)
    assert result is out.array
    assert_same(out.check(), expected(grad_out, x, target, reduction, beta, DTYPES[dtype]), (reduction, beta, dtype, layout))


@every_dtype
@pytest.mark.parametrize("beta", BETAS)
def test_every_beta_and_reduction(dtype, beta):
    n = 3001
    with np.errstate(over="ignore"):
        scale = np.float64(beta) if 1e-4 < beta < 1e3 else 1.0
        x, target = (with_special_values(normal((n,), DTYPES[dtype], seed, scale), seed) for seed in (1, 2))
    grad_out = with_special_values(normal((n,), DTYPES[dtype], 3), 3)
    x[:50], target[:50] = target[:50], target[:50]
    for reduction in REDUCTIONS:
        check(grad_out, x, target, reduction, beta, dtype)
        check(grad_out[100:101], x, target, reduction, beta, dtype)


def test_where_both_branches_meet_and_at_zero():
    x = np.float32([0.7, -0.7, np.nextafter(np.float32(0.7), np.float32(0)), 0.0, -0.0, 1e-45])
    zero = np.zeros(6, np.float32)
    got = smooth_l1_loss_backward(np.ones(1, np.float32), x, zero, "sum", float(np.float32(0.7)))
    assert got.tolist() == [1.0, -1.0, float(x[2] / np.float32(0.7)), 0.0, 0.0, float(x[5] / np.float32(0.7))]
    signs = smooth_l1_loss_backward(np.float32([2.0]), x, zero, "none", 0.0)
    assert signs.tolist() == [2.0, -2.0, 2.0, 0.0, 0.0, 2.0]
    infinite = smooth_l1_loss_backward(
        np.float32([2.0]), np.float32([3.0, -1e38, np.inf, -np.inf, np.nan]), np.zeros(5, np.float32), 0, np.inf
    )
    np.testing.assert_array_equal(infinite, np.float32([0, 0, 2, -2, np.nan]))


def test_every_combination_of_dtypes():
    shape = (3, 430)
    arrays = {name: [normal(shape, dtype, seed) for seed in range(3)] for name, dtype in DTYPES.items()}
    for names in itertools.product(DTYPES, repeat=4):
        grad_out, x, target = (arrays[name][i] for i, name in enumerate(names[:3]))
        check(grad_out, x, target, "mean", 0.7, names[3])
        check(grad_out[:1, :1], x[:, :1], target, "sum", 0.5, names[3])


@pytest.mark.parametrize(
    "n", [1, 2, 3, 7, 10, 1000, 4097, 2**24 - 1, 2**24 + 1, 2**24 + 3, 2**25 + 7, 2**28 + 1, 2**31 + 11, 10**12 + 39, 3**30]
)
def test_the_mean_divides_by_a_number_rounded_once(n):
    cpu = importlib.import_module("anycann.ops.smooth_l1_loss_backward.cpu")
    assert np.float32(cpu.reciprocal(n)) == nearest_reciprocal(n)


def test_the_mean_counts_self_and_target_but_not_grad_out():
    grad_out, x, target = np.ones((4, 3, 1), np.float32), np.full((3, 1), 9, np.float32), np.zeros((1, 5), np.float32)
    got = smooth_l1_loss_backward(grad_out, x, target, "mean")
    assert got.shape == (4, 3, 5)
    assert (got == np.float32(1 / 15)).all()


@every_dtype
def test_large_operands_in_any_order_of_axes(dtype):
    grad, x, target = (normal((3, 150, 300), DTYPES[dtype], seed) for seed in range(3))
    assert_layouts_do_not_matter(lambda *given, out: smooth_l1_loss_backward(*given, "none", out=out), grad, x, target)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_inputs_and_output(dtype, layout):
    shape = (5, 40, 33)
    values = [normal(shape, DTYPES[dtype], seed) for seed in range(3)]
    check(lay(values[0], layout), lay(values[1], "transposed"), values[2], "none", 0.7, dtype, layout)
    check(values[0][:, :1], lay(values[1], layout), lay(values[2], layout), "none", 0.5, dtype)
    check(np.broadcast_to(values[0][:1, :1, :1], shape), values[1], values[2], "mean", 0.5, dtype, layout)


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    n = 2111
    values = [normal((n,), DTYPES[dtype], seed) for seed in range(3)]
    want = expected(*values, "mean", 0.7, DTYPES[dtype])
    for offset in range(33):
        out = Watched((n,), DTYPES[dtype], "plain", offset)
        operands = [lay(array, "plain", (offset * (k + 2)) % 31) for k, array in enumerate(values)]
        smooth_l1_loss_backward(*operands, "mean", 0.7, out=out.array)
        assert_same(out.check(), want, offset)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    values = [normal((3, 70_001), DTYPES[dtype], seed) for seed in range(3)]
    found = for_all_threads(lambda: smooth_l1_loss_backward(*values, "mean", 0.7))
    assert found == {expected(*values, "mean", 0.7, DTYPES[dtype]).tobytes()}
    few = [array[:, :700] for array in values]
    assert len({smooth_l1_loss_backward(*few, "mean", 0.7).tobytes() for _ in range(100)}) == 1


@every_dtype
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype):
    n = (1 << 23) // DTYPES[dtype].itemsize + 77
    x, target = (np.resize(normal((100_003,), DTYPES[dtype], seed), n) for seed in (0, 1))
    grad_out = normal((1,), DTYPES[dtype], 2)
    out = Watched((n,), DTYPES[dtype], "plain", 5)
    smooth_l1_loss_backward(grad_out, x, target, "sum", 1.0, out=out.array)
    assert_same(out.check(), expected(grad_out, x, target, "sum", 1.0, DTYPES[dtype]))


@every_dtype
@pytest.mark.parametrize("n", [1, 15, 17, 1023, 1025, 2050])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, n, end):
    values = [normal((n,), DTYPES[dtype], seed) for seed in range(4)]
    with at_the_edge(*values, end=end) as (grad_out, x, target, out):
        smooth_l1_loss_backward(grad_out, x, target, "none", 0.7, out=out)
        assert_same(out, expected(*values[:3], "none", 0.7, DTYPES[dtype]))


def test_an_output_may_be_an_input():
    values = [normal((3000,), np.float32, seed) for seed in range(3)]
    want = expected(*values, "none", 0.7, np.float32)
    for k in range(3):
        operands = [array.copy() for array in values]
        smooth_l1_loss_backward(*operands, "none", 0.7, out=operands[k])
        assert_same(operands[k], want)
    room = np.concatenate([values[1], np.zeros(5, np.float32)])
    smooth_l1_loss_backward(values[0], room[:3000], values[2], "none", 0.7, out=room[5:])
    assert_same(room[5:], want, "a partial overlap gives what copies would give")


def test_empty_and_scalar():
    nothing = smooth_l1_loss_backward(np.ones(1, np.float32), np.zeros((0, 3), np.float32), np.zeros((1, 3), np.float32))
    assert nothing.shape == (0, 3)
    scalar = smooth_l1_loss_backward(np.float32([3.0])[0:1].reshape(()), np.array(2.0, np.float32), np.array(1.5, np.float32), "mean", 2.0)
    assert scalar.shape == ()
    assert float(scalar) == 0.75


@st.composite
def broadcast_shapes(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 16, 45]), min_size=0, max_size=5))
    while np.prod(shape, dtype=np.int64) > 4000:
        shape = shape[1:]
    operands = []
    for _ in range(3):
        own = [1 if draw(st.booleans()) and draw(st.booleans()) else size for size in shape]
        operands.append(tuple(own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :]))
    return operands


@settings(max_examples=150, deadline=None)
@given(
    shapes=broadcast_shapes(),
    names=st.tuples(dtypes, dtypes, dtypes, dtypes),
    kinds=st.tuples(layouts, layouts, layouts, layouts),
    beta=st.one_of(st.sampled_from(BETAS), st.floats(0, 1e3, width=32)),
    reduction=st.sampled_from(REDUCTIONS),
    seed=seeds,
)
def test_any_call(shapes, names, kinds, beta, reduction, seed):
    generator = rng(seed)
    operands = []
    for shape, name, kind in zip(shapes, names, kinds, strict=False):
        values = with_special_values((generator.standard_normal(shape) * 2).astype(DTYPES[name]), int(generator.integers(2**31)))
        operands.append(lay(np.asarray(values).astype(DTYPES[name]), kind))
    check(*operands, reduction, beta, names[3], kinds[3])


@settings(max_examples=50, deadline=None)
@given(shapes=broadcast_shapes(), beta=st.sampled_from([0.0, 0.25, 1.0, 5.0]), reduction=st.sampled_from(REDUCTIONS), seed=seeds)
def test_the_reference_is_near(shapes, beta, reduction, seed):
    generator = rng(seed)
    operands = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    got = smooth_l1_loss_backward(*operands, reduction, beta)
    want = reference(*operands, REDUCTIONS.index(reduction), beta)
    difference = np.abs(single(operands[1]).astype(np.float64) - operands[2])
    slack = 2.0**-24 * difference / beta if beta else 0.0
    grads = np.abs(operands[0].astype(np.float64))
    np.testing.assert_array_less(np.abs(got - want), 4 * 2.0**-24 * np.abs(want) + slack * grads + 1e-37)


def test_round_double_of_the_test_tools_rounds_once():
    tie = 1 + 2.0**-8
    values = np.array([tie, tie + 2.0**-40, tie - 2.0**-40, 1 + 3 * 2.0**-8, 3.4e38, np.inf, np.nan, -tie - 2.0**-40])
    got = round_double(values, DTYPES["bfloat16"]).astype(np.float64)
    np.testing.assert_array_equal(got, [1.0, 1 + 2.0**-7, 1.0, 1 + 2.0**-6, np.inf, np.inf, np.nan, -1 - 2.0**-7])
