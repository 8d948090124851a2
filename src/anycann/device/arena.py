"""Where blocks of memory come from.

On the CPU, device memory is one range of addresses that is reserved at its first use and never given back: an address of the device
is known for one even when its block was freed, and cannot become host memory.
"""

import ctypes
import mmap
import os
import threading
from typing import Any, Protocol

from anycann import cuda

__all__ = ["ALIGNMENT", "Arena", "CudaMemory", "Malloc", "PinnedMemory", "Source", "capacity"]

ALIGNMENT = 64
PAGE = mmap.PAGESIZE
RETURNED = 1 << 20  # bytes of a freed block from which on its pages go back to the system
RESERVED = 16  # times the capacity, less where the system refuses
_NO_RESERVE = 0x4000 if os.uname().sysname == "Linux" else 0  # MAP_NORESERVE

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]


def capacity() -> int:
    """Bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Source(Protocol):
    """Memory of one kind."""

    def take(self, size: int) -> int | None:
        """The address of `size` bytes, or None."""

    def give(self, address: int, size: int) -> None:
        """Take bytes back."""

    def holds(self, address: int) -> bool:
        """Whether an address is known to be of this memory even if nothing lives there."""

    def capacity(self) -> int:
        """Bytes that there are."""

    def left(self, used: int) -> int:
        """Bytes that can still be taken, where `used` are."""


class _OfTheMachine:
    """Memory of the CPU."""

    def capacity(self) -> int:
        """What this machine has."""
        return capacity()

    def left(self, used: int) -> int:
        """What is not taken."""
        return max(capacity() - used, 0)


class Malloc(_OfTheMachine):
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


class Arena(_OfTheMachine):
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


class CudaMemory:
    """Memory of a CUDA device, from torch's allocator; it is of the order of the device's default stream."""

    def __init__(self, device: str) -> None:
        self.device = device

    def take(self, size: int) -> int | None:
        """The address of `size` bytes, or None."""
        return cuda.take(size, self.device)

    def give(self, address: int, size: int) -> None:
        """Take bytes back, which no stream uses any more."""
        cuda.give(address)

    def holds(self, address: int) -> bool:
        """The driver, not this process, knows its freed addresses; the host cannot read or write there."""
        return False

    def capacity(self) -> int:
        """What the device has."""
        return cuda.memory_of(self.device)[1]

    def left(self, used: int) -> int:
        """What nobody uses."""
        return cuda.memory_of(self.device)[0]


class PinnedMemory(_OfTheMachine):
    """Page-locked memory of the host, which copies to and from a CUDA device need not wait for."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._owners: dict[int, Any] = {}

    def take(self, size: int) -> int | None:
        """The address of `size` bytes, or None."""
        found = cuda.pinned(size, self.device)
        if found is None:
            return None
        self._owners[found[1]] = found[0]
        return found[1]

    def give(self, address: int, size: int) -> None:
        """Take bytes back."""
        del self._owners[address]

    def holds(self, address: int) -> bool:
        """Whether an address is known to be of this memory even if nothing lives there."""
        return False
