"""Gather and add on the GPU: a program sums the kept rows of a token over a block of columns; all its gathers are issued first."""

from collections.abc import Sequence

import triton
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, jit, load, store, type_of
from anycann.bind import Call, Launch

__all__ = ["plan"]

_BYTES = 4096  # of a row in a program, at most
_THREAD = 16  # bytes of a row for each thread
_UNROLLED = 16  # rows of a token that are gathered at once, at most


@jit
def _add_rows(
    p_grad: tl.tensor,
    p_indices: tl.tensor,
    p_out: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    blocks: tl.tensor,
    k: tl.tensor,
    grad_strides: tl.tuple,
    index_stride: tl.tensor,
    out_strides: tl.tuple,
    T: tl.constexpr,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    token = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m, o = columns < width, columns * grad_strides[1]
    total = tl.full([BLOCK], -0.0, tl.float32)
    some = 0  # kept rows
    for group in range(0, k, K):
        for j in tl.static_range(K):
            at = (token * k + group + j) * index_stride
            index = tl.load(p_indices.to(tl.pointer_type(tl.int32)) + at, mask=group + j < k, other=-1)
            kept = ((index >= 0) & (index < rows)).to(tl.int32)
            total += load(p_grad, index.to(tl.int64) * grad_strides[0] + o, m & (columns * 0 + kept > 0), T, "")
            some += kept
    total = tl.where(some > 0, total, 0.0)
    store(p_out, token * out_strides[0] + columns * out_strides[1], total, m, T)


def plan(call: Call) -> tuple[int, Launch]:
    """A program for each token and block of columns."""
    grad, indices, out = call.tensors
    (rows, width), k, tokens = grad.shape, call.attrs["numTopk"], out.shape[0]
    vector = _THREAD // grad.dtype.itemsize
    block = min(_BYTES // grad.dtype.itemsize, max(32 * vector, triton.next_power_of_2(width)))
    blocks, warps = cdiv(width, block), block // (32 * vector)
    shape = rows, width, blocks, k, grad.strides, indices.strides[0], out.strides
    choices = type_of(grad.dtype.name), min(k, _UNROLLED), block
    start = Start(_add_rows, tokens * blocks, grad.device, warps, *shape, *choices)

    def run(addresses: Sequence[int], workspace: int) -> None:
        start(*addresses)

    return 0, run
