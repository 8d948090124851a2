"""Recognising a repeated call on NumPy arrays in one compiled step: same layouts as last time, outputs apart from inputs.

A call's arguments are passed as one tuple, by the address of its object; the fields of an array object (type, data, dimensions,
strides, dtype, flags) are read where the C interfaces of Python and NumPy fix them. What the arguments must be is written down, once
per plan, as words of 64 bits. For each array: its dtype object, rank, whether it must be writable, the bytes that it spans before and
after its first element, its place among the operands of the call and in the tuple, its dimensions and its strides in bytes. For each
attribute: its place in the tuple and the very object, or the type, the length and the items of a tuple or list.
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
from anycann.tensor import address_of

__all__ = ["ARRAYS", "Arrays", "Matcher", "Program"]

ARRAYS = 12  # at most, inputs before outputs
_FEW = 4
_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_DATA, _RANK, _SHAPE, _STRIDES, _DTYPE, _FLAGS = (_HEAD + place for place in (0, 8, 16, 24, 40, 48))
_WRITABLE = 0x400
_SIZE, _LIST = _HEAD, _HEAD + 8  # of a tuple or list, and where a list has the address of its items
_PLACES = 6  # words before the places of arrays: the types of arrays and of tuples, how many arrays, inputs and objects, the program
_START = _PLACES + ARRAYS  # words before those of the first array
_FIXED = 6  # words of an array before its dimensions
_ITEMS = 4  # words of an object before its items: its place, itself or its type, whether that is its type, its length
_DIFFERENT, _ALIKE, _OTHER_OBJECTS = 0, 1, -1  # what a comparison finds: other arrays, the same call, the same but for some objects


@device
def _array(words: int, items: int, i: int) -> int:
    """The object that should be an array."""
    address: int = load1_i64(items, load1_i64(words, _PLACES + i))
    return address


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
def _same(words: int, place: int, value: int) -> bool:
    """Whether a value is the object written down, or such a sequence of the same objects."""
    if load1_i64(words, place + 2) == 0:
        return bool(load1_i64(words, place + 1) == value)
    length = load1_i64(words, place + 3)
    if load1_i64(value + _TYPE, 0) != load1_i64(words, place + 1) or load1_i64(value + _SIZE, 0) != length:
        return False
    items = value + ITEMS if load1_i64(words, place + 1) == load1_i64(words, 1) else load1_i64(value + _LIST, 0)
    equal = 0
    for i in range(length):
        equal += load1_i64(items, i) == load1_i64(words, place + _ITEMS + i)
    return bool(equal == length)


@device
def _compared(words: int, items: int) -> int:
    """Whether the arguments that are listed at `items` are those written down, and no output spans memory of another array."""
    count, inputs = load1_i64(words, 2), load1_i64(words, 3)
    place = _START
    for i in range(count):
        array = _array(words, items, i)
        if _differs(words, place, array):
            return _DIFFERENT
        if i >= inputs:
            first, other = load1_i64(array + _DATA, 0), _START
            low, high = first + load1_i64(words, place + 3), first + load1_i64(words, place + 4)
            for j in range(i):
                there = load1_i64(_array(words, items, j) + _DATA, 0)
                if low < there + load1_i64(words, other + 4) and there + load1_i64(words, other + 3) < high:
                    return _DIFFERENT
                other += _FIXED + 2 * load1_i64(words, other + 1)
        place += _FIXED + 2 * load1_i64(words, place + 1)
    for _ in range(load1_i64(words, 4)):
        if not _same(words, place, load1_i64(items, load1_i64(words, place))):
            return _OTHER_OBJECTS
        place += _ITEMS + load1_i64(words, place + 3)
    return _ALIKE


@device
def _list(words: int, items: int, addresses: int) -> None:
    """Write the addresses of the first elements of arrays to their places."""
    place = _START
    for i in range(load1_i64(words, 2)):
        store1_i64(addresses, load1_i64(words, place + 5), load1_i64(_array(words, items, i) + _DATA, 0))
        place += _FIXED + 2 * load1_i64(words, place + 1)


@device
def _data(words: int, items: int, i: int) -> int:
    return load1_i64(_array(words, items, i) + _DATA, 0) if i < load1_i64(words, 2) else 0


@function(types.UniTuple(types.intp, _FEW))
def _find_few(words: int, given: int) -> Any:
    """The addresses of the first elements of the arrays in a tuple; the first is -1 where they are not those written down."""
    items = given + ITEMS
    if _compared(words, items) != _ALIKE:
        return (-1, 0, 0, 0)
    return (_data(words, items, 0), _data(words, items, 1), _data(words, items, 2), _data(words, items, 3))


@function(types.UniTuple(types.intp, ARRAYS))
def _find(words: int, given: int) -> Any:
    """The same for more arrays."""
    items = given + ITEMS
    if _compared(words, items) != _ALIKE:
        return (-1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    return (
        _data(words, items, 0), _data(words, items, 1), _data(words, items, 2), _data(words, items, 3),
        _data(words, items, 4), _data(words, items, 5), _data(words, items, 6), _data(words, items, 7),
        _data(words, items, 8), _data(words, items, 9), _data(words, items, 10), _data(words, items, 11),
    )  # fmt: skip


@function(types.intp)
def _run(words: int, given: int, workspace: int, pool: int, most: int, recent: int) -> int:
    """Run the program on the arrays of a call, if they are those written down; nothing happens if not."""
    items = given + ITEMS
    found = _compared(words, items)
    if found == _ALIKE:
        addresses, program = stack(ADDRESSES), load1_i64(words, 5)
        _list(words, items, addresses)
        store1_i64(addresses, load1_i64(program, 1) - 1, workspace)
        state = leave_python()
        perform(program, addresses, pool, most, recent)
        enter_python(state)
    return found


class Arrays:
    """Arrays at some places among the arguments of a call, inputs first, in words.

    `operands` are their numbers among the operands of the call, whose spans of bytes from their first elements are given.
    """

    def __init__(
        self, given: Sequence[Any], places: Sequence[int], inputs: int, operands: Sequence[int], spans: Sequence[tuple[int, int]]
    ) -> None:
        self.head = (len(places), inputs)
        self.places = [*places, *[0] * (ARRAYS - len(places))]
        self.words: list[int] = []
        self.kept: list[Any] = []  # so that no other object takes an address that is written down
        for i, (place, operand) in enumerate(zip(places, operands, strict=True)):
            array = given[place]
            self.words += (id(array.dtype), array.ndim, i >= inputs, *spans[operand], operand, *array.shape, *array.strides)
            self.kept.append(array.dtype)


class Matcher:
    """Knows a call by its arguments: arrays, and objects at other places that must be the very same.

    Objects are numbers, text, None, or tuples or lists of these.
    """

    def __init__(self, given: Sequence[Any], arrays: Arrays, objects: Sequence[int]) -> None:
        words = [id(np.ndarray), id(tuple), *arrays.head, len(objects), 0, *arrays.places, *arrays.words]
        self._kept: list[Any] = [arrays.kept]
        for place in objects:
            value = given[place]
            if isinstance(value, (tuple, list)):
                words += (place, id(type(value)), 1, len(value), *map(id, value))
                self._kept += value
            else:
                words += (place, id(value), 0, 0)
                self._kept.append(value)
        self._written, self._count = np.array(words, np.int64), arrays.head[0]
        self._words = address_of(self._written)
        self._find: Callable[[int, int], tuple[int, ...]] | None = None  # compiled when it is first used

    def addresses(self, given: tuple[Any, ...]) -> tuple[int, ...] | None:
        """The addresses of the first elements of the arrays of a call like this one that may run at once.

        None if one is no NumPy array, a layout differs or an output spans memory of another array.
        """
        find = self._find
        if find is None:
            self._find = find = (_find_few if self._count <= _FEW else _find).for_types(types.intp, types.intp)
        found = find(self._words, id(given))
        return None if found[0] == -1 else found[: self._count]

    def launch(self, program: Program) -> Callable[[tuple[Any, ...], int], int]:
        """A function of a call and the address of a workspace that runs a program if the call is like this one.

        It gives 1 if it did, 0 if it did not, and -1 if only objects were other ones, which may be equal.
        """
        self._written[5] = program.written().address
        words, helpers, wakes, entry = self._words, program.helpers, program.wakes, _run.for_types(*(types.intp,) * 6)

        def run(given: tuple[Any, ...], workspace: int, keep: object = (self, program)) -> int:
            found: int = entry(words, id(given), workspace, 0, 0, 0)
            return found

        def run_shared(given: tuple[Any, ...], workspace: int, keep: object = (self, program)) -> int:
            found: int = share(helpers, wakes, lambda pool, most, recent: entry(words, id(given), workspace, pool, most, recent))
            return found

        return run_shared if helpers else run
