"""What a measurement was taken on: the processor, its caches, memory, and the versions of all that took part."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

import anycann

__all__ = ["cores", "describe", "has", "last_level_cache", "memory", "versions", "versions_of"]

_FEATURES = ("avx512f", "avx512bw", "avx512vl", "avx512bf16", "avx512fp16", "avx2", "fma", "f16c", "neon", "fullfp16", "bf16", "sve")
_LAST_LEVEL = 32 << 20  # where the system does not say
_OF_A_CORE = 16 << 20  # more of a cache than CPUs have for each core: a virtual machine names that of its host, whose cores are others' too


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def has(feature: str) -> bool:
    """Whether the processor has a feature, by LLVM's name."""
    return bool(llvm.get_host_cpu_features().get(feature))


def memory() -> int:
    """Bytes of memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 8 << 30


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _caches() -> dict[str, int]:
    """Bytes of the data caches of the first core."""
    found = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind, level, size = (_text(str(folder / name)) for name in ("type", "level", "size"))
        if kind != "Instruction" and size.endswith("K"):
            found[f"L{level}"] = int(size[:-1]) << 10
    return found


def last_level_cache() -> int:
    """Bytes of the largest cache, as far as they can be this machine's own; a guess where the system does not say."""
    return min(max(_caches().values(), default=_LAST_LEVEL), _OF_A_CORE * (os.cpu_count() or 1))


def _processor() -> str:
    lines = (line.partition(":") for line in _text("/proc/cpuinfo").splitlines())
    named = next((value.strip() for key, _, value in lines if key.strip() == "model name"), "")
    return named or platform.processor() or platform.machine()


def describe() -> dict[str, Any]:
    """The machine, for a report."""
    return {
        "processor": _processor(),
        "architecture": platform.machine(),
        "llvm_name": llvm.get_host_cpu_name(),
        "features": [name for name in _FEATURES if has(name)],
        "cores": cores(),
        "memory_bytes": memory(),
        "cache_bytes": _caches(),
        "system": platform.platform(terse=True),
        "huge_pages": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def _compiler() -> str | None:
    path = shutil.which("g++")
    if path is None:
        return None
    return subprocess.run([path, "-dumpfullversion"], capture_output=True, text=True, check=False).stdout.strip() or None


def versions() -> dict[str, str | None]:
    """Versions of Python and of the packages that take part; None for those that are not installed."""
    own = {"anycann": anycann.__version__, "python": platform.python_version()}
    return own | versions_of(("numpy", "ml_dtypes", "numba", "llvmlite", "torch")) | {"g++": _compiler()}


def versions_of(names: Sequence[str]) -> dict[str, str | None]:
    """Versions of packages; None for those that are not installed."""
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
