"""Walks: what element-wise kernels do, over all elements in whatever order is good, in blocks.

Blocks of one length that lie alike are set up once, and what comes next is asked for by the distance between them. A walk takes one to
three inputs, each a tuple (tag, address); the words are the layouts of the output and then of the inputs.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import types

from anycann.backends.cpu import by_tag, device
from anycann.backends.cpu_blocks import (
    AHEAD,
    LAYOUT,
    SCRATCH,
    SHORT,
    WALK_SCRATCH,
    Held,
    ask,
    ask_beside,
    begin_walk,
    block_in,
    block_out,
    end_walk,
    flush,
    following,
    layout,
    nest_of,
    repeats,
    room,
    stack,
    streams,
    sweep,
    words_of,
)
from anycann.backends.cpu_simd import Tag, fence, itemsize, reads_ahead
from anycann.backends.cpu_tiles import transposer
from anycann.backends.loops import LINE, Part, loops, parts
from anycann.dtypes import by_name
from anycann.tensor import Tensor

__all__ = ["ORDERED", "Walk", "in_order", "walk"]

Input: TypeAlias = tuple[Tag, int]

_LONG = 1 << 10  # bytes of a run of an output that bypasses the caches: its ends are parts of lines, which cost more than a line
_WHOLE = 1 << 8  # the same, of tiles whose runs begin at lines: they have no such ends
ORDERED = 1 << 16  # elements of a tile, at most, where the order is given
_TALL, _SOME = 256, 1 << 12  # of such a tile: bytes of neighbouring elements if it has many columns, elements in all if few


class Walk:
    """The parts of a walk over tensors that broadcast to the last one's shape, the output's.

    `stream`: its stores should bypass the caches.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        output, found = tensors[-1], parts(tensors, tensors[-1].shape)
        self._parts = []
        for part in found:
            starts = [start * tensor.dtype.itemsize for start, tensor in zip(part.starts, tensors, strict=True)]
            self._parts.append((starts, words_of(tensors, part, first=-1), math.prod(part.loops.sizes)))
        self.stream = streams(output) and all(_streams(part, output.dtype.itemsize) for part in found)

    def parts(self, operands: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], Held, int]]:
        """Of each part where its operands begin, given where they do, the layouts, and how many elements it has."""
        for starts, words, numel in self._parts:
            yield tuple([operand + start for operand, start in zip(operands, starts, strict=True)]), words, numel


def _streams(part: Part, itemsize: int) -> bool:
    """Whether the runs of an output are long enough to bypass the caches."""
    *jumps, step = part.loops.strides[-1]
    whole = part.tile[0] > 0 and all(jump * itemsize % LINE == 0 for jump in jumps)
    return step == 1 and part.loops.sizes[-1] * itemsize >= (_WHOLE if whole else _LONG)


def in_order(tensors: Sequence[Tensor], shape: Sequence[int], name: str) -> tuple[Held, bool]:
    """The words of a walk in the order of a shape over tensors that broadcast to it, and whether any of them goes by tiles.

    Its output, of the type with this name, lies one element behind the other.
    """
    numel, whole = math.prod(shape), loops(tensors, shape)
    words, tiled = [layout(by_name(name), (1,), (numel,))], False
    for tensor, steps in zip(tensors, whole.strides, strict=True):
        beside, below, columns = _tile(nest_of(steps, whole.sizes), tensor.dtype.itemsize)
        given = ((beside * below, columns), (transposer(), below, beside)) if beside > 0 else ()
        words.append(layout(tensor.dtype, steps, whole.sizes, *given))
        tiled = tiled or beside > 0
    return Held(np.array(words, np.int64)), tiled


def _tile(nest: Sequence[tuple[int, int]], itemsize: int) -> tuple[int, int, int]:
    """Tiles for loops that take another line at each step, while another row's elements lie beside; else zeros.

    That is how many rows that lie side by side, how many rows it is from each to the next, and columns.
    """
    loop = next((d for d in range(1, len(nest)) if nest[d][1] == 1), 0)
    if loop == 0 or abs(nest[0][1]) * itemsize < LINE:
        return 0, 0, 0
    columns, below, outer = max(1, nest[0][0]), max(1, math.prod(size for size, _ in nest[1:loop])), nest[loop][0]
    most = min(max(_TALL // itemsize, _SOME // columns), ORDERED // (columns * below))
    beside = max((rows for rows in range(1, most + 1) if outer % rows == 0), default=0)
    return (beside, below, columns) if beside * itemsize >= LINE // 2 else (0, 0, 0)


# What is done with an input, and what with None, which stands for one that there is not.


def _some_room(given: Any, words: int, flat: int, n: int) -> Any:
    return room(given[0], words, flat, n, SHORT)


def _no_room(given: Any, words: int, flat: int, n: int) -> Any:
    return n


@by_tag
def _room(given: Any, words: int, flat: int, n: int) -> Any:
    return _no_room if isinstance(given, types.NoneType) else _some_room


def _some_repeats(given: Any, words: int, flat: int, n: int, most: int) -> Any:
    return repeats(given[0], words, flat, n, most)


def _no_repeats(given: Any, words: int, flat: int, n: int, most: int) -> Any:
    return most, 0 * n


@by_tag
def _repeats(given: Any, words: int, flat: int, n: int, most: int) -> Any:
    return _no_repeats if isinstance(given, types.NoneType) else _some_repeats


def _some_block(given: Any, words: int, flat: int, n: int, scratch: int, distance: int, alone: bool) -> Any:
    tag, source, step, ahead = block_in(given[0], given[1], words, flat, n, scratch)
    otherwise = 0 * n if alone and reads_ahead() else ahead
    return tag, source, step, following(n * itemsize(tag), distance, AHEAD, otherwise)


def _no_block(given: Any, words: int, flat: int, n: int, scratch: int, distance: int, alone: bool) -> Any:
    return None


@by_tag
def _block(given: Any, words: int, flat: int, n: int, scratch: int, distance: int, alone: bool) -> Any:
    return _no_block if isinstance(given, types.NoneType) else _some_block


def _some_moved(block: Any, distance: int) -> Any:
    tag, address, step, ahead = block
    return tag, address + distance, step, ahead


def _none_moved(block: Any, distance: int) -> Any:
    return None


@by_tag
def _moved(block: Any, distance: int) -> Any:
    return _none_moved if isinstance(block, types.NoneType) else _some_moved


@device
def _ask(given: Any, i: int, k: int) -> None:
    """`ask` for all operands."""
    (first, second, third), _ = given
    if second is None:
        ask(first, i, k)
    else:
        ask_beside(first, i, k)
        ask_beside(second, i, k)
        ask_beside(third, i, k)


@device
def walk(
    compute: Callable[[Any, int, int], Any],
    rest: Any,
    inputs: tuple[Input, Input | None, Input | None],
    out: Input,
    words: int,
    stream: bool,
    start: int,
    stop: int,
    table: int | None = None,
) -> None:
    """Write elements [start, stop): compute((operands, rest), i, m) gives the m <= 16 of a block from i on, of three operands or None.

    table: what it looks up in, if it does; waiting for that keeps a CPU from reading ahead by itself.
    """
    (first, second, third), (tag, p_out), flat = inputs, out, start
    l_out, l_first, l_second, l_third = words, words + LAYOUT, words + 2 * LAYOUT, words + 3 * LAYOUT
    s_out, s_first, s_second, s_third = stack(SCRATCH), stack(WALK_SCRATCH), stack(WALK_SCRATCH), stack(WALK_SCRATCH)
    alone = second is not None and table is None
    begin_walk(s_first)
    begin_walk(s_second)
    begin_walk(s_third)
    while flat < stop:
        n = _room(third, l_third, flat, room(tag, l_out, flat, stop - flat, SHORT))
        n = _room(first, l_first, flat, _room(second, l_second, flat, n))
        count = (stop - flat) // n
        d_out = d_first = d_second = d_third = 0 * n
        if count > 1:
            count, d_out = repeats(tag, l_out, flat, n, count)
            count, d_first = _repeats(first, l_first, flat, n, count)
            count, d_second = _repeats(second, l_second, flat, n, count)
            count, d_third = _repeats(third, l_third, flat, n, count)
        b_first = _block(first, l_first, flat, n, s_first, d_first, alone)
        b_second = _block(second, l_second, flat, n, s_second, d_second, alone)
        b_third = _block(third, l_third, flat, n, s_third, d_third, alone)
        place = block_out(tag, p_out, l_out, flat, n, s_out)
        for k in range(count):
            operands = _moved(b_first, k * d_first), _moved(b_second, k * d_second), _moved(b_third, k * d_third)
            sweep(compute, (operands, rest), tag, place + k * d_out, n, stream and place != s_out, None, _ask)
        flush(tag, p_out, l_out, flat, n, s_out, place)
        flat += count * n
    end_walk(s_first)
    end_walk(s_second)
    end_walk(s_third)
    if stream:
        fence()
