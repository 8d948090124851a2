"""Where anycann keeps files it can make again: one root, `ANYCANN_CACHE_DIR` or the user's cache folder.

Files are written whole to a temporary name and renamed, so that concurrent processes never see half of one.
A root that cannot be written is no error: the files are then made again in each process. Folders that have not been used for two
months go when another is begun beside them.
"""

import contextlib
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

__all__ = ["load", "root", "save", "use"]

_DIGEST = hashlib.sha256
_KEPT_SECONDS = 60 * 24 * 3600


@functools.cache
def _absolute(chosen: str) -> Path:
    """A folder that is named from where the process is: from where it was when that was read first."""
    return Path(chosen).absolute()


def root() -> Path:
    """The folder of every cache of this user."""
    chosen = os.environ.get("ANYCANN_CACHE_DIR")
    if chosen:
        return _absolute(chosen)
    if sys.platform == "darwin":
        return Path("~/Library/Caches/anycann").expanduser()
    return _absolute(str(Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser())) / "anycann"


def load(path: Path) -> bytes | None:
    """The bytes that `save` put there; None if the file is missing, unreadable or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    size = _DIGEST().digest_size
    return content[size:] if _DIGEST(content[size:]).digest() == content[:size] else None


def save(path: Path, data: bytes) -> bool:
    """Write data with its checksum, whole or not at all; False where the folder cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    except OSError:
        return False
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_DIGEST(data).digest() + data)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        return False
    return True


def use(folder: Path) -> None:
    """Say that a folder is used now. Where it is new, those beside it that were not used for two months are removed."""
    with contextlib.suppress(OSError):
        if folder.is_dir():
            os.utime(folder)
            return
        folder.mkdir(parents=True)
        for other in folder.parent.iterdir():
            if other.is_dir() and time.time() - other.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
