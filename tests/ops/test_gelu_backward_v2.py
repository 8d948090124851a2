"""The GELU gradient as an operator: d, whose numbers test_gelu_numerics.py establishes, times gradOutput, for any operands."""

import itertools

import numpy as np
import pytest
from gelu_golden import derivative
from gelu_walks import MODES
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
    seeds,
    single,
    with_special_values,
)

from anycann import gelu_backward_v2
from anycann.check.standards import round_to, ulp
from anycann.ops.gelu_backward_v2.reference import reference
from anycann.ops.gelu_backward_v2.tables import table

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
modes = pytest.mark.parametrize("mode", MODES)


def promoted(*arrays):
    kinds = {array.dtype for array in arrays}
    return kinds.pop() if len(kinds) == 1 else np.dtype(np.float32)


def factor(x, mode):
    """d, rounded to float32."""
    x = np.array(x, order="C")
    if x.dtype == np.float32:
        return derivative(x.reshape(-1), mode).reshape(x.shape)
    return table(x.dtype.name, mode)[x.view(np.uint16)]


def expected(grad, x, mode):
    """The product in float32, rounded once to the dtype that gradOutput and self promote to."""
    with np.errstate(all="ignore"):
        product = single(grad) * factor(x, mode)
        assert product.dtype == np.float32
        return product.astype(promoted(grad, x))


def check(grad, x, mode, layout="plain", offset=0):
    out = Watched(np.broadcast_shapes(grad.shape, x.shape), promoted(grad, x), layout, offset)
    result = gelu_backward_v2(grad, x, mode, out=out.array)
    assert result is out.array
    assert_same(out.check(), expected(grad, x, mode), (mode, layout))


@modes
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_input(dtype, mode):
    x = np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype])
    ones = np.ones(1, DTYPES[dtype])
    with np.errstate(invalid="ignore", over="ignore"):
        assert_same(gelu_backward_v2(ones, x, mode), table(dtype, mode).astype(DTYPES[dtype]))
        assert_same(gelu_backward_v2(np.ones(1, np.float32), x, mode), table(dtype, mode))
    check(normal(x.shape, DTYPES[dtype]), x, mode)


@modes
def test_every_combination_of_dtypes(mode):
    arrays = {
        name: [with_special_values(normal((7, 300), dtype, seed, 3), seed).astype(dtype) for seed in (1, 2)]
        for name, dtype in DTYPES.items()
    }
    for first, second in itertools.product(DTYPES, repeat=2):
        check(arrays[first][0], arrays[second][1], mode)
        check(arrays[first][0][:, :1], arrays[second][1], mode)
        check(arrays[first][0], arrays[second][1][:1], mode, "transposed")


@modes
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 1000, 1023, 1024, 1025, 5000])
def test_float32_of_every_length_and_scale(mode, n):
    for scale in (0.1, 1.0, 4.0, 30.0):
        check(normal((n,), np.float32, 1), normal((n,), np.float32, 2, scale), mode)


@modes
def test_infinities_and_nan(mode):
    for dtype in DTYPES.values():
        x = np.array([np.inf, -np.inf, np.nan, 1.0, 0.0], dtype)
        limits = [np.nan, np.nan] if mode == "none" else [2.0, 0.0]
        got = single(gelu_backward_v2(np.full(5, 2, dtype), x, mode))
        np.testing.assert_array_equal(got[:3], [*limits, np.nan])
        assert got[4] == 1.0
        got = single(
            gelu_backward_v2(np.array([np.inf, np.inf, 0, np.nan, -np.inf], dtype), np.array([5, -300, np.inf, 1, 0], dtype), mode)
        )
        zero_times_limit = np.nan if mode == "none" else 0.0
        np.testing.assert_array_equal(got, [np.inf, np.nan, zero_times_limit, np.nan, -np.inf])


@every_dtype
def test_large_operands_in_any_order_of_axes(dtype):
    grad, x = normal((5, 150, 300), DTYPES[dtype], 1), normal((5, 150, 300), DTYPES[dtype], 2, 2)
    assert_layouts_do_not_matter(gelu_backward_v2, grad, x)


@every_dtype
@modes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_inputs_and_output(dtype, mode, layout):
    grad, x = normal((4, 30, 37), DTYPES[dtype], 1), normal((4, 30, 37), DTYPES[dtype], 2, 2)
    check(lay(grad, layout), x, mode, layout)
    check(grad, lay(x, layout), mode)
    check(lay(grad, "transposed"), lay(x, layout), mode, layout)
    check(np.broadcast_to(grad[:1, :, :1], x.shape), lay(x, layout), mode)
    check(grad, np.broadcast_to(x[:, :1], x.shape), mode, layout)


@every_dtype
def test_broadcasting(dtype):
    for first, second in (
        ((1,), (3, 500)),
        ((), (700,)),
        ((700,), ()),
        ((3, 1, 50), (7, 50)),
        ((2, 1, 1, 1, 3, 1, 1, 5), (1, 4, 1, 2, 1, 3, 1, 1)),
    ):
        check(normal(first, DTYPES[dtype], 1), normal(second, DTYPES[dtype], 2), "none")


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    grad, x = normal((1101,), DTYPES[dtype], 1), normal((1101,), DTYPES[dtype], 2)
    for offset in range(33):
        check(lay(grad, "plain", offset), lay(x, "plain", 7 * offset % 32), "tanh", "plain", 3 * offset % 32)


@every_dtype
@modes
def test_nothing_depends_on_threads_or_repeats(dtype, mode):
    grad, x = normal((3, 70_001), DTYPES[dtype], 1), normal((3, 70_001), DTYPES[dtype], 2, 3)
    assert for_all_threads(lambda: gelu_backward_v2(grad, x, mode)) == {expected(grad, x, mode).tobytes()}
    few = grad[:, :500], x[:, :500]
    assert len({gelu_backward_v2(*few, mode).tobytes() for _ in range(100)}) == 1


@every_dtype
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype):
    n = (1 << 23) // DTYPES[dtype].itemsize + 77
    grad, x = (np.resize(normal((100_003,), DTYPES[dtype], seed, 2), n) for seed in (1, 2))
    check(grad, x, "none", "plain", 5)


@every_dtype
@pytest.mark.parametrize("n", [1, 15, 17, 1023, 1025, 2050])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, n, end):
    grad, x = normal((n,), DTYPES[dtype], 1), normal((n,), DTYPES[dtype], 2)
    with at_the_edge(grad, x, np.zeros_like(x), end=end) as (grad_edge, x_edge, out):
        gelu_backward_v2(grad_edge, x_edge, "none", out=out)
        assert_same(out, expected(grad, x, "none"))


@every_dtype
def test_an_output_may_be_an_input(dtype):
    grad, x = normal((3000,), DTYPES[dtype], 1), normal((3000,), DTYPES[dtype], 2)
    want = expected(grad, x, "tanh")
    for k in range(2):
        operands = [grad.copy(), x.copy()]
        gelu_backward_v2(*operands, "tanh", out=operands[k])
        assert_same(operands[k], want)
    room = np.concatenate([x, np.zeros(9, DTYPES[dtype])])
    gelu_backward_v2(grad, room[:3000], "tanh", out=room[9:])
    assert_same(room[9:], want, "a partial overlap gives what copies would give")


def test_empty_and_scalar():
    assert gelu_backward_v2(np.ones(1, np.float16), np.zeros((0, 3), np.float16)).shape == (0, 3)
    scalar = gelu_backward_v2(np.array(3.0, np.float32), np.array(0.0, np.float32))
    assert scalar.shape == ()
    assert float(scalar) == 1.5


@st.composite
def broadcast_shapes(draw):
    shape = draw(st.lists(st.sampled_from([1, 2, 3, 16, 45]), min_size=0, max_size=5))
    while np.prod(shape, dtype=np.int64) > 4000:
        shape = shape[1:]
    both = []
    for _ in range(2):
        own = [1 if draw(st.booleans()) and draw(st.booleans()) else size for size in shape]
        both.append(tuple(own[draw(st.integers(0, len(own))) if draw(st.booleans()) else 0 :]))
    return both


@settings(max_examples=150, deadline=None)
@given(
    shapes=broadcast_shapes(),
    names=st.tuples(dtypes, dtypes),
    kinds=st.tuples(layouts, layouts, layouts),
    mode=st.sampled_from(MODES),
    scale=st.sampled_from([0.5, 3.0, 40.0]),
    seed=seeds,
)
def test_any_call(shapes, names, kinds, mode, scale, seed):
    generator = rng(seed)
    values = [(generator.standard_normal(shape) * scale).astype(DTYPES[name]) for shape, name in zip(shapes, names, strict=True)]
    values = [np.asarray(with_special_values(np.asarray(array), seed % 1000 + k)).astype(array.dtype) for k, array in enumerate(values)]
    check(*(lay(array, kind) for array, kind in zip(values, kinds, strict=False)), mode, kinds[2])


@modes
@every_dtype
def test_the_reference_is_near(dtype, mode):
    grad, x = normal((3000,), DTYPES[dtype], 1), normal((3000,), DTYPES[dtype], 2, 3)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    smallest = {"float16": 2.0**-25, "bfloat16": 2.0**-126, "float32": 2.0**-126}[dtype]
    want = reference(single(grad), single(x), mode)
    got = single(gelu_backward_v2(grad, x, mode)).astype(np.float64)
    ulps = 10 if dtype == "float32" else 1.02
    np.testing.assert_array_less(np.abs(got - want), ulps * unit * np.abs(want) + 1.02 * smallest)


@pytest.mark.parametrize("gradient", [1.0, 3.0, 1e10, 1e-10])
@modes
def test_large_and_small_gradients(gradient, mode):
    """Within 5 ULP in float32 and 0.51 ULP in 16 bits, wherever d and the golden product are normal numbers of their types."""
    tiny = float(np.finfo(np.float32).tiny)
    for name, most in (("float32", 5.0), ("bfloat16", 0.51), ("float16", 0.51)):
        x = normal((60_000,), DTYPES[name], 7, 4)
        with np.errstate(over="ignore"):  # 1e10 is infinite in float16
            grad = np.full_like(x, gradient)
        factor_ = reference(1.0, x.astype(np.float64), mode)
        gold = reference(grad.astype(np.float64), x.astype(np.float64), mode)
        rounded = round_to(gold, name).astype(np.float64)
        normal_d = np.abs(factor_) >= tiny
        infinite = normal_d & ~np.isfinite(rounded)
        kept = normal_d & ~infinite & ((np.abs(gold) >= tiny) | (name == "float16"))
        assert np.sum(kept | infinite) > 50_000
        got = gelu_backward_v2(grad, x, mode).astype(np.float64)
        assert (np.abs(got[kept] - gold[kept]) <= most * ulp(gold[kept], name)).all()
        assert np.array_equal(got[infinite], rounded[infinite], equal_nan=True)
