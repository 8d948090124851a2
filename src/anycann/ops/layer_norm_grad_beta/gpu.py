"""Column sums on the GPU: a program adds the rows of one partial sum over a block of columns, a second launch adds the partial sums.

Several runs of rows are summed side by side in float32, and then added to the float64 sums one after the other.
"""

import dataclasses
from collections.abc import Sequence

import triton.language as tl

from anycann.backends.gpu import Start, cdiv, constant, in_order, jit, load, nest, offsets, once, store, sum_of_partials, type_of
from anycann.bind import Call, Launch
from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL
from anycann.tensor import Tensor

__all__ = ["plan"]

_BYTES = 256  # of a row in a program
_AT_ONCE = 8  # runs side by side
_ROWS, _RUNS = tl.constexpr(ROWS_PER_RUN), tl.constexpr(RUNS_PER_PARTIAL)
_COLUMNS = 32  # of a program that adds partial sums


@jit
def _partials(
    p_x: tl.tensor,
    p_dy: tl.tensor,
    p_sums: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    steps: tl.tuple,
    T: tl.constexpr,
    N: tl.constexpr,
    R: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    partial = (tl.program_id(0) // blocks).to(tl.int64)
    columns = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = columns < width
    o_x, o_dy = columns.to(tl.int64) * steps[0], columns.to(tl.int64) * steps[1]
    first = partial * (_ROWS * _RUNS)
    gamma = constant([BLOCK], None, tl.float64)
    beta = constant([BLOCK], None, tl.float64)
    for run in range(0, tl.minimum(tl.cdiv(rows - first, _ROWS), _RUNS).to(tl.int32), R):
        g = constant([R, BLOCK], None, tl.float32)
        b = constant([R, BLOCK], None, tl.float32)
        for j in tl.static_range(_ROWS):
            row = first + (run + tl.arange(0, R)) * _ROWS + j  # [R]
            there = (row < rows)[:, None] & m[None, :]  # [R, BLOCK]
            dy = load(p_dy, offsets(row, sizes, strides[1], N)[:, None] + o_dy[None, :], there, T, "evict_first")
            x = load(p_x, offsets(row, sizes, strides[0], N)[:, None] + o_x[None, :], there, T, "evict_first")
            g = g + tl.where(there, dy * x, constant([], None, tl.float32))
            b = b + dy
        gamma = in_order(gamma, tl.trans(g), R)
        beta = in_order(beta, tl.trans(b), R)
    o = partial * 2 * width + columns
    tl.store(p_sums.to(tl.pointer_type(tl.float64)) + o, gamma, mask=m)
    tl.store(p_sums.to(tl.pointer_type(tl.float64)) + o + width, beta, mask=m)


@jit
def _totals(
    p_sums: tl.tensor,
    p_gamma: tl.tensor,
    p_beta: tl.tensor,
    partials: tl.tensor,
    width: tl.tensor,
    steps: tl.tuple,
    FIRST: tl.constexpr,
    T: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    columns = (tl.program_id(0) // 2).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = columns < width
    which = tl.program_id(0) % 2
    total = once(sum_of_partials(p_sums, which * width + columns, 2 * width, partials, m, FIRST), T)
    if which == 0:
        store(p_gamma, columns * steps[0], total, m, T)
    else:
        store(p_beta, columns * steps[1], total, m, T)


def _rows_of(tensor: Tensor) -> Tensor:
    """The first elements of the rows."""
    return dataclasses.replace(tensor, shape=tensor.shape[:-1], strides=tensor.strides[:-1])


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the partial sums of gamma and beta in float64."""
    x, dy, gamma, beta = call.tensors
    width, rows = x.shape[-1], x.numel // max(x.shape[-1], 1)
    loops = nest([_rows_of(x), _rows_of(dy)], x.shape[:-1])
    columns, partials = _BYTES // x.dtype.itemsize, cdiv(rows, ROWS_PER_RUN * RUNS_PER_PARTIAL)
    blocks, kind = cdiv(width, columns), type_of(x.dtype.name)
    shape = rows, width, blocks, *loops, (x.strides[-1], dy.strides[-1]), kind, len(loops.sizes), _AT_ONCE, columns
    ends = partials, width, (gamma.strides[0], beta.strides[0]), None if partials else 0.0, kind, _COLUMNS
    add = Start(_partials, partials * blocks, x.device, 4, *shape)
    finish = Start(_totals, 2 * cdiv(width, _COLUMNS), x.device, 1, *ends)

    def run(addresses: Sequence[int], workspace: int) -> None:
        given, results = addresses[:2], addresses[2:]
        if partials:
            add(*given, workspace)
        finish(workspace, *results)

    return 16 * partials * width, run
