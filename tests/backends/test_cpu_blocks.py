"""Blocks against NumPy: any layout, any conversion, any cut into pieces, and nothing touched beside the elements."""

import itertools
import math
from fractions import Fraction

import ml_dtypes
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import (
    AHEAD,
    BLOCK,
    DIRECT,
    LAYOUT,
    SCRATCH,
    STREAM,
    Held,
    block_in,
    block_out,
    fetch,
    fetch_entries,
    flush,
    layout,
    nest_of,
    offset_of,
    room,
    round_odd,
    run_in,
    run_out,
    stack,
    store_sums,
    streams,
    sweep,
    unload,
    words_of,
)
from anycann.backends.cpu_simd import BF16, F16, F32, LANES, load_f64, store, tag_of
from anycann.backends.cpu_walk import Walk, walk
from anycann.backends.loops import Part, loops
from anycann.tensor import from_array

INTP = types.intp
DTYPES = {F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16), F32: np.dtype(np.float32)}
TAGS = pytest.mark.parametrize("tag", DTYPES, ids=str)
RNG = np.random.default_rng(20240608)
KERNELS = {}


def layouts(tensors, shape):
    """The layouts of tensors that broadcast to a shape, in the order of its axes."""
    return words_of(tensors, Part(loops(tensors, shape), (), (False,) * len(tensors)))


def compiled(function, *types_):
    """A kernel compiled once, without the disk cache, which does not know the sources of tests."""
    key = function, types_
    if key not in KERNELS:
        KERNELS[key] = numba.njit(nogil=True, error_model="numpy")(function).compile(numba.void(*types_))
    return KERNELS[key]


def copy_blocks(tag, source, target, words, start, stop, stream):
    s_in, s_out, flat = stack(SCRATCH), stack(SCRATCH), start
    while flat < stop:
        n = room(tag, words, flat, room(tag, words + LAYOUT, flat, stop - flat, DIRECT), DIRECT)
        operand = block_in(tag, source, words, flat, n, s_in)
        out = block_out(tag, target, words + LAYOUT, flat, n, s_out)
        sweep(fetch, operand, tag, out, n, stream and out != s_out)
        flush(tag, target, words + LAYOUT, flat, n, s_out, out)
        flat += n


def copied(tag, source, target, cuts=(), stream=False):
    """Copy arrays through blocks, in pieces."""
    words = layouts([from_array(source, "source"), from_array(target, "target")], target.shape)
    run = compiled(copy_blocks, tag, *(INTP,) * 5, types.boolean)
    edges = sorted({0, *cuts, target.size})
    for start, stop in itertools.pairwise(edges):
        run(None, source.ctypes.data, target.ctypes.data, words.address, start, stop, stream)


def copied_value(given, i, m):
    (operand, _, _), _ = given
    return fetch(operand, i, m)


COPIED_VALUE = device(copied_value)


def copy_walk(tag, source, target, words, stream, start, stop):
    walk(COPIED_VALUE, (), ((tag, source), None, None), (tag, target), words, stream, start, stop)


def walked(tag, source, target, pieces=1):
    """Copy arrays in whatever order a walk takes."""
    walk = Walk([from_array(source, "source"), from_array(target, "target")])
    kernel = compiled(copy_walk, tag, *(INTP,) * 3, types.boolean, INTP, INTP)

    def run(places, words, numel):
        edges = sorted({numel * piece // pieces for piece in range(pieces + 1)})
        for start, stop in itertools.pairwise(edges):
            kernel(None, *places, words, walk.stream, start, stop)

    for places, words, numel in walk.parts([source.ctypes.data, target.ctypes.data]):
        run(places, words.address, numel)


def values(shape, dtype):
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


def strided(shape, dtype, steps, order):
    """A view with these steps (negative: backwards) over axes laid out in this order, in poisoned memory."""
    larger = [abs(step) * size for size, step in zip(shape, steps, strict=True)]
    memory = np.full([larger[axis] for axis in order], np.nan, dtype)
    inverse = np.argsort(order)
    view = memory.transpose(inverse)[(*(slice(None, None, step) for step in steps), ...)]
    assert view.shape == tuple(shape)
    return view, memory


def test_loops_that_continue_each_other_are_merged():
    assert nest_of((12, 4, 1), (2, 3, 4)) == [(24, 1)]
    assert nest_of((24, 4, 1), (2, 3, 4)) == [(12, 1), (2, 24)]
    assert nest_of((1, 2, 6), (2, 3, 4)) == [(4, 6), (3, 2), (2, 1)]
    assert nest_of((0, 0, 0), (2, 3, 4)) == [(24, 0)]
    assert nest_of((7, 0, 1), (5, 1, 4)) == [(4, 1), (5, 7)]
    assert nest_of((-3, -1), (2, 3)) == [(6, -1)]
    assert nest_of((), ()) == [(1, 1)]
    assert nest_of((5, 9), (1, 1)) == [(1, 1)]


def test_a_layout_broadcasts_from_the_right():
    tensor = from_array(np.zeros((3, 1, 4), np.float32), "x")
    held = layouts([tensor], (5, 3, 2, 4))
    assert held.array[0, :2].tolist() == [2, 4]
    assert held.array[0, 2:10].tolist() == [4, 1, 2, 0, 3, 4, 5, 0]
    assert held.array.shape == (1, LAYOUT // 8)
    assert layout(tensor.dtype, (0, 4, 0, 1), (5, 3, 2, 4)) == held.array[0].tolist()


def offsets(words, target, start, stop):
    for flat in range(start, stop):
        sweep_offset(words, target, flat)


@numba.njit
def sweep_offset(words, target, flat):
    target[flat] = offset_of(words, flat)


def test_offsets_of_eight_dimensions():
    shape, strides = (2, 1, 3, 2, 2, 3, 1, 2), (700, 5, -90, 31, 0, 9, 8, 4)
    held = Held(np.array([layout(from_array(np.zeros(1, np.float32), "x").dtype, strides, shape)], np.int64))
    found = np.zeros(math.prod(shape), np.int64)
    run = numba.njit(nogil=True)(offsets).compile(numba.void(INTP, types.int64[::1], INTP, INTP))
    run(held.address, found, 0, found.size)
    expected = sum(index * stride for index, stride in zip(np.indices(shape), strides, strict=True)).reshape(-1)
    np.testing.assert_array_equal(found, expected)


@TAGS
@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 31, 33, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5])
@pytest.mark.parametrize("stream", [False, True])
def test_contiguous_at_every_alignment(tag, n, stream):
    source = values(n + 40, DTYPES[tag])
    for shift in (0, 1, 2, 3, 7, 15, 16, 31, 32):
        target = np.full(n + 80, np.nan, DTYPES[tag])
        copied(tag, source[shift : shift + n], target[shift : shift + n], stream=stream)
        np.testing.assert_array_equal(target[shift : shift + n], source[shift : shift + n])
        assert np.isnan(target[:shift]).all()
        assert np.isnan(target[shift + n :]).all()


@st.composite
def layouts_and_cuts(draw):
    rank = draw(st.integers(0, 5))
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 5, 17, 70]), min_size=rank, max_size=rank)))
    while math.prod(shape) > 20_000:
        shape = shape[:-1]
    each = {"min_size": len(shape), "max_size": len(shape)}
    kinds = [(draw(st.lists(st.sampled_from([1, 1, 1, 2, 3, -1, -2]), **each)), draw(st.permutations(range(len(shape))))) for _ in range(2)]
    expanded = draw(st.lists(st.booleans(), **each))
    cuts = draw(st.lists(st.integers(0, max(math.prod(shape), 1)), max_size=3))
    return shape, kinds, expanded, [min(cut, math.prod(shape)) for cut in cuts]


CODES = [(F32, F32, F32), (F16, F16, F16), (BF16, BF16, BF16), (F32, F16, BF16), (F32, BF16, F32), (F32, F32, F16)]


@pytest.mark.parametrize("codes", CODES, ids=str)
@settings(max_examples=60, deadline=None)
@given(case=layouts_and_cuts(), stream=st.booleans())
def test_any_layout_any_conversion_any_cut(codes, case, stream):
    tag, of_source, of_target = codes
    shape, ((steps, order), (to_steps, to_order)), expanded, cuts = case
    narrow = tuple(1 if flag else size for size, flag in zip(shape, expanded, strict=True))
    source, memory = strided(narrow, DTYPES[of_source], steps, order)
    source[...] = values(narrow, DTYPES[of_source])
    before = memory.copy()
    target, around = strided(shape, DTYPES[of_target], to_steps, to_order)
    copied(tag, source, target, cuts, stream)
    expected = np.broadcast_to(source, shape).astype(np.float32).astype(DTYPES[of_target])
    np.testing.assert_array_equal(target, expected)
    target[...] = np.nan
    assert np.isnan(around).all(), "memory beside the target was written"
    assert memory.tobytes() == before.tobytes()


@pytest.mark.parametrize("codes", [(F16, BF16), (BF16, F32), (F32, F16)], ids=str)
def test_long_runs_are_converted_block_by_block(codes):
    """Far more elements than scratch memory, or the stack, has room for."""
    of_source, of_target = codes
    source, target = values(3_000_000, DTYPES[of_source]), np.full(3_000_000, np.nan, DTYPES[of_target])
    copied(F32, source, target)
    np.testing.assert_array_equal(target, source.astype(np.float32).astype(DTYPES[of_target]))


def look_up(tag, source, target, words, table, n):
    scratch, flat = stack(SCRATCH), 0
    while flat < n:
        count = room(tag, words, flat, n - flat, DIRECT)
        sweep(_entries, (block_in(tag, source, words, flat, count, scratch), table), F32, target + 4 * flat, count, False)
        flat += count


@numba.njit
def _entries(given, i, m):
    operand, table = given
    return fetch_entries(operand, table, i, m)


@pytest.mark.parametrize("tag", [F16, BF16], ids=str)
@pytest.mark.parametrize(("step", "n"), [(1, 65536), (-1, 65536), (3, 21845), (1, 1), (1, 37), (0, 50)])
def test_table_entries_of_every_pattern(tag, step, n):
    patterns = np.arange(65536, dtype=np.uint16).view(DTYPES[tag])
    source = np.broadcast_to(patterns[-1:], n) if step == 0 else patterns[::step][:n]
    target, table = np.full(n, 7, np.float32), RNG.standard_normal(65536).astype(np.float32)
    words = layouts([from_array(source, "source")], source.shape)
    compiled(look_up, tag, *(INTP,) * 5)(None, source.ctypes.data, target.ctypes.data, words.address, table.ctypes.data, n)
    np.testing.assert_array_equal(target, table[np.ascontiguousarray(source).view(np.uint16)])


def test_an_element_for_all_is_read_once():
    source, target = np.float32([3.25]), np.zeros(100_000, np.float32)
    words = layouts([from_array(source, "source"), from_array(target, "target")], target.shape)
    lengths = np.zeros(1, np.int64)
    numba.njit(nogil=True)(whole_room).compile(numba.void(F32, INTP, INTP, types.int64[::1]))(None, words.address, target.size, lengths)
    assert lengths[0] == target.size
    copied(F32, source, target)
    assert (target == 3.25).all()


def whole_room(tag, words, n, lengths):
    lengths[0] = room(tag, words, 0, n, DIRECT)


def through_runs(tag, source, source_step, target, target_step, n):
    s_in, s_out = stack(SCRATCH), stack(SCRATCH)
    out = run_out(target, target_step, s_out)
    sweep(fetch, (tag, run_in(tag, source, source_step, n, s_in), 1, AHEAD), tag, out, n, False)
    unload(tag, target, target_step, n, s_out)


@TAGS
@pytest.mark.parametrize("steps", [(1, 1), (3, 1), (1, 2), (-1, -2), (0, 1)])
def test_runs_with_any_step(tag, steps):
    run = compiled(through_runs, tag, *(INTP,) * 5)
    for n in (1, 16, 100, BLOCK):
        source, target = values(3 * BLOCK, DTYPES[tag]), np.full(3 * BLOCK, np.nan, DTYPES[tag])
        starts = [BLOCK * 3 - 1 if step < 0 else 0 for step in steps]
        addresses = [array.ctypes.data + start * array.itemsize for array, start in zip((source, target), starts, strict=True)]
        run(None, addresses[0], steps[0], addresses[1], steps[1], n)
        read, written = (start + step * np.arange(n) for start, step in zip(starts, steps, strict=True))
        np.testing.assert_array_equal(target[written], source[read])
        target[written] = np.nan
        assert np.isnan(target).all()


def totals(tag, sums, count, pitch, target, stride, n):
    store_sums(tag, sums, count, pitch, target, stride, n)


def nearest(value, tag):
    """A Fraction rounded once, half to even, to the dtype of a tag, as a float."""
    digits, smallest = {F16: (11, -24), BF16: (8, -133), F32: (24, -149)}[tag]
    if value == 0:
        return 0.0
    exponent = math.floor(math.log2(abs(value)))
    exponent += (abs(value) >= Fraction(2) ** (exponent + 1)) - (abs(value) < Fraction(2) ** exponent)
    unit = Fraction(2) ** max(exponent - digits + 1, smallest)
    return float(round(value / unit) * unit)


@TAGS
@pytest.mark.parametrize("step", [1, 2, -1])
@pytest.mark.parametrize("width", [1, 5, 16, 50, 1100])
def test_sums_are_added_in_order_and_rounded_once(tag, step, width):
    pitch, count = -(-width // 16) * 16, 3
    sums = np.full((count, pitch + 16), np.nan)
    sums[:, :width] = RNG.standard_normal((count, width)) * np.exp(RNG.uniform(-12, 8, (count, width)))
    whole = np.full(2 * width, np.nan, DTYPES[tag])
    target = whole[::step][:width]
    compiled(totals, tag, *(INTP,) * 6)(None, sums.ctypes.data, count, pitch + 16, target.ctypes.data, step, width)
    exact = (sums[0] + sums[1]) + sums[2]
    assert target.astype(np.float64).tolist() == [nearest(Fraction(value), tag) for value in exact[:width]]
    target[...] = np.nan
    assert np.isnan(whole).all()


def to_odd(source, target, n):
    for i in range(0, n, LANES):
        store(F32, target, i, round_odd(load_f64(source, i)))


def to_16_bits(tag, source, target, n):
    for i in range(0, n, LANES):
        store(tag, target, i, round_odd(load_f64(source, i)))


@pytest.mark.parametrize("tag", [F16, BF16], ids=str)
def test_rounding_by_way_of_an_odd_float32_is_one_rounding(tag):
    """Ties of the 16-bit type, their neighbours in float64, and what a detour by the nearest float32 would get wrong."""
    infinity = {F16: 0x7C00, BF16: 0x7F80}[tag]
    finite = np.arange(infinity, dtype=np.uint16).view(DTYPES[tag]).astype(np.float64)
    ties = (finite[:-1] + finite[1:])[::7] / 2
    near = np.concatenate(
        [ties, np.nextafter(ties, 0), np.nextafter(ties, np.inf), ties * (1 + 2.0**-40), ties * (1 - 2.0**-40), finite[::7]]
    )
    near = np.concatenate([near, -near])
    source = near[: near.size // LANES * LANES].copy()
    got = np.zeros(source.size, DTYPES[tag])
    compiled(to_16_bits, tag, *(INTP,) * 3)(None, source.ctypes.data, got.ctypes.data, source.size)
    assert got.astype(np.float64).tolist() == [nearest(Fraction(value), tag) for value in source]


def test_round_odd_at_the_ends():
    tiny, huge, ulp = 2.0**-150, 2.0**128, 2.0**-23
    cases = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        tiny,
        -tiny,
        1e-300,
        huge,
        -huge,
        1.0,
        1 + ulp / 128,
        1 - ulp / 128,
        1 + ulp,
        5e-324,
        -huge,
    ]
    cases = np.array(cases)
    got = np.zeros(cases.size, np.float32)
    compiled(to_odd, INTP, INTP, INTP)(cases.ctypes.data, got.ctypes.data, cases.size)
    last, least = np.finfo(np.float32).max, 2.0**-149
    expected = [0.0, -0.0, np.inf, -np.inf, np.nan, least, -least, least, last, -last, 1.0, 1 + ulp, 1 - ulp / 2, 1 + ulp, least, -last]
    assert got.view(np.uint32)[[0, 1]].tolist() == [0, 0x80000000]
    np.testing.assert_array_equal(got, np.float32(expected))


def test_only_large_outputs_bypass_the_caches():
    dtype = np.dtype(np.float32)
    assert streams(from_array(np.empty(STREAM // dtype.itemsize, dtype), "out"))
    assert not streams(from_array(np.empty(STREAM // dtype.itemsize - 1, dtype), "out"))


def test_a_held_array_knows_its_address():
    array = np.arange(3)
    assert Held(array).address == array.ctypes.data
    assert tag_of("bfloat16") is BF16


@TAGS
@pytest.mark.parametrize("shape", [(1, 500), (37, 41), (300, 700), (64, 256), (128, 513), (129, 15), (3, 5, 70), (2, 130, 3, 300)])
def test_walks_over_operands_in_any_order_of_axes(tag, shape):
    for order in itertools.permutations(range(len(shape))):
        source, _ = strided(shape, DTYPES[tag], (1,) * len(shape), order)
        source[...] = values(shape, DTYPES[tag])
        for pieces in (1, 3):
            target = np.zeros(shape, DTYPES[tag])
            walked(tag, source, target, pieces)
            assert target.tobytes() == source.tobytes(), order


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_walks_convert(dtype):
    for source, target in ((DTYPES[tag_of(dtype)], np.float32), (np.float32, DTYPES[tag_of(dtype)])):
        given_, got = values((300, 140), np.float32).astype(source).T, np.zeros((140, 300), target)
        walked(F32, given_, got)
        np.testing.assert_array_equal(got, given_.astype(target))


@TAGS
@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 17, 32, 64, 65, 130]), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    pieces=st.integers(1, 4),
)
def test_walks_over_any_strides(tag, shape, seed, pieces):
    generator = np.random.default_rng(seed)
    steps = [tuple(generator.choice([1, 1, 1, 2, -1, -3], len(shape))) for _ in range(2)]
    (source, _), (target, memory) = (strided(shape, DTYPES[tag], step, generator.permutation(len(shape))) for step in steps)
    source[...] = values(shape, DTYPES[tag])
    if generator.random() < 0.3:
        axis = generator.integers(len(shape))
        source = np.broadcast_to(source.take([0], axis), shape)
    before = np.isnan(memory.astype(np.float32)).sum() - target.size
    walked(tag, source, target, pieces)
    np.testing.assert_array_equal(target, source)
    assert np.isnan(memory.astype(np.float32)).sum() == before, "memory beside the elements was written"
