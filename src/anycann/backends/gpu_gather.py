"""Sums and copies of rows that indices name: a program takes a block of columns of one result, or of one row that is copied.

Sums are those of cpu_gather.py; all gathers of a program are issued first. An index that is negative or not below the number of rows is
skipped, and so is a row whose weight is 0. The others are added in float32 in the order of their indices, starting from the first; a sum
of nothing is 0. Products with weights are rounded before they are added.
"""

import triton
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, jit, load, store, type_of
from anycann.tensor import Tensor

__all__ = ["copies_of_rows", "sums_of_rows"]

_BYTES = 4096  # of a row in a program, at most
_THREAD = 16  # bytes of a row for each thread
_UNROLLED = 16  # rows that are gathered at once, at most


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
    total = tl.full([BLOCK], -0.0, tl.float32)
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
                row = tl.where(keep, row * weight, -0.0)
            total += row
            some += kept
    total = tl.where(some > 0, total, 0.0)
    store(p_out, number * out_strides[0] + columns * out_strides[1], total, m, T)


@jit
def _copy_rows(
    p_source: tl.tensor,
    p_places: tl.tensor,
    p_out: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    k: tl.tensor,
    strides: tl.tuple,
    place_stride: tl.tensor,
    out_strides: tl.tuple,
    T: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    number = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = columns < width
    row = tl.load(p_source.to(tl.pointer_type(T)) + number * strides[0] + columns * strides[1], mask=m, other=0)
    for group in range(0, k, K):
        places: tl.tuple = ()
        for j in tl.static_range(K):
            p_place = p_places.to(tl.pointer_type(tl.int32)) + (number * k + group + j) * place_stride
            places += (tl.load(p_place, mask=group + j < k, other=0x7FFFFFFF),)
        for j in tl.static_range(K):
            keep = m & (columns * 0 + places[j] < rows)
            tl.store(p_out.to(tl.pointer_type(T)) + places[j].to(tl.int64) * out_strides[0] + columns * out_strides[1], row, mask=keep)


def _block(source: Tensor) -> tuple[int, int]:
    """Columns and warps of a program."""
    vector = _THREAD // source.dtype.itemsize
    block = min(_BYTES // source.dtype.itemsize, max(32 * vector, triton.next_power_of_2(source.shape[1])))
    return block, block // (32 * vector)


def copies_of_rows(source: Tensor, places: Tensor, out: Tensor, k: int) -> Start:
    """A launch on the addresses of source, places and out: row t of source goes to the rows places[t * k + i] of out, if there are such.

    Bits are copied as they are; places are not negative.
    """
    (number, width), (block, warps) = source.shape, _block(source)
    blocks = cdiv(width, block)
    shape = out.shape[0], width, blocks, k, source.strides, places.strides[0], out.strides
    kind = tl.uint16 if source.dtype.itemsize == 2 else tl.uint32
    return Start(_copy_rows, number * blocks, source.device, warps, *shape, kind, min(k, _UNROLLED), block)


def sums_of_rows(source: Tensor, indices: Tensor, weights: Tensor | None, out: Tensor, k: int) -> Start:
    """A launch on the addresses of source, indices, weights and out: out[t] is the sum of the rows that indices[t * k + i] name."""
    (rows, width), (block, warps) = source.shape, _block(source)
    blocks = cdiv(width, block)
    weight_strides, weight_type = ((None, None), None) if weights is None else (weights.strides, type_of(weights.dtype.name))
    shape = rows, width, blocks, k, source.strides, indices.strides[0], weight_strides, out.strides
    choices = type_of(source.dtype.name), weight_type, min(k, _UNROLLED), block
    return Start(_add_rows, out.shape[0] * blocks, source.device, warps, *shape, *choices)
