"""Loops over operands that broadcast to one shape, and their order where it is free.

Operands that lie otherwise than the output are read in tiles: a line of memory has many elements, of which only one is in a row of the
output, and the line has long left the caches when the next row comes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anycann.tensor import Tensor

__all__ = ["LINE", "TILE", "Loops", "Part", "lies_across", "loops", "parts"]

TILE = 1 << 16  # bytes of a tile, at most
LINE = 64  # bytes
_ROWS, _COLUMNS = 512, 128  # of a tile: bytes of neighbouring elements, and how many of such columns


class Loops(NamedTuple):
    """Sizes, outermost first, and for each operand its strides, 0 where it is broadcast."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


class Part(NamedTuple):
    """Loops over a part of the operands, and where each operand's part begins, in elements from its first one.

    tile: rows and columns of the two innermost loops if they go by tiles; across: the operands whose columns lie side by side there.
    """

    loops: Loops
    starts: tuple[int, ...]
    across: tuple[bool, ...]
    tile: tuple[int, int] = (0, 0)


def loops(tensors: Sequence[Tensor], shape: Sequence[int], free: bool = False) -> Loops:
    """The loops over tensors that broadcast to a shape: no dimension of size 1, none that continues the one inside it in all of them.

    `free`: any order will do. It is that of the last tensor in memory.
    """
    padded = []
    for tensor in tensors:
        own = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)]
        padded.append([0] * (len(shape) - len(own)) + own)
    axes = [d for d in range(len(shape)) if shape[d] != 1]
    if free:
        axes.sort(key=lambda d: -abs(padded[-1][d]))
    sizes: list[int] = []
    found: list[tuple[int, ...]] = []
    for d in reversed(axes):
        steps = tuple([own[d] for own in padded])
        if found and steps == tuple([inner * sizes[-1] for inner in found[-1]]):
            sizes[-1] *= shape[d]
        else:
            sizes.append(shape[d])
            found.append(steps)
    if not sizes:
        sizes, found = [1], [(0,) * len(padded)]
    return Loops(tuple(reversed(sizes)), tuple(zip(*reversed(found), strict=True)))


def parts(tensors: Sequence[Tensor], shape: Sequence[int]) -> list[Part]:
    """Loops in any order over all elements: one nest of them, or several that go by tiles."""
    whole = loops(tensors, shape, free=True)
    itemsizes = [tensor.dtype.itemsize for tensor in tensors]
    across = _across(whole, itemsizes)
    if across is None or len(whole.sizes) > 6 or 0 in whole.sizes:
        return [Part(whole, (0,) * len(tensors), (False,) * len(tensors))]
    last, tall = len(whole.sizes) - 1, _ROWS // max(itemsizes)
    return [
        _tiled(whole, itemsizes, across, (row, rows, tall), (column, columns, _COLUMNS))
        for row, rows in _cut(whole.sizes[across], tall)
        for column, columns in _cut(whole.sizes[last], _COLUMNS)
    ]


def lies_across(steps: Sequence[int], d: int, itemsize: int) -> bool:
    """Whether an operand lies side by side along loop d, and takes another line at each step of the innermost loop."""
    return steps[d] == 1 and abs(steps[-1]) * itemsize >= LINE


def _across(whole: Loops, itemsizes: Sequence[int]) -> int | None:
    """The first loop along which an operand lies so."""
    pairs = list(zip(whole.strides, itemsizes, strict=True))
    return next((d for d in range(len(whole.sizes) - 1) if any(lies_across(steps, d, itemsize) for steps, itemsize in pairs)), None)


def _cut(size: int, tile: int) -> Iterator[tuple[int, int]]:
    """Begin and size of the part that tiles fill, and of the rest."""
    full = size - size % tile
    return ((begin, count) for begin, count in ((0, full), (full, size - full)) if count)


def _tiled(whole: Loops, itemsizes: Sequence[int], across: int, rows: tuple[int, int, int], columns: tuple[int, int, int]) -> Part:
    """The part that begin and size of two loops name, with tiles of them innermost."""
    last, cuts = len(whole.sizes) - 1, {across: rows, len(whole.sizes) - 1: columns}
    tile = min(rows[1], rows[2]), min(columns[1], columns[2])
    outer = [(d, size, 1) for d, size in enumerate(whole.sizes) if d not in cuts]
    outer += [(across, rows[1] // tile[0], tile[0]), (last, columns[1] // tile[1], tile[1])]
    kept = [*sorted((loop for loop in outer if loop[1] > 1), key=lambda loop: loop[0]), (across, tile[0], 1), (last, tile[1], 1)]
    strides = tuple([tuple([steps[d] * step for d, _, step in kept]) for steps in whole.strides])
    starts = tuple([steps[across] * rows[0] + steps[last] * columns[0] for steps in whole.strides])
    there = tuple([lies_across(steps, across, itemsize) for steps, itemsize in zip(whole.strides, itemsizes, strict=True)])
    return Part(Loops(tuple([size for _, size, _ in kept]), strides), starts, there, tile)
