"""Gather and add on the CPU: each token adds its kept rows vector by vector in registers, one pass over tiles of columns.

While a tile is added, the same vectors of the next one are prefetched: further on in the same rows, or in the next token's.
"""

from collections.abc import Sequence
from typing import Any

from numba import types

from anycann.backends.cpu import device, kernel
from anycann.backends.cpu_blocks import BLOCK, SCRATCH, apart, fetch, run_in, run_out, stack, streams, sweep, unload
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    fence,
    itemsize,
    load,
    load1_i32,
    load1_i64,
    load_tail,
    prefetch,
    splat,
    store,
    store1_i64,
    tag_of,
)
from anycann.backends.threads import parallel
from anycann.bind import Call, Launch

__all__ = ["plan", "row_address"]

_MAX_K = 512
_LIST = 8 * _MAX_K  # bytes of a list of row addresses
_TWO_LISTS = 2 * _LIST
_CACHED = 1 << 18  # bytes of all rows of a token in a tile, at most
_GRAIN = 1 << 15  # elements worth a thread


@device
def row_address(base: int, index: int, stride: int, size: int) -> int:
    """Where a row begins; 64-bit, for an index of 32 bits times a stride may need more."""
    place: int = base + types.int64(index) * stride * size
    return place


@apart
def _kept_rows(base: int, stride: int, size: int, rows: int, indices: int, index_stride: int, first: int, k: int, found: int) -> int:
    """Write the addresses of a token's kept rows to a list, in order, and give their number; the list is filled up with `base`."""
    count = 0
    for i in range(first, first + k):
        index = load1_i32(indices, i * index_stride)
        if 0 <= index < rows:
            store1_i64(found, count, row_address(base, index, stride, size))
            count += 1
    for i in range(count, k):
        store1_i64(found, i, base)
    return count


@device
def _sum(given: Any, i: int, m: int) -> Any:
    tag, found, count, column, ahead, ahead_column = given
    total = load_tail(tag, load1_i64(found, 0), column + i, m)
    prefetch(load1_i64(ahead, 0) + (ahead_column + i) * itemsize(tag))
    for k in range(1, count):
        total = total + load_tail(tag, load1_i64(found, k), column + i, m)
        prefetch(load1_i64(ahead, k) + (ahead_column + i) * itemsize(tag))
    return total


@device
def _zero(given: None, i: int, m: int) -> Any:
    return splat(0.0)


@kernel
def _add_rows(
    tag: Tag,
    p_grad: int,
    p_indices: int,
    p_out: int,
    grad_stride: int,
    grad_step: int,
    index_stride: int,
    out_stride: int,
    out_step: int,
    rows: int,
    k: int,
    width: int,
    tile: int,
    start: int,
    stop: int,
    stream: bool,
) -> None:
    """Tokens [start, stop) where the columns of a row of grad lie side by side. Steps are the strides of columns.

    A tile is at most BLOCK columns if those of out do not lie side by side.
    """
    size, lists, scratch = itemsize(tag), stack(_TWO_LISTS), stack(SCRATCH)
    count = _kept_rows(p_grad, grad_stride, size, rows, p_indices, index_stride, start * k, k, lists + (start & 1) * _LIST)
    for token in range(start, stop):
        found, after, next_count = lists + (token & 1) * _LIST, lists + (~token & 1) * _LIST, 0
        if token + 1 < stop:
            next_count = _kept_rows(p_grad, grad_stride, size, rows, p_indices, index_stride, (token + 1) * k, k, after)
        for column in range(0, width, tile):
            n = min(tile, width - column)
            place = row_address(p_out, token, out_stride, size) + column * out_step * size
            out = run_out(place, out_step, scratch)
            if count == 0:
                sweep(_zero, None, tag, out, n, False)
            else:
                turn = column + tile >= width and token + 1 < stop
                ahead, ahead_column = (after, 0) if turn else (found, column + tile)
                sweep(_sum, (tag, found, count, column, ahead, ahead_column), tag, out, n, stream and out_step == 1)
            unload(tag, place, out_step, n, scratch)
        count = next_count
    if stream:
        fence()


@kernel
def _add_spread_rows(
    tag: Tag,
    p_grad: int,
    p_indices: int,
    p_out: int,
    grad_stride: int,
    grad_step: int,
    index_stride: int,
    out_stride: int,
    out_step: int,
    rows: int,
    k: int,
    width: int,
    tile: int,
    start: int,
    stop: int,
    stream: bool,
) -> None:
    """The same for any grad_step: tiles of rows are brought together one by one; a tile is at most BLOCK."""
    size, found, scratch, total = itemsize(tag), stack(_LIST), stack(SCRATCH), stack(SCRATCH)
    for token in range(start, stop):
        count = _kept_rows(p_grad, grad_stride, size, rows, p_indices, index_stride, token * k, k, found)
        for column in range(0, width, tile):
            n = min(tile, width - column)
            for i in range(0, n, LANES):
                store(F32, total, i, splat(-0.0 if count > 0 else 0.0))
            for j in range(count):
                row = run_in(tag, load1_i64(found, j) + column * grad_step * size, grad_step, n, scratch)
                for i in range(0, n, LANES):
                    store(F32, total, i, load(F32, total, i) + load_tail(tag, row, i, min(LANES, n - i)))
            place = row_address(p_out, token, out_stride, size) + column * out_step * size
            sweep(fetch, (F32, total, 1), tag, run_out(place, out_step, scratch), n, stream and out_step == 1)
            unload(tag, place, out_step, n, scratch)
    if stream:
        fence()


def _tile(k: int, width: int, size: int) -> int:
    """Columns of a tile: whole rows, or as many as the cache holds for this and the next, a multiple of 32."""
    return max(128, min(width, _CACHED // (k * size) // 32 * 32))


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; no workspace."""
    grad, indices, out = call.tensors
    rows, k, width, tag = call.axes["R"], call.attrs["numTopk"], call.axes["H"], tag_of(out.dtype.name)
    beside = grad.strides[1] == 1 or width == 1
    entry = (_add_rows if beside else _add_spread_rows).for_types(tag, *(types.intp,) * 14, types.boolean)
    strides, stream = (*grad.strides, *indices.strides, *out.strides), streams(out)
    tile = _tile(k, width, out.dtype.itemsize) if beside and out.strides[1] == 1 else BLOCK
    tokens = out.shape[0]

    def launch(addresses: Sequence[int], workspace: int) -> None:
        def piece(start: int, stop: int) -> None:
            entry(None, *addresses, *strides, rows, k, width, tile, start, stop, stream)

        parallel(piece, tokens, max(1, _GRAIN // (k * width)))

    return 0, launch
