"""The floating-point environment of a thread, which programs and libraries change: rounding, traps, what becomes of subnormal numbers.

Kernels see to their own (`backends.cpu_system`); this is for what plans need from Python.
"""

import ctypes
import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["in_usual_floats"]

F = TypeVar("F", bound=Callable[..., Any])

_Environment = ctypes.c_char * 64  # as large as any system's, or larger
_system = ctypes.CDLL(None)
_keep, _restore = _system.fegetenv, _system.fesetenv  # of the C library
_usual = ctypes.byref(ctypes.c_char.in_dll(_system, "_FE_DFL_ENV")) if sys.platform == "darwin" else ctypes.c_void_p(-1)  # FE_DFL_ENV


def in_usual_floats(function: F) -> F:
    """A function that rounds to nearest, keeps subnormal numbers and traps nothing, whatever its caller has chosen."""

    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        before = _Environment()
        _keep(before)
        _restore(_usual)
        try:
            return function(*args)
        finally:
            _restore(before)

    return wrapped  # type: ignore[return-value]
