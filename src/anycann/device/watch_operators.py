"""The check mode for operators: whether their tensors are there, were written, and hold what can be meant."""

from collections.abc import Callable, Sequence
from typing import Any

from anycann.device import watch_values
from anycann.device.memory import DEVICE
from anycann.device.operators import EXECUTORS
from anycann.device.tensors import DeviceTensor
from anycann.device.watch_memory import Filled, Record, extent
from anycann.device.watch_state import State
from anycann.plans import Plan
from anycann.spec import Attr, OpSpec
from anycann.tensor import Tensor

__all__ = ["Operators"]


class Operators(State):
    """What the two phases tell."""

    def planning(self, api: str, spec: OpSpec, found: Sequence[Any]) -> None:
        """Phase 1 of an operator gets these tensors."""
        for param, value in zip(spec.params, found, strict=True):
            if isinstance(param, Attr) or not isinstance(value, DeviceTensor):
                continue
            described, low, high = value.described, value.low, value.high
            record = self._record_at(described.address)
            if record is None:
                continue
            if not value.in_memory():
                self._outside(api, param.name, described, record, low, high)
            else:
                start, size = extent(described)
                end = start - record.block.address + size
                if end > record.reach or (end == record.reach and record.filled is None):
                    dtype, numel_bytes = described.dtype, size if start == record.block.address else 0
                    record.reach = end
                    record.filled = Filled(spec.name, param.name, dtype.name, dtype.itemsize, numel_bytes, self.here())

    def _record_at(self, address: int) -> Record | None:
        """The allocation of an address, living or freed."""
        if not address:
            return None
        block = DEVICE.find(address)
        with self._lock:
            return self.ledger.living.get(block.address) if block is not None else self.ledger.at(address)

    def _outside(self, api: str, name: str, described: Tensor, record: Record, low: int, high: int) -> None:
        if record.freed:
            what = f"the data of the tensor, {described.address:#x}, lies in device memory that was freed. The call was refused."
            self.find("use after free", api, what, "Free memory after its last use.", name, record)
            return
        touched = f"bytes {low - record.block.address} to {high - record.block.address}"
        what = f"a {described.dtype} tensor of shape {described.shape} uses {touched} of an allocation of {record.block.size} bytes."
        mend = f"Allocate {max(high - record.block.address, 1)} bytes, or make the tensor smaller."
        self.find("buffer smaller than its tensor", api, what, mend, name, record)

    def called(self, executor: int) -> None:
        """Phase 2 gets an executor, which it may refuse."""
        self.ran.add(executor)

    def runner(self, plan: Plan, executor: int) -> Callable[[Sequence[int], int], None]:
        """`plan.run`, with a look at the memory before it and a note of what it wrote. It knows the place of the call."""
        if executor not in EXECUTORS.living:
            self.ran.discard(executor)

        def run(addresses: Sequence[int], workspace: int) -> None:
            outputs = []
            for place, (param, layout, address) in enumerate(zip(plan.spec.tensors, plan.layouts, addresses, strict=True)):
                with self._lock:
                    record = self.ledger.with_bytes(layout.at(address).bytes_touched()[0]) if layout.numel else None
                if record is None:
                    continue
                low, high = layout.at(address).bytes_touched()
                record.reach = max(record.reach, high - record.real)
                if low < workspace + plan.workspace_size and workspace < high:
                    self._overlap(plan, param.name, record, workspace - record.real)
                if param.output:
                    outputs.append((record, layout, address - record.real))
                else:
                    self._look(plan, place, record, addresses)
            plan.run(addresses, workspace)
            with self._lock:
                for record, layout, offset in outputs:
                    record.written.mark_elements(offset, layout)
                    record.wrote("operator", 0)

        return run if plan.launch is not None else plan.run

    def _overlap(self, plan: Plan, name: str, record: Record, offset: int) -> None:
        """The workspace lies in the allocation of a tensor."""
        what = f"{plan.workspace_size} bytes of workspace from byte {offset} of the allocation are in the memory of this tensor."
        mend = "Allocate memory for the workspace alone; the operator writes to it."
        self.find("workspace overlaps a tensor", plan.spec.name, what, mend, name, record)

    def _look(self, plan: Plan, place: int, record: Record, addresses: Sequence[int]) -> None:
        """Whether an input is there, and whether its values can be meant."""
        layout, param, api, address = plan.layouts[place], plan.spec.tensors[place], plan.spec.name, addresses[place]
        with self._lock:
            read = watch_values.rows_read(plan, place, addresses) if record.written.missing else None
            missing, first = record.written.lacks_elements(address - record.real, layout, None if read is None else read[0])
            if missing and "kernel" not in record.sources:
                some = f"{missing} of the {layout.numel} elements of the {layout.dtype} tensor"
                some += "" if read is None else f" are in rows that {read[1]} names and"
                what = f"{some} were never written; the first is {first}."
                self.find("uninitialised memory", api, what, "Copy data to it first, or run what computes it.", param.name, record)
                record.written.mark(0, record.block.size)
            limit = watch_values.limit_of(plan, place)
            key = (address, layout.shape, layout.strides, layout.dtype, limit)
            if missing or ("kernel" not in record.sources and record.seen.get(key) == record.version):
                return
            record.seen[key] = record.version
            from_host = layout.dtype.kind in "fiu" and "host" in record.sources and record.sources <= {"host", "fill"}
        if limit is None and not from_host:
            return
        bits = watch_values.bits_of(layout.at(address))
        said = limit is not None and self._indices(bits, limit, api, param.name, record, layout)
        if from_host and not said:
            self._types(bits, api, param.name, record, layout)

    def _indices(self, bits: watch_values.Bits, limit: int, api: str, name: str, record: Record, layout: Tensor) -> bool:
        count, first, found = watch_values.strays(bits, limit)
        if not count:
            return False
        what = f"{count} of {bits.size} entries are outside [0, {limit}); the first is entry {first}, {int(found.flat[0])}."
        floats = watch_values.float_bits(found)
        mend = "Correct the indices; the operator leaves these out."
        if floats is not None:
            what += f" These bits are the {floats[0]} number {floats[1]!r}: the tensor was filled from an array of floats."
            mend = f"Fill the tensor from an array of {layout.dtype}."
        self.find("index out of range", api, what, mend, name, record)
        return True

    def _types(self, bits: watch_values.Bits, api: str, name: str, record: Record, layout: Tensor) -> None:
        dtype = layout.dtype
        kind = "data of another type"
        if dtype.kind == "f" and watch_values.integer_bits(bits):
            first = int(bits[bits > 0].flat[0])
            what = f"the {dtype} tensor looks like int{8 * dtype.itemsize} data: all its bits are those of small integers, such as {first}."
            self.find(kind, api, what, f"Fill the tensor from an array of {dtype}.", name, record)
        elif dtype.kind in "iu":
            floats = watch_values.float_bits(bits)
            if floats is not None:
                what = f"the {dtype} tensor looks like {floats[0]} data: its bits are those of numbers such as {floats[1]!r}."
                self.find(kind, api, what, f"Fill the tensor from an array of {dtype}.", name, record)
