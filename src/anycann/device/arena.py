"""Where blocks of memory come from.

Device memory is one range of addresses that is reserved at its first use and never given back: an address of the device is known for
one even when its block was freed, and cannot become host memory.
"""

import ctypes
import mmap
import os
import threading

__all__ = ["ALIGNMENT", "Arena", "Malloc", "capacity"]

ALIGNMENT = 64
PAGE = mmap.PAGESIZE
RETURNED = 1 << 20  # bytes of a freed block from which on its pages go back to the system
RESERVED = 16  # times the capacity, less where the system refuses
_NO_RESERVE = 0x4000 if os.uname().sysname == "Linux" else 0  # MAP_NORESERVE

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]


def capacity() -> int:
    """Bytes of device memory: what this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Malloc:
    """Memory of the process."""

    def take(self, size: int) -> int | None:
        """The address of `size` bytes, or None."""
        place = ctypes.c_void_p()
        return None if _libc.posix_memalign(ctypes.byref(place), ALIGNMENT, size) else place.value

    def give(self, address: int, size: int) -> None:
        """Take bytes back."""
        _libc.free(address)

    def holds(self, address: int) -> bool:
        """Whether an address is known to be of this memory even if nothing lives there."""
        return False


class Arena:
    """A range of addresses, cut from its start; what comes back is kept for blocks of the same size."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._low = self._next = self._high = 0
        self._free: dict[int, list[int]] = {}
        self._lock = threading.Lock()

    def take(self, size: int) -> int | None:
        """The address of `size` bytes, or None."""
        length = self._length(size)
        with self._lock:
            if self._map is None:
                self._reserve()
            kept = self._free.get(length)
            if kept:
                return kept.pop()
            if length > self._high - self._next:
                return None
            self._next += length
            return self._next - length

    def give(self, address: int, size: int) -> None:
        """Take bytes back."""
        length = self._length(size)
        with self._lock:
            if length >= RETURNED and self._map is not None:
                first = -(-address // PAGE) * PAGE
                self._map.madvise(mmap.MADV_DONTNEED, first - self._low, (address + length) // PAGE * PAGE - first)
            self._free.setdefault(length, []).append(address)

    def holds(self, address: int) -> bool:
        """Whether an address is known to be of this memory even if nothing lives there."""
        return self._low <= address < self._high

    @staticmethod
    def _length(size: int) -> int:
        unit = PAGE if size > PAGE else ALIGNMENT
        return -(-size // unit) * unit

    def _reserve(self) -> None:
        size = RESERVED * capacity()
        while self._map is None and size >= PAGE:
            try:
                self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            except (OSError, ValueError, OverflowError):
                size //= 2
        if self._map is not None:
            self._low = self._next = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
            self._high = self._low + size // PAGE * PAGE
