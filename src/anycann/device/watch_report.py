"""Findings of the check mode: printed when they are made, counted, and written as JSON lines where a file is named."""

import json
import os
import sys
from dataclasses import dataclass

from anycann.device.watch_sites import Site

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
    """The findings of a process; one is added at a time."""

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.count = 0

    def add(self, finding: Finding) -> None:
        """Count a finding, print it and write it."""
        self.count += 1
        if self.count <= SHOWN:
            _print(finding.text())
        if self.path:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(finding.line())

    def summary(self) -> None:
        """The last line."""
        more = f", of which the first {SHOWN} were printed" if self.count > SHOWN else ""
        _print(f"anycann check: {self.count} finding{'' if self.count == 1 else 's'}{more}\n")


def _print(text: str) -> None:
    """To the standard error stream of the process, in one piece."""
    if sys.stderr is not None:
        sys.stderr.write(text)
        sys.stderr.flush()
    else:
        os.write(2, text.encode())
