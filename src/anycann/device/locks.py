"""Locks that are free in a forked process."""

import os
import threading

__all__ = ["lock"]


def lock() -> threading.Lock:
    """A lock that nobody holds while the process forks: what it guards is whole in the child. Its holders take no other one."""
    made = threading.Lock()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made
