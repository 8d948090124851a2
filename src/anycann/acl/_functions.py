"""Functions in the conventions of pyACL, made from those of the C interface: outputs first, the status last, numbers for handles."""

import inspect
import operator
from collections.abc import Callable, Mapping
from typing import Any

from anycann import device
from anycann.attributes import snake_case
from anycann.errors import AclnnError

__all__ = ["VALUE", "functions"]

VALUE = -1  # in place of the number of outputs: the function returns a value and no status
FAULT = 507000  # what a call answers when anycann itself is at fault
_SIGNED = frozenset(("deviceId", "timeout", "value", "kind", "policy", "attr", "dataType"))  # int32_t or an enumeration in C

Table = Mapping[str, tuple[str, int]]


def _index(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        mend = "" if not hasattr(value, "__array_interface__") else ": pass acl.util.numpy_to_ptr(array) for the address of its memory"
        raise TypeError(f"{name} must be an int; got {type(value).__name__}{mend}") from None


def _word(value: Any, name: str) -> int:
    """A handle, an address, a size: 64 bits, as C takes them from Python."""
    return _index(value, name) % 2**64


def _int32(value: Any, name: str) -> int:
    number = _index(value, name)
    if not -(2**31) <= number < 2**31:
        raise OverflowError(f"{name}: {number} does not fit into the 32 bits of an int")
    return number


def _float(value: Any, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number; got {type(value).__name__}") from None


def _text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{name} must be a str, the path of a file, or None; got {type(value).__name__}")
    return value


def _conversion(parameter: inspect.Parameter) -> Callable[[Any, str], Any]:
    if parameter.annotation is float:
        return _float
    if parameter.annotation is not int:
        return _text
    return _int32 if parameter.name in _SIGNED else _word


def _status(api: str, error: Exception) -> int:
    """What to answer for an error, which is remembered; our own faults are also printed."""
    if not isinstance(error, AclnnError):
        return device.fault(error, api, FAULT)
    device.remember(error)
    return error.status


def _function(name: str, module: str, c_name: str, outputs: int) -> Callable[..., Any]:
    call = device.CALLS[c_name]
    public = f"{module.removeprefix('anycann.')}.{name}"
    given = inspect.signature(call).parameters.values()
    conversions = [_conversion(parameter) for parameter in given]
    signature = inspect.Signature(
        [
            inspect.Parameter(snake_case(one.name), inspect.Parameter.POSITIONAL_ONLY, default=None if conversion is _text else one.default)
            for one, conversion in zip(given, conversions, strict=True)
        ]
    )

    def function(*args: Any) -> Any:
        try:
            bound = signature.bind(*args)
            bound.apply_defaults()
            values = [convert(value, parameter) for convert, value, parameter in zip(conversions, bound.args, bound.arguments, strict=True)]
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{public}: {error}") from None
        try:
            result, status = call(*values), 0
        except Exception as error:
            result, status = (0,) * outputs if outputs > 1 else 0, _status(c_name, error)
        if outputs == VALUE:
            return result
        return status if outputs == 0 else (*result, status) if outputs > 1 else (result, status)

    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    function.__doc__ = f"{c_name} of the C interface: " + ("its value." if outputs == VALUE else "its outputs, then the status.")
    vars(function)["__signature__"] = signature
    return function


def functions(table: Table, module: str) -> dict[str, Callable[..., Any]]:
    """The functions of a module: pyACL's name to the name in C and the number of outputs."""
    return {name: _function(name, module, *row) for name, row in table.items()}
