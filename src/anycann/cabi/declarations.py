"""The functions of the C interface, read from the headers that programs include and from the operators' contracts.

No prototype is written twice: what is read here makes the libraries, their door to Python and the headers of the operators.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from anycann.spec import OpSpec, snake_case

__all__ = [
    "ADDRESSES",
    "CORE",
    "ENUMS",
    "INCLUDE",
    "STATUSES",
    "Function",
    "Parameter",
    "every_function",
    "header_name",
    "hook_functions",
    "meta_functions",
    "operator_functions",
    "parse",
    "runtime_functions",
]

_HERE = Path(__file__).parent
INCLUDE = _HERE / "include"
CORE = _HERE / "core"
RUNTIME_HEADERS = ("acl/acl.h", "acl/acl_rt.h", "acl/acl_base.h")
META_HEADERS = ("aclnn/acl_meta.h", "aclnn/aclnn_base.h")

OPAQUE = frozenset(f"acl{kind}" for kind in (
    "DataBuffer", "OpExecutor", "Tensor", "Scalar", "IntArray", "FloatArray", "BoolArray", "TensorList", "ScalarList",
))  # fmt: skip
ENUMS = frozenset(("aclDataType", "aclFormat")) | frozenset(f"aclrt{kind}" for kind in (
    "RunMode", "MemcpyKind", "MemMallocPolicy", "MemAttr", "StreamStatus", "EventStatus", "EventRecordedStatus",
))  # fmt: skip
ADDRESSES = frozenset(("aclrtStream", "aclrtEvent", "aclrtContext", "anycannJob"))  # pointers without a star
STATUSES = ("aclError", "aclnnStatus")


@dataclass(frozen=True)
class Parameter:
    """One parameter. `kind` says what it is for the caller: "value", "handle" (an address that is only passed on), "text",
    "array" (read here), "out" (written here) or "new array" (an out-parameter that is given memory of its own)."""

    ctype: str
    name: str

    @property
    def base(self) -> str:
        """The type without const and stars."""
        return self.ctype.replace("const", "").replace("*", "").strip()

    @property
    def kind(self) -> str:
        stars, constant = self.ctype.count("*"), "const" in self.ctype
        if self.base in ADDRESSES:
            return ("handle", "out")[stars]
        if not stars:
            return "value"
        if stars == 1 and (self.base == "void" or self.base in OPAQUE):
            return "handle"
        if self.base == "char":
            return "text"
        if constant:
            return "array"
        return "new array" if self.ctype.replace(" ", "") == "int64_t**" else "out"

    @property
    def declaration(self) -> str:
        return f"{self.ctype}{'' if self.ctype.endswith('*') else ' '}{self.name}"


@dataclass(frozen=True)
class Function:
    """One function of the interface."""

    name: str
    result: str
    params: tuple[Parameter, ...]

    @property
    def prototype(self) -> str:
        listed = ", ".join(param.declaration for param in self.params)
        return f"{self.result}{'' if self.result.endswith('*') else ' '}{self.name}({listed or 'void'})"

    @property
    def null_status(self) -> int:
        """The status of a null out-parameter."""
        return {"aclError": 100000, "aclnnStatus": 161001}[self.result]

    @property
    def fault(self) -> int:
        """What a call answers when anycann itself is at fault: a status, or null."""
        return {"aclError": 507000, "aclnnStatus": 561000}.get(self.result, 0)


_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_DECLARATION = re.compile(r"ANYCANN_API\s+([^;()]*?)(\w+)\s*\(([^;()]*)\)\s*;")


def _spaced(ctype: str) -> str:
    """A C type with one blank before its stars: "const int64_t *"."""
    words = " ".join(ctype.replace("*", " * ").split())
    return words.replace("* *", "**").replace("* const", "*const")


def _parameter(text: str) -> Parameter:
    found = re.fullmatch(r"\s*(.*?)(\w+)\s*", text, re.DOTALL)
    if found is None or not found[1].strip():
        raise ValueError(f"every parameter has a type and a name; got {text!r}")
    return Parameter(_spaced(found[1]), found[2])


def parse(text: str) -> list[Function]:
    """The functions that a header declares: one ANYCANN_API statement each."""
    plain = _COMMENT.sub(" ", text)
    plain = re.sub(r"^\s*#.*$", "", plain, flags=re.MULTILINE)
    found = _DECLARATION.findall(plain)
    if len(found) != plain.count("ANYCANN_API"):
        raise ValueError(f"{plain.count('ANYCANN_API')} declarations are marked ANYCANN_API; {len(found)} could be read")
    functions = []
    for result, name, params in found:
        listed = () if params.strip() == "void" else tuple(_parameter(param) for param in params.split(","))
        functions.append(Function(name, _spaced(result), listed))
    return functions


def _declared_in(headers: Iterable[Path]) -> tuple[Function, ...]:
    return tuple(function for header in headers for function in parse(header.read_text(encoding="utf-8")))


@cache
def runtime_functions() -> tuple[Function, ...]:
    """What the headers in acl/ declare."""
    return _declared_in(INCLUDE / name for name in RUNTIME_HEADERS)


@cache
def meta_functions() -> tuple[Function, ...]:
    """What the headers in aclnn/ declare."""
    return _declared_in(INCLUDE / name for name in META_HEADERS)


@cache
def hook_functions() -> tuple[Function, ...]:
    """What other libraries of anycann call."""
    return _declared_in((CORE / "hooks.h",))


def header_name(spec: OpSpec) -> str:
    """aclnnGeluBackwardV2 -> aclnn_gelu_backward_v2.h."""
    return f"aclnn_{snake_case(spec.name)}.h"


def operator_functions(spec: OpSpec) -> tuple[Function, Function]:
    """Both phases of an operator."""
    params = [Parameter(param.ctype, param.name) for param in spec.params]
    results = (Parameter("uint64_t *", "workspaceSize"), Parameter("aclOpExecutor **", "executor"))
    first = Function(f"{spec.name}GetWorkspaceSize", "aclnnStatus", (*params, *results))
    given = (("void *", "workspace"), ("uint64_t", "workspaceSize"), ("aclOpExecutor *", "executor"), ("aclrtStream", "stream"))
    return first, Function(spec.name, "aclnnStatus", tuple(Parameter(*pair) for pair in given))


def every_function(specs: Iterable[OpSpec]) -> tuple[Function, ...]:
    """All that the libraries export."""
    operators = (function for spec in specs for function in operator_functions(spec))
    return (*runtime_functions(), *meta_functions(), *hook_functions(), *operators)
