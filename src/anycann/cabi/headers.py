"""The headers that programs include: ours as they are, and one for every operator, made from its contract."""

import shutil
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from anycann import describe
from anycann.cabi.declarations import INCLUDE, Function, header_name, operator_functions
from anycann.spec import OpSpec, Tensor

__all__ = ["operator_header", "write_headers"]

WIDTH = 128

_HEADER = """\
/* {summary} */
#ifndef {guard}
#define {guard}

#include "../aclnn/aclnn_base.h"

#ifdef __cplusplus
extern "C" {{
#endif

/*
{contract}
 */
{first}
/* Phase 2: run what phase 1 prepared, on a stream. */
{second}
#ifdef __cplusplus
}}
#endif

#endif
"""


def _declared(function: Function) -> str:
    """A declaration, broken where it is long."""
    head, params = f"ANYCANN_API {function.prototype};\n".split("(", 1)
    whole = params.replace(" ", "\0").replace(",\0", ", ")  # a parameter is never broken
    lines = textwrap.wrap(whole, WIDTH - len(head) - 1, break_on_hyphens=False, break_long_words=False)
    return f"{head}({(chr(10) + ' ' * (len(head) + 1)).join(lines)}\n".replace("\0", " ")


def _comment(lines: Iterable[str]) -> str:
    """Lines of a comment; nothing in them can end it."""
    wrapped = (part for line in lines for part in textwrap.wrap(line, WIDTH - 3, subsequent_indent="    ", break_on_hyphens=False) or [""])
    return "\n".join(f" * {line}".rstrip() for line in wrapped).replace("*/", "* /").replace("/*", "/ *")


def _in_c(spec: OpSpec) -> OpSpec:
    """The contract without what holds for the Python functions only: wider dtypes, defaults."""
    params = (replace(param, superset=()) if isinstance(param, Tensor) else replace(param, required=True) for param in spec.params)
    return replace(spec, params=tuple(params))


def operator_header(spec: OpSpec) -> str:
    """aclnnop/aclnn_<operator>.h."""
    first, second = operator_functions(spec)
    contract = ["Phase 1: check the call, size the workspace, prepare an executor for phase 2.", ""]
    contract += [part.strip() for part in spec.formula.split(";")] + [""]
    narrow = _in_c(spec)
    contract += [f"{param.name}: {describe.parameter(narrow, param)}" for param in narrow.params]
    contract += ["workspaceSize: output; bytes of device memory that phase 2 needs", "executor: output; for one call of phase 2"]
    return _HEADER.format(
        summary=spec.summary.replace("*/", "* /"),
        guard=f"ANYCANN_ACLNNOP_{header_name(spec)[:-2].upper()}_H",
        contract=_comment(contract),
        first=_declared(first),
        second=_declared(second),
    )


def write_headers(specs: Iterable[OpSpec], folder: Path) -> None:
    """All headers, under every spelling that programs include them by."""
    shutil.copytree(INCLUDE, folder)
    deeper = folder / "aclnnop" / "level2"
    deeper.mkdir(parents=True)
    for spec in specs:
        name = header_name(spec)
        (deeper.parent / name).write_text(operator_header(spec), encoding="utf-8")
        (deeper / name).write_text(f'#include "../{name}"\n', encoding="utf-8")
