"""Rows, of the last axis, that lie side by side in memory, as those of transposed matrices do: copied so that each is one run.

For kernels that take rows in any order some columns of all of them are copied at a time; for others a box of some tokens and heads.
"""

from collections.abc import Iterator

from numba import types

from anycann.backends.cpu import apart, device
from anycann.backends.cpu_program import Place, Program
from anycann.backends.cpu_simd import LANES
from anycann.backends.cpu_system import reserve
from anycann.backends.cpu_threads import partitioned
from anycann.backends.cpu_tiles import transpose_tile, transposer
from anycann.backends.loops import LINE, lies_across
from anycann.tensor import Tensor

__all__ = ["begin_box", "box_in", "code_across", "columns_at_once", "rows_across", "turned"]

_TALL = 1 << 9  # bytes of neighbouring rows that are copied at once
_GRAIN = 1 << 15  # elements worth a thread
_HELD = 1 << 22  # bytes of the columns that are copied at a time, or a hundredth of the matrix if that is more


def rows_across(tensor: Tensor) -> bool:
    """Whether rows lie side by side, so that a line of memory has elements of several, and only one of each."""
    sizes = enumerate(tensor.shape[:-1])
    return any(size > 1 and lies_across(tensor.strides, d, tensor.dtype.itemsize) for d, size in sizes)


def columns_at_once(tensor: Tensor) -> int:
    """How many columns of a matrix are copied at a time: whole lines, or else whole vectors of each row, if there is room for them.

    0 for none: where rows do not lie side by side, or are too many.
    """
    (rows, width), size = tensor.shape, tensor.dtype.itemsize
    most = max(_HELD, rows * width * size // 100) // (rows * size) if rows_across(tensor) else 0
    unit = next((unit for unit in (LINE // size, LANES) if unit <= most), 1)
    return min(most // unit, -(-width // unit)) * unit


def code_across(tensor: Tensor) -> int:
    """A `transposer` where rows lie side by side, else 0."""
    return transposer() if rows_across(tensor) else 0


@device
def begin_box(code: int, size: int) -> tuple[int, int]:
    """Memory for boxes of so many bytes, to be given back, and where they begin: at a line. None without a code."""
    memory = reserve(size + LINE) if code != 0 else 0 * code
    return memory, memory + (-memory & LINE - 1)


@apart
def box_in(code: int, size: int, source: int, counts: tuple[int, ...], strides: tuple[int, ...], target: int) -> tuple[int, ...]:
    """Copy a box of tokens, heads and columns, where tokens or heads lie side by side, to rows one behind the other; its strides there.

    code: a `transposer`.
    """
    (tokens, heads, width), step = counts, strides[2] * size
    token_step, head_step, row = strides[0] * size, strides[1] * size, width * size
    if strides[1] == 1 and strides[0] == heads:
        transpose_tile(code, size, source, step, tokens * heads, width, target, row, source + tokens * token_step)
    elif strides[1] == 1:
        for token in range(tokens):
            place = source + token * token_step
            transpose_tile(code, size, place, step, heads, width, target + token * heads * row, row, place + token_step)
    else:
        for head in range(heads):
            place = source + head * head_step
            transpose_tile(code, size, place, step, tokens, width, target + head * row, heads * row, place + head_step)
    return heads * width, width, types.intp(1)


@partitioned
def _turn(code: int, size: int, source: int, step: int, rows: int, columns: int, target: int, pitch: int, start: int, stop: int) -> None:
    """Copy blocks [start, stop) of rows; columns begin `step` bytes apart, copied rows `pitch`."""
    tall = _TALL // size
    for first in range(start * tall, min(rows, stop * tall), tall):
        place = source + first * size
        transpose_tile(code, size, place, step, min(tall, rows - first), columns, target + first * pitch, pitch, place + _TALL)


def turned(program: Program, tensor: Tensor, operand: Place, target: Place) -> Iterator[tuple[int, int]]:
    """For some columns after the other: the program copies them; their first, and how many.

    There must be room for `columns_at_once` of each row, which is what copied rows are apart.
    """
    (rows, width), size, step = tensor.shape, tensor.dtype.itemsize, tensor.strides[1] * tensor.dtype.itemsize
    some, tall = columns_at_once(tensor), _TALL // size
    turn = _turn.for_types(*(types.intp,) * 8)
    for first in range(0, width, some):
        count = min(some, width - first)
        arguments = transposer(), size, operand + first * step, step, rows, count, target, some * size
        program.add(turn, arguments, -(-rows // tall), max(1, _GRAIN // (tall * count)))
        yield first, count
