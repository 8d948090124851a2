"""acl.util: between Python objects and addresses of host memory. An address is valid as long as the object that it was taken from."""

import ctypes
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from anycann import device
from anycann.device.probe import accessible
from anycann.errors import AclnnError
from anycann.tensor import address_of

__all__ = ["bytes_to_ptr", "numpy_contiguous_to_ptr", "numpy_to_ptr", "ptr_to_bytes", "ptr_to_numpy"]

_LETTERS = np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"
_BY_NUMBER: "dict[int, np.dtype[Any]]" = {np.dtype(letter).num: np.dtype(letter) for letter in _LETTERS}


def _need_host(address: int, size: int, api: str) -> None:
    """Refuse memory that Python cannot read."""
    if device.block_at(address) is not None:
        raise AclnnError(107000, api, f"ptr must be host memory; got {address:#x}, device memory. Copy it to the host with acl.rt.memcpy.")
    if size < 0 or not accessible(address, size, write=False):
        raise AclnnError(107000, api, f"ptr must be {size} readable bytes of host memory; got {address:#x}, where they are not.")


def bytes_to_ptr(data: bytes) -> int:
    """The address of the bytes."""
    if not isinstance(data, bytes):
        raise TypeError(f"acl.util.bytes_to_ptr takes bytes; got {type(data).__name__}")
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0


def ptr_to_bytes(ptr: int, size: int) -> bytes:
    """A copy of `size` bytes at an address. AclnnError 107000 where they cannot be read."""
    address, size = operator.index(ptr), operator.index(size)
    _need_host(address, size, "acl.util.ptr_to_bytes")
    return ctypes.string_at(address, size)


def numpy_to_ptr(array: "np.ndarray[Any, Any]") -> int:
    """The address of the first element."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"acl.util.numpy_to_ptr takes a NumPy array; got {type(array).__name__}")
    return address_of(array)


def numpy_contiguous_to_ptr(array: "np.ndarray[Any, Any]") -> int:
    """The address of the first element; ValueError for arrays whose elements do not lie one behind the other."""
    address = numpy_to_ptr(array)
    if not array.flags.c_contiguous:
        raise ValueError(
            f"the array must be contiguous; got strides {array.strides} for shape {array.shape}: pass np.ascontiguousarray(...)"
        )
    return address


def ptr_to_numpy(ptr: int, shape: Sequence[int], data_type: int) -> "np.ndarray[Any, Any]":
    """An array over host memory, which is not copied: its shape, and the number of a NumPy type (11 is float32).

    AclnnError 107000 where the memory cannot be read; the array is read-only where it cannot be written.
    """
    dtype = _BY_NUMBER.get(operator.index(data_type))
    if dtype is None:
        raise ValueError(f"data_type must be the number of a NumPy type, one of {sorted(_BY_NUMBER)}; got {data_type}")
    address, size = operator.index(ptr), math.prod(shape) * dtype.itemsize
    _need_host(address, size, "acl.util.ptr_to_numpy")
    array: np.ndarray[Any, Any] = np.ndarray(tuple(shape), dtype, memoryview((ctypes.c_char * size).from_address(address)))
    array.flags.writeable = accessible(address, size, write=True)
    return array
