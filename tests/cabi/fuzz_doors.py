"""Two doors to the device with one face: its functions in Python, and the same functions in libopapi through ctypes.

A door is called with a name and the inputs in C order, an array as one tuple, and answers a status and the outputs.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from anycann import cabi, device, ops
from anycann.cabi import declarations
from anycann.cabi.declarations import Function, Parameter
from anycann.errors import AclnnError

__all__ = ["Answer", "Door", "direct", "through_c"]

Answer = tuple[int, tuple[Any, ...]]
Door = Callable[[str, Sequence[Any]], Answer]
NO_STATUS = -1  # of a function that should have made something, and returned null

OPERATORS = [operator for operator in ops.OPERATORS if operator.spec.two_phase]
_NUMBERS: dict[str, Any] = {
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "uint32_t": ctypes.c_uint32,
    "uint16_t": ctypes.c_uint16,
    "aclFloat16": ctypes.c_uint16,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
}


def direct() -> Door:
    """The functions in Python."""
    calls: dict[str, Callable[..., Any]] = dict(device.CALLS)
    for operator in OPERATORS:
        first, second = device.two_phase(operator)
        calls |= {f"{operator.spec.name}GetWorkspaceSize": first, operator.spec.name: second}

    def call(name: str, args: Sequence[Any]) -> Answer:
        try:
            result = calls[name](*args)
        except AclnnError as error:
            device.remember(error)
            return error.status, ()
        return 0, result if isinstance(result, tuple) else () if result is None else (result,)

    return call


def _ctype(param: Parameter) -> Any:
    if param.kind in ("handle", "array", "out", "new array"):
        return ctypes.c_void_p
    return ctypes.c_char_p if param.kind == "text" else _NUMBERS.get(param.base, ctypes.c_int32)


def _element(param: Parameter) -> Any:
    """What an array or an out-parameter points to."""
    return (
        ctypes.c_void_p if param.ctype.count("*") == 2 or param.base in declarations.ADDRESSES else _NUMBERS.get(param.base, ctypes.c_int32)
    )


def _bound(library: ctypes.CDLL, function: Function) -> Callable[[Sequence[Any]], Answer]:
    """One function of the library."""
    found = library[function.name]
    found.argtypes = [_ctype(param) for param in function.params]
    if function.result == "const char *":
        found.restype = ctypes.c_char_p
    elif function.result.endswith("*"):
        found.restype = ctypes.c_void_p
    else:
        found.restype = _NUMBERS.get(function.result, ctypes.c_int32)

    def call(args: Sequence[Any]) -> Answer:
        given, words, outs, counted = iter(args), [], [], None
        for param in function.params:
            if counted is not None and param.ctype == "uint64_t":
                words.append(counted)
                counted = None
            elif param.kind == "array":
                values = next(given)
                counted = len(values or (0,))  # a null pointer that should have an element
                words.append(None if values is None else (_element(param) * max(len(values), 1))(*values))
            elif param.kind in ("out", "new array"):
                outs.append((ctypes.POINTER(ctypes.c_int64) if param.kind == "new array" else _element(param))())
                words.append(ctypes.addressof(outs[-1]))
            else:
                value = next(given)
                words.append(value.encode() if isinstance(value, str) else value)
        result = found(*words)
        if function.result not in declarations.STATUSES:
            return (NO_STATUS, ()) if result is None and function.name.startswith("aclCreate") else (0, (result,))
        if result:
            return result, ()
        return 0, tuple(_read(outs))

    return call


def _read(outs: list[Any]) -> Any:
    for place, out in enumerate(outs):
        if isinstance(out, ctypes._Pointer):
            count = outs[place + 1].value
            yield tuple(out[:count])
            _release(out)
        else:
            yield out.value or 0


def _release(array: Any) -> None:
    """delete[]."""
    ctypes.CDLL("libstdc++.so.6")["_ZdaPv"](ctypes.cast(array, ctypes.c_void_p))


def through_c() -> Door:
    """The functions of libopapi, in this process."""
    library = ctypes.CDLL(str(cabi.home() / "lib64" / "libopapi.so"))
    functions = declarations.every_function(operator.spec for operator in OPERATORS)
    bound = {function.name: _bound(library, function) for function in functions}
    return lambda name, args: bound[name](args)
