"""GELU as an operator: the values that test_gelu_v2_numerics.py establishes, for any operand."""

import numpy as np
import pytest
from gelu_v2_golden import value
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

from anycann import AclnnError, gelu_v2
from anycann.ops.gelu_v2.reference import reference
from anycann.ops.gelu_v2.tables import table

every_dtype = pytest.mark.parametrize("dtype", DTYPES)
modes = pytest.mark.parametrize("mode", MODES)


def expected(x, mode):
    x = np.array(x, order="C")
    if x.dtype == np.float32:
        return value(x.reshape(-1), mode).reshape(x.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        return table(x.dtype.name, MODES.index(mode))[x.view(np.uint16)].astype(x.dtype)


def check(x, mode, layout="plain", offset=0):
    out = Watched(x.shape, x.dtype, layout, offset)
    assert gelu_v2(x, mode, out=out.array) is out.array
    assert_same(out.check(), expected(x, mode), (mode, layout))


@modes
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_input(dtype, mode):
    check(np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype]), mode)


@modes
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 1000, 1023, 1024, 1025, 5000])
def test_float32_of_every_length_and_scale(mode, n):
    for scale in (0.1, 1.0, 4.0, 30.0):
        check(normal((n,), np.float32, 2, scale), mode)


@every_dtype
@modes
def test_infinities_zeros_and_nan(dtype, mode):
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, -300.0, 300.0], DTYPES[dtype])
    got = single(gelu_v2(x, mode))
    np.testing.assert_array_equal(got, [np.inf, 0, np.nan, 0, 0, 0, 300])
    assert np.signbit(got[[1, 4, 5]]).all()
    assert not np.signbit(got[[0, 3, 6]]).any()
    np.testing.assert_array_equal(reference(single(x), MODES.index(mode)), got)


def test_the_mode_by_name_and_by_number():
    x = normal((50,), np.float32, 1, 3)
    assert_same(gelu_v2(x), gelu_v2(x, 0))
    assert_same(gelu_v2(x, "tanh"), gelu_v2(x, 1))
    assert (gelu_v2(x, "none") != gelu_v2(x, "tanh")).any()
    with pytest.raises(AclnnError, match=r"approximate must be 0 \('none'\), 1 \('tanh'\); got 'erf'") as refused:
        gelu_v2(x, "erf")
    assert refused.value.status == 161002


@every_dtype
def test_large_operands_in_any_order_of_axes(dtype):
    assert_layouts_do_not_matter(gelu_v2, normal((5, 150, 300), DTYPES[dtype], 1, 2))


@every_dtype
@modes
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_input_and_output(dtype, mode, layout):
    x = normal((4, 30, 37), DTYPES[dtype], 2, 2)
    check(x, mode, layout)
    check(lay(x, layout), mode)
    check(lay(x, "transposed"), mode, layout)
    check(np.broadcast_to(x[:, :1, :1], x.shape), mode, layout)


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    x = normal((1101,), DTYPES[dtype], 2)
    for offset in range(33):
        check(lay(x, "plain", 7 * offset % 32), "tanh", "plain", 3 * offset % 32)


@every_dtype
@modes
def test_nothing_depends_on_threads_or_repeats(dtype, mode):
    x = normal((3, 70_001), DTYPES[dtype], 2, 3)
    assert for_all_threads(lambda: gelu_v2(x, mode)) == {expected(x, mode).tobytes()}
    few = x[:, :500]
    assert len({gelu_v2(few, mode).tobytes() for _ in range(100)}) == 1


@every_dtype
def test_large_outputs_bypass_the_caches_and_are_the_same(dtype):
    n = (1 << 23) // DTYPES[dtype].itemsize + 77
    check(np.resize(normal((100_003,), DTYPES[dtype], 3, 2), n), "none", "plain", 5)


@every_dtype
@pytest.mark.parametrize("n", [1, 15, 17, 1023, 1025, 2050])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, n, end):
    x = normal((n,), DTYPES[dtype], 2)
    with at_the_edge(x, np.zeros_like(x), end=end) as (x_edge, out):
        gelu_v2(x_edge, "none", out=out)
        assert_same(out, expected(x, "none"))


@every_dtype
def test_the_output_may_be_the_input(dtype):
    x = normal((3000,), DTYPES[dtype], 2)
    same = x.copy()
    gelu_v2(same, "tanh", out=same)
    assert_same(same, expected(x, "tanh"))
    room = np.concatenate([x, np.zeros(9, DTYPES[dtype])])
    gelu_v2(room[:3000], "tanh", out=room[9:])
    assert_same(room[9:], expected(x, "tanh"), "a partial overlap gives what copies would give")


def test_empty_and_scalar():
    assert gelu_v2(np.zeros((0, 3), np.float16)).shape == (0, 3)
    scalar = gelu_v2(np.array(3.0, np.float32))
    assert scalar.shape == ()
    assert float(scalar) == pytest.approx(2.995950305938721)


@settings(max_examples=100, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 16, 45]), max_size=4),
    name=dtypes,
    kinds=st.tuples(layouts, layouts),
    mode=st.sampled_from(MODES),
    scale=st.sampled_from([0.5, 3.0, 40.0]),
    seed=seeds,
)
def test_any_call(shape, name, kinds, mode, scale, seed):
    x = with_special_values(np.asarray(rng(seed).standard_normal(shape) * scale).astype(DTYPES[name]), seed % 1000)
    check(lay(np.asarray(x).astype(DTYPES[name]), kinds[0]), mode, kinds[1])
