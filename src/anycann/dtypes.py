"""The data types of the interface: names, sizes, the ids of other systems, and which type two of them promote to."""

from typing import NamedTuple

import ml_dtypes
import numpy as np

__all__ = ["DTYPES", "FORMATS", "DType", "by_acl", "by_name", "by_numpy", "castable", "promote", "to_numpy", "unknown"]


class DType(NamedTuple):
    """One data type. `kind` is b(ool), i(nteger), u(nsigned that promotes with itself only), f(loat), c(omplex) or - (neither)."""

    name: str  # NumPy's and torch's name
    acl: int  # aclDataType
    acl_name: str  # without the prefix ACL_
    itemsize: int
    kind: str
    rank: int  # order within the kind

    def __str__(self) -> str:
        return self.name


DTYPES: dict[str, DType] = {
    row[0]: DType(*row)
    for row in (
        ("float32", 0, "FLOAT", 4, "f", 2),
        ("float16", 1, "FLOAT16", 2, "f", 1),
        ("int8", 2, "INT8", 1, "i", 1),
        ("int32", 3, "INT32", 4, "i", 3),
        ("uint8", 4, "UINT8", 1, "i", 0),
        ("int16", 6, "INT16", 2, "i", 2),
        ("uint16", 7, "UINT16", 2, "u", 0),
        ("uint32", 8, "UINT32", 4, "u", 0),
        ("int64", 9, "INT64", 8, "i", 4),
        ("uint64", 10, "UINT64", 8, "u", 0),
        ("float64", 11, "DOUBLE", 8, "f", 3),
        ("bool", 12, "BOOL", 1, "b", 0),
        ("complex64", 16, "COMPLEX64", 8, "c", 2),
        ("complex128", 17, "COMPLEX128", 16, "c", 3),
        ("bfloat16", 27, "BF16", 2, "f", 1),
        ("int4", 29, "INT4", 1, "-", 0),
        ("uint1", 30, "UINT1", 1, "-", 0),
        ("complex32", 33, "COMPLEX32", 4, "c", 1),
        ("float8_e5m2", 35, "FLOAT8_E5M2", 1, "-", 0),
        ("float8_e4m3fn", 36, "FLOAT8_E4M3FN", 1, "-", 0),
    )
}

FORMATS: dict[str, int] = {
    "UNDEFINED": -1, "NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "HWCN": 16,
    "NDHWC": 27, "FRACTAL_NZ": 29, "NCDHW": 30, "NCL": 47,
}  # fmt: skip

_BY_ACL = {dtype.acl: dtype for dtype in DTYPES.values()}
_SPECIAL = {"bfloat16": ml_dtypes.bfloat16, "float8_e5m2": ml_dtypes.float8_e5m2, "float8_e4m3fn": ml_dtypes.float8_e4m3fn}
_NOT_IN_NUMPY = ("int4", "uint1", "complex32")
_TO_NUMPY: "dict[str, np.dtype[np.generic]]" = {name: np.dtype(_SPECIAL.get(name, name)) for name in DTYPES if name not in _NOT_IN_NUMPY}
_BY_NUMPY = {dtype: DTYPES[name] for name, dtype in _TO_NUMPY.items()}


def by_name(name: str) -> DType:
    """The type of a NumPy name ("float32") or of an interface name ("ACL_FLOAT", "FLOAT"); KeyError if there is none."""
    if name in DTYPES:
        return DTYPES[name]
    plain = name.removeprefix("ACL_")
    return next((dtype for dtype in DTYPES.values() if dtype.acl_name == plain), None) or DTYPES[name]


def by_acl(value: int) -> DType | None:
    """The type of an aclDataType value."""
    return _BY_ACL.get(value)


def by_numpy(dtype: "np.dtype[np.generic]") -> DType | None:
    """The type of a NumPy dtype, ml_dtypes included; None for types and byte orders that the interface does not have."""
    return _BY_NUMPY.get(dtype)


def unknown(name: str, itemsize: int) -> DType:
    """A type of another library that the interface does not have: every operator refuses it by its name."""
    return DType(name, -1, "UNDEFINED", max(itemsize, 1), "-", 0)


def to_numpy(dtype: DType) -> "np.dtype[np.generic]":
    """The NumPy dtype of a type; KeyError for those that NumPy lacks."""
    return _TO_NUMPY[dtype.name]


def promote(a: DType, b: DType) -> DType | None:
    """The type in which a and b meet, or None: symmetric; unsigned types above 8 bits meet only themselves."""
    if a == b:
        return a
    kinds = {a.kind, b.kind}
    if kinds & {"u", "-"}:
        return None
    low, high = sorted((a, b), key=lambda dtype: "bifc".index(dtype.kind))
    if low.kind == high.kind:
        if low.kind == "c" or ({a.name, b.name} != {"int8", "uint8"} and a.rank != b.rank):
            return max(a, b, key=lambda dtype: dtype.rank)
        return DTYPES["int16" if low.kind == "i" else "float32"]  # int8 with uint8; float16 with bfloat16
    if high.kind == "c" and low.kind == "f":
        rank = 2 if low.name == "bfloat16" else low.rank
        return next(dtype for dtype in DTYPES.values() if dtype.kind == "c" and dtype.rank == max(rank, high.rank))
    return high


def castable(source: DType, target: DType) -> bool:
    """Whether a result of type source may be stored as target: not complex to real, not floating to integer, not to bool."""
    if source == target:
        return True
    if "-" in (source.kind, target.kind) or target.kind == "b":
        return False
    if source.kind == "c":
        return target.kind == "c"
    return not (source.kind == "f" and target.kind in "iu")
