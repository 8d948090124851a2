"""`anycann doctor`: what is installed, on which machine, and whether every operator works here."""

import doctest
import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import anycann
from anycann import buffers, caches, ops, products
from anycann.backends.threads import get_num_threads
from anycann.errors import SettingError
from anycann.runtime import Operator

__all__ = ["Finding", "findings"]

NEEDED = ("numpy", "ml_dtypes", "numba", "llvmlite", "cffi", "typer", "rich")
OPTIONAL = ("torch", "triton", "mpmath")
FEATURES = ("avx512f", "avx512bw", "avx512bf16", "avx512fp16", "avx2", "fma", "f16c", "neon", "sve")


class Finding(NamedTuple):
    """One line: state is "ok", "absent", "warn" or "BROKEN"."""

    topic: str
    state: str
    text: str


def _package(name: str, absent: str) -> Finding:
    try:
        return Finding(name, "ok", metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, absent, "not installed")


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _cpu() -> Iterator[Finding]:
    try:
        from llvmlite import binding
    except (ImportError, OSError) as error:
        yield Finding("compiler", "BROKEN", f"llvmlite cannot be loaded: {error}")
        return
    features = binding.get_host_cpu_features()
    has = [name for name in FEATURES if features.get(name)]
    yield Finding("CPU", "ok", f"{_cpu_model()} ({binding.get_host_cpu_name()})")
    yield Finding("vector features", "ok" if has else "warn", " ".join(has) or "none of " + " ".join(FEATURES))


def _settings() -> Iterator[Finding]:
    try:
        yield Finding("threads", "ok", f"{get_num_threads()} of {os.cpu_count()} CPUs")
    except ValueError as error:
        yield Finding("threads", "BROKEN", str(error))
    try:
        yield Finding("kept for results", "ok", f"{buffers.pool_limit() / 1e6:.0f} MB at most")
    except ValueError as error:
        yield Finding("kept for results", "BROKEN", str(error))
    try:
        product = products.current()
        yield Finding("product in force", "ok", f"{product.series} ({products.soc_name()})")
    except ValueError as error:
        yield Finding("product in force", "BROKEN", str(error).splitlines()[0])


def _size(folder: Path) -> str:
    sizes = [entry.stat().st_size for entry in folder.rglob("*") if entry.is_file()]
    return f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"


def _caches() -> Iterator[Finding]:
    root = caches.root()
    probe = root / f".doctor-{os.getpid()}"
    writable = caches.save(probe, b"")
    if writable:
        probe.unlink()
    words = _size(root) if writable else "not writable: kernels are compiled again in every process (set ANYCANN_CACHE_DIR)"
    yield Finding("cache root", "ok" if writable else "warn", f"{root} ({words})")
    try:
        from numba.core.registry import cpu_target

        from anycann.backends.cpu import cache_folder, require_compiler
    except (ImportError, OSError) as error:
        yield Finding("kernel folder", "BROKEN", f"Numba cannot be loaded: {error}")
        return
    try:
        require_compiler()
    except SettingError as error:
        yield Finding("kernel compiler", "BROKEN", str(error))
    folder = cache_folder(tuple(str(part) for part in cpu_target.target_context.codegen().magic_tuple()))
    yield Finding("kernel folder", "ok", f"{folder.relative_to(root)} ({_size(folder) if folder.is_dir() else 'empty'})")


def _operator(operator: Operator) -> Finding:
    """Whether the example of the contract gives the result that is printed there."""
    spec = operator.spec
    if products.current() not in spec.products:
        return Finding(spec.python, "absent", f"not available on {products.current().series}")
    example = doctest.DocTestParser().get_doctest(spec.example + "\n", {}, spec.python, None, None)
    report: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.FAIL_FAST).run(example, out=report.append)
    if not report:
        return Finding(spec.python, "ok", "its example gives the printed result")
    last = [line.strip() for line in "".join(report).splitlines() if line.strip()][-1]
    return Finding(spec.python, "BROKEN", f"its example fails: {last}")


def _operators() -> Iterator[Finding]:
    try:
        products.current()
    except ValueError:
        return
    for operator in ops.OPERATORS:
        yield _operator(operator)


def findings() -> Iterator[Finding]:
    """Every finding, in the order in which they are shown."""
    yield Finding("anycann", "ok", anycann.__version__)
    yield Finding("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield from (_package(name, "BROKEN") for name in NEEDED)
    yield from (_package(name, "absent") for name in OPTIONAL)
    yield from _cpu()
    yield from _settings()
    yield from _caches()
    yield from _operators()
