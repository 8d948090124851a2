"""The NSA compression gradients against their written order, bit for bit, and against exact sums."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nsa_lengths import LENGTHS
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

from anycann import nsa_compress_grad
from anycann.ops.nsa_compress_grad.reference import reference
from anycann.ops.nsa_compress_grad.spec import LANES, RUN_D, TOKENS_PER_PARTIAL
from anycann.ops.windows import windows

ANY_DATA, RANDOM_DATA = 1.1e-6, 5e-7
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def covered(lengths, tokens, block, stride):
    """(token, number of the window over all sequences, place in it), tokens ascending and their windows too."""
    ends = (tokens,) if lengths is None else tuple(lengths)
    number, begin = 0, 0
    for end in ends:
        count = max(0, (end - begin - block) // stride + 1)
        for token in range(begin, end):
            for j in range(count):
                if 0 <= token - begin - j * stride < block:
                    yield token, number + j, token - begin - j * stride
        number, begin = number + count, end


def expected(grad, x, weight, lengths, block, stride):
    tokens, heads, width = x.shape
    grads, xs, weights = single(grad), single(x), single(weight)
    x_grad, seen = np.zeros((tokens, heads, width), np.float32), np.zeros(tokens, bool)
    chunks = max(1, -(-tokens // TOKENS_PER_PARTIAL))
    lanes = np.full((chunks, block, heads, LANES), -0.0 if len(grad) else 0.0)
    with np.errstate(all="ignore"):
        for token, window, w in covered(lengths, tokens, block, stride):
            product = weights[w][:, None] * grads[window]
            x_grad[token] = x_grad[token] + product if seen[token] else product
            seen[token] = True
            products = xs[token] * grads[window]
            for first in range(0, width, RUN_D):
                run = products[:, first : first + LANES]
                for d in range(first + LANES, min(first + RUN_D, width), LANES):
                    run = run + products[:, d : d + LANES]
                lanes[token // TOKENS_PER_PARTIAL, w] += run
        half = LANES
        while half > 1:
            half //= 2
            lanes = lanes[..., :half] + lanes[..., half:]
        total = lanes[0, ..., 0]
        for chunk in lanes[1:]:
            total = total + chunk[..., 0]
        return x_grad.astype(x.dtype), round_double(total, weight.dtype)


def operands(tokens, heads, width, block, stride, lengths, dtype, seed=0):
    count = windows(None if lengths is None else tuple(lengths), tokens, block, stride)
    shapes = (count, heads, width), (tokens, heads, width), (block, heads)
    return [normal(shape, DTYPES[dtype], seed + k) for k, shape in enumerate(shapes)]


def call(grad, x, weight, lengths, block, stride, out=None):
    return nsa_compress_grad(grad, x, weight, lengths, compress_block_size=block, compress_stride=stride, out=out)


def check(grad, x, weight, lengths, block, stride, layout="plain", offset=0):
    outs = Watched(x.shape, x.dtype, layout, offset), Watched(weight.shape, x.dtype, layout, offset)
    result = call(grad, x, weight, lengths, block, stride, tuple(out.array for out in outs))
    assert all(got is out.array for got, out in zip(result, outs, strict=True))
    for out, want in zip(outs, expected(grad, x, weight, lengths, block, stride), strict=True):
        assert_same(out.check(), want, (x.shape, block, stride, lengths, layout))


@every_dtype
@pytest.mark.parametrize("case", LENGTHS)
@pytest.mark.parametrize(("block", "stride"), [(32, 16), (32, 32), (48, 16), (48, 32), (64, 16)])
def test_sequences(dtype, case, block, stride):
    tokens, lengths = LENGTHS[case]
    check(*operands(tokens, 2, 16, block, stride, lengths, dtype), lengths, block, stride)


@every_dtype
@pytest.mark.parametrize(
    ("heads", "width", "block", "stride"),
    [(1, 16, 128, 16), (128, 16, 32, 16), (3, 256, 32, 16), (2, 272, 32, 16), (1, 528, 80, 16), (5, 192, 16, 16), (2, 32, 128, 64)],
)
def test_sizes(dtype, heads, width, block, stride):
    check(*operands(300, heads, width, block, stride, None, dtype), None, block, stride)


@every_dtype
@pytest.mark.parametrize("lengths", [None, (0, 1000, 1040, 2047, 2100), (1024, 2048, 2100)])
def test_tokens_of_several_partial_sums(dtype, lengths):
    check(*operands(2100, 2, 32, 32, 16, lengths, dtype), lengths, 32, 16)


@every_dtype
def test_windows_longer_than_a_partial_sum(dtype):
    check(*operands(2200, 1, 16, 1056, 528, None, dtype), None, 1056, 528)


@every_dtype
def test_tokens_outside_all_windows_get_zero(dtype):
    grad, x, weight = operands(75, 1, 16, 32, 16, (20, 75), dtype)
    x[...] = np.nan
    weight[...] = np.nan
    grad[...] = np.nan
    x_grad, _ = call(grad, x, weight, (20, 75), 32, 16)
    inside = np.zeros(75, bool)
    inside[20:68] = True
    assert np.isnan(single(x_grad[inside])).all()
    assert x_grad[~inside].tobytes() == bytes(x_grad[~inside].nbytes)


@every_dtype
@pytest.mark.parametrize("tokens", [0, 1, 31, 1500])
def test_without_windows_both_gradients_are_zero(dtype, tokens):
    lengths = [*range(30, tokens, 30), tokens]
    grad, x, weight = operands(tokens, 2, 16, 32, 16, lengths, dtype)
    assert len(grad) == 0
    for got, shape in zip(call(grad, x, weight, lengths, 32, 16), (x.shape, weight.shape), strict=True):
        assert got.shape == shape
        assert got.tobytes() == bytes(got.nbytes)


@every_dtype
def test_sums_start_from_their_first_term(dtype):
    grad, x, weight = operands(1100, 1, 16, 32, 16, None, dtype)
    x[...], weight[...], grad[...] = 1.0, 1.0, -0.0
    for got in call(grad, x, weight, None, 32, 16):
        covered_part = got[: (len(grad) - 1) * 16 + 32] if got.shape == x.shape else got
        assert np.signbit(single(covered_part)).all()


def test_where_partial_sums_end():
    """2^60 swallows each 32 that is added to it, but not the sum of the 64 tokens of the partial sum that follows."""
    grad, x, weight = operands(2 * TOKENS_PER_PARTIAL + 32, 1, 16, 32, 16, None, "float32")
    grad[...], x[...] = 1.0, 0.0
    x[0, 0, 0], x[2 * TOKENS_PER_PARTIAL, 0, 0] = 2.0**60, -(2.0**60)
    x[TOKENS_PER_PARTIAL : 2 * TOKENS_PER_PARTIAL : 16, 0, 0] = 32.0
    check(grad, x, weight, None, 32, 16)
    assert call(grad, x, weight, None, 32, 16)[1][0, 0] == 64 * 32.0


def test_lanes_are_added_pairwise():
    """2^60 swallows 32: what is left says whether lane 8 or lane 4 met lane 0 first."""
    grad, x, weight = operands(32, 1, 16, 32, 16, None, "float32")
    grad[...], x[...] = 1.0, 0.0
    x[3, 0, [0, 8]] = 2.0**60, -(2.0**60)
    x[3, 0, [4, 1]] = 32.0, 64.0
    assert call(grad, x, weight, None, 32, 16)[1][3, 0] == 96.0
    x[3, 0, [0, 8, 4]] = 2.0**60, 32.0, -(2.0**60)
    assert call(grad, x, weight, None, 32, 16)[1][3, 0] == 64.0


@every_dtype
def test_special_values(dtype):
    values = [with_special_values(array, k).astype(DTYPES[dtype]) for k, array in enumerate(operands(150, 2, 48, 32, 16, (70, 150), dtype))]
    check(*values, (70, 150), 32, 16)


def test_16_bit_weight_gradients_are_rounded_once():
    """1 + 2^-11 + 2^-40: a float16 tie but for one far bit."""
    grad, x, weight = np.zeros((1, 1, 16), np.float16), np.zeros((32, 1, 16), np.float16), np.ones((32, 1), np.float16)
    for sign, want in ((1, 1 + 2.0**-10), (-1, 1.0), (0, 1.0)):
        grad[0, 0, :3] = 1.0, 1.0, 2.0**-20
        x[5, 0, :3] = 1.0, 2.0**-11, sign * 2.0**-20
        assert float(call(grad, x, weight, None, 32, 16)[1][5, 0]) == want


@pytest.mark.parametrize(
    ("tokens", "heads", "width", "block", "stride", "bound"),
    [(64, 1, 16, 32, 16, RANDOM_DATA), (2500, 2, 64, 32, 16, RANDOM_DATA), (600, 1, 256, 64, 16, RANDOM_DATA)],
)
@pytest.mark.parametrize("kind", ["random", "positive", "constant", "spread"])
def test_weight_gradients_within_the_bound(tokens, heads, width, block, stride, bound, kind):
    grad, x, weight = operands(tokens, heads, width, block, stride, None, "float32")
    if kind == "positive":
        grad, x = np.abs(grad) + np.float32(0.1), np.abs(x)
    elif kind == "constant":
        grad[...], x[...] = 1 / 3, 0.7
    elif kind == "spread":
        generator, bound = rng(5), ANY_DATA
        grad, x = (array * np.float32(2) ** generator.integers(-20, 20, array.shape).astype(np.float32) for array in (grad, x))
    got = call(grad, x, weight, None, block, stride)[1]
    for w in range(0, block, 7):
        for n in range(heads):
            terms = grad[:, n].astype(np.float64) * x[w : w + (len(grad) - 1) * stride + 1 : stride, n]
            exact, size = math.fsum(terms.reshape(-1)), math.fsum(np.abs(terms).reshape(-1))
            assert abs(float(got[w, n]) - exact) <= bound * size


def test_the_adjoint_of_the_forward_pass():
    """cmp = forward(x, weight) is linear in each: <cmp, g> = <x, inputGrad> = <weight, weightGrad>, exactly on small integers."""
    for tokens, heads, width, block, stride, lengths in (
        (32, 1, 16, 32, 16, None),
        (200, 3, 32, 48, 16, (0, 90, 100, 200)),
        (130, 2, 16, 64, 32, None),
    ):
        shapes = (windows(lengths, tokens, block, stride), heads, width), (tokens, heads, width), (block, heads)
        grad, x, weight = (rng(k).integers(-4, 5, shape).astype(np.float32) for k, shape in enumerate(shapes))
        forward = np.zeros(grad.shape)
        for token, window, w in covered(lengths, tokens, block, stride):
            forward[window] += x[token] * weight[w][:, None]
        x_grad, weight_grad = call(grad, x, weight, lengths, block, stride)
        product = (forward * grad).sum()
        assert product == (x.astype(np.float64) * x_grad).sum()
        assert product == (weight.astype(np.float64) * weight_grad).sum()
        assert abs(product) > 0


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_all_operands(dtype, layout):
    grad, x, weight = operands(150, 3, 48, 48, 16, (70, 150), dtype)
    check(lay(grad, layout), lay(x, layout), lay(weight, layout), (70, 150), 48, 16, layout)
    check(grad, lay(x, "transposed"), lay(weight, "reversed"), (70, 150), 48, 16, layout)
    firsts = (grad, np.s_[:, :1, :1]), (x, np.s_[:1]), (weight, np.s_[:1, :1])
    one_grad, one_token, one_weight = (np.broadcast_to(array[first], array.shape) for array, first in firsts)
    check(one_grad, one_token, one_weight, (70, 150), 48, 16)


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    values = operands(64, 2, 32, 32, 16, None, dtype)
    for offset in range(0, 32, 3):
        moved = [lay(array, "plain", (offset * (k + 2)) % 31) for k, array in enumerate(values)]
        check(*moved, None, 32, 16, "plain", offset)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    lengths = (0, 700, 1500, 2300)
    values = operands(2300, 5, 32, 32, 16, lengths, dtype)
    want = b"".join(array.tobytes() for array in expected(*values, lengths, 32, 16))
    assert for_all_threads(lambda: call(*values, lengths, 32, 16)) == {want}
    few = operands(100, 2, 16, 32, 16, None, dtype)
    assert len({b"".join(got.tobytes() for got in call(*few, None, 32, 16)) for _ in range(100)}) == 1


@every_dtype
def test_groups_of_heads_for_many_threads_give_the_same_bits(dtype):
    """How many threads there are decides how heads are grouped when the call is planned; a list and a tuple are planned apart."""
    values = operands(300, 7, 16, 32, 16, None, dtype)
    want = b"".join(array.tobytes() for array in expected(*values, None, 32, 16))
    for count, lengths in ((1, None), (2, (300,)), (3, (0, 300)), (64, (0, 0, 300))):
        assert for_all_threads(lambda lengths=lengths: call(*values, lengths, 32, 16), (count,)) == {want}


@every_dtype
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, end):
    grad, x, weight = operands(71, 2, 48, 32, 16, (30, 71), dtype)
    with at_the_edge(grad, x, weight, np.zeros_like(x), np.zeros_like(weight), end=end) as (*inputs, x_grad, weight_grad):
        call(*inputs, (30, 71), 32, 16, (x_grad, weight_grad))
        for got, want in zip((x_grad, weight_grad), expected(grad, x, weight, (30, 71), 32, 16), strict=True):
            assert_same(got, want)


@st.composite
def problems(draw):
    stride = 16 * draw(st.integers(1, 3))
    block = draw(st.sampled_from([size for size in (16, 32, 48, 64, 96) if size >= stride]))
    parts = draw(st.lists(st.one_of(st.integers(0, 20), st.integers(20, 200)), min_size=1, max_size=6))
    lengths = tuple(np.cumsum(parts).tolist())
    return block, stride, draw(st.sampled_from([lengths, (0, *lengths), list(lengths)])), lengths[-1]


@settings(max_examples=60, deadline=None)
@given(problem=problems(), heads=st.integers(1, 5), width=st.integers(1, 4), dtype=dtypes, kinds=st.tuples(*[layouts] * 4), seed=seeds)
def test_any_call(problem, heads, width, dtype, kinds, seed):
    block, stride, lengths, tokens = problem
    assume(tokens > 0)
    values = operands(tokens, heads, 16 * width, block, stride, lengths, dtype, seed)
    values = [with_special_values(array, seed + k).astype(DTYPES[dtype]) for k, array in enumerate(values)]
    check(*(lay(array, kind) for array, kind in zip(values, kinds, strict=False)), lengths, block, stride, kinds[3])


@every_dtype
def test_the_reference_is_near(dtype):
    lengths = (0, 90, 100, 260)
    grad, x, weight = operands(260, 2, 32, 48, 16, lengths, dtype)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    sizes = reference(*(np.abs(single(array)) for array in (grad, x, weight)), lengths, 48, 16)
    for got, want, size in zip(call(grad, x, weight, lengths, 48, 16), reference(grad, x, weight, lengths, 48, 16), sizes, strict=True):
        assert (np.abs(got.astype(np.float64) - want) <= ANY_DATA * size + 1.01 * unit * np.abs(want)).all()
