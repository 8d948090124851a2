"""Whether host memory can be read or written, asked of the operating system and not by trying."""

import ctypes
import errno
import mmap
import sys
from functools import cache

__all__ = ["accessible"]

_POPULATE = {False: 22, True: 23}  # MADV_POPULATE_READ, MADV_POPULATE_WRITE: Linux 5.14
_libc = ctypes.CDLL(None, use_errno=True)
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE = mmap.PAGESIZE
TOP = (1 << 64) - PAGE  # no program has the last page, and the sizes below stay below 2**64


def accessible(address: int, size: int, write: bool) -> bool:
    """Whether every byte of [address, address + size) can be read, or written. Systems other than Linux are not asked: True."""
    if address + size > TOP:
        return False
    if sys.platform != "linux":
        return True
    if _can_populate():
        first, last = address // PAGE * PAGE, -(-(address + size) // PAGE) * PAGE
        if last <= first or _libc.madvise(first, last - first, _POPULATE[write]) == 0:
            return True
        if ctypes.get_errno() in (errno.ENOMEM, errno.EFAULT):
            return False
    return _mapped(address, address + size, write)


@cache
def _can_populate() -> bool:
    page = mmap.mmap(-1, PAGE)
    refused: int = _libc.madvise(ctypes.addressof(ctypes.c_char.from_buffer(page)), PAGE, _POPULATE[False])
    return not refused


def _mapped(low: int, high: int, write: bool) -> bool:
    """The same from the list of mappings, for older systems and for mappings that cannot be populated."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            span, rights = line.split(None, 2)[:2]
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= low < last and ("w" if write else "r") in rights and "[vvar" not in line:  # reads of some of those pages fail
                low = last
                if low >= high:
                    return True
    return low >= high
