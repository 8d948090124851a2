"""Smooth L1 gradient on the GPU: one pass over the flat index of the output; an operand of one element is read once a program."""

import math
from collections.abc import Sequence

import triton.language as tl

from anycann.backends.gpu import Start, cdiv, jit, nest, offsets, read, store, type_of, wide
from anycann.bind import Call, Launch, broadcast
from anycann.ops.smooth_l1_loss_backward.norm import reciprocal

__all__ = ["plan"]

_WARPS = 4
_BYTES = 4096  # of an operand in a program: two loads of 16 bytes for each thread


@jit
def _smooth_l1(
    p_grad: tl.tensor,
    p_self: tl.tensor,
    p_target: tl.tensor,
    p_out: tl.tensor,
    numel: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    beta: tl.tensor,
    norm: tl.tensor,
    T_GRAD: tl.constexpr,
    T_SELF: tl.constexpr,
    T_TARGET: tl.constexpr,
    T_OUT: tl.constexpr,
    N: tl.constexpr,
    SIGN: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64 if WIDE else tl.int32) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = i < numel
    x = read(p_self, i, m, sizes, strides[1], N, T_SELF) - read(p_target, i, m, sizes, strides[2], N, T_TARGET)
    sign = tl.where(x > 0, 1.0, tl.where(x < 0, -1.0, x))
    beta = tl.cast(beta, tl.float32)  # a subnormal one may come as float64
    if SIGN:
        d = tl.where(x == 0, 0.0, sign)
    else:
        d = tl.where(tl.abs(x) < beta, tl.math.div_rn(x, beta), sign)
    d = d * read(p_grad, i, m, sizes, strides[0], N, T_GRAD) * norm
    store(p_out, offsets(i, sizes, strides[3], N), d, m, T_OUT)


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output; `norm` is 1 where the reduction has none."""
    out, beta, device = call["gradInput"], call.attrs["beta"], call["self"].device
    count = math.prod(broadcast([call["self"].shape, call["target"].shape]) or ())
    norm = reciprocal(count) if call.attrs["reduction"] == 1 else 1.0
    numel, block = out.numel, _BYTES // out.dtype.itemsize
    loops, types = nest(call.tensors, out.shape, free=True), [type_of(tensor.dtype.name) for tensor in call.tensors]
    choices = *types, len(loops.sizes), beta == 0.0, wide(call.tensors, numel, block), block
    start = Start(_smooth_l1, cdiv(numel, block), device, _WARPS, numel, *loops, beta, norm, *choices)

    def run(addresses: Sequence[int], workspace: int) -> None:
        start(*addresses)

    return 0, run
