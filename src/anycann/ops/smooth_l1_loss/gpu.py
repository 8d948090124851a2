"""Smooth L1 loss on the GPU: one pass over the flat index of the broadcast shape.

Where 1 / beta is exact the division is a multiplication by it, which rounds to the same number.

For mean and sum a program makes several partial sums side by side, reading 64 consecutive elements of each at a time; a second launch
of one program adds those of a group on each thread, then the groups one after the other.
"""

import math
from collections.abc import Sequence

import numpy as np
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, in_halves, in_order, jit, nest, offsets, once, read, store, type_of, wide
from anycann.bind import Call, Launch, broadcast
from anycann.ops.quotient import exact_inverse
from anycann.ops.smooth_l1_loss.spec import ELEMENTS_PER_PARTIAL, PARTIALS_PER_GROUP, SUMS_PER_PARTIAL

__all__ = ["plan"]

_WARPS = 4
_BYTES = 4096  # of an operand in a program without sums: two loads of 16 bytes for each thread
_LOAD = 2048  # bytes that a program with sums reads of an operand at a time: a load of 16 bytes for each thread
_ELEMENTS, _SUMS = tl.constexpr(ELEMENTS_PER_PARTIAL), tl.constexpr(SUMS_PER_PARTIAL)
_UNROLLED = tl.constexpr(4)  # such loads are in flight together
_PARTIALS = tl.constexpr(PARTIALS_PER_GROUP)
_AT_ONCE = tl.constexpr(16)  # partial sums that a thread reads together
_GROUPS = tl.constexpr(32)  # one for each thread


@jit
def _losses(
    p_self: tl.tensor,
    p_target: tl.tensor,
    i: tl.tensor,
    m: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    betas: tl.tuple,
    T_SELF: tl.constexpr,
    T_TARGET: tl.constexpr,
    N: tl.constexpr,
) -> tl.tensor:
    x = read(p_self, i, m, sizes, strides[0], N, T_SELF) - read(p_target, i, m, sizes, strides[1], N, T_TARGET)
    beta, half, inverse = tl.cast(betas[0], tl.float32), tl.cast(betas[1], tl.float32), betas[2]  # subnormal ones may come as float64
    if inverse is None:
        quotient = tl.math.div_rn(x, beta)
    else:
        quotient = x * inverse
    size = tl.abs(x)
    return tl.where(size < beta, (x * 0.5) * quotient, size - half)


@jit
def _smooth_l1(
    p_self: tl.tensor,
    p_target: tl.tensor,
    p_out: tl.tensor,
    numel: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    betas: tl.tuple,
    T_SELF: tl.constexpr,
    T_TARGET: tl.constexpr,
    T_OUT: tl.constexpr,
    N: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64 if WIDE else tl.int32) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = i < numel
    losses = _losses(p_self, p_target, i, m, sizes, strides, betas, T_SELF, T_TARGET, N)
    store(p_out, offsets(i, sizes, strides[2], N), losses, m, T_OUT)


@jit
def _partials(
    p_self: tl.tensor,
    p_target: tl.tensor,
    p_sums: tl.tensor,
    numel: tl.tensor,
    partials: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    betas: tl.tuple,
    T_SELF: tl.constexpr,
    T_TARGET: tl.constexpr,
    N: tl.constexpr,
    WIDE: tl.constexpr,
    P: tl.constexpr,
) -> None:
    partial = tl.program_id(0).to(tl.int64 if WIDE else tl.int32) * P + tl.arange(0, P)  # [P]
    first = partial[:, None] * _ELEMENTS + tl.arange(0, _SUMS)[None, :]  # [P, 64]
    sums = tl.full([P, _SUMS], 0.0, tl.float64)
    for start in range(0, _ELEMENTS, _UNROLLED * _SUMS):
        for j in tl.static_range(_UNROLLED):
            i = first + (start + j * _SUMS)
            losses = _losses(p_self, p_target, i, i < numel, sizes, strides, betas, T_SELF, T_TARGET, N)
            sums += tl.where(i < numel, losses, 0.0).to(tl.float64)
    tl.store(p_sums.to(tl.pointer_type(tl.float64)) + partial, in_halves(sums, _SUMS), mask=partial < partials)


@jit
def _total(p_sums: tl.tensor, p_out: tl.tensor, partials: tl.tensor, numel: tl.tensor, T: tl.constexpr, MEAN: tl.constexpr) -> None:
    total = tl.full([1], 0.0, tl.float64)
    sums = p_sums.to(tl.pointer_type(tl.float64))
    for start in range(0, partials, _GROUPS * _PARTIALS):
        first = tl.cast(start, tl.int64) + tl.arange(0, _GROUPS) * _PARTIALS  # [GROUPS]
        groups = tl.full([_GROUPS], 0.0, tl.float64)
        for step in range(0, _PARTIALS, _AT_ONCE):
            for j in tl.static_range(_AT_ONCE):
                partial = first + (step + j)
                groups += tl.load(sums + partial, mask=partial < partials, other=0.0)
        total = in_order(total, tl.reshape(groups, [1, _GROUPS]), _GROUPS)
    if MEAN:
        total = total / tl.cast(numel, tl.float64)
    store(p_out, tl.arange(0, 1), once(total, T), None, T)


def plan(call: Call) -> tuple[int, Launch]:
    """For mean and sum, the workspace holds the partial sums in float64."""
    *operands, out = call.tensors
    reduction, beta, device = call.attrs["reduction"], call.attrs["beta"], out.device
    shape = broadcast([tensor.shape for tensor in operands]) or ()
    betas = beta, float(np.float32(beta * 0.5)), exact_inverse(beta)
    numel, kind, types = math.prod(shape), type_of(out.dtype.name), [type_of(tensor.dtype.name) for tensor in operands]
    if reduction == 0:
        loops, block = nest(call.tensors, shape, free=True), _BYTES // out.dtype.itemsize
        choices = *types, kind, len(loops.sizes), wide(call.tensors, numel, block), block
        start = Start(_smooth_l1, cdiv(numel, block), device, _WARPS, numel, *loops, betas, *choices)

        def run(addresses: Sequence[int], workspace: int) -> None:
            start(*addresses)

        return 0, run

    loops, partials = nest(operands, shape), cdiv(numel, ELEMENTS_PER_PARTIAL)
    side = _LOAD // max(tensor.dtype.itemsize for tensor in operands) // SUMS_PER_PARTIAL
    block = side * ELEMENTS_PER_PARTIAL
    sizes = *types, len(loops.sizes), wide(operands, numel, block), side
    add = Start(_partials, cdiv(numel, block), device, _WARPS, numel, partials, *loops, betas, *sizes)
    finish = Start(_total, 1, device, 1, partials, numel, kind, reduction == 1)

    def run_sum(addresses: Sequence[int], workspace: int) -> None:
        p_self, p_target, p_out = addresses
        if partials:
            add(p_self, p_target, workspace)
        finish(workspace, p_out)

    return 8 * partials, run_sum
