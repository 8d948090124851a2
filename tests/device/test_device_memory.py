"""Device memory: what is given and refused, where copies and memsets may reach, and that nothing else is touched."""

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from device_calls import (
    ON_DEVICE,
    TO_DEVICE,
    TO_HOST,
    C,
    Gate,
    address,
    download,
    in_thread,
    malloc,
    opens_after,
    read_raw,
    refused,
    stream,
    upload,
    write_raw,
)

from anycann import device
from anycann.device import memory, probe
from anycann.device.backing import BACKING

PAGE = mmap.PAGESIZE
TOP = 2**64
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@pytest.fixture(params=["asked of the system", "read from the list of mappings"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which host memory is looked at."""
    if request.param == "read from the list of mappings":
        monkeypatch.setattr(probe, "_can_populate", lambda: False)


@pytest.fixture
def pages() -> Iterator[int]:
    """Three pages: one that can be written, one that can be read, one that is not there."""
    base = _libc.mmap(None, 3 * PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    assert _libc.mprotect(base + PAGE, PAGE, mmap.PROT_READ) == 0
    assert _libc.munmap(base + 2 * PAGE, PAGE) == 0
    yield base
    _libc.munmap(base, 2 * PAGE)


@pytest.mark.parametrize("size", [1, 31, 32, 33, 63, 64, 65, 1000, 4096, 1 << 20])
@pytest.mark.parametrize("allocate", [C.aclrtMalloc, C.aclrtMallocAlign32], ids=["aclrtMalloc", "aclrtMallocAlign32"])
def test_memory_is_aligned_and_has_room_to_spare(allocate: Callable[[int, int], int], size: int) -> None:
    place = allocate(size, 0)
    assert place % 64 == 0
    block = device.block_at(place)
    assert block is not None
    assert (block.address, block.size) == (place, size)
    room = -(-size // 32) * 32 + 32
    write_raw(place + block.shift, 0x5A, room)  # all of it is ours to write, spare bytes too
    assert device.block_at(place + size - 1) == block
    assert device.block_at(place + size) is None
    C.aclrtFree(place)
    assert device.block_at(place) is None


@pytest.mark.parametrize("policy", range(6))
def test_every_policy_gives_memory(policy: int) -> None:
    C.aclrtFree(C.aclrtMalloc(1, policy))


def test_what_allocations_refuse() -> None:
    for allocate in (C.aclrtMalloc, C.aclrtMallocAlign32):
        refused(100000, lambda a=allocate: a(0, 0), "size", "at least 1", "got 0")
        for policy in (-1, 6, 7, 2**31 - 1):
            refused(100000, lambda a=allocate, p=policy: a(8, p), "policy", "0 to 5", f"got {policy}")
    refused(100000, lambda: C.aclrtMallocHost(0), "size", "got 0")
    refused(100000, lambda: C.aclrtFree(0), "devPtr", "null")
    refused(100000, lambda: C.aclrtFreeHost(0), "hostPtr", "null")


@pytest.mark.parametrize("size", [2**63, TOP - 1, TOP - 32, TOP - 64, 2**48, 2**62 + 1])
def test_out_of_memory(size: int) -> None:
    refused(207001, lambda: C.aclrtMalloc(size, 0), "size", f"got {size}", "Free some")
    refused(207001, lambda: C.aclrtMallocHost(size), "size", f"got {size}")


@pytest.mark.parametrize("allocate", [partial(C.aclrtMalloc, policy=0), C.aclrtMallocHost], ids=["aclrtMalloc", "aclrtMallocHost"])
def test_out_of_addresses(allocate: Callable[[int], int], monkeypatch: pytest.MonkeyPatch) -> None:
    """There is memory, and a limit of the process."""
    for heap in (memory.DEVICE, memory.HOST):
        monkeypatch.setattr(heap.source, "take", lambda size: None)
    text = refused(207001, lambda: allocate(4096), "size must fit the address space that is left; got 4096", "ulimit -v")
    assert "bytes of" not in text


def test_memory_is_counted() -> None:
    free, total = C.aclrtGetMemInfo(1)
    assert 0 < free <= total == memory.DEVICE.source.capacity()
    place = malloc(100)
    left = memory.DEVICE.source.left(memory.DEVICE.used)
    assert left == free - 160 if BACKING.device == "cpu" else left <= free - 160
    assert C.aclrtGetMemInfo(1) == C.aclrtGetMemInfo(0) == (left, total)
    C.aclrtFree(place)
    assert C.aclrtGetMemInfo(1) == (free, total)
    for attr in (-1, 2, 99):
        refused(100000, lambda a=attr: C.aclrtGetMemInfo(a), "attr", f"got {attr}")


def test_memory_of_one_kind_is_not_freed_as_the_other() -> None:
    on_device, on_host = malloc(64), C.aclrtMallocHost(64)
    refused(107000, lambda: C.aclrtFree(on_host), "devPtr", f"{on_host:#x}", "device memory")
    refused(107000, lambda: C.aclrtFreeHost(on_device), "hostPtr", f"{on_device:#x}", "host memory")
    refused(107000, lambda: C.aclrtFree(on_device + 32), "32 bytes into device memory of 64 bytes")
    C.aclrtFree(on_device)
    C.aclrtFreeHost(on_host)
    refused(107000, lambda: C.aclrtFree(on_device), "was freed")
    refused(107000, lambda: C.aclrtFreeHost(on_host), "was freed")


def test_copies_there_and_back() -> None:
    data = np.arange(1000, dtype=np.uint8)
    first, second = upload(data), malloc(1000)
    C.aclrtMemcpy(second, 1000, first, 1000, ON_DEVICE)
    assert np.array_equal(download(second, data), data)
    other, by_default = np.zeros_like(data), np.zeros_like(data)
    C.aclrtMemcpy(address(other), 1000, address(data), 1000, 0)
    assert np.array_equal(other, data)
    for kind in (4, 5):
        C.aclrtMemset(first, 1000, 0, 1000)
        C.aclrtMemcpy(first, 1000, address(data), 1000, kind)
        assert np.array_equal(download(first, data), data)
    C.aclrtMemcpy(address(by_default), 1000, first, 1000, 4)
    assert np.array_equal(by_default, data)
    C.aclrtMemcpy(first + 10, 990, first, 900, ON_DEVICE)  # they overlap
    assert np.array_equal(download(first, data)[10:910], data[:900])
    for place in (first, second):
        C.aclrtFree(place)


COPIES = {"aclrtMemcpy": lambda *args: C.aclrtMemcpy(*args), "aclrtMemcpyAsync": lambda *args: C.aclrtMemcpyAsync(*args, 0)}
by_copy = pytest.mark.parametrize("copy", COPIES.values(), ids=COPIES)


@by_copy
def test_the_codes_of_copies(copy: Callable[..., None]) -> None:
    host, place = np.zeros(64, np.uint8), malloc(64)
    for kind in (TO_DEVICE, 99, -1):
        copy(0, 0, 0, 0, kind)  # nothing to copy: nothing is looked at
    for dst, src, name in ((0, address(host), "dst"), (place, 0, "src")):
        refused(100000, lambda d=dst, s=src: copy(d, 64, s, 1, TO_DEVICE), name, "null")
    for kind in (-1, 6, 2**31 - 1):
        refused(100000, lambda k=kind: copy(place, 64, address(host), 1, k), "kind", "0 to 5", f"got {kind}")
    refused(107000, lambda: copy(place, 63, address(host), 64, TO_DEVICE), "count", "destMax = 63", "got 64")
    copy(place, 64, place, 64, ON_DEVICE)
    copy(5, 64, 5, 64, ON_DEVICE)  # onto itself: nothing to copy
    refused(100000, lambda: copy(0, 0, 0, 1, 99), "dst")  # null comes before the kind, and before count > destMax
    refused(100000, lambda: copy(place, 0, address(host), 1, 99), "kind")
    C.aclrtFree(place)


@by_copy
def test_copies_stay_inside_device_memory(copy: Callable[..., None]) -> None:
    host, place, before = np.full(4096, 7, np.uint8), malloc(100), malloc(100)
    for kind in (TO_DEVICE, 4, 5):
        refused(107000, lambda k=kind: copy(place, 4096, address(host), 101, k), "dst", "101 bytes", "got 100", "Copy less")
        refused(107000, lambda k=kind: copy(place + 99, 4096, address(host), 2, k), "dst", "2 bytes", "got 1 to its end")
    refused(107000, lambda: copy(before, 4096, place, 101, ON_DEVICE), "101 bytes", "got 100")
    refused(107000, lambda: copy(before, 4096, place + 50, 60, ON_DEVICE), "src", "60 bytes", "got 50")
    refused(107000, lambda: copy(before + 50, 4096, place, 60, ON_DEVICE), "dst", "60 bytes", "got 50")
    refused(107000, lambda: copy(address(host), 4096, place, 101, TO_HOST), "src", "101 bytes", "Copy less")
    refused(107000, lambda: copy(place + 100, 1, address(host), 1, TO_DEVICE), "dst", "device memory")
    refused(107000, lambda: copy(place, 2**63, address(host), 2**63, TO_DEVICE), "dst")
    refused(107000, lambda: copy(address(host), TOP - 1, place, TOP - 1, TO_HOST), "src")
    C.aclrtFree(before)
    refused(107000, lambda: copy(before, 100, address(host), 1, TO_DEVICE), "dst", "was freed")
    refused(107000, lambda: copy(address(host), 100, before, 1, TO_HOST), "src", "was freed")
    C.aclrtFree(place)


@by_copy
def test_the_kind_of_a_copy_says_where_memory_lies(copy: Callable[..., None]) -> None:
    host, place, pinned = np.zeros(64, np.uint8), malloc(64), C.aclrtMallocHost(64)
    refused(107000, lambda: copy(place, 64, address(host), 64, TO_HOST), "must be host memory", "Change the kind")
    refused(107000, lambda: copy(address(host), 64, place, 64, TO_DEVICE), "dst must be device memory")
    refused(107000, lambda: copy(place, 64, address(host), 64, ON_DEVICE), "src must be device memory")
    refused(107000, lambda: copy(address(host), 64, place, 64, 0), "src must be host memory")
    copy(pinned, 64, place, 64, TO_HOST)
    copy(place, 64, pinned, 64, TO_DEVICE)
    refused(107000, lambda: copy(pinned + 1, 64, place, 64, TO_HOST), "dst", "64 bytes of host memory", "got 63 to its end")
    refused(107000, lambda: copy(place, 64, pinned + 63, 2, TO_DEVICE), "src", "2 bytes of host memory", "got 1 to its end")
    C.aclrtFree(place)
    C.aclrtFreeHost(pinned)


@pytest.mark.skipif(BACKING.device != "cpu", reason="the driver has the memory")
@pytest.mark.parametrize("size", [8, 4096, 1 << 20, 100 << 20])
@by_copy
def test_freed_host_memory_is_refused(copy: Callable[..., None], size: int) -> None:
    """It is nobody's: neither the program nor a library gets these addresses."""
    place, pinned, other = malloc(size), C.aclrtMallocHost(size), C.aclrtMallocHost(8)
    C.aclrtFreeHost(pinned)
    for inside in (0, size // 2, size - 1):
        said = f"got {pinned + inside:#x}, which lies in host memory that was freed. Use it before"
        refused(107000, lambda i=inside: copy(pinned + i, 1, place, 1, TO_HOST), "dst must be living host memory", said)
        refused(107000, lambda i=inside: copy(place, 1, pinned + i, 1, TO_DEVICE), "src must be living host memory", said)
        refused(107000, lambda i=inside: copy(other, 1, pinned + i, 1, 4), "src must be living host memory", said)
        refused(107000, lambda i=inside: C.aclrtMemset(pinned + i, 1, 0, 1), "devPtr must be living host memory", said)
    again = C.aclrtMallocHost(size)
    assert again == pinned
    copy(again, size, place, size, TO_HOST)
    for block in (again, other):
        C.aclrtFreeHost(block)
    C.aclrtFree(place)


@pytest.mark.usefixtures("way")
@by_copy
def test_host_memory_that_is_not_there_is_refused(copy: Callable[..., None], pages: int) -> None:
    place = malloc(3 * PAGE)
    writable, readable, missing = pages, pages + PAGE, pages + 2 * PAGE
    copy(place, 3 * PAGE, writable, 2 * PAGE, TO_DEVICE)
    copy(writable, PAGE, place, PAGE, TO_HOST)
    for dst, count in ((readable, 1), (missing, 1), (writable, PAGE + 1), (writable + 1, PAGE), (8, 1), (TOP - 1, 1), (TOP - 8, 8)):
        refused(107000, lambda d=dst, n=count: copy(d, n, place, n, TO_HOST), "dst", f"{count} writable bytes", f"{dst:#x}")
    for src, count in ((missing, 1), (writable, 2 * PAGE + 1), (missing - 1, 2), (8, 1), (0xAC_0000_0000_0010, 4), (TOP - 1, 1)):
        refused(107000, lambda s=src, n=count: copy(place, n, s, n, TO_DEVICE), "src", f"{count} readable bytes", f"{src:#x}")
    C.aclrtFree(place)


@pytest.mark.usefixtures("way")
def test_pages_of_the_kernel_are_no_memory_of_the_program() -> None:
    """They are mapped as readable ones, and a read of some of them ends the process."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if "[vvar" in line:
            low, high = (int(end, 16) for end in line.split()[0].split("-"))
            assert not probe.accessible(low, high - low, False)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("size", [2**62, 2**63, TOP - 4096, TOP - 16, TOP - 9])
def test_absurd_sizes_of_host_memory(size: int) -> None:
    assert not probe.accessible(8, size, True)
    assert not probe.accessible(16, size - 8, False)
    refused(107000, lambda: C.aclrtMemcpy(8, size, 16, size, 0), "host memory")


def test_a_copy_of_absurd_size_leaves_the_memory_of_the_program_alone(pages: int) -> None:
    """The device side is looked at first: it costs nothing, and a probe touches all pages that are there."""
    place = malloc(64)
    refused(107000, lambda: C.aclrtMemcpy(pages, 2**40, place, 2**40, TO_HOST), "src")
    C.aclrtFree(place)


def test_memset() -> None:
    data = np.zeros(100, np.uint8)
    place = upload(data)
    C.aclrtMemset(place + 1, 99, 0x1FF, 98)
    expected = np.array([0, *[0xFF] * 98, 0], np.uint8)
    assert np.array_equal(download(place, data), expected)
    C.aclrtMemset(place, 100, -2, 1)
    assert download(place, data)[0] == 0xFE
    pinned = C.aclrtMallocHost(10)
    C.aclrtMemset(pinned, 10, 3, 10)
    assert ctypes.string_at(pinned, 10) == b"\3" * 10
    for fill in (C.aclrtMemset, lambda *args: C.aclrtMemsetAsync(*args, 0)):
        refused(100000, lambda f=fill: f(0, 1, 0, 1), "devPtr", "null")
        refused(107000, lambda f=fill: f(place, 100, 0, 101), "count", "maxCount = 100", "got 101")
        refused(107000, lambda f=fill: f(place, 200, 0, 101), "devPtr", "101 bytes", "got 100")
        refused(107000, lambda f=fill: f(place + 100, 1, 0, 1), "devPtr")
        refused(107000, lambda f=fill: f(address(data), 1, 0, 1), "devPtr", "device memory")
        refused(107000, lambda f=fill: f(pinned, 11, 0, 11), "devPtr")
        refused(107000, lambda f=fill: f(place, TOP - 1, 0, TOP - 1), "devPtr")
    C.aclrtFree(place)
    C.aclrtFreeHost(pinned)


def test_bytes_around_an_allocation_stay() -> None:
    """Copies and memsets of the whole of a block, between guards behind it."""
    for size in (1, 31, 32, 33, 100):
        place = malloc(size)
        block = device.block_at(place)
        assert block is not None
        room = -(-size // 32) * 32 + 32
        write_raw(place + block.shift, 0xC3, room)
        C.aclrtMemset(place, size, 0, size)
        data = np.zeros(size, np.uint8)
        C.aclrtMemcpy(place, size, address(data), size, TO_DEVICE)
        assert read_raw(place + block.shift + size, room - size) == b"\xc3" * (room - size)
        guarded = np.full(size + 64, 0xC3, np.uint8)
        C.aclrtMemcpy(address(guarded) + 32, size, place, size, TO_HOST)
        assert (guarded[:32] == 0xC3).all()
        assert (guarded[32 + size :] == 0xC3).all()
        C.aclrtFree(place)


def test_what_needs_a_device_in_this_thread_says_so() -> None:
    """After the argument checks."""
    place, host = malloc(64), np.zeros(64, np.uint8)
    with stream() as queue:
        calls: dict[str, Callable[[], object]] = {
            "aclrtMalloc": lambda: C.aclrtMalloc(8, 0),
            "aclrtMallocAlign32": lambda: C.aclrtMallocAlign32(8, 0),
            "aclrtMallocHost": lambda: C.aclrtMallocHost(8),
            "aclrtMemcpy": lambda: C.aclrtMemcpy(place, 64, address(host), 64, TO_DEVICE),
            "aclrtMemcpyAsync": lambda: C.aclrtMemcpyAsync(place, 64, address(host), 64, TO_DEVICE, queue),
            "aclrtMemset": lambda: C.aclrtMemset(place, 64, 0, 64),
            "aclrtMemsetAsync": lambda: C.aclrtMemsetAsync(place, 64, 0, 64, queue),
            "aclrtCreateStream": C.aclrtCreateStream,
            "aclrtCreateStreamWithConfig": lambda: C.aclrtCreateStreamWithConfig(0, 0),
            "aclrtSynchronizeStream": lambda: C.aclrtSynchronizeStream(queue),
            "aclrtSynchronizeStreamWithTimeout": lambda: C.aclrtSynchronizeStreamWithTimeout(0, 5),
            "aclrtSynchronizeDevice": C.aclrtSynchronizeDevice,
            "aclrtGetDevice": C.aclrtGetDevice,
            "aclrtGetCurrentContext": C.aclrtGetCurrentContext,
            "aclrtGetMemInfo": lambda: C.aclrtGetMemInfo(1),
        }
        for name, call in calls.items():
            text = in_thread(lambda c=call: refused(107002, c, "context", "aclrtSetDevice"))
            assert text.startswith(f"{name}: ")
        in_thread(lambda: refused(100000, lambda: C.aclrtMalloc(0, 0)))
        in_thread(lambda: refused(100000, lambda: C.aclrtMemset(0, 0, 0, 0)))
        in_thread(lambda: refused(107000, lambda: C.aclrtMemcpy(place, 64, address(host), 65, TO_DEVICE)))
        in_thread(lambda: refused(107017, lambda: C.aclrtSynchronizeStream(place)))
    C.aclrtFree(place)


@pytest.mark.parametrize("free", ["aclrtFree", "aclrtFreeHost"])
def test_freeing_waits_for_queued_work(free: str) -> None:
    place = malloc(1 << 20) if free == "aclrtFree" else C.aclrtMallocHost(1 << 20)
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtMemsetAsync(place, 1 << 20, 1, 1 << 20, queue)
        opens_after(gate, lambda: device.CALLS[free](place))
        C.aclrtSynchronizeStream(queue)


def test_queued_copies_run_in_order_and_check_host_memory_when_they_run(pages: int) -> None:
    """The program may have unmapped the memory in between: an error then, no crash."""
    place = malloc(PAGE)
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtMemsetAsync(place, PAGE, 1, PAGE, queue)
        C.aclrtMemcpyAsync(pages, PAGE, place, PAGE, TO_HOST, queue)
        assert ctypes.string_at(pages, 1) == b"\0", "the copy did not wait"
        gate.open.set()
        C.aclrtSynchronizeStream(queue)
        assert ctypes.string_at(pages, PAGE) == b"\1" * PAGE
        gate = Gate(queue)
        C.aclrtMemcpyAsync(pages, PAGE, place, PAGE, TO_HOST, queue)
        assert _libc.mprotect(pages, PAGE, mmap.PROT_READ) == 0
        gate.open.set()
        refused(107000, lambda: C.aclrtSynchronizeStream(queue), "dst", "writable")
        C.aclrtSynchronizeStream(queue)  # told once
    C.aclrtFree(place)


def test_capacity_is_that_of_the_machine() -> None:
    sources = [memory.HOST.source, *([memory.DEVICE.source] if BACKING.device == "cpu" else [])]
    assert {source.capacity() for source in sources} == {os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")}


@pytest.mark.parametrize("size", [64, 4096, 1 << 21])
def test_addresses_of_the_device_never_pass_for_host_memory(size: int) -> None:
    place, other = malloc(size), malloc(size)
    past = place + size
    for bad in (past, past + 16):
        refused(107000, partial(C.aclrtMemcpy, other, 8, bad, 8, TO_DEVICE))
        refused(107000, partial(C.aclrtMemcpy, bad, 8, other, 8, TO_HOST))
    C.aclrtFree(place)
    refused(107000, partial(C.aclrtMemcpy, other, 8, place, 8, TO_DEVICE))
    refused(107000, partial(C.aclrtMemcpy, place, 8, other, 8, TO_HOST))
    C.aclrtFree(other)


def test_freed_memory_is_given_again() -> None:
    first = malloc(1 << 21)
    C.aclrtFree(first)
    assert malloc(1 << 21) == first
    C.aclrtFree(first)
