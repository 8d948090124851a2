"""Layer normalisation on the CPU: a unit of work is a row, read from memory once and then again from the caches.

The sums of a row are float64, of its elements less its first one and of the squares of that: the mean of a row is no further from an
element of it than the square root of n variances, so that at most n roundings are left in the variance. What is subtracted from the
elements then is the mean in float64, or as the sum of two float32.
"""

import math
from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import by_tag, device
from anycann.backends.cpu_blocks import (
    SCRATCH,
    WALK_SCRATCH,
    Held,
    begin_walk,
    end_walk,
    layout,
    offset_of,
    settled,
    stack,
    streams,
    sweep,
)
from anycann.backends.cpu_lines import LINES, begin_lines, finish_lines, sweep_lines
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_rows import (
    GRAIN,
    RECORD,
    Numbers,
    ahead_of,
    joins,
    piece_in,
    piece_out,
    piece_size,
    put_piece,
    record,
    step_of,
    weights,
)
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    fence,
    fma,
    iota,
    itemsize,
    load1,
    load1_f64,
    load_f64,
    load_tail,
    load_wide,
    narrow,
    prefetch,
    select,
    splat,
    splat_d,
    splat_i,
    sqrt,
    store,
    store1,
    store1_f64,
    store_f64,
    sums_of_lanes,
    tag_of,
    widen,
)
from anycann.backends.cpu_threads import partitioned
from anycann.bind import Call, Launch

__all__ = ["plan"]

_NEAR = 1 << 14  # elements of rows whose statistics are computed before the first of them is normalised: they are in the caches then
_EACH = 8 * LANES  # bytes of a float64 for each of these rows, at most 16
_SUMS = 8 * LANES * LANES  # bytes of one for each lane of each


@device
def _moments(tag: Tag, x: int, ahead: int, n: int, shift: float, total: Any, squares: Any) -> Any:
    """Add n elements less `shift`, and the squares of that; what lies `ahead` bytes on is asked for."""
    tail = n % LANES
    for i in range(0, n - tail, LANES):
        prefetch(x + i * itemsize(tag) + ahead)
        d = load_wide(tag, x, i) - shift
        total, squares = total + d, fma(d, d, squares)
    if tail > 0:
        d = select(iota() < splat_i(np.int32(tail)), widen(load_tail(tag, x, n - tail, tail)) - shift, widen(splat(0.0)))
        total, squares = total + d, fma(d, d, squares)
    return total, squares


def _exact(tag: Tag, x: Any, weight: Any, bias: Any, mean: float, root: float) -> Any:
    return narrow(fma((widen(x) - mean) * root, weight, bias))


def _rounded(tag: Tag, x: Any, weight: Any, bias: Any, mean: float, root: float) -> Any:
    near = np.float32(mean)
    return fma((x - splat(near) - splat(np.float32(mean - near))) * splat(np.float32(root)), weight, bias)


@by_tag
def _affine(tag: Tag, x: Any, weight: Any, bias: Any, mean: float, root: float) -> Any:
    """In float64 where the result is float32: what the mean or the bias cancels keeps its digits."""
    return _exact if tag == F32 else _rounded


@device
def _normalised(given: tuple[Tag, int, int, int, float, float], i: int, m: int) -> Any:
    tag, x, weight, bias, mean, root = given
    return _affine(tag, load_tail(tag, x, i, m), weights(tag, weight, i, m), weights(tag, bias, i, m), mean, root)


@partitioned
def _rows(
    tag: Tag,
    p_x: int,
    p_out: int,
    p_mean: int,
    p_rstd: int,
    words: int,
    mean_words: int,
    rstd_words: int,
    weight: int,
    bias: int,
    eps: float,
    width: int,
    size: int,
    together: int,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """Rows [start, stop), the statistics of some `together` first: these need not wait for each other.

    `words`: the row records of x and out; addresses 0 of mean and rstd leave them out.
    """
    s_x, s_out, number = stack(WALK_SCRATCH), stack(SCRATCH), 8 if itemsize(tag) == 4 else 4
    carried, lines = stack(LINES), stream and joins(tag, p_out, words + RECORD, width)
    begin_lines(carried)
    begin_walk(s_x)
    x_step, out_step, ahead = step_of(tag, words), step_of(tag, words + RECORD), ahead_of(tag, words, width)
    totals, squares, shifts, means, roots, singles = stack(_SUMS), stack(_SUMS), stack(_EACH), stack(_EACH), stack(_EACH), stack(_EACH)
    for first in range(start, stop, together):
        last = min(stop, first + together)
        for row in range(first, last):
            total, square, shift = widen(splat(0.0)), widen(splat(0.0)), 0.0
            for i in range(0, width, size):
                n = min(size, width - i)
                x = piece_in(tag, p_x, x_step, words, row, width, i, n, s_x)
                if i == 0:
                    shift = types.float64(load1(tag, x, 0))
                    shift = shift if math.isfinite(shift) else 0.0
                total, square = _moments(tag, x, ahead, n, shift, total, square)
            store_f64(totals, LANES * (row - first), total)
            store_f64(squares, LANES * (row - first), square)
            store1_f64(shifts, row - first, shift)
        offset = sums_of_lanes(totals) / width  # lanes that have no row hold anything
        mean = load_f64(shifts, 0) + offset
        variance = (sums_of_lanes(squares) - offset * offset * width) / width
        root = splat_d(1.0) / sqrt(select(variance < 0.0, splat_d(0.0), variance) + eps)
        store_f64(means, 0, mean)
        store_f64(roots, 0, root)
        store(F32, singles, 0, settled(F32, narrow(mean)))
        store(F32, singles, LANES, settled(F32, narrow(root)))
        for row in range(first, last):
            if p_mean != 0:
                store1(F32, p_mean, offset_of(mean_words, row), load1(F32, singles, row - first))
            if p_rstd != 0:
                store1(F32, p_rstd, offset_of(rstd_words, row), load1(F32, singles, LANES + row - first))
            own_mean, own_root = load1_f64(means, row - first), load1_f64(roots, row - first)
            for i in range(0, width, size):
                n = min(size, width - i)
                x = piece_in(tag, p_x, x_step, words, row, width, i, n, s_x)
                place = piece_out(tag, p_out, out_step, words + RECORD, row, i, s_out)
                given = (tag, x, weight + number * i, bias + number * i, own_mean, own_root)
                if lines:
                    sweep_lines(_normalised, given, tag, place, n, carried)
                else:
                    sweep(_normalised, given, tag, place, n, stream and place != s_out)
                put_piece(tag, p_out, out_step, words + RECORD, row, width, i, n, s_out)
    end_walk(s_x)
    if stream:
        finish_lines(carried)
        fence()


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds weight and bias where they do not lie as the kernel reads them."""
    x, out, mean, rstd = call["input"], call["out"], call.get("meanOutOptional"), call.get("rstdOutOptional")
    rows, width, tag = math.prod(call.axes["*M"]), math.prod(call.axes["*N"]), tag_of(x.dtype.name)
    records = [record(tensor, len(call.axes["*N"])) for tensor in (x, out)]
    words, size = Held(np.array(records, np.int64)), piece_size(records, width)
    mean_words, rstd_words = (
        Held(np.array([] if each is None else layout(each.dtype, each.strides, each.shape), np.int64)) for each in (mean, rstd)
    )
    gains, biases = (
        Numbers(call.get(name), width, default, tag == F32) for name, default in (("weightOptional", 1.0), ("biasOptional", -0.0))
    )
    entry = _rows.for_types(tag, *(types.intp,) * 9, types.float64, *(types.intp,) * 3, types.boolean)
    together = max(1, min(LANES, _NEAR // max(1, width)))
    eps, stream, grain = call.attrs["eps"], streams(out), max(1, GRAIN // max(1, width))
    program = Program(call.tensors)
    p_x, p_weight, p_bias, p_out, p_mean, p_rstd = program.operands
    weight, bias = gains.place(program, p_weight, program.workspace), biases.place(program, p_bias, program.workspace + gains.room)
    where = words, mean_words, rstd_words
    program.add(entry, (None, p_x, p_out, p_mean, p_rstd, *where, weight, bias, eps, width, size, together, stream), rows, grain)
    return gains.room + biases.room, program
