"""Contexts: what a thread works in. Each thread has none until it sets a device or a context."""

import threading

from anycann.device.handles import Table
from anycann.errors import AclnnError

__all__ = ["CONTEXTS", "Context", "need_context", "set_context"]


class Context:
    """What a thread works in: a device. The default one of a device lives as long as the device is set."""

    __slots__ = ("alive", "device", "handle")

    def __init__(self, device: int) -> None:
        self.device, self.alive = device, True
        self.handle = CONTEXTS.add(self)

    def end(self) -> None:
        self.alive = False
        CONTEXTS.living.pop(self.handle, None)


class _Thread(threading.local):
    context: Context | None = None


CONTEXTS: Table[Context] = Table("context", 107017)
_thread = _Thread()


def set_context(context: Context) -> None:
    """Make a context the one of this thread."""
    _thread.context = context


def need_context(api: str) -> Context:
    """The context of this thread; AclnnError 107002 if there is none."""
    context = _thread.context
    if context is None or not context.alive:
        mend = "Call aclrtSetDevice (or aclrtSetCurrentContext) in every thread that uses the device."
        raise AclnnError(107002, api, f"this thread must have a context; it has none. {mend}")
    return context
