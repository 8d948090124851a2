"""Tiling structs: their fields, their C layout, and how they are read from host definitions.

Layout is that of a C struct: every field on a multiple of its alignment, in order, the size a multiple of the largest.
"""

import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Union

__all__ = ["Field", "Struct", "TilingData", "describe", "known_structs", "parse_definitions"]

_HEADER = Path(__file__).parent.parent / "include" / "emu" / "layernorm_fields.h"

_SCALARS = {
    "bool": "?",
    "int8_t": "b",
    "uint8_t": "B",
    "int16_t": "h",
    "uint16_t": "H",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "uint64_t": "Q",
    "float": "f",
    "double": "d",
    "half": "e",
}
_OTHER_NAMES = {"int": "int32_t", "unsigned": "uint32_t", "unsigned int": "uint32_t", "size_t": "uint64_t"}

FieldType = Union[str, "Struct"]


@dataclass(frozen=True)
class Field:
    """A member: a scalar's C name or a Struct; count 0 is one value, n an array of n."""

    name: str
    type: FieldType
    count: int = 0

    @property
    def item_size(self) -> int:
        return self.type.size if isinstance(self.type, Struct) else struct.calcsize(_SCALARS[self.type])

    @property
    def align(self) -> int:
        return self.type.align if isinstance(self.type, Struct) else self.item_size

    @property
    def size(self) -> int:
        return self.item_size * (self.count or 1)


class Struct:
    """A C struct. `emit` says whether anycann declares it for the kernel, or the kernel's own sources do."""

    def __init__(self, name: str, fields: tuple[Field, ...], emit: bool = True, align: int = 1) -> None:
        if not fields:
            raise ValueError(f"the tiling struct {name} has no fields")
        self.name, self.fields, self.emit = name, fields, emit
        self.align = max(align, *(field.align for field in fields))
        self.offsets: dict[str, int] = {}
        end = 0
        for field in fields:
            if field.name in self.offsets:
                raise ValueError(f"the tiling struct {name} has two fields called {field.name}")
            start = -(-end // field.align) * field.align
            self.offsets[field.name] = start
            end = start + field.size
        self.size = -(-end // self.align) * self.align

    def leaves(self, base: int = 0) -> Iterator[tuple[int, str, str, int]]:
        """(offset, name, type, count) of every scalar and array of scalars, in nested structs too."""
        for field in self.fields:
            start = base + self.offsets[field.name]
            if isinstance(field.type, Struct):
                for i in range(field.count or 1):
                    yield from field.type.leaves(start + i * field.item_size)
            else:
                yield start, field.name, field.type, field.count

    def pack(self, values: Mapping[str, Any]) -> bytes:
        """The bytes of the struct. Every field must be given, and no other."""
        missing = [field.name for field in self.fields if field.name not in values]
        unknown = [key for key in values if key not in self.offsets]
        if missing or unknown:
            said = [f"{what} {', '.join(names)}" for what, names in (("lacks", missing), ("has no field", unknown)) if names]
            raise ValueError(f"tiling {self.name}: the value {' and '.join(said)}; its fields are {', '.join(self.offsets)}")
        out = bytearray(self.size)
        for field in self.fields:
            start = self.offsets[field.name]
            out[start : start + field.size] = self._pack_field(field, values[field.name])
        return bytes(out)

    def _pack_field(self, field: Field, value: Any) -> bytes:
        items = [value] if field.count == 0 else list(value)
        if len(items) != (field.count or 1):
            raise ValueError(f"tiling {self.name}: {field.name} takes {field.count} values; got {len(items)}")
        if isinstance(field.type, Struct):
            return b"".join(field.type.pack(item) for item in items)
        try:
            return struct.pack("<" + _SCALARS[field.type] * len(items), *items)
        except struct.error as error:
            raise ValueError(f"tiling {self.name}: {field.name} is a {field.type} and cannot hold {value!r} ({error})") from None

    def unpack(self, data: bytes) -> "TilingData":
        """The values in the first `size` bytes."""
        values: dict[str, Any] = {}
        for field in self.fields:
            items: list[Any] = []
            for i in range(field.count or 1):
                start = self.offsets[field.name] + i * field.item_size
                part = data[start : start + field.item_size]
                items.append(
                    field.type.unpack(part) if isinstance(field.type, Struct) else struct.unpack("<" + _SCALARS[field.type], part)[0]
                )
            values[field.name] = items if field.count else items[0]
        return TilingData(self, values)

    def declaration(self) -> str:
        """The C++ declarations of this struct and of those inside it that the headers do not have."""
        inner = [f.type.declaration() for f in self.fields if isinstance(f.type, Struct)]
        if not self.emit:
            return "".join(inner)
        lines = [
            f"    {f.type.name if isinstance(f.type, Struct) else f.type} {f.name}{f'[{f.count}]' if f.count else ''};" for f in self.fields
        ]
        return (
            "".join(inner) + f"struct {self.name} {{\n" + "\n".join(lines) + f"\n}};\nstatic_assert(sizeof({self.name}) == {self.size});\n"
        )


class TilingData(Mapping[str, Any]):
    """A filled tiling: a mapping whose fields are attributes too. `to_bytes()` is what a kernel receives."""

    def __init__(self, layout: Struct, values: Mapping[str, Any]) -> None:
        self.layout = layout
        self._bytes = layout.pack(values)
        self._values = {field.name: values[field.name] for field in layout.fields}

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"the tiling has no field {name}") from None

    def __repr__(self) -> str:
        return f"{self.layout.name}({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"

    def to_bytes(self) -> bytes:
        return self._bytes


@cache
def known_structs() -> dict[str, Struct]:
    """The structs that kernels see without defining them, read from the header that defines them."""
    found = {}
    for name, body in re.findall(r"#define ANYCANN_(\w+)\(F\)((?:.*\\\n)*.*)", _HEADER.read_text()):
        found[name] = Struct(name, tuple(Field(field, "uint32_t") for field in re.findall(r"F\((\w+)\)", body)), emit=False)
    return found


def _check_count(owner: str, name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"the tiling struct {owner} has an array {name} of {count} elements; it must have at least 1")


def _field(owner: str, name: str, kind: Any, structs: Mapping[str, Struct]) -> Field:
    if not name.isidentifier():
        raise ValueError(f"the tiling struct {owner} has a field called {name!r}, which is no C name")
    count = 0
    if isinstance(kind, tuple) and len(kind) == 2:
        kind, count = kind
        _check_count(owner, name, count)
    if isinstance(kind, Mapping):
        return Field(name, describe(kind, f"{owner}_{name}", structs), count)
    if isinstance(kind, Struct):
        return Field(name, kind, count)
    if not isinstance(kind, str):
        raise TypeError(f"the type of the tiling field {name} must be a C type name, (name, count), a mapping or a Struct; got {kind!r}")
    text = " ".join(kind.replace("std::", "").replace("optiling::", "").split())
    if match := re.fullmatch(r"([\w ]+?)\s*\[(\d+)\]", text):
        text, count = match[1], int(match[2])
        _check_count(owner, name, count)
    text = _OTHER_NAMES.get(text, text)
    if text in _SCALARS:
        return Field(name, text, count)
    if text in structs:
        return Field(name, structs[text], count)
    raise ValueError(f"the tiling field {name} has the unknown type {kind!r}; known are {', '.join((*_SCALARS, *structs))}")


def describe(fields: Mapping[str, Any], name: str = "AnycannTilingData", structs: Mapping[str, Struct] | None = None) -> Struct:
    """A struct from Python: {"field": "uint32_t" | "uint32_t[4]" | ("uint32_t", 4) | "LayerNormGradBetaTiling" | {nested fields}}."""
    known = known_structs() if structs is None else structs
    return Struct(name, tuple(_field(name, key, kind, known) for key, kind in fields.items()))


_MACRO = re.compile(r"BEGIN_TILING_DATA_DEF\(\s*(\w+)\s*\)(.*?)END_TILING_DATA_DEF", re.DOTALL)
_MEMBER = re.compile(r"TILING_DATA_FIELD_DEF(_ARR|_STRUCT)?\(\s*([^()]*?)\s*\)")
_PLAIN = re.compile(r"\b(typedef\s+)?struct\s*(?:alignas\s*\(\s*(\d+)\s*\))?\s*(\w*)\s*\{([^{}]*)\}\s*(\w*)\s*;")
_PLAIN_TYPE = re.compile(r"(unsigned\s+int|[\w:]+)\s+(?=\w)")
_PLAIN_NAME = re.compile(r"(\w+)\s*(?:\[\s*(\w+)\s*\])?\s*(?:=.*)?", re.DOTALL)
_NUMBER = re.compile(r"(0[xX][0-9a-fA-F]+|[1-9]\d*|0)[uUlL]*")
_CONSTANT = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+\(?(\w+)\)?[ \t]*$|\bconst(?:expr)?\b[\w:\s]*?\b(\w+)\s*=\s*(\w+)\s*;", re.MULTILINE
)


def _constants(text: str) -> dict[str, int]:
    """The numbers that a source gives names to."""
    named = [(macro or name, value or other) for macro, value, name, other in _CONSTANT.findall(text)]
    return {name: int(number[1], 0) for name, value in named if (number := _NUMBER.fullmatch(value))}


def _length(text: str, constants: Mapping[str, int]) -> int | None:
    number = _NUMBER.fullmatch(text)
    return int(number[1], 0) if number else constants.get(text)


def _plain_fields(owner: str, body: str, structs: Mapping[str, Struct], constants: Mapping[str, int]) -> Iterator[Field]:
    """The members of a plain struct, those of `uint32_t rows, columns = 1;` too."""
    body = re.sub(r"^\s*#.*$", "", body, flags=re.MULTILINE)
    for member in filter(None, (" ".join(part.split()) for part in body.split(";"))):
        kind = _PLAIN_TYPE.match(member)
        names = [_PLAIN_NAME.fullmatch(part.strip()) for part in member[kind.end() :].split(",")] if kind else [None]
        for found in names:
            length = _length(found[2], constants) if found and found[2] else 0
            if kind is None or found is None or length is None:
                raise ValueError(
                    f"the tiling struct {owner} has a member that is not read: `{member};`. "
                    "Describe the struct by tiling={...}, or name another by tiling=(source, name)"
                )
            yield _field(owner, found[1], (kind[1], length) if found[2] else kind[1], structs)


def parse_definitions(text: str, name: str | None = None) -> Struct:
    """The kernel's tiling struct from host code: the BEGIN_TILING_DATA_DEF macros, or plain structs where there are none.

    Of several structs the one called `name` is meant, else the last that no other contains. A plain struct is the kernel's own: it is not
    declared a second time.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)
    structs, constants = dict(known_structs()), _constants(text)
    found: list[Struct] = []
    for struct_name, body in _MACRO.findall(text):
        members = []
        for form, inside in _MEMBER.findall(body):
            parts = [part.strip() for part in inside.split(",")]
            kind: Any = parts[0]
            if form == "_ARR":
                length = _length(parts[1], constants) if len(parts) == 3 else None
                if length is None:
                    raise ValueError(
                        f"the tiling struct {struct_name} has an array {parts[-1]} whose count is not read: {inside}. "
                        "Write a number, or a name that the same source defines as one"
                    )
                kind = (kind, length)
            members.append(_field(struct_name, parts[-1], kind, structs))
        found.append(Struct(struct_name, tuple(members)))
        structs[struct_name] = found[-1]
    unread: dict[str, ValueError] = {}
    for typedef, align, tag, body, alias in [] if found else _PLAIN.findall(text):
        struct_name = alias if typedef else tag
        try:
            found.append(
                Struct(struct_name, tuple(_plain_fields(struct_name, body, structs, constants)), emit=False, align=int(align or 1))
            )
            structs[struct_name] = found[-1]
        except ValueError as error:
            unread[struct_name] = error
    for struct_name, mistake in unread.items():
        if name in (None, struct_name):
            raise mistake
    if name is not None:
        chosen = [s for s in found if s.name == name]
    else:
        inside_others = {f.type.name for s in found for f in s.fields if isinstance(f.type, Struct)}
        chosen = [s for s in found if s.name not in inside_others]
    if not chosen:
        raise ValueError(
            f"no tiling struct{f' called {name}' if name else ''} is defined there; found {', '.join(s.name for s in found) or 'none'}"
        )
    return chosen[-1]
