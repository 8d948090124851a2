"""Column sums on the CPU: a unit of work is a tile of columns over the rows of one partial sum; then the partial sums are added.

A unit reads its rows once, whole rows where there are partial sums enough for all threads, and adds them to float32 sums in the
workspace, long rows four at a time; after each run of rows they are added to the float64 sums beside them and start again. Sums
start at -0.0, the one number that changes no first term.
"""

import math
from collections.abc import Sequence

import numpy as np
from numba import types

from anycann.backends.cpu import device, kernel
from anycann.backends.cpu_blocks import BLOCK, LAYOUT, SCRATCH, Held, layout, nest_of, offset_of, run_in, stack, store_sums
from anycann.backends.cpu_columns import add_run, start_sums
from anycann.backends.cpu_simd import F32, LANES, Tag, itemsize, load, load_tail, splat, store, tag_of
from anycann.backends.threads import get_num_threads, parallel
from anycann.bind import Call, Launch
from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL

__all__ = ["plan"]

_ROWS = ROWS_PER_RUN * RUNS_PER_PARTIAL  # of a partial sum
_NARROW = 512  # columns of a tile, at least
_CACHED = 2048  # columns whose float32 sums fit the first-level cache: memory is then best read strictly in order


@device
def _start(double: int, single: int, n: int, first: float) -> None:
    start_sums(double, n, first)
    for i in range(0, n, LANES):
        store(F32, single, i, splat(first))


@device
def _end_run(double: int, single: int, n: int) -> None:
    for i in range(0, n, LANES):
        add_run(double, single, i)
        store(F32, single, i, splat(-0.0))


@device
def _add_row(tag: Tag, x: int, dy: int, gamma: int, beta: int, i: int, m: int) -> None:
    d = load_tail(tag, dy, i, m)
    store(F32, gamma, i, load(F32, gamma, i) + d * load_tail(tag, x, i, m))
    store(F32, beta, i, load(F32, beta, i) + d)


@device
def _add_rows(tag: Tag, x: int, x_step: int, dy: int, dy_step: int, gamma: int, beta: int, i: int, m: int) -> None:
    """Add a vector of each of four rows, in order; steps are bytes from row to row."""
    d0, d1 = load_tail(tag, dy, i, m), load_tail(tag, dy + dy_step, i, m)
    d2, d3 = load_tail(tag, dy + 2 * dy_step, i, m), load_tail(tag, dy + 3 * dy_step, i, m)
    sum_gamma = load(F32, gamma, i) + d0 * load_tail(tag, x, i, m) + d1 * load_tail(tag, x + x_step, i, m)
    sum_gamma = sum_gamma + d2 * load_tail(tag, x + 2 * x_step, i, m) + d3 * load_tail(tag, x + 3 * x_step, i, m)
    store(F32, gamma, i, sum_gamma)
    store(F32, beta, i, load(F32, beta, i) + d0 + d1 + d2 + d3)


@kernel
def _partial_sums(
    tag: Tag,
    p_x: int,
    p_dy: int,
    words: int,
    x_stride: int,
    dy_stride: int,
    x_step: int,
    dy_step: int,
    rows: int,
    width: int,
    tile: int,
    doubles: int,
    singles: int,
    start: int,
    stop: int,
) -> None:
    """Units [start, stop) of partial sums. A step is the stride from row to row where four rows can be read in place, else 0."""
    size, full = itemsize(tag), types.intp(LANES)  # not a literal, for which functions would be compiled once more
    s_x, s_dy = stack(SCRATCH), stack(SCRATCH)
    pitch, tiles = -(-width // LANES) * LANES, -(-width // tile)
    for unit in range(start, stop):
        partial = unit // tiles
        column = (unit - partial * tiles) * tile
        n = min(tile, width - column)
        tail = n % LANES
        gamma, beta = singles + 4 * (2 * partial * pitch + column), singles + 4 * ((2 * partial + 1) * pitch + column)
        total_gamma, total_beta = doubles + 8 * (2 * partial * pitch + column), doubles + 8 * ((2 * partial + 1) * pitch + column)
        first = -0.0 if rows > 0 else 0.0
        _start(total_gamma, gamma, n, first)
        _start(total_beta, beta, n, first)
        row, last = partial * _ROWS, min(rows, (partial + 1) * _ROWS)
        while row < last:
            end = min(last, row + ROWS_PER_RUN)
            while row < end:
                x = p_x + (offset_of(words, row) + column * x_stride) * size
                dy = p_dy + (offset_of(words + LAYOUT, row) + column * dy_stride) * size
                if x_step != 0 and row + 4 <= end:
                    for i in range(0, n - tail, LANES):
                        _add_rows(tag, x, x_step, dy, dy_step, gamma, beta, i, full)
                    if tail > 0:
                        _add_rows(tag, x, x_step, dy, dy_step, gamma, beta, n - tail, tail)
                    row += 4
                else:
                    x, dy = run_in(tag, x, x_stride, n, s_x), run_in(tag, dy, dy_stride, n, s_dy)
                    for i in range(0, n - tail, LANES):
                        _add_row(tag, x, dy, gamma, beta, i, full)
                    if tail > 0:
                        _add_row(tag, x, dy, gamma, beta, n - tail, tail)
                    row += 1
            _end_run(total_gamma, gamma, n)
            _end_run(total_beta, beta, n)


@kernel
def _totals(
    tag: Tag, p_gamma: int, p_beta: int, gamma_stride: int, beta_stride: int, partials: int, pitch: int, doubles: int, start: int, stop: int
) -> None:
    """Columns [start, stop) of the outputs."""
    size, n, sums = itemsize(tag), stop - start, doubles + 8 * start
    store_sums(tag, sums, partials, 2 * pitch, p_gamma + start * gamma_stride * size, gamma_stride, n)
    store_sums(tag, sums + 8 * pitch, partials, 2 * pitch, p_beta + start * beta_stride * size, beta_stride, n)


def _tile(width: int, partials: int, limit: int) -> int:
    """Columns of a unit, a multiple of 16: as many as leave two units for every thread."""
    tile = min(width, limit)
    while tile > _NARROW and partials * -(-width // tile) < 2 * get_num_threads():
        tile = -(-tile // (2 * LANES)) * LANES
    return tile


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds, for each partial sum, two rows of float64 totals; then two rows of float32 sums for each."""
    x, dy, gamma, beta = call.tensors
    width, rows, tag = call.axes["H"], math.prod(x.shape[:-1]), tag_of(x.dtype.name)
    nests = [nest_of(tensor.strides[:-1], tensor.shape[:-1]) for tensor in (x, dy)]
    words = Held(np.array([layout(tensor.dtype, tensor.strides[:-1], tensor.shape[:-1]) for tensor in (x, dy)], np.int64))
    in_place = x.strides[-1] == dy.strides[-1] == 1
    regular = in_place and len(nests[0]) == len(nests[1]) == 1 and width > _CACHED
    x_step, dy_step = (nest[0][1] * x.dtype.itemsize if regular else 0 for nest in nests)
    partials, pitch = max(1, -(-rows // _ROWS)), -(-width // LANES) * LANES
    tile = _tile(pitch, partials, pitch if in_place else BLOCK)
    tiles, singles = -(-width // tile), partials * 2 * pitch * 8
    add = _partial_sums.for_types(tag, *(types.intp,) * 14)
    finish = _totals.for_types(tag, *(types.intp,) * 9)
    strides, out_strides = (x.strides[-1], dy.strides[-1], x_step, dy_step), (*gamma.strides, *beta.strides)

    def launch(addresses: Sequence[int], workspace: int) -> None:
        p_x, p_dy, p_gamma, p_beta = addresses

        def sum_rows(start: int, stop: int) -> None:
            add(None, p_x, p_dy, words.address, *strides, rows, width, tile, workspace, workspace + singles, start, stop)

        def sum_partials(start: int, stop: int) -> None:
            finish(None, p_gamma, p_beta, *out_strides, partials, pitch, workspace, start, stop)

        parallel(sum_rows, partials * tiles)
        parallel(sum_partials, width, _NARROW)

    return singles + partials * 2 * pitch * 4, launch
