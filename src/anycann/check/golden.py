"""Golden values: an operator's reference in float64, evaluated in parts where the arrays are large.

Parts are slices along one axis that every output has, or failing that the first one. That the reference treats its slices independently
(or divides by their number, as a mean does), and that outputs without the axis do not depend on the slice, is not assumed but tried, on
two slices of the very inputs; if it does not, it is evaluated whole. A reference whose slices are not those of an axis has a function
`slices` beside it.
"""

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.axes import is_group
from anycann.bind import Call, bind, broadcast
from anycann.check.samples import arguments
from anycann.dtypes import DType
from anycann.runtime import Operator
from anycann.spec import Broadcast, OpSpec, Tensor, When, compiled
from anycann.tensor import Tensor as Described
from anycann.tensor import from_array

__all__ = ["Part", "described", "golden", "parts"]

Array = NDArray[Any]
Floats = NDArray[np.float64]
Index = tuple[Any, ...]

PART_ELEMENTS = 1 << 20  # of the largest tensor in a part


@dataclass(frozen=True)
class Part:
    """Golden values of a part of each output: `values[i]` belongs to `output[i][where[i]]`."""

    where: tuple[Index, ...]
    values: tuple[Floats, ...]


@dataclass(frozen=True)
class _Split:
    """An axis: its size, and its place in each tensor that has it, counted from the end (-1 is the last) or from the start (0)."""

    size: int
    places: Mapping[str, int]

    def index(self, name: str, piece: Any) -> Index:
        place = self.places.get(name)
        if place is None:
            return (...,)
        return (..., piece, *[slice(None)] * (-place - 1)) if place < 0 else (*[slice(None)] * place, piece)


def _place(axis: str, param: Tensor) -> int | None:
    """Where a named axis stands, counted from the end; None where it is not named or before any number of axes."""
    axes = param.axes
    if axis not in axes:
        return None
    place = axes.index(axis) - len(axes)
    return None if any(name.startswith("*") for name in axes[place:]) else place


def described(spec: OpSpec, tensors: Mapping[str, Described], attrs: Mapping[str, Any]) -> Call:
    """A call on inputs that are only described, with outputs that are, too."""
    product = next((product for product in spec.products if product.bf16), spec.products[0])
    return bind(spec, tensors, attrs, api=spec.python, product=product, superset=True, allocate=_described)


def _described(param: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Described:
    return Described(0, dtype, shape, strides)


def _is_broadcast(spec: OpSpec, param: Tensor, attrs: Mapping[str, Any]) -> bool:
    """Whether an output has the shape that inputs broadcast to, in a call with these attributes."""
    shape = param.shape
    if isinstance(shape, When):
        known = {attr.alias or attr.name: attrs[attr.name] for attr in spec.attrs}
        shape = shape.then if eval(compiled(shape.condition), spec.scope, known) else shape.otherwise
    return isinstance(shape, Broadcast)


def _splits(spec: OpSpec, inputs: Mapping[str, Array], attrs: Mapping[str, Any]) -> Iterator[_Split]:
    """The axes along which every output could be split; then those along which the first output could, without the others."""
    if all(_is_broadcast(spec, param, attrs) for param in spec.outputs):
        shape = broadcast([array.shape for array in inputs.values()]) or ()
        for end in sorted(range(-len(shape), 0), key=lambda end: (-shape[end], end)):
            sliced = [name for name, array in inputs.items() if array.ndim >= -end and array.shape[end] == shape[end]]
            yield _Split(shape[end], dict.fromkeys([*sliced, *(param.name for param in spec.outputs)], end))
        return
    first = {param.axes[0] for param in spec.outputs if param.axes}
    grouped = len(first) == 1 and all(param.axes for param in spec.outputs) and is_group(*first)
    if grouped and described(spec, {name: from_array(array, name) for name, array in inputs.items()}, attrs).axes[next(iter(first))]:
        places = {param.name: 0 for param in spec.tensors if first.issuperset(param.axes[:1])}
        yield _Split(next(array.shape[0] for name, array in inputs.items() if name in places), places)
    computed = {let.axis for let in spec.lets}  # no slices of inputs that know nothing of them
    found = []
    for axis in dict.fromkeys(axis for param in spec.outputs for axis in param.axes if axis not in computed):
        places = {param.name: place for param in spec.tensors if (place := _place(axis, param)) is not None}
        sizes = {array.shape[place] for name, array in inputs.items() if (place := places.get(name)) is not None}
        if len(sizes) == 1 and spec.outputs[0].name in places:
            found.append(_Split(sizes.pop(), places))
    yield from sorted(found, key=lambda split: not all(param.name in split.places for param in spec.outputs))


class _Reference:
    """A reference on chosen slices of its inputs."""

    def __init__(self, operator: Operator, inputs: Mapping[str, Array], attrs: Mapping[str, Any]) -> None:
        self.function, self.spec, self.inputs, self.attrs = operator.reference(), operator.spec, inputs, attrs

    def __call__(self, split: _Split | None, piece: Any) -> tuple[Floats, ...]:
        return self.of({name: array if split is None else array[split.index(name, piece)] for name, array in self.inputs.items()})

    def of(self, tensors: Mapping[str, Array]) -> tuple[Floats, ...]:
        """Its values for other inputs."""
        wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float64) for name, array in tensors.items()}
        result = self.function(*arguments(self.spec, wide, self.attrs))
        return result if isinstance(result, tuple) else (result,)

    def mean_power(self, split: _Split) -> int | None:
        """0 if slices are independent, 1 if values are divided by the number of slices, None for anything else or if zeros hide it."""
        both = self(split, slice(0, 2))
        if not all(np.any(np.isfinite(values) & (values != 0)) for values in both):
            return None
        alone = [self(split, slice(i, i + 1)) for i in (0, 1)]
        results = [*zip((split.places.get(param.name) for param in self.spec.outputs), both, *alone, strict=True)]
        if not all(np.array_equal(whole, part, equal_nan=True) for place, whole, *pair in results if place is None for part in pair):
            return None
        joined = [(np.concatenate(pair, axis=place), whole) for place, whole, *pair in results if place is not None]
        return next((p for p in (0, 1) if all(np.array_equal(a, b * 2**p, equal_nan=True) for a, b in joined)), None)


def parts(
    operator: Operator, inputs: Mapping[str, Array], attrs: Mapping[str, Any], sample: int | None = None, seed: int = 0
) -> Iterator[Part]:
    """Golden values of all outputs, part by part, in memory for about PART_ELEMENTS elements of each tensor.

    `inputs` and `attrs` by name. With `sample`, only of random slices that hold about so many elements of the largest tensor.
    """
    spec, reference = operator.spec, _Reference(operator, inputs, attrs)
    largest = max(array.size for array in inputs.values())
    if largest > PART_ELEMENTS or (sample is not None and sample < largest):
        known = getattr(sys.modules[reference.function.__module__], "slices", None)
        own = None if known is None else known(inputs)
        if own is not None:
            size, some = own
            for piece in _pieces(size, largest, sample, seed):
                tensors, where = some(piece)
                yield Part(where, reference.of(tensors))
            return
        for split in _splits(spec, inputs, attrs):
            power = reference.mean_power(split) if split.size > 1 else None
            if power is not None:
                yield from _slices(reference, split, power, _pieces(split.size, largest, sample, seed))
                return
    yield Part(tuple((...,) for _ in spec.outputs), reference(None, None))


def _pieces(size: int, largest: int, sample: int | None, seed: int) -> Sequence[NDArray[np.intp] | slice]:
    each = math.ceil(largest / size)
    step = max(1, PART_ELEMENTS // each)
    if sample is None or sample >= largest:
        return [slice(start, min(start + step, size)) for start in range(0, size, step)]
    chosen = np.sort(np.random.default_rng(seed).choice(size, max(1, sample // each), replace=False))
    return [chosen[start : start + step] for start in range(0, len(chosen), step)]


def _slices(reference: _Reference, split: _Split, power: int, pieces: Sequence[NDArray[np.intp] | slice]) -> Iterator[Part]:
    for piece in pieces:
        count = piece.stop - piece.start if isinstance(piece, slice) else len(piece)
        factor = (count / split.size) ** power
        values = reference(split, piece)
        where = tuple(split.index(param.name, piece) for param in reference.spec.outputs)
        sliced = [param.name in split.places for param in reference.spec.outputs]
        yield Part(where, tuple(value * factor if there and power else value for there, value in zip(sliced, values, strict=True)))


def golden(
    operator: Operator, inputs: Mapping[str, Array], attrs: Mapping[str, Any], shapes: Sequence[tuple[int, ...]]
) -> tuple[Floats, ...]:
    """Golden values of whole outputs of the given shapes, in float64."""
    results = tuple(np.empty(shape) for shape in shapes)
    for part in parts(operator, inputs, attrs):
        for result, where, value in zip(results, part.where, part.values, strict=True):
            result[where] = value
    return results
