"""Tiles of operands whose columns lie side by side in memory, copied to rows.

The code for it is long and seldom needed: it is compiled when a call needs it, and kernels find it by its address.
"""

from llvmlite import ir
from numba import types

from anycann.backends.cpu import kernel
from anycann.backends.cpu_llvm import I8, I32, I64, Emit, Value, operation
from anycann.backends.cpu_simd import F16, F32, LANES, copy1, prefetch_far, transpose

__all__ = ["transpose_tile", "transposer"]

_AHEAD = 64  # columns


@kernel
def _transpose_tile(size: int, source: int, step: int, rows: int, columns: int, target: int, pitch: int, other: int) -> None:
    whole_rows, whole_columns = rows - rows % LANES, columns - columns % LANES
    for j in range(0, whole_columns, LANES):
        for k in range(j + _AHEAD, j + _AHEAD + LANES):
            place = source + k * step if k < columns else other + (k - columns) * step
            for i in range(0, rows * size, 64):
                prefetch_far(place + i)
        for i in range(0, whole_rows, LANES):
            place = target + i * pitch + j * size
            if size == 2:
                transpose(F16, source + j * step + i * 2, step, place, pitch)
            else:
                transpose(F32, source + j * step + i * 4, step, place, pitch)
    for j in range(columns):
        for i in range(whole_rows if j < whole_columns else 0, rows):
            copy1(size, target + i * pitch, j, source + j * step, i)


def transposer() -> int:
    """The address of the code, which stays there."""
    return _transpose_tile.address(*(types.intp,) * 8)


@operation(types.void, *(types.intp,) * 9)
def transpose_tile(
    e: Emit, code: Value, size: Value, source: Value, step: Value, rows: Value, columns: Value, target: Value, pitch: Value, other: Value
) -> None:
    """Copy a tile whose columns lie side by side, `step` bytes apart, to rows that begin `pitch` bytes apart. code: a `transposer`.

    other: where a tile like it begins that is wanted next.
    """
    with e.b.goto_entry_block():
        nothing = e.b.alloca(I8.as_pointer())  # where it writes its result, None, and would write an error
    kind = ir.FunctionType(I32, [nothing.type, nothing.type, *(I64,) * 8])
    e.b.call(e.b.inttoptr(code, kind.as_pointer()), [nothing, nothing, size, source, step, rows, columns, target, pitch, other])
