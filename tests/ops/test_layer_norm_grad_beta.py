"""The column sums against their written order, bit for bit, and against exact sums."""

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
    closer_than_rows,
    dtypes,
    for_all_threads,
    lay,
    layouts,
    normal,
    raw,
    rng,
    round_double,
    seeds,
    single,
    with_special_values,
)

from anycann import layer_norm_grad_beta
from anycann.ops.layer_norm_grad_beta.reference import reference
from anycann.ops.layer_norm_grad_beta.spec import ROWS_PER_RUN, RUNS_PER_PARTIAL

ANY_DATA, RANDOM_DATA = 1.1e-6, 5e-7
PARTIAL = ROWS_PER_RUN * RUNS_PER_PARTIAL
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def in_order(terms):
    """Rows added one after the other, starting from the first."""
    total = terms[0]
    for row in terms[1:]:
        total = total + row
    return total


def column_sums(terms):
    """Runs of 16 rows in float32, 64 runs in float64, then the partial sums in float64."""
    partials = []
    for first in range(0, len(terms), PARTIAL):
        rows = terms[first : first + PARTIAL]
        runs = [in_order(rows[r : r + ROWS_PER_RUN]).astype(np.float64) for r in range(0, len(rows), ROWS_PER_RUN)]
        partials.append(in_order(runs))
    return in_order(partials)


def expected(x, dy):
    width = x.shape[-1]
    x, dy, dtype = single(x).reshape(-1, width), single(dy).reshape(-1, width), x.dtype
    if not len(x):
        return np.zeros(width, dtype), np.zeros(width, dtype)
    with np.errstate(all="ignore"):
        terms = x * dy
        assert terms.dtype == np.float32
        return round_double(column_sums(terms), dtype), round_double(column_sums(dy), dtype)


def check(x, dy, layout="plain", offset=0):
    outs = [Watched(x.shape[-1:], x.dtype, layout, offset) for _ in range(2)]
    result = layer_norm_grad_beta(x, dy, out=tuple(out.array for out in outs))
    assert all(got is out.array for got, out in zip(result, outs, strict=True))
    for out, want in zip(outs, expected(x, dy), strict=True):
        assert_same(out.check(), want, (x.shape, layout))


def errors(x, dy):
    """The error of both results in units of the sum of the absolute terms, against exact sums."""
    x, dy = np.asarray(x, np.float64).reshape(-1, x.shape[-1]), np.asarray(dy, np.float64).reshape(-1, x.shape[-1])
    worst = 0.0
    for got, terms in zip(layer_norm_grad_beta(single(x), single(dy)), (x * dy, dy), strict=True):
        for column in range(terms.shape[1]):
            exact, size = math.fsum(terms[:, column]), math.fsum(np.abs(terms[:, column]))
            worst = max(worst, abs(float(got[column]) - exact) / size)
    return worst


@every_dtype
@pytest.mark.parametrize("rows", [1, 2, 4, 15, 16, 17, 21, 1023, 1024, 1025, 2053])
@pytest.mark.parametrize("width", [1, 15, 16, 33, 600])
def test_the_written_order(dtype, rows, width):
    check(normal((rows, width), DTYPES[dtype], 1), normal((rows, width), DTYPES[dtype], 2))


@every_dtype
def test_wide_rows_and_many_axes(dtype):
    check(normal((3, 9001), DTYPES[dtype], 1), normal((3, 9001), DTYPES[dtype], 2))
    check(normal((2, 3, 1, 7, 2, 19), DTYPES[dtype], 1), normal((2, 3, 1, 7, 2, 19), DTYPES[dtype], 2))
    check(normal((70,), DTYPES[dtype], 1), normal((70,), DTYPES[dtype], 2))


@every_dtype
@pytest.mark.parametrize("shape", [(3, 11, 13, 192), (2, 700, 40), (2100, 33), (3, 50, 2048), (700, 5, 96), (20, 60, 3, 33)])
def test_rows_that_lie_side_by_side(dtype, shape):
    x, dy = normal(shape, DTYPES[dtype], 31), normal(shape, DTYPES[dtype], 32)
    want = b"".join(map(raw, layer_norm_grad_beta(x, dy)))
    for near in closer_than_rows(x, 1):
        for pair in ((near, dy), (near, closer_than_rows(dy, 1)[1]), (near, dy.swapaxes(0, 1).copy().swapaxes(0, 1))):
            assert for_all_threads(lambda pair=pair: layer_norm_grad_beta(*pair)) == {want}


@every_dtype
def test_no_rows_give_zeros(dtype):
    for shape in ((0, 5), (3, 0, 20), (0, 2, 1)):
        for got in layer_norm_grad_beta(np.zeros(shape, DTYPES[dtype]), np.zeros(shape, DTYPES[dtype])):
            assert got.tobytes() == bytes(got.nbytes)
            assert got.shape == shape[-1:]
    gamma, beta = layer_norm_grad_beta(np.zeros((4, 0), DTYPES[dtype]), np.zeros((4, 0), DTYPES[dtype]))
    assert gamma.shape == beta.shape == (0,)


@every_dtype
def test_sums_start_from_their_first_term(dtype):
    """Negative zeros stay negative: nothing is added to a zero first."""
    dy = np.full((2100, 3), -0.0, DTYPES[dtype])
    for got in layer_norm_grad_beta(np.ones_like(dy), dy):
        assert np.signbit(got.astype(np.float32)).all()


def test_where_partial_sums_end():
    """2^60 swallows each 32 that is added to it, but not the sum of the 64 runs of the partial sum that follows."""
    dy = np.zeros((2 * PARTIAL + 1, 1), np.float32)
    dy[0], dy[PARTIAL : 2 * PARTIAL : ROWS_PER_RUN], dy[2 * PARTIAL] = 2.0**60, 32.0, -(2.0**60)
    check(np.ones_like(dy), dy)
    assert layer_norm_grad_beta(np.ones_like(dy), dy)[1].tolist() == [64 * 32.0]


@every_dtype
def test_special_values_stay_in_their_columns(dtype):
    x, dy = (with_special_values(normal((40, 500), DTYPES[dtype], seed), seed) for seed in (1, 2))
    check(x, dy)


@every_dtype
def test_ones_sum_to_their_number(dtype):
    ones = np.ones((32_768, 17), DTYPES[dtype])
    for got in layer_norm_grad_beta(ones, ones):
        assert got.tolist() == [32_768] * 17


@pytest.mark.parametrize("values", [(0.1, 0.3), (1 / 3, 7.0), (1.9999999, 1.0000001), (1e-20, 1e-15), (-0.7, 1e6)])
def test_constant_columns_of_many_rows(values):
    rows = 262_144
    x, dy = (np.broadcast_to(np.float32(value), (rows, 3)) for value in values)
    gamma, beta = (float(got[1]) for got in layer_norm_grad_beta(x, dy))
    exact = float(x[0, 0]) * float(dy[0, 0]) * rows
    assert abs(gamma - exact) <= RANDOM_DATA * abs(exact)
    assert abs(beta - float(dy[0, 0]) * rows) <= RANDOM_DATA * abs(float(dy[0, 0]) * rows)


@pytest.mark.parametrize("rows", [1, 16, 100, 5000, 40_000])
def test_random_data_within_the_bound(rows):
    assert errors(normal((rows, 24), np.float32, rows), normal((rows, 24), np.float32, rows + 1)) <= RANDOM_DATA
    positive = np.abs(normal((rows, 24), np.float32, rows)) + np.float32(0.1)
    assert errors(positive, np.abs(normal((rows, 24), np.float32, rows + 1))) <= RANDOM_DATA


@pytest.mark.parametrize("side", [1, -1])
def test_data_made_to_be_rounded_the_same_way_each_time(side):
    """Each run starts with 1; the others lie just above, or below, half a unit in its last place. This is nearly the worst there is."""
    dy = np.full((4096, 16), 2.0**-24 * (1 + side * 2.0**-20), np.float32)
    dy[::ROWS_PER_RUN] = 1.0
    x = np.float32(1) + rng().integers(0, 3, dy.shape).astype(np.float32) * np.float32(2.0**-23)
    worst = errors(x, dy)
    assert 8.5e-7 < worst <= ANY_DATA


@settings(max_examples=60, deadline=None)
@given(rows=st.integers(1, 300), spread=st.sampled_from([0, 5, 30]), positive=st.booleans(), seed=seeds)
def test_any_data_within_the_bound(rows, spread, positive, seed):
    generator = rng(seed)
    x, dy = (generator.standard_normal((rows, 5)) * 2.0 ** generator.integers(-spread, spread + 1, (rows, 5)) for _ in range(2))
    x, dy = np.float32(x), np.float32(np.abs(dy) if positive else dy)
    assert errors(np.abs(x) if positive else x, dy) <= ANY_DATA


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_results_are_rounded_once(dtype):
    """A sum that is a tie of the 16-bit type but for one far bit, which a detour by float32 would lose."""
    digits = {"float16": 11, "bfloat16": 8}[dtype]
    for far in (2.0**-40, -(2.0**-40), 0.0):
        x, dy = np.ones((64, 1)), np.zeros((64, 1))
        dy[[0, 16]] = [[1.0], [2.0**-digits]]
        x[32], dy[32] = 2.0**-20 * np.sign(far), abs(far) * 2.0**20  # 2^-40 itself is no float16
        got, _ = layer_norm_grad_beta(x.astype(DTYPES[dtype]), dy.astype(DTYPES[dtype]))
        assert float(got[0]) == (1.0 + 2.0 ** (1 - digits) if far > 0 else 1.0)


def test_the_adjoint_of_the_forward_pass():
    """y = x gamma + beta: <J(u, v), dy> = <u, pdGamma> + <v, pdBeta>, exactly on small integers."""
    generator = rng(7)
    for rows, width in ((1, 1), (33, 20), (2000, 9)):
        x, dy = (generator.integers(-8, 9, (rows, width)).astype(np.float32) for _ in range(2))
        u, v = (generator.integers(-8, 9, width).astype(np.float64) for _ in range(2))
        gamma, beta = layer_norm_grad_beta(x, dy)
        assert ((x * u + v) * dy).sum() == u @ gamma.astype(np.float64) + v @ beta.astype(np.float64)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_inputs_and_outputs(dtype, layout):
    x, dy = normal((3, 20, 75), DTYPES[dtype], 1), normal((3, 20, 75), DTYPES[dtype], 2)
    check(lay(x, layout), dy, layout)
    check(x, lay(dy, layout))
    check(lay(x, layout), lay(dy, "transposed"))
    check(np.broadcast_to(x[:1, :1], x.shape), dy)
    check(np.broadcast_to(x[:1, :1, :1], x.shape), np.broadcast_to(dy[..., :1], x.shape))
    wide = normal((18, 2500), DTYPES[dtype], 3)
    check(lay(wide, layout), lay(wide, "reversed"))


@every_dtype
@pytest.mark.parametrize("width", [3, 8, 31, 128, 1030])
@pytest.mark.parametrize("rows", [16, 80, 81])
def test_rows_of_several_loops(dtype, width, rows):
    """As those of heads: a row of each of three, and the next."""
    x, dy = (normal((rows, 3, width + 5), DTYPES[dtype], seed)[..., :width].swapaxes(0, 1) for seed in (21, 22))
    check(x, dy)
    check(x, np.ascontiguousarray(dy))
    check(x[:, ::-1], dy[::-1])


@every_dtype
def test_nothing_depends_on_alignment(dtype):
    x, dy = normal((40, 71), DTYPES[dtype], 1), normal((40, 71), DTYPES[dtype], 2)
    for offset in range(32):
        check(lay(x, "plain", offset), lay(dy, "plain", 3 * offset % 32), "plain", offset)


@every_dtype
@pytest.mark.parametrize("shape", [(5000, 130), (64, 5000), (1100, 1)])
def test_nothing_depends_on_threads_or_repeats(dtype, shape):
    x, dy = normal(shape, DTYPES[dtype], 1), normal(shape, DTYPES[dtype], 2)
    want = b"".join(array.tobytes() for array in expected(x, dy))
    assert for_all_threads(lambda: layer_norm_grad_beta(x, dy)) == {want}
    few = x[:50], dy[:50]
    assert len({b"".join(got.tobytes() for got in layer_norm_grad_beta(*few)) for _ in range(100)}) == 1


def test_tiles_for_many_threads_give_the_same_bits():
    """How many threads there are decides how columns are cut when the call is planned."""
    x, dy = normal((70, 6000), np.float32, 1), normal((70, 6000), np.float32, 2)
    want = b"".join(array.tobytes() for array in expected(x, dy))
    for k, count in enumerate((1, 2, 8, 64)):
        room = [normal((70, 6000 + k + 1), np.float32, 1) for _ in range(2)]
        for place, values in zip(room, (x, dy), strict=True):
            place[:, :6000] = values  # another row stride: another plan
        assert for_all_threads(lambda room=room: layer_norm_grad_beta(*(place[:, :6000] for place in room)), (count,)) == {want}


@every_dtype
@pytest.mark.parametrize("shape", [(1, 1), (5, 17), (33, 16), (4, 1030)])
@pytest.mark.parametrize("end", [True, False])
def test_memory_beyond_the_operands_is_not_touched(dtype, shape, end):
    x, dy = normal(shape, DTYPES[dtype], 1), normal(shape, DTYPES[dtype], 2)
    outs = np.zeros(shape[-1], DTYPES[dtype]), np.zeros(shape[-1], DTYPES[dtype])
    with at_the_edge(x, dy, *outs, end=end) as (x_edge, dy_edge, gamma, beta):
        layer_norm_grad_beta(x_edge, dy_edge, out=(gamma, beta))
        for got, want in zip((gamma, beta), expected(x, dy), strict=True):
            assert_same(got, want)


@settings(max_examples=100, deadline=None)
@given(
    leading=st.lists(st.integers(1, 40), min_size=0, max_size=3),
    width=st.integers(1, 90),
    dtype=dtypes,
    kinds=st.tuples(layouts, layouts, layouts),
    seed=seeds,
)
def test_any_call(leading, width, dtype, kinds, seed):
    while math.prod(leading) > 3000:
        leading = leading[1:]
    shape = (*leading, width)
    x, dy = (with_special_values(normal(shape, DTYPES[dtype], seed + k), seed + k) for k in range(2))
    check(lay(x.astype(DTYPES[dtype]), kinds[0]), lay(dy.astype(DTYPES[dtype]), kinds[1]), kinds[2])


@every_dtype
def test_the_reference_is_near(dtype):
    x, dy = normal((700, 12), DTYPES[dtype], 1), normal((700, 12), DTYPES[dtype], 2)
    unit = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}[dtype]
    sizes = np.abs(single(x) * single(dy)).sum(0, dtype=np.float64), np.abs(single(dy)).sum(0, dtype=np.float64)
    for got, want, size in zip(layer_norm_grad_beta(x, dy), reference(x, dy), sizes, strict=True):
        np.testing.assert_array_less(np.abs(got.astype(np.float64) - want), ANY_DATA * size + 1.01 * unit * np.abs(want))
