"""`anycann run`: C and C++ programs, programs that launch Ascend C kernels, Python scripts and executables, on this machine."""

import atexit
import contextlib
import logging
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand

from anycann import cabi
from anycann.cli import programs
from anycann.cli.options import writable
from anycann.cli.output import Wrong
from anycann.cli.processes import environment, execute
from anycann.errors import say
from anycann.toolchain import ToolchainError, remove_temporary

__all__ = ["RunCommand", "run_command"]

_SOURCES = (*programs.SUFFIXES, ".asc", ".cce")
_WITH_VALUE = re.compile(r"-(?:[IDULl]|isystem|include)")
_FLAG = re.compile(r"-(?:[IDULl].+|isystem.+|include.+|O\w*|std=.+|f.+|g\w*|W.+|w|pthread|march=.+|mtune=.+)")
_NOT_COMPILED, _NO_TOOLCHAIN = 1, 3


class RunCommand(TyperCommand):
    """Options of ours come first. Everything from the first other word on is the compiler's and the program's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own: dict[str, Any] = {name: option for option in self.get_params(ctx) for name in option.opts if name.startswith("-")}
        at = 0
        while at < len(args) and (option := own.get(args[at].split("=")[0])) is not None:
            at += 1 if option.is_flag or "=" in args[at] else 2
        return super().parse_args(ctx, args if args[at : at + 1] in ([], ["--"]) else [*args[:at], "--", *args[at:]])


class _Words(NamedTuple):
    """What the words after our options mean."""

    sources: list[Path]
    flags: list[str]  # of the compiler; a value is in one word with its letter
    rest: list[str]  # arguments of the program; where there are no sources, its path first


def _split(words: list[str]) -> _Words:
    sources, flags, at = [], [], 0
    while at < len(words):
        word = words[at]
        if _WITH_VALUE.fullmatch(word) and at + 1 < len(words):
            at += 1
            flags.append(word + words[at])
        elif _FLAG.fullmatch(word):
            flags.append(word)
        elif Path(word).suffix in _SOURCES and not word.startswith("-"):
            sources.append(Path(word))
        else:
            break
        at += 1
    after = at if sources else at + 1  # where the program ends and its arguments begin
    return _Words(sources, flags, words[at:after] + words[after + (words[after : after + 1] == ["--"]) :])


class _Start(NamedTuple):
    """What is started, and under which name."""

    program: Path
    called: str
    arguments: list[str]
    libraries: bool = True  # whether it is of no use without the C libraries
    settings: dict[str, str] = {}


def _with_kernels(words: _Words, product: str | None, check: bool, sanitize: str | None) -> Path:
    """The executable of sources that launch Ascend C kernels. The C libraries come in where they are called, and if they can be made."""
    from anycann import ascendc

    includes, libraries, missing = [], [], None
    try:
        includes, libraries = cabi.cflags(), ["-Wl,--as-needed", *cabi.libs()]
    except ToolchainError as error:
        missing = error
    for_linker = [flag for flag in words.flags if programs.is_for_linker(flag)]
    c_objects = [programs.object_file(source, words.flags, sanitize)[0] for source in words.sources if source.suffix == ".c"]
    try:
        return ascendc.build_program(
            [source for source in words.sources if source.suffix != ".c"],
            product=product,
            check=check,
            sanitize=sanitize,
            flags=[*includes, *(flag for flag in words.flags if flag not in for_linker)],
            libraries=[*map(str, c_objects), *for_linker, *libraries],
        )
    except ascendc.CompileError as error:
        if missing is None:
            raise
        raise ToolchainError(f"{error}\nPerhaps because the C libraries could not be made: {missing}") from None


def _absence(path: Path) -> str:
    """Why a path is no file."""
    return "is a folder, not a file" if path.is_dir() else "no such file"


def _compiled(words: _Words, product: str | None, fast: bool, trace: str | None, sanitize: str | None) -> _Start:
    """The executable of sources, under the name that it would have beside the first of them."""
    from anycann import ascendc

    first = words.sources[0]
    absent = [source for source in words.sources if not source.is_file()]
    if absent:
        raise Wrong(f"{absent[0]}: {_absence(absent[0])}")
    kinds = {ascendc.kind(source) for source in words.sources}
    if kinds == {"kernel"}:
        say(f"{ascendc.how_to_launch(first)}\n")
        raise typer.Exit(2)
    host = kinds == {"other"}
    if host and (fast or trace):
        raise Wrong(f"{'--fast' if fast else '--trace'} is for programs that launch Ascend C kernels; {first} launches none")
    try:
        if host:
            program, said = programs.build(words.sources, words.flags, sanitize)
            say(said)
        else:
            program = _with_kernels(words, product, not fast, sanitize)
    except (programs.CompilerMessages, ascendc.CompileError) as error:
        say(str(error).rstrip("\n") + "\n")
        raise typer.Exit(_NOT_COMPILED) from None
    readable = {} if host else {"ANYCANN_CHECK_MAP": "0"}  # kernels run here, on the addresses that they are given
    return _Start(program, str(first.with_suffix("")), words.rest, libraries=host, settings=readable)


def _existing(words: _Words, for_sources: str) -> _Start:
    """A script or an executable. `for_sources` is an option that was given and needs sources."""
    name, arguments = (words.rest[0], words.rest[1:]) if words.rest else ("", [])
    if name.startswith("-"):
        raise Wrong(f"{name}: no such option; see anycann run --help")
    if for_sources or not name:
        raise Wrong(f"{for_sources or 'run'} needs a source to compile ({' '.join(_SOURCES)}); got {name or 'none'}")
    if name.endswith(".py") and os.path.isfile(name):
        return _Start(Path(sys.executable), sys.executable, words.rest, libraries=False)
    found = os.path.abspath(name) if os.path.isfile(name) else shutil.which(name)
    if found is None:
        raise Wrong(f"{name}: {_absence(Path(name))}; run takes sources ({' '.join(_SOURCES)}), Python scripts (.py) and executables")
    return _Start(Path(found), name, arguments)


def _home(needed: bool) -> Path | None:
    """The folder of headers and libraries. Not everything needs them: pyACL works without, and kernels on their own do."""
    try:
        return cabi.home()
    except ToolchainError as error:
        if needed:
            raise
        say(f"anycann: running without the C libraries: {error}\n")
        return None


@contextlib.contextmanager
def _findings(variables: dict[str, str]) -> Iterator[Callable[[], bool]]:
    """Whether the check has findings, for programs whose own end does not tell: interpreters, and what starts other processes."""
    with tempfile.TemporaryDirectory() as folder:
        mark = Path(folder, "found")
        variables["ANYCANN_CHECK_MARK"] = str(mark)
        yield mark.exists


def _show_commands() -> None:
    """Print what is started, as a shell would."""
    shown = logging.StreamHandler()
    shown.setFormatter(logging.Formatter("+ %(message)s"))
    logging.getLogger("anycann").addHandler(shown)
    logging.getLogger("anycann").setLevel(logging.INFO)


def run_command(
    words: Annotated[
        list[str],
        typer.Argument(metavar="PROGRAM", help="Sources with flags of the compiler, a script or an executable; then what it is given."),
    ],
    check: Annotated[bool, typer.Option("--check", help="Watch the program's calls for mistakes that a device does not notice.")] = False,
    fast: Annotated[bool, typer.Option("--fast", help="Kernels: without the check of what instructions read and write.")] = False,
    sanitize: Annotated[str | None, typer.Option(metavar="address|undefined", help="Build with this sanitizer.")] = None,
    trace: Annotated[
        str | None, typer.Option(metavar="FILE", help="Kernels: write the timeline of the cores as a Chrome trace.", callback=writable)
    ] = None,
    product: Annotated[str | None, typer.Option(metavar="NAME", help="The product that is in force in the program.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the commands.")] = False,
) -> None:
    """Compile and run a C or C++ program, or run a Python script or an executable, with anycann in the place of CANN.

    PROGRAM is one or more sources (.c .cpp .cc .cxx .asc .cce) with flags of the compiler (-I -D -U -O -std= -l -L -f -g -W), a script, or
    an executable. What follows is the program's, as it is. One -- right behind PROGRAM is not passed on: it stands before arguments that
    look like more of PROGRAM. Exit status: the program's; 1 if it does not compile; 3 where compiling needs something that this machine
    lacks.
    """
    from anycann.cli import names

    parts = _split(words)
    atexit.register(remove_temporary)
    if sanitize not in programs.SANITIZERS:
        raise Wrong(f"--sanitize {sanitize}: must be address or undefined")
    settings = {"ANYCANN_CHECK": "1"} if check else {}
    if product is not None:
        names.product_of(product)
        settings["ANYCANN_PRODUCT"] = product
    if trace is not None:
        settings["ANYCANN_ASCENDC_TRACE"] = os.path.abspath(trace)
    if sanitize == "address":  # an interpreter gives nothing back when it ends; looking for leaks in it takes minutes
        settings["ASAN_OPTIONS"] = f"detect_leaks=0:{os.environ.get('ASAN_OPTIONS', '')}"
    if verbose:
        _show_commands()
    try:
        if parts.sources:
            start = _compiled(parts, product, fast, trace, sanitize)
        else:
            given = {"--fast": fast, "--trace": trace, "--sanitize": sanitize, **dict.fromkeys(parts.flags, True)}
            start = _existing(parts, next((option for option, value in given.items() if value), ""))
        variables = environment(_home(start.libraries), settings | start.settings, programs.library_folders(parts.flags))
    except ToolchainError as error:
        say(f"anycann: {error}\n")
        raise typer.Exit(_NO_TOOLCHAIN) from None
    with _findings(variables) if check else contextlib.nullcontext(bool) as found:
        status = execute(start.program, start.called, start.arguments, variables)
        raise typer.Exit(status or int(found()))
