"""Launching kernels: NumPy arrays become global memory, dicts become tiling structs, findings become exceptions."""

import ctypes
import operator
import os
from collections.abc import Mapping, Sequence
from functools import cache
from math import isinf
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from anycann.ascendc.devices import Device
from anycann.ascendc.report import KernelError, parse_reports
from anycann.ascendc.sources import KernelSignature
from anycann.ascendc.tiling.structs import Struct, TilingData
from anycann.ascendc.trace import RunSummary, summary_of

__all__ = ["Kernel", "Launch", "load_kernels"]


class _Parameter(ctypes.Structure):
    _fields_ = (("type", ctypes.c_char_p), ("size", ctypes.c_int64))


class _KernelEntry(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("parameters", ctypes.POINTER(_Parameter)), ("count", ctypes.c_int64))


class _Region(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("bytes", ctypes.c_int64), ("name", ctypes.c_char_p), ("writable", ctypes.c_int32))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("cores", ctypes.c_int64),
        ("ub_bytes", ctypes.c_int64),
        ("ub_reserved", ctypes.c_int64),
        ("event_ids", ctypes.c_int64),
        ("tiling_key", ctypes.c_uint64),
        ("check", ctypes.c_int32),
        ("trace", ctypes.c_int32),
        ("timeout", ctypes.c_double),
        ("regions", ctypes.POINTER(_Region)),
        ("region_count", ctypes.c_int64),
    )


@cache
def _core(library: Path) -> ctypes.CDLL:
    core = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    core.anycann_ascendc_run.restype = ctypes.c_void_p
    core.anycann_ascendc_run.argtypes = (ctypes.POINTER(_Launch),)
    for function in (core.anycann_ascendc_findings, core.anycann_ascendc_text, core.anycann_ascendc_trace):
        function.restype, function.argtypes = ctypes.c_char_p, (ctypes.c_void_p,)
    core.anycann_ascendc_free.argtypes = (ctypes.c_void_p,)
    return core


_POINTERS: dict[str, np.dtype[Any]] = {
    "*half": np.dtype(np.float16),
    "*bfloat16_t": np.dtype(ml_dtypes.bfloat16),
    "*float": np.dtype(np.float32),
    "*double": np.dtype(np.float64),
    **{f"*{name}_t": np.dtype(name) for name in ("int8", "int16", "int32", "int64", "uint16", "uint32", "uint64")},
}
_NUMBERS: dict[tuple[str, int], np.dtype[Any]] = {
    ("=bool", 1): np.dtype(np.bool_),
    ("=half", 2): np.dtype(np.float16),
    ("=bfloat16_t", 2): np.dtype(ml_dtypes.bfloat16),
    ("=float", 4): np.dtype(np.float32),
    ("=double", 8): np.dtype(np.float64),
    **{(f"={kind}", size): np.dtype(f"{kind}{size * 8}") for kind in ("int", "uint") for size in (1, 2, 4, 8)},
}

_LONGEST = 1e9  # seconds, thirty years: what is longer is no limit, and clocks count no further than ten times that

# Arguments of kernels that were left running after their time limit: their memory must stay.
_abandoned: list[object] = []


class Kernel:
    """A kernel of a module; kernel[blocks] is a launch of that many blocks."""

    def __init__(
        self, name: str, entry: _KernelEntry, names: Sequence[str], library: Path, tiling: Struct | None, device: Device, check: bool
    ) -> None:
        self.name, self.device = name, device
        self.parameters = tuple(names)
        self._call = entry.call
        self._types = tuple((entry.parameters[i].type.decode(), entry.parameters[i].size) for i in range(entry.count))
        self._library, self._tiling, self._check = library, tiling, check

    def __repr__(self) -> str:
        return f"<Ascend C kernel {self.name}({', '.join(self.parameters)})>"

    def __getitem__(self, blocks: int) -> "Launch":
        try:
            blocks = operator.index(blocks)
        except TypeError:
            raise TypeError(f"{self.name}[blocks]: the number of blocks must be an int; got {type(blocks).__name__}") from None
        if not 1 <= blocks <= 65535:
            raise ValueError(f"{self.name}[blocks]: the number of blocks must be 1 to 65535; got {blocks}")
        return Launch(self, blocks)


class Launch:
    """A kernel and its number of blocks, to be called with the kernel's arguments."""

    def __init__(self, kernel: Kernel, blocks: int) -> None:
        self.kernel, self.blocks = kernel, blocks

    def __call__(
        self,
        *arguments: Any,
        tiling_key: int = 0,
        cores: int | None = None,
        trace: str | os.PathLike[str] | None = None,
        timeout: float = 60.0,
    ) -> RunSummary:
        """Run the kernel on NumPy arrays, in place, and wait for it.

        Pointers take C-contiguous arrays (bfloat16 as ml_dtypes.bfloat16), None for null, and a dict or TilingData for the tiling; values
        take numbers. tiling_key is what TILING_KEY_IS compares with; cores how many blocks run at a time (default: the product's).
        trace writes the timeline to a file in Chrome's trace format; timeout is in seconds, infinity for none.

        Raises KernelError with every mistake that the checker found; outputs are then not to be used.
        """
        kernel = self.kernel
        if len(arguments) != len(kernel.parameters):
            raise TypeError(
                f"{kernel.name} takes {len(kernel.parameters)} arguments ({', '.join(kernel.parameters)}); got {len(arguments)}"
            )
        if trace is not None and not kernel._check:
            raise ValueError("a trace needs a module that was built with check=True")
        regions: list[_Region] = []
        holders = [kernel_argument(kernel, i, value, regions) for i, value in enumerate(arguments)]
        slots = (ctypes.c_void_p * max(len(holders), 1))(*(ctypes.addressof(holder) for holder in holders))
        region_array = (_Region * max(len(regions), 1))(*regions)
        device = kernel.device
        launch = _Launch(
            kernel=kernel.name.encode(),
            call=kernel._call,
            context=ctypes.addressof(slots),
            blocks=self.blocks,
            cores=_whole("cores", device.cores if cores is None else cores, 1, 1024),
            ub_bytes=device.ub_bytes,
            ub_reserved=device.reserved,
            event_ids=device.event_ids,
            tiling_key=_whole("tiling_key", tiling_key, 0, 2**64 - 1),
            check=kernel._check,
            trace=trace is not None,
            timeout=_seconds(timeout),
            regions=region_array,
            region_count=len(regions),
        )
        return _finish(kernel, launch, trace, keep=(arguments, holders, slots, region_array))


def _whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int; got {type(value).__name__}") from None
    if not least <= number <= most:
        raise ValueError(f"{name} must be {least} to {most}; got {number}")
    return number


def _seconds(timeout: Any) -> float:
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float, np.integer, np.floating)):
        raise TypeError(f"timeout must be a number of seconds; got {type(timeout).__name__}")
    if not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds; got {timeout}")
    return float(min(timeout, _LONGEST))


def _finish(kernel: Kernel, launch: _Launch, trace: str | os.PathLike[str] | None, keep: object) -> RunSummary:
    core = _core(kernel._library)
    handle = core.anycann_ascendc_run(ctypes.byref(launch))
    try:
        reports, summary, left_running = parse_reports(core.anycann_ascendc_findings(handle).decode())
        text = core.anycann_ascendc_text(handle).decode()
        if trace is not None:
            Path(trace).write_bytes(core.anycann_ascendc_trace(handle))
    finally:
        core.anycann_ascendc_free(handle)
    if left_running:
        _abandoned.append(keep)
    if reports:
        raise KernelError(text, reports)
    return summary_of(kernel.name, summary)


def kernel_argument(kernel: Kernel, i: int, value: Any, regions: list[_Region]) -> Any:
    """A ctypes object that holds what parameter i receives; its memory, if any, joins the regions."""
    kind, size = kernel._types[i]
    name = f"{kernel.name}: {kernel.parameters[i]}"
    if not kind.startswith("*"):
        return _value(kernel, name, kind, size, value)
    if value is None:
        return ctypes.c_void_p(None)
    if isinstance(value, (Mapping, bytes)):
        data = _struct_bytes(kernel, name, value)
        buffer = ctypes.create_string_buffer(data, len(data))
        regions.append(_Region(ctypes.addressof(buffer), len(data), kernel.parameters[i].encode(), 0))
        holder = ctypes.c_void_p(ctypes.addressof(buffer))
        holder._anycann_keep = buffer  # type: ignore[attr-defined]
        return holder
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{name} takes a NumPy array, a tiling (dict or TilingData) or None; got {type(value).__name__}")
    _check_plain(name, value.dtype)
    if not value.flags.c_contiguous:
        raise ValueError(f"{name} must be a C-contiguous array: global memory has no strides")
    if kind in _POINTERS and value.dtype != _POINTERS[kind]:
        raise TypeError(f"{name} is a pointer to {kind[1:]} and takes an array of {_POINTERS[kind]}; got {value.dtype}")
    regions.append(_Region(value.ctypes.data, value.nbytes, kernel.parameters[i].encode(), value.flags.writeable))
    return ctypes.c_void_p(value.ctypes.data)


def _check_plain(name: str, dtype: np.dtype[Any]) -> None:
    if dtype.hasobject or not dtype.isnative:
        raise TypeError(f"{name} takes plain data in this machine's byte order, as a kernel reads it; got an array of {dtype}")


def _struct_bytes(kernel: Kernel, name: str, value: Mapping[str, Any] | bytes) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, TilingData):
        if kernel._tiling is not None and list(kernel._tiling.leaves()) != list(value.layout.leaves()):
            raise ValueError(
                f"{name} takes a {kernel._tiling.name} ({', '.join(kernel._tiling.offsets)}); "
                f"got a {value.layout.name} of another layout ({', '.join(value.layout.offsets)})"
            )
        return value.to_bytes()
    if kernel._tiling is None:
        raise ValueError(f"{name} got a dict, but the tiling struct is not known: describe it in ascendc.build(..., tiling=...)")
    return kernel._tiling.pack(value)


def _value(kernel: Kernel, name: str, kind: str, size: int, value: Any) -> Any:
    if kind == "=struct":
        record = isinstance(value, np.void) or (isinstance(value, np.ndarray) and value.dtype.names is not None and value.size == 1)
        if not record and not isinstance(value, (Mapping, bytes)):
            raise TypeError(f"{name} takes a struct: a dict of its fields, a record of NumPy or bytes; got {type(value).__name__}")
        if record:
            _check_plain(name, value.dtype)
        if isinstance(value, TilingData):
            value = value.to_bytes()  # of this parameter's struct, not of the one that GET_TILING_DATA reads
        data = value.tobytes() if record else _struct_bytes(kernel, name, value)
        if len(data) != size:
            raise ValueError(f"{name} is a struct of {size} bytes; got {len(data)}")
    else:
        dtype = _NUMBERS[kind, size]
        if not _is_number(value):
            raise TypeError(f"{name} takes a number; got {type(value).__name__}")
        if not (_fits_integer(value, dtype) if dtype.kind in "iu" else _fits_float(value, dtype)):
            raise ValueError(f"{name} is a {dtype} and cannot hold {value!r}")
        data = np.asarray(value).astype(dtype).tobytes()
    return ctypes.create_string_buffer(data, size)


def _is_number(value: Any) -> bool:
    if value is None or isinstance(value, (str, bytes, Mapping, complex, np.complexfloating)) or np.ndim(value) != 0:
        return False
    try:
        float(value)
    except OverflowError:
        return True  # an int that no float holds
    except (TypeError, ValueError):
        return False
    return True


def _fits_integer(value: Any, dtype: np.dtype[Any]) -> bool:
    try:
        whole = int(value)
    except (OverflowError, ValueError):  # infinity, NaN
        return False
    return bool(np.iinfo(dtype).min <= whole <= np.iinfo(dtype).max and whole == value)


def _fits_float(value: Any, dtype: np.dtype[Any]) -> bool:
    """Whether the value is not too large for the type; infinity is one of its values."""
    try:
        number = float(value)
    except OverflowError:
        return dtype.kind == "b"
    with np.errstate(over="ignore"):
        return dtype.kind == "b" or isinf(number) or not isinf(np.asarray(number).astype(dtype))


def load_kernels(
    library: Path, made: Path, instances: Sequence[tuple[str, KernelSignature]], tiling: Struct | None, device: Device, check: bool
) -> dict[str, Kernel]:
    """The kernels of a compiled file."""
    _core(library)
    loaded = ctypes.CDLL(str(made))
    table = (_KernelEntry * len(instances)).in_dll(loaded, "anycann_kernels")
    return {
        name: Kernel(name, entry, _names(signature, entry.count), library, tiling, device, check)
        for (name, signature), entry in zip(instances, table, strict=True)
    }


def _names(signature: KernelSignature, count: int) -> Sequence[str]:
    """The names of a kernel's parameters. The compiler knows how many there are: a pack stands once in the text and for any number."""
    return signature.parameters if len(signature.parameters) == count else [f"argument{i}" for i in range(count)]
