"""Recognising a repeated call on NumPy arrays in one compiled step: same layouts as last time, outputs apart from inputs.

A call's arrays are passed as one tuple, by the address of its object; the fields of an array object (type, data, dimensions,
strides, dtype, flags) are read where the C interfaces of Python and NumPy fix them. What the arrays must look like is written
down, once per plan, as words of 64 bits: for each array its dtype object, rank, whether it must be writable, the bytes that it
spans before and after its first element, its place among the operands of the call, its dimensions and its strides in bytes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import device, function
from anycann.backends.cpu_blocks import stack
from anycann.backends.cpu_program import ADDRESSES, ITEMS, Program, perform
from anycann.backends.cpu_simd import load1_i32, load1_i64, store1_i64
from anycann.backends.cpu_system import enter_python, leave_python
from anycann.backends.cpu_threads import share
from anycann.tensor import address_of, from_array

__all__ = ["ARRAYS", "Matcher", "Program"]

ARRAYS = 12  # at most, inputs before outputs
_FEW = 4
_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_DATA, _RANK, _SHAPE, _STRIDES, _DTYPE, _FLAGS = (_HEAD + place for place in (0, 8, 16, 24, 40, 48))
_WRITABLE = 0x400
_START = 3  # words before those of the first array: the type of arrays, how many there are, how many are inputs
_FIXED = 6  # words of an array before its dimensions


@device
def _differs(words: int, place: int, array: int) -> bool:
    rank = load1_i64(words, place + 1)
    if load1_i64(array + _TYPE, 0) != load1_i64(words, 0):
        return True
    if load1_i64(array + _DTYPE, 0) != load1_i64(words, place) or load1_i32(array + _RANK, 0) != rank:
        return True
    if load1_i64(words, place + 2) and not load1_i32(array + _FLAGS, 0) & _WRITABLE:
        return True
    shape, strides = load1_i64(array + _SHAPE, 0), load1_i64(array + _STRIDES, 0)
    for d in range(rank):
        here = place + _FIXED + d
        if load1_i64(shape, d) != load1_i64(words, here) or load1_i64(strides, d) != load1_i64(words, here + rank):
            return True
    return False


@device
def _matches(words: int, items: int) -> bool:
    """Whether the arrays that are listed at `items` are those written down, and no output spans memory of another."""
    count, inputs = load1_i64(words, 1), load1_i64(words, 2)
    place = _START
    for i in range(count):
        array = load1_i64(items, i)
        if _differs(words, place, array):
            return False
        if i >= inputs:
            first, other = load1_i64(array + _DATA, 0), _START
            low, high = first + load1_i64(words, place + 3), first + load1_i64(words, place + 4)
            for j in range(i):
                there = load1_i64(load1_i64(items, j) + _DATA, 0)
                if low < there + load1_i64(words, other + 4) and there + load1_i64(words, other + 3) < high:
                    return False
                other += _FIXED + 2 * load1_i64(words, other + 1)
        place += _FIXED + 2 * load1_i64(words, place + 1)
    return True


@device
def _list(words: int, items: int, addresses: int) -> None:
    """Write the addresses of the first elements of arrays to their places."""
    place = _START
    for i in range(load1_i64(words, 1)):
        store1_i64(addresses, load1_i64(words, place + 5), load1_i64(load1_i64(items, i) + _DATA, 0))
        place += _FIXED + 2 * load1_i64(words, place + 1)


@device
def _data(words: int, items: int, i: int) -> int:
    return load1_i64(load1_i64(items, i) + _DATA, 0) if i < load1_i64(words, 1) else 0


@function(types.UniTuple(types.intp, _FEW))
def _find_few(words: int, given: int) -> Any:
    """The addresses of the first elements of the arrays in a tuple; the first is -1 where they are not those written down."""
    items = given + ITEMS
    if not _matches(words, items):
        return (-1, 0, 0, 0)
    return (_data(words, items, 0), _data(words, items, 1), _data(words, items, 2), _data(words, items, 3))


@function(types.UniTuple(types.intp, ARRAYS))
def _find(words: int, given: int) -> Any:
    """The same for more arrays."""
    items = given + ITEMS
    if not _matches(words, items):
        return (-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return (
        _data(words, items, 0), _data(words, items, 1), _data(words, items, 2), _data(words, items, 3),
        _data(words, items, 4), _data(words, items, 5), _data(words, items, 6), _data(words, items, 7),
        _data(words, items, 8), _data(words, items, 9), _data(words, items, 10), _data(words, items, 11),
    )  # fmt: skip


@function(types.boolean)
def _run(words: int, given: int, program: int, workspace: int, pool: int, most: int, recent: int) -> bool:
    """Run a program on the arrays in a tuple, and whether they were those written down; nothing happens if not."""
    items = given + ITEMS
    if not _matches(words, items):
        return False
    addresses = stack(ADDRESSES)
    _list(words, items, addresses)
    store1_i64(addresses, load1_i64(program, 1) - 1, workspace)
    state = leave_python()
    perform(program, addresses, pool, most, recent)
    enter_python(state)
    return True


class Matcher:
    """Knows the arrays of a call by their headers: `places` are their numbers among the operands of the call, inputs come first."""

    def __init__(self, arrays: Sequence[Any], inputs: int, places: Sequence[int]) -> None:
        words = [id(np.ndarray), len(arrays), inputs]
        for i, (array, place) in enumerate(zip(arrays, places, strict=True)):
            low, high = from_array(array, "array").layout().bytes_touched()
            words += [id(array.dtype), array.ndim, i >= inputs, low, high, place, *array.shape, *array.strides]
        self._written = np.array(words, np.int64)
        self._kept = [array.dtype for array in arrays]  # so that no other dtype takes an address that is written down
        self._words, self._count = address_of(self._written), len(arrays)
        self._find = (_find_few if len(arrays) <= _FEW else _find).for_types(types.intp, types.intp)

    def addresses(self, given: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The addresses of the first elements of objects that look like these and may run at once.

        None if one is no NumPy array, a layout differs or an output spans memory of another array.
        """
        found: tuple[int, ...] = self._find(self._words, id(given))
        return None if found[0] == -1 else found[: self._count]

    def launch(self, program: Program) -> Callable[[tuple[Any, ...], int], bool]:
        """A function of such objects and of the address of a workspace that runs a program on them; False if it ran nothing."""
        words, start, helpers, wakes = self._words, program.written().address, program.helpers, program.wakes
        entry = _run.for_types(*(types.intp,) * 7)

        def run(given: tuple[Any, ...], workspace: int, keep: object = (self, program)) -> bool:
            done: bool = entry(words, id(given), start, workspace, 0, 0, 0)
            return done

        def run_shared(given: tuple[Any, ...], workspace: int, keep: object = (self, program)) -> bool:
            done: bool = share(helpers, wakes, lambda pool, most, recent: entry(words, id(given), start, workspace, pool, most, recent))
            return done

        return run_shared if helpers else run
