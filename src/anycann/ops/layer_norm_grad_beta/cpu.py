"""Column sums on the CPU: a unit of work is a tile of columns over the rows of one partial sum; then the partial sums are added.

A unit reads its rows once, whole rows where there are partial sums enough for all threads, and adds them to float32 sums in the
workspace; the last rows of a run add those to the float64 sums beside them. Sums start at -0.0, the one number that changes no first
term. CPUs read memory ahead by themselves, but only within pages, and lose track where two places of one page are read in turn, or
where sums have left the first-level cache. So long rows are added four at a time, others one at a time unless they are in a cache, and
the shortest, whose sums fit registers, a run at a time; what comes next is asked into the second-level cache; and the four arrays of sums
are pages apart. Rows of a few elements are turned, so that sixteen runs of them are added side by side.
"""

import math

import numpy as np
from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import AHEAD, BELOW, LAYOUT, Held, ask_line, near_rows, nest_of, offset_of, rows_in, stack, store_sums
from anycann.backends.cpu_columns import start_sums
from anycann.backends.cpu_math import add_product
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    itemsize,
    load,
    load1,
    load1_f64,
    load_f64,
    load_split,
    prefetch,
    reads_ahead,
    splat,
    store,
    store1,
    store1_f64,
    store_f64,
    tag_of,
    transpose,
    unsplit,
    widen,
)
from anycann.backends.cpu_system import give_back, reserve
from anycann.backends.cpu_threads import partitioned
from anycann.backends.threads import get_num_threads
from anycann.bind import Call, Launch
from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL

__all__ = ["plan"]

_ROWS = ROWS_PER_RUN * RUNS_PER_PARTIAL  # of a partial sum
_NARROW = 512  # columns of which sums stay in the first-level cache from run to run
_TILE = 128  # columns of a tile, at least
_PAGE = 4096  # bytes; rows as long as that are added four at a time
_CACHED = 1 << 23  # bytes of operands that are likely to be in a cache, where fewer visits to the sums count for more
_LINE = 64
_COLUMNS, _MOST = 256, 64  # columns of a tile whose rows are copied before they are read, and how many at once: a multiple of a run
_BESIDE = 32  # rows that lie side by side in memory, of those that are copied, where others come between them
_COPIES = 8 * _COLUMNS * _MOST  # bytes
_PAIR = 2 * LANES  # columns that are handled together: whole lines of every type
_FEW = LANES // 2  # columns of rows that are turned
_TURNED = 4 * _FEW * ROWS_PER_RUN * LANES  # bytes of sixteen runs of them
_SINGLES = 8 * LANES  # bytes of two vectors of float32
_GRAIN = 1 << 15  # elements that are worth a piece
_ALONE = 1 << 16  # elements that are added before another thread would be of use


@device
def _add_pair(
    tag: Tag,
    x: int,
    dy: int,
    steps: tuple[int, int, int, int],
    sums: tuple[int, int, int, int],
    i: int,
    m: int,
    count: int,
    begin: bool,
    end: bool,
) -> None:
    """Add m <= 32 columns of `count` rows, in order. steps: bytes from row to row of x and dy, and to what is prefetched, unless 0.

    sums: the addresses of float32 and float64 sums, those of gamma and those of beta; a run begins or ends with these rows.
    """
    x_step, dy_step, x_ahead, dy_ahead = steps
    gamma, beta, total_gamma, total_beta = sums
    g0 = g1 = b0 = b1 = splat(-0.0)
    if not begin:
        g0, g1 = load(F32, gamma, i), load(F32, gamma, i + LANES)
        b0, b1 = load(F32, beta, i), load(F32, beta, i + LANES)
    for _ in range(count):
        if x_ahead != 0:
            for line in range(i * itemsize(tag), (i + _PAIR) * itemsize(tag), _LINE):
                far = count != 1 or reads_ahead()
                ask_line(x + x_ahead + line, far)
                ask_line(dy + dy_ahead + line, far)
        (d0, d1), (x0, x1) = load_split(tag, dy, i, m), load_split(tag, x, i, m)
        g0, g1 = add_product(tag, g0, d0, x0), add_product(tag, g1, d1, x1)
        b0, b1 = b0 + d0, b1 + d1
        x += x_step
        dy += dy_step
    if end:
        (g0, g1), (b0, b1) = unsplit(tag, g0, g1), unsplit(tag, b0, b1)
        t0, t1 = load_f64(total_gamma, i) + widen(g0), load_f64(total_gamma, i + LANES) + widen(g1)
        u0, u1 = load_f64(total_beta, i) + widen(b0), load_f64(total_beta, i + LANES) + widen(b1)
        store_f64(total_gamma, i, t0)
        store_f64(total_gamma, i + LANES, t1)
        store_f64(total_beta, i, u0)
        store_f64(total_beta, i + LANES, u1)
    else:
        store(F32, gamma, i, g0)
        store(F32, gamma, i + LANES, g1)
        store(F32, beta, i, b0)
        store(F32, beta, i + LANES, b1)


@partitioned
def _partial_sums(
    tag: Tag,
    p_x: int,
    p_dy: int,
    words: int,
    x_stride: int,
    dy_stride: int,
    x_step: int,
    dy_step: int,
    x_ahead: int,
    dy_ahead: int,
    together: int,
    copied: int,
    dense: bool,
    rows: int,
    width: int,
    tile: int,
    gammas: int,
    betas: int,
    total_gammas: int,
    total_betas: int,
    start: int,
    stop: int,
) -> None:
    """Units [start, stop) of partial sums, a run of short rows together, four rows, or one; 0 where rows do not lie in steps.

    copied: rows of a unit that are copied at once before they are read, of x, dy or both; 0 where all are read where they lie.
    """
    size, full, four, one = itemsize(tag), types.intp(_PAIR), types.intp(4), types.intp(1)  # literals would compile functions anew
    copies = reserve(2 * copied * tile * size) if copied > 0 else 0 * copied
    s_x, s_dy = copies, copies + copied * tile * size
    pitch, tiles = -(-width // _PAIR) * _PAIR, -(-width // tile)
    if together == 1 and dense:
        x_ahead = dy_ahead = types.intp(AHEAD)
        if reads_ahead():
            x_ahead = dy_ahead = _PAGE * types.intp(width >= _NARROW)
    for unit in range(start, stop):
        partial = unit // tiles
        column = (unit - partial * tiles) * tile
        n = min(tile, width - column)
        tail, place = n if together == ROWS_PER_RUN else n % _PAIR, partial * pitch + column
        sums = gammas + 4 * place, betas + 4 * place, total_gammas + 8 * place, total_betas + 8 * place
        first = -0.0 if rows > 0 else 0.0
        start_sums(total_gammas + 8 * place, n, first)
        start_sums(total_betas + 8 * place, n, first)
        row, last = partial * _ROWS, min(rows, (partial + 1) * _ROWS)
        x = dy = types.intp(0)
        if copied > 0:
            x_step, dy_step = n * size if x_stride != 1 else x_step, n * size if dy_stride != 1 else dy_step
        steps, filled = (x_step, dy_step, x_ahead, dy_ahead), row
        while row < last:
            begin, end = row, min(last, row + ROWS_PER_RUN)
            while row < end:
                count = together if together > 1 and row + together <= end else one
                if row == filled and copied > 0:
                    filled, some = min(last, row + copied), min(last - row, copied)
                    if x_stride != 1:
                        rows_in(size, p_x + column * x_stride * size, words, row, some, x_stride, n, s_x)
                        x = s_x
                    if dy_stride != 1:
                        rows_in(size, p_dy + column * dy_stride * size, words + LAYOUT, row, some, dy_stride, n, s_dy)
                        dy = s_dy
                if together == 0 or row == begin:
                    if x_stride == 1:
                        x = p_x + (offset_of(words, row) + column) * size
                    if dy_stride == 1:
                        dy = p_dy + (offset_of(words + LAYOUT, row) + column) * size
                begins, ends = row == begin, row + count == end
                if count == four:
                    for i in range(0, n - tail, _PAIR):
                        _add_pair(tag, x, dy, steps, sums, i, full, four, begins, ends)
                else:
                    for i in range(0, n - tail, _PAIR):
                        _add_pair(tag, x, dy, steps, sums, i, full, one, begins, ends)
                if tail > 0:
                    _add_pair(tag, x, dy, steps, sums, n - tail, tail, count, begins, ends)
                row += count
                x += count * x_step
                dy += count * dy_step
    give_back(copies)


@partitioned
def _side_by_side(
    tag: Tag, p_x: int, p_dy: int, rows: int, width: int, pitch: int, total_gammas: int, total_betas: int, start: int, stop: int
) -> None:
    """Partial sums [start, stop) of rows of a few elements that lie one behind the other."""
    size, each, whole = itemsize(tag), width * ROWS_PER_RUN, ROWS_PER_RUN * LANES
    s_x, s_dy, singles = stack(_TURNED), stack(_TURNED), stack(_SINGLES)
    for partial in range(start, stop):
        gammas, betas = total_gammas + 8 * partial * pitch, total_betas + 8 * partial * pitch
        first = -0.0 if rows > 0 else 0.0
        start_sums(gammas, width, first)
        start_sums(betas, width, first)
        row, last = partial * _ROWS, min(rows, (partial + 1) * _ROWS)
        while row < last:
            x, dy = p_x + row * width * size, p_dy + row * width * size
            runs, count = types.intp(1), min(last - row, ROWS_PER_RUN)
            if row + whole <= last:
                runs = types.intp(LANES)
                for i in range(0, each, LANES):  # one element of 16 runs becomes a vector
                    for line in range(LANES * i * size, LANES * (i + LANES) * size, _LINE):
                        prefetch(x + line + AHEAD)
                        prefetch(dy + line + AHEAD)
                    transpose(tag, x + i * size, each * size, s_x + LANES * i * size, LANES * size)
                    transpose(tag, dy + i * size, each * size, s_dy + LANES * i * size, LANES * size)
            for column in range(width):
                if runs == LANES:
                    g = b = splat(-0.0)
                    for i in range(column, each, width):
                        d = load(tag, s_dy, LANES * i)
                        g, b = g + d * load(tag, s_x, LANES * i), b + d
                    store(F32, singles, 0, g)
                    store(F32, singles, LANES, b)
                else:
                    one_g = one_b = np.float32(-0.0)
                    for i in range(column, count * width, width):
                        one_d = load1(tag, dy, i)
                        one_g, one_b = one_g + one_d * load1(tag, x, i), one_b + one_d
                    store1(F32, singles, 0, one_g)
                    store1(F32, singles, LANES, one_b)
                gamma, beta = load1_f64(gammas, column), load1_f64(betas, column)
                for run in range(runs):
                    gamma, beta = gamma + load1(F32, singles, run), beta + load1(F32, singles, LANES + run)
                store1_f64(gammas, column, gamma)
                store1_f64(betas, column, beta)
            row += whole if runs == LANES else count


@partitioned
def _totals(
    tag: Tag,
    p_gamma: int,
    p_beta: int,
    gamma_stride: int,
    beta_stride: int,
    partials: int,
    pitch: int,
    gammas: int,
    betas: int,
    start: int,
    stop: int,
) -> None:
    """Columns [start, stop) of the outputs."""
    size, n = itemsize(tag), stop - start
    store_sums(tag, gammas + 8 * start, partials, pitch, p_gamma + start * gamma_stride * size, gamma_stride, n)
    store_sums(tag, betas + 8 * start, partials, pitch, p_beta + start * beta_stride * size, beta_stride, n)


def _tile(width: int, partials: int, rows: int, limit: int) -> int:
    """Columns of a unit of so many rows, a multiple of 32: as many as leave two units for every thread, if there are others.

    Units with little to add are not divided.
    """
    tile, threads = min(width, limit), get_num_threads()
    while tile > _TILE and rows * tile >= 2 * _ALONE and partials * -(-width // tile) < (2 * threads if threads > 1 else 1):
        tile = -(-tile // (2 * _PAIR)) * _PAIR
    return tile


def _apart(size: int) -> int:
    """Bytes from one array of sums to the next: another page, and another place in it, unless they are small."""
    return size if size < _PAGE // 4 else -(-size // _PAGE) * _PAGE + _PAGE // 4


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds, for each partial sum, a row of float64 and one of float32: all of gamma's and of beta's side by side."""
    x, dy, gamma, beta = call.tensors
    width, rows, tag = call.axes["H"], math.prod(x.shape[:-1]), tag_of(x.dtype.name)
    nests = [nest_of(tensor.strides[:-1], tensor.shape[:-1]) for tensor in (x, dy)]
    near = [near_rows(tensor, 1) for tensor in (x, dy)]
    in_place = [tensor.strides[-1] == 1 for tensor in (x, dy)]
    regular = all(len(nest) == 1 or nest[0][0] % ROWS_PER_RUN == 0 for nest, there in zip(nests, in_place, strict=True) if there)
    size = x.dtype.itemsize
    short = regular and all(in_place) and width <= _PAIR
    some = not all(in_place) or width * size >= _PAGE or 2 * rows * width * size <= _CACHED
    together = (ROWS_PER_RUN if short else 4 if some else 1) if regular else 0
    row_steps = [nest[0][1] * size for nest in nests]
    dense = row_steps == [width * size] * 2 and all(len(nest) == 1 for nest in nests)
    if dense:
        aheads = [AHEAD if short else step * together for step in row_steps]
    else:
        aheads = [max(together, _PAGE // max(1, width * size)) * (step or size) if together > 0 else 0 for step in row_steps]
    partials, pitch = max(1, -(-rows // _ROWS)), -(-width // _PAIR) * _PAIR
    tile = _tile(pitch, partials, min(rows, _ROWS), pitch if all(in_place) else _COLUMNS)
    words, copied = Held(np.array(near, np.int64)), 0 if all(in_place) else _MOST
    below = max(rows_near[BELOW] for rows_near in near)
    if below > 1:
        copied = max(copied, min(_ROWS, _BESIDE * below, _COPIES // (tile * size)) // ROWS_PER_RUN * ROWS_PER_RUN)
    tiles, doubles, singles = -(-width // tile), _apart(partials * pitch * 8), _apart(partials * pitch * 4)
    finish = _totals.for_types(tag, *(types.intp,) * 8)
    steps, out_strides = (x.strides[-1], dy.strides[-1], *row_steps, *aheads), (*gamma.strides, *beta.strides)
    program = Program(call.tensors)
    (p_x, p_dy, p_gamma, p_beta), workspace = program.operands, program.workspace
    totals = workspace, workspace + doubles
    sums = workspace + 2 * doubles, workspace + 2 * doubles + singles
    units = partials * tiles
    shared = units > 1 and rows * width > _ALONE
    grain = max(1, _GRAIN // (_ROWS * tile)) if shared else units
    if width <= _FEW and short and dense:
        turned = _side_by_side.for_types(tag, *(types.intp,) * 7)
        program.add(turned, (None, p_x, p_dy, rows, width, pitch, *totals), units, grain)
    else:
        add = _partial_sums.for_types(tag, *(types.intp,) * 11, types.boolean, *(types.intp,) * 7)
        program.add(add, (None, p_x, p_dy, words, *steps, together, copied, dense, rows, width, tile, *sums, *totals), units, grain)
    program.add(finish, (None, p_gamma, p_beta, *out_strides, partials, pitch, *totals), width, _NARROW if shared else width)
    return 2 * (doubles + singles), program
