"""How many threads a call may use."""

import os
from collections.abc import Callable

from anycann.errors import SettingError

__all__ = ["MOST", "get_num_threads", "group_size", "set_num_threads", "when_changed"]

MOST = 1024

_chosen: int | None = None
_told: list[Callable[[], None]] = []


def set_num_threads(n: int) -> None:
    """Use n threads for each operator call from now on, in the whole process. Results do not depend on n."""
    global _chosen
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"set_num_threads takes an int; got {type(n).__name__}")
    if not 1 <= n <= MOST:
        raise ValueError(f"the number of threads must be between 1 and {MOST}; got {n}")
    before, _chosen = _chosen, n
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
            if not (text.isdecimal() and 1 <= int(text) <= MOST):
                raise SettingError(f"ANYCANN_NUM_THREADS must be a whole number between 1 and {MOST}; got {text!r}")
            _chosen = int(text)
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
