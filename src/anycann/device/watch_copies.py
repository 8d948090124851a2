"""The check mode for memory: what is allocated, freed, copied and filled."""

from anycann.device.memory import HOST, Block
from anycann.device.watch_memory import Record
from anycann.device.watch_state import State

__all__ = ["Copies"]

_GOES_ON = "The call was refused; a device goes on."
WIDTHS = (2, 4, 8)  # how much wider the elements of a host array can be than those of a tensor


class Copies(State):
    """What the calls for memory tell."""

    def allocated(self, real: int, size: int, api: str) -> Block | None:
        """New memory: the block under which the program shall know it; None without address space for it."""
        with self._lock:
            record = self.ledger.open(real, size, api, self.here())
            return None if record is None else record.block

    def freed(self, block: Block, api: str) -> None:
        """Memory is given back."""
        with self._lock:
            record = self.ledger.living[block.address]
            self.too_wide(record)
            self.ledger.close(block, api, self.here())

    def refused(self, address: int, size: int, name: str, api: str) -> None:
        """A call gets an address that is not `size` bytes of living memory."""
        with self._lock:
            record = self.ledger.at(address)
        if record is None:
            return
        if record.freed:
            what = f"{address:#x} lies in device memory that was freed. The call was refused; a device reads or writes what lies there now."
            self.find("use after free", api, what, "Free memory after its last use.", name, record)
        else:
            left = max(record.block.end - address, 0)
            what = f"{size} bytes are needed from {address:#x}, and {left} are left. {_GOES_ON}"
            self.find("past the end of an allocation", api, what, "Allocate more, or use less.", name, record)

    def refused_pinned(self, address: int, size: int, name: str, api: str) -> None:
        """A copy or a fill gets an address that is not `size` bytes of living host memory."""
        block = HOST.find(address)
        if block is None:
            what = f"{address:#x} lies in host memory that was freed. The call was refused; a device reads or writes what lies there now."
            self.find("use after free", api, what, "Free memory after its last use.", name)
        else:
            what = f"{size} bytes are needed from {address:#x}, and {block.end - address} bytes of host memory are left."
            self.find("past the end of an allocation", api, f"{what} {_GOES_ON}", "Allocate more, or use less.", name)

    def freeing_pinned(self, address: int, api: str) -> None:
        """An address is to be freed that may be no living host memory."""
        block = HOST.find(address)
        if block is None and HOST.source.holds(address):
            self.find("freed twice", api, f"{address:#x} lies in host memory that was freed before.", "Free memory once.", "hostPtr")
        elif block is not None and block.address != address:
            what = f"{address:#x} lies {address - block.address} bytes into {block.size} bytes of host memory."
            self.find("not the beginning of an allocation", api, what, "Free the address that the allocation returned.", "hostPtr")

    def freed_again(self, address: int, api: str) -> None:
        """An address is to be freed that is not living memory."""
        with self._lock:
            record = self.ledger.at(address)
        if record is not None and record.freed:
            self.find("freed twice", api, f"{address:#x} was freed before.", "Free memory once.", "devPtr", record)
        elif record is not None:
            what = f"{address:#x} lies {address - record.block.address} bytes into an allocation."
            self.find("not the beginning of an allocation", api, what, "Free the address that the allocation returned.", "devPtr", record)

    def moving(self, to: int, source: int, count: int, api: str) -> None:
        """Bytes are about to be copied, from where they lie to where they lie."""
        with self._lock:
            target, origin = self.ledger.with_bytes(to), self.ledger.with_bytes(source)
            if origin is not None:
                low = source - origin.real
                missing, first = origin.written.lacks(low, low + count)
                if missing and "kernel" not in origin.sources:
                    what = (
                        f"{missing} of the {count} bytes that are copied were never written; the first is byte {first} of the allocation."
                    )
                    mend = "Write the memory first: copy data to it, set it, or run the operator before reading."
                    self.find("uninitialised memory", api, what, mend, "src", origin)
                    origin.written.mark(0, origin.block.size)
                if target is not None:
                    origin.reach = max(origin.reach, low + count)
            if target is not None:
                low = to - target.real
                target.written.mark(low, low + count)
                target.wrote("host" if origin is None else "device", count)
                if origin is None and low == 0:
                    target.copied = max(target.copied, count)

    def filling(self, to: int, count: int) -> None:
        """Bytes are about to be set."""
        with self._lock:
            record = self.ledger.with_bytes(to)
            if record is not None:
                record.written.mark(to - record.real, to - record.real + count)
                record.wrote("fill", count)

    def handed_out(self, block: Block | None) -> None:
        """A kernel of the program may do anything with the memory; with any, where nobody says which."""
        with self._lock:
            for record in self.ledger if block is None else (self.ledger.living[block.address],):
                record.written.mark(0, record.block.size)
                record.wrote("kernel", 0)

    def too_wide(self, record: Record) -> None:
        """Whether the host copied twice or four times what the only tensor in an allocation holds."""
        filled = record.filled
        if filled is None or "kernel" in record.sources or not filled.bytes or record.reach != filled.bytes:
            return
        if any(record.copied == times * filled.bytes and times * filled.itemsize in WIDTHS for times in WIDTHS):
            times = record.copied // filled.bytes
            what = (
                f"{record.copied} bytes were copied into the {filled.bytes} bytes of a {filled.dtype} tensor, and nothing uses the others: "
                f"elements of {times * filled.itemsize} bytes instead of {filled.itemsize}."
            )
            self.find(
                "data of another type",
                filled.api,
                what,
                f"Use a host array of {filled.itemsize}-byte elements, {filled.dtype}.",
                filled.parameter,
                record,
                filled.site,
            )
