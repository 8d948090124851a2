"""The weighted gather-sum of tokens against its definition: float32 in the order of k, starting from the first kept row, bit for bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operands import (
    DTYPES,
    LAYOUTS,
    Watched,
    assert_same,
    at_the_edge,
    dtypes,
    for_all_threads,
    lay,
    layouts,
    normal,
    rng,
    seeds,
    single,
    with_special_values,
)

from anycann import moe_token_permute_grad, moe_token_unpermute
from anycann.ops.moe_token_unpermute.reference import reference

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_weight = pytest.mark.parametrize("kind", DTYPES)


def expected(rows, indices, probs):
    values, weights = single(rows), single(np.ones((len(indices), 1)) if probs is None else probs)
    out = np.zeros((len(weights), rows.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for token, named in enumerate(np.asarray(indices).reshape(weights.shape)):
            kept = [values[i] * p for i, p in zip(named, weights[token], strict=True) if 0 <= i < len(rows) and p != 0]
            if kept:
                total = kept[0]
                for row in kept[1:]:
                    total = total + row
                out[token] = total
        return out.astype(rows.dtype)


def check(rows, indices, probs, layout="plain", offset=0):
    want = expected(rows, indices, probs)
    out = Watched(want.shape, rows.dtype, layout, offset)
    assert moe_token_unpermute(rows, indices, probs, out=out.array) is out.array
    assert_same(out.check(), want, (rows.shape, layout))


def permutation(count, seed=0):
    return rng(seed).permutation(count).astype(np.int32)


def operands(tokens, k, width, dtype, kind, seed=0):
    return normal((tokens * k, width), DTYPES[dtype], seed), permutation(tokens * k), normal((tokens, k), DTYPES[kind], seed + 1)


@every_dtype
@every_weight
@pytest.mark.parametrize("k", [1, 2, 3, 8, 512])
@pytest.mark.parametrize("width", [1, 16, 31, 1100])
def test_the_order_of_k(dtype, kind, k, width):
    check(*operands(3 if k > 60 else 11, k, width, dtype, kind, k))


@every_dtype
def test_rows_wider_than_a_tile(dtype):
    check(*operands(5, 2, 7168, dtype, dtype))
    check(*operands(2, 8, 5003, dtype, "float32"))


@every_dtype
def test_without_weights_it_is_a_gather(dtype):
    rows = with_special_values(normal((50, 77), DTYPES[dtype]), 3).astype(DTYPES[dtype])
    indices = rng(1).integers(-2, 53, 60).astype(np.int32)
    check(rows, indices, None)
    got = moe_token_unpermute(rows, indices)
    assert got.tobytes() == moe_token_permute_grad(rows, indices, 1).tobytes()
    assert moe_token_unpermute(rows, indices, np.ones((60, 1), np.float32)).tobytes() == got.tobytes()


@every_dtype
def test_dropped_rows_and_rows_of_weight_0_add_nothing_whatever_they_hold(dtype):
    rows = normal((6, 40), DTYPES[dtype])
    rows[[1, 4]] = np.nan
    rows[5] = np.inf
    indices = np.array([0, 1, 4, 6, 2, -1, 5, 4, 3, 1, 9, 5, 0, 0, 0], np.int32)
    probs = np.array([[2, 0, -0.0], [1, 3, 5], [0, -0.0, 0.5], [0, 7, 0], [1, 0, 1]], DTYPES[dtype])
    check(rows, indices, probs)
    got = moe_token_unpermute(rows, indices, probs)
    assert np.isfinite(single(got)).all()
    assert got[3].tobytes() == bytes(got[3].nbytes), "a token of which nothing is kept is +0"


@every_dtype
def test_a_weight_that_is_no_number_is_no_0(dtype):
    rows = normal((2, 20), DTYPES[dtype])
    probs = np.array([[np.nan, 1.0]], DTYPES[dtype])
    assert np.isnan(single(moe_token_unpermute(rows, permutation(2), probs))).all()


def test_the_smallest_weights_count():
    rows, indices = np.full((2, 5), 2.0**100, np.float32), np.arange(2, dtype=np.int32)
    probs = np.array([[2.0**-149, -(2.0**-148)]], np.float32)
    assert (moe_token_unpermute(rows, indices, probs) == -(2.0**-49)).all()


@every_dtype
def test_sums_start_from_the_first_kept_row(dtype):
    rows = np.full((3, 20), -0.0, DTYPES[dtype])
    got = moe_token_unpermute(rows, np.array([9, 2, 0, -1, 1, 9], np.int32), np.ones((2, 3), np.float32))
    assert np.signbit(single(got)).all()


@every_dtype
def test_empty(dtype):
    none, kind = np.zeros(0, np.int32), DTYPES[dtype]
    assert moe_token_unpermute(np.zeros((4, 5), kind), none).shape == (0, 5)
    assert moe_token_unpermute(np.zeros((4, 5), kind), none, np.zeros((0, 3), kind)).shape == (0, 5)
    assert moe_token_unpermute(np.zeros((4, 0), kind), permutation(4), np.ones((2, 2), kind)).shape == (2, 0)
    out = Watched((2, 7), kind)
    moe_token_unpermute(np.zeros((0, 7), kind), permutation(4), np.ones((2, 2), kind), out=out.array)
    assert_same(out.check(), np.zeros((2, 7), kind))


@every_dtype
@every_weight
def test_special_values(dtype, kind):
    rows = with_special_values(normal((60, 300), DTYPES[dtype], 1), 2).astype(DTYPES[dtype])
    probs = with_special_values(normal((10, 6), DTYPES[kind], 5), 6).astype(DTYPES[kind])
    check(rows, rng(1).integers(-3, 64, 60).astype(np.int32), probs)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [45, 1500])
def test_layouts_of_all_operands(dtype, layout, width):
    rows, _, probs = operands(6, 4, width, dtype, dtype)
    indices = rng(2).integers(-2, 26, 24).astype(np.int32)
    check(lay(rows, layout), lay(indices, layout), lay(probs, layout), layout)
    check(lay(rows, layout), lay(indices, layout), None, layout)
    check(rows, lay(indices, "strided"), lay(probs, "transposed"))
    check(lay(rows, "transposed"), indices, np.broadcast_to(probs[:1], probs.shape))
    check(np.broadcast_to(rows[:, :1], rows.shape), indices, np.broadcast_to(probs[:1, :1], probs.shape))


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    rows, indices, probs = operands(4, 3, 151, dtype, dtype)
    for offset in range(32):
        check(*(lay(array, "plain", offset % (3 + 7 * n)) for n, array in enumerate((rows, indices, probs))), "plain", 5 * offset % 32)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    rows, _, probs = operands(300, 3, 260, dtype, "float32")
    indices = rng(2).integers(-20, 920, 900).astype(np.int32)
    assert for_all_threads(lambda: moe_token_unpermute(rows, indices, probs)) == {expected(rows, indices, probs).tobytes()}
    few = rows[:30], indices[:30], probs[:10]
    assert len({moe_token_unpermute(*few).tobytes() for _ in range(100)}) == 1


@every_dtype
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype):
    width, tokens = 1033, (1 << 23) // DTYPES[dtype].itemsize // 1033 + 2
    rows = np.resize(normal((100_003,), DTYPES[dtype]), (2 * tokens, width))
    indices, probs = permutation(2 * tokens), normal((tokens, 2), DTYPES[dtype])
    indices[6:8] = -1
    check(rows, indices, probs, "plain", 3)


@every_dtype
@pytest.mark.parametrize("width", [1, 17, 1025])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, width, end):
    rows, indices, probs = normal((6, width), DTYPES[dtype]), np.array([5, 0, 2, 6, 1, -1], np.int32), normal((3, 2), DTYPES[dtype])
    with at_the_edge(rows, indices, probs, np.zeros((3, width), DTYPES[dtype]), end=end) as (*inputs, out):
        moe_token_unpermute(*inputs, out=out)
        assert_same(out, expected(rows, indices, probs))


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.integers(1, 20),
    k=st.integers(1, 12),
    count=st.integers(0, 50),
    width=st.integers(1, 140),
    types=st.tuples(dtypes, dtypes),
    kinds=st.tuples(*[layouts] * 4),
    seed=seeds,
)
def test_any_call(tokens, k, count, width, types, kinds, seed):
    rows = with_special_values(normal((count, width), DTYPES[types[0]], seed), seed).astype(DTYPES[types[0]])
    probs = with_special_values(normal((tokens, k), DTYPES[types[1]], seed + 1), seed + 1).astype(DTYPES[types[1]])
    indices = rng(seed).integers(-3, count + 4, tokens * k).astype(np.int32)
    check(*(lay(array, kind) for array, kind in zip((rows, indices, probs), kinds, strict=False)), kinds[3])


@every_dtype
def test_the_reference_is_near(dtype):
    rows, _, probs = operands(8, 6, 30, dtype, dtype)
    indices = rng(4).integers(-4, 52, 48).astype(np.int32)
    got, want = moe_token_unpermute(rows, indices, probs), reference(rows, indices, probs)
    sizes = reference(np.abs(single(rows)), indices, np.abs(single(probs)))
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    np.testing.assert_array_less(np.abs(got.astype(np.float64) - want), 7 * 2.0**-24 * sizes + 1.01 * unit * np.abs(want) + 1e-30)
