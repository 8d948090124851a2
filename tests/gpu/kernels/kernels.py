"""Run an operator's GPU kernels on arrays, and compare with the CPU bit for bit.

On a GPU the memory behind every array is copied there and back, with the layout it has; in the interpreter it is used where it lies.
"""

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from operands import POISON, raw

from anycann.bind import bind
from anycann.buffers import memory
from anycann.dtypes import by_numpy
from anycann.runtime import Operator, operator_of
from anycann.spec import Attr
from anycann.tensor import Tensor, address_of, from_array

DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda:0"
GUARD = 256


class Mirror:
    """The memory that an array is a view of, on the device."""

    def __init__(self, array: Any) -> None:
        root = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        self.low, self.size = (np.lib.array_utils.byte_bounds(root)[0], root.nbytes) if root.size else (address_of(array), 0)
        self.start = address_of(array)
        if DEVICE != "cpu":
            import torch

            self.copy = torch.from_numpy(memory(self.low, (self.size,), "|u1").copy()).to(DEVICE)
            self.start += self.copy.data_ptr() - self.low

    def back(self) -> None:
        if DEVICE != "cpu":
            host = self.copy.cpu().numpy()
            ctypes.memmove(self.low, address_of(host), self.size)


def _operator(function: Callable[..., Any]) -> Operator:
    found = operator_of(function)
    assert found is not None
    return found


def workspace(size: int) -> tuple[Any, int]:
    """Poisoned memory, guarded on both sides."""
    room = np.full(size + 2 * GUARD + 64, POISON, np.uint8)
    if DEVICE == "cpu":
        return room, -(-(address_of(room) + GUARD) // 64) * 64
    import torch

    room = torch.from_numpy(room).to(DEVICE)
    return room, -(-(room.data_ptr() + GUARD) // 64) * 64


def run(function: Callable[..., Any], values: Sequence[Any], outs: Sequence[Any]) -> None:
    """Call the GPU kernels of an operator with the arguments of its Python function, into given arrays."""
    operator = _operator(function)
    spec = operator.spec
    given = [param for param in spec.params if isinstance(param, Attr) or not param.output]
    pairs = [*zip(given, values, strict=True), *zip(spec.outputs, outs, strict=True)]
    attrs = {param.name: param.convert(value, param.python, friendly=True) for param, value in pairs if isinstance(param, Attr)}
    arrays = {param.name: value for param, value in pairs if not isinstance(param, Attr) and value is not None}
    mirrors = {id(array): Mirror(array) for array in arrays.values()}
    tensors: dict[str, Tensor | None] = {param.name: None for param in spec.tensors}
    for name, array in arrays.items():
        host = from_array(array, name)
        assert by_numpy(array.dtype) is not None
        tensors[name] = Tensor(mirrors[id(array)].start, host.dtype, host.shape, host.strides, device=DEVICE)
    plan = operator.plan(bind(spec, tensors, attrs, api="test", superset=True), backend="gpu")
    room, start = workspace(plan.workspace_size)
    before = room.copy() if DEVICE == "cpu" else room.clone()
    plan.run([0 if tensor is None else tensor.start for tensor in (tensors[param.name] for param in spec.tensors)], start)
    first = start - (address_of(room) if DEVICE == "cpu" else room.data_ptr())
    assert bool((room[:first] == before[:first]).all()), "memory before the workspace was written"
    end = first + plan.workspace_size
    assert bool((room[end:] == before[end:]).all()), "memory behind the workspace was written"
    for array in outs:
        if array is not None:
            mirrors[id(array)].back()


def compare(function: Callable[..., Any], values: Sequence[Any], outs: Sequence[Any], what: object = "") -> None:
    """The results of the GPU are those of the CPU; outs are poisoned arrays, `Watched` ones, or None."""
    arrays = [getattr(out, "array", out) for out in outs]
    values = [np.asarray(value) if isinstance(value, np.generic) else value for value in values]
    run(function, values, arrays)
    expected = _operator(function).call(*values)
    got = [out.check() if hasattr(out, "check") else out for out in outs]
    for result, wanted in zip(got, expected if isinstance(expected, tuple) else (expected,), strict=True):
        assert (result is None) == (wanted is None), "an output that is not computed is None"
        if result is not None and raw(result) != raw(wanted):
            bits = np.dtype(f"u{result.dtype.itemsize}")
            differ = np.ascontiguousarray(result).view(bits) != np.ascontiguousarray(wanted).view(bits)
            where = tuple(int(i[0]) for i in np.nonzero(differ))
            raise AssertionError(
                f"{what}: {differ.sum()} of {differ.size} differ; first at {where}: {result[where]!r}, not {wanted[where]!r}"
            )


def poisoned(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array full of NaN."""
    return np.full(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize, POISON, np.uint8).view(dtype).reshape(shape)


def cancelling(shape: tuple[int, int], dtype: Any, seed: int) -> Any:
    """Rows of small numbers among large ones that cancel: their sums depend on the order of the additions."""
    generator, third = np.random.default_rng(seed), shape[1] // 3
    large = generator.standard_normal((shape[0], third)) * 2.0 ** generator.integers(30, 100, (shape[0], third))
    small = generator.standard_normal((shape[0], shape[1] - 2 * third))
    return generator.permuted(np.concatenate([large, -large, small], 1).astype(dtype), axis=1)
