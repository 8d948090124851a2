"""GELU gradient on the CPU: one pass over blocks of the broadcast shape.

The factor d(self) comes from a table of all 65,536 inputs where self has 16 bits, else from the formulas in derivative.py. Where
gradOutput has another dtype than self, its blocks are converted to float32, which then is the dtype of the result, too.
"""

from collections.abc import Sequence
from typing import Any

from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import (
    LAYOUT,
    SCRATCH,
    SHORT,
    WALK_SCRATCH,
    Held,
    Operand,
    Walk,
    begin_walk,
    block_in,
    block_out,
    fetch,
    fetch_entries,
    flush,
    moved,
    paced,
    repeats,
    room,
    stack,
    sweep,
)
from anycann.backends.cpu_simd import F32, Tag, fence, tag_of
from anycann.backends.cpu_threads import parallel, partitioned
from anycann.bind import Call, Launch
from anycann.ops.gelu_backward_v2.derivative import derivative_none, derivative_tanh
from anycann.ops.gelu_backward_v2.tables import table

__all__ = ["plan"]

_GRAIN = 1 << 15  # elements worth a thread


@device
def _factor(x: Operand, i: int, m: int, p_table: int | None, tanh: bool | None) -> Any:
    """d(x); the arguments that are None choose the code at compile time."""
    if p_table is None:
        if tanh is None:
            return derivative_none(fetch(x, i, m))
        return derivative_tanh(fetch(x, i, m))
    return fetch_entries(x, p_table, i, m)


@device
def _gradient(given: Any, i: int, m: int) -> Any:
    grad, x, p_table, tanh = given
    return fetch(grad, i, m) * _factor(x, i, m, p_table, tanh)


@partitioned
def _gelu(
    tag: Tag,
    tag_x: Tag,
    p_grad: int,
    p_x: int,
    p_out: int,
    words: int,
    p_table: int | None,
    tanh: bool | None,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    l_grad, l_x, l_out = words, words + LAYOUT, words + 2 * LAYOUT
    s_grad, s_x, s_out = stack(WALK_SCRATCH), stack(WALK_SCRATCH), stack(SCRATCH)
    begin_walk(s_grad)
    begin_walk(s_x)
    flat = start
    while flat < stop:
        n = room(tag, l_grad, flat, room(tag_x, l_x, flat, room(tag, l_out, flat, stop - flat, SHORT), SHORT), SHORT)
        count = (stop - flat) // n
        d_out = d_grad = d_x = 0 * n
        if count > 1:
            count, d_out = repeats(tag, l_out, flat, n, count)
            count, d_grad = repeats(tag, l_grad, flat, n, count)
            count, d_x = repeats(tag_x, l_x, flat, n, count)
        b_grad = paced(block_in(tag, p_grad, l_grad, flat, n, s_grad), d_grad, n)
        b_x = paced(block_in(tag_x, p_x, l_x, flat, n, s_x), d_x, n)
        out = block_out(tag, p_out, l_out, flat, n, s_out)
        for k in range(count):
            given = moved(b_grad, k * d_grad), moved(b_x, k * d_x), p_table, tanh
            sweep(_gradient, given, tag, out + k * d_out, n, stream and out != s_out)
        flush(tag, p_out, l_out, flat, n, s_out, out)
        flat += count * n
    if stream:
        fence()


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output."""
    out, mode = call["gradInput"], call.attrs["approximate"]
    walk = Walk(call.tensors)
    stream = walk.stream
    tag_x, tag = tag_of(call["self"].dtype.name), tag_of(out.dtype.name)
    slopes = None if tag_x == F32 else Held(table(call["self"].dtype.name, mode))
    p_table, tanh = None if slopes is None else slopes.address, True if mode == "tanh" and tag_x == F32 else None
    choice = types.none if p_table is None else types.intp, types.none if tanh is None else types.boolean
    entry = _gelu.for_types(tag, tag_x, *(types.intp,) * 4, *choice, types.boolean)

    def run(places: Sequence[int], words: int, numel: int) -> None:
        p_table = None if slopes is None else slopes.address
        parallel(entry, (None, None, *places, words, p_table, tanh, stream), numel, _GRAIN)

    return 0, walk.launch(run)
