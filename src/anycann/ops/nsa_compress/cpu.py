"""NSA compression on the CPU: x is read once, a run of tokens after the other, 64 columns at a time, or 128 where registers hold these.

A unit of work is some windows in a row times a group of heads. Each run of tokens is added up for the windows that it is in, two of
them in one pass, and the sums to the totals of these windows; the last run of a window finishes it. Sums start at -0.0, the
one number that changes no first term.
"""

from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import apart, device
from anycann.backends.cpu_across import begin_box, box_in, code_across
from anycann.backends.cpu_blocks import SCRATCH, Held, copy_run, run_out, settled, settled_pair, stack, unload
from anycann.backends.cpu_math import add_product
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    itemsize,
    load,
    load1,
    load1_i64,
    load_split,
    many_registers,
    prefetch_far,
    splat,
    store,
    store1,
    store_pair,
    tag_of,
    unsplit,
)
from anycann.backends.cpu_system import give_back
from anycann.backends.cpu_threads import partitioned, whole
from anycann.backends.threads import group_size
from anycann.bind import Call, Launch
from anycann.ops.nsa_compress.spec import RUN_W
from anycann.ops.windows import sequences

__all__ = ["plan"]

_QUAD, _TILE = 4 * LANES, 8 * LANES  # columns that are added up in registers; where there are many
_COLUMNS, _ENOUGH = 8192, 1024  # of a unit, about, where there are many; where there are more threads than units
_WINDOWS = 64  # of a unit, at most

Window = tuple[int, int, int, bool, bool]  # weights of the run, totals, result; begins with the run, ends with it


@device
def _rows_in(tag: Tag, x: int, steps: tuple[int, int], n: int, scratch: int) -> tuple[int, int]:
    """The address of the first of RUN_W rows of n columns, and the bytes from one to the next: in place, or copied.

    Steps are bytes from token to token, and elements from column to column.
    """
    if steps[1] == 1:
        return x, steps[0]
    for w in range(RUN_W):
        copy_run(itemsize(tag), scratch + w * _TILE * itemsize(tag), 1, x + w * steps[0], steps[1], n)
    return scratch, _TILE * itemsize(tag)


@device
def _add(tag: Tag, window: Window, i: int, run: Any) -> None:
    """Add a run to the total of 16 columns, and finish it if it was the last."""
    _, totals, out, begins, ends = window
    total = run if begins else load(F32, totals, i) + run
    if ends:
        store(tag, out, i, settled(tag, total))
    else:
        store(F32, totals, i, total)


@device
def _one_vector(tag: Tag, row: int, step: int, i: int, window: Window) -> None:
    """The run of 16 columns in one window."""
    run = splat(-0.0)
    for w in range(RUN_W):
        run = add_product(tag, run, load(tag, row + w * step, i), splat(load1(F32, window[0], w)))
    _add(tag, window, i, run)


@device
def _row_in(tag: Tag, row: int, ahead: int) -> Any:
    """64 columns of a token as four vectors; what follows is asked for to the second cache, as its rows may be in each other's way
    in the first."""
    for line in range(0, _QUAD * itemsize(tag), 64):
        prefetch_far(ahead + line)
    return *load_split(tag, row, 0, 2 * LANES), *load_split(tag, row, 2 * LANES, 2 * LANES)


@device
def _add_row(tag: Tag, runs: Any, row: Any, weight: float) -> Any:
    (run0, run1, run2, run3), (x0, x1, x2, x3), w = runs, row, splat(weight)
    return add_product(tag, run0, x0, w), add_product(tag, run1, x1, w), add_product(tag, run2, x2, w), add_product(tag, run3, x3, w)


@device
def _add_pair(tag: Tag, window: Window, i: int, low: Any, high: Any) -> None:
    """The same for 32 columns as `load_split` gives them, in whose order totals wait."""
    _, totals, out, begins, ends = window
    if not begins:
        low, high = load(F32, totals, i) + low, load(F32, totals, i + LANES) + high
    if ends:
        low, high = unsplit(tag, low, high)
        low, high = settled_pair(tag, low, high)
        store_pair(tag, out, i, low, high)
    else:
        store(F32, totals, i, low)
        store(F32, totals, i + LANES, high)


@device
def _add_all(tag: Tag, window: Window, i: int, runs: Any) -> None:
    _add_pair(tag, window, i, runs[0], runs[1])
    _add_pair(tag, window, i + 2 * LANES, runs[2], runs[3])


@device
def _zeros() -> Any:
    return splat(-0.0), splat(-0.0), splat(-0.0), splat(-0.0)


@device
def _in_one(tag: Tag, row: int, step: int, ahead: int, window: Window) -> None:
    """The runs of 64 columns in one window; `ahead` is the next memory to be read."""
    runs = _zeros()
    for w in range(RUN_W):
        x = _row_in(tag, row + w * step, ahead + w * _QUAD * itemsize(tag))
        runs = _add_row(tag, runs, x, load1(F32, window[0], w))
    _add_all(tag, window, 0, runs)


@device
def _in_two(tag: Tag, row: int, step: int, ahead: int, first: Window, second: Window) -> None:
    """The same in two windows in one pass."""
    runs = others = _zeros()
    for w in range(RUN_W):
        x = _row_in(tag, row + w * step, ahead + w * _QUAD * itemsize(tag))
        runs, others = _add_row(tag, runs, x, load1(F32, first[0], w)), _add_row(tag, others, x, load1(F32, second[0], w))
    _add_all(tag, first, 0, runs)
    _add_all(tag, second, 0, others)


@device
def _wide_in_one(tag: Tag, row: int, step: int, ahead: int, window: Window) -> None:
    """`_in_one` for 128 columns."""
    low = high = _zeros()
    half = _QUAD * itemsize(tag)
    for w in range(RUN_W):
        weight, place, later = load1(F32, window[0], w), row + w * step, ahead + 2 * w * half
        low = _add_row(tag, low, _row_in(tag, place, later), weight)
        high = _add_row(tag, high, _row_in(tag, place + half, later + half), weight)
    _add_all(tag, window, 0, low)
    _add_all(tag, window, _QUAD, high)


@device
def _wide_in_two(tag: Tag, row: int, step: int, ahead: int, first: Window, second: Window) -> None:
    """`_in_two` for 128 columns."""
    low = high = other_low = other_high = _zeros()
    half = _QUAD * itemsize(tag)
    for w in range(RUN_W):
        weight, other, place, later = load1(F32, first[0], w), load1(F32, second[0], w), row + w * step, ahead + 2 * w * half
        x = _row_in(tag, place, later)
        low, other_low = _add_row(tag, low, x, weight), _add_row(tag, other_low, x, other)
        x = _row_in(tag, place + half, later + half)
        high, other_high = _add_row(tag, high, x, weight), _add_row(tag, other_high, x, other)
    _add_all(tag, first, 0, low)
    _add_all(tag, first, _QUAD, high)
    _add_all(tag, second, 0, other_low)
    _add_all(tag, second, _QUAD, other_high)


@whole
def _widen_weights(tag: Tag, p_weight: int, strides: tuple[int, int], block: int, heads: int, weights: int) -> None:
    """The weights of each head side by side, as float32."""
    for head in range(heads):
        for w in range(block):
            store1(F32, weights, head * block + w, load1(tag, p_weight, w * strides[0] + head * strides[1]))


@device
def _window(
    tag: Tag,
    bases: tuple[int, int, int],
    jumps: tuple[int, int],
    at: tuple[int, int, int, int],
    k: int,
    slot: int,
    d: int,
    step: int,
    packed: int,
) -> tuple[Window, int]:
    """Window k from column d on, and where its result goes in the end; `at` is the place of the run in window 0, stride, block, ring."""
    begin = at[0] - k * at[1]
    place = bases[2] + k * jumps[1] + d * step * itemsize(tag)
    totals = bases[1] + slot * jumps[0] + 4 * d
    return (bases[0] + 4 * begin, totals, run_out(place, step, packed), begin == 0, begin + RUN_W == at[2]), place


@apart
def _run(
    tag: Tag,
    x: int,
    steps: tuple[int, int, int],
    sizes: tuple[int, int],
    windows: tuple[int, int],
    bases: tuple[int, int, int],
    jumps: tuple[int, int],
    at: tuple[int, int, int, int],
    out_steps: tuple[int, int],
    following: int,
    scratch: tuple[int, int, int],
) -> None:
    """A run of some heads in the windows [first, end); bases are the first head's weights, its totals, and its result in window 0.

    Steps are bytes from token to token and from head to head, and elements from column to column; sizes the heads and their columns. The
    run that follows is prefetched in the order of memory.
    """
    size, heads, width, ring = itemsize(tag), sizes[0], sizes[1], at[3]
    columns, column, low = heads * width, 0 * width, windows[0] % ring
    for head in range(heads):
        here = bases[0] + 4 * head * at[2], bases[1] + 4 * head * width, bases[2] + head * out_steps[0]
        d = 0 * width
        while d < width:
            wide = many_registers() and d + _TILE <= width
            n, k, slot = _TILE if wide else min(_QUAD, width - d), windows[0], low
            row, step = _rows_in(tag, x + head * steps[1] + d * steps[2] * size, (steps[0], steps[2]), n, scratch[0])
            if column >= columns:
                following, column = following + column // columns * steps[0], column % columns
            ahead = following + column * size
            while k < windows[1]:
                after = slot + 1 if slot + 1 < ring else 0
                first, place = _window(tag, here, jumps, at, k, slot, d, out_steps[1], scratch[1])
                second, other_place = _window(tag, here, jumps, at, k + 1, after, d, out_steps[1], scratch[2])
                both = k + 1 < windows[1]
                if wide:
                    if both:
                        _wide_in_two(tag, row, step, ahead, first, second)
                    else:
                        _wide_in_one(tag, row, step, ahead, first)
                elif n < _QUAD:
                    for i in range(0, n, LANES):
                        _one_vector(tag, row, step, i, first)
                        if both:
                            _one_vector(tag, row, step, i, second)
                elif both:
                    _in_two(tag, row, step, ahead, first, second)
                else:
                    _in_one(tag, row, step, ahead, first)
                if first[4]:
                    unload(tag, place, out_steps[1], n, scratch[1])
                if both and second[4]:
                    unload(tag, other_place, out_steps[1], n, scratch[2])
                k, slot = k + 2, after + 1 if after + 1 < ring else 0
            d += n
            column += n * RUN_W


@partitioned
def _compress(
    tag: Tag,
    addresses: tuple[int, int, int, int],
    x_strides: tuple[int, int, int],
    out_strides: tuple[int, int, int],
    sizes: tuple[int, int, int, int, int, int],
    memory: tuple[int, int],
    across: int,
    start: int,
    stop: int,
) -> None:
    """Units [start, stop): windows in a row times a group of heads. across: a `transposer` where rows lie side by side, else 0."""
    (p_x, p_firsts, weights, p_out), (total, heads, width, block, stride, group) = addresses, sizes
    size, ring, groups, totals = itemsize(tag), -(-block // stride), -(-heads // group), memory[0] + start * memory[1]
    scratch = stack(SCRATCH), stack(SCRATCH), stack(SCRATCH)
    steps, out_steps = (x_strides[0] * size, x_strides[1] * size, x_strides[2]), (out_strides[1] * size, out_strides[2])
    jumps = group * width * 4, out_strides[0] * size
    reserved, box = begin_box(across, RUN_W * group * width * size)
    for unit in range(start, stop):
        part = unit // groups
        head = (unit - part * groups) * group
        shape, first, end = (min(group, heads - head), width), part * _WINDOWS, min(total, (part + 1) * _WINDOWS)
        while first < end:
            token, until = load1_i64(p_firsts, first), first + 1
            while until < end and load1_i64(p_firsts, until) - load1_i64(p_firsts, until - 1) == stride:
                until += 1
            bases = weights + 4 * head * block, totals, p_out + first * jumps[1] + head * out_steps[0]
            for place in range(0, (until - first - 1) * stride + block, RUN_W):
                low, high = max(0, (place + RUN_W - block + stride - 1) // stride), min(until - first - 1, place // stride)
                windows, at = (low, high + 1), (place, stride, block, ring)
                x = p_x + (token + place) * steps[0] + head * steps[1]
                if across != 0:
                    strides = box_in(across, size, x, (RUN_W, *shape), x_strides, box)
                    rows = strides[0] * size, strides[1] * size, strides[2]
                    _run(tag, box, rows, shape, windows, bases, jumps, at, out_steps, box, scratch)
                else:
                    _run(tag, x, steps, shape, windows, bases, jumps, at, out_steps, x + RUN_W * steps[0], scratch)
            first = until
    give_back(reserved)


def _ints(n: int) -> Any:
    """The Numba type of a tuple of n integers."""
    return types.UniTuple(types.intp, n)


def _firsts(act_seq_len: tuple[int, ...] | None, tokens: int, block: int, stride: int) -> Held:
    """The first token of each window."""
    parts = [np.arange(start, start + length - block + 1, stride, dtype=np.int64) for start, length in sequences(act_seq_len, tokens)]
    return Held(np.concatenate(parts))


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the weights as float32, then for each unit the totals of the windows that it is in."""
    x, weight, out = call.tensors
    heads, width, block, stride = call.axes["N"], call.axes["D"], call.axes["W"], call.attrs["compressStride"]
    tag, windows = tag_of(x.dtype.name), out.shape[0]
    firsts, parts = _firsts(call.attrs["actSeqLenOptional"], call.axes["T"], block, stride), -(-windows // _WINDOWS)
    group = group_size(heads, _COLUMNS // width, _ENOUGH // width, parts)  # their columns lie side by side: the more the better
    sizes, units = (windows, heads, width, block, stride, group), parts * -(-heads // group)
    slots, slot_bytes = -(-heads * block // 16) * 64, -(-block // stride) * group * width * 4
    widen_weights = _widen_weights.for_types(tag, types.intp, _ints(2), *(types.intp,) * 3)
    compress = _compress.for_types(tag, _ints(4), _ints(3), _ints(3), _ints(6), _ints(2), types.intp)

    program = Program(call.tensors)
    (p_x, p_weight, p_out), workspace = program.operands, program.workspace
    program.add(widen_weights, (None, p_weight, weight.strides, block, heads, workspace))
    memory = (workspace + slots, slot_bytes)
    program.add(compress, (None, (p_x, firsts, workspace, p_out), x.strides, out.strides, sizes, memory, code_across(x)), units)
    return slots + units * slot_bytes, program
