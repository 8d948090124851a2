"""Views of memory by its address; and memory for large results: what dropped ones gave back, without paying for fresh pages.

A page that a process touches for the first time costs more than a kernel's work on it. Results of at least POOLED_FROM
bytes therefore come from blocks that earlier, dropped results have returned. At most the number of bytes in the variable
ANYCANN_BUFFER_POOL (default 1 GiB, or an eighth of the memory if that is less; 0 turns the pool off) is kept unused.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from anycann.errors import SettingError
from anycann.locks import shared

__all__ = ["empty", "memory", "pool_limit", "release_buffers"]

POOLED_FROM = 1 << 20
PAGE = 4096  # results begin at a page: kernels write whole lines, none of them a little before a load modulo a page, which CPUs mistake


def pool_limit() -> int:
    """Bytes that are kept unused, at most. SettingError where ANYCANN_BUFFER_POOL is no number."""
    text = os.environ.get("ANYCANN_BUFFER_POOL", "").strip()
    if text:
        if not text.isdecimal():
            raise SettingError(f"ANYCANN_BUFFER_POOL must be a number of bytes; got {text!r}")
        return int(text)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30
    return min(1 << 30, memory // 8)


class _Pool:
    """Unused blocks, the oldest first. Dropping an array may run `give` anywhere."""

    def __init__(self) -> None:
        self.free: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
        self.kept = 0
        self.limit: int | None = None

    def enabled(self) -> bool:
        if self.limit is None:
            self.limit = pool_limit()
        return self.limit > 0

    def take(self, size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
        with shared:
            for place in reversed(range(len(self.free))):
                if self.free[place].size == size:
                    self.kept -= size
                    return self.free.pop(place)
        return np.empty(size, np.uint8)

    def give(
        self, block: "np.ndarray[Any, np.dtype[np.uint8]]", lock: Any = shared, ending: Callable[[], bool] = sys.is_finalizing
    ) -> None:  # globals may be gone at exit
        if ending():
            return  # a thread may have the lock that does not run any more
        with lock:  # which no exception of a signal's handler can leave taken
            self.free.append(block)
            self.kept += block.size
            while self.kept > (self.limit or 0):
                self.kept -= self.free.pop(0).size

    def clear(self) -> None:
        with shared:
            self.free.clear()
            self.kept = 0


_pool = _Pool()


class _Lease:
    """The owner of a result's memory; NumPy keeps it as the base of the array and of all its views."""

    __slots__ = ("__array_interface__", "block")

    def __init__(self, block: "np.ndarray[Any, np.dtype[np.uint8]]", size: int) -> None:
        self.block = block
        start = -block.__array_interface__["data"][0] % PAGE
        self.__array_interface__ = block[start : start + size].__array_interface__

    def __del__(self, give: Callable[..., None] = _pool.give) -> None:  # bound here: globals may be gone at exit
        if hasattr(self, "block"):  # a signal's handler may have ended `__init__`
            give(self.block)


def _rounded(size: int) -> int:
    """Sizes in steps of an eighth, so that results of similar size share blocks."""
    step = 1 << (size.bit_length() - 4)
    return -(-size // step) * step


def empty(shape: tuple[int, ...], dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
    """An uninitialised array, as numpy.empty makes it; a large one from the pool."""
    size = dtype.itemsize
    for count in shape:
        size *= count
    if size < POOLED_FROM or not _pool.enabled():
        return np.empty(shape, dtype)
    return np.asarray(_Lease(_pool.take(_rounded(size + PAGE)), size)).view(dtype).reshape(shape)


def release_buffers() -> None:
    """Give the memory that is kept for coming results back to the system."""
    _pool.clear()


def memory(
    address: int, shape: tuple[int, ...], typestr: str, strides: tuple[int, ...] | None = None, writable: bool = False
) -> "np.ndarray[Any, Any]":
    """A NumPy view of memory at an address; byte strides. The caller keeps the memory alive."""
    interface = {"version": 3, "shape": shape, "typestr": typestr, "data": (address, not writable), "strides": strides}
    return np.asarray(type("Memory", (), {"__array_interface__": interface})())
