"""How many threads a call may use."""

import os
from collections.abc import Callable

__all__ = ["get_num_threads", "group_size", "set_num_threads", "when_changed"]

_chosen: int | None = None
_told: list[Callable[[], None]] = []


def _checked(value: int, source: str) -> int:
    if not 1 <= value <= 1024:
        raise ValueError(f"{source} must be between 1 and 1024; got {value}")
    return value


def set_num_threads(n: int) -> None:
    """Use n threads for each operator call from now on, in the whole process. Results do not depend on n."""
    global _chosen
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"set_num_threads takes an int; got {type(n).__name__}")
    before, _chosen = _chosen, _checked(n, "the number of threads")
    if _chosen != before:
        for call in _told:
            call()


def when_changed(call: Callable[[], None]) -> None:
    """Call it after each change of the number of threads."""
    _told.append(call)


def get_num_threads() -> int:
    """Threads an operator call may use: `set_num_threads`, else ANYCANN_NUM_THREADS, else the cores this process may run on."""
    global _chosen
    if _chosen is None:
        text = os.environ.get("ANYCANN_NUM_THREADS", "").strip()
        if text:
            if not text.isdecimal():
                raise ValueError(f"ANYCANN_NUM_THREADS must be a whole number between 1 and 1024; got {text!r}")
            _chosen = _checked(int(text), "ANYCANN_NUM_THREADS")
        else:
            _chosen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _chosen


def group_size(count: int, most: int, enough: int, parts: int) -> int:
    """How many of `count` things a unit of work takes: up to `most`, at least one.

    Groups of more than `enough` are halved while the units, `parts` times as many as groups, are fewer than the threads.
    """
    size = max(1, min(count, most))
    while size > max(1, enough) and parts * -(-count // size) < get_num_threads():
        size = -(-size // 2)
    return size
