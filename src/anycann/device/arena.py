"""Where blocks of memory come from.

On the CPU, device memory and pinned host memory are ranges of addresses of their own, which are never given back: an address of theirs
is known for one even when its block was freed, and nobody else gets it.
"""

import bisect
import ctypes
import mmap
import os
from typing import Any, Protocol

from anycann import cuda
from anycann.locks import shared

__all__ = ["ALIGNMENT", "Arena", "CudaMemory", "PinnedMemory", "Source", "capacity"]

ALIGNMENT = 64
PAGE = mmap.PAGESIZE
RETURNED = 1 << 20  # bytes of a freed block from which on its pages go back to the system
RESERVED = 1 << 26  # bytes of address space at once
_NO_RESERVE = 0x4000 if os.uname().sysname == "Linux" else 0  # MAP_NORESERVE

_libc = ctypes.CDLL(None)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


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


class Arena(_OfTheMachine):
    """Ranges of addresses, cut from their starts; what comes back is kept for blocks of the same size.

    The first range has `first` bytes, less where the system refuses; later ones what is needed.
    """

    def __init__(self, first: int = RESERVED) -> None:
        self._first = first
        self._maps: list[mmap.mmap] = []
        self._lows: list[int] = []
        self._highs: dict[int, int] = {}  # by their lows
        self._next = self._high = 0  # of the latest range
        self._free: dict[int, list[int]] = {}

    def take(self, size: int) -> int | None:
        """The address of `size` bytes, or None."""
        length = self._length(size)
        with shared:
            kept = self._free.get(length)
            if kept:
                return kept.pop()
            if length > self._high - self._next and not self._reserve(length):
                return None
            self._next += length
            return self._next - length

    def give(self, address: int, size: int) -> None:
        """Take bytes back."""
        length = self._length(size)
        if length >= RETURNED:
            first = -(-address // PAGE) * PAGE
            _libc.madvise(first, (address + length) // PAGE * PAGE - first, mmap.MADV_DONTNEED)
        with shared:
            self._free.setdefault(length, []).append(address)

    def holds(self, address: int) -> bool:
        """Whether an address is known to be of this memory even if nothing lives there."""
        i = bisect.bisect_right(self._lows, address) - 1
        return i >= 0 and address < self._highs[self._lows[i]]

    @staticmethod
    def _length(size: int) -> int:
        unit = PAGE if size > PAGE else ALIGNMENT
        return -(-size // unit) * unit

    def _reserve(self, length: int) -> bool:
        """Begin a new range that has room for `length` bytes."""
        size = max(RESERVED if self._maps else self._first, length)
        while size >= length:
            try:
                made = mmap.mmap(-1, -(-size // PAGE) * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
            except (OSError, ValueError, OverflowError):
                size //= 2
                continue
            self._maps.append(made)
            self._next = ctypes.addressof(ctypes.c_char.from_buffer(made))
            self._high = self._highs[self._next] = self._next + len(made)
            bisect.insort(self._lows, self._next)
            return True
        return False


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
