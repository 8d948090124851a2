"""The C++ compiler, and folders for what it made: everything there is named after the hash of all that went into it."""

import hashlib
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from anycann import caches

__all__ = ["Compiled", "ToolchainError", "compile_file", "compiler", "digest", "folder", "place", "place_folder", "remove_temporary"]

_temporary: list[Path] = []
_log = logging.getLogger(__name__)


class ToolchainError(RuntimeError):
    """This machine cannot compile C++ for anycann: a compiler, or a file that it needs, was not found or does not work."""


class Compiled:
    """What a compiler run said: its status and its messages."""

    def __init__(self, status: int, output: str) -> None:
        self.status, self.output = status, output


@cache
def _identify(command: tuple[str, ...], _stamp: tuple[int, int]) -> str:
    """The compiler's version and target, and what is always said to it; the stamp makes a replaced compiler a new one."""
    done = subprocess.run([*command, "-v"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{shlex.join(command)} does not run: {done.stderr.strip()}")
    return "\0".join((*command[1:], done.stderr))


def _wanted() -> list[str]:
    """The words of the variable CXX: a program, and what is always said to it, as in "ccache g++"."""
    value = os.environ.get("CXX", "")
    try:
        return shlex.split(value)
    except ValueError as error:
        raise ToolchainError(f"the variable CXX must be a command, in words as for a shell; got {value!r}: {error}") from None


def compiler() -> tuple[tuple[str, ...], str]:
    """(command, identity) of the C++ compiler: the variable CXX, else g++, else clang++."""
    wanted = _wanted()
    for name, *words in [wanted] if wanted else [["g++"], ["clang++"]]:
        path = shutil.which(name)
        if path is not None:
            status, command = os.stat(path), (path, *words)
            return command, _identify(command, (status.st_mtime_ns, status.st_size))
    said = f"the compiler {wanted[0]} that the variable CXX names" if wanted else "g++ or clang++"
    raise ToolchainError(f"C++ is compiled here, and {said} was not found; install the package g++ (Debian, Ubuntu) or gcc-c++ (Fedora)")


@cache
def folder(kind: str) -> Path:
    """Where compiled files of a kind lie: in anycann's cache, or in a temporary folder where that cannot be written."""
    path = caches.root() / kind
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        made = Path(tempfile.mkdtemp(prefix=f"anycann-{kind}-"))
        _temporary.append(made)
        return made


def remove_temporary() -> None:
    """Remove the temporary folders of this process, which is about to end."""
    for made in _temporary:
        shutil.rmtree(made, ignore_errors=True)


def digest(parts: Iterable[str | bytes]) -> str:
    """A name for all the parts together."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode(errors="surrogateescape") if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()[:32]


def compile_file(arguments: Sequence[str | Path]) -> Compiled:
    """Run the compiler."""
    command = [*compiler()[0], *map(str, arguments)]
    _log.info(shlex.join(command))
    done = subprocess.run(command, capture_output=True, text=True, check=False, errors="replace")
    return Compiled(done.returncode, done.stderr)


def place(made: Path, path: Path) -> None:
    """Put a finished file where others look for it, whole or not at all."""
    os.replace(made, path)


def place_folder(made: Path, path: Path) -> None:
    """Put a finished folder where others look for it, whole or not at all; one that another process put there stays."""
    try:
        made.rename(path)
    except OSError:
        if not path.is_dir():
            raise
