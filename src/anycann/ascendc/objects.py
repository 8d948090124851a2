"""Compiling one translation unit, or taking it from the cache: the name of a result is the hash of everything it was made from,
the files that it includes among them."""

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from anycann import caches
from anycann.ascendc import toolchain
from anycann.ascendc.devices import Device
from anycann.ascendc.diagnostics import summarise
from anycann.ascendc.report import CompileError
from anycann.ascendc.sources import rewrite_launches

__all__ = ["compile_unit", "device_flags", "include_line"]

# Hidden symbols: templates and static members of two modules with kernels of one name must not become one.
_SHARED = ["-shared", "-fvisibility=hidden", "-Wl,-z,defs"]


def device_flags(device: Device, check: bool, sanitize: str | None) -> list[str]:
    """Compiler options for a product and a mode."""
    if sanitize not in toolchain.SANITIZERS:
        raise ValueError(f'sanitize must be None, "undefined" or "address"; got {sanitize!r}')
    legacy = {2201: 220, 2002: 200, 1001: 100, 3002: 300, 3510: 310}[device.architecture]
    flags = [
        *toolchain.FLAGS,
        *toolchain.SANITIZERS[sanitize],
        f"-I{toolchain.INCLUDE}",
        f"-DANYCANN_UB_BYTES={device.ub_bytes}",
        f"-DANYCANN_UB_RESERVED={device.reserved}",
        f"-DANYCANN_EVENT_IDS={device.event_ids}",
        f"-DANYCANN_CORES={device.cores}",
        f"-D__NPU_ARCH__={device.architecture}",
        f"-D__CCE_AICORE__={legacy}",
        "-D__DAV_VEC__",
    ]
    return flags if check else [*flags, "-DANYCANN_FAST", "-O3"]


def include_line(source: Path) -> str:
    """What a generated unit writes to include a kernel source: the file itself, or its rewritten text where it uses <<<>>>."""
    text = source.read_text(errors="replace")
    rewritten = rewrite_launches(text)
    if rewritten == text:
        return f'#include "{source}"\n#line 1 "anycann-generated"\n'
    return f'#line 1 "{source}"\n{rewritten}\n#line 1 "anycann-generated"\n'


def _dependencies(text: str) -> list[str]:
    """The user's files in a make rule of the compiler."""
    words = text.replace("\\\n", " ").split(":", 1)[1].replace("\\ ", "\0").split()
    return [path for word in words if not (path := word.replace("\0", " ")).startswith((str(toolchain.INCLUDE), str(toolchain.folder())))]


def _file_digest(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def compile_unit(text: str, near: Path, flags: Sequence[str], suffix: str, link: Sequence[str | Path] = ()) -> Path:
    """The file made from a unit's text by these flags: ".o", or ".so" when `link` says what to link with.

    `near` is the folder whose files the unit may include with quotes. Raises CompileError for mistakes in the source.
    """
    _, identity = toolchain.compiler()
    options = [*flags, "-iquote", str(near), *(_SHARED if suffix == ".so" else ["-c"])]
    key = toolchain.digest((text, identity, toolchain.headers_digest(), *options, *(str(item) for item in link)))
    manifest = toolchain.folder() / f"{key}.deps"
    stored = caches.load(manifest)
    if stored is not None:
        known: dict[str, str] = json.loads(stored)
        path = toolchain.folder() / f"{key}-{toolchain.digest(known.values())}{suffix}"
        if path.exists() and all(_file_digest(file) == mark for file, mark in known.items()):
            return path
    with tempfile.TemporaryDirectory(dir=toolchain.folder()) as work:
        unit, rules, made = Path(work) / "unit.cpp", Path(work) / "unit.d", Path(work) / f"unit{suffix}"
        unit.write_text(text)
        result = toolchain.compile_file([*options, "-MMD", "-MF", rules, unit, "-o", made, *link])
        if result.status != 0:
            lines = summarise(result.output)
            raise CompileError("\n".join(lines) or result.output.strip(), result.output)
        marks = {file: _file_digest(file) or "" for file in _dependencies(rules.read_text())}
        path = toolchain.folder() / f"{key}-{toolchain.digest(marks.values())}{suffix}"
        toolchain.place(made, path)
    caches.save(manifest, json.dumps(marks).encode())
    return path
