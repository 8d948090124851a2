"""What the parts of the check mode share: findings, allocations, and where in the program a call comes from."""

import ctypes
import os
import threading
from collections.abc import Callable

from anycann.device.handles import TABLES
from anycann.device.watch_memory import Ledger, Record
from anycann.device.watch_report import Finding, Report
from anycann.device.watch_sites import Site, caller

__all__ = ["State"]


class _Thread(threading.local):
    site: Site | None = None  # of the call whose task the thread runs


class State:
    """What is known of a process."""

    def __init__(self, reserving: bool, path: str | None, mark: str | None = None) -> None:
        self.report = Report(path, mark)
        self.ledger = Ledger(reserving, self.report)
        self.sites: dict[int, Site | None] = {}  # of handles
        self.ran: set[int] = set()  # living executors that phase 2 got
        self._many = 4096  # sites, at which those of destroyed objects are dropped
        self.ended = False
        self._process = os.getpid()
        self._thread = _Thread()
        self._lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._free)

    def _free(self) -> None:
        """After a fork: a thread of the parent may have held the lock, for as long as printing takes; what was found is the parent's."""
        self._lock = threading.RLock()
        self.report.count = self.ledger.table.findings = 0

    @property
    def table(self) -> int:
        """The address of what the C library reads: allocations and the number of findings."""
        return ctypes.addressof(self.ledger.table)

    def here(self) -> Site | None:
        return self._thread.site or caller()

    def carry(self, task: Callable[[], None]) -> Callable[[], None]:
        """A task of a stream that knows where it was queued."""
        site = self.here()

        def run() -> None:
            before, self._thread.site = self._thread.site, site
            try:
                task()
            finally:
                self._thread.site = before

        return run

    def find(
        self, kind: str, api: str, what: str, mend: str, parameter: str = "", record: Record | None = None, site: Site | None = None
    ) -> None:
        """Report a finding; with a record once for each allocation, function and parameter."""
        with self._lock:
            if record is not None:
                if (kind, api, parameter) in record.said:
                    return
                record.said.add((kind, api, parameter))
            number, memory = (0, "") if record is None else (record.number, str(record))
            self.report.add(Finding(kind, api, what, mend, parameter, number, memory, site or self.here()))
            self.ledger.table.findings = self.report.count

    def born(self, handle: int) -> None:
        """A handle is made."""
        site = self.here()
        with self._lock:
            self.sites[handle] = site
            if len(self.sites) > self._many:
                living = {handle for table in TABLES for handle in list(table.living)}
                self.sites = {handle: site for handle, site in self.sites.items() if handle in living}
                self._many = max(self._many, 2 * len(self.sites))

    def stale(self, handle: int, kind: str, name: str, api: str) -> None:
        """A handle is used that was destroyed or used up."""
        what = f"{name} is {handle:#x}, which was destroyed or used up. The call was refused; a device fails in other ways."
        self.find("use after destroy", api, what, f"Use the {kind} before it is destroyed, or make a new one.", name)
