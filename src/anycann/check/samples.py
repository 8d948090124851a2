"""Inputs for a workload of a specification, the same for the same seed on every machine."""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann import dtypes
from anycann.products import Product
from anycann.spec import OpSpec, Tensor, Workload

__all__ = ["DISTRIBUTIONS", "arguments", "attributes", "inputs", "output_dtypes"]

Array = NDArray[Any]
Draw = Callable[[int], Array]

_CHUNK = 1 << 20  # elements drawn at a time
_EXPERTS = 64


def _normal(rng: np.random.Generator) -> Draw:
    return lambda count: rng.standard_normal(count, np.float32)


def _l0(rng: np.random.Generator) -> Draw:
    """S3, level L0: half of the tensors uniform in [-5, 5], half normal with mu in [-100, 100] and sigma in [1, 25]."""
    if rng.random() < 0.5:
        return lambda count: rng.uniform(-5, 5, count)
    mu, sigma = rng.uniform(-100, 100), rng.uniform(1, 25)
    return lambda count: rng.normal(mu, sigma, count)


DISTRIBUTIONS: dict[str, Callable[[np.random.Generator], Draw]] = {"normal": _normal, "L0": _l0}


def _floats(shape: tuple[int, ...], dtype: str, draw: Draw) -> Array:
    array: Array = np.empty(shape, dtypes.to_numpy(dtypes.by_name(dtype)))
    flat = array.reshape(-1)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        part[:] = draw(part.size)
    return array


def _tensor(param: Tensor, shape: tuple[int, ...], dtype: str, rng: np.random.Generator, distribution: str) -> Array:
    if param.values == "positive":
        return _floats(shape, dtype, lambda count: rng.uniform(0.5, 2, count))
    if param.values == "experts":
        return rng.integers(0, _EXPERTS, shape).astype(dtypes.to_numpy(dtypes.by_name(dtype)))
    if param.values == "permutation":
        order = rng.permutation(int(np.prod(shape)))
        return order.reshape(shape).astype(dtypes.to_numpy(dtypes.by_name(dtype)))
    return _floats(shape, dtype, DISTRIBUTIONS[distribution](rng))


def inputs(spec: OpSpec, workload: Workload, dtype: str, seed: int = 0, distribution: str = "normal") -> dict[str, Array]:
    """The input tensors of a workload by name, but for those that it leaves out; those that can be of `dtype` are.

    Every dtype gets the same numbers, rounded to it. Numbers depend on operator, workload, parameter and seed only.
    """
    arrays = {}
    for param in spec.inputs:
        if param.optional and param.name not in workload.shapes:
            continue
        listed = param.dtypes + param.superset
        key = zlib.crc32(f"{spec.name}/{workload.name}/{param.name}".encode())
        rng = np.random.default_rng([seed, key])
        arrays[param.name] = _tensor(param, workload.shapes[param.name], dtype if dtype in listed else listed[0], rng, distribution)
    return arrays


def attributes(spec: OpSpec, workload: Workload) -> dict[str, Any]:
    """The attributes of a workload by name, defaults filled in, converted to their C types."""
    return {attr.name: attr.convert(workload.attrs.get(attr.name, attr.default), attr.name, friendly=True) for attr in spec.attrs}


def arguments(spec: OpSpec, tensors: Mapping[str, Array], attrs: Mapping[str, Any]) -> list[Any]:
    """Inputs and attributes in the order of the prototype, as operators and their references take them; None for absent inputs."""
    values = {**{param.name: None for param in spec.inputs if param.optional}, **tensors, **attrs}
    return [values[param.name] for param in spec.params if param.name in values]


def output_dtypes(spec: OpSpec, product: Product, superset: bool = False) -> tuple[str, ...]:
    """The dtypes in which an operator can be checked: those of its first output on a product; `superset` adds the Python functions'."""
    return spec.dtypes(spec.outputs[0], product, superset)
