"""The bodies of the C functions: null pointers, arrays, strings and results between C and `anycann.device`, which does the work.

`start` is called by the libraries, once. The bodies are made from the declarations as Python text, one fixed list of parameters each:
they stand in every call of a program, and phases 1 and 2 of an operator take microseconds.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from anycann import device, ops
from anycann.cabi.declarations import STATUSES, Function, every_function
from anycann.cabi.glue import body_prototype, entry
from anycann.device.memory import DEVICE
from anycann.errors import AclnnError

__all__ = ["start"]

MAX_DIMS = 64  # far above any rank that an operator takes: a greater count is no count
MAX_ITEMS = 2**24
_OF_TENSORS = ("aclCreateTensor", "aclInitTensor")

_latest = threading.local()  # the text that this thread read last
_lasting: dict[str, Any] = {}  # texts that programs may keep


def _missing(api: str, name: str, status: int) -> int:
    """Refuse a null out-parameter."""
    rule = "must point to memory for a result; got a null pointer. Pass the address of a variable."
    return _refused(AclnnError(status, api, f"{name} {rule}"))


def _refused(error: AclnnError) -> int:
    device.remember(error)
    return error.status


class _Memory:
    """Reading and writing what C pointers point to."""

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi, self.lib, self.null = ffi, lib, ffi.NULL

    def text(self, pointer: Any) -> str:
        return str(self.ffi.string(pointer).decode("utf-8", "backslashreplace"))

    def values(self, pointer: Any, count: int, most: int, api: str, name: str) -> tuple[Any, ...] | None:
        """The elements of an array; None for a null pointer that should have some."""
        if count > most:
            raise AclnnError(161002, api, f"{name} must be at most {most}; got {count}. Pass the number of elements.")
        if not pointer:
            return None if count else ()
        return tuple(self.ffi.unpack(pointer, count))

    def flags(self, pointer: Any, count: int, most: int, api: str, name: str) -> tuple[bool, ...] | None:
        """`values` of bool: any byte but 0 is true."""
        found = self.values(pointer, count, most, api, name)
        return None if found is None else tuple(map(bool, found))

    def new_array(self, numbers: Sequence[int]) -> Any:
        """The numbers in memory that the program releases."""
        made = self.lib.anycann_new_array(len(numbers))
        made[0 : len(numbers)] = list(numbers)
        return made

    def lasting(self, text: str) -> Any:
        """A C string that stays."""
        if text not in _lasting:
            _lasting[text] = self.ffi.new("char[]", text.encode())
        return _lasting[text]

    def latest(self, text: str | None) -> Any:
        """A C string that stays until this thread asks again, or null."""
        _latest.text = self.null if text is None else self.ffi.new("char[]", text.encode())
        return _latest.text


def _arguments(function: Function) -> Iterator[str]:
    """What the device function is called with: inputs in C order, an array and its count as one."""
    params = function.params
    most = MAX_DIMS if function.name in _OF_TENSORS else MAX_ITEMS
    counted = -1  # the place of the latest count
    for place, param in enumerate(params):
        if param.kind == "text":
            yield f"memory.text(a{place}) if a{place} else None"
        elif param.kind == "array":
            own = place + 1 if params[place + 1].ctype == "uint64_t" else None
            counted = counted if own is None else own
            read = "flags" if param.base == "bool" else "values"
            items = f"memory.{read}(a{place}, a{counted}, {most}, api, {params[counted].name!r})"
            if own is None:  # an array that is as long as the one before it, and may be left out
                items = f"{items} if a{place} else None"
            yield items
        elif param.kind in ("value", "handle") and place != counted:
            yield f"a{place} != 0" if param.ctype == "bool" else f"a{place}"


def _body(function: Function) -> str:
    """The Python text of one body."""
    name = function.name
    outs = [place for place, param in enumerate(function.params) if param.kind in ("out", "new array")]
    params = "".join(f"a{place}, " for place in range(len(function.params)))
    lines = [f"def {name}({params}api={name!r}, call=calls[{name!r}]):"]
    for place in outs:
        missing = f"missing(api, {function.params[place].name!r}, {function.null_status})"
        lines += [f"    if not a{place}:", f"        return {missing}"]
    call = f"call({', '.join(_arguments(function))})"
    lines.append("    try:")
    if outs:
        lines.append(f"        {', '.join(f'r{place}' for place in outs)} = {call}")
        made = (f"memory.new_array(r{place})" if function.params[place].kind == "new array" else f"r{place}" for place in outs)
        lines += [f"        a{place}[0] = {value}" for place, value in zip(outs, made, strict=True)]
    elif function.result == "const char *":
        lines.append(f"        return memory.{'latest' if name == 'aclGetRecentErrMsg' else 'lasting'}({call})")
    else:
        lines.append(f"        {call}" if function.result in STATUSES else f"        return {call}")
    none = "memory.null" if function.result == "const char *" else "0"
    asked = name.startswith("anycann_") and name != "anycann_stream_enqueue"  # our own libraries ask; no program made a mistake
    refused = "error.status" if asked else "refused(error)"
    answer = "return " if function.result in STATUSES else ""
    lines += ["    except AclnnError as error:", f"        {answer}{refused}"]
    lines += ["    except Exception as error:", f"        {answer}fault(error, api, {function.fault})"]
    return "\n".join([*lines, f"    return {none}", ""])


def _calls() -> dict[str, Callable[..., Any]]:
    """What does the work of each function."""
    calls: dict[str, Callable[..., Any]] = dict(device.CALLS)
    for operator in ops.OPERATORS:
        if operator.spec.two_phase:
            first, second = device.two_phase(operator)
            calls |= {f"{operator.spec.name}GetWorkspaceSize": first, operator.spec.name: second}
    return calls


def bodies(ffi: Any, lib: Any, calls: Mapping[str, Callable[..., Any]], functions: tuple[Function, ...]) -> dict[str, Any]:
    """The Python functions behind the C functions."""
    names: dict[str, Any] = {"AclnnError": AclnnError, "calls": calls, "memory": _Memory(ffi, lib)}
    names |= {"missing": _missing, "refused": _refused, "fault": device.fault}
    exec(compile("\n".join(map(_body, functions)), "<anycann.cabi bodies>", "exec"), names)
    return {function.name: names[function.name] for function in functions}


def start(ffi: Any, lib: Any, interface: str) -> None:
    """Put the bodies in place of the C functions that a library was built with; it may know fewer functions than we do."""
    built = set(interface.splitlines())
    known = {body_prototype(function): function for function in every_function(o.spec for o in ops.OPERATORS if o.spec.two_phase)}
    if unknown := sorted(built - known.keys()):
        raise RuntimeError(
            f"these libraries were built by another version of anycann than {device.__file__} belongs to, which has no {unknown[0]} "
            "Build the program again with `anycann config`, or set LD_LIBRARY_PATH to its folder lib64"
        )
    functions = tuple(function for prototype, function in known.items() if prototype in built)
    made = bodies(ffi, lib, _calls(), functions)
    for function in functions:
        ffi.def_extern(name=entry(function), error=ffi.NULL if function.result == "const char *" else function.fault)(made[function.name])
    if DEVICE.watch is not None:
        lib.anycann_watch_start(DEVICE.watch.table)
