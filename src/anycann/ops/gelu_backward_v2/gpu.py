"""GELU gradient on the GPU: one pass over the flat index of the output, with the tables and formulas of the CPU."""

from collections.abc import Sequence

import triton.language as tl

from anycann.backends.gpu import Start, cdiv, constants, jit, load, nest, offsets, read, store, type_of, wide
from anycann.bind import Call, Launch
from anycann.ops.gelu_backward_v2.slopes import derivative, packed
from anycann.ops.gelu_backward_v2.tables import table

__all__ = ["plan"]

_WARPS = 4
_BYTES = 4096  # of an operand in a program: two loads of 16 bytes for each thread


@jit
def _gelu(
    p_grad: tl.tensor,
    p_x: tl.tensor,
    p_out: tl.tensor,
    p_table: tl.tensor,
    numel: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    T_GRAD: tl.constexpr,
    T_X: tl.constexpr,
    T_OUT: tl.constexpr,
    N: tl.constexpr,
    TANH: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64 if WIDE else tl.int32) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = i < numel
    o = offsets(i, sizes, strides[1], N)
    if T_X == tl.float32:
        d = derivative(load(p_x, o, m, T_X, "evict_first"), p_table, TANH)
    else:
        entry = tl.load(p_x.to(tl.pointer_type(tl.uint16)) + o, mask=m, other=0)
        d = tl.load(p_table.to(tl.pointer_type(tl.float32)) + entry.to(tl.int32), mask=m, other=0.0)
    grad = read(p_grad, i, m, sizes, strides[0], N, T_GRAD)
    store(p_out, offsets(i, sizes, strides[2], N), grad * d, m, T_OUT)


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output."""
    out, mode, kind, device = call["gradInput"], call.attrs["approximate"], call["self"].dtype.name, call["self"].device
    numel, block = out.numel, _BYTES // out.dtype.itemsize
    loops, types = nest(call.tensors, out.shape, free=True), [type_of(tensor.dtype.name) for tensor in call.tensors]
    choices = *types, len(loops.sizes), mode == "tanh", wide(call.tensors, numel, block), block
    p_table = constants(f"gelu slopes {kind} {mode}", device, lambda: packed(mode) if kind == "float32" else table(kind, mode))
    start = Start(_gelu, cdiv(numel, block), device, _WARPS, numel, *loops, *choices)

    def run(addresses: Sequence[int], workspace: int) -> None:
        start(*addresses, p_table)

    return 0, run
