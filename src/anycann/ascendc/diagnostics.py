"""Compiler messages in short: the mistakes at the top, each with its place in the kernel's source, unsupported names said as such."""

import re

from anycann.ascendc.toolchain import INCLUDE

__all__ = ["GENERATED", "summarise"]

GENERATED = "anycann-generated"  # the file of those lines of a unit that are nobody's

_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)? (?:fatal )?error: (?P<text>.*)$", re.MULTILINE)
_PLACE = r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):(?:\d+:)?\s+"
# The calls that led to a mistake, the nearest first: g++ says them before it, clang++ after it.
_LED_BEFORE = re.compile(_PLACE + r"(?:recursively )?required (?:from|by)", re.MULTILINE)
_LED_AFTER = re.compile(_PLACE + r"note: in (?:instantiation of .* requested here|expansion of macro)", re.MULTILINE)
_NOT_MEMBER = re.compile(
    r"['‘](?P<name>\w+)['’] is not a member of ['‘]AscendC['’]"
    r"|no (?:template |type |member )*named ['‘](?P<other>\w+)['’] in namespace ['‘]AscendC['’]"
)
# Under `using namespace AscendC`; names without small letters are rather the program's own constants.
_UNDECLARED = re.compile(
    r"['‘](?P<name>[A-Z]\w*[a-z]\w*)['’] was not declared in this scope|use of undeclared identifier '(?P<other>[A-Z]\w*[a-z]\w*)'"
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
    if match := _UNDECLARED.search(text):
        return f"{text}; {_unknown(match['name'] or match['other'])}"
    if match := _STATIC.search(text):
        return match["text"].strip('"').replace("anycann::emu::", "")
    return text


def _in_library(file: str) -> bool:
    """Whether a file is anycann's, the standard library's or nobody's: no place for a reader of the kernel to look at."""
    return file.startswith((str(INCLUDE), GENERATED)) or "/include/c++/" in file


def summarise(output: str) -> list[str]:
    """One line for each error, "file:line: what": where the user's own source calls what cannot be, as far as the compiler says it."""
    lines: list[str] = []
    blocks = list(_ERROR.finditer(output))
    for number, match in enumerate(blocks):
        place = match
        if _in_library(match["file"]):
            before = output[blocks[number - 1].end() if number else 0 : match.start()]
            after = output[match.end() : blocks[number + 1].start() if number + 1 < len(blocks) else len(output)]
            led = (*_LED_BEFORE.finditer(before), *_LED_AFTER.finditer(after))
            place = next((call for call in led if not _in_library(call["file"])), match)
        text = _plain(match["text"])
        if place["file"] != GENERATED:
            text = f"{place['file']}:{place['line']}: {text}"
        if text not in lines:
            lines.append(text)
    return lines
