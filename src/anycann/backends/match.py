"""Recognising a repeated call on NumPy arrays in one compiled step: same layouts as last time, outputs apart from inputs.

A call's arrays are passed as one tuple, by the address of its object; the fields of an array object (type, data, dimensions,
strides, dtype, flags) are read where the C interfaces of Python and NumPy fix them. What the arrays must look like is written
down, once per plan, as words of 64 bits: for each array its dtype object, rank, whether it must be writable, the bytes that it
spans before and after its first element, its dimensions and its strides in bytes.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import device, function
from anycann.backends.cpu_simd import load1_i32, load1_i64
from anycann.tensor import address_of, from_array

__all__ = ["ARRAYS", "matcher"]

ARRAYS = 8  # at most, inputs before outputs
_FEW = 4
_HEAD = object.__basicsize__
_TYPE = _HEAD - 8
_ITEMS = tuple.__basicsize__  # where the items of a tuple begin
_DATA, _RANK, _SHAPE, _STRIDES, _DTYPE, _FLAGS = (_HEAD + place for place in (0, 8, 16, 24, 40, 48))
_WRITABLE = 0x400
_START = 3  # words before those of the first array: the type of arrays, how many there are, how many are inputs
_FIXED = 5  # words of an array before its dimensions


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
def _data(words: int, items: int, i: int) -> int:
    return load1_i64(load1_i64(items, i) + _DATA, 0) if i < load1_i64(words, 1) else 0


@function(types.UniTuple(types.intp, _FEW))
def _match_few(words: int, given: int) -> Any:
    """The addresses of the first elements of the arrays in a tuple; the first is -1 where they are not those written down."""
    items = given + _ITEMS
    if not _matches(words, items):
        return (-1, 0, 0, 0)
    return (_data(words, items, 0), _data(words, items, 1), _data(words, items, 2), _data(words, items, 3))


@function(types.UniTuple(types.intp, ARRAYS))
def _match(words: int, given: int) -> Any:
    """The same for more arrays."""
    items = given + _ITEMS
    if not _matches(words, items):
        return (-1, 0, 0, 0, 0, 0, 0, 0)
    return (
        _data(words, items, 0), _data(words, items, 1), _data(words, items, 2), _data(words, items, 3),
        _data(words, items, 4), _data(words, items, 5), _data(words, items, 6), _data(words, items, 7),
    )  # fmt: skip


def matcher(arrays: Sequence[Any], inputs: int) -> Callable[[tuple[Any, ...]], tuple[int, ...] | None]:
    """A function of a tuple of as many objects: the addresses of their first elements if they look like these and may run at once.

    None if one is no NumPy array, a layout differs or an output spans memory of another array.
    """
    words = [id(np.ndarray), len(arrays), inputs]
    for place, array in enumerate(arrays):
        low, high = from_array(array, "array").layout().bytes_touched()
        words += [id(array.dtype), array.ndim, place >= inputs, low, high, *array.shape, *array.strides]
    written = np.array(words, np.int64)
    kept = [array.dtype for array in arrays]  # so that no other dtype takes an address that is written down
    where, count = address_of(written), len(arrays)
    entry = (_match_few if count <= _FEW else _match).for_types(types.intp, types.intp)

    def addresses(given: tuple[Any, ...], keep: object = (written, kept)) -> tuple[int, ...] | None:
        found: tuple[int, ...] = entry(where, id(given))
        return None if found[0] == -1 else found[:count]

    return addresses
