"""How commands print: plain text in pipes, tables without frames, JSON, and mistakes of the user in one line."""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

__all__ = ["Wrong", "console", "number", "print_table", "progress", "table", "titled", "write_json"]

_WIDE = 150  # characters of a line that no terminal folds
_WORD = 16  # characters of a word, after which it may be folded
STYLES = {"pass": "green", "ok": "green", "FAIL": "bold red", "BROKEN": "bold red", "warn": "yellow", "n/a": "yellow"}


class Wrong(Exception):
    """A mistake in the arguments of a command: shown in one line, exit status 2."""


def console(stderr: bool = False) -> Console:
    """A console that prints text as it is given. Files and pipes have wide lines, so that tables are not folded."""
    made = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not made.is_terminal and "COLUMNS" not in os.environ:
        made.width = _WIDE
    return made


def table(*columns: str, right: Sequence[str] = (), fixed: Sequence[str] = (), gap: int = 2) -> Table:
    """An empty table; columns of `right` are numbers, those of `fixed` are never wrapped, `gap` blanks stand between them."""
    made = Table(
        box=box.SIMPLE_HEAD, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False, title_justify="left", header_style="bold"
    )
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name in right or name in fixed, overflow="fold")
    return made


def _needed(column: Column) -> int:
    """Characters that a column needs to be read: its words, but for the tails of long ones where it may be folded."""
    cells = [cell.plain if isinstance(cell, Text) else str(cell) for cell in (column.header, *column.cells)]
    if column.no_wrap:
        return max(cell_len(line) for cell in cells for line in cell.split("\n"))
    longest = max(cell_len(word) for cell in cells for word in [*cell.split(), ""])
    return column.min_width or min(longest, _WORD)


def print_table(out: Console, rows: Table) -> None:
    """A table; where its columns do not fit side by side, each row below its first cell, a line for each of the others."""
    gap = rows.padding[1] + 1
    if sum(map(_needed, rows.columns)) + gap * (len(rows.columns) - 1) <= out.width:
        out.print(rows)
        return
    for first, *others in zip(*(column.cells for column in rows.columns), strict=True):
        if first:
            out.print(first, style="bold")
        for column, cell in zip(rows.columns[1:], others, strict=True):
            if cell:
                heading = f"{column.header}: ".replace("\n", " ") if column.header else ""
                out.print(Padding(Text.assemble(heading, cell), (0, 0, 0, 2), expand=False))


def titled(text: str) -> Text:
    """A heading."""
    return Text(text, style="bold")


def styled(word: str) -> Text:
    """A verdict in its colour."""
    return Text(word, style=STYLES.get(word, ""))


def number(value: float) -> str:
    """A figure in two or three digits."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if not 1e-2 <= abs(value) < 1e5:
        return f"{value:.1e}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _plain(value: Any) -> Any:
    """What JSON can hold: infinities and NaN become the strings "inf", "-inf" and "nan"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def write_json(data: Mapping[str, Any], target: str) -> None:
    """Write to a file, or to standard output for "-"."""
    text = json.dumps(_plain(data), indent=2, allow_nan=False) + "\n"
    if target == "-":
        print(text, end="")
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Wrong(f"--json {target}: {error.strerror}") from None


class Steps:
    """Progress over steps of equal weight."""

    def __init__(self, bar: Progress, total: int) -> None:
        self.bar, self.task = bar, bar.add_task("", total=total)

    def say(self, text: str) -> None:
        """What is being done now."""
        self.bar.update(self.task, description=text)

    def advance(self, share: float) -> None:
        """A share of a step is done."""
        self.bar.advance(self.task, share)


@contextmanager
def progress(total: int) -> Iterator[Steps]:
    """A bar on the terminal's standard error while work is going on; nothing elsewhere."""
    screen = console(stderr=True)
    columns = (BarColumn(bar_width=24), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as bar:
        yield Steps(bar, total)
