"""The permutation of tokens: a stable sort of any integers, and copies of rows bit for bit; and its whole family together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operands import DTYPES, LAYOUTS, Watched, at_the_edge, dtypes, for_all_threads, lay, layouts, normal, place, raw, rng, seeds

from anycann import moe_token_permute, moe_token_permute_grad, moe_token_unpermute
from anycann.ops.moe_token_permute.reference import reference

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
INTEGERS = {"int32": np.int32, "int64": np.int64}


def expected(tokens, indices, count):
    """Python's own stable sort; None is a row that is not there."""
    copies = np.asarray(indices).reshape(-1).tolist()
    order = sorted(range(len(copies)), key=copies.__getitem__)
    places = np.empty(len(copies), np.int32)
    places[order] = np.arange(len(copies))
    rows = min(count, len(copies)) if count > 0 else max(0, len(copies) + count)
    top_k = indices.shape[1] if indices.ndim == 2 else 1
    return np.ascontiguousarray(tokens[[copy // top_k for copy in order[:rows]]]), places


def bits(array):
    return np.ascontiguousarray(array).view(np.uint16 if array.dtype.itemsize == 2 else np.uint32)


def check(tokens, indices, count=0, layout="plain", offset=0):
    want, want_places = expected(tokens, indices, count)
    out = Watched(want.shape, tokens.dtype, layout, offset)
    places, _ = place(want_places.shape, np.int32, layout, offset)
    result = moe_token_permute(tokens, indices, count, out=(out.array, places))
    assert result[0] is out.array
    assert result[1] is places
    np.testing.assert_array_equal(places, want_places)
    np.testing.assert_array_equal(bits(out.check()), bits(want))


def any_bits(shape, dtype, seed=0):
    """Every pattern of bits: signalling NaN with payloads among them."""
    kind = np.uint16 if dtype.itemsize == 2 else np.uint32
    return rng(seed).integers(0, np.iinfo(kind).max, shape, kind, endpoint=True).view(dtype)


@every_dtype
@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("width", [1, 16, 31, 32, 33, 64, 129, 1100])
@pytest.mark.parametrize("top_k", [None, 1, 2, 8])
def test_copies_are_bit_for_bit(dtype, kind, width, top_k):
    shape = (13,) if top_k is None else (13, top_k)
    check(any_bits((13, width), DTYPES[dtype], width), rng(width).integers(0, 5, shape, INTEGERS[kind]))


RANGES = {
    "one value": (7, 7),
    "two": (-1, 0),
    "a byte": (0, 255),
    "a byte and one": (-3, 253),
    "two bytes": (0, 65_535),
    "all of int32": (-(2**31), 2**31 - 1),
}
WIDE_RANGES = {**RANGES, "33 bits": (-(2**32), 5), "63 bits": (0, 2**63 - 1), "all of int64": (-(2**63), 2**63 - 1)}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("case", WIDE_RANGES)
def test_any_integers_are_sorted_and_equal_ones_keep_their_order(kind, case):
    if kind == "int32" and case not in RANGES:
        return
    low, high = WIDE_RANGES[case]
    indices = rng(3).integers(low, high, (400, 3), INTEGERS[kind], endpoint=True)
    indices[::7] = indices[0]
    indices[5, 0], indices[9, 2] = low, high
    check(normal((400, 4), np.float32), indices)


@pytest.mark.parametrize("count", [0, 1, 5, 11, 12, 13, 10**6, 2**63 - 1, -1, -11, -12, -13, -(2**63)])
def test_how_many_rows_are_kept(count):
    tokens, indices = normal((6, 40), np.float32), rng(1).integers(0, 4, (6, 2))
    rows, places = moe_token_permute(tokens, indices, count)
    assert len(rows) == (min(count, 12) if count > 0 else max(0, 12 + count))
    assert places.shape == (12,)
    check(tokens, indices, count)


@every_dtype
def test_empty(dtype):
    for shape, indices in (((0, 5), (0, 2)), ((4, 5), (4, 0)), ((0, 5), (0,)), ((3, 0), (3, 2))):
        rows, places = moe_token_permute(np.zeros(shape, DTYPES[dtype]), np.ones(indices, np.int64))
        assert rows.shape == (np.prod(indices), shape[1])
        np.testing.assert_array_equal(places, np.arange(np.prod(indices)))


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("width", [45, 1500])
def test_layouts_of_all_operands(dtype, layout, width):
    tokens, indices = any_bits((24, width), DTYPES[dtype]), rng(2).integers(-2, 26, (24, 3))
    check(lay(tokens, layout), lay(indices, layout), 60, layout)
    check(tokens, lay(indices.astype(np.int32), "reversed"), -3)
    check(lay(tokens, "transposed"), lay(indices[:, 0], "strided"))
    check(np.broadcast_to(tokens[:, :1], tokens.shape), np.broadcast_to(indices[:1], indices.shape))
    check(np.broadcast_to(tokens[:1], tokens.shape), np.broadcast_to(indices[:, :1], indices.shape))


@every_dtype
@pytest.mark.parametrize("width", [40, 151])
def test_nothing_depends_on_alignment(dtype, width):
    tokens, indices = any_bits((12, width), DTYPES[dtype]), rng(1).integers(0, 4, (12, 2))
    for offset in range(32):
        check(lay(tokens, "plain", offset), lay(indices, "plain", offset % 3), 0, "plain", 5 * offset % 32)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    tokens, indices = normal((900, 260), DTYPES[dtype]), rng(2).integers(0, 300, (900, 3))
    want = b"".join(map(raw, expected(tokens, indices, 2000)))
    assert for_all_threads(lambda: moe_token_permute(tokens, indices, 2000)) == {want}
    few = tokens[:30], indices[:30]
    assert len({b"".join(map(raw, moe_token_permute(*few))) for _ in range(100)}) == 1


@every_dtype
@pytest.mark.parametrize("width", [1024, 1033])
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype, width):
    tokens = np.resize(any_bits((100_003,), DTYPES[dtype]), ((1 << 22) // DTYPES[dtype].itemsize // width + 2, width))
    check(tokens, rng(0).integers(0, 64, (len(tokens), 2)), 0, "plain", 3)


@every_dtype
@pytest.mark.parametrize("width", [33, 512])
def test_large_outputs_anywhere_in_memory(dtype, width):
    tokens = np.resize(any_bits((100_003,), DTYPES[dtype]), ((1 << 22) // DTYPES[dtype].itemsize // width + 2, width))
    indices = rng(1).integers(0, 64, (len(tokens), 2))
    want, _ = expected(tokens, indices, 0)
    for offset in (0, 1, 2, 8, 31):
        out = Watched(want.shape, DTYPES[dtype], "plain", offset)
        moe_token_permute(tokens, indices, out=(out.array, np.empty(indices.size, np.int32)))
        np.testing.assert_array_equal(bits(out.check()), bits(want), str(offset))


@every_dtype
@pytest.mark.parametrize("width", [1, 32, 33, 1025])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, width, end):
    tokens, indices = any_bits((6, width), DTYPES[dtype]), np.array([5, 0, 2, 6, 1, -1], np.int32)
    want, want_places = expected(tokens, indices, 0)
    with at_the_edge(tokens, indices, np.zeros_like(want), np.zeros_like(want_places), end=end) as (*inputs, out, places):
        moe_token_permute(*inputs, out=(out, places))
        np.testing.assert_array_equal(bits(out), bits(want))
        np.testing.assert_array_equal(places, want_places)


@settings(max_examples=100, deadline=None)
@given(
    tokens=st.integers(1, 20),
    top_k=st.integers(0, 12),
    width=st.integers(1, 140),
    count=st.integers(-300, 300),
    spread=st.sampled_from([1, 8, 300, 2**31 - 1]),
    dtype=dtypes,
    kinds=st.tuples(layouts, layouts, layouts),
    seed=seeds,
)
def test_any_call(tokens, top_k, width, count, spread, dtype, kinds, seed):
    shape = (tokens, top_k) if top_k else (tokens,)
    values, indices = any_bits((tokens, width), DTYPES[dtype], seed), rng(seed).integers(-spread, spread, shape, np.int32)
    check(lay(values, kinds[0]), lay(indices, kinds[1]), count, kinds[2])


@every_dtype
def test_the_reference_agrees(dtype):
    tokens, indices = normal((48, 30), DTYPES[dtype]), rng(4).integers(0, 9, (48, 6))
    for count in (0, 100, -7):
        for got, want in zip(moe_token_permute(tokens, indices, count), reference(tokens, indices, count), strict=True):
            np.testing.assert_array_equal(got.astype(np.float64), want)


@every_dtype
@pytest.mark.parametrize("top_k", [1, 2, 4])
def test_there_and_back_again(dtype, top_k):
    """Weights of 1 / K bring every token back exactly: K is a power of 2."""
    tokens, indices = normal((70, 90), DTYPES[dtype]), rng(1).integers(0, 8, (70, top_k), np.int32)
    rows, places = moe_token_permute(tokens, indices)
    if top_k == 1:
        np.testing.assert_array_equal(moe_token_unpermute(rows, places), tokens)
    probs = np.full((70, top_k), 1 / top_k, np.float32)
    np.testing.assert_array_equal(moe_token_unpermute(rows, places, probs), tokens)


def test_its_gradient_is_the_gradient_operator():
    """<permute(u), grad> = <u, permute_grad(grad)>, exactly on small integers, dropped rows included."""
    for count in (0, 25, -9):
        u, indices = rng(0).integers(-9, 10, (30, 13)).astype(np.float32), rng(1).integers(0, 8, (30, 2))
        rows, places = moe_token_permute(u, indices, count)
        grad = rng(2).integers(-9, 10, rows.shape).astype(np.float32)
        back = moe_token_permute_grad(grad, places, 2)
        assert (rows.astype(np.float64) * grad).sum() == (u.astype(np.float64) * back).sum()


def test_more_elements_than_32_bits_count():
    """Rows of 2^21 elements whose strides reach beyond 2^31: the rest is memory that is never given."""
    tokens = np.lib.stride_tricks.as_strided(np.zeros(2**31 + 64, np.float16), (3, 8), (2**31, 2))
    tokens[...] = normal((3, 8), np.float16)
    check(tokens, np.array([2, 0, 1]))
