"""Host programs: C and C++ sources become an executable against anycann's headers and libraries.

Everything that was compiled is kept under the hash of what it was made from: the options, the compiler, what the preprocessor made of the
source. A list of the files that were read would not do: a header may come between, and a source may ask whether there is one.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from anycann import cabi, caches, toolchain

__all__ = ["SANITIZERS", "SUFFIXES", "CompilerMessages", "build", "is_for_linker", "library_folders", "object_file"]

SUFFIXES = (".c", ".cpp", ".cc", ".cxx")
SANITIZERS = {
    None: (),
    "undefined": ("-fsanitize=undefined", "-fno-sanitize-recover=all"),
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"),
}
_DEFAULTS = ("-O1", "-g", "-pthread")
_READ_BY_COMPILERS = ("COMPILER_PATH", "GCC_EXEC_PREFIX")  # variables of the environment; those for headers show in what is preprocessed
_READ_BY_LINKERS = (*_READ_BY_COMPILERS, "LIBRARY_PATH", "LD_RUN_PATH")


class CompilerMessages(Exception):
    """The sources do not make a program; str() is all that the compiler said."""


def _folder() -> Path:
    return toolchain.folder("programs")


def _marks(paths: Iterable[str | Path]) -> list[str]:
    """Names and contents of files; a file that is not there has none."""
    known = [Path(path) for path in paths]
    return [part for path in known for part in (str(path), toolchain.digest([path.read_bytes()]) if path.is_file() else "")]


def _variables(names: Iterable[str]) -> list[str]:
    return [os.environ.get(name, "") for name in names]


def is_for_linker(flag: str) -> bool:
    """Whether an option means nothing to the compiler of a single source."""
    return flag.startswith(("-l", "-L", "-Wl,"))


def _options(flags: Sequence[str], sanitize: str | None) -> list[str]:
    """Options of every compilation. Warnings are shown to those who ask for some."""
    quiet = () if any(flag.startswith("-W") and not is_for_linker(flag) for flag in flags) else ("-w",)
    return [*_DEFAULTS, *quiet, *SANITIZERS[sanitize], *flags]


def _of_language(options: Iterable[str], c: bool) -> list[str]:
    """The options without -std= of the other language."""
    return [option for option in options if not option.startswith("-std=") or ("++" in option) != c]


def _preprocessed(words: Sequence[str]) -> bytes:
    """What compiling begins with: the source with all that it includes, each line with its place. Some hundredths of a second."""
    return subprocess.run([*toolchain.compiler()[0], "-E", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout


def object_file(source: Path, flags: Sequence[str], sanitize: str | None = None) -> tuple[Path, str]:
    """The object file of a source, and what the compiler said about it. Raises CompilerMessages for mistakes in the source."""
    c = source.suffix == ".c"
    options = _of_language((option for option in _options(flags, sanitize) if not is_for_linker(option)), c)
    words = [*options, *cabi.cflags(), "-x", "c" if c else "c++", "-c", str(source)]
    made_from: list[str | bytes] = [*words, os.getcwd(), toolchain.compiler()[1], *_variables(_READ_BY_COMPILERS)]
    made_from += [source.read_bytes(), _preprocessed(words)]
    path = _folder() / f"{toolchain.digest(made_from)}.o"
    said = caches.load(path.with_suffix(".said"))
    if path.exists() and said is not None:
        return path, said.decode()
    with tempfile.TemporaryDirectory(dir=_folder()) as work:
        made = Path(work) / "unit.o"
        result = toolchain.compile_file([*words, "-o", made])
        if result.status != 0:
            raise CompilerMessages(result.output)
        caches.save(path.with_suffix(".said"), result.output.encode())
        toolchain.place(made, path)
    return path, result.output


def library_folders(flags: Iterable[str]) -> list[Path]:
    """The folders that options name for libraries."""
    return [Path(flag[2:]).absolute() for flag in flags if flag.startswith("-L")]


def _libraries(flags: Sequence[str]) -> list[Path]:
    """The libraries that options name, wherever the user may have them."""
    folders = [*library_folders(flags), *(Path(folder).absolute() for folder in os.environ.get("LIBRARY_PATH", "").split(os.pathsep))]
    names = [f"lib{flag[2:]}{end}" for flag in flags if flag.startswith("-l") for end in (".so", ".a")]
    return [folder / name for folder in folders for name in names]


def _link(objects: Sequence[Path], flags: Sequence[str], sanitize: str | None, name: str) -> Path:
    words = [*_of_language(_options(flags, sanitize), c=False), *cabi.libs()]
    compiler = (toolchain.compiler()[1], *_variables(_READ_BY_LINKERS))
    key = toolchain.digest((*(made.name for made in objects), *words, *_marks(_libraries(flags)), *compiler))
    path = _folder() / f"{name}-{key}"
    if path.exists():
        return path
    with tempfile.TemporaryDirectory(dir=_folder()) as work:
        made = Path(work) / "program"
        result = toolchain.compile_file([*objects, *words, "-o", made])
        if result.status != 0:
            raise CompilerMessages(result.output)
        toolchain.place(made, path)
    return path


def build(sources: Sequence[Path], flags: Sequence[str] = (), sanitize: str | None = None) -> tuple[Path, str]:
    """The executable of sources, compiled where it is not known yet, and what the compiler said about them.

    `flags` are the compiler's, a value in one word with its letter. Raises CompilerMessages for mistakes in the sources, ToolchainError
    for what is missing on this machine.
    """
    made = [object_file(source, flags, sanitize) for source in sources]
    program = _link([path for path, _ in made], flags, sanitize, sources[0].stem)
    return program, "".join(said for _, said in made)
