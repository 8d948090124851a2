"""Where a program called: the place in its Python or C source, as far as it can be known."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

__all__ = ["Site", "caller"]

DEPTH = 96  # frames looked at, most of them Python's own
SHOWN = 3  # frames of the program
OWN = str(Path(__file__).parent.parent) + os.sep
_OURS = re.compile(r"(libpython|libanycann|libascendcl|libnnopbase|libopapi|libacl_rt|_cffi_backend|_ctypes|libffi|libc\.so|libc-|ld-)")


class _Info(ctypes.Structure):
    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("symbol", ctypes.c_char_p), ("start", ctypes.c_void_p))


_libc = ctypes.PyDLL(None)  # no fork comes between: the loader's locks are not free in its child
_backtrace = getattr(_libc, "backtrace", None)  # not every C library has it
_libc.dladdr.argtypes = [ctypes.c_void_p, ctypes.POINTER(_Info)]


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the program and its callers: said at once for Python, return addresses for C, which are looked up when it is shown."""

    said: str
    addresses: tuple[int, ...] = ()

    def __str__(self) -> str:
        return self.said or " < ".join(place for place in map(_place, self.addresses) if not place.startswith("_start "))


def caller() -> Site | None:
    """The place in the program that called into this library; None where it cannot be known."""
    frame: FrameType | None = sys._getframe(1)
    places: list[str] = []
    while frame is not None and len(places) < SHOWN:
        name = frame.f_code.co_filename
        if not name.startswith((OWN, "<anycann", "<frozen")):
            places.append(f"{frame.f_code.co_name} ({name}:{frame.f_lineno})")
        frame = frame.f_back
    return Site(" < ".join(places)) if places else _native()


def _native() -> Site | None:
    if _backtrace is None:
        return None
    found = (ctypes.c_void_p * DEPTH)()
    count = _backtrace(found, DEPTH)
    addresses = [address for address in found[:count] if address and not _is_ours(address)]
    return Site("", tuple(addresses[:SHOWN])) if addresses else None


@cache
def _is_ours(address: int) -> bool:
    info = _Info()
    known = _libc.dladdr(address, ctypes.byref(info)) and info.file
    return not known or bool(_OURS.match(os.path.basename(os.fsdecode(info.file))))


@cache
def _place(address: int) -> str:
    """A return address in words: function and line where the program has debug information, else file and offset."""
    info = _Info()
    if not _libc.dladdr(address, ctypes.byref(info)) or not info.file:
        return f"{address:#x}"
    try:
        path = os.path.realpath("/proc/self/exe") if info.base == _base_of_program() else os.fsdecode(info.file)
        inside = address - 1 - (info.base or 0 if _moves(path) else 0)
    except OSError:  # the file is gone, or the system does not tell
        return f"{address:#x}"
    function, line = _looked_up(path, inside)
    symbol = function or (os.fsdecode(info.symbol) if info.symbol else "?")
    return f"{_short(symbol)} ({line or f'{os.path.basename(path)}+{inside:#x}'})"


@cache
def _base_of_program() -> int | None:
    """Where the program's own file begins in memory; its name may be a relative one."""
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        program = os.path.realpath("/proc/self/exe")
        return next((int(line.split("-")[0], 16) for line in maps if line.rstrip("\n").endswith(program)), None)


def _short(symbol: str) -> str:
    """The name of a C++ function without its types; unusual names as they are."""
    name = symbol.split("(")[0]
    while (plain := re.sub(r"<[^<>]*>", "", name)) != name:
        name = plain
    return name.split()[-1] if re.fullmatch(r"[\w:~ *&]+", name) else symbol


def _moves(path: str) -> bool:
    """Whether a file of code can lie anywhere: then debuggers count from its beginning."""
    with open(path, "rb") as file:
        return file.read(18)[16:] != b"\x02\x00"


def _looked_up(path: str, address: int) -> tuple[str, str]:
    tool = shutil.which("addr2line")
    if tool is None:
        return "", ""
    try:
        done = subprocess.run([tool, "-C", "-f", "-e", path, hex(address)], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    lines = done.stdout.splitlines()
    if done.returncode or len(lines) < 2:
        return "", ""
    line = re.sub(r" \(discriminator \d+\)$", "", lines[1])
    return "" if lines[0] == "??" else lines[0], "" if line.startswith("??") or line.endswith(":?") else line
