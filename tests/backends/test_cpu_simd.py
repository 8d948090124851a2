"""The vector layer against NumPy and exact arithmetic, on this CPU and on targets with fewer instructions."""

import ctypes
import mmap
import os
import platform
import re
import subprocess
import sys
from fractions import Fraction

import ml_dtypes
import numba
import numpy as np
import pytest
from llvmlite import binding as llvm
from numba import types
from numba.core.errors import TypingError

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import entries
from anycann.backends.cpu_math import Piecewise, Polynomial, piecewise, polynomial
from anycann.backends.cpu_simd import (
    BF16,
    F16,
    F32,
    LANES,
    Table,
    absolute,
    any_lane,
    bits,
    copy1,
    fence,
    fma,
    from_bits,
    gather,
    iota,
    itemsize,
    joined,
    lane,
    load,
    load1,
    load1_f64,
    load1_i32,
    load1_i64,
    load_bits,
    load_bits_tail,
    load_f64,
    load_pair,
    load_split,
    load_tail,
    load_wide,
    lookup,
    narrow,
    pack,
    prefetch,
    prefetch_far,
    select,
    splat,
    splat_i,
    sqrt,
    store,
    store1,
    store1_f64,
    store1_i64,
    store_f64,
    store_line,
    store_pair,
    store_stream,
    store_tail,
    sum_lanes,
    sums_of_lanes,
    tag_of,
    to_float,
    transpose,
    unsplit,
    widen,
)

INTP = types.intp
DTYPES = {F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16), F32: np.dtype(np.float32)}
TAGS = pytest.mark.parametrize("tag", DTYPES, ids=str)
RNG = np.random.default_rng(20240607)


def compiled(function, *types_):
    """A kernel compiled without the disk cache, which does not know the sources of tests."""
    return numba.njit(nogil=True, error_model="numpy")(function).compile(numba.void(*types_))


def ints(*arrays):
    return [array.ctypes.data for array in arrays]


def same_bits(a, b):
    """Equal float32, NaN standing for any NaN."""
    return bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


def float32_cases():
    """Each of the 65,536 leading halves with trailing halves at, beside and between the ties of both 16-bit types."""
    tails = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x5000, 0x7000, 0x7FFF, 0x8000, 0x8001, 0xB000, 0xF000, 0xFFFF]
    heads = np.arange(65536, dtype=np.uint32) << 16
    return (heads[:, None] | np.array(tails, np.uint32)).reshape(-1).view(np.float32)


def mixed_cases():
    """The same by turns with others: vectors of one kind of numbers, and vectors of many."""
    return np.concatenate([float32_cases(), RNG.permutation(float32_cases())])


def rounded(values, tag):
    """The bits that `store` promises."""
    with np.errstate(over="ignore", invalid="ignore"):
        out = values.astype(DTYPES[tag])
    if tag.itemsize == 4:
        return out.view(np.uint32)
    canonical = {F16: 0x7E00, BF16: 0x7FC0}[tag]
    return np.where(np.isnan(values), np.uint16(canonical), out.view(np.uint16))


def convert(source_tag, target_tag, source, target, n):
    for i in range(0, n, LANES):
        store(target_tag, target, i, load(source_tag, source, i))


def convert1(source_tag, target_tag, source, target, n):
    for i in range(n):
        store1(target_tag, target, i, load1(source_tag, source, i))


def convert_tail(source_tag, target_tag, source, target, n):
    store_tail(target_tag, target, 0, load_tail(source_tag, source, 0, n), n)


def convert_split(source_tag, target_tag, source, target, n):
    for i in range(0, max(1, n), 2 * LANES):
        v0, v1 = load_split(source_tag, source, i, min(n - i, 2 * LANES))
        low, high = unsplit(source_tag, v0, v1)
        store_tail(target_tag, target, i, low, min(n - i, LANES))
        store_tail(target_tag, target, i + LANES, high, min(n - i - LANES, LANES))


TAILS = pytest.mark.parametrize(("body", "most"), [(convert_tail, LANES), (convert_split, 2 * LANES)], ids=["tail", "split"])


@TAGS
@pytest.mark.parametrize("body", [convert, convert1, convert_split])
def test_every_16_bit_pattern_and_all_binades_of_float32_widen_exactly(tag, body):
    source = np.arange(65536, dtype=np.uint16).view(DTYPES[tag]) if tag.itemsize == 2 else float32_cases()
    got = np.full(source.size, 7, np.float32)
    compiled(body, tag, F32, INTP, INTP, INTP)(None, None, *ints(source, got), source.size)
    assert same_bits(got, source.astype(np.float32))


@TAGS
@pytest.mark.parametrize("body", [convert, convert1])
def test_stores_round_once_half_to_even(tag, body):
    source = mixed_cases()
    got = np.full(source.size, 7, f"u{tag.itemsize}")
    compiled(body, F32, tag, INTP, INTP, INTP)(None, None, *ints(source, got), source.size)
    if tag == F32:
        assert same_bits(got.view(np.float32), source)
    else:
        np.testing.assert_array_equal(got, rounded(source, tag))


@TAGS
@TAILS
@pytest.mark.parametrize("shift", [0, 1, 2, 3, 7])
def test_tails_of_every_length_at_any_byte_address(tag, body, most, shift):
    size = tag.itemsize
    run = compiled(body, tag, tag, INTP, INTP, INTP)
    values = RNG.standard_normal(most).astype(np.float32).astype(DTYPES[tag]).view(np.uint8)
    for n in range(most + 1):
        source = np.full(most * size + 8, 0xFE, np.uint8)
        source[shift : shift + values.size] = values
        target = np.full(most * size + 16, 0xFE, np.uint8)
        run(None, None, source.ctypes.data + shift, target.ctypes.data + shift, n)
        np.testing.assert_array_equal(target[shift : shift + n * size], values[: n * size])
        assert (target[:shift] == 0xFE).all()
        assert (target[shift + n * size :] == 0xFE).all()


def show_tail(tag, source, floats, raw, n):
    store(F32, floats, 0, load_tail(tag, source, 0, n))
    store(F32, raw, 0, from_bits(load_bits_tail(tag, source, 0, n)))


@TAGS
def test_lanes_past_a_tail_are_zero(tag):
    source = np.arange(1, LANES + 1).astype(DTYPES[tag])
    floats, raw = np.full(LANES, 7, np.float32), np.full(LANES, 7, np.uint32)
    run = compiled(show_tail, tag, INTP, INTP, INTP, INTP)
    for n in range(LANES + 1):
        run(None, *ints(source, floats, raw), n)
        np.testing.assert_array_equal(floats, np.where(np.arange(LANES) < n, source.astype(np.float32), 0))
        np.testing.assert_array_equal(raw, np.where(np.arange(LANES) < n, source.view(f"u{tag.itemsize}"), 0))


@pytest.mark.skipif(sys.platform != "linux", reason="protects a page through the C library of Linux")
@TAGS
@TAILS
def test_tails_do_not_touch_the_page_beyond(tag, body, most):
    size = tag.itemsize
    run = compiled(body, tag, tag, INTP, INTP, INTP)
    room = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    view = ctypes.c_char.from_buffer(room)
    start = ctypes.addressof(view)
    no_access = 0
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    assert mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, no_access) == 0
    try:
        for n in range(most + 1):
            content = RNG.integers(0, 60, n * size, dtype=np.uint8)
            room[mmap.PAGESIZE - n * size : mmap.PAGESIZE] = content.tobytes()
            end = start + mmap.PAGESIZE - n * size
            run(None, None, end, end, n)
            assert room[mmap.PAGESIZE - n * size : mmap.PAGESIZE] == content.tobytes()
    finally:
        mprotect(start + mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE)
        del view
        room.close()


def show_split(tag, source, target, n):
    low, high = unsplit(tag, *load_split(tag, source, 0, n))
    store(F32, target, 0, low)
    store(F32, target, LANES, high)


@TAGS
def test_lanes_past_a_split_tail_are_zero(tag):
    source, got = np.arange(1, 2 * LANES + 1).astype(DTYPES[tag]), np.empty(2 * LANES, np.float32)
    run = compiled(show_split, tag, INTP, INTP, INTP)
    for n in range(2 * LANES + 1):
        got[:] = 7
        run(None, *ints(source, got), n)
        np.testing.assert_array_equal(got, np.where(np.arange(2 * LANES) < n, source.astype(np.float32), 0))


def raw_bits(tag, source, target, n):
    for i in range(0, n, LANES):
        store(F32, target, i, from_bits(load_bits(tag, source, i)))


@pytest.mark.parametrize("tag", [F16, BF16], ids=str)
def test_load_bits_zero_extends(tag):
    source, got = np.arange(65536, dtype=np.uint16), np.zeros(65536, np.uint32)
    compiled(raw_bits, tag, INTP, INTP, INTP)(None, *ints(source, got), 65536)
    np.testing.assert_array_equal(got, source)


def stream(target_tag, source, target, n):
    for i in range(0, n, LANES):
        prefetch(source + 4 * i + 4096)
        store_stream(target_tag, target, i, load(F32, source, i))
    fence()


def stream_lines(target_tag, source, target, n):
    for i in range(0, n, 2 * LANES):
        store_line(target_tag, target, i, load(F32, source, i), load(F32, source, i + LANES))
    fence()


def pairs(target_tag, source, target, n):
    for i in range(0, n, 2 * LANES):
        store_pair(target_tag, target, i, load(F32, source, i), load(F32, source, i + LANES))


@TAGS
def test_streaming_stores_and_pairs_write_what_stores_write(tag):
    source = mixed_cases()
    room = np.zeros(source.size * tag.itemsize + 64, np.uint8)
    start = -room.ctypes.data % 64
    got = room[start : start + source.size * tag.itemsize].view(f"u{tag.itemsize}")
    for write in [stream_lines, pairs, stream] if tag == F32 else [stream_lines, pairs]:
        got[:] = 0
        compiled(write, tag, INTP, INTP, INTP)(None, *ints(source, got), source.size)
        np.testing.assert_array_equal(got, rounded(source, tag))


def load_pairs(tag, source, target, n):
    for i in range(0, n, 2 * LANES):
        low, high = load_pair(tag, source, i)
        store(F32, target, i, low)
        store(F32, target, i + LANES, high)


@TAGS
def test_pairs_are_loaded_as_single_vectors_are(tag):
    source = np.arange(65536, dtype=np.uint16).view(DTYPES[tag]) if tag.itemsize == 2 else float32_cases()
    got = np.full(source.size, 7, np.float32)
    compiled(load_pairs, tag, INTP, INTP, INTP)(None, *ints(source, got), source.size)
    assert same_bits(got, source.astype(np.float32))


def load_wides(tag, source, target, n):
    for i in range(0, n, LANES):
        store_f64(target, i, load_wide(tag, source, i))


@TAGS
def test_elements_are_loaded_as_float64_exactly(tag):
    source = np.arange(65536, dtype=np.uint16).view(DTYPES[tag]) if tag.itemsize == 2 else float32_cases()
    got = np.full(source.size, 7.0)
    compiled(load_wides, tag, INTP, INTP, INTP)(None, *ints(source, got), source.size)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        want = source.astype(np.float32).astype(np.float64)
    np.testing.assert_array_equal(got, want)
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[numbers]))


def pack_pairs(tag, source, target, n):
    for i in range(0, n, 2 * LANES):
        store(F32, target + 2 * i, 0, from_bits(pack(tag, load(F32, source, i), load(F32, source, i + LANES))))


@pytest.mark.parametrize("tag", [F16, BF16], ids=str)
def test_packed_pairs_are_rounded_as_stores_round(tag):
    source = mixed_cases()
    strange = np.isnan(source) | ((tag == BF16) & (source != 0) & (np.abs(source) < 2.0**-126))
    source = np.where(strange, np.float32(1), source)
    got = np.full(source.size, 7, np.uint16)
    compiled(pack_pairs, tag, INTP, INTP, INTP)(None, *ints(source, got), source.size)
    np.testing.assert_array_equal(got, rounded(source, tag))


def join(before, after, target, k):
    prefetch_far(target + 4096)
    store(F32, target, 0, from_bits(joined(bits(load(F32, before, 0)), bits(load(F32, after, 0)), k)))


def test_joined_vectors_begin_with_the_end_of_the_first():
    both, got, run = np.arange(32, dtype=np.float32), np.zeros(16, np.float32), compiled(join, INTP, INTP, INTP, INTP)
    for k in range(LANES):
        run(*ints(both[:16], both[16:], got), k)
        np.testing.assert_array_equal(got, both[16 - k : 32 - k])


def turn(tag, source, step, target, target_step):
    transpose(tag, source, step, target, target_step)


@TAGS
@pytest.mark.parametrize("gap", [0, 3])
def test_squares_are_transposed_bit_for_bit(tag, gap):
    kind = np.uint16 if tag.itemsize == 2 else np.uint32
    source = np.random.default_rng(1).integers(0, np.iinfo(kind).max, (LANES, LANES + gap)).astype(kind)
    got = np.zeros((LANES, LANES + 2 * gap), kind)
    compiled(turn, tag, *(INTP,) * 4)(None, source.ctypes.data, source.strides[0], got.ctypes.data, got.strides[0])
    np.testing.assert_array_equal(got[:, :LANES], source[:, :LANES].T)
    assert not got[:, LANES:].any()


def arithmetic(a, b, c, out, n):
    for i in range(0, n, LANES):
        x, y, z = load(F32, a, i), load(F32, b, i), load(F32, c, i)
        store(F32, out, i, x + y)
        store(F32, out, n + i, x - y)
        store(F32, out, 2 * n + i, x * y)
        store(F32, out, 3 * n + i, x / y)
        store(F32, out, 4 * n + i, -x)
        store(F32, out, 5 * n + i, x * y + z)
        store(F32, out, 6 * n + i, absolute(x))
        store(F32, out, 7 * n + i, sqrt(absolute(x)))
        store(F32, out, 8 * n + i, 0.1 * x - 1)
        store(F32, out, 9 * n + i, fma(x, y, z))


def exact_fma(x, y, z):
    """x y + z with one rounding, through rationals."""
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    near = np.float32(float(exact))
    around = [near, np.nextafter(near, np.float32(-np.inf)), np.nextafter(near, np.float32(np.inf))]
    return min(around, key=lambda v: (abs(Fraction(float(v)) - exact), v.view(np.uint32) & 1))


def test_float_arithmetic_rounds_each_operation_once():
    n = 4096
    x, y, z = (RNG.standard_normal((3, n)) * 2.0 ** RNG.integers(-12, 12, (3, n))).astype(np.float32)
    z[: n // 2] = -(x * y)[: n // 2]  # the fused result is then the rounding error alone
    z[n // 2 : n // 2 + 512] = (x * y)[n // 2 : n // 2 + 512] * np.float32(2.0**24)  # ties and double roundings
    got = np.zeros((10, n), np.float32)
    compiled(arithmetic, *[INTP] * 5)(*ints(x, y, z, got), n)
    one = np.float32(1)
    want = [x + y, x - y, x * y, x / y, -x, x * y + z, np.abs(x), np.sqrt(np.abs(x)), np.float32(0.1) * x - one]
    np.testing.assert_array_equal(got[:9].view(np.uint32), np.array(want).view(np.uint32))
    np.testing.assert_array_equal(got[9], [exact_fma(*terms) for terms in zip(x, y, z, strict=True)])


def special(a, b, out, n):
    for i in range(0, n, LANES):
        x, y = load(F32, a, i), load(F32, b, i)
        one, zero = splat_i(1), splat_i(0)
        flags = select(x < y, one, zero) | (select(x <= y, one, zero) << 1) | (select(x > y, one, zero) << 2)
        flags |= (select(x >= y, one, 0) << 3) | (select(x == y, one, 0) << 4) | (select(x != y, one, 0) << 5)
        flags |= select((x < y) & ~(x < 0.0), splat_i(64), 0) | select((x < y) | (y < x), splat_i(128), 0)
        flags |= select((x < y) ^ (x < 0.0), splat_i(256), 0)
        store(F32, out, i, from_bits(flags))


def test_comparisons_and_masks():
    specials = np.array([0.0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, 2, 2, 1, 0.5, -0.5, 7], np.float32)
    x, y = (np.ascontiguousarray(v).reshape(-1) for v in np.broadcast_arrays(specials[:, None], specials))
    got = np.zeros(x.size, np.uint32)
    compiled(special, *[INTP] * 4)(*ints(x, y, got), x.size)
    flags = [x < y, x <= y, x > y, x >= y, x == y, x != y, (x < y) & ~(x < 0), (x < y) | (y < x), (x < y) ^ (x < 0)]
    np.testing.assert_array_equal(got, sum(flag.astype(np.uint32) << k for k, flag in enumerate(flags)))


def integers(a, b, out, n):
    for i in range(0, n, LANES):
        x, y = bits(load(F32, a, i)), bits(load(F32, b, i))
        store(F32, out, i, from_bits(x + y))
        store(F32, out, n + i, from_bits(x - y))
        store(F32, out, 2 * n + i, from_bits(x * y))
        store(F32, out, 3 * n + i, from_bits((x & y) ^ (x | 0x0F0F0F0F)))
        store(F32, out, 4 * n + i, from_bits(~x << 3))
        store(F32, out, 5 * n + i, from_bits(-x >> 5))
        store(F32, out, 6 * n + i, from_bits(select(x < y, x, 0xFFFF0000)))
        store(F32, out, 7 * n + i, to_float(x) + to_float(iota()))


def test_integer_lanes_wrap_and_shift_like_int32():
    n = 1024
    x, y = RNG.integers(-(2**31), 2**31, (2, n)).astype(np.int32)
    got = np.zeros((8, n), np.int32)
    compiled(integers, *[INTP] * 4)(*ints(x, y, got), n)
    with np.errstate(over="ignore"):
        want = [x + y, x - y, x * y, (x & y) ^ (x | 0x0F0F0F0F), ~x << 3, -x >> 5, np.where(x < y, x, np.int32(-65536))]
    np.testing.assert_array_equal(got[:7], want)
    np.testing.assert_array_equal(got[7].view(np.float32), x.astype(np.float32) + (np.arange(n) % LANES).astype(np.float32))


def doubles(a, b, out, small, n):
    for i in range(0, n, LANES):
        x, y = load_f64(a, i), load_f64(b, i)
        store_f64(out, i, x * y + x / 3.0)
        store_f64(out, n + i, fma(x, y, -x))
        store_f64(out, 2 * n + i, select(x < y, absolute(x), sqrt(absolute(y))))
        store_f64(out, 3 * n + i, widen(narrow(x)) - 1e-30)
        store(F32, small, i, narrow(x))
    store1_f64(out, 4 * n, sum_lanes(load_f64(a, 0)))
    store1_f64(out, 4 * n + 1, load1_f64(b, n - 1))
    store_f64(out, 4 * n + 2, sums_of_lanes(a))


def test_float64_lanes_and_their_sum_in_the_written_order():
    n = 256
    x, y = RNG.standard_normal((2, n)) * 2.0 ** RNG.integers(-40, 40, (2, n))
    got, small = np.zeros(4 * n + 2 + LANES), np.zeros(n, np.float32)
    compiled(doubles, *[INTP] * 5)(*ints(x, y, got, small), n)
    np.testing.assert_array_equal(got[:n], x * y + x / 3.0)
    fused = [float(Fraction(p) * Fraction(q) - Fraction(p)) for p, q in zip(x.tolist(), y.tolist(), strict=True)]
    np.testing.assert_array_equal(got[n : 2 * n], fused)
    np.testing.assert_array_equal(got[2 * n : 3 * n], np.where(x < y, np.abs(x), np.sqrt(np.abs(y))))
    np.testing.assert_array_equal(got[3 * n : 4 * n], x.astype(np.float32).astype(np.float64) - 1e-30)
    np.testing.assert_array_equal(small, x.astype(np.float32))
    halves = x.reshape(-1, LANES)
    while halves.shape[1] > 1:
        halves = halves[:, : halves.shape[1] // 2] + halves[:, halves.shape[1] // 2 :]
    assert n == LANES * LANES
    assert got[4 * n] == halves[0, 0]
    np.testing.assert_array_equal(got[4 * n + 2 :], halves[:, 0])
    assert got[4 * n + 1] == y[-1]


EIGHT, SIXTEEN, THIRTY_TWO = (Table(tuple(RNG.standard_normal(size).astype(np.float32).tolist())) for size in (8, 16, 32))


@device
def found(table, index, target, i):
    store(F32, target, i, lookup(table, index))


def tables(index, table, out, n):
    for i in range(0, n, LANES):
        where = bits(load(F32, index, i))
        found(EIGHT, where, out, i)
        found(SIXTEEN, where, out, n + i)
        found(THIRTY_TWO, where, out, 2 * n + i)
        store(F32, out, 3 * n + i, gather(table, where & 0xFFFF) * splat(2.0))


def test_lookups_and_gathers():
    n = 4096
    index, table = RNG.integers(-(2**31), 2**31, n).astype(np.int32), RNG.standard_normal(65536).astype(np.float32)
    got = np.zeros((4, n), np.float32)
    compiled(tables, *[INTP] * 4)(*ints(index, table, got), n)
    for row, constants in enumerate((EIGHT, SIXTEEN, THIRTY_TWO)):
        values = np.array(constants.values, np.float32)
        np.testing.assert_array_equal(got[row], values[index % values.size])
    np.testing.assert_array_equal(got[3], 2 * table[index & 0xFFFF])


def entries_of_all(table, words, out):
    for i in range(0, 65536, LANES):
        store(F32, out, i, entries(table, words, i))


def test_entries_of_all_words_one_load_each_or_gathered():
    words, table = RNG.permutation(65536).astype(np.uint16), RNG.standard_normal(65536).astype(np.float32)
    got = np.zeros(65536, np.float32)
    compiled(entries_of_all, *[INTP] * 3)(*ints(table, words, got))
    np.testing.assert_array_equal(got, table[words])


CUBIC = Polynomial(tuple(RNG.standard_normal(4).astype(np.float32).tolist()))
CUBICS = Piecewise(tuple(tuple(row) for row in RNG.standard_normal((4, 8)).astype(np.float32).tolist()))


def polynomials(a, out, n):
    for i in range(0, n, LANES):
        x = load(F32, a, i)
        store(F32, out, i, polynomial(CUBIC, x))
        store(F32, out, n + i, piecewise(CUBICS, bits(x), x))


def test_polynomials_are_chains_of_fused_multiply_adds():
    n = 256
    x, got = RNG.standard_normal(n).astype(np.float32), np.zeros((2, n), np.float32)
    compiled(polynomials, *[INTP] * 3)(*ints(x, got), n)
    for value, one, piece in zip(x, *got, strict=True):
        index = int(value.view(np.uint32)) % 8
        for result, (constant, *higher) in ((one, CUBIC.values), (piece, [row[index] for row in CUBICS.values])):
            *middle, want = (np.float32(c) for c in (constant, *higher))
            for c in reversed(middle):
                want = exact_fma(want, value, c)
            assert result == want


def scalars(tag, source, words, target, lanes):
    copy1(itemsize(tag), target, 1, source, 3)
    store1_i64(lanes, 0, load1_i32(words, 1))
    store1_i64(lanes, 1, load1_i64(words, 1))
    v = load(tag, source, 0)
    for k in range(LANES):
        store1_f64(lanes, 2 + k, lane(v, k))
    store1_i64(lanes, 18, any_lane(v > 14.5) + 2 * any_lane(v > 15.5))


@TAGS
def test_scalar_access(tag):
    source, target = np.arange(LANES).astype(DTYPES[tag]), np.full(3, 7).astype(DTYPES[tag])
    words, lanes = np.array([5 - 2**40, -(2**50) + 1], np.int64), np.zeros(19)
    compiled(scalars, tag, *[INTP] * 4)(None, *ints(source, words, target, lanes))
    assert target.astype(int).tolist() == [7, 3, 7]
    assert lanes[:2].view(np.int64).tolist() == [words.view(np.int32)[1], words[1]]
    np.testing.assert_array_equal(lanes[2:18], source.astype(np.float64))
    assert lanes[18:].view(np.int64).tolist() == [1]


def test_tags_have_the_names_of_dtypes():
    assert [tag_of(str(dtype)) for dtype in DTYPES.values()] == list(DTYPES)
    with pytest.raises(KeyError):
        tag_of("float64")


def test_a_table_has_as_many_numbers_as_registers_hold():
    with pytest.raises(ValueError, match="8, 16 or 32 numbers; got 9"):
        Table((0.0,) * 9)


@pytest.mark.parametrize(
    "body",
    [
        lambda a: store(F32, a, 0, load(F32, a, 0) + load_f64(a, 0)),
        lambda a: store(F32, a, 0, bits(load(F32, a, 0))),
        lambda a: store(F32, a, 0, from_bits(bits(load(F32, a, 0)) + 0.5)),
        lambda a: store(F32, a, 0, select(load(F32, a, 0), 1.0, 2.0)),
        lambda a: store(F32, a, 0, load(F32, a, 0) & load(F32, a, 0)),
        lambda a: store_stream(F16, a, 0, load(F32, a, 0)),
        lambda a: store(F32, a, 0.5, load(F32, a, 0)),
    ],
    ids=["f32 + f64", "store of ints", "int + float", "float as mask", "float & float", "half a line", "float index"],
)
def test_what_does_not_fit_is_refused_by_the_compiler(body):
    with pytest.raises(TypingError):
        compiled(body, INTP)


OTHER_TARGETS = {
    "avx2": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c"},
    "x86-64": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""},
}
if llvm.get_host_cpu_features().get("avx512bf16"):  # then the other way to round to bfloat16 with AVX-512 is run too
    OTHER_TARGETS["avx512"] = {
        "NUMBA_CPU_NAME": "skylake-avx512",
        "NUMBA_CPU_FEATURES": "+avx512f,+avx512dq,+avx512bw,+avx512vl,+f16c,+fma",
    }


ON_OTHER_TARGETS = pytest.mark.skipif(
    platform.machine() != "x86_64" or "NUMBA_CPU_NAME" in os.environ, reason="compiles for other x86-64 CPUs, once"
)

ASSEMBLY = """
import numba
from anycann.backends.cpu_simd import BF16, F16, F32, load, store_line

def line(tag, source, target):
    store_line(tag, target, 0, load(F32, source, 0), load(F32, source, 16))

for tag in (F16, BF16, F32):
    function = numba.njit(line)
    signature = numba.void(tag, numba.intp, numba.intp)
    function.compile(signature)
    print("KERNEL", tag, function.inspect_asm(signature.args))
"""
AVX512 = "+avx512f,+avx512dq,+avx512bw,+avx512vl,+avx2,+f16c,+fma"

LINES_ON = [
    ("haswell", "+avx2,+fma,+f16c"),
    ("skylake-avx512", AVX512),
    ("znver4", f"{AVX512},+avx512bf16"),
    ("sapphirerapids", f"{AVX512},+avx512bf16,+avx512fp16"),  # its vectors of halves are a type to LLVM
]


@ON_OTHER_TARGETS
@pytest.mark.parametrize(("cpu", "features"), LINES_ON)
def test_lines_leave_past_the_caches_on_every_cpu(cpu, features):
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    run = subprocess.run([sys.executable, "-c", ASSEMBLY], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    _, *kernels = run.stdout.split("KERNEL ")
    assert len(kernels) == 3
    for kernel in kernels:
        writes = re.findall(r"\tv(\w+)\s+%[xyz]mm\d+, -?\d*\(%(?!rsp)", kernel)
        assert writes, kernel
        assert all(name.startswith("movnt") for name in writes), kernel


@ON_OTHER_TARGETS
@pytest.mark.parametrize("target", OTHER_TARGETS)
def test_the_same_results_on_cpus_with_fewer_instructions(target):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(command, env={**os.environ, **OTHER_TARGETS[target]}, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:]
    assert f"{len(OTHER_TARGETS) + len(LINES_ON)} skipped" in run.stdout
