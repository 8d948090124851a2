"""Sums of rows that indices name: each result adds its kept rows, times weights if there are any, vector by vector in registers.

An index that is negative or not below the number of rows is skipped, and so is a row whose weight is 0. The others are added in float32
in the order of their indices, starting from the first; a sum of nothing is 0. Products with weights are rounded before they are added.
While a tile of columns is added, the same vectors of the next one are prefetched: further on in the same rows, or for the next result.
Eight vectors of a row are read before those of the next one where rows are in a cache, or few, and otherwise two.
"""

from typing import Any

from numba import types

from anycann.backends.cpu import apart, device
from anycann.backends.cpu_across import columns_at_once, turned
from anycann.backends.cpu_blocks import AHEAD, BLOCK, SCRATCH, fetch, run_in, run_out, stack, streams, sweep, unload
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    fence,
    itemsize,
    load,
    load1,
    load1_i32,
    load1_i64,
    load_split,
    load_tail,
    many_registers,
    prefetch,
    prefetch_far,
    reads_ahead,
    splat,
    store,
    store1,
    store1_i64,
    tag_of,
    unsplit,
)
from anycann.backends.cpu_threads import partitioned
from anycann.backends.loops import LINE
from anycann.tensor import Tensor

__all__ = ["GRAIN", "MOST_ROWS", "ask_ends", "row_address", "sums_of_rows", "zero"]

MOST_ROWS = 512  # of a sum
GRAIN = 1 << 15  # elements worth a thread

_LIST = 8 * MOST_ROWS  # bytes of a list of row addresses; its weights take half of that
_TWO_LISTS = 2 * _LIST
_PAIR = 2 * LANES
_FEW = 4  # rows of a sum
_PAGE = 4096  # bytes; parts of rows in a cache that are as long as that are read ahead by the CPU itself
_CACHED = 1 << 18  # bytes of all rows of a sum in a tile, at most
_LONG = 1 << 10  # bytes of a part of a row that leaves past the caches although its ends are parts of lines
_NEAR = 1 << 24  # bytes of all rows that are likely to be in a cache

Operand = tuple[Tensor, Any]  # and the place of its first element
Weights = tuple[Tag, int, int, int] | None  # address, strides of results and of their rows


@device
def row_address(base: int, index: int, stride: int, size: int) -> int:
    """Where a row begins; 64-bit, for an index of 32 bits times a stride may need more."""
    place: int = base + types.int64(index) * stride * size
    return place


@device
def ask_ends(target: int, n: int) -> None:
    """Ask for the lines of n bytes that are written in parts; what goes past the caches would wait for them."""
    if target & 63 != 0:
        prefetch(target)
    if (target + n) & 63 != 0:
        prefetch(target + n)


@apart
def _kept_rows(
    base: int,
    stride: int,
    size: int,
    rows: int,
    indices: int,
    index_stride: int,
    weights: Weights,
    number: int,
    k: int,
    found: int,
    factors: int,
) -> int:
    """Write the addresses of a result's kept rows to a list, in order, and give their number; the list is filled up with `base`."""
    count = 0
    for i in range(k):
        index = load1_i32(indices, (number * k + i) * index_stride)
        if not 0 <= index < rows:
            continue
        if weights is not None:
            factor = load1(weights[0], weights[1], number * weights[2] + i * weights[3])
            if factor == 0.0:
                continue
            store1(F32, factors, count, factor)
        store1_i64(found, count, row_address(base, index, stride, size))
        count += 1
    for i in range(count, k):
        store1_i64(found, i, base)
    return count


@device
def _term(v: Any, weights: Weights, factors: int, k: int) -> Any:
    return v if weights is None else v * load1(F32, factors, k)


@device
def _sum(given: Any, i: int, m: int) -> Any:
    tag, found, weights, factors, count, column, ahead, ahead_column, _, _ = given
    total = _term(load_tail(tag, load1_i64(found, 0), column + i, m), weights, factors, 0)
    prefetch(load1_i64(ahead, 0) + (ahead_column + i) * itemsize(tag))
    for k in range(1, count):
        total = total + _term(load_tail(tag, load1_i64(found, k), column + i, m), weights, factors, k)
        prefetch(load1_i64(ahead, k) + (ahead_column + i) * itemsize(tag))
    return total


@device
def _ask(tag: Tag, address: int, n: int, far: bool) -> None:
    """Ask for n elements, whole lines of them."""
    for line in range(0, n * itemsize(tag), LINE):
        if far:
            prefetch_far(address + line)
        else:
            prefetch(address + line)


@device
def _terms(tag: Tag, row: int, i: int, weights: Weights, factors: int, k: int) -> Any:
    """Two vectors of a row, as `load_split` orders them."""
    first, second = load_split(tag, row, i, _PAIR)
    return _term(first, weights, factors, k), _term(second, weights, factors, k)


@device
def _sums(given: Any, i: int) -> Any:
    """Two vectors at once: less to do beside the additions."""
    tag, found, weights, factors, count, column, ahead, ahead_column, far, _ = given
    later = (ahead_column + i) * itemsize(tag)
    _ask(tag, load1_i64(ahead, 0) + later, _PAIR, far)
    low, high = _terms(tag, load1_i64(found, 0), column + i, weights, factors, 0)
    for k in range(1, count):
        _ask(tag, load1_i64(ahead, k) + later, _PAIR, far)
        first, second = _terms(tag, load1_i64(found, k), column + i, weights, factors, k)
        low, high = low + first, high + second
    return unsplit(tag, low, high)


@device
def _row(tag: Tag, row: int, i: int, weights: Weights, factors: int, k: int) -> Any:
    """Eight vectors of a row."""
    a0, a1 = _terms(tag, row, i, weights, factors, k)
    b0, b1 = _terms(tag, row, i + _PAIR, weights, factors, k)
    c0, c1 = _terms(tag, row, i + 2 * _PAIR, weights, factors, k)
    d0, d1 = _terms(tag, row, i + 3 * _PAIR, weights, factors, k)
    return a0, a1, b0, b1, c0, c1, d0, d1


@device
def _many_sums(given: Any, i: int) -> Any:
    """Eight vectors at once, for which there must be registers."""
    tag, found, weights, factors, count, column, ahead, ahead_column, far, asked = given
    later = (ahead_column + i) * itemsize(tag)
    if asked:
        _ask(tag, load1_i64(ahead, 0) + later, 4 * _PAIR, far)
    v = _row(tag, load1_i64(found, 0), column + i, weights, factors, 0)
    for k in range(1, count):
        if asked:
            _ask(tag, load1_i64(ahead, k) + later, 4 * _PAIR, far)
        w = _row(tag, load1_i64(found, k), column + i, weights, factors, k)
        v = v[0] + w[0], v[1] + w[1], v[2] + w[2], v[3] + w[3], v[4] + w[4], v[5] + w[5], v[6] + w[6], v[7] + w[7]
    return *unsplit(tag, v[0], v[1]), *unsplit(tag, v[2], v[3]), *unsplit(tag, v[4], v[5]), *unsplit(tag, v[6], v[7])


@device
def zero(given: None, i: int, m: int) -> Any:
    """What `sweep` computes to write zeros."""
    return splat(0.0)


@partitioned
def _add_rows(
    tag: Tag,
    p_rows: int,
    p_indices: int,
    weights: Weights,
    p_out: int,
    row_stride: int,
    column_step: int,
    index_stride: int,
    out_stride: int,
    out_step: int,
    rows: int,
    k: int,
    width: int,
    tile: int,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """Results [start, stop) where the columns of a row lie side by side. Steps are the strides of columns.

    A tile is at most BLOCK columns if those of the results do not lie side by side.
    """
    size, lists, halves, scratch = itemsize(tag), stack(_TWO_LISTS), stack(_LIST), stack(SCRATCH)
    near = rows * width * size < _NEAR
    far, asked = reads_ahead() and not near, not near or width * size < _PAGE
    many = many_registers() and (near or k <= _FEW)
    found, factors = lists + (start & 1) * _LIST, halves + (start & 1) * (_LIST // 2)
    count = _kept_rows(p_rows, row_stride, size, rows, p_indices, index_stride, weights, start, k, found, factors)
    for number in range(start, stop):
        found, factors = lists + (number & 1) * _LIST, halves + (number & 1) * (_LIST // 2)
        after, next_factors, next_count = lists + (~number & 1) * _LIST, halves + (~number & 1) * (_LIST // 2), 0
        if number + 1 < stop:
            next_count = _kept_rows(p_rows, row_stride, size, rows, p_indices, index_stride, weights, number + 1, k, after, next_factors)
        for column in range(0, width, tile):
            n = min(tile, width - column)
            place = row_address(p_out, number, out_stride, size) + column * out_step * size
            out = run_out(place, out_step, scratch)
            turn = column + tile >= width and number + 1 < stop
            ahead, ahead_column = (after, 0) if turn else (found, column + tile)
            given = tag, found, weights, factors, count, column, ahead, ahead_column, far, asked
            if count == 0:
                sweep(zero, None, tag, out, n, False)
            else:
                lines = stream and out_step == 1 and (out & 63 == 0 or n * size >= _LONG)
                sweep(_sum, given, tag, out, n, lines, _sums, None, _many_sums, many)
            unload(tag, place, out_step, n, scratch)
        count = next_count
    if stream:
        fence()


@partitioned
def _add_spread_rows(
    tag: Tag,
    p_rows: int,
    p_indices: int,
    weights: Weights,
    p_out: int,
    row_stride: int,
    column_step: int,
    index_stride: int,
    out_stride: int,
    out_step: int,
    rows: int,
    k: int,
    width: int,
    tile: int,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """The same for any column_step: tiles of rows are brought together one by one; a tile is at most BLOCK."""
    size, found, factors, scratch, total = itemsize(tag), stack(_LIST), stack(_LIST), stack(SCRATCH), stack(SCRATCH)
    for number in range(start, stop):
        count = _kept_rows(p_rows, row_stride, size, rows, p_indices, index_stride, weights, number, k, found, factors)
        for column in range(0, width, tile):
            n = min(tile, width - column)
            for i in range(0, n, LANES):
                store(F32, total, i, splat(-0.0 if count > 0 else 0.0))
            for j in range(count):
                row = run_in(tag, load1_i64(found, j) + column * column_step * size, column_step, n, scratch)
                for i in range(0, n, LANES):
                    term = load_tail(tag, row, i, min(LANES, n - i))
                    if weights is not None:
                        term = term * load1(F32, factors, j)
                    store(F32, total, i, load(F32, total, i) + term)
            place = row_address(p_out, number, out_stride, size) + column * out_step * size
            sweep(fetch, (F32, total, 1, AHEAD), tag, run_out(place, out_step, scratch), n, stream and out_step == 1)
            unload(tag, place, out_step, n, scratch)
    if stream:
        fence()


def _tile(k: int, width: int, size: int) -> int:
    """Columns of a tile: whole rows, or as many as the cache holds for this and the next, a multiple of 32."""
    return max(128, min(width, _CACHED // (k * size) // 32 * 32))


def sums_of_rows(program: Program, source: Operand, indices: Operand, weights: Operand | None, out: Operand, k: int) -> int:
    """Make out[t] the sum of the rows of source that indices[t * k + i] name; how many bytes of workspace are used.

    `weights` has k columns; k is at most MOST_ROWS.
    """
    (tensor, operand), (output, place), stream = source, out, streams(out[0])
    pitch, size = columns_at_once(tensor), tensor.dtype.itemsize
    if pitch == 0:
        _add(program, source, indices, weights, out, k, stream)
        return 0
    for first, count in turned(program, tensor, operand, program.workspace):
        rows = Tensor(0, tensor.dtype, (tensor.shape[0], count), (pitch, 1)), program.workspace
        some = Tensor(0, output.dtype, (output.shape[0], count), output.strides), place + first * output.strides[1] * size
        _add(program, rows, indices, weights, some, k, stream)
    return tensor.shape[0] * pitch * size


def _add(program: Program, source: Operand, indices: Operand, weights: Operand | None, out: Operand, k: int, stream: bool) -> None:
    """The same, with rows read where they lie."""
    tensor, output = source[0], out[0]
    (rows, width), tag = tensor.shape, tag_of(output.dtype.name)
    beside = tensor.strides[1] == 1 or width == 1
    weighted = None if weights is None else (None, weights[1], *weights[0].strides)
    weights_type = types.none if weights is None else types.Tuple((tag_of(weights[0].dtype.name), types.intp, types.intp, types.intp))
    arguments = types.intp, types.intp, weights_type, *(types.intp,) * 10, types.boolean
    entry = (_add_rows if beside else _add_spread_rows).for_types(tag, *arguments)
    strides = *tensor.strides, *indices[0].strides, *output.strides
    tile = _tile(k, width, output.dtype.itemsize) if beside and output.strides[1] == 1 else BLOCK
    results, grain = output.shape[0], max(1, GRAIN // max(1, k * width))
    operands = None, source[1], indices[1], weighted, out[1]
    program.add(entry, (*operands, *strides, rows, k, width, tile, stream), results, grain)
