"""What the bits of a tensor look like, and which of its entries name no place."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.buffers import memory
from anycann.plans import Plan
from anycann.spec import OpSpec, compiled
from anycann.tensor import Tensor

__all__ = ["bits_of", "float_bits", "integer_bits", "limit_of", "rows_read", "strays"]

Bits = NDArray[np.signedinteger[Any]]

SMALL = {2: 1 << 8, 4: 1 << 20, 8: 1 << 32}  # integers below are subnormal numbers, or nearly, to a float of that many bytes
FLOATS = {4: (np.float32,), 8: (np.float32, np.float64)}  # what integers of that many bytes may be the bits of
USUAL = {np.float32: 2.0**32, np.float64: 2.0**64}  # numbers up to it, and down to its inverse
FIRST = 4096  # elements that tell most tensors


def bits_of(place: Tensor) -> Bits:
    """The elements of a tensor at an address, as signed integers of their size; repeated ones once."""
    shape = tuple([1 if stride == 0 else count for count, stride in zip(place.shape, place.strides, strict=True)])
    return memory(place.address, shape, f"<i{place.dtype.itemsize}", place.byte_strides())


def integer_bits(bits: Bits) -> bool:
    """Whether elements of a float tensor are small integers, bit for bit, and not all 0 or -1."""
    small = SMALL.get(bits.itemsize, 0)
    first = bits.flat[:FIRST]
    if not ((first > -small) & (first < small)).all():
        return False
    return bool((bits > 0).any() and ((bits > -small) & (bits < small)).all())


def float_bits(bits: Bits) -> tuple[str, float] | None:
    """As which type of float the elements of an integer tensor that are not 0 are all numbers of usual size, and the first of those."""
    first = bits.flat[:FIRST]
    return _floats(bits[bits != 0]) if _floats(first[first != 0]) is not None or not first.any() else None


def _floats(used: Bits) -> tuple[str, float] | None:
    for kind in FLOATS.get(used.itemsize, ()) if used.size else ():
        values = used.view(kind)
        if values.size > used.size and not values[::2].any():
            continue  # halves of float64 numbers
        values = values[values != 0]
        with np.errstate(invalid="ignore"):
            sizes = np.abs(values)
            if ((sizes >= 1 / USUAL[kind]) & (sizes <= USUAL[kind])).all():
                return np.dtype(kind).name, float(values[0])
    return None


def limit_of(plan: Plan, place: int) -> int | None:
    """The number that entries of an index tensor must be below; None for other tensors, and where sizes it depends on are missing."""
    below = plan.spec.tensors[place].below
    sizes: dict[str, Any] = {"max": max, "min": min}
    for param, layout, absent in zip(plan.spec.tensors, plan.layouts, plan.absent or (False,) * len(plan.layouts), strict=True):
        pattern = next((p for p in param.patterns if len(p) == len(layout.shape) and not any(axis.startswith("*") for axis in p)), ())
        sizes |= {} if absent else dict(zip(pattern, layout.shape, strict=False))
    if not below or any(name not in sizes for name in compiled(below).co_names):
        return None
    return int(eval(compiled(below), {"__builtins__": {}}, sizes))


def rows_read(plan: Plan, place: int, addresses: Sequence[int]) -> tuple[Bits, str] | None:
    """The rows of an input that are read, and the name of the index tensor that names them; None where all are."""
    params, layout = plan.spec.tensors, plan.layouts[place]
    if any(absent and param.name == params[place].needed for param, absent in zip(params, plan.absent, strict=False)):
        return np.empty(0, np.int64), ""  # only its shape matters
    index = _index_of(plan.spec, place)
    if index is None:
        return None
    named = bits_of(plan.layouts[index].at(addresses[index]))
    return named[(named >= 0) & (named < layout.shape[0])], params[index].name


def _index_of(spec: OpSpec, place: int) -> int | None:
    """The index tensor whose entries are below the number of rows that an input has."""
    rows = {pattern[0] for pattern in spec.tensors[place].patterns if len(pattern) > 1}
    for index, param in enumerate(spec.tensors):
        names = {*compiled(param.below).co_names} if param.below else set()
        for let in spec.lets:
            if let.axis in names:
                names |= {*compiled(let.expression).co_names}
        if rows & names:
            return index
    return None


def strays(bits: Bits, limit: int) -> tuple[int, int, Bits]:
    """Entries outside [0, limit): how many, the first one's number, and all of them."""
    wrong = (bits < 0) | (bits >= limit)
    found = bits[wrong]
    return math.prod(found.shape), int(np.argmax(wrong)) if found.size else 0, found
