"""The emulation's headers, the library of simulated cores, and how both are compiled."""

import shlex
import tempfile
from functools import cache
from pathlib import Path

from anycann import toolchain
from anycann.toolchain import ToolchainError, compile_file, compiler, digest, place

__all__ = [
    "EXACT", "FLAGS", "INCLUDE", "SANITIZERS", "compile_file", "compiler", "core_library", "digest", "folder", "headers_digest", "place",
]  # fmt: skip

_HERE = Path(__file__).parent
INCLUDE = _HERE / "include"
_CORE = _HERE / "core"

# Contraction and value-changing optimisation would lose bit-exactness; typed views of UB memory alias by design.
EXACT = ("-ffp-contract=off", "-fno-fast-math", "-fno-unsafe-math-optimizations")
FLAGS = ("-std=c++17", "-O2", "-g1", "-gdwarf-4", "-fPIC", *EXACT, "-fno-strict-aliasing", "-pthread")

SANITIZERS = {None: (), "undefined": ("-fsanitize=undefined",), "address": ("-fsanitize=address,undefined",)}


def folder() -> Path:
    """Where compiled kernels and programs lie."""
    return toolchain.folder("ascendc")


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
        result = compile_file([*flags, f"-I{INCLUDE}", "-shared", unit, "-ldl", "-o", library])
        if result.status != 0:
            raise ToolchainError(f"{shlex.join(compiler()[0])} cannot compile anycann's simulated cores:\n{result.output}")
        place(library, path)
    return path
