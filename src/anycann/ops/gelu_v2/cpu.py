"""GELU on the CPU: one pass over blocks. 16-bit results come from a table of all 65,536, float32 ones from the formulas in value.py."""

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
from anycann.ops.gelu_v2.tables import table
from anycann.ops.gelu_v2.value import value_none, value_tanh

__all__ = ["plan"]

_GRAIN = 1 << 15  # elements worth a thread


@device
def _value(x: Operand, p_table: int | None, tanh: bool | None, i: int, m: int) -> Any:
    """y; the arguments that are None choose the code at compile time."""
    if p_table is None:
        if tanh is None:
            return value_none(fetch(x, i, m))
        return value_tanh(fetch(x, i, m))
    return fetch_entries(x, p_table, i, m)


@device
def _values(given: Any, i: int, m: int) -> Any:
    x, p_table, tanh = given
    return _value(x, p_table, tanh, i, m)


@partitioned
def _gelu(tag: Tag, p_x: int, p_out: int, words: int, p_table: int | None, tanh: bool | None, stream: bool, start: int, stop: int) -> None:
    l_x, l_out = words, words + LAYOUT
    s_x, s_out = stack(WALK_SCRATCH), stack(SCRATCH)
    begin_walk(s_x)
    flat = start
    while flat < stop:
        n = room(tag, l_x, flat, room(tag, l_out, flat, stop - flat, SHORT), SHORT)
        count = (stop - flat) // n
        d_out = d_x = 0 * n
        if count > 1:
            count, d_out = repeats(tag, l_out, flat, n, count)
            count, d_x = repeats(tag, l_x, flat, n, count)
        b_x = paced(block_in(tag, p_x, l_x, flat, n, s_x), d_x, n)
        out = block_out(tag, p_out, l_out, flat, n, s_out)
        for k in range(count):
            sweep(_values, (moved(b_x, k * d_x), p_table, tanh), tag, out + k * d_out, n, stream and out != s_out)
        flush(tag, p_out, l_out, flat, n, s_out, out)
        flat += count * n
    if stream:
        fence()


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output."""
    x = call["x"]
    mode, tag = call.attrs["approximate"], tag_of(x.dtype.name)
    walk = Walk(call.tensors)
    stream = walk.stream
    results = None if tag == F32 else Held(table(x.dtype.name, mode))
    tanh = True if mode == 1 and tag == F32 else None
    choice = types.none if results is None else types.intp, types.none if tanh is None else types.boolean
    entry = _gelu.for_types(tag, *(types.intp,) * 3, *choice, types.boolean)

    def run(places: Sequence[int], words: int, numel: int) -> None:
        p_table = None if results is None else results.address
        parallel(entry, (None, *places, words, p_table, tanh, stream), numel, _GRAIN)

    return 0, walk.launch(run)
