"""The C++ compiler and the folder of what it made: everything there is named after the hash of all that went into it."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from anycann import caches
from anycann.ascendc.report import ToolchainError

__all__ = ["FLAGS", "INCLUDE", "Compiled", "compile_file", "compiler", "core_library", "digest", "folder", "place"]

_HERE = Path(__file__).parent
INCLUDE = _HERE / "include"
_CORE = _HERE / "core"

# Contraction and value-changing optimisation would lose bit-exactness; typed views of UB memory alias by design.
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-ffp-contract=off", "-fno-fast-math", "-fno-strict-aliasing", "-pthread")

SANITIZERS = {None: (), "undefined": ("-fsanitize=undefined",), "address": ("-fsanitize=address,undefined",)}


class Compiled:
    """What a compiler run said: its status and its messages."""

    def __init__(self, status: int, output: str) -> None:
        self.status, self.output = status, output


@cache
def _identify(path: str, _stamp: tuple[int, int]) -> str:
    """The compiler's version and target; the stamp makes a replaced compiler a new one."""
    done = subprocess.run([path, "-v"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ToolchainError(f"{path} does not run: {done.stderr.strip()}")
    return done.stderr


def compiler() -> tuple[str, str]:
    """(path, identity) of the C++ compiler: the variable CXX, else g++, else clang++."""
    wanted = os.environ.get("CXX")
    for name in (wanted,) if wanted else ("g++", "clang++"):
        path = shutil.which(name)
        if path is not None:
            status = os.stat(path)
            return path, _identify(path, (status.st_mtime_ns, status.st_size))
    said = f"the compiler {wanted} that the variable CXX names" if wanted else "g++ or clang++"
    raise ToolchainError(
        f"kernels are compiled here, and {said} was not found; install the package g++ (Debian, Ubuntu) or gcc-c++ (Fedora)"
    )


@cache
def folder() -> Path:
    """Where compiled files lie: in anycann's cache, or in a folder of this process where that cannot be written."""
    path = caches.root() / "ascendc"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError:
        return Path(tempfile.mkdtemp(prefix="anycann-ascendc-"))


def digest(parts: Iterable[str | bytes]) -> str:
    """A name for all the parts together."""
    hashed = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8, "little") + data)
    return hashed.hexdigest()[:32]


def compile_file(arguments: Sequence[str | Path]) -> Compiled:
    """Run the compiler."""
    done = subprocess.run([compiler()[0], *map(str, arguments)], capture_output=True, text=True, check=False, errors="replace")
    return Compiled(done.returncode, done.stderr)


def place(made: Path, path: Path) -> None:
    """Put a finished file where others look for it, whole or not at all."""
    os.replace(made, path)


@cache
def _tree_digest(pattern_root: Path) -> str:
    files = sorted(path for path in pattern_root.rglob("*") if path.is_file() and path.suffix in (".h", ".cpp"))
    return digest(part for path in files for part in (str(path.relative_to(pattern_root)), path.read_bytes()))


def headers_digest() -> str:
    """A name for the state of all emulation headers."""
    return _tree_digest(INCLUDE)


def core_library(sanitize: str | None = None) -> Path:
    """The library of simulated cores, compiled on first use (some seconds)."""
    _, identity = compiler()
    flags = (*FLAGS, "-Wall", "-Wextra", *SANITIZERS[sanitize])
    name = digest((identity, _tree_digest(_CORE), headers_digest(), *flags))
    path = folder() / f"libanycann_ascendc-{name}.so"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=folder()) as work:
        unit, library = Path(work) / "core.cpp", Path(work) / path.name
        unit.write_text("".join(f'#include "{source}"\n' for source in sorted(_CORE.glob("*.cpp"))))
        result = compile_file([*flags, f"-I{INCLUDE}", "-shared", unit, "-o", library])
        if result.status != 0:
            raise ToolchainError(f"{compiler()[0]} cannot compile anycann's simulated cores:\n{result.output}")
        place(library, path)
    return path
