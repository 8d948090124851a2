"""Column sums of many rows: float32 sums of short runs of rows, added in float64, in an order that does not depend on threads."""

from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import BLOCK, DIRECT, SCRATCH, Held, block_out, flush, layout, nest_of, room, stack, store_sums
from anycann.backends.cpu_program import Place, Program
from anycann.backends.cpu_simd import F32, LANES, Tag, itemsize, load, load_f64, splat, store_f64, tag_of, widen
from anycann.backends.cpu_threads import partitioned
from anycann.tensor import Tensor

__all__ = ["TILE", "add_run", "start_sums", "totals"]

TILE = 512  # columns that are worth a thread


@device
def start_sums(double: int, n: int, first: float) -> None:
    """Begin n float64 sums; -0.0 is the one number that changes no first term."""
    for i in range(0, n, LANES):
        store_f64(double, i, widen(splat(first)))


@device
def add_run(double: int, single: int, i: int) -> None:
    """Add a vector of the float32 sums of a run of rows."""
    store_f64(double, i, load_f64(double, i) + widen(load(F32, single, i)))


@partitioned
def _totals(tag: Tag, address: int, words: int, sums: int, partials: int, pitch: int, start: int, stop: int) -> None:
    """Elements [start, stop) of an output, from partial sums that lie `pitch` apart."""
    scratch = stack(SCRATCH)
    i = start
    while i < stop:
        n = room(tag, words, i, min(BLOCK, stop - i), DIRECT)
        place = block_out(tag, address, words, i, n, scratch)
        store_sums(tag, sums + 8 * i, partials, pitch, place, 1, n)
        flush(tag, address, words, i, n, scratch, place)
        i += n


@partitioned
def _totals_in_step(tag: Tag, address: int, stride: int, sums: int, partials: int, pitch: int, start: int, stop: int) -> None:
    """The same for an output whose elements are all `stride` apart."""
    store_sums(tag, sums + 8 * start, partials, pitch, address + start * stride * itemsize(tag), stride, stop - start)


def totals(program: Program, output: Tensor | None, address: Any, width: int, partials: int, pitch: int, sums: Place) -> None:
    """Add partial sums, which lie two pitches apart from `sums` on, and write an output, if there is one."""
    if output is None:
        return
    nest, tag = nest_of(output.strides, output.shape), tag_of(output.dtype.name)
    in_step = len(nest) == 1
    place: Any = nest[0][1] if in_step else Held(np.array(layout(output.dtype, output.strides, output.shape), np.int64))
    entry = (_totals_in_step if in_step else _totals).for_types(tag, *(types.intp,) * 5)
    program.add(entry, (None, address, place, sums, partials, 2 * pitch), width, TILE)
