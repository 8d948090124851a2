"""The folder that programs are built against: headers, libraries and set_env.sh, compiled for the running interpreter and cached."""

import importlib.util
import io
import json
import shlex
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from anycann import ops, toolchain
from anycann.cabi import search_path
from anycann.cabi.declarations import (
    CORE,
    INCLUDE,
    Function,
    every_function,
    hook_functions,
    meta_functions,
    operator_functions,
    runtime_functions,
)
from anycann.cabi.glue import MODULE, cdef, interface, prologue, trampolines
from anycann.cabi.headers import operator_header, write_headers
from anycann.spec import OpSpec
from anycann.toolchain import ToolchainError

__all__ = ["ALIASES", "LIBRARIES", "home"]

LIBRARIES = ("libascendcl.so", "libnnopbase.so", "libopapi.so")  # each needs those before it
ALIASES = {
    "libacl_rt.so": "libascendcl.so",
    "libopapi_nn.so": "libopapi.so",
    "libopapi_math.so": "libopapi.so",
    "libopapi_transformer.so": "libopapi.so",
}
DOOR = "libanycann_cabi.so"  # the interpreter and the bodies of all functions

# Python cannot be unloaded; the other options keep every symbol that is not marked inside, and every library that is named needed.
_COMPILE = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-pthread", "-Wall", "-Wextra")
_LINK = ("-shared", "-Wl,-z,defs", "-Wl,-z,nodelete", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN")
# Packages whose folders the started interpreter must know, as far as they are installed.
_NEEDED = ("anycann", "_cffi_backend", "numpy", "ml_dtypes", "numba", "torch", "triton")


def _headers_of_python() -> list[Path]:
    """Folders with Python.h and pyconfig.h."""
    folders = [Path(sysconfig.get_path(kind)) for kind in ("include", "platinclude")]
    if not any((folder / "Python.h").is_file() for folder in folders):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise ToolchainError(
            f"the C libraries are compiled for {sys.executable}, and its header Python.h was not found in {folders[0]}; "
            f"install the package python{version}-dev (Debian, Ubuntu) or python3-devel (Fedora)"
        )
    return list(dict.fromkeys(folders))


def _library_of_python() -> Path:
    """The shared library of the running interpreter."""
    names: list[str] = [str(sysconfig.get_config_var(name) or "") for name in ("INSTSONAME", "LDLIBRARY")]
    known = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")]
    folders = [Path(folder) for folder in known if folder] + [Path(sys.base_exec_prefix) / name for name in ("lib", "lib64")]
    for path in (folder / name for name in names if ".so" in name for folder in folders):
        if path.is_file():
            return path
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise ToolchainError(
        f"the C libraries need Python as a shared library, and {sys.executable} has none (looked for libpython{version}.so in "
        f"{', '.join(map(str, folders))}); install the package libpython{version} (Debian, Ubuntu) or python3-libs (Fedora), "
        "or use a Python that was built with --enable-shared"
    )


def _folders_of_packages() -> list[str]:
    """Where the packages that we need were imported from."""
    found = [importlib.util.find_spec(name) for name in _NEEDED]
    origins = [Path(spec.origin) for spec in found if spec is not None and spec.origin is not None]
    return list(dict.fromkeys(str(path.parent.parent if path.stem == "__init__" else path.parent) for path in origins))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _config(functions: Iterable[Function]) -> str:
    """config.h: for which interpreter, and what it needs to know."""
    folders = ", ".join(map(_quoted, _folders_of_packages()))
    return (
        f"static const char kExecutable[] = {_quoted(sys.executable)};\n"
        f"static const char kLibrary[] = {_quoted(_library_of_python().name)};\n"
        f'static const char kVersion[] = "{sys.version_info.major}.{sys.version_info.minor}.";\n'
        f"static const char *const kFolders[] = {{{folders}}};\n"
        f"static const int kUserSite = {int(bool(site.ENABLE_USER_SITE))};\n"
        f"static const char kInterface[] = {_quoted(interface(functions))};\n"
    )


def _specs() -> list[OpSpec]:
    return [operator.spec for operator in ops.OPERATORS if operator.spec.two_phase]


def _exports(specs: Iterable[OpSpec]) -> Mapping[str, Sequence[Function]]:
    """The functions of each library."""
    operators = [function for spec in specs for function in operator_functions(spec)]
    return dict(zip(LIBRARIES, ((*runtime_functions(), *hook_functions()), meta_functions(), operators), strict=True))


def _door_source(functions: Sequence[Function]) -> str:
    """The C++ that cffi makes for the bodies in Python."""
    from cffi import FFI, recompiler

    ffi = FFI()
    ffi.cdef(cdef(functions))
    text = io.StringIO()
    recompiler.make_c_source(ffi, MODULE, f"#include <stdint.h>\n{prologue(functions)}", text)
    return text.getvalue()


def _compile(made: Path, sources: Sequence[Path], arguments: Sequence[str | Path]) -> None:
    flags = [*_COMPILE, *_LINK, f"-Wl,-soname,{made.name}", f"-I{INCLUDE}", f"-I{CORE}", f"-L{made.parent}"]
    result = toolchain.compile_file([*flags, *sources, "-o", made, *arguments])
    if result.status != 0:
        raise ToolchainError(f"{shlex.join(toolchain.compiler()[0])} cannot compile anycann's {made.name}:\n{result.output.strip()}")


def _make_libraries(folder: Path, specs: Sequence[OpSpec], work: Path) -> None:
    exports, functions = _exports(specs), every_function(specs)
    python = _library_of_python()
    (work / "config.h").write_text(_config(functions), encoding="utf-8")
    (work / "door.cpp").write_text(_door_source(functions), encoding="utf-8")
    includes = [f"-I{path}" for path in (work, *_headers_of_python())]
    sources = [*(CORE / name for name in ("start.cpp", "finish.cpp", "watch.cpp")), work / "door.cpp"]
    _compile(folder / DOOR, sources, [*includes, python, *search_path(python.parent), "-ldl"])
    needed = ["-lanycann_cabi", "-lstdc++"]
    for name, listed in exports.items():
        headers = "".join(f'#include "{path.relative_to(work)}"\n' for path in sorted((work / "include" / "aclnnop").glob("*.h")))
        source = work / f"{name}.cpp"
        source.write_text(f"{prologue(functions)}{headers}{trampolines(listed)}", encoding="utf-8")
        _compile(folder / name, [source], [f"-I{work}", *needed])
        needed = [f"-l{name.removeprefix('lib').removesuffix('.so')}", *needed]
    for alias, name in ALIASES.items():
        (folder / alias).symlink_to(name)


_PYACL = Path(__file__).parents[1] / "acl" / "pythonpath"  # what `import acl` finds
_SET_ENV = """\
# Source this file: programs are then built against anycann's headers and libraries, and find the libraries when they run.
export ASCEND_HOME_PATH={home}
export ASCEND_TOOLKIT_HOME="$ASCEND_HOME_PATH"
export ASCEND_CUSTOM_PATH="$ASCEND_HOME_PATH"
export LD_LIBRARY_PATH="$ASCEND_HOME_PATH/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
export PATH="$ASCEND_HOME_PATH/bin:$PATH"
export PYTHONPATH={scripts}"${{PYTHONPATH:+:$PYTHONPATH}}"
"""


def _make(folder: Path, specs: Sequence[OpSpec], final: Path) -> None:
    """Everything, in a folder that will be moved to its final place."""
    write_headers(specs, folder / "include")
    (folder / "lib64").mkdir()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        (Path(work) / "include").symlink_to(folder / "include")
        _make_libraries(folder / "lib64", specs, Path(work))
    (folder / "lib").symlink_to("lib64")
    (folder / "set_env.sh").write_text(_SET_ENV.format(home=shlex.quote(str(final)), scripts=shlex.quote(str(_PYACL))), encoding="utf-8")
    (folder / "bin").mkdir()
    command = folder / "bin" / "anycann"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m anycann.cli "$@"\n', encoding="utf-8")
    command.chmod(0o755)


@cache
def _own_digest() -> str:
    """A name for the state of this door's own files."""
    here = Path(__file__).parent
    files = sorted(path for path in here.rglob("*") if path.suffix in (".h", ".cpp", ".py"))
    return toolchain.digest(part for path in files for part in (str(path.relative_to(here)), path.read_bytes()))


@cache
def home() -> Path:
    """The folder to build programs against; made at the first call (some seconds), then kept.

    It has include/, lib64/ and set_env.sh. Raises ToolchainError where a compiler, Python's headers or its shared library is missing.
    """
    from cffi import __version__ as cffi_version

    if not sys.executable:
        raise ToolchainError("the C libraries start the Python that built them, and this one does not know where its program lies")
    specs = _specs()
    interpreter = (sys.executable, sys.prefix, sys.version, cffi_version, *map(str, _headers_of_python()), str(_library_of_python()))
    parts = (*interpreter, toolchain.compiler()[1], _own_digest(), _config(every_function(specs)), *map(operator_header, specs))
    final = toolchain.folder("cann") / f"cann-{toolchain.digest(parts)}"
    if sign := next((sign for sign in ":;" if sign in str(final)), None):
        rule = (
            f"the C libraries lie in anycann's cache, whose name must not have {sign!r}, where lists of folders are cut; got {final.parent}"
        )
        raise ToolchainError(f"{rule}: set ANYCANN_CACHE_DIR to another folder")
    if not final.is_dir():
        with tempfile.TemporaryDirectory(dir=final.parent) as work:
            made = Path(work) / final.name
            made.mkdir()
            _make(made, specs, final)
            toolchain.place_folder(made, final)
    return final
