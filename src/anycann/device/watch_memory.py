"""Device memory in check mode: addresses that nobody can read at, and for each allocation the bytes that were written."""

import bisect
import ctypes
import math
import mmap
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.device.memory import Block
from anycann.device.watch_report import Report
from anycann.device.watch_sites import Site
from anycann.tensor import Tensor

__all__ = ["Filled", "Ledger", "Record", "Written", "extent"]

Bytes = NDArray[np.uint8]

PAGE = mmap.PAGESIZE
QUARANTINE = 1 << 36  # bytes of address space that freed allocations keep, as long as there are at most KEPT of them
KEPT = 1 << 14
NO_ACCESS = 0

_libc = ctypes.CDLL(None)
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
_libc.mmap.restype = ctypes.c_void_p
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_FAILED = ctypes.c_void_p(-1).value


class Written:
    """Which bytes of an allocation were written."""

    def __init__(self, size: int) -> None:
        self.size = self.missing = size
        self._mask: Bytes | None = None  # while some are and some are not

    def _view(self, offset: int, layout: Tensor) -> Bytes:
        """The bytes of the elements: their shape, and one more axis. Repeated elements once."""
        shape = [1 if stride == 0 else count for count, stride in zip(layout.shape, layout.strides, strict=True)]
        strides = (*layout.byte_strides(), 1)
        found: Bytes = np.ndarray((*shape, layout.dtype.itemsize), np.uint8, self._bytes(), offset, strides)
        return found

    def _bytes(self) -> Bytes:
        if self._mask is None:
            self._mask = np.zeros(self.size, np.uint8)
        return self._mask

    def mark(self, low: int, high: int) -> None:
        """The bytes from `low` to before `high` are written."""
        low, high = max(low, 0), min(high, self.size)
        if self.missing and low < high:
            self._mark(self._bytes()[low:high]) if high - low < self.size else self._all()

    def mark_elements(self, offset: int, layout: Tensor) -> None:
        """The elements of a tensor are written, the first of which lies at `offset`."""
        if self.missing and layout.numel:
            self._mark(self._view(offset, layout))

    def _mark(self, view: Bytes) -> None:
        self.missing -= view.size - int(np.count_nonzero(view))
        view[...] = 1
        if not self.missing:
            self._all()

    def _all(self) -> None:
        self.missing, self._mask = 0, None

    def lacks(self, low: int, high: int) -> tuple[int, int]:
        """Of the bytes from `low` to before `high`: how many were not written, and the place of the first."""
        if not self.missing or low >= high:
            return 0, 0
        view = self._bytes()[low:high]
        return view.size - int(np.count_nonzero(view)), low + int(np.argmin(view))

    def lacks_elements(self, offset: int, layout: Tensor, rows: "NDArray[np.integer[Any]] | None" = None) -> tuple[int, tuple[int, ...]]:
        """Of the elements of a tensor: how many were not written whole, and the index of the first. `rows`: of those rows only."""
        if not self.missing or not layout.numel:
            return 0, ()
        whole = np.asarray(self._view(offset, layout).all(axis=-1))
        if rows is not None:
            unread = np.ones(len(whole), bool)
            unread[np.minimum(rows, len(whole) - 1)] = False
            whole[unread] = True
        first = np.unravel_index(int(np.argmin(whole)), whole.shape) if whole.shape else ()
        return whole.size - int(np.count_nonzero(whole)), tuple([int(i) for i in first])


@dataclass(frozen=True)
class Filled:
    """A tensor that was passed to an operator."""

    api: str
    parameter: str
    dtype: str
    itemsize: int
    bytes: int
    site: Site | None


@dataclass(slots=True, eq=False)
class Record:
    """What is known of an allocation."""

    number: int
    block: Block
    api: str
    site: Site | None
    written: Written
    reserved: int = 0  # bytes of address space that it has for itself
    version: int = 0  # changes with every write
    sources: set[str] = field(default_factory=set)  # who wrote: host, fill, device, operator, kernel
    copied: int = 0  # the largest number of bytes that the host copied to its beginning at once
    reach: int = 0  # the end of the farthest tensor, or copy on the device
    filled: Filled | None = None  # the tensor that reaches as far
    said: set[Any] = field(default_factory=set)  # what was reported
    seen: dict[Any, int] = field(default_factory=dict)  # the version in which values were looked at
    freed: str = ""  # by which function
    freed_at: Site | None = None

    @property
    def real(self) -> int:
        """Where its bytes lie."""
        return self.block.address + self.block.shift

    def __str__(self) -> str:
        freed = f"; freed by {self.freed}{_at(self.freed_at)}" if self.freed else ""
        return f"allocation #{self.number} of {self.block.size} bytes, {self.api}{_at(self.site)}{freed}"

    def wrote(self, source: str, count: int) -> None:
        """`count` bytes are written by this source; those of the whole allocation, by nobody else, but for what kernels may do later."""
        self.version += 1
        self.sources = (self.sources & {"kernel"} if count >= self.block.size else self.sources) | {source}


def _at(site: Site | None) -> str:
    said = "" if site is None else str(site)
    return f" at {said}" if said else ""


class _Range(ctypes.Structure):
    """An allocation as the handler of signals reads it; one without length is unused."""

    _fields_ = (
        ("low", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("number", ctypes.c_uint32),
        ("freed", ctypes.c_uint32),
    )


class _Table(ctypes.Structure):
    """What the C library reads without asking Python; `cabi/core/watch.cpp` has the same."""

    _fields_ = (
        ("ranges", ctypes.POINTER(_Range)),
        ("count", ctypes.c_uint64),
        ("findings", ctypes.c_uint64),
        ("of_all", ctypes.POINTER(ctypes.c_uint64)),
        ("path", ctypes.c_char_p),
        ("mark", ctypes.c_char_p),
    )


class Ledger:
    """The allocations of the process, living and freed."""

    def __init__(self, reserving: bool, report: Report) -> None:
        self.reserving = reserving
        self.living: dict[int, Record] = {}
        self.freed: deque[Record] = deque()
        self._numbers = 0
        self._starts: list[int] = []  # of living bytes
        self._by_real: dict[int, Record] = {}
        self._held = 0
        self._slots: dict[int, int] = {}
        self._empty: list[int] = []
        self._ranges = (_Range * 256)()
        self._older: list[Any] = []  # that a handler may still read
        files = [None if file is None else os.fsencode(file) for file in (report.path, report.mark)]
        self.table = _Table(self._ranges, len(self._ranges), 0, ctypes.pointer(report.of_all), *files)

    def open(self, real: int, size: int, api: str, site: Site | None) -> Record | None:
        """A record for new memory; None when there is no address space left for it."""
        address, reserved = real, 0
        if self.reserving:
            reserved = (-(-size // PAGE) + 1) * PAGE  # a page behind it
            found = self._reserve(reserved)
            if found is None:
                return None
            address = found
        self._numbers += 1
        record = Record(self._numbers, Block(address, size, real - address), api, site, Written(size), reserved)
        self.living[address] = record
        self._by_real[real] = record
        bisect.insort(self._starts, real)
        self._note(record)
        return record

    def _reserve(self, size: int) -> int | None:
        while True:
            found = _libc.mmap(None, size, NO_ACCESS, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
            if found not in (_FAILED, None):
                return int(found)
            if not self.freed:
                return None
            self._forget()

    def close(self, block: Block, api: str, site: Site | None) -> None:
        """The record of memory that is given back; its addresses stay out of use for a while."""
        record = self.living.pop(block.address)
        record.freed, record.freed_at = api, site
        del self._by_real[record.real]
        del self._starts[bisect.bisect_left(self._starts, record.real)]
        record.written = Written(0)
        self.freed.append(record)
        self._held += record.reserved
        self._note(record)
        while len(self.freed) > KEPT or (self._held > QUARANTINE and len(self.freed) > 1):
            self._forget()

    def _forget(self) -> None:
        record = self.freed.popleft()
        self._held -= record.reserved
        slot = self._slots.pop(record.number)
        self._ranges[slot] = _Range()
        self._empty.append(slot)
        if record.reserved:
            _libc.munmap(record.block.address, record.reserved)

    def _note(self, record: Record) -> None:
        """Write a record into the table of the handler."""
        if not record.reserved:
            return
        slot = self._slots.get(record.number)
        if slot is None:
            slot = self._empty.pop() if self._empty else len(self._slots)
            self._slots[record.number] = slot
        if slot >= len(self._ranges):
            larger = (_Range * (2 * len(self._ranges)))()
            ctypes.memmove(larger, self._ranges, ctypes.sizeof(self._ranges))
            self._older.append(self._ranges)
            self._ranges = larger
            self.table.ranges = larger
            self.table.count = len(larger)
        low, block = record.block.address, record.block
        self._ranges[slot] = _Range(low, low + record.reserved, block.size, record.number, bool(record.freed))

    def with_bytes(self, real: int) -> Record | None:
        """The living allocation whose bytes lie there."""
        i = bisect.bisect_right(self._starts, real) - 1
        record = self._by_real[self._starts[i]] if i >= 0 else None
        return record if record is not None and real < record.real + record.block.size else None

    def at(self, address: int) -> Record | None:
        """The allocation that a program's address belongs to, the latest first: living, freed, or the one that ends before it."""
        for record in (*self.living.values(), *reversed(self.freed)):
            block = record.block
            if block.address <= address < block.address + max(record.reserved, block.size):
                return record
        return None

    def __iter__(self) -> Iterator[Record]:
        return iter(list(self.living.values()))


def extent(tensor: Tensor) -> tuple[int, int]:
    """The first byte of a tensor's storage and its length."""
    high = tensor.bytes_touched()[1]
    whole = math.prod(tensor.storage or ()) * tensor.dtype.itemsize if tensor.storage else 0
    return tensor.address, max(whole, high - tensor.address)
