"""Checking an operator: each case is run, compared with its golden values, and judged by the standards S1 and S2."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.backends.threads import get_num_threads, set_num_threads
from anycann.check import golden, samples, standards
from anycann.check.standards import Figures, Tally
from anycann.products import Product
from anycann.runtime import Operator
from anycann.spec import Int, OpSpec, Str, Workload

__all__ = ["DEFAULT_ELEMENTS", "Case", "Observation", "Output", "cases", "check"]

Array = NDArray[Any]

DEFAULT_ELEMENTS = 4 << 20  # of the largest tensor of a workload that is checked unless all are asked for


@dataclass(frozen=True)
class Output:
    """One output of a case: our figures, and those of the correctly rounded golden values."""

    name: str
    ours: Figures
    rounded: Figures
    sum_promise: float  # 0 where the operator is no sum

    def verdict(self, standard: str) -> str:
        """ "pass", "fail" or "not attainable"."""
        return standards.verdict(standard, self.ours, self.rounded, self.sum_promise)

    @property
    def unattainable(self) -> tuple[str, ...]:
        """The standards that the correctly rounded golden values miss, or that a sum as the contract prescribes it cannot promise."""
        names = standards.STANDARDS
        return tuple(name for name, passes in names.items() if not passes(self.rounded) or self.verdict(name) == "not attainable")

    def as_json(self) -> dict[str, Any]:
        verdicts = {name: self.verdict(name) for name in standards.STANDARDS}
        return {
            "name": self.name,
            **verdicts,
            "unattainable": list(self.unattainable),
            "sum_promise": self.sum_promise,
            "S4": standards.pre_check(self.ours),
            "ours": asdict(self.ours),
            "rounded_golden": asdict(self.rounded),
        }


@dataclass(frozen=True)
class Observation:
    """Entries of an index tensor that name no row."""

    parameter: str
    rows: int
    out_of_range: int

    def __str__(self) -> str:
        return f"{self.out_of_range} entries of {self.parameter} outside [0, {self.rows})"


@dataclass(frozen=True)
class Case:
    """What was checked, and what came out."""

    operator: str
    python: str
    workload: str
    dtype: str
    product: str
    seed: int
    distribution: str
    shapes: Mapping[str, tuple[int, ...]]
    attrs: Mapping[str, Any]
    outputs: tuple[Output, ...]
    observations: tuple[Observation, ...]
    same_bits: bool  # the same on one thread, into outputs full of NaN

    @property
    def passed(self) -> bool:
        """No standard failed, and both runs gave the same bits."""
        return self.same_bits and all(output.verdict(name) != "fail" for output in self.outputs for name in standards.STANDARDS)

    def as_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name not in ("outputs", "observations", "same_bits")}
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        return {
            **fields,
            "shapes": shapes,
            "attrs": dict(self.attrs),
            "outputs": [output.as_json() for output in self.outputs],
            "observations": [asdict(observation) for observation in self.observations],
            "same_bits": self.same_bits,
            "passed": self.passed,
        }


def elements(workload: Workload) -> int:
    """Elements of the largest input."""
    return max(int(np.prod(shape)) for shape in workload.shapes.values())


def _choices(spec: OpSpec) -> dict[str, tuple[Any, ...]]:
    """Attributes that choose among named variants of an operator, with their values."""
    named = {attr.name: tuple(range(len(attr.names))) for attr in spec.attrs if isinstance(attr, Int) and attr.names}
    return named | {attr.name: attr.choices for attr in spec.attrs if isinstance(attr, Str) and len(attr.choices) > 1}


def _variants(spec: OpSpec, workload: Workload) -> Iterator[Workload]:
    """A workload with every choice of the attributes that name variants."""
    found = [workload]
    for name, values in _choices(spec).items():
        attr = next(attr for attr in spec.attrs if attr.name == name)
        labels = attr.names if isinstance(attr, Int) else values
        found = [
            replace(base, name=f"{base.name} {label}", attrs={**base.attrs, name: value})
            for base in found
            for value, label in zip(values, labels, strict=True)
        ]
    yield from found


def cases(spec: OpSpec, every: bool = False) -> list[Workload]:
    """The workloads to check: those of at most DEFAULT_ELEMENTS elements in all variants, and with `every` the larger ones as they are."""
    small = [workload for workload in spec.workloads if elements(workload) <= DEFAULT_ELEMENTS]
    large = [workload for workload in spec.workloads if workload not in small]
    return [variant for workload in small for variant in _variants(spec, workload)] + (large if every else [])


def observe(spec: OpSpec, inputs: Mapping[str, Array]) -> tuple[Observation, ...]:
    """What index tensors hold: how many of their entries name no row of the first input."""
    rows = len(inputs[spec.inputs[0].name])
    indices = [(param.name, inputs[param.name]) for param in spec.inputs if param.values == "permutation"]
    return tuple(Observation(name, rows, int(np.sum((array < 0) | (array >= rows)))) for name, array in indices)


def sum_promise(spec: OpSpec, workload: Workload, attrs: Mapping[str, Any]) -> float:
    """The promised error of the operator's sums over the sum of |terms|; 0 where it has none."""
    if not spec.sum_error:
        return 0.0
    axes = {axis: size for param in spec.inputs for axis, size in zip(param.axes, workload.shapes[param.name], strict=False)}
    named = {attr.alias or attr.name: attrs[attr.name] for attr in spec.attrs}
    return float(eval(spec.sum_error, {"__builtins__": {"max": max}}, axes | named))


def _terms(
    operator: Operator, inputs: Mapping[str, Array], attrs: Mapping[str, Any], promise: float
) -> Iterator[tuple[NDArray[np.float64] | None, ...]]:
    """The sums of |terms| behind each part of the golden values: the reference of the absolute inputs, for operators that are sums."""
    if promise == 0:
        yield from itertools.repeat((None,) * len(operator.spec.outputs))
        return
    sizes = {name: array if array.dtype.kind in "iu" else np.abs(array) for name, array in inputs.items()}
    for part in golden.parts(operator, sizes, attrs):
        yield part.values


def _results(operator: Operator, values: list[Any], product: Product, out: tuple[Array, ...] | None = None) -> tuple[Array, ...]:
    given = out if out is None or len(out) > 1 else out[0]
    result = operator.call(*values, out=given, product=product.key)
    return result if isinstance(result, tuple) else (result,)


def _same_bits(operator: Operator, values: list[Any], product: Product, results: tuple[Array, ...]) -> bool:
    """Whether one thread gives the same bits, written over NaN."""
    again = tuple(np.full_like(result, -1 if result.dtype.kind in "iu" else np.nan) for result in results)
    threads = get_num_threads()
    set_num_threads(1)
    try:
        _results(operator, values, product, again)
    finally:
        set_num_threads(threads)
    return all(np.array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")) for a, b in zip(results, again, strict=True))


def check(
    operator: Operator,
    workload: Workload,
    dtype: str,
    product: Product,
    *,
    seed: int = 0,
    distribution: str = "normal",
    progress: Callable[[float], None] = lambda share: None,
) -> Case:
    """Run one case and judge it; golden values come from the operator's reference only. `progress` gets shares of the work.

    AclnnError if the operator refuses the case on this product.
    """
    spec = operator.spec
    inputs = samples.inputs(spec, workload, dtype, seed, distribution)
    attrs = samples.attributes(spec, workload)
    values = samples.arguments(spec, inputs, attrs)
    results = _results(operator, values, product)
    same = _same_bits(operator, values, product, results)
    ours = [Tally(result.dtype.name) for result in results]
    rounded = [Tally(result.dtype.name) for result in results]
    promise = sum_promise(spec, workload, attrs)
    for part, sums in zip(golden.parts(operator, inputs, attrs), _terms(operator, inputs, attrs, promise), strict=False):
        for result, where, value, terms, tally, best in zip(results, part.where, part.values, sums, ours, rounded, strict=True):
            tally.add(result[where], value, terms)
            best.add(standards.round_to(value, best.dtype), value)
        progress(part.values[0].size / results[0].size)
    outputs = [
        Output(param.python, tally.figures(), best.figures(), promise)
        for param, tally, best in zip(spec.outputs, ours, rounded, strict=True)
    ]
    return Case(
        spec.name,
        spec.python,
        workload.name,
        dtype,
        product.key,
        seed,
        distribution,
        {name: array.shape for name, array in inputs.items()},
        attrs,
        tuple(outputs),
        observe(spec, inputs),
        same,
    )
