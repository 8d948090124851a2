"""Reading and giving memory through DLPack capsules, bfloat16 included, which NumPy's own doors refuse."""

import ctypes
from typing import Any, NamedTuple

from anycann import cuda, dtypes
from anycann.dtypes import DType

__all__ = ["Exporter", "Memory", "read"]

_CPU, _HOST_MEMORY = 1, (1, 3, 11)  # kDLCPU; memory of other kinds that the CPU reads as its own
_CUDA_MEMORY = (2, 13)  # kDLCUDA, kDLCUDAManaged
_KINDS = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
_CODE = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}


class _Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = (("array", _Array), ("context", ctypes.c_void_p), ("deleter", _Deleter))


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", _Deleter),
        ("flags", ctypes.c_uint64),
        ("array", _Array),
    )


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes, _is_valid.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.c_void_p
_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes, _new.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object

_NAME, _VERSIONED_NAME, _READ_ONLY = b"dltensor", b"dltensor_versioned", 1
_MEND = "Pass a NumPy array or a torch tensor."


def _place(producer: Any, name: str) -> tuple[int, int]:
    """Type and index of the device."""
    try:
        kind, index = map(int, producer.__dlpack_device__())
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise TypeError(f"{name} must give its device by __dlpack_device__, as two ints; got {said}. {_MEND}") from error
    return kind, index


def _capsule(producer: Any, name: str, **stream: int) -> Any:
    """What it gives, a capsule as a rule."""
    try:
        try:
            return producer.__dlpack__(max_version=(1, 0), **stream)
        except TypeError:  # a producer from before version 1 knows no such argument
            return producer.__dlpack__(**stream)
    except Exception as error:
        raise TypeError(f"{name} must give its memory by __dlpack__; got {type(error).__name__}: {error}. {_MEND}") from error


class Memory(NamedTuple):
    """What a capsule says; strides in elements, None for row-major without gaps. The capsule is kept, unconsumed, as the owner."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    writable: bool
    owner: object
    device: str


def read(producer: Any, name: str) -> Memory:
    """The memory that an object offers through `__dlpack__`, on the CPU or a CUDA device; `name` is for messages."""
    kind_of_device, index = _place(producer, name)
    if kind_of_device in _CUDA_MEMORY:
        device, capsule = f"cuda:{index}", _capsule(producer, name, stream=cuda.current_stream(name, index))
    elif kind_of_device in _HOST_MEMORY:
        device, capsule = "cpu", _capsule(producer, name)
    else:
        raise RuntimeError(
            f"{name} is on DLPack device type {kind_of_device}, and anycann runs on CPUs and CUDA devices: copy it to the CPU"
        )
    if _is_valid(capsule, _VERSIONED_NAME):
        versioned = _Versioned.from_address(_pointer(capsule, _VERSIONED_NAME))
        array, writable = versioned.array, not versioned.flags & _READ_ONLY
    elif _is_valid(capsule, _NAME):
        array, writable = _Managed.from_address(_pointer(capsule, _NAME)).array, True
    else:
        raise TypeError(f"{name} must give its memory by __dlpack__, as a capsule that is not used yet; got {capsule!r}. {_MEND}")
    kind = _KINDS.get(array.code)
    called = "bool" if kind == "bool" else f"{kind}{array.bits}" + f"x{array.lanes}" * (array.lanes != 1)
    dtype = dtypes.DTYPES.get(called) or dtypes.unknown(called, array.bits // 8)
    shape = tuple(array.shape[: array.ndim])
    strides = tuple(array.strides[: array.ndim]) if array.strides else None
    address = (array.data or 0) + array.byte_offset
    return Memory(address, dtype, shape, strides, writable, (producer, capsule), device)


class Exporter:
    """Offers row-major memory through `__dlpack__`, as an array that the consumer may keep; `owner` is kept as long."""

    _lent: dict[int, tuple[Any, ...]] = {}

    def __init__(self, address: int, dtype: DType, shape: tuple[int, ...], owner: object) -> None:
        self.address, self.dtype, self.shape, self.owner = address, dtype, shape, owner

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0

    def __dlpack__(self, **_: object) -> Any:
        rank, bits = len(self.shape), self.dtype.itemsize * 8
        shape = (ctypes.c_int64 * rank)(*self.shape)
        code = 4 if self.dtype.name == "bfloat16" else _CODE["i" if self.dtype.name.startswith("int") else self.dtype.kind]
        array = _Array(self.address, _CPU, 0, rank, code, bits, 1, ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), None, 0)
        managed = _Managed(array, None, _release)
        address = ctypes.addressof(managed)
        self._lent[address] = (managed, shape, self.owner)
        return _new(address, _NAME, None)


def _forget(address: int) -> None:
    Exporter._lent.pop(address, None)


_release = _Deleter(_forget)
