"""NSA compression on the GPU: a program takes some windows in a row for one head and adds a run of 16 tokens at a time.

Tokens that several windows of a program share come from the first-level cache after the first. Sums start at -0.0, the one number that
changes no first term.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl

from anycann.backends.gpu import Placed, Start, cdiv, constant, jit, load, store, type_of
from anycann.bind import Call, Launch
from anycann.ops.nsa_compress.spec import RUN_W
from anycann.ops.windows import sequences

__all__ = ["plan"]

_THREADS = 128
_WIDEST = 256  # columns of a program
_RUN = tl.constexpr(RUN_W)


@jit
def _compress(
    p_x: tl.tensor,
    p_weight: tl.tensor,
    p_out: tl.tensor,
    p_firsts: tl.tensor,
    windows: tl.tensor,
    sizes: tl.tuple,
    x_strides: tl.tuple,
    weight_strides: tl.tuple,
    out_strides: tl.tuple,
    T: tl.constexpr,
    WINDOWS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    heads, width, block, parts = sizes
    part, head = tl.program_id(0) % parts, (tl.program_id(0) // parts % heads).to(tl.int64)
    window = (tl.program_id(0) // parts // heads).to(tl.int64) * WINDOWS + tl.arange(0, WINDOWS)  # [WINDOWS]
    d = part.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    there = window < windows
    m = there[:, None] & (d < width)[None, :]  # [WINDOWS, BLOCK]
    first = tl.load(p_firsts.to(tl.pointer_type(tl.int64)) + window, mask=there, other=0)
    o = (first * x_strides[0])[:, None] + (head * x_strides[1] + d * x_strides[2])[None, :]
    total = constant([WINDOWS, BLOCK], None, tl.float32)
    for start in range(0, block, _RUN):
        run = constant([WINDOWS, BLOCK], None, tl.float32)
        for w in tl.static_range(_RUN):
            at = tl.cast(start + w, tl.int64)
            weight = load(p_weight, at * weight_strides[0] + head * weight_strides[1], None, T, "")
            run = run + load(p_x, o + at * x_strides[0], m, T, "") * weight
        total = total + run
    store(p_out, window[:, None] * out_strides[0] + (head * out_strides[1] + d * out_strides[2])[None, :], total, m, T)


def _firsts(act_seq_len: tuple[int, ...] | None, tokens: int, block: int, stride: int) -> Any:
    """The first token of each window."""
    found = [np.empty(0, np.int64)]
    for origin, length in sequences(act_seq_len, tokens):
        found.append(np.arange(origin, origin + length - block + 1, stride, dtype=np.int64))
    return np.concatenate(found)


def plan(call: Call) -> tuple[int, Launch]:
    """Windows are independent; no workspace."""
    x, weight, out = call.tensors
    heads, width, block = call.axes["N"], call.axes["D"], call.axes["W"]
    firsts = Placed(_firsts(call.attrs["actSeqLenOptional"], call.axes["T"], block, call.attrs["compressStride"]), x.device)
    columns = min(_WIDEST, triton.next_power_of_2(width))
    windows, parts = max(1, _THREADS * 16 // x.dtype.itemsize // columns), cdiv(width, columns)
    count = out.shape[0]
    shape = count, (heads, width, block, parts), x.strides, weight.strides, out.strides
    start = Start(
        _compress, cdiv(count, windows) * heads * parts, x.device, _THREADS // 32, *shape, type_of(x.dtype.name), windows, columns
    )

    def run(addresses: Sequence[int], workspace: int) -> None:
        start(*addresses, firsts.address)

    return 0, run
