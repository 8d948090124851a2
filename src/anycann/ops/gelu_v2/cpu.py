"""GELU on the CPU: one pass over blocks. 16-bit results come from a table of all 65,536, float32 ones from the formulas in value.py."""

from typing import Any

from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import Held
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import F32, Tag, tag_of
from anycann.backends.cpu_tables import with_modes
from anycann.backends.cpu_threads import partitioned
from anycann.backends.cpu_walk import Walk, walk
from anycann.bind import Call, Launch
from anycann.ops.gelu_v2.tables import table
from anycann.ops.gelu_v2.value import value_none, value_tanh

__all__ = ["plan"]

_GRAIN = 1 << 15  # elements worth a thread


_value = with_modes(value_none, value_tanh)


@device
def _values(given: Any, i: int, m: int) -> Any:
    (x, _, _), (p_table, tanh) = given
    return _value(x, i, m, p_table, tanh)


@partitioned
def _gelu(tag: Tag, p_x: int, p_out: int, words: int, p_table: int | None, tanh: bool | None, stream: bool, start: int, stop: int) -> None:
    walk(_values, (p_table, tanh), ((tag, p_x), None, None), (tag, p_out), words, stream, start, stop)


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output."""
    x = call["x"]
    mode, tag = call.attrs["approximate"], tag_of(x.dtype.name)
    program, way = Program(call.tensors), Walk(call.tensors)
    results = None if tag == F32 else Held(table(x.dtype.name, mode))
    tanh = True if mode == 1 and tag == F32 else None
    choice = types.none if results is None else types.intp, types.none if tanh is None else types.boolean
    entry = _gelu.for_types(tag, *(types.intp,) * 3, *choice, types.boolean)
    for places, words, numel in way.parts(program.operands):
        program.add(entry, (None, *places, words, results, tanh, way.stream), numel, _GRAIN)
    return 0, program
