"""Reading kernel sources: which kernels a file defines, whether it is a program, and the launch syntax that C++ does not have."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "KernelSignature",
    "find_kernels",
    "has_main",
    "kind",
    "launched_by_name",
    "rewrite_launches",
    "with_headers",
    "without_comments",
    "without_library",
]


class KernelSignature(NamedTuple):
    """A `__global__` function: its name, its parameters' names and types as written, whether it is a template, and its namespaces."""

    name: str
    parameters: tuple[str, ...]
    types: tuple[str, ...]
    template: bool
    scope: tuple[str, ...] = ()

    @property
    def qualified(self) -> str:
        return "::".join((*self.scope, self.name))


_TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<raw>[^(\s]*)\(.*?\)(?P=raw)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'',
    re.DOTALL,
)


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match[0])


def without_comments(text: str) -> str:
    """The text with comments and literals turned to spaces: offsets and lines stay."""
    return _TOKEN.sub(_blank, text)


def _closing(text: str, start: int, opening: str, closing: str) -> int:
    depth = 0
    for at in range(start, len(text)):
        if text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if depth == 0:
                return at
    return -1


def _parameters(inside: str) -> list[tuple[str, str]]:
    """(name, type) of each parameter in the text between the parentheses."""
    parts, depth, last = [], 0, 0
    for at, char in enumerate(inside):
        depth += (char in "(<[{") - (char in ")>]}")
        if char == "," and depth == 0:
            parts.append(inside[last:at])
            last = at + 1
    parts.append(inside[last:])
    pairs = []
    for i, part in enumerate(part for part in parts if part.strip() not in ("", "void")):
        words = part.split("=")[0].strip()
        name = re.search(r"(?<=[\s*&])(\w+)$", words)
        pairs.append((name[1], words[: name.start()].strip()) if name else (f"argument{i}", words))
    return pairs


_MACRO = re.compile(r"^[ \t]*#[ \t]*define\b(?:\\\n|.)*", re.MULTILINE)
# emu/names.h makes __global__ an empty attribute, so that kernels are still seen when macros are gone.
_STEP = re.compile(
    r"\bnamespace\b(?P<scope>[\w:\s]*)\{|(?P<brace>[{}])"
    r"|(?:\b__global__\b|__attribute__\s*\(\(\)\))(?:__attribute__\s*\(\([^;{}]*?\)\)|[^;{}()])*?\b(?!__attribute__)(?P<name>\w+)\s*\(",
)


def find_kernels(text: str) -> tuple[KernelSignature, ...]:
    """The kernels that a source defines (declarations and macros do not count), in order; of several with one name the first.

    Takes a source as written or preprocessed. As written, it has the kernels of all its `#if`, and none that macros define.
    """
    plain = _MACRO.sub(_blank, without_comments(text))
    found: dict[str, KernelSignature] = {}
    scopes: list[tuple[str, ...]] = []  # of each open brace: the namespaces that it begins
    for match in _STEP.finditer(plain):
        if match["scope"] is not None:
            scopes.append(tuple(filter(None, re.split(r"[\s:]+", match["scope"]))))
        elif match["brace"] == "{":
            scopes.append(())
        elif match["brace"] == "}":
            del scopes[-1:]
        else:
            end = _closing(plain, match.end() - 1, "(", ")")
            if end < 0 or not re.match(r"[^;{]*\{", plain[end + 1 :]):
                continue
            before = plain[max(plain.rfind(mark, 0, match.start()) for mark in ";}#") + 1 : match.start()]
            pairs = _parameters(plain[match.end() : end])
            names, types = tuple(name for name, _ in pairs), tuple(kind for _, kind in pairs)
            scope = tuple(name for names in scopes for name in names)
            kernel = KernelSignature(match["name"], names, types, re.search(r"\btemplate\b", before) is not None, scope)
            found.setdefault(kernel.qualified, kernel)
    return tuple(found.values())


_SYSTEM = re.compile(r'# \d+ ".*"[ 124]* 3')


def without_library(text: str, headers: Path) -> str:
    """What a preprocessed text has of other files than the system's headers and those in a folder."""
    kept, library = [], False
    for line in text.split("\n"):
        if line.startswith("# "):
            library = f'"{headers}/' in line or _SYSTEM.match(line) is not None
        elif not library:
            kept.append(line)
    return "\n".join(kept)


def has_main(text: str) -> bool:
    """Whether the source defines main."""
    return re.search(r"\b(?:int|int32_t|auto)\s+main\s*\(", without_comments(text)) is not None


def launched_by_name(text: str) -> set[str]:
    """The kernels that a text launches through generated functions, or whose generated headers it includes."""
    return {name for pair in re.findall(r"\baclrtlaunch_(\w+)|\bACLRT_LAUNCH_KERNEL\s*\(\s*(\w+)\s*\)", text) for name in pair if name}


_INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


def with_headers(path: Path, folders: Sequence[Path] = ()) -> str:
    """The text of a source and of the program's own headers that it includes, from its folder or one of these, and of theirs."""
    texts: dict[Path, str] = {}
    left = [path]
    while left:
        file = left.pop()
        texts[file] = file.read_text(errors="replace")
        for name in _INCLUDE.findall(texts[file]):
            found = next((made for folder in (file.parent, *folders) if (made := (folder / name).resolve()).is_file()), None)
            if found is not None and found not in texts:
                left.append(found)
    return "\n".join(texts.values())


def kind(path: Path) -> str:
    """ "program": has a main and launches kernels; "kernel": to be launched from Python; "other": no Ascend C source."""
    text = path.read_text(errors="replace")
    includes = set(_INCLUDE.findall(with_headers(path)))
    plain = without_comments(text)
    launches = "<<<" in plain or "ICPU_RUN_KF" in plain or "ACLRT_LAUNCH_KERNEL" in plain
    device = (
        path.suffix == ".asc"
        or bool(includes & {"kernel_operator.h", "tikicpulib.h"})
        or any(i.startswith("aclrtlaunch_") for i in includes)
    )
    if not device and not launches:
        return "other"
    return "program" if has_main(text) else "kernel"


_NAME = re.compile(r"(?:::\s*)?[A-Za-z_]\w*(?:\s*::\s*[A-Za-z_]\w*)*\s*$")


def _arguments_begin(text: str, end: int) -> int:
    """Where the template arguments that end before `end` begin: `end` itself where there are none."""
    at, angles, rounds = len(text[:end].rstrip()) - 1, 0, 0
    if at < 0 or text[at] != ">":
        return end
    while at >= 0 and text[at] not in ";{}":
        rounds += (text[at] == ")") - (text[at] == "(")
        if rounds == 0 and text[at - 1 : at + 1] == "<<":  # a shift
            at -= 1
        elif rounds == 0:
            angles += (text[at] == ">") - (text[at] == "<")
            if angles == 0:
                return at
        at -= 1
    return end


def rewrite_launches(text: str) -> str:
    """`name<<<blocks, l2ctrl, stream>>>(arguments)` as C++; every line keeps its number."""
    plain = without_comments(text)
    out, last = [], 0
    for match in re.finditer("<<<", plain):
        end = plain.find(">>>", match.end())
        name = _NAME.search(plain, last, _arguments_begin(plain, match.start()))
        if end < 0 or name is None:
            continue
        kernel = text[name.start() : match.start()].rstrip()
        label = " ".join(kernel.split()).replace('"', "'")
        out.append(text[last : name.start()])
        out.append(f'::anycann::emu::Launcher("{label}", {text[match.end() : end]}).Bind({kernel})')
        last = end + 3
    return "".join(out) + text[last:]
