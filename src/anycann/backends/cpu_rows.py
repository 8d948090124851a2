"""Rows: operands whose last axes make one row each, and how kernels walk them.

A *row record* is the int64 words of how a tensor's rows lie: the layout of its rows, the layout of all its elements, the stride inside
a row where that is one loop, else ANY; and where rows lie so close that one line has elements of several, how many are copied at once,
and how many there are. Kernels walk a row in pieces of `piece_size` elements; a piece that is contiguous in memory is used where it
lies, any other is copied.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import apart, by_tag, device
from anycann.backends.cpu_blocks import (
    AHEAD,
    BELOW,
    BLOCK,
    LAYOUT,
    Held,
    copy_block,
    following,
    layout,
    load_any,
    near_rows,
    nest_of,
    offset_of,
    rows_in,
    run_in,
    run_out,
    tile_in,
    unload,
)
from anycann.backends.cpu_lines import PAIR
from anycann.backends.cpu_program import Place, Program
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    itemsize,
    load1_i64,
    load_f64,
    load_tail,
    store_f64,
    store_tail,
    widen,
)
from anycann.backends.cpu_threads import partitioned
from anycann.backends.loops import TILE
from anycann.tensor import Tensor

__all__ = [
    "GRAIN", "RECORD", "Numbers", "ahead_of", "joins", "piece_in", "piece_out", "piece_size", "put_piece", "record",
    "step_of", "weights",
]  # fmt: skip

ANY = -(2**63)
GRAIN = 1 << 14  # elements that are worth a thread
RECORD = 2 * LAYOUT + 24  # bytes of a row record
_COPIES = 2 * TILE  # bytes of rows that are copied at once
_STRIDE, _TALL, _ROWS = (RECORD // 8 - 3 + k for k in range(3))
_MOST, _LEAST = 128, 8  # rows side by side that are copied at once
_SHORT = 1 << 14  # bytes of rows that are joined


def record(tensor: Tensor, axes: int) -> list[int]:
    """How the rows of a tensor lie, each of them its last `axes` axes."""
    split = len(tensor.shape) - axes
    nest = nest_of(tensor.strides[split:], tensor.shape[split:])
    rows = near_rows(tensor, axes)
    stride = nest[0][1] if len(nest) == 1 else ANY
    size, count = tensor.dtype.itemsize, math.prod(tensor.shape[:split])
    below = rows[BELOW]
    near = min(_MOST, _COPIES // max(1, below * nest[0][0] * size))
    return [*rows, *layout(tensor.dtype, tensor.strides, tensor.shape), stride, near * below if near >= _LEAST else 0, count]


def piece_size(records: Sequence[Sequence[int]], width: int) -> int:
    """Elements of a piece: whole rows where every operand is used where it lies, or copied so."""
    return max(1, width) if all(words[_STRIDE] == 1 or words[_TALL] > 0 for words in records) else BLOCK


@apart
def _row_in_tile(size: int, address: int, words: int, row: int, width: int, scratch: int) -> int:
    """The address of a row that is copied with its neighbours."""
    tall = load1_i64(words, _TALL)
    tile = row // tall
    there, held = tile_in(scratch, tile, types.intp(_COPIES))
    if not there:
        rows_in(size, address, words, tile * tall, min(tall, load1_i64(words, _ROWS) - tile * tall), load1_i64(words, _STRIDE), width, held)
    place: int = held + (row - tile * tall) * width * size
    return place


@device
def step_of(tag: Tag, words: int) -> Any:
    """Bytes from row to row where all rows are used where they lie and are so far apart; else 0."""
    simple = load1_i64(words, _STRIDE) == 1 and load1_i64(words, 1) == 1
    return load1_i64(words, 3) * itemsize(tag) if simple else 0 * words


@device
def ahead_of(tag: Tag, words: int, width: int) -> int:
    """Bytes from a piece of a row to what is prefetched for it: what lies behind it, or rows that follow where they lie apart."""
    in_steps = load1_i64(words, _STRIDE) == 1 and load1_i64(words, 2) > 1
    step = load1_i64(words, 3) * itemsize(tag) if in_steps else 0 * width
    return following(width * itemsize(tag), step, AHEAD, AHEAD)


@device
def piece_in(tag: Tag, address: int, step: int, words: int, row: int, width: int, i: int, n: int, scratch: int) -> int:
    """The address of n contiguous elements of a row from i on; step: `step_of` the words. The scratch has WALK_SCRATCH bytes."""
    if step != 0:
        there: int = address + row * step + i * itemsize(tag)
        return there
    stride, tall = load1_i64(words, _STRIDE), load1_i64(words, _TALL)
    if tall > 0:
        place: int = _row_in_tile(itemsize(tag), address, words, row, width, scratch) + i * itemsize(tag)
        return place
    if stride != ANY:
        return run_in(tag, address + (offset_of(words, row) + i * stride) * itemsize(tag), stride, n, scratch)
    copy_block(itemsize(tag), address, words + LAYOUT, row * width + i, n, scratch, types.intp(0))
    return scratch


@device
def piece_out(tag: Tag, address: int, step: int, words: int, row: int, i: int, scratch: int) -> int:
    """Where to write a piece of a row from i on: in place, or in the scratch."""
    if step != 0:
        there: int = address + row * step + i * itemsize(tag)
        return there
    stride = load1_i64(words, _STRIDE)
    return run_out(address + (offset_of(words, row) + i * stride) * itemsize(tag), stride, scratch)


@device
def put_piece(tag: Tag, address: int, step: int, words: int, row: int, width: int, i: int, n: int, scratch: int) -> None:
    """Finish what `piece_out` made."""
    if step != 0:
        return
    stride = load1_i64(words, _STRIDE)
    if stride == ANY:
        copy_block(itemsize(tag), address, words + LAYOUT, row * width + i, n, scratch, types.intp(1))
    else:
        unload(tag, address + (offset_of(words, row) + i * stride) * itemsize(tag), stride, n, scratch)


@device
def joins(tag: Tag, address: int, words: int, width: int) -> bool:
    """Whether rows are so short, and lie so, that they should leave as lines that are joined: in parts, these cost more than the row."""
    size = width * itemsize(tag)
    adjoining = load1_i64(words, _STRIDE) == 1 and load1_i64(words, 1) == 1 and load1_i64(words, 3) == width
    return adjoining and size <= _SHORT and width % PAIR == 0 and address & 63 != 0 and address & 3 == 0


@partitioned
def _to_singles(address: int, words: int, target: int, start: int, stop: int) -> None:
    """Elements [start, stop) of a tensor of any dtype and layout as contiguous float32."""
    contiguous = load1_i64(words, 1) == 1 and load1_i64(words, 3) == 1
    step = types.intp(LANES if contiguous else 1)
    for i in range(start, stop, step):
        m = min(step, stop - i)
        store_tail(F32, target, i, load_any(load1_i64(words, 0), address, offset_of(words, i), m), m)


@partitioned
def _to_doubles(source: int, target: int, count: int, start: int, stop: int) -> None:
    """Vectors [start, stop) of `count` contiguous float32 as float64."""
    for vector in range(start, stop):
        i = vector * LANES
        store_f64(target, i, widen(load_tail(F32, source, i, min(LANES, count - i))))


class Numbers:
    """The `count` elements of a tensor side by side in float32, or in float64 where `wide`: in place if they lie so, or in workspace.

    `room` bytes of workspace are theirs. Where there is no tensor, all are `default`.
    """

    def __init__(self, tensor: Tensor | None, count: int, default: float, wide: bool = False) -> None:
        pitch = -(-count // LANES) * LANES
        self.constant = Held(np.full(pitch, default, np.float64 if wide else np.float32)) if tensor is None else None
        self.count, self.words, self.wide, self.room = count, Held(np.empty(0, np.int64)), wide, 0
        if tensor is not None and (tensor.dtype.name != "float32" or nest_of(tensor.strides, tensor.shape) not in ([], [(count, 1)])):
            self.words = Held(np.array(layout(tensor.dtype, tensor.strides, tensor.shape), np.int64))
            self.room = 4 * pitch
        self._singles = self.room
        if tensor is not None and wide:
            self.room += 8 * pitch

    def place(self, program: Program, address: Any, workspace: Place) -> Any:
        """Where the numbers are, given the tensor's address; the program brings them there."""
        if self.constant is not None:
            return self.constant
        if self._singles > 0:
            copy = _to_singles.for_types(*(types.intp,) * 3)
            program.add(copy, (address, self.words, workspace), self.count, GRAIN)
            address = workspace
        if self.wide:
            source, address = address, workspace + self._singles
            program.add(_to_doubles.for_types(*(types.intp,) * 3), (source, address, self.count), -(-self.count // LANES), GRAIN // LANES)
        return address


def _wide_weights(tag: Tag, numbers: int, i: int, m: int) -> Any:
    return load_f64(numbers, i)


def _short_weights(tag: Tag, numbers: int, i: int, m: int) -> Any:
    return load_tail(F32, numbers, i, m)


@by_tag
def weights(tag: Tag, numbers: int, i: int, m: int) -> Any:
    """A vector of numbers, which are float64 where results are float32, else float32."""
    return _wide_weights if tag == F32 else _short_weights
