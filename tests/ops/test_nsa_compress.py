"""The NSA compression against its written order, bit for bit, and against exact sums."""

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
    seeds,
    single,
    with_special_values,
)

from anycann import AclnnError, nsa_compress, nsa_compress_grad
from anycann.ops.nsa_compress.reference import reference
from anycann.ops.nsa_compress.spec import RUN_W

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def first_tokens(lengths, tokens, block, stride):
    begin = 0
    for end in (tokens,) if lengths is None else lengths:
        yield from range(begin, end - block + 1, stride)
        begin = end


def expected(x, weight, lengths, block, stride):
    xs, weights = single(x), single(weight)
    rows = []
    with np.errstate(all="ignore"):
        for first in first_tokens(lengths, len(x), block, stride):
            products = xs[first : first + block] * weights[:, :, None]
            runs = []
            for w in range(0, block, RUN_W):
                runs.append(products[w])
                for product in products[w + 1 : w + RUN_W]:
                    runs[-1] = runs[-1] + product
            total = runs[0]
            for run in runs[1:]:
                total = total + run
            rows.append(total)
        return np.array(rows, np.float32).reshape(-1, *x.shape[1:]).astype(x.dtype)


def operands(tokens, heads, width, block, dtype, seed=0):
    return normal((tokens, heads, width), DTYPES[dtype], seed), normal((block, heads), DTYPES[dtype], seed + 1)


def call(x, weight, lengths, block, stride, out=None):
    return nsa_compress(x, weight, lengths, compress_block_size=block, compress_stride=stride, out=out)


def check(x, weight, lengths, block, stride, layout="plain", offset=0):
    want = expected(x, weight, lengths, block, stride)
    out = Watched(want.shape, x.dtype, layout, offset)
    assert call(x, weight, lengths, block, stride, out.array) is out.array
    assert_same(out.check(), want, (x.shape, block, stride, lengths, layout))


@every_dtype
@pytest.mark.parametrize("case", LENGTHS)
@pytest.mark.parametrize(("block", "stride"), [(16, 16), (32, 16), (32, 32), (48, 16), (48, 32), (64, 16)])
def test_sequences(dtype, case, block, stride):
    tokens, lengths = LENGTHS[case]
    check(*operands(tokens, 2, 16, block, dtype), lengths, block, stride)


@every_dtype
@pytest.mark.parametrize(
    ("heads", "width", "block", "stride"),
    [(1, 16, 128, 16), (128, 16, 32, 16), (3, 256, 32, 16), (2, 272, 32, 16), (1, 64, 80, 16), (5, 192, 16, 16), (2, 112, 128, 64)],
)
def test_sizes(dtype, heads, width, block, stride):
    check(*operands(300, heads, width, block, dtype), None, block, stride)


@every_dtype
def test_windows_of_a_thousand_tokens(dtype):
    check(*operands(2200, 1, 16, 1056, dtype), None, 1056, 528)


@every_dtype
@pytest.mark.parametrize("tokens", [0, 1, 31, 1500])
def test_without_windows_the_result_is_empty(dtype, tokens):
    lengths = [*range(30, tokens, 30), tokens]
    got = call(*operands(tokens, 2, 16, 32, dtype), lengths, 32, 16)
    assert (got.shape, got.dtype) == ((0, 2, 16), DTYPES[dtype])


@every_dtype
def test_no_sequences_have_no_tokens(dtype):
    x, weight = operands(0, 2, 16, 32, dtype)
    assert call(x, weight, [], 32, 16).shape == (0, 2, 16)
    with pytest.raises(AclnnError, match="must end with the number of tokens") as refused:
        call(*operands(40, 2, 16, 32, dtype), [], 32, 16)
    assert refused.value.status == 161002


@every_dtype
@pytest.mark.parametrize("width", [16, 64])
def test_sums_start_from_their_first_term(dtype, width):
    x, weight = operands(100, 1, width, 32, dtype)
    x[...], weight[...] = -0.0, 1.0
    assert np.signbit(single(call(x, weight, None, 32, 16))).all()


@pytest.mark.parametrize("width", [16, 64])
def test_where_runs_end(width):
    """2^30 swallows each 32 that is added to it in float32, but not the sum of the run that follows."""
    x, weight = operands(48, 1, width, 48, "float32")
    x[...], weight[...] = 0.0, 1.0
    x[0], x[47] = 2.0**30, -(2.0**30)
    x[1:16], x[16:32] = 32.0, 32.0
    assert (call(x, weight, None, 48, 16) == 16 * 32.0).all()


@pytest.mark.parametrize("block", [16, 32, 128, 1024])
@pytest.mark.parametrize("kind", ["random", "positive", "constant", "spread"])
def test_within_the_bound(block, kind):
    x, weight = operands(block + 64, 1, 16, block, "float32")
    if kind == "positive":
        x, weight = np.abs(x), np.abs(weight) + np.float32(0.1)
    elif kind == "constant":
        x[...], weight[...] = 1 / 3, 0.7
    elif kind == "spread":
        x, weight = (array * np.float32(2) ** rng(5).integers(-20, 20, array.shape).astype(np.float32) for array in (x, weight))
    got = call(x, weight, None, block, 16)
    for window, first in enumerate(first_tokens(None, len(x), block, 16)):
        terms = x[first : first + block, 0].astype(np.float64) * weight
        for d in range(16):
            exact, size = math.fsum(terms[:, d]), math.fsum(np.abs(terms[:, d]))
            assert abs(float(got[window, 0, d]) - exact) <= (16 + block / 16) * 2.0**-24 * size


def test_its_gradients_are_those_of_the_gradient_operator():
    """<compress(x, weight), g> = <x, inputGrad> = <weight, weightGrad>, exactly on small integers."""
    for tokens, heads, width, block, stride, lengths in (
        (32, 1, 16, 32, 16, None),
        (200, 3, 80, 48, 16, (0, 90, 100, 200)),
        (130, 2, 16, 64, 32, None),
    ):
        x, weight = (rng(k).integers(-4, 5, shape).astype(np.float32) for k, shape in enumerate(((tokens, heads, width), (block, heads))))
        forward = call(x, weight, lengths, block, stride)
        grad = rng(7).integers(-4, 5, forward.shape).astype(np.float32)
        sizes = {"compress_block_size": block, "compress_stride": stride}
        x_grad, weight_grad = nsa_compress_grad(grad, x, weight, lengths, **sizes)
        product = (forward.astype(np.float64) * grad).sum()
        assert product == (x.astype(np.float64) * x_grad).sum()
        assert product == (weight.astype(np.float64) * weight_grad).sum()
        assert abs(product) > 0


@every_dtype
def test_special_values(dtype):
    values = [with_special_values(array, k).astype(DTYPES[dtype]) for k, array in enumerate(operands(150, 2, 80, 32, dtype))]
    check(*values, (70, 150), 32, 16)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_all_operands(dtype, layout):
    x, weight = operands(150, 3, 80, 48, dtype)
    check(lay(x, layout), lay(weight, layout), (70, 150), 48, 16, layout)
    check(lay(x, "transposed"), lay(weight, "reversed"), (70, 150), 48, 16, layout)
    check(np.broadcast_to(x[:1], x.shape), np.broadcast_to(weight[:1, :1], weight.shape), (70, 150), 48, 16)
    check(np.broadcast_to(x[:, :1, :1], x.shape), weight, (70, 150), 48, 16)


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    x, weight = operands(64, 2, 80, 32, dtype)
    for offset in range(0, 32, 3):
        check(lay(x, "plain", offset), lay(weight, "plain", 2 * offset % 31), None, 32, 16, "plain", 3 * offset % 31)


@every_dtype
def test_nothing_depends_on_threads_or_repeats(dtype):
    lengths = (0, 700, 1500, 2300)
    values = operands(2300, 5, 80, 32, dtype)
    assert for_all_threads(lambda: call(*values, lengths, 32, 16)) == {expected(*values, lengths, 32, 16).tobytes()}
    wide = operands(64, 1, 2048, 32, dtype)  # more threads than heads, whose columns are more than a unit has
    assert for_all_threads(lambda: call(*wide, None, 32, 16)) == {expected(*wide, None, 32, 16).tobytes()}
    few = operands(100, 2, 16, 32, dtype)
    assert len({call(*few, None, 32, 16).tobytes() for _ in range(100)}) == 1


@every_dtype
@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize("width", [48, 64])
def test_memory_beyond_the_operands_is_not_touched(dtype, end, width):
    x, weight = operands(71, 2, width, 32, dtype)
    want = expected(x, weight, (30, 71), 32, 16)
    with at_the_edge(x, weight, np.zeros_like(want), end=end) as (x_edge, weight_edge, out):
        call(x_edge, weight_edge, (30, 71), 32, 16, out)
        assert_same(out, want)


@st.composite
def problems(draw):
    stride = 16 * draw(st.integers(1, 3))
    block = draw(st.sampled_from([size for size in (16, 32, 48, 64, 96) if size >= stride]))
    parts = draw(st.lists(st.one_of(st.integers(0, 20), st.integers(20, 200)), min_size=1, max_size=6))
    lengths = tuple(np.cumsum(parts).tolist())
    return block, stride, draw(st.sampled_from([lengths, (0, *lengths), list(lengths)])), lengths[-1]


@settings(max_examples=60, deadline=None)
@given(problem=problems(), heads=st.integers(1, 5), width=st.integers(1, 9), dtype=dtypes, kinds=st.tuples(*[layouts] * 3), seed=seeds)
def test_any_call(problem, heads, width, dtype, kinds, seed):
    block, stride, lengths, tokens = problem
    assume(tokens > 0)
    values = [with_special_values(array, seed + k) for k, array in enumerate(operands(tokens, heads, 16 * width, block, dtype, seed))]
    x, weight = (lay(array.astype(DTYPES[dtype]), kind) for array, kind in zip(values, kinds, strict=False))
    check(x, weight, lengths, block, stride, kinds[2])


@every_dtype
def test_the_reference_is_near(dtype):
    lengths = (0, 90, 100, 260)
    x, weight = operands(260, 2, 32, 48, dtype)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    got, want = call(x, weight, lengths, 48, 16), reference(x, weight, lengths, "TND", 48, 16)
    sizes = reference(np.abs(single(x)), np.abs(single(weight)), lengths, "TND", 48, 16)
    assert (np.abs(got.astype(np.float64) - want) <= 19 * 2.0**-24 * sizes + 1.01 * unit * np.abs(want)).all()
