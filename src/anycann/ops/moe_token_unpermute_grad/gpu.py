"""A program takes an index (several, if rows are short): it writes the gradient of the row, and adds up its products with what that was.

Which of several indices that name a row decides is found without atomics. The first launch cuts the list of indices into up to 64
slices; the last index of a slice that names a row notes itself in the row's entry for that slice, the only one that may. Entries
that nobody wrote are recognised by the indices that they point to, so nothing is cleared before. In the second launch an index decides
if it is in the entry of its slice and no later slice names the row; further programs write zeros to rows that no slice names.

The 16 lanes of h, and so many runs of h, lie side by side; a thread reads 16 bytes of 4 or 8 lanes.
"""

from collections.abc import Sequence

import triton
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, constant, in_halves, in_order, jit, load, once, store, type_of
from anycann.bind import Call, Launch
from anycann.ops.moe_token_unpermute_grad.spec import LANES, RUN_H

__all__ = ["plan"]

_THREAD = 16  # bytes of a row that a thread reads at once
_RUNS = 32  # of a row side by side, at most
_SLICE = 512  # indices of a slice, at least, a multiple of _ENTRIES
_SLICES = 64  # at most, a power of two
_ENTRIES, _OTHERS = 8, 128  # of a step of the first launch
_ROWS = 4  # of a program that writes zeros
_LANES, _RUN = tl.constexpr(LANES), tl.constexpr(RUN_H)
_ZEROS = tl.constexpr(128)  # of a row at once
_AT_ONCE = tl.constexpr(8)  # columns a lane apart that are read before any is written


@jit
def _names(
    p_indices: tl.tensor,
    p_last: tl.tensor,
    stride: tl.tensor,
    entries: tl.tensor,
    rows: tl.tensor,
    size: tl.tensor,
    SLICES: tl.constexpr,
    ENTRIES: tl.constexpr,
    OTHERS: tl.constexpr,
) -> None:
    """For every row and slice of `size` indices the last index of the slice that names the row, from the slice's first on."""
    first = tl.program_id(0).to(tl.int64) * ENTRIES
    number = first // size
    begin = number * size
    indices, count = p_indices.to(tl.pointer_type(tl.int32)) + begin * stride, tl.minimum(entries - begin, size).to(tl.int32)
    own = (first - begin).to(tl.int32) + tl.arange(0, ENTRIES)  # [ENTRIES]
    row = tl.load(indices + own.to(tl.int64) * stride, mask=own < count, other=-1)
    later = tl.full([ENTRIES, OTHERS], 0, tl.int32)
    for start in range((first - begin).to(tl.int32), count, OTHERS):
        j = start + tl.arange(0, OTHERS)  # [OTHERS]
        other = tl.load(indices + j.to(tl.int64) * stride, mask=j < count, other=-1)
        later |= ((other[None, :] == row[:, None]) & (j[None, :] > own[:, None])).to(tl.int32)
    decides = (row >= 0) & (row < rows) & (tl.max(later, 1) == 0)
    tl.store(p_last.to(tl.pointer_type(tl.int32)) + row.to(tl.int64) * SLICES + number, own, mask=decides)


@jit
def _named(p_indices: tl.tensor, p_last: tl.tensor, row: tl.tensor, since: tl.tensor, listed: tl.tuple, SLICES: tl.constexpr) -> tl.tensor:
    """Whether slices from `since` on name rows."""
    stride, entries, size = listed
    number = tl.arange(0, SLICES)[None, :]
    last = tl.load(p_last.to(tl.pointer_type(tl.int32)) + row[:, None] * SLICES + number, mask=number >= since[:, None], other=-1)
    at = number.to(tl.int64) * size + last  # [rows, SLICES]
    there = (last >= 0) & (last < size) & (at < entries)
    name = tl.load(p_indices.to(tl.pointer_type(tl.int32)) + at * stride, mask=there, other=-1)
    return tl.max((name == row[:, None]).to(tl.int32), 1) > 0


@jit
def _zeros(
    p_indices: tl.tensor,
    p_last: tl.tensor,
    p_out: tl.tensor,
    block: tl.tensor,
    listed: tl.tuple,
    shape: tl.tuple,
    strides: tl.tuple,
    T: tl.constexpr,
    SLICES: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Rows of a block of ROWS that no index names."""
    rows, width, _ = shape
    row = block.to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    empty = (row < rows) & (_named(p_indices, p_last, row, tl.where(row < rows, 0, SLICES), listed, SLICES) == 0)
    if tl.max(empty.to(tl.int32), 0) > 0:
        for start in range(0, width, _ZEROS):
            column = start + tl.arange(0, _ZEROS)  # [128]
            o = row[:, None] * strides[0] + column.to(tl.int64)[None, :] * strides[1]
            store(p_out, o, tl.full([ROWS, _ZEROS], 0.0, tl.float32), empty[:, None] & (column < width)[None, :], T)


@jit
def _gradients(
    p_rows: tl.tensor,
    p_grad: tl.tensor,
    p_out: tl.tensor,
    row: tl.tensor,
    token: tl.tensor,
    weight: tl.tensor,
    kept: tl.tensor,
    decides: tl.tensor,
    width: tl.tensor,
    strides: tl.tuple,
    T: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BEGIN: tl.constexpr,
    ENTRIES: tl.constexpr,
    RUNS: tl.constexpr,
) -> tl.tensor:
    """Write the gradients of rows; the sums of their products in 16 lanes. All operands but strides and sizes are [ENTRIES, 1, 1]."""
    row_strides, grad_strides, out_strides = strides
    o_row, o_grad, o_out = row * row_strides[0], token * grad_strides[0], row * out_strides[0]
    total = constant([ENTRIES * _LANES], BEGIN, tl.float64)
    h = (tl.arange(0, RUNS)[:, None] * _RUN + tl.arange(0, _LANES)[None, :])[None, :, :].to(tl.int64)  # [1, RUNS, 16]
    for start in range(0, width, RUNS * _RUN):
        run = constant([ENTRIES, RUNS, _LANES], None, tl.float32)
        for part in range(0, _RUN, _AT_ONCE * _LANES):
            grads: tl.tuple = ()
            for j in tl.static_range(_AT_ONCE):
                column = h + (start + part + j * _LANES)
                m = kept & (column < width)  # [ENTRIES, RUNS, 16]
                grad = load(p_grad, o_grad + column * grad_strides[1], m, T, "")
                grads = grads + (grad,)
                if WEIGHTED:
                    product = grad * load(p_rows, o_row + column * row_strides[1], m, T, "evict_first")
                    run = run + tl.where(m, product, constant([], None, tl.float32))
            for j in tl.static_range(_AT_ONCE):
                column = h + (start + part + j * _LANES)
                grad = grads[j]
                if WEIGHTED:
                    grad = grad * weight
                store(p_out, o_out + column * out_strides[1], grad, decides & (column < width), T)
        if WEIGHTED:
            total = in_order(total, tl.reshape(tl.permute(run, (0, 2, 1)), [ENTRIES * _LANES, RUNS]), RUNS)
    return tl.reshape(total, [ENTRIES, _LANES])


@jit
def _copies(
    p_rows: tl.tensor,
    p_grad: tl.tensor,
    p_indices: tl.tensor,
    p_probs: tl.tensor,
    p_out: tl.tensor,
    p_probs_grad: tl.tensor,
    p_last: tl.tensor,
    blocks: tl.tensor,
    listed: tl.tuple,
    shape: tl.tuple,
    strides: tl.tuple,
    prob_strides: tl.tuple,
    prob_grad_strides: tl.tuple,
    T: tl.constexpr,
    T_PROBS: tl.constexpr,
    BEGIN: tl.constexpr,
    SLICES: tl.constexpr,
    ENTRIES: tl.constexpr,
    RUNS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """The first `blocks` programs take ENTRIES indices each, the others look for rows that none names."""
    stride, entries, size = listed
    rows, width, k = shape
    if tl.program_id(0) >= blocks:
        _zeros(p_indices, p_last, p_out, tl.program_id(0) - blocks, listed, shape, strides[2], T, SLICES, ROWS)
    else:
        entry = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)  # [ENTRIES]
        m, token, copy, number = entry < entries, entry // k, entry % k, (entry // size).to(tl.int32)
        row = tl.load(p_indices.to(tl.pointer_type(tl.int32)) + entry * stride, mask=m, other=-1).to(tl.int64)
        kept = (row >= 0) & (row < rows)
        last = tl.load(p_last.to(tl.pointer_type(tl.int32)) + row * SLICES + number, mask=kept, other=-1)
        later = _named(p_indices, p_last, row, tl.where(kept, number + 1, SLICES), listed, SLICES)
        decides = (last == entry - number.to(tl.int64) * size) & (later == 0)
        weight = entry
        if T_PROBS is not None:
            weight = load(p_probs, token * prob_strides[0] + copy * prob_strides[1], kept, T_PROBS, "")
        given = row[:, None, None], token[:, None, None], weight[:, None, None], kept[:, None, None], decides[:, None, None]
        lanes = _gradients(p_rows, p_grad, p_out, *given, width, strides, T, T_PROBS is not None, BEGIN, ENTRIES, RUNS)
        if T_PROBS is not None:
            total = once(tl.where(kept, in_halves(lanes, _LANES), 0.0), T_PROBS)
            store(p_probs_grad, token * prob_grad_strides[0] + copy * prob_grad_strides[1], total, m, T_PROBS)


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds for each row the last indices of the slices that name it, int32."""
    row_source, grad, indices, probs, out, probs_grad = call.tensors
    rows, k, width, entries = call.axes["R"], call.axes["K"], call.axes["H"], call.axes["L"]
    weighted, device, kind = call.get("probsOptional") is not None, out.device, type_of(out.dtype.name)
    (stride,) = indices.strides
    slices = min(_SLICES, triton.next_power_of_2(cdiv(max(entries, 1), _SLICE)))
    size = max(_SLICE, cdiv(cdiv(entries, slices), _ENTRIES) * _ENTRIES)
    runs = min(_RUNS, triton.next_power_of_2(cdiv(max(width, 1), RUN_H)))
    lines = 32 * _THREAD // out.dtype.itemsize // LANES  # of 16 columns, for one warp
    side, warps = max(1, lines // runs), max(1, runs // lines)
    blocks, nowhere = cdiv(entries, side), (0, 0)
    strides = row_source.strides if weighted else nowhere, grad.strides, out.strides
    of_probs = (probs.strides, probs_grad.strides) if weighted else (nowhere, nowhere)
    choices = kind, type_of(probs.dtype.name) if weighted else None, None if width else 0.0, slices, side, runs, _ROWS
    note = Start(_names, cdiv(entries, _ENTRIES), device, 4, stride, entries, rows, size, slices, _ENTRIES, _OTHERS)
    shape = blocks, (stride, entries, size), (rows, width, k), strides, *of_probs
    write = Start(_copies, blocks + cdiv(rows, _ROWS), device, warps, *shape, *choices)

    def run(addresses: Sequence[int], workspace: int) -> None:
        if entries:
            note(addresses[2], workspace)
        write(*addresses, workspace)

    return 4 * rows * slices, run
