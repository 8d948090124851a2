"""The gradients of the way back from a permutation of tokens against their written order, bit for bit, and against exact sums."""

import math

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
    round_double,
    seeds,
    single,
    with_special_values,
)

from anycann import moe_token_unpermute, moe_token_unpermute_grad
from anycann.ops.moe_token_unpermute_grad.reference import reference
from anycann.ops.moe_token_unpermute_grad.spec import LANES, RUN_H

ANY_DATA = 1.1e-6
every_dtype = pytest.mark.parametrize("dtype", DTYPES)
every_weight = pytest.mark.parametrize("kind", DTYPES)


def dot(a, b):
    """The sum of the products of two float32 rows in the written order."""
    products = np.full(-(-a.size // LANES) * LANES, -0.0, np.float32)
    products[: a.size] = a * b
    total = np.full(LANES, -0.0 if a.size else 0.0)
    for first in range(0, a.size, RUN_H):
        lanes = products[first : first + RUN_H].reshape(-1, LANES)
        run = lanes[0]
        for row in lanes[1:]:
            run = run + row
        total = total + run
    while total.size > 1:
        total = total[: total.size // 2] + total[total.size // 2 :]
    return total[0]


def expected(rows, grad, indices, probs):
    grads, weights = single(grad), single(np.ones((len(indices), 1)) if probs is None else probs)
    count = len(indices) if rows is None else len(rows)
    rows_grad, sums = np.zeros((count, grad.shape[1]), np.float32), np.zeros(weights.shape)
    with np.errstate(all="ignore"):
        for (t, k), row in zip(np.ndindex(weights.shape), indices, strict=True):
            if 0 <= row < count:
                rows_grad[row] = grads[t] * weights[t, k]
                sums[t, k] = 0 if probs is None else dot(grads[t], single(rows[row]))
        return rows_grad.astype(grad.dtype), None if probs is None else round_double(sums, probs.dtype)


def check(rows, grad, indices, probs, layout="plain", offset=0):
    want, want_probs = expected(rows, grad, indices, probs)
    out, out_probs = Watched(want.shape, grad.dtype, layout, offset), None
    if probs is not None:
        out_probs = Watched(probs.shape, probs.dtype, layout, offset)
    arrays = out.array, None if out_probs is None else out_probs.array
    result = moe_token_unpermute_grad(rows, grad, indices, probs, out=arrays)
    assert result[0] is arrays[0]
    assert result[1] is arrays[1]
    assert_same(out.check(), want, (want.shape, layout))
    if out_probs is not None:
        assert_same(out_probs.check(), want_probs, (want.shape, layout))


def permutation(count, seed=0):
    return rng(seed).permutation(count).astype(np.int32)


def operands(tokens, k, width, dtype, kind, seed=0):
    rows, grad = normal((tokens * k, width), DTYPES[dtype], seed), normal((tokens, width), DTYPES[dtype], seed + 1)
    return rows, grad, permutation(tokens * k), normal((tokens, k), DTYPES[kind], seed + 2)


@every_dtype
@every_weight
@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize("width", [1, 16, 31, 32, 255, 256, 257, 1100])
def test_sizes(dtype, kind, k, width):
    check(*operands(7, k, width, dtype, kind, k))


@every_dtype
def test_many_copies_and_wide_rows(dtype):
    check(*operands(2, 512, 33, dtype, dtype))
    check(*operands(3, 2, 7168, dtype, "float32"))
    check(*operands(2, 3, 5003, dtype, dtype))


@every_dtype
@pytest.mark.parametrize("width", [1, 40, 1500])
def test_without_weights_rows_are_copied(dtype, width):
    grad = with_special_values(normal((30, width), DTYPES[dtype]), 3).astype(DTYPES[dtype])
    check(None, grad, permutation(30), None)
    check(None, grad, rng(1).integers(-2, 33, 30).astype(np.int32), None)
    check(np.zeros((12, width), DTYPES[dtype]), grad, permutation(30), None)


@every_dtype
def test_dropped_copies(dtype):
    rows, grad, _, probs = operands(4, 3, 40, dtype, dtype)
    indices = np.array([0, 12, -1, 4, 2**31 - 1, -(2**31), 5, 6, -7, 12, 13, 1], np.int32)
    check(rows, grad, indices, probs)
    rows_grad, probs_grad = moe_token_unpermute_grad(rows, grad, indices, probs)
    dropped = (indices < 0) | (indices >= 12)
    assert not probs_grad.reshape(-1)[dropped].tobytes().strip(b"\0")
    nobody = np.setdiff1d(np.arange(12), indices)
    assert not rows_grad[nobody].tobytes().strip(b"\0")


@every_dtype
@pytest.mark.parametrize("weighted", [True, False])
def test_of_indices_that_name_the_same_row_the_last_decides(dtype, weighted):
    rows, grad, _, probs = operands(300, 2, 40, dtype, dtype)
    indices = rng(0).integers(0, 50, 600).astype(np.int32)
    grad, indices, probs = (grad, indices, probs) if weighted else (np.concatenate([grad, grad]), indices, None)
    check(rows, grad, indices, probs)
    want = {b"".join(array.tobytes() for array in expected(rows, grad, indices, probs) if array is not None)}
    if weighted:
        assert for_all_threads(lambda: moe_token_unpermute_grad(rows, grad, indices, probs)) == want
    else:
        assert for_all_threads(lambda: moe_token_unpermute_grad(rows, grad, indices)[0]) == want


@every_dtype
def test_weights_of_0_are_factors_like_others(dtype):
    rows, grad, indices, probs = operands(4, 2, 40, dtype, dtype)
    probs[:, 0], grad[1, 3] = 0, np.inf
    check(rows, grad, indices, probs)
    rows_grad, probs_grad = moe_token_unpermute_grad(rows, grad, indices, probs)
    assert np.isnan(single(rows_grad[indices[2], 3]))
    assert (single(probs_grad[[0, 2, 3], 0]) != 0).all()


@every_dtype
def test_empty(dtype):
    kind, none = DTYPES[dtype], np.zeros(0, np.int32)
    rows_grad, probs_grad = moe_token_unpermute_grad(np.ones((4, 5), kind), np.zeros((0, 5), kind), none, np.zeros((0, 2), kind))
    assert rows_grad.tobytes() == bytes(20 * kind.itemsize)
    assert probs_grad.shape == (0, 2)
    rows_grad, probs_grad = moe_token_unpermute_grad(np.ones((0, 5), kind), np.ones((2, 5), kind), permutation(4), np.ones((2, 2), kind))
    assert rows_grad.shape == (0, 5)
    assert probs_grad.tobytes() == bytes(4 * kind.itemsize)
    rows_grad, probs_grad = moe_token_unpermute_grad(np.ones((4, 0), kind), np.ones((2, 0), kind), permutation(4), np.ones((2, 2), kind))
    assert rows_grad.shape == (4, 0)
    assert probs_grad.tobytes() == bytes(4 * kind.itemsize)
    assert moe_token_unpermute_grad(None, np.zeros((0, 5), kind), none)[0].shape == (0, 5)


@every_dtype
@pytest.mark.parametrize("width", [17, 40, 300])
def test_sums_start_from_their_first_term(dtype, width):
    rows, grad, indices, probs = operands(3, 2, width, dtype, dtype)
    rows[...], grad[...] = 1.0, -0.0
    assert np.signbit(single(moe_token_unpermute_grad(rows, grad, indices, probs)[1])).all()


def test_where_runs_end_and_how_lanes_are_added():
    """2^60 swallows 32: what is left says in which order terms were added."""
    rows, grad, indices, probs = operands(1, 1, 600, "float32", "float32")

    def total(terms):
        rows[...], grad[...] = 0.0, 1.0
        for h, value in terms.items():
            rows[0, h] = value
        return float(moe_token_unpermute_grad(rows, grad, indices, probs)[1][0, 0])

    assert total({0: 2.0**60, 16: 32.0, 240: 32.0, 256: 2.0**13, 512: -(2.0**60)}) == 2.0**13
    assert total({0: 2.0**60, 8: -(2.0**60), 4: 32.0, 1: 64.0}) == 96.0
    assert total({0: 2.0**60, 8: 32.0, 4: -(2.0**60), 1: 64.0}) == 64.0


def test_16_bit_weight_gradients_are_rounded_once():
    """1 + 2^-11 + 2^-40: a float16 tie but for one far bit."""
    rows, grad, probs = np.zeros((1, 20), np.float16), np.zeros((1, 20), np.float16), np.ones((1, 1), np.float16)
    for sign, want in ((1, 1 + 2.0**-10), (-1, 1.0), (0, 1.0)):
        grad[0, :3] = 1.0, 1.0, 2.0**-20
        rows[0, :3] = 1.0, 2.0**-11, sign * 2.0**-20
        assert float(moe_token_unpermute_grad(rows, grad, permutation(1), probs)[1][0, 0]) == want


@pytest.mark.parametrize("width", [16, 256, 7168, 30_000])
@pytest.mark.parametrize("data", ["random", "positive", "constant", "spread"])
def test_weight_gradients_within_the_bound(width, data):
    rows, grad, indices, probs = operands(2, 2, width, "float32", "float32")
    if data == "positive":
        rows, grad = np.abs(rows), np.abs(grad) + np.float32(0.1)
    elif data == "constant":
        rows[...], grad[...] = 1 / 3, 0.7
    elif data == "spread":
        rows, grad = (array * np.float32(2) ** rng(5).integers(-20, 20, array.shape).astype(np.float32) for array in (rows, grad))
    got = moe_token_unpermute_grad(rows, grad, indices, probs)[1]
    for (t, k), row in zip(np.ndindex(2, 2), indices, strict=True):
        terms = grad[t].astype(np.float64) * rows[row]
        assert abs(float(got[t, k]) - math.fsum(terms)) <= ANY_DATA * math.fsum(np.abs(terms))


def test_these_are_the_gradients_of_the_way_back():
    """out = unpermute(rows, probs) is linear in each: <out, g> = <rows, rowsGrad> = <probs, probsGrad>, exactly on small integers."""
    for count in (12, 9):
        rows, grad, probs = (rng(k).integers(-4, 5, shape).astype(np.float32) for k, shape in enumerate(((count, 40), (4, 40), (4, 3))))
        indices = permutation(12)
        product = (moe_token_unpermute(rows, indices, probs).astype(np.float64) * grad).sum()
        rows_grad, probs_grad = moe_token_unpermute_grad(rows, grad, indices, probs)
        assert product == (rows.astype(np.float64) * rows_grad).sum()
        assert product == (probs.astype(np.float64) * probs_grad).sum()
        assert abs(product) > 0


@every_dtype
@every_weight
def test_special_values(dtype, kind):
    values = operands(10, 6, 300, dtype, kind)
    rows, grad, probs = (with_special_values(array, n).astype(array.dtype) for n, array in enumerate((values[0], values[1], values[3])))
    check(rows, grad, rng(1).integers(-3, 64, 60).astype(np.int32), probs)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [45, 1500])
def test_layouts_of_all_operands(dtype, layout, width):
    rows, grad, _, probs = operands(6, 4, width, dtype, dtype)
    indices = rng(2).integers(-2, 26, 24).astype(np.int32)
    check(lay(rows, layout), lay(grad, layout), lay(indices, layout), lay(probs, layout), layout)
    check(None, lay(np.resize(grad, (24, width)), layout), lay(indices, layout), None, layout)
    check(lay(rows, "transposed"), grad, lay(indices, "strided"), lay(probs, "transposed"))
    check(rows, lay(grad, "transposed"), indices, np.broadcast_to(probs[:1], probs.shape), layout)
    check(np.broadcast_to(rows[:1], rows.shape), np.broadcast_to(grad[:, :1], grad.shape), indices, probs)


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    values = operands(4, 3, 151, dtype, dtype)
    for offset in range(32):
        check(*(lay(array, "plain", offset % (3 + 7 * n)) for n, array in enumerate(values)), "plain", 5 * offset % 32)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    rows, grad, _, probs = operands(300, 3, 260, dtype, "float32")
    indices = rng(2).integers(-20, 920, 900).astype(np.int32)
    want = b"".join(array.tobytes() for array in expected(rows, grad, indices, probs))
    assert for_all_threads(lambda: moe_token_unpermute_grad(rows, grad, indices, probs)) == {want}
    few = rows[:30], grad[:10], indices[:30], probs[:10]
    assert len({b"".join(array.tobytes() for array in moe_token_unpermute_grad(*few)) for _ in range(100)}) == 1


@every_dtype
@pytest.mark.parametrize("width", [1024, 1033])
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype, width):
    tokens = (1 << 22) // DTYPES[dtype].itemsize // width + 2
    rows, grad = (np.resize(normal((100_003,), DTYPES[dtype], n), (count, width)) for n, count in enumerate((2 * tokens, tokens)))
    indices = permutation(2 * tokens)
    indices[6:9] = -1
    check(rows, grad, indices, normal((tokens, 2), DTYPES[dtype]), "plain", 3)


@every_dtype
@pytest.mark.parametrize("width", [1, 17, 64, 1025])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, width, end):
    rows, grad, _, probs = operands(3, 2, width, dtype, dtype)
    indices = np.array([5, 0, 2, 6, 1, -1], np.int32)
    outs = np.zeros_like(rows), np.zeros_like(probs)
    with at_the_edge(rows, grad, indices, probs, *outs, end=end) as (*inputs, rows_grad, probs_grad):
        moe_token_unpermute_grad(*inputs, out=(rows_grad, probs_grad))
        for got, want in zip((rows_grad, probs_grad), expected(rows, grad, indices, probs), strict=True):
            assert_same(got, want)


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.integers(1, 20),
    k=st.integers(1, 12),
    count=st.integers(0, 50),
    width=st.integers(1, 300),
    types=st.tuples(dtypes, dtypes),
    kinds=st.tuples(*[layouts] * 5),
    seed=seeds,
)
def test_any_call(tokens, k, count, width, types, kinds, seed):
    shapes = ((count, width), types[0]), ((tokens, width), types[0]), ((tokens, k), types[1])
    rows, grad, probs = (
        with_special_values(normal(shape, DTYPES[name], seed + n), seed + n).astype(DTYPES[name]) for n, (shape, name) in enumerate(shapes)
    )
    indices = rng(seed).integers(-3, count + 4, tokens * k).astype(np.int32)
    check(*(lay(array, kind) for array, kind in zip((rows, grad, indices, probs), kinds, strict=False)), kinds[4])


@every_dtype
def test_the_reference_is_near(dtype):
    rows, grad, _, probs = operands(8, 6, 300, dtype, dtype)
    indices = permutation(48, 3)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    sizes = reference(np.abs(single(rows)), np.abs(single(grad)), indices, np.abs(single(probs)))
    found, wanted = moe_token_unpermute_grad(rows, grad, indices, probs), reference(rows, grad, indices, probs)
    for got, want, size in zip(found, wanted, sizes, strict=True):
        assert (np.abs(got.astype(np.float64) - want) <= ANY_DATA * size + 1.01 * unit * np.abs(want)).all()
