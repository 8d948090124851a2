"""The C++ between the exported functions and Python, as text: what crosses, and the functions that programs call.

Handles and addresses cross as integers, arrays and out-parameters as pointers, enumerations as int32_t.
"""

from collections.abc import Iterable, Sequence

from anycann.cabi.declarations import ADDRESSES, ENUMS, STATUSES, Function, Parameter

__all__ = ["MODULE", "body_prototype", "cdef", "entry", "interface", "prologue", "trampolines"]

MODULE = "_anycann_cabi"
STARTING = ("int anycann_start(void);", "void anycann_libraries_loaded(void);")  # what C++ calls
HELPERS = ("int64_t *anycann_new_array(uint64_t count);", "void anycann_watch_start(uintptr_t table);")  # what Python calls


def entry(function: Function) -> str:
    """The name of the function's body, which is written in Python."""
    return f"anycann_py_{function.name}"


def _value(base: str) -> str:
    if base in ENUMS or base in STATUSES:
        return "int32_t"
    return {"bool": "uint8_t", "aclFloat16": "uint16_t"}.get(base, base)


def _crossing(param: Parameter) -> str:
    """The type as which a parameter reaches Python."""
    of_addresses = param.ctype.count("*") == 2 or param.base in ADDRESSES
    match param.kind:
        case "handle":
            return "uintptr_t"
        case "text":
            return "const char *"
        case "new array":
            return "int64_t **"
        case "array":
            return "const uintptr_t *" if of_addresses else f"const {_value(param.base)} *"
        case "out":
            return "uintptr_t *" if of_addresses else f"{_value(param.base)} *"
    return _value(param.base)


def _result(function: Function) -> str:
    if function.result == "const char *":
        return function.result
    return "uintptr_t" if function.result.endswith("*") else _value(function.result)


def body_prototype(function: Function) -> str:
    """The body as C sees it."""
    return f"{_result(function)} {entry(function)}({', '.join(map(_crossing, function.params)) or 'void'});"


def cdef(functions: Iterable[Function]) -> str:
    """What cffi is told: the bodies in Python, the helpers in C++."""
    bodies = "\n".join(f"    {body_prototype(function)}" for function in functions)
    return f'extern "Python+C" {{\n{bodies}\n}}\n' + "\n".join(HELPERS) + "\n"


def interface(functions: Iterable[Function]) -> str:
    """What crosses, one body a line: libraries and Python code that agree on a line understand each other there."""
    return "\n".join(map(body_prototype, functions))


def prologue(functions: Iterable[Function]) -> str:
    """Declarations of the bodies, for every C++ file."""
    includes = "".join(f'#include "{name}"\n' for name in ("acl/acl.h", "aclnn/aclnn_base.h", "hooks.h", "environment.h"))
    lines = "".join(f"ANYCANN_API {text}\n" for text in (*STARTING, *HELPERS, *map(body_prototype, functions)))
    return f'{includes}extern "C" {{\n{lines}}}\n'


def trampolines(functions: Sequence[Function]) -> str:
    """The exported functions: start Python at the first call, then call the body."""
    return 'extern "C" {\n' + "\n".join(map(_trampoline, functions)) + "\n}\n"


def _trampoline(function: Function) -> str:
    arguments = ", ".join(f"({_crossing(param)})({param.name})" for param in function.params)
    result = function.result
    answer = f"anycann_start() ? ({result})({entry(function)}({arguments})) : ({result})({function.fault})"
    lines = ["const DefaultEnvironment ours;", f"const auto answer = {answer};"]
    if function.name.endswith("GetWorkspaceSize"):
        lines.append("anycann_libraries_loaded();")  # the compiler, by the first
    return "\n    ".join([f"ANYCANN_API {function.prototype}\n{{", *lines, "return answer;\n}"])
