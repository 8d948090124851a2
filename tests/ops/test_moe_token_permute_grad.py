"""The gather-sum of tokens against its definition: float32 in the order of k, starting from the first kept row, bit for bit."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types
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

from anycann import moe_token_permute_grad
from anycann.backends import cpu_gather
from anycann.ops.moe_token_permute_grad.reference import reference

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def expected(grad, indices, k):
    values, rows = single(grad), len(grad)
    out = np.zeros((len(indices) // k, grad.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for token, named in enumerate(np.asarray(indices).reshape(-1, k)):
            kept = [values[i] for i in named if 0 <= i < rows]
            if kept:
                total = kept[0]
                for row in kept[1:]:
                    total = total + row
                out[token] = total
        return out.astype(grad.dtype)


def check(grad, indices, k, layout="plain", offset=0):
    out = Watched((len(indices) // k, grad.shape[1]), grad.dtype, layout, offset)
    result = moe_token_permute_grad(grad, indices, k, out=out.array)
    assert result is out.array
    assert_same(out.check(), expected(grad, indices, k), (grad.shape, k, layout))


def permutation(count, seed=0):
    return rng(seed).permutation(count).astype(np.int32)


@every_dtype
@pytest.mark.parametrize("k", [1, 2, 3, 6, 8, 9, 64, 512])
@pytest.mark.parametrize("width", [1, 16, 31, 129, 1100])
def test_the_order_of_k(dtype, k, width):
    tokens = 3 if k > 60 else 11
    check(normal((tokens * k, width), DTYPES[dtype], k), permutation(tokens * k), k)


@every_dtype
def test_rows_wider_than_a_tile(dtype):
    check(normal((10, 7168), DTYPES[dtype]), permutation(10), 2)
    check(normal((16, 5003), DTYPES[dtype]), permutation(16), 8)


@every_dtype
def test_dropped_tokens_add_nothing(dtype):
    grad = normal((5, 40), DTYPES[dtype])
    indices = np.array([0, 5, -1, 4, 2**31 - 1, -(2**31), 5, 6, -7, 3, 3, 1], np.int32)
    check(grad, indices, 3)
    got = moe_token_permute_grad(grad, indices, 3)
    assert got[2].tobytes() == bytes(got[2].nbytes), "a token of which nothing is kept is +0"
    assert_same(got[0], grad[0])


@every_dtype
def test_duplicates_add_twice_and_rows_nobody_names_are_not_read(dtype):
    grad = np.full((6, 33), np.nan, DTYPES[dtype])
    grad[[1, 4]] = normal((2, 33), DTYPES[dtype])
    check(grad, np.array([1, 1, 4, 4, 1, 1, 1, 4], np.int32), 4)
    assert np.isfinite(single(moe_token_permute_grad(grad, np.array([1, 4, 9, -1], np.int32), 4))).all()


@every_dtype
def test_sums_start_from_the_first_kept_row(dtype):
    grad = np.full((3, 20), -0.0, DTYPES[dtype])
    got = moe_token_permute_grad(grad, np.array([9, 2, 0, -1, 1, 9], np.int32), 3)
    assert np.signbit(single(got)).all()


@every_dtype
def test_one_copy_is_a_gather(dtype):
    grad = with_special_values(normal((50, 77), DTYPES[dtype]), 3).astype(DTYPES[dtype])
    indices = permutation(50)
    assert_same(moe_token_permute_grad(grad, indices, 1), grad[indices])


@every_dtype
def test_empty(dtype):
    none = np.zeros(0, np.int32)
    assert moe_token_permute_grad(np.zeros((4, 5), DTYPES[dtype]), none, 2).shape == (0, 5)
    assert moe_token_permute_grad(np.zeros((4, 0), DTYPES[dtype]), permutation(4), 2).shape == (2, 0)
    out = Watched((2, 7), DTYPES[dtype])
    moe_token_permute_grad(np.zeros((0, 7), DTYPES[dtype]), permutation(4), 2, out=out.array)
    assert_same(out.check(), np.zeros((2, 7), DTYPES[dtype]))


@every_dtype
def test_special_values(dtype):
    grad = with_special_values(normal((60, 300), DTYPES[dtype], 1), 2).astype(DTYPES[dtype])
    check(grad, rng(1).integers(-3, 64, 60).astype(np.int32), 6)


def test_the_adjoint_of_the_permutation():
    """permuted[S[i]] = tokens[i // K]: <permute(u), grad> = <u, op(grad)>, exactly on small integers, dropped entries included."""
    generator = rng(3)
    for tokens, k, rows in ((1, 1, 1), (20, 2, 40), (30, 4, 100)):
        places = np.concatenate([permutation(rows), np.full(tokens * k, rows, np.int32)])[: tokens * k]
        u, grad = (generator.integers(-9, 10, (size, 13)).astype(np.float32) for size in (tokens, rows))
        permuted = np.zeros((rows, 13))
        for i, place in enumerate(places):
            if place < rows:
                permuted[place] += u[i // k]
        assert (permuted * grad).sum() == (u.astype(np.float64) * moe_token_permute_grad(grad, places, k)).sum()


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [45, 1500])
def test_layouts_of_all_operands(dtype, layout, width):
    grad, indices = normal((24, width), DTYPES[dtype]), rng(2).integers(-2, 26, 24).astype(np.int32)
    check(lay(grad, layout), lay(indices, layout), 4, layout)
    check(grad, lay(indices, "strided"), 3, layout)
    check(lay(grad, "transposed"), indices, 8)
    check(np.broadcast_to(grad[:, :1], grad.shape), np.broadcast_to(indices[:1], indices.shape), 2)
    check(np.broadcast_to(grad[:1], grad.shape), indices, 2)


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    grad, indices = normal((12, 151), DTYPES[dtype]), permutation(12)
    for offset in range(32):
        check(lay(grad, "plain", offset), lay(indices, "plain", offset % 3), 3, "plain", 5 * offset % 32)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    grad, indices = normal((900, 260), DTYPES[dtype]), rng(2).integers(-20, 920, 900).astype(np.int32)
    assert for_all_threads(lambda: moe_token_permute_grad(grad, indices, 3)) == {expected(grad, indices, 3).tobytes()}
    few = grad[:30], indices[:30]
    assert len({moe_token_permute_grad(*few, 3).tobytes() for _ in range(100)}) == 1


@every_dtype
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype):
    width, tokens = 1033, (1 << 23) // DTYPES[dtype].itemsize // 1033 + 2
    grad = np.resize(normal((100_003,), DTYPES[dtype]), (2 * tokens, width))
    indices = permutation(2 * tokens)
    indices[6:8] = -1
    check(grad, indices, 2, "plain", 3)


@every_dtype
@pytest.mark.parametrize("width", [1, 17, 1025])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, width, end):
    grad, indices = normal((6, width), DTYPES[dtype]), np.array([5, 0, 2, 6, 1, -1], np.int32)
    with at_the_edge(grad, indices, np.zeros((3, width), DTYPES[dtype]), end=end) as (grad_edge, indices_edge, out):
        moe_token_permute_grad(grad_edge, indices_edge, 2, out=out)
        assert_same(out, expected(grad, indices, 2))


def test_more_elements_than_32_bits_count():
    """2^31 + 64 elements, of which four rows are touched: the rest is memory that is never given."""
    width = 64
    rows = 2**31 // width + 1
    grad = np.empty((rows, width), np.float16)
    named = np.array([rows - 1, 0, rows // 2, rows - 2], np.int32)
    grad[named] = normal((4, width), np.float16)
    want = expected(grad[named], np.array([0, 1, 2, 3], np.int32), 2)
    assert_same(moe_token_permute_grad(grad, named, 2), want)


def address(target, index, stride, size):
    target[0] = cpu_gather.row_address(4096, index, stride, size)


@pytest.mark.parametrize(("index", "stride", "size"), [(2**31 - 1, 7168, 4), (70_000, 65_536, 2), (2**31 - 1, -7168, 2), (0, 2**40, 4)])
def test_addresses_have_64_bits(index, stride, size):
    target = np.zeros(1, np.int64)
    numba.njit(address).compile(numba.void(types.int64[::1], types.int32, types.intp, types.intp))(target, index, stride, size)
    assert target[0] == 4096 + index * stride * size


@settings(max_examples=120, deadline=None)
@given(
    tokens=st.integers(1, 20),
    k=st.integers(1, 12),
    rows=st.integers(0, 50),
    width=st.integers(1, 140),
    dtype=dtypes,
    kinds=st.tuples(layouts, layouts, layouts),
    seed=seeds,
)
def test_any_call(tokens, k, rows, width, dtype, kinds, seed):
    grad = with_special_values(normal((rows, width), DTYPES[dtype], seed), seed).astype(DTYPES[dtype])
    indices = rng(seed).integers(-3, rows + 4, tokens * k).astype(np.int32)
    check(lay(grad, kinds[0]), lay(indices, kinds[1]), k, kinds[2])


@every_dtype
def test_the_reference_is_near(dtype):
    grad, indices = normal((48, 30), DTYPES[dtype]), rng(4).integers(-4, 52, 48).astype(np.int32)
    got, want = moe_token_permute_grad(grad, indices, 6), reference(grad, indices, 6)
    sizes = reference(np.abs(single(grad)), indices, 6)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    np.testing.assert_array_less(np.abs(got.astype(np.float64) - want), 6 * 2.0**-24 * sizes + 1.01 * unit * np.abs(want) + 1e-30)
