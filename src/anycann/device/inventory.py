"""What a program has not destroyed or freed."""

from anycann.device.handles import TABLES
from anycann.device.memory import DEVICE, HOST

__all__ = ["living"]


def living() -> dict[str, int]:
    """How many objects and blocks of memory of each kind live."""
    objects = {table.kind: len(table.living) for table in TABLES}
    return objects | {f"{heap.kind} memory": len(heap.blocks()) for heap in (DEVICE, HOST)}
