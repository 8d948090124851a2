"""Tensors, scalars, arrays and lists behind handles, as aclCreateTensor and its kin make them."""

import ctypes
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anycann import dtypes
from anycann.device.backing import BACKING
from anycann.device.calls import call, need
from anycann.device.handles import Table
from anycann.device.memory import DEVICE
from anycann.errors import AclnnError
from anycann.tensor import Tensor, contiguous_strides

__all__ = ["ARRAYS", "TENSORS", "DeviceTensor"]

NULL, INVALID = 161001, 161002
MAX_DIMS = 64


class DeviceTensor:
    """A tensor over device memory; `checked` is the state of the memory in which its bytes were last found."""

    __slots__ = ("checked", "described", "form", "high", "lead", "low", "start")

    def __init__(self, described: Tensor) -> None:
        self.describe(described)

    def describe(self, described: Tensor) -> None:
        self.described = described.settled()
        self.form, self.lead, self.start = described.form, described.lead, described.start
        self.low, self.high = described.bytes_touched()
        self.checked = -1

    def in_memory(self) -> bool:
        """Whether the bytes are live device memory, as far as there are any."""
        return self.checked == DEVICE.generation or self.for_phase_one() is self.described

    def for_phase_one(self) -> Tensor:
        """The descriptor; where its bytes are no live memory, with the memory that is there, for the operator's checks to refuse."""
        generation = DEVICE.generation
        if self.checked == generation or self.described.address == 0 or self.low >= self.high:
            return self.described
        block = DEVICE.find(self.low)
        if block is not None and block.address <= self.low and self.high <= block.end:
            self.checked = generation
            return self.described
        return dataclasses.replace(self.described, memory=(0, 0) if block is None else (block.address, block.end))


TENSORS: Table[DeviceTensor] = Table("aclTensor", INVALID)
SCALARS: Table[Any] = Table("aclScalar", INVALID)
INT_ARRAYS: Table[tuple[int, ...]] = Table("aclIntArray", INVALID)
FLOAT_ARRAYS: Table[tuple[float, ...]] = Table("aclFloatArray", INVALID)
BOOL_ARRAYS: Table[tuple[bool, ...]] = Table("aclBoolArray", INVALID)
TENSOR_LISTS: Table[tuple[int, ...]] = Table("aclTensorList", INVALID)
SCALAR_LISTS: Table[tuple[int, ...]] = Table("aclScalarList", INVALID)
BUFFERS: Table[tuple[int, int]] = Table("aclDataBuffer", 100000)
ARRAYS = {table.kind: table for table in (INT_ARRAYS, FLOAT_ARRAYS, BOOL_ARRAYS)}


def _sizes(sizes: Sequence[int] | None, name: str, api: str) -> tuple[int, ...]:
    if sizes is None:
        raise AclnnError(NULL, api, f"{name} must not be a null pointer when {name}Num is positive. Pass the sizes.")
    if len(sizes) > MAX_DIMS or any(size < 0 for size in sizes):
        got = f"{len(sizes)} of them" if len(sizes) > MAX_DIMS else tuple(sizes)
        raise AclnnError(INVALID, api, f"{name} must be at most {MAX_DIMS} sizes of at least 0; got {got}. Change them.")
    return tuple(sizes)


def _contiguous(shape: tuple[int, ...], api: str) -> tuple[int, ...]:
    """The strides that null ones stand for; 64-bit integers like those that a program gives."""
    strides = contiguous_strides(shape)
    if strides and strides[0] >= 2**63:
        raise AclnnError(INVALID, api, f"viewDims must have contiguous strides below 2**63; got {shape}. Pass strides, or smaller sizes.")
    return strides


def _described(
    api: str,
    view: Sequence[int] | None,
    kind: int,
    strides: Sequence[int] | None,
    offset: int,
    layout: int,
    storage: Sequence[int] | None,
    data: int,
) -> Tensor:
    dtype = dtypes.by_acl(kind) or dtypes.unknown(f"aclDataType {kind}", 1)
    shape = _sizes(view, "viewDims", api)
    steps = _contiguous(shape, api) if strides is None else tuple(strides)
    return Tensor(data, dtype, shape, steps, offset, _sizes(storage, "storageDims", api), layout, device=BACKING.device)


@call
def aclCreateTensor(
    viewDims: Sequence[int] | None,
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    tensorData: int,
) -> int:
    described = _described("aclCreateTensor", viewDims, dataType, stride, offset, format, storageDims, tensorData)
    return TENSORS.add(DeviceTensor(described))


def _tensor(tensor: int, api: str) -> DeviceTensor:
    need(tensor, "tensor", api, NULL)
    return TENSORS.find(tensor, "tensor", api)


@call
def aclInitTensor(
    tensor: int,
    viewDims: Sequence[int] | None,
    dataType: int,
    stride: Sequence[int] | None,
    offset: int,
    format: int,
    storageDims: Sequence[int] | None,
    tensorData: int,
) -> None:
    found = _tensor(tensor, "aclInitTensor")
    found.describe(_described("aclInitTensor", viewDims, dataType, stride, offset, format, storageDims, tensorData))


@call
def aclSetRawTensorAddr(tensor: int, addr: int) -> None:
    found = _tensor(tensor, "aclSetRawTensorAddr")
    found.describe(dataclasses.replace(found.described, address=addr))


@call
def aclGetRawTensorAddr(tensor: int) -> int:
    return _tensor(tensor, "aclGetRawTensorAddr").described.address


@call
def aclGetViewShape(tensor: int) -> tuple[tuple[int, ...], int]:
    shape = _tensor(tensor, "aclGetViewShape").described.shape
    return shape, len(shape)


@call
def aclGetStorageShape(tensor: int) -> tuple[tuple[int, ...], int]:
    storage = _tensor(tensor, "aclGetStorageShape").described.storage or ()
    return storage, len(storage)


@call
def aclGetViewStrides(tensor: int) -> tuple[tuple[int, ...], int]:
    strides = _tensor(tensor, "aclGetViewStrides").described.strides
    return strides, len(strides)


@call
def aclGetViewOffset(tensor: int) -> int:
    return _tensor(tensor, "aclGetViewOffset").described.offset


@call
def aclGetFormat(tensor: int) -> int:
    return _tensor(tensor, "aclGetFormat").described.format


@call
def aclGetDataType(tensor: int) -> int:
    dtype = _tensor(tensor, "aclGetDataType").described.dtype
    return dtype.acl if dtype.acl >= 0 or not dtype.name.startswith("aclDataType ") else int(dtype.name.split()[1])


@call
def aclCreateScalar(value: int, dataType: int) -> int:
    api = "aclCreateScalar"
    need(value, "value", api, NULL)
    dtype = dtypes.by_acl(dataType)
    if dtype is None:
        raise AclnnError(INVALID, api, f"dataType must be the aclDataType of a number; got {dataType}. Use ACL_FLOAT, for example.")
    return SCALARS.add((dtype, ctypes.string_at(value, dtype.itemsize)))


def _create_array(table: Table[Any], value: Sequence[Any] | None, api: str) -> int:
    if value is None:
        raise AclnnError(NULL, api, "value must not be a null pointer when size is positive. Pass the values.")
    return table.add(tuple(value))


@call
def aclCreateIntArray(value: Sequence[int] | None) -> int:
    return _create_array(INT_ARRAYS, value, "aclCreateIntArray")


@call
def aclCreateFloatArray(value: Sequence[float] | None) -> int:
    return _create_array(FLOAT_ARRAYS, value, "aclCreateFloatArray")


@call
def aclCreateBoolArray(value: Sequence[bool] | None) -> int:
    return _create_array(BOOL_ARRAYS, value, "aclCreateBoolArray")


def _size(table: Table[Any], handle: int, api: str, name: str = "array") -> int:
    need(handle, name, api, NULL)
    return len(table.find(handle, name, api))


@call
def aclGetIntArraySize(array: int) -> int:
    return _size(INT_ARRAYS, array, "aclGetIntArraySize")


@call
def aclGetFloatArraySize(array: int) -> int:
    return _size(FLOAT_ARRAYS, array, "aclGetFloatArraySize")


@call
def aclGetBoolArraySize(array: int) -> int:
    return _size(BOOL_ARRAYS, array, "aclGetBoolArraySize")


@call
def aclGetTensorListSize(tensorList: int) -> int:
    return _size(TENSOR_LISTS, tensorList, "aclGetTensorListSize", "tensorList")


@call
def aclGetScalarListSize(scalarList: int) -> int:
    return _size(SCALAR_LISTS, scalarList, "aclGetScalarListSize", "scalarList")


def _create_list(table: Table[tuple[int, ...]], members: Table[Any], value: Sequence[int] | None, api: str) -> int:
    """A list owns its members; null ones are allowed."""
    if value is None:
        raise AclnnError(NULL, api, "value must not be a null pointer when size is positive. Pass the members.")
    for place, member in enumerate(value):
        if member:
            members.find(member, f"value[{place}]", api)
    return table.add(tuple(value))


@call
def aclCreateTensorList(value: Sequence[int] | None) -> int:
    return _create_list(TENSOR_LISTS, TENSORS, value, "aclCreateTensorList")


@call
def aclCreateScalarList(value: Sequence[int] | None) -> int:
    return _create_list(SCALAR_LISTS, SCALARS, value, "aclCreateScalarList")


def _destroy(table: Table[Any], handle: int, name: str, api: str) -> Any:
    """Forget an object; a null pointer is none."""
    return table.remove(handle, name, api) if handle else ()


@call
def aclDestroyTensor(tensor: int) -> None:
    _destroy(TENSORS, tensor, "tensor", "aclDestroyTensor")


@call
def aclDestroyScalar(scalar: int) -> None:
    _destroy(SCALARS, scalar, "scalar", "aclDestroyScalar")


@call
def aclDestroyIntArray(array: int) -> None:
    _destroy(INT_ARRAYS, array, "array", "aclDestroyIntArray")


@call
def aclDestroyFloatArray(array: int) -> None:
    _destroy(FLOAT_ARRAYS, array, "array", "aclDestroyFloatArray")


@call
def aclDestroyBoolArray(array: int) -> None:
    _destroy(BOOL_ARRAYS, array, "array", "aclDestroyBoolArray")


@call
def aclDestroyTensorList(array: int) -> None:
    for member in _destroy(TENSOR_LISTS, array, "array", "aclDestroyTensorList"):
        TENSORS.living.pop(member, None)


@call
def aclDestroyScalarList(array: int) -> None:
    for member in _destroy(SCALAR_LISTS, array, "array", "aclDestroyScalarList"):
        SCALARS.living.pop(member, None)


@call
def aclDataTypeSize(dataType: int) -> int:
    return _SIZES.get(dataType, 0)


_SIZES = {dtype.acl: dtype.itemsize for dtype in dtypes.DTYPES.values()} | {34: 1, 37: 1}  # HIFLOAT8, FLOAT8_E8M0


@call
def aclFloat16ToFloat(value: int) -> float:
    """Bits to value, as the interface defines it: the largest exponent is not special."""
    exponent, fraction = value >> 10 & 0x1F, value & 0x3FF
    size = math.ldexp(fraction + 1024 * (exponent > 0), max(exponent, 1) - 25)
    return -size if value & 0x8000 else size


@call
def aclFloatToFloat16(value: float) -> int:
    """Value to bits, nearest even; what is too large becomes the largest number, NaN the positive one."""
    if math.isnan(value):
        return 0x7BFF
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).astype(np.float16).view(np.uint16))
    return bits - 1 if bits & 0x7FFF == 0x7C00 else bits


@call
def aclCreateDataBuffer(data: int, size: int) -> int:
    return BUFFERS.add((data, size))


def _buffer(handle: int, api: str) -> tuple[int, int]:
    need(handle, "dataBuffer", api)
    return BUFFERS.find(handle, "dataBuffer", api)


@call
def aclDestroyDataBuffer(dataBuffer: int) -> None:
    _buffer(dataBuffer, "aclDestroyDataBuffer")
    BUFFERS.remove(dataBuffer, "dataBuffer", "aclDestroyDataBuffer")


@call
def aclUpdateDataBuffer(dataBuffer: int, data: int, size: int) -> None:
    _buffer(dataBuffer, "aclUpdateDataBuffer")
    BUFFERS.living[dataBuffer] = (data, size)


@call
def aclGetDataBufferAddr(dataBuffer: int) -> int:
    return _buffer(dataBuffer, "aclGetDataBufferAddr")[0]


@call
def aclGetDataBufferSizeV2(dataBuffer: int) -> int:
    return _buffer(dataBuffer, "aclGetDataBufferSizeV2")[1]


@call
def aclGetDataBufferSize(dataBuffer: int) -> int:
    size = _buffer(dataBuffer, "aclGetDataBufferSize")[1]
    if size >= 2**32:
        rule = f"dataBuffer must be smaller than 2**32 bytes; got {size}. Use aclGetDataBufferSizeV2."
        raise AclnnError(100000, "aclGetDataBufferSize", rule)
    return size
