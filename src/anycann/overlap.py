"""Which elements share memory: inside one tensor, and between two."""

import math
from typing import Any

import numpy as np

from anycann.buffers import memory
from anycann.tensor import Tensor

__all__ = ["between", "within"]

_TRIED = 1 << 24  # addresses that are listed to see whether one is there twice


def within(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements of one tensor have the same address. Exact, but for large entangled layouts: those count as sharing."""
    dims = sorted((abs(stride), size) for size, stride in zip(shape, strides, strict=True) if size > 1)
    if 0 in shape or not dims:
        return False
    reach = entangled = 0  # a stride beyond the reach of all smaller ones steps over them
    for position, (stride, size) in enumerate(dims, 1):
        if stride <= reach or stride == 0:
            entangled = position
        reach += stride * (size - 1)
    core = dims[:entangled]
    count = math.prod(size for _, size in core)
    if count > _TRIED or count > sum(stride * (size - 1) for stride, size in core) + 1:
        return True
    taken = np.zeros(1, np.int64)
    for stride, size in core:
        taken = np.unique(taken[:, None] + stride * np.arange(size))
    return taken.size < count


def between(a: Tensor, b: Tensor) -> bool:
    """Whether an element of a shares a byte with an element of b. Exact, but for entangled layouts that take too long to
    tell apart: those count as sharing.
    """
    if a.address == 0 or b.address == 0:  # to be set later
        return False
    (a_low, a_high), (b_low, b_high) = a.bytes_touched(), b.bytes_touched()
    if a_low >= b_high or b_low >= a_high:
        return False
    shares_memory: Any = np.shares_memory
    try:
        return bool(shares_memory(_bytes(a), _bytes(b), max_work=10_000))
    except np.exceptions.TooHardError:
        return True


def _bytes(tensor: Tensor) -> "np.ndarray[Any, Any]":
    return memory(tensor.start, tensor.shape, f"|V{tensor.dtype.itemsize}", tensor.byte_strides())
