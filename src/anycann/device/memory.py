"""Device memory: blocks that aclrtMalloc gave, which bytes lie in them, and copies that check both sides first."""

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anycann.device import probe
from anycann.device.arena import Source
from anycann.device.backing import BACKING
from anycann.errors import AclnnError
from anycann.locks import shared

if TYPE_CHECKING:
    from anycann.device.watch import Watch

__all__ = ["DEVICE", "HOST", "Block", "Heap", "block_at", "check_copy", "check_fill", "fill", "move", "need_device"]

GRAIN, SPARE = 32, 32  # lengths are rounded up to GRAIN, and SPARE bytes lie behind
FREED = 256  # blocks remembered for messages
KINDS = {0: ("host", "host"), 1: ("device", "host"), 2: ("host", "device"), 3: ("device", "device"), 4: (None, None), 5: ("device", "host")}


@dataclass(frozen=True, slots=True)
class Block:
    """Memory that was asked for: its address as the program sees it, its length, and how far away its bytes really are."""

    address: int
    size: int
    shift: int = 0  # bytes lie at address + shift

    @property
    def end(self) -> int:
        return self.address + self.size


class Heap:
    """The living blocks of one kind of memory, ordered by address."""

    def __init__(self, kind: str, source: Source) -> None:
        self.kind, self.source = kind, source
        self.generation = 0  # changes when a block goes: what was inside a block before may not be any more
        self.used = 0
        self.shifted = False  # whether bytes lie elsewhere than where the program sees them
        self.watch: Watch | None = None  # who looks for mistakes
        self._starts: list[int] = []
        self._blocks: dict[int, Block] = {}
        self._freed: dict[int, Block] = {}

    def allocate(self, size: int, api: str) -> Block:
        """A new block, its contents not initialised; AclnnError 207001 when there is no room."""
        room = self._room(size)
        place = self.source.take(room) if self.used + room <= self.source.capacity() else None
        if place is None:
            left = self.source.left(self.used)
            if room <= left:
                raise self._no_addresses(size, api)
            raise AclnnError(207001, api, f"size must fit the {left} bytes of {self.kind} memory that are left; got {size}. Free some.")
        block = Block(place, size) if self.watch is None else self.watch.allocated(place, size, api)
        if block is None:
            self.source.give(place, room)
            raise self._no_addresses(size, api)
        with shared:
            self._blocks[block.address] = block
            bisect.insort(self._starts, block.address)
            self.used += room
        return block

    def release(self, address: int, name: str, api: str) -> Block:
        """Forget a block and give its memory back; AclnnError 107000 for anything else."""
        with shared:
            block = self._blocks.pop(address, None)
            if block is not None:
                del self._starts[bisect.bisect_left(self._starts, address)]
                self.used -= self._room(block.size)
                self.generation += 1
                self._freed[address] = block
                if len(self._freed) > FREED:
                    del self._freed[next(iter(self._freed))]
        if block is None:
            if self.watch is not None:
                self.watch.freed_again(address, api)
            mend = "Free the address that the allocation returned, once."
            raise AclnnError(107000, api, f"{name} must be the address of living {self.kind} memory; got {self.describe(address)}. {mend}")
        if self.watch is not None:
            self.watch.freed(block, api)
        self.source.give(block.address + block.shift, self._room(block.size))
        return block

    @staticmethod
    def _no_addresses(size: int, api: str) -> AclnnError:
        mend = "Free some, or raise the limit of the process (ulimit -v)."
        return AclnnError(207001, api, f"size must fit the address space that is left; got {size}. {mend}")

    @staticmethod
    def _room(size: int) -> int:
        return -(-size // GRAIN) * GRAIN + SPARE

    def find(self, address: int) -> Block | None:
        """The block in which an address lies."""
        with shared:
            i = bisect.bisect_right(self._starts, address) - 1
            block = self._blocks[self._starts[i]] if i >= 0 else None
        return block if block is not None and address < block.end else None

    def blocks(self) -> list[Block]:
        """All living blocks."""
        with shared:
            return list(self._blocks.values())

    def describe(self, address: int) -> str:
        """What an address is, in words."""
        block = self.find(address)
        if block is not None:
            inside = f", {address - block.address} bytes into" if address != block.address else ","
            return f"{address:#x}{inside} {self.kind} memory of {block.size} bytes"
        with shared:
            freed = next((b for b in self._freed.values() if b.address <= address < max(b.end, b.address + 1)), None)
        return f"{address:#x}, which " + (f"lies in {self.kind} memory that was freed" if freed else f"is no {self.kind} memory")


DEVICE = Heap("device", BACKING.memory)
HOST = Heap("host", BACKING.host)


def block_at(address: int) -> Block | None:
    """The device block in which an address lies."""
    return DEVICE.find(address)


def need_device(address: int, size: int, name: str, api: str, code: int = 107000) -> int:
    """Where `size` bytes of device memory really lie; AclnnError unless all of them are in one living block."""
    block = DEVICE.find(address)
    if DEVICE.watch is not None and (block is None or address + size > block.end):
        DEVICE.watch.refused(address, size, name, api)
    if block is None:
        raise AclnnError(code, api, f"{name} must be device memory; got {DEVICE.describe(address)}. Pass what aclrtMalloc returned.")
    if address + size > block.end:
        mend = f"{'Copy less, or allocate' if code == 107000 else 'Allocate'} {address + size - block.address} bytes."
        raise AclnnError(code, api, f"{name} must have {size} bytes of device memory; got {block.end - address} to its end. {mend}")
    return address + block.shift


def _pinned(address: int, size: int, name: str, api: str) -> bool:
    """Whether an address is pinned host memory; AclnnError unless `size` bytes from there are in one living block then."""
    block = HOST.find(address)
    if block is None and HOST.source.holds(address):
        if DEVICE.watch is not None:
            DEVICE.watch.refused_pinned(address, size, name, api)
        raise AclnnError(107000, api, f"{name} must be living host memory; got {HOST.describe(address)}. Use it before aclrtFreeHost.")
    if block is not None and address + size > block.end:
        if DEVICE.watch is not None:
            DEVICE.watch.refused_pinned(address, size, name, api)
        mend = f"Copy less, or allocate {address + size - block.address} bytes."
        raise AclnnError(107000, api, f"{name} must have {size} bytes of host memory; got {block.end - address} to its end. {mend}")
    return block is not None


def _side(address: int, size: int, name: str, where: str | None, write: bool, api: str) -> int:
    """One side of a copy, checked: where its bytes lie."""
    on_device = DEVICE.find(address) is not None or DEVICE.source.holds(address)
    if where == "device" or (where is None and on_device):
        return need_device(address, size, name, api)
    if on_device:
        raise AclnnError(107000, api, f"{name} must be host memory for this kind of copy; got {DEVICE.describe(address)}. Change the kind.")
    if not _pinned(address, size, name, api) and not probe.accessible(address, size, write):
        if DEVICE.watch is not None:
            DEVICE.watch.refused(address, size, name, api)
        how = "writable" if write else "readable"
        got = f"{address:#x}, where they are not. Pass an array of the program that is long enough."
        raise AclnnError(107000, api, f"{name} must be {size} {how} bytes of host memory; got {got}")
    return address


def check_copy(api: str, dst: int, room: int, src: int, count: int, kind: int) -> tuple[int, int] | None:
    """Where the bytes of a copy go to and come from; None when there is nothing to copy."""
    if count == 0:
        return None
    for name, address in (("dst", dst), ("src", src)):
        if not address:
            raise AclnnError(100000, api, f"{name} must not be a null pointer. Pass the memory to copy.")
    if kind not in KINDS:
        rule = f"must be a value of aclrtMemcpyKind, {min(KINDS)} to {max(KINDS)}"
        raise AclnnError(100000, api, f"kind {rule}; got {kind}. Say where both sides are.")
    if count > room:
        raise AclnnError(107000, api, f"count must be at most destMax = {room}; got {count}. Copy less, or into larger memory.")
    if dst == src:
        return None
    to, source = KINDS[kind]
    if source != "host" and DEVICE.find(src) is not None:
        need_device(src, count, "src", api)  # bounds the size before host memory is probed, which touches all its pages
    return _side(dst, count, "dst", to, True, api), _side(src, count, "src", source, False, api)


def move(api: str, places: tuple[int, int] | None, count: int) -> None:
    """Copy bytes between places that `check_copy` found; they may overlap."""
    if places is not None:
        if DEVICE.watch is not None:
            DEVICE.watch.moving(*places, count, api)
        BACKING.move(*places, count, DEVICE.find)


def check_fill(api: str, address: int, room: int, count: int) -> int:
    """Where the bytes to be set lie."""
    if not address:
        raise AclnnError(100000, api, "devPtr must not be a null pointer. Pass the memory to set.")
    if count > room:
        raise AclnnError(107000, api, f"count must be at most maxCount = {room}; got {count}. Set less.")
    return address if _pinned(address, count, "devPtr", api) else need_device(address, count, "devPtr", api)


def fill(place: int, value: int, count: int) -> None:
    """Set bytes at a place that `check_fill` found."""
    if DEVICE.watch is not None:
        DEVICE.watch.filling(place, count)
    BACKING.fill(place, value & 0xFF, count, DEVICE.find)
