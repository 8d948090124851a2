"""Compiling one translation unit, or taking it from the cache: the name of a result is the hash of its preprocessed text.

To preprocess takes less than a tenth of a second, and every file, macro and folder that matters is in what comes out, also those that came
between a source and its header since the last time.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from anycann.ascendc import toolchain
from anycann.ascendc.devices import Device
from anycann.ascendc.diagnostics import GENERATED, summarise
from anycann.ascendc.report import CompileError
from anycann.ascendc.sources import rewrite_launches

__all__ = ["compile_unit", "device_flags", "include_line", "preprocess"]

_ENCODING = ("utf-8", "surrogateescape")  # sources may be in any

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
    """What a generated unit writes to include a kernel source: the file itself, or its text where that is rewritten for <<<>>>, or where
    no #include can name the file."""
    text = source.read_text(errors="replace")
    rewritten = rewrite_launches(text)
    if rewritten == text and '"' not in str(source):
        return f'#include "{source}"\n#line 1 "{GENERATED}"\n'
    name = str(source).replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{name}"\n{rewritten}\n#line 1 "{GENERATED}"\n'


def preprocess(text: str, near: Path, flags: Sequence[str]) -> str:
    """A unit's text as the compiler goes on with it: included files, conditions and macros resolved, with the place of every line.

    `near` is the folder whose files the unit may include with quotes. Raises CompileError for mistakes in the source.
    """
    with tempfile.TemporaryDirectory(dir=toolchain.folder()) as work:
        unit, made = Path(work) / "unit.cpp", Path(work) / "unit.ii"
        unit.write_bytes(f'#line 1 "{GENERATED}"\n{text}'.encode(*_ENCODING))
        _compile([*flags, "-iquote", str(near), "-E", unit, "-o", made])
        result = made.read_bytes().decode(*_ENCODING)
    return result.replace(f'"{unit}"', f'"{GENERATED}"')  # the unit's folder is another each time


def compile_unit(text: str, flags: Sequence[str], suffix: str, link: Sequence[str | Path] = ()) -> Path:
    """The file made from a preprocessed unit by these flags: ".o", or ".so" when `link` says what to link with.

    Raises CompileError for mistakes in the source.
    """
    _, identity = toolchain.compiler()
    options = [*_without_includes(flags), *(_SHARED if suffix == ".so" else ["-c"])]
    if "clang" in identity:
        options.append("-Qunused-arguments")  # those of the preprocessor
    content = text.encode(*_ENCODING)
    path = toolchain.folder() / f"{toolchain.digest((content, identity, *options, *map(str, link)))}{suffix}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=toolchain.folder()) as work:
            unit, made = Path(work) / "unit.ii", Path(work) / f"unit{suffix}"
            unit.write_bytes(content)
            _compile([*options, unit, "-o", made, *link])
            toolchain.place(made, path)
    return path


def _without_includes(flags: Sequence[str]) -> list[str]:
    """Options without those that put a file in front of a source: a preprocessed text has it already."""
    kept, flags = [], list(flags)
    while flags:
        flag = flags.pop(0)
        if flag in ("-include", "-imacros"):
            del flags[:1]
        elif not flag.startswith(("-include", "-imacros")):
            kept.append(flag)
    return kept


def _compile(arguments: Sequence[str | Path]) -> None:
    result = toolchain.compile_file(arguments)
    if result.status != 0:
        raise CompileError("\n".join(summarise(result.output)) or result.output.strip(), result.output)
