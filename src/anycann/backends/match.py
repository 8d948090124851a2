"""Recognising a repeated call on NumPy arrays in one compiled step: same layouts as last time, outputs apart from inputs.

A call's arrays are passed by the addresses of their objects; the fields of an array object (data, dimensions, strides,
dtype, flags) are read where NumPy's C interface fixes them. What the arrays must look like is written down, once per
plan, as words of 64 bits: for each array its dtype object, rank, whether it must be writable, the bytes that it spans
before and after its first element, its dimensions and its strides in bytes.
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
_HEAD = object.__basicsize__
_DATA, _RANK, _SHAPE, _STRIDES, _DTYPE, _FLAGS = 0, 8, 16, 24, 40, 48  # behind the object's head
_WRITABLE = 0x400
_FIXED = 5  # words of an array before its dimensions
Objects = types.UniTuple(types.intp, ARRAYS)


@device
def _differs(words: int, place: int, array: int) -> bool:
    rank = load1_i64(words, place + 1)
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
def _data(objects: Any, i: int, count: int) -> int:
    return load1_i64(objects[i] + _DATA, 0) if i < count else 0


@function(Objects)
def _match(words: int, a: int, b: int, c: int, d: int, e: int, f: int, g: int, h: int) -> Any:
    """The addresses of the arrays' first elements; the last is -1 where the call is not the one written down."""
    objects = (a + _HEAD, b + _HEAD, c + _HEAD, d + _HEAD, e + _HEAD, f + _HEAD, g + _HEAD, h + _HEAD)
    count, inputs = load1_i64(words, 0), load1_i64(words, 1)
    refused = (0, 0, 0, 0, 0, 0, 0, -1)
    place = 2
    for i in range(count):
        if _differs(words, place, objects[i]):
            return refused
        first = load1_i64(objects[i] + _DATA, 0)
        if i >= inputs:
            other = 2
            for j in range(i):
                there = load1_i64(objects[j] + _DATA, 0)
                low, high = first + load1_i64(words, place + 3), first + load1_i64(words, place + 4)
                if low < there + load1_i64(words, other + 4) and there + load1_i64(words, other + 3) < high:
                    return refused
                other += _FIXED + 2 * load1_i64(words, other + 1)
        place += _FIXED + 2 * load1_i64(words, place + 1)
    return (
        _data(objects, 0, count), _data(objects, 1, count), _data(objects, 2, count), _data(objects, 3, count),
        _data(objects, 4, count), _data(objects, 5, count), _data(objects, 6, count), _data(objects, 7, count),
    )  # fmt: skip


def matcher(arrays: Sequence[Any], inputs: int) -> Callable[[Sequence[Any]], tuple[int, ...] | None]:
    """A function of arrays: the addresses of their first elements if they look like these and may run at once.

    None if one is no NumPy array, a layout differs or an output spans memory of another array.
    """
    words = [len(arrays), inputs]
    for place, array in enumerate(arrays):
        low, high = from_array(array, "array").layout().bytes_touched()
        words += [id(array.dtype), array.ndim, place >= inputs, low, high, *array.shape, *array.strides]
    written = np.array(words, np.int64)
    kept = [array.dtype for array in arrays]  # so that no other dtype takes an address that is written down
    where, count = address_of(written), len(arrays)
    entry = _match.for_types(*(types.intp,) * (1 + ARRAYS))
    padding = (0,) * (ARRAYS - count)

    def addresses(given: Sequence[Any], keep: object = (written, kept)) -> tuple[int, ...] | None:
        for array in given:
            if type(array) is not np.ndarray:
                return None
        found: tuple[int, ...] = entry(where, *map(id, given), *padding)
        return None if found[-1] == -1 else found[:count]

    return addresses
