"""Programs with a main that launch kernels: compiled with the simulated cores, and with the runtime library where one is given."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from anycann.ascendc import toolchain
from anycann.ascendc.devices import device
from anycann.ascendc.objects import compile_unit, device_flags, include_line, preprocess
from anycann.ascendc.report import CompileError
from anycann.ascendc.sources import (
    KernelSignature,
    find_kernels,
    has_main,
    kind,
    launched_by_name,
    with_headers,
    without_comments,
    without_library,
)
from anycann.toolchain import ToolchainError, place_folder

__all__ = ["build_program", "how_to_launch", "run", "run_program"]

_BEFORE = '#include <cstdint>\n#include "emu/launch.h"\n'
_DEBUG = "-gdwarf-4"  # version 5, as g++ 12 writes it, loses the file that #line names


def _c_type(written: str) -> str:
    return "void*" if "GM_ADDR" in written or "*" in written else written


def _launch_prototype(kernel: KernelSignature) -> str:
    parameters = "".join(f", {_c_type(kind)} {name}" for name, kind in zip(kernel.parameters, kernel.types, strict=True))
    return f'extern "C" uint32_t aclrtlaunch_{kernel.name}(uint32_t blockDim, void* stream{parameters})'


def _launch_function(kernel: KernelSignature) -> str:
    """The function behind ACLRT_LAUNCH_KERNEL(name)."""
    casts = ", ".join(
        f"static_cast<{written.replace('const ', '')}>({name})" if _c_type(written) == "void*" else name
        for name, written in zip(kernel.parameters, kernel.types, strict=True)
    )
    call = f'::anycann::emu::Launcher("{kernel.name}", blockDim, nullptr, stream).Bind({kernel.name})({casts})'
    return f"{_launch_prototype(kernel)}\n{{\n    return {call};\n}}\n"


def _headers(kernels: Sequence[KernelSignature]) -> Path:
    """A folder with aclrtlaunch_<kernel>.h for every kernel."""
    files = {f"aclrtlaunch_{kernel.name}.h": f"#pragma once\n#include <cstdint>\n{_launch_prototype(kernel)};\n" for kernel in kernels}
    path = toolchain.folder() / f"launch-{toolchain.digest(part for pair in sorted(files.items()) for part in pair)}"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=toolchain.folder()) as work:
            made = Path(work) / "headers"
            made.mkdir()
            for name, text in files.items():
                (made / name).write_text(text)
            place_folder(made, path)
    return path


def build_program(
    sources: Sequence[str | os.PathLike[str]],
    *,
    product: str | None = None,
    check: bool = True,
    sanitize: str | None = None,
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
) -> Path:
    """Compile C++ sources that launch kernels into an executable; cached by the content of all files involved.

    Understands name<<<blocks, l2ctrl, stream>>>(...), ACLRT_LAUNCH_KERNEL(name)(blocks, stream, ...) with its generated header
    aclrtlaunch_<name>.h, and ICPU_RUN_KF(name, blocks, ...), for which ASCENDC_CPU_DEBUG is defined. `flags` go to the compiler (the
    include paths of the runtime), `libraries` to the linker (its libraries). Raises CompileError and ToolchainError as `build` does.
    """
    paths = [Path(source).resolve() for source in sources]
    texts = [path.read_text(errors="replace") for path in paths]
    if not any(has_main(text) for text in texts):
        raise CompileError(f"{', '.join(map(str, paths))}: none of these defines main", "")
    if old := next((flag for flag in flags if re.fullmatch(r"-std=(?:c|gnu)\+\+(?:98|03|0x|11|14|1y)", flag)), None):
        raise CompileError(f"Ascend C kernels need C++17; got {old}", "")
    kernels = [[kernel for kernel in find_kernels(text) if not kernel.template] for text in texts]
    folders = [Path(flag[2:]).absolute() for flag in flags if flag.startswith("-I")]
    launched = {name for path in paths for name in launched_by_name(with_headers(path, folders))}
    options = [*device_flags(device(product), check, sanitize), _DEBUG, *flags]
    options += toolchain.EXACT  # the arithmetic of kernels is the device's, whatever the program's is
    if any("ICPU_RUN_KF" in without_comments(text) for text in texts):
        options += ["-DASCENDC_CPU_DEBUG=1", "-D__CCE_KT_TEST__=1"]
    headers = f"-I{_headers([kernel for group in kernels for kernel in group])}"
    kernels = [
        _compiled(path, [k for k in group if k.name in launched], [headers, *options]) for path, group in zip(paths, kernels, strict=True)
    ]
    options.insert(0, f"-I{_headers([kernel for group in kernels for kernel in group])}")
    library = toolchain.core_library(sanitize)
    objects = []
    for path, group in zip(paths, kernels, strict=True):
        text = _BEFORE + include_line(path) + "".join(map(_launch_function, group))
        objects.append(compile_unit(preprocess(text, path.parent, options), options, ".o"))
    return _link(objects, library, sanitize, libraries)


def _compiled(path: Path, kernels: Sequence[KernelSignature], options: Sequence[str]) -> list[KernelSignature]:
    """The kernels with the parameters that they are compiled with: in the text, `#if` and macros may offer others."""
    if not kernels:
        return []
    unit = preprocess(_BEFORE + include_line(path), path.parent, options)
    found = {kernel.name: kernel for kernel in find_kernels(without_library(unit, toolchain.INCLUDE))}
    return [found.get(kernel.name, kernel) for kernel in kernels]


def _link(objects: Sequence[Path], library: Path, sanitize: str | None, libraries: Sequence[str]) -> Path:
    path = toolchain.folder() / f"program-{toolchain.digest([*(o.name for o in objects), str(library), *libraries])}"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=toolchain.folder()) as work:
        made = Path(work) / "program"
        result = toolchain.compile_file([*toolchain.FLAGS, *toolchain.SANITIZERS[sanitize], *objects, library, *libraries, "-o", made])
        if result.status != 0:
            raise CompileError(f"the program does not link:\n{result.output.strip()}", result.output)
        toolchain.place(made, path)
    return path


def run_program(
    program: Path, arguments: Sequence[str] = (), *, trace: str | os.PathLike[str] | None = None, env: Mapping[str, str] | None = None
) -> int:
    """Run an executable of build_program and return its exit status: its own, or 1 when a kernel made a mistake.

    Mistakes go to stderr. `trace` is a file for the timeline; later launches of the program write trace.2, trace.3, ...
    """
    environment = dict(os.environ if env is None else env)
    if trace is not None:
        environment["ANYCANN_ASCENDC_TRACE"] = os.path.abspath(trace)
    return subprocess.run([str(program), *arguments], env=environment, check=False).returncode


def how_to_launch(path: Path) -> str:
    """What to write in Python to launch the kernels of a source that has no main."""
    lines = [f"{path} defines kernels and no main. Launch them from Python:", "", "    from anycann import ascendc"]
    needs_tiling = "GET_TILING_DATA" in without_comments(path.read_text(errors="replace"))
    described = ', tiling={"field": "uint32_t"}' if needs_tiling else ""
    lines.append(f'    module = ascendc.build("{path}"{described})')
    for kernel in find_kernels(path.read_text(errors="replace")):
        lines.append(f"    module.{kernel.name}[blocks]({', '.join(kernel.parameters)})")
    lines += ["", "Arrays are NumPy arrays, outputs are written in place" + (", the tiling is a dict." if needs_tiling else ".")]
    return "\n".join(lines)


def run(
    sources: Sequence[str | os.PathLike[str]],
    arguments: Sequence[str] = (),
    *,
    product: str | None = None,
    check: bool = True,
    sanitize: str | None = None,
    trace: str | os.PathLike[str] | None = None,
    flags: Sequence[str] = (),
    libraries: Sequence[str] = (),
) -> int:
    """What the command line does with kernel sources: build and run a program, or say how to launch kernels without one.

    Returns the exit status: the program's, 1 for mistakes in a kernel or its source, 2 when there is no main, 3 without a compiler.
    """
    paths = [Path(source) for source in sources]
    if not any(kind(path) == "program" or has_main(path.read_text(errors="replace")) for path in paths):
        print(how_to_launch(paths[0]), file=sys.stderr)
        return 2
    try:
        program = build_program(paths, product=product, check=check, sanitize=sanitize, flags=flags, libraries=libraries)
    except CompileError as error:
        print(error, file=sys.stderr)
        return 1
    except ToolchainError as error:
        print(error, file=sys.stderr)
        return 3
    return run_program(program, arguments, trace=trace)
