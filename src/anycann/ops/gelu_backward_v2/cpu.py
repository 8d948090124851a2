"""GELU gradient on the CPU: one pass over blocks of the broadcast shape.

The factor d(self) comes from a table of all 65,536 inputs where self has 16 bits, else from the formulas in derivative.py. Where
gradOutput has another dtype than self, its blocks are converted to float32, which then is the dtype of the result, too.
"""

from typing import Any

from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import Held, fetch
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import F32, Tag, tag_of
from anycann.backends.cpu_tables import with_modes
from anycann.backends.cpu_threads import partitioned
from anycann.backends.cpu_walk import Walk, walk
from anycann.bind import Call, Launch
from anycann.ops.gelu_backward_v2.derivative import derivative_none, derivative_tanh
from anycann.ops.gelu_backward_v2.tables import table

__all__ = ["plan"]

_GRAIN = 1 << 15  # elements worth a thread


_factor = with_modes(derivative_none, derivative_tanh)


@device
def _gradient(given: Any, i: int, m: int) -> Any:
    (grad, x, _), (p_table, tanh) = given
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
    walk(_gradient, (p_table, tanh), ((tag, p_grad), (tag_x, p_x), None), (tag, p_out), words, stream, start, stop, p_table)


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output."""
    out, mode = call["gradInput"], call.attrs["approximate"]
    program, way = Program(call.tensors), Walk(call.tensors)
    tag_x, tag = tag_of(call["self"].dtype.name), tag_of(out.dtype.name)
    slopes = None if tag_x == F32 else Held(table(call["self"].dtype.name, mode))
    tanh = True if mode == "tanh" and tag_x == F32 else None
    choice = types.none if slopes is None else types.intp, types.none if tanh is None else types.boolean
    entry = _gelu.for_types(tag, tag_x, *(types.intp,) * 4, *choice, types.boolean)
    for places, words, numel in way.parts(program.operands):
        program.add(entry, (None, None, *places, words, slopes, tanh, way.stream), numel, _GRAIN)
    return 0, program
