"""The smooth L1 loss against its definition: the float32 evaluation in the stated order, and sums in the written order, bit for bit."""

import itertools
import math
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

from anycann import AclnnError, aclnn, smooth_l1_loss
from anycann.ops.smooth_l1_loss.reference import reference
from anycann.ops.smooth_l1_loss.spec import ELEMENTS_PER_PARTIAL, PARTIALS_PER_GROUP, SUMS_PER_PARTIAL

BETAS = (1.0, 0.5, 0.7, 3.0, 2.0**-20, 2.0**-127, 2.0**-130, 1e-45, 2.0**126, 3e38, 0.0, np.inf)
REDUCTIONS = ("none", "mean", "sum")
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def losses(x, target, beta):
    """(0.5 x) (x / beta) or |x| - 0.5 beta, each operation in float32."""
    with np.errstate(all="ignore"):
        difference, beta, half = single(x) - single(target), np.float32(beta), np.float32(0.5)
        size = np.abs(difference)
        result = np.where(size < beta, (half * difference) * (difference / beta), size - half * beta)
        assert result.dtype == np.float32
        return result


def total(values):
    """The sum in the written order, in float64."""
    count = -(-values.size // ELEMENTS_PER_PARTIAL)
    padded = np.zeros(count * ELEMENTS_PER_PARTIAL)
    padded[: values.size] = values.ravel()
    sums = np.zeros((count, SUMS_PER_PARTIAL))
    for row in padded.reshape(count, -1, SUMS_PER_PARTIAL).transpose(1, 0, 2):
        sums = sums + row
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    result = 0.0
    for first in range(0, count, PARTIALS_PER_GROUP):
        group = 0.0
        for partial in sums[first : first + PARTIALS_PER_GROUP, 0].tolist():
            group += partial
        result += group
    return result


def expected(x, target, reduction, beta, dtype):
    values = losses(x, target, beta)
    with np.errstate(all="ignore"):
        if reduction == "none":
            return values.astype(dtype)
        sum_ = total(values)
        return round_double(np.asarray(np.float64(sum_) / values.size if reduction == "mean" else sum_), dtype)


def check(x, target, reduction, beta, dtype, layout="plain", shape=()):
    shape = np.broadcast_shapes(x.shape, target.shape) if reduction == "none" else shape
    out = Watched(shape, DTYPES[dtype], layout)
    assert smooth_l1_loss(x, target, reduction, beta, out=out.array) is out.array
    want = expected(x, target, reduction, beta, DTYPES[dtype]).reshape(shape)
    assert_same(out.check(), want, (reduction, beta, dtype, layout))


@every_dtype
@pytest.mark.parametrize("beta", BETAS)
def test_every_beta_and_reduction(dtype, beta):
    n = 3001
    with np.errstate(over="ignore"):
        scale = np.float64(beta) if 1e-4 < beta < 1e3 else 1.0
        x, target = (normal((n,), DTYPES[dtype], seed, scale) for seed in (1, 2))
        special, other = (with_special_values(array, seed) for seed, array in enumerate((x, target)))
    x[:50] = target[:50]
    for reduction in REDUCTIONS:
        check(x, target, reduction, beta, dtype)
        check(special, other, reduction, beta, dtype)


def test_where_both_branches_meet_at_zero_and_in_the_limits():
    zero, x = np.zeros(7, np.float32), np.float32([0.7, -0.7, 0.0, -0.0, 1e-45, np.inf, np.nan])
    beta = float(np.float32(0.7))
    got = smooth_l1_loss(x, zero, "none", beta)
    half = np.float32(0.7) - np.float32(0.35)
    np.testing.assert_array_equal(got, np.float32([half, half, 0, 0, 0, np.inf, np.nan]))
    np.testing.assert_array_equal(smooth_l1_loss(x, zero, "none", 0.0), np.abs(x))
    np.testing.assert_array_equal(smooth_l1_loss(x, zero, "none", np.inf), np.float32([0, 0, 0, 0, 0, np.nan, np.nan]))
    assert not np.signbit(got[:5]).any()
    assert not np.signbit(smooth_l1_loss(x, zero, "none", 0.0)[:5]).any()


def test_squares_that_leave_float32_do_no_harm():
    """x^2 overflows in the first, underflows in the second; the loss does neither."""
    x, beta = np.float32([1e25, 1e-25]), (1e38, 1e-20)
    for value, b in zip(x, beta, strict=True):
        got = float(smooth_l1_loss(value[None], np.zeros(1, np.float32), "none", b)[0])
        assert got == pytest.approx(0.5 * float(value) ** 2 / float(np.float32(b)), rel=3 * 2.0**-24)


@every_dtype
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 2048, 5000, 70_001])
def test_the_written_order(dtype, n):
    x, target = (normal((n,), DTYPES[dtype], seed) for seed in (1, 2))
    for reduction, shape in itertools.product(("mean", "sum"), ((), (1,))):
        check(x, target, reduction, 0.7, dtype, shape=shape)


def test_where_partial_sums_end_and_which_sum_takes_an_element():
    """2^60 + 2^36 is a tie in float32, so that what is added to it decides. 2^60 swallows each 64 in float64, but not the sum of many."""
    some = np.arange(SUMS_PER_PARTIAL, ELEMENTS_PER_PARTIAL, SUMS_PER_PARTIAL)
    for place, swallowed in ((some, True), (some + 2, False), (some[:-1] + 1, False), (some + ELEMENTS_PER_PARTIAL, False)):
        x = np.zeros(2 * ELEMENTS_PER_PARTIAL, np.float32)
        x[0], x[3], x[place] = 2.0**60, 2.0**36, 64
        got = smooth_l1_loss(x, np.zeros_like(x), "sum", 0.0)
        assert got == np.float32(2.0**60 if swallowed else 2.0**60 + 2.0**37), (place[:2], got)


def test_where_groups_of_partial_sums_end():
    """As above: 2^60 swallows the 64 of each partial sum of its own group, not the sum of many of them in another group."""
    firsts = np.arange(1, PARTIALS_PER_GROUP) * ELEMENTS_PER_PARTIAL
    for place, swallowed in ((firsts, True), (firsts + firsts[-1], False)):
        x = np.zeros(2 * PARTIALS_PER_GROUP * ELEMENTS_PER_PARTIAL, np.float32)
        x[0], x[3], x[place] = 2.0**60, 2.0**36, 64
        got = smooth_l1_loss(x, np.zeros_like(x), "sum", 0.0)
        assert got == np.float32(2.0**60 if swallowed else 2.0**60 + 2.0**37), (place[:2], got)


@every_dtype
def test_large_operands_in_any_order_of_axes(dtype):
    x, target = (normal((3, 150, 300), DTYPES[dtype], seed) for seed in range(2))
    assert_layouts_do_not_matter(lambda *given, out: smooth_l1_loss(*given, "none", out=out), x, target)


def test_empty_operands():
    nothing, row = np.zeros((0, 3), np.float32), np.zeros((1, 3), np.float32)
    for shape in ((), (1,)):
        out = np.full(shape, 7, np.float32)
        assert_same(smooth_l1_loss(nothing, row, "mean", out=out), np.full(shape, np.nan, np.float32))
        assert_same(smooth_l1_loss(nothing, row, "sum", out=out), np.zeros(shape, np.float32))
    assert smooth_l1_loss(nothing, row, "none").shape == (0, 3)


def test_scalars_and_the_shape_of_what_is_made():
    two, one = np.array(2.0, np.float32), np.array(1.5, np.float32)
    for reduction in REDUCTIONS:
        scalar = smooth_l1_loss(two, one, reduction, 2.0)
        assert (scalar.shape, float(scalar)) == ((), 0.0625)
    assert smooth_l1_loss(np.ones((2, 3), np.float32), np.ones(3, np.float32)).shape == ()


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_shapes_that_do_not_broadcast_and_wrong_results(reduction):
    x, target = np.zeros((3, 4), np.float32), np.zeros((3, 5), np.float32)
    with pytest.raises(AclnnError, match=r"self must broadcast with target; got S = \(3, 4\), T = \(3, 5\)") as refused:
        smooth_l1_loss(x, target, reduction)
    assert refused.value.status == 161002
    out = np.zeros((2,), np.float32)
    with pytest.raises(AclnnError, match=r"out must have shape ") as refused:
        smooth_l1_loss(x, x, reduction, out=out)
    assert refused.value.status == 161002
    wrong = np.zeros((3, 4) if reduction != "none" else (1,), np.float32)
    with pytest.raises(AclnnError, match=r"result must have shape "):
        aclnn.aclnnSmoothL1LossGetWorkspaceSize(x, x, REDUCTIONS.index(reduction), 1.0, wrong)


@pytest.mark.parametrize("reduction", [1, 2])
def test_two_phases_with_a_reduction(reduction):
    x, target, out = normal((3000,), DTYPES["float16"], 1), normal((3000,), DTYPES["float16"], 2), np.zeros(1, np.float32)
    size, executor = aclnn.aclnnSmoothL1LossGetWorkspaceSize(x, target, reduction, 0.5, out)
    aclnn.aclnnSmoothL1Loss(aclnn.empty_workspace(size), size, executor, None)
    assert_same(out, expected(x, target, REDUCTIONS[reduction], 0.5, np.float32).reshape(1))


def test_every_combination_of_dtypes():
    shape = (3, 430)
    arrays = {name: [normal(shape, dtype, seed) for seed in range(2)] for name, dtype in DTYPES.items()}
    for names in itertools.product(DTYPES, repeat=3):
        x, target = arrays[names[0]][0], arrays[names[1]][1]
        for reduction in REDUCTIONS:
            check(x, target[:, :1], reduction, 0.7, names[2])
        check(x[:1], target, "sum", 0.5, names[2])


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_inputs_and_output(dtype, layout):
    shape = (5, 40, 33)
    x, target = (normal(shape, DTYPES[dtype], seed) for seed in range(2))
    check(lay(x, layout), lay(target, "transposed"), "none", 0.7, dtype, layout)
    check(np.broadcast_to(x[:1, :, :1], shape), lay(target, layout), "none", 0.5, dtype)
    for reduction in ("mean", "sum"):
        check(lay(x, layout), lay(target, "transposed"), reduction, 0.7, dtype, layout, (1,))
        check(x[:, :1], lay(target, layout), reduction, 0.5, dtype)
        check(np.broadcast_to(x[:1, :1, :1], shape), target, reduction, 0.5, dtype)


@every_dtype
@pytest.mark.parametrize("run", [16, 63, 64, 1000, 1023, 1024, 2048, 3000, 4095, 4096, 5000])
def test_sums_over_runs_that_lie_apart(dtype, run):
    x, target = (normal((13, run + 3), DTYPES[dtype], seed)[:, :run] for seed in range(2))
    check(x, target, "sum", 0.7, dtype)
    check(x[::-1], np.ascontiguousarray(target), "mean", 0.5, dtype)


@every_dtype
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("shape", [(2, 72, 90, 3), (5, 14, 14, 96), (3, 1000, 70), (3, 131, 33), (2, 96, 1100), (3, 16, 5000), (1, 64, 1)])
def test_sums_over_operands_that_lie_across(dtype, shape, axis):
    """Their channels first, or behind the batch; 131 rows make no tiles, nor do so long ones."""
    lying = [*shape[:axis], shape[-1], *shape[axis:-1]]
    x, target = (np.moveaxis(normal(lying, DTYPES[dtype], seed), axis, -1) for seed in range(2))
    check(x, target, "sum", 0.7, dtype)
    check(x, np.ascontiguousarray(target), "mean", 0.5, dtype)
    want = smooth_l1_loss(np.ascontiguousarray(x), np.ascontiguousarray(target), "sum").tobytes()
    assert for_all_threads(lambda: smooth_l1_loss(x, target, "sum")) == {want}
    other = DTYPES["float32" if dtype == "float16" else "float16"]
    assert_same(smooth_l1_loss(x.astype(other), target, "sum"), smooth_l1_loss(x.astype(other).copy("C"), target.copy("C"), "sum"), shape)


@every_dtype
@pytest.mark.parametrize("shape", [(96, 5, 70), (70, 3, 2, 130), (131, 7, 33), (64, 40, 90), (8, 2, 7, 5)])
def test_sums_over_operands_in_reverse(dtype, shape):
    """Neighbours in memory are rows apart; 131 of them make no tiles, nor do few."""
    arrays = [normal(shape, DTYPES[dtype], seed) for seed in range(2)]
    want = {name: smooth_l1_loss(*arrays, name).tobytes() for name in ("sum", "mean")}
    x, target = (array.T.copy().T for array in arrays)
    for pair in ((x, target), (x, arrays[1]), (arrays[0], target), (x, target[::-1].copy()[::-1])):
        for name in want:
            assert for_all_threads(lambda pair=pair, name=name: smooth_l1_loss(*pair, name)) == {want[name]}


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    n = 2111
    values = [normal((n,), DTYPES[dtype], seed) for seed in range(2)]
    want = expected(*values, "none", 0.7, DTYPES[dtype])
    for offset in range(33):
        out = Watched((n,), DTYPES[dtype], "plain", offset)
        operands = [lay(array, "plain", (offset * (k + 2)) % 31) for k, array in enumerate(values)]
        smooth_l1_loss(*operands, "none", 0.7, out=out.array)
        assert_same(out.check(), want, offset)
        assert_same(smooth_l1_loss(*operands, "mean", 0.7), expected(*values, "mean", 0.7, DTYPES[dtype]), offset)


@every_dtype
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_nothing_depends_on_threads_or_repeats(dtype, reduction):
    values = [normal((3, 70_001), DTYPES[dtype], seed) for seed in range(2)]
    found = for_all_threads(lambda: smooth_l1_loss(*values, reduction, 0.7))
    assert found == {expected(*values, reduction, 0.7, DTYPES[dtype]).tobytes()}
    few = [array[:, :700] for array in values]
    assert len({smooth_l1_loss(*few, reduction, 0.7).tobytes() for _ in range(100)}) == 1


@every_dtype
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype):
    n = (1 << 23) // DTYPES[dtype].itemsize + 77
    x, target = (np.resize(normal((100_003,), DTYPES[dtype], seed), n) for seed in (0, 1))
    out = Watched((n,), DTYPES[dtype], "plain", 5)
    smooth_l1_loss(x, target, "none", 1.0, out=out.array)
    assert_same(out.check(), expected(x, target, "none", 1.0, DTYPES[dtype]))


@every_dtype
@pytest.mark.parametrize("n", [1, 15, 17, 1023, 1025, 2050])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, n, end):
    values = [normal((n,), DTYPES[dtype], seed) for seed in range(3)]
    with at_the_edge(*values, values[2][:1], end=end) as (x, target, out, one):
        smooth_l1_loss(x, target, "none", 0.7, out=out)
        assert_same(out, expected(*values[:2], "none", 0.7, DTYPES[dtype]))
        smooth_l1_loss(x, target, "mean", 0.7, out=one)
        assert_same(one, expected(*values[:2], "mean", 0.7, DTYPES[dtype]).reshape(1))


def test_the_output_may_be_an_input():
    values = [normal((3000,), np.float32, seed) for seed in range(2)]
    for k in range(2):
        operands = [array.copy() for array in values]
        smooth_l1_loss(*operands, "none", 0.7, out=operands[k])
        assert_same(operands[k], expected(*values, "none", 0.7, np.float32))
        operands = [array.copy() for array in values]
        smooth_l1_loss(*operands, "sum", 0.7, out=operands[k][5:6])
        assert_same(operands[k][5:6], expected(*values, "sum", 0.7, np.float32).reshape(1), "an element of an input")
    room = np.concatenate([values[0], np.zeros(5, np.float32)])
    smooth_l1_loss(room[:3000], values[1], "none", 0.7, out=room[5:])
    assert_same(room[5:], expected(*values, "none", 0.7, np.float32), "a partial overlap gives what copies would give")


@st.composite
def broadcast_shapes(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 16, 45]), min_size=0, max_size=5))
    while np.prod(shape, dtype=np.int64) > 4000:
        shape = shape[1:]
    operands = []
    for _ in range(2):
        own = [1 if draw(st.booleans()) and draw(st.booleans()) else size for size in shape]
        operands.append(tuple(own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :]))
    return operands


@settings(max_examples=150, deadline=None)
@given(
    shapes=broadcast_shapes(),
    names=st.tuples(dtypes, dtypes, dtypes),
    kinds=st.tuples(layouts, layouts, layouts),
    beta=st.one_of(st.sampled_from(BETAS), st.floats(0, 1e3, width=32)),
    reduction=st.sampled_from(REDUCTIONS),
    special=st.booleans(),
    seed=seeds,
)
def test_any_call(shapes, names, kinds, beta, reduction, special, seed):
    generator = rng(seed)
    operands = []
    for shape, name, kind in zip(shapes, names, kinds, strict=False):
        values = np.asarray(generator.standard_normal(shape) * 2).astype(DTYPES[name])
        if special:
            values = with_special_values(values, int(generator.integers(2**31)))
        operands.append(lay(np.asarray(values).astype(DTYPES[name]), kind))
    check(*operands, reduction, beta, names[2], kinds[2] if reduction == "none" else "plain")


def test_elements_against_exact_rationals():
    """x = self - target is rounded to float32 by contract; from there on the loss is within 1.5 ULP where it is a normal number."""
    x = np.concatenate([normal((400,), np.float32, 1, scale) for scale in (0.01, 1.0, 100.0)])
    for beta in (1.0, float(np.float32(0.7)), float(np.float32(1e-3))):
        got = smooth_l1_loss(x, np.zeros_like(x), "none", beta)
        for value, loss in zip(x.tolist(), got.tolist(), strict=True):
            size, b = abs(Fraction(value)), Fraction(beta)
            exact = size * size / (2 * b) if size < b else size - b / 2
            if exact >= Fraction(2) ** -126:
                ulp = Fraction(2) ** (math.frexp(float(exact))[1] - 24)
                assert abs(Fraction(loss) - exact) <= Fraction(3, 2) * ulp, (value, beta)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_sums_do_not_lose_digits_with_their_length(reduction):
    """The error of the losses, each within 3.1e-7 of itself, and of one rounding: of a mean of two million no more than of a short one."""
    for n in (10, 1000, 2_000_003):
        x, target = normal((n,), np.float32, 1, 3), normal((n,), np.float32, 2)
        got = np.asarray(smooth_l1_loss(x, target, reduction, 0.7), np.float64)
        want = reference(x, target, REDUCTIONS.index(reduction), float(np.float32(0.7)))
        slack = 2.0**-24 * np.abs(x.astype(np.float64) - target) if reduction == "none" else 0.0
        np.testing.assert_array_less(np.abs(got - want), 3.1e-7 * np.abs(want) + 2 * slack + 1e-37)


def test_a_sum_of_equal_losses_is_exact():
    ones, zeros = np.ones(1 << 20, np.float32), np.zeros(1, np.float32)
    for dtype in DTYPES.values():
        assert smooth_l1_loss(ones.astype(dtype), zeros.astype(dtype), "mean", 0.0) == 1
    assert smooth_l1_loss(ones, zeros, "sum", 1.0) == 1 << 19
