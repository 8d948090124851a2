"""Lines that are joined: any pieces at any place give the bytes that ordinary stores give, and nothing beside them is touched."""

import ml_dtypes
import numba
import numpy as np
import pytest
from numba import types

from anycann.backends.cpu_blocks import AHEAD, fetch, stack
from anycann.backends.cpu_lines import LINES, begin_lines, finish_lines, sweep_lines
from anycann.backends.cpu_simd import BF16, F16, F32, fence, itemsize, load1_i64

INTP = types.intp
DTYPES = {F16: np.dtype(np.float16), BF16: np.dtype(ml_dtypes.bfloat16), F32: np.dtype(np.float32)}
TAGS = pytest.mark.parametrize("tag", DTYPES, ids=str)


def copy_pieces(tag, source, target, pieces, count):
    memory = stack(LINES)
    begin_lines(memory)
    for k in range(count):
        first, n = load1_i64(pieces, 2 * k), load1_i64(pieces, 2 * k + 1)
        sweep_lines(fetch, (tag, source + first * itemsize(tag), INTP(1), INTP(AHEAD)), tag, target + first * itemsize(tag), n, memory)
    finish_lines(memory)
    fence()


COMPILED = {}


def copied(tag, values, offset, pieces):
    """What copying pieces (first element, elements) of the values writes into zeros that begin `offset` bytes behind a line."""
    if tag not in COMPILED:
        COMPILED[tag] = numba.njit(nogil=True, error_model="numpy")(copy_pieces).compile(numba.void(tag, *(INTP,) * 4))
    room = np.zeros(values.nbytes + 192, np.uint8)
    start = -room.ctypes.data % 64 + offset
    source, words = values.view(np.uint8).copy(), np.array(pieces, np.int64)
    COMPILED[tag](None, source.ctypes.data, room.ctypes.data + start, words.ctypes.data, len(pieces))
    assert not room[:start].any(), "bytes before were written"
    assert not room[start + values.nbytes :].any(), "bytes behind were written"
    return room[start : start + values.nbytes]


def expected(values, pieces):
    want = np.zeros_like(values)
    for first, n in pieces:
        want[first : first + n] = values[first : first + n]
    return want.view(np.uint8)


def numbers(dtype, n):
    """Any bits but NaN other than the dtype's own."""
    if dtype.itemsize == 2:
        values = np.random.default_rng(1).integers(0, 1 << 16, n).astype(np.uint16).view(dtype)
    else:
        values = np.random.default_rng(1).integers(0, 1 << 32, n).astype(np.uint32).view(dtype)
    with np.errstate(invalid="ignore"):
        values[np.isnan(values)] = np.float32(np.nan)
    return values


@TAGS
@pytest.mark.parametrize("width", [32, 64, 96, 1024])
def test_adjoining_rows_at_any_place(tag, width):
    values = numbers(DTYPES[tag], 7 * width)
    rows = [(row * width, width) for row in range(7)]
    for offset in range(0, 64, DTYPES[tag].itemsize):
        np.testing.assert_array_equal(copied(tag, values, offset, rows), expected(values, rows), f"{offset} bytes past a line")


@TAGS
def test_pieces_that_do_not_continue_the_one_before(tag):
    values = numbers(DTYPES[tag], 1024)
    orders = [(0, 32), (32, 32), (128, 64), (192, 32), (96, 32), (512, 32), (544, 96)], [(992, 32), (960, 32), (0, 32)], [(64, 32)] * 3, []
    for pieces in orders:
        for offset in range(0, 64, DTYPES[tag].itemsize):
            np.testing.assert_array_equal(copied(tag, values, offset, pieces), expected(values, pieces), f"{pieces} at {offset}")
