"""The floating-point environment of a thread, which programs and libraries change: rounding, traps, what becomes of subnormal numbers.

Kernels see to their own (`backends.cpu_system`); this is for what plans need from Python.
"""

import contextlib
import ctypes
import sys
from collections.abc import Iterator

__all__ = ["usual_floats"]

_ROOM = 64  # bytes of an environment, at most
_system = ctypes.CDLL(None)
_keep, _restore = _system.fegetenv, _system.fesetenv  # of the C library
_usual = ctypes.byref(ctypes.c_char.in_dll(_system, "_FE_DFL_ENV")) if sys.platform == "darwin" else ctypes.c_void_p(-1)  # FE_DFL_ENV


@contextlib.contextmanager
def usual_floats() -> Iterator[None]:
    """Round to nearest, keep subnormal numbers and trap nothing meanwhile."""
    before = ctypes.create_string_buffer(_ROOM)
    _keep(before)
    _restore(_usual)
    try:
        yield
    finally:
        _restore(before)
