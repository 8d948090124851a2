"""A workload made ready: its inputs, one set of outputs, its golden values, and the judgement of results."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.bench.promises import broken
from anycann.check import golden, samples
from anycann.check.golden import Part
from anycann.check.standards import STANDARDS, Figures, Tally, mixed_tolerance, round_to
from anycann.runtime import Operator
from anycann.spec import Workload

__all__ = ["Judgement", "Problem", "prepare"]

Array = NDArray[Any]

CHECKED = 1 << 20  # elements of the largest tensor whose golden values are computed
POISON = 0xFE  # the byte that outputs are full of before a run that is checked
ALIKE = 0.5  # cosine below which a peer that fails S2 computes something else; sums of 16-bit partial sums have been seen at 0.93
_CHUNK = 1 << 22


@dataclass(frozen=True)
class Judgement:
    """The errors of a result against the golden values, and what is wrong with it, if anything."""

    figures: tuple[Figures, ...]
    fault: str = ""

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {
                "elements": f.elements,
                "MERE": f.mere,
                "MARE": f.mare,
                "max_ulp": f.max_ulp,
                **{name: passes(f) for name, passes in STANDARDS.items()},
            }
            for f in self.figures
        ]


@dataclass(frozen=True)
class Problem:
    """One operator on one workload in one dtype. All contenders read the same inputs and may write the same outputs."""

    operator: Operator
    workload: Workload
    dtype: str
    inputs: Mapping[str, Array]
    attrs: Mapping[str, Any]
    outs: tuple[Array, ...]
    parts: tuple[Part, ...]
    attainable: tuple[str, ...]  # the standards that the correctly rounded golden values pass
    magnitudes: tuple[Part, ...]  # for sums: golden values of absolute inputs, the sums of |terms|

    @property
    def values(self) -> list[Any]:
        """Inputs and attributes in prototype order."""
        return samples.arguments(self.operator.spec, self.inputs, self.attrs)

    @property
    def bytes_read(self) -> int:
        return sum(array.nbytes for array in self.inputs.values())

    @property
    def bytes_written(self) -> int:
        return sum(array.nbytes for array in self.outs)

    @property
    def elements(self) -> int:
        """Of the largest tensor."""
        return max(array.size for array in (*self.inputs.values(), *self.outs))

    def ours(self, allocate: bool) -> Any:
        """Our call, into the outputs or into new arrays."""
        if allocate:
            return self.operator.call(*self.values)
        return self.operator.call(*self.values, out=self.outs[0] if len(self.outs) == 1 else self.outs)

    def poison(self) -> None:
        """Fill the outputs with a pattern that no result has."""
        for out in self.outs:
            out.reshape(-1).view(np.uint8).fill(POISON)

    def judge(self, results: Sequence[Array], promised: bool) -> Judgement:
        """Compare with the golden values: with `promised`, by the operator's promise; else it must only be the same function."""
        for result, out in zip(results, self.outs, strict=True):
            if result.shape != out.shape or result.dtype != out.dtype:
                fault = f"shape {result.shape} and dtype {result.dtype} instead of {out.shape} and {out.dtype}"
                return Judgement((), fault)
        tallies = [Tally(result.dtype.name) for result in results]
        for part in self.parts:
            for result, where, value, tally in zip(results, part.where, part.values, tallies, strict=True):
                tally.add(result[where], value)
        figures = tuple(tally.figures() for tally in tallies)
        fault = self._promise(results) if promised else _unlike(figures)
        if promised and not fault and any(_unwritten(result) for result in results):
            fault = "elements of the output were not written"
        return Judgement(figures, fault)

    def _promise(self, results: Sequence[Array]) -> str:
        for part, magnitude in zip(self.parts, self.magnitudes, strict=True):
            fault = broken(self.operator.spec, self.inputs, self.attrs, results, part, magnitude)
            if fault:
                return fault
        return ""


def _unlike(figures: tuple[Figures, ...]) -> str:
    strange = [f.cosine for f in figures if not (mixed_tolerance(f) or f.cosine > ALIKE)]
    return f"not the same function: cosine similarity {min(strange):.4f}" if strange else ""


def _unwritten(result: Array) -> bool:
    bits = result.reshape(-1).view(f"u{result.itemsize}")
    pattern = int.from_bytes(bytes([POISON]) * result.itemsize, "little")
    return any(bool(np.any(bits[start : start + _CHUNK] == pattern)) for start in range(0, bits.size, _CHUNK))


def _attainable(outs: Sequence[Array], parts: Sequence[Part]) -> tuple[str, ...]:
    tallies = [Tally(out.dtype.name) for out in outs]
    for part in parts:
        for value, tally in zip(part.values, tallies, strict=True):
            tally.add(round_to(value, tally.dtype), value)
    return tuple(name for name, passes in STANDARDS.items() if all(passes(tally.figures()) for tally in tallies))


def prepare(operator: Operator, workload: Workload, dtype: str, seed: int = 0) -> Problem:
    """Draw the inputs, allocate the outputs, and compute golden values of a random part of them.

    AclnnError where the operator refuses the workload.
    """
    spec = operator.spec
    inputs = samples.inputs(spec, workload, dtype, seed)
    attrs = samples.attributes(spec, workload)
    results = operator.call(*samples.arguments(spec, inputs, attrs))
    outs = tuple(np.empty_like(result) for result in (results if isinstance(results, tuple) else (results,)))
    parts = magnitudes = tuple(golden.parts(operator, inputs, attrs, CHECKED, seed))
    if not spec.elementwise:
        positive = {name: array if array.dtype.kind in "iu" else np.abs(array) for name, array in inputs.items()}
        magnitudes = tuple(golden.parts(operator, positive, attrs, CHECKED, seed))
    return Problem(operator, workload, dtype, inputs, attrs, outs, parts, _attainable(outs, parts), magnitudes)
