"""Compiler messages in short: the mistakes at the top, each with its place in the kernel's source, unsupported names said as such."""

import re

from anycann.ascendc.toolchain import INCLUDE

__all__ = ["summarise"]

_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_REQUIRED = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)?\s+"
    r"(?:required from here|note: in instantiation of .* requested here|note: in expansion of macro)",
    re.MULTILINE,
)
_NOT_MEMBER = re.compile(
    r"['‘](?P<name>\w+)['’] is not a member of ['‘]AscendC['’]"
    r"|no (?:template |type |member )*named ['‘](?P<other>\w+)['’] in namespace ['‘]AscendC['’]"
)
_PROGRAMS = "tikicpulib.h"
_STATIC = re.compile(r"static assertion failed(?: due to requirement .*)?: (?P<text>.*)")


def _unknown(name: str) -> str:
    """What to do about a name that is not there: the header for programs may declare it."""
    if re.search(rf"\b{name}\(", (INCLUDE / _PROGRAMS).read_text()):
        return f"AscendC::{name} is declared in {_PROGRAMS}: include it"
    return f"AscendC::{name} is not supported by anycann (docs/ascendc.md lists what is)"


def _plain(text: str) -> str:
    if match := _NOT_MEMBER.search(text):
        return _unknown(match["name"] or match["other"])
    if match := _STATIC.search(text):
        return match["text"].strip('"').replace("anycann::emu::", "")
    return text


def _in_headers(file: str) -> bool:
    return file.startswith(str(INCLUDE))


def summarise(output: str) -> list[str]:
    """One line for each error, "file:line: what", in the user's own source where the compiler tells which call led there."""
    lines: list[str] = []
    blocks = list(_ERROR.finditer(output))
    for number, match in enumerate(blocks):
        file, line = match["file"], match["line"]
        if _in_headers(file):
            before = output[blocks[number - 1].end() if number else 0 : match.start()]
            callers = [m for m in _REQUIRED.finditer(before) if not _in_headers(m["file"])]
            after = output[match.end() : blocks[number + 1].start() if number + 1 < len(blocks) else len(output)]
            callers = callers or [m for m in _REQUIRED.finditer(after) if not _in_headers(m["file"])]
            if callers:
                file, line = callers[-1]["file"], callers[-1]["line"]
        text = f"{file}:{line}: {_plain(match['text'])}"
        if text not in lines:
            lines.append(text)
    return lines
