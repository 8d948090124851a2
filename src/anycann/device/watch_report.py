"""Findings of the check mode: printed when they are made, counted, and written as JSON lines where a file is named."""

import contextlib
import ctypes
import json
import mmap
from dataclasses import dataclass

from anycann.device.watch_sites import Site
from anycann.errors import say

__all__ = ["Finding", "Report"]

SHOWN = 100  # the others are only counted, and written to the file


@dataclass(frozen=True)
class Finding:
    """One mistake of a program: what happened, in which call, with which memory, and what to do."""

    kind: str
    api: str
    what: str
    mend: str
    parameter: str = ""
    allocation: int = 0  # its number, from 1; 0 where none is concerned
    memory: str = ""  # the allocation in words
    site: Site | None = None

    def text(self) -> str:
        """The block that is printed."""
        lines = [f"anycann check: {self.kind}", f"  {', '.join(filter(None, (self.api, self.parameter)))}: {self.what}"]
        lines += [f"  memory: {self.memory}"] if self.memory else []
        lines += [f"  called at {self.site}"] if self.site is not None and str(self.site) else []
        return "\n".join([*lines, f"  {self.mend}", ""])

    def line(self) -> str:
        """The line of JSON."""
        fields = {name: getattr(self, name) for name in ("kind", "api", "parameter", "what", "mend", "allocation", "memory")}
        return json.dumps({**fields, "site": "" if self.site is None else str(self.site)}, ensure_ascii=False) + "\n"


class Report:
    """The findings of a process; one is added at a time. `path` is the file for them, `mark` one that is there once there are any.

    `of_all` counts those of the processes that it has forked, too.
    """

    def __init__(self, path: str | None, mark: str | None = None) -> None:
        self.path, self.mark = path, mark
        self.count = 0
        self.of_all = ctypes.c_uint64.from_buffer(mmap.mmap(-1, mmap.PAGESIZE))  # which they share

    def add(self, finding: Finding) -> None:
        """Count a finding, print it and write it."""
        self.count += 1
        self.of_all.value += 1
        if self.mark:
            with contextlib.suppress(OSError), open(self.mark, "a", encoding="utf-8"):
                pass
        if self.count <= SHOWN:
            say(finding.text())
        if self.path:
            self._write(self.path, finding.line())

    def _write(self, path: str, line: str) -> None:
        try:
            with open(path, "a", encoding="utf-8", errors="backslashreplace") as file:  # names that are no UTF-8: escapes of JSON
                file.write(line)
        except OSError as error:
            say(f"anycann check: findings cannot be written to {path}: {error.strerror}\n")
            self.path = None

    def summary(self) -> None:
        """The last line."""
        more = f", of which the first {SHOWN} were printed" if self.count > SHOWN else ""
        count = self.of_all.value
        say(f"anycann check: {count} finding{'' if count == 1 else 's'}{more}\n")
