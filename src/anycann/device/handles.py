"""Handles: numbers that stand for objects. They are no addresses, are never used twice and are looked up, never dereferenced."""

import itertools
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from anycann.errors import AclnnError

if TYPE_CHECKING:
    from anycann.device.watch import Watch

__all__ = ["TABLES", "Table"]

BASE = 0x00AC_0000_0000_0000  # not an address that a program can have on x86-64 or aarch64
STEP = 16

T = TypeVar("T")
_numbers = itertools.count(BASE + STEP, STEP)
TABLES: "list[Table[object]]" = []


class Table(Generic[T]):
    """The living objects of one kind. `code` is the status for a handle that is none of them."""

    watch: "ClassVar[Watch | None]" = None  # who looks for mistakes

    def __init__(self, kind: str, code: int) -> None:
        self.kind, self.code = kind, code
        self.living: dict[int, T] = {}
        TABLES.append(self)  # type: ignore[arg-type]

    def add(self, value: T) -> int:
        """A new handle for an object."""
        handle = next(_numbers)
        self.living[handle] = value
        if Table.watch is not None:
            Table.watch.born(handle)
        return handle

    def find(self, handle: int, name: str, api: str) -> T:
        """The object of a handle; AclnnError with the table's code if there is none."""
        found = self.living.get(handle)
        if found is None:
            raise self.stranger(handle, name, api)
        return found

    def remove(self, handle: int, name: str, api: str) -> T:
        """The object of a handle, which is not valid any more."""
        found = self.living.pop(handle, None)
        if found is None:
            raise self.stranger(handle, name, api)
        return found

    def stranger(self, handle: int, name: str, api: str) -> AclnnError:
        """What to say of a handle that is not one of these."""
        other = next((table.kind for table in TABLES if handle in table.living), None)
        if other is not None:
            got, mend = f"the {other} {handle:#x}", f"Pass the {self.kind}."
        elif BASE < handle < next(_numbers) and handle % STEP == 0:
            if Table.watch is not None:
                Table.watch.stale(handle, self.kind, name, api)
            got, mend = f"{handle:#x}, which was destroyed or used up", f"Do not use it afterwards; make a new {self.kind}."
        else:
            got, mend = f"{handle:#x}, which no function of this library returned", f"Pass the {self.kind} as it was returned."
        return AclnnError(self.code, api, f"{name} must be a living {self.kind}; got {got}. {mend}")
