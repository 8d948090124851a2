"""What the checker and the compiler say, as exceptions: a mistake in the kernel is kept apart from a machine that cannot build."""

import json
import os
from dataclasses import dataclass

__all__ = ["CompileError", "KernelError", "Report", "parse_reports"]


@dataclass(frozen=True)
class Report:
    """One mistake. `rule` is a short name that docs/ascendc.md explains; `also_*` is a second place that takes part in it."""

    rule: str
    file: str
    line: int
    cores: tuple[int, ...]
    api: str
    pipe: str
    queue: str
    buffer: int | None
    what: str
    also: str
    also_file: str
    also_line: int
    rule_text: str
    advice: str


class KernelError(RuntimeError):
    """A kernel broke a rule whose breach hangs or corrupts on a device. `reports` has every mistake; str() is the text for a reader."""

    def __init__(self, message: str, reports: tuple[Report, ...]) -> None:
        super().__init__(message)
        self.reports = reports


class CompileError(ValueError):
    """The kernel's source does not compile. str() begins with the mistakes in short; `output` is all that the compiler said."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.output = output


def parse_reports(findings: str) -> tuple[tuple[Report, ...], dict[str, object], bool]:
    """(reports, summary, abandoned) from the core library's JSON."""
    data = json.loads(findings)
    reports = tuple(
        Report(
            **{**row, "cores": tuple(row["cores"]), "buffer": row["buffer"] if row["buffer"] >= 0 else None, "file": os.fspath(row["file"])}
        )
        for row in data["reports"]
    )
    return reports, data["summary"], bool(data["abandoned"])
