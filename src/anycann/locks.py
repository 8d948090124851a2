"""Locks that no other thread holds while the process forks: its child finds them free, and whole what they guard."""

import os
import threading
from contextlib import AbstractContextManager
from typing import Any

__all__ = ["hold", "loading", "shared"]


def hold(lock: AbstractContextManager[Any]) -> None:
    """Hold a lock around forks, which wait for it, from now on.

    It must be re-entrant: handlers of signals and finalisers may fork, too. Of two such locks, the one given last is taken first.
    """

    def leave() -> None:
        lock.__exit__(None, None, None)

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=lock.__enter__, after_in_parent=leave, after_in_child=leave)


loading = threading.RLock()  # while modules of kernels are imported; held around forks once the compiler is
shared = threading.RLock()  # for short changes of what threads share; its holders take no other lock
hold(shared)
