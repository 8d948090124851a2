"""Texts of refusals, kept for each thread until it reads them."""

import threading
import traceback

from anycann.device.calls import call
from anycann.device.switches import is_on
from anycann.errors import AclnnError, SettingError, say

__all__ = ["fault", "recent", "remember"]

KEPT = 32  # texts of a thread; the oldest goes first


class _Texts(threading.local):
    def __init__(self) -> None:
        self.newest_first: list[str] = []


_texts = _Texts()
_EXPLAIN = is_on("ANYCANN_EXPLAIN")  # also print them, for programs that print only the code


def remember(error: BaseException | str) -> None:
    """Keep the text of a refusal for this thread."""
    text = str(error)
    _texts.newest_first.insert(0, text)
    del _texts.newest_first[KEPT:]
    if _EXPLAIN:
        say(f"{text}\n")


def fault(error: BaseException, api: str, status: int) -> int:
    """Say that anycann itself failed, and where, or that a variable has a wrong value; what to answer."""
    if isinstance(error, SettingError):
        code = 161002 if api.startswith("aclnn") else 100000
        remember(AclnnError(code, api, f"{error}"))
        return code if status else 0
    say("".join(traceback.format_exception(error)))
    said = f"anycann itself failed with {error!r}; the traceback is on the standard error stream. Please report it."
    remember(AclnnError(status or 561000, api, said))
    return status


def recent() -> str | None:
    """The texts of this thread since the last reading, newest first, one per line; None when there are none."""
    kept, _texts.newest_first = _texts.newest_first, []
    return "\n".join(kept) or None


@call
def aclGetRecentErrMsg() -> str | None:
    return recent()
