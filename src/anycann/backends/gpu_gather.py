"""Sums and copies of rows that indices name: a program takes a block of columns of one result, or one row that is copied.

A row is copied in blocks of columns, one after the other, so that its places are found once; where there are too few rows to fill a GPU,
several programs share the blocks of a row, and all of them find the places.

Sums are those of cpu_gather.py; all gathers of a program are issued first. An index that is negative or not below the number of rows is
skipped, and so is a row whose weight is 0. The others are added in float32 in the order of their indices, starting from the first; a sum
of nothing is 0. Products with weights are rounded before they are added.
"""

import triton
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, constant, jit, load, store, type_of
from anycann.backends.gpu_sort import Tiles, place_of
from anycann.tensor import Tensor

__all__ = ["copies_of_rows", "sums_of_rows"]

_BYTES = 4096  # of a row in a program, at most
_THREAD = 16  # bytes of a row for each thread
_UNROLLED = 16  # rows that are gathered, or copies that are written, at once, at most, a power of two
_PROGRAMS = 2048  # that fill a GPU
_SEARCHES = 2  # of tiles for each thread, at once


@jit
def _add_rows(
    p_source: tl.tensor,
    p_indices: tl.tensor,
    p_weights: tl.tensor,
    p_out: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    k: tl.tensor,
    strides: tl.tuple,
    index_stride: tl.tensor,
    weight_strides: tl.tuple,
    out_strides: tl.tuple,
    T: tl.constexpr,
    T_WEIGHT: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    number = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m, o = columns < width, columns * strides[1]
    total = constant([BLOCK], None, tl.float32)
    some = 0  # kept rows
    for group in range(0, k, K):
        for j in tl.static_range(K):
            at, there = number * k + group + j, group + j < k
            index = tl.load(p_indices.to(tl.pointer_type(tl.int32)) + at * index_stride, mask=there, other=-1)
            kept = ((index >= 0) & (index < rows)).to(tl.int32)
            if T_WEIGHT is not None:
                weight = load(p_weights, number * weight_strides[0] + (group + j) * weight_strides[1], there, T_WEIGHT, "")
                kept = kept & (weight != 0.0).to(tl.int32)
            keep = m & (columns * 0 + kept > 0)  # [BLOCK]
            row = load(p_source, index.to(tl.int64) * strides[0] + o, keep, T, "")
            if T_WEIGHT is not None:
                row = tl.where(keep, row * weight, constant([], None, tl.float32))
            total += row
            some += kept
    total = tl.where(some > 0, total, 0.0)
    store(p_out, number * out_strides[0] + columns * out_strides[1], total, m, T)


@jit
def _copy_rows(
    p_source: tl.tensor,
    p_places: tl.tensor,
    p_out: tl.tensor,
    p_within: tl.tensor,
    p_sorted: tl.tensor,
    p_smaller: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    shares: tl.tensor,
    k: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    place_stride: tl.tensor,
    out_strides: tl.tuple,
    T: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    T_KEY: tl.constexpr,
    TILE: tl.constexpr,
    SMALL: tl.constexpr,
    AT_ONCE: tl.constexpr,
) -> None:
    number, share = (tl.program_id(0) // shares).to(tl.int64), tl.program_id(0) % shares
    for group in range(0, k, K):
        j = group + tl.arange(0, K)  # [K]
        at, m = number * k + j, j < k
        places = p_places.to(tl.pointer_type(tl.int32)) + at * place_stride
        if AT_ONCE > 0:
            place = place_of((p_within, p_sorted, p_smaller), at, m, sizes, T_KEY, TILE, SMALL, AT_ONCE)
            tl.store(places, place, mask=m & (j * 0 + share == 0))
        else:
            place = tl.load(places, mask=m, other=0)
        keep = (m & (place < rows))[:, None]
        o_out = place.to(tl.int64)[:, None] * out_strides[0]
        for block in range(share, blocks, shares):
            columns = tl.cast(block, tl.int64) * BLOCK + tl.arange(0, BLOCK)[None, :]  # [1, BLOCK]
            m_columns = columns < width
            row = tl.load(p_source.to(tl.pointer_type(T)) + number * strides[0] + columns * strides[1], mask=m_columns, other=0)
            p_copies = p_out.to(tl.pointer_type(T)) + o_out + columns * out_strides[1]  # [K, BLOCK]
            tl.store(p_copies, tl.broadcast_to(row, [K, BLOCK]), mask=keep & m_columns)


def _block(source: Tensor) -> tuple[int, int]:
    """Columns and warps of a program."""
    vector = _THREAD // source.dtype.itemsize
    block = min(_BYTES // source.dtype.itemsize, max(32 * vector, triton.next_power_of_2(source.shape[1])))
    return block, block // (32 * vector)


def copies_of_rows(source: Tensor, places: Tensor, out: Tensor, k: int, tiles: Tiles) -> Start:
    """A launch on the addresses of source, places, out and the tiles' parts: row t of source goes to some rows of out, if there are such.

    These are the places of the keys t * k + i. They are written, too, unless there is one tile: then they are read. Bits are copied as
    they are.
    """
    (number, width), (block, warps) = source.shape, _block(source)
    blocks, side = cdiv(width, block) if out.numel else 0, triton.next_power_of_2(min(k, _UNROLLED))
    shares = max(1, min(blocks, cdiv(_PROGRAMS, number)))
    shape = out.shape[0], width, blocks, shares, k, tiles.sizes, source.strides, places.strides[0], out.strides
    kind = tl.uint16 if source.dtype.itemsize == 2 else tl.uint32
    choices = kind, side, block, *tiles.choices, tiles.at_once(_SEARCHES * 32 * warps // side)
    return Start(_copy_rows, number * shares, source.device, warps, *shape, *choices)


def sums_of_rows(source: Tensor, indices: Tensor, weights: Tensor | None, out: Tensor, k: int) -> Start:
    """A launch on the addresses of source, indices, weights and out: out[t] is the sum of the rows that indices[t * k + i] name."""
    (rows, width), (block, warps) = source.shape, _block(source)
    blocks = cdiv(width, block)
    weight_strides, weight_type = ((None, None), None) if weights is None else (weights.strides, type_of(weights.dtype.name))
    shape = rows, width, blocks, k, source.strides, indices.strides[0], weight_strides, out.strides
    choices = type_of(source.dtype.name), weight_type, min(k, _UNROLLED), block
    return Start(_add_rows, out.shape[0] * blocks, source.device, warps, *shape, *choices)
