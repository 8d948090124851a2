"""Rows on the GPU: operands whose last axes make one row each, and how a program goes through them.

The order of a row's sums, 16 lanes, leaves it 16 threads at most, each with a chain of float64 additions; so a program is one warp with
several rows, and a thread has 4 bytes of each step of 16 elements, or 16 where rows are short. Rows are read from memory once and then
again from the caches: there are no more programs than keep their rows there, and each takes one group of rows after the other.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import triton.language as tl

from anycann import cuda
from anycann.backends.gpu import Nest, cdiv, constant, jit, load, nest, offsets, wide
from anycann.tensor import Tensor

__all__ = [
    "LANES",
    "WARPS",
    "Rows",
    "at",
    "bits",
    "number",
    "numbered",
    "of_rows",
    "of_width",
    "parameter",
    "programs",
    "sum_lanes",
    "within",
]

LANES = tl.constexpr(16)
WARPS = 1
_SHORT = 512  # elements of a row of which a thread takes 16 bytes of a step
_STEPS = 32  # of longer rows whose loads are in flight together
_TILE = 2048  # bytes that a program writes at once
_NEAR = 1 << 18  # bytes of rows that the caches keep for each multiprocessor
_FEW, _MANY, _INTERPRETED = 2, 32, 2  # programs of a multiprocessor, and in the interpreter


class Rows(NamedTuple):
    """How a program goes through rows, by their width and the size of an element."""

    rows: int  # at once
    steps: int  # of 16 elements whose loads are in flight together
    columns: int  # of the tile that is written at once


def of_width(width: int, itemsize: int, short_steps: int) -> Rows:
    """`short_steps`: steps of a short row whose loads are in flight together, at most."""
    size, steps = (16, max(1, min(short_steps, cdiv(width, LANES.value)))) if width <= _SHORT else (4, _STEPS)
    rows = 32 * WARPS * size // itemsize // LANES.value
    return Rows(rows, steps, _TILE // itemsize // rows)


def programs(units: int, size: int, device: str) -> int:
    """How many programs share units that each read so many bytes more than once."""
    if device == "cpu":
        return min(units, _INTERPRETED)
    count: int = cuda.need("a tensor", device).cuda.get_device_properties(device).multi_processor_count
    return min(units, count * min(_MANY, max(_FEW, _NEAR // max(1, size))))


def of_rows(tensors: Sequence[Tensor], axes: int) -> Nest:
    """The loops over rows: all but the last `axes` axes of the first tensor."""
    split = len(tensors[0].shape) - axes
    return nest([_part(tensor, slice(split)) for tensor in tensors], tensors[0].shape[:split])


def within(tensors: Sequence[Tensor], axes: int) -> tuple[Nest, bool]:
    """The loops inside a row, the last `axes` axes of the tensors, and whether its offsets need 64 bits."""
    parts = [_part(tensor, slice(len(tensor.shape) - axes, None)) for tensor in tensors]
    return nest(parts, parts[0].shape), wide(parts, parts[0].numel, _TILE)


def _part(tensor: Tensor, axes: slice) -> Tensor:
    return dataclasses.replace(tensor, shape=tensor.shape[axes], strides=tensor.strides[axes])


def bits(x: float) -> int:
    """A number for a kernel, which gets it back by `number`: Triton would pass float32."""
    return int(np.float64(x).view(np.int64))


@jit
def number(bits: tl.tensor) -> tl.tensor:
    """float64 from its bits."""
    return tl.cast(bits, tl.int64).to(tl.float64, bitcast=True)


@jit
def numbered(i: tl.tensor, N: tl.constexpr, WIDE: tl.constexpr) -> tl.tensor:
    """i, i + 1, …, N of them."""
    return tl.cast(i, tl.int64 if WIDE else tl.int32) + tl.arange(0, N)


@jit
def at(o_row: tl.tensor, columns: tl.tensor, sizes: tl.tuple, strides: tl.tuple, LOOPS: tl.constexpr) -> tl.tensor:
    """Where elements of rows lie, from where the rows do."""
    return o_row[:, None] + offsets(columns, sizes, strides, LOOPS)[None, :]


@jit
def sum_lanes(x: tl.tensor) -> tl.tensor:
    """The sums of the lanes of rows [R, LANES], none of them -0.0, in their fixed order: lane k + lane k + 8, then k + (k + 4), …"""
    for _ in tl.static_range(4):
        x = tl.sum(tl.reshape(x, [x.shape[0], 2, x.shape[1] // 2]), 1)
    return tl.reshape(x, [x.shape[0]])


@jit
def parameter(p: tl.tensor, o: tl.tensor, m: tl.tensor, T: tl.constexpr, default: tl.constexpr) -> tl.tensor:
    """A row of a parameter in float32; the default where there is none."""
    return constant([1, o.shape[0]], default, tl.float32) if T is None else load(p, o, m, T, "")[None, :]
