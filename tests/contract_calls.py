"""Calls made from `contract_facts`: an operator's valid call with edits, as arguments of a door, with the memory of all its tensors."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

import anycann
from anycann import aclnn
from contract_facts import ACL_DTYPES, FACTS, ITEMSIZE, NOT_IN_NUMPY, SERIES, Fact, Series

POISON = 0xA5
GUARD = 64  # elements before and after every tensor
TWO_PHASE = tuple(fact for fact in FACTS if "aclnn" in fact.doors)
Layout = Callable[[tuple[int, ...]], dict[str, Any]]


def numpy_dtype(name: str) -> "np.dtype[Any]":
    return np.dtype(getattr(ml_dtypes, name) if name == "bfloat16" else name)


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(max(size, 1) for size in shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass
class Draft:
    """The valid call of an operator, and edits to it."""

    fact: Fact
    sizes: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    null: set[str] = field(default_factory=set)
    read_only: set[str] = field(default_factory=set)
    shared: bool = False  # all outputs in the memory of the first
    omitted: bool = False  # out=None

    def all_sizes(self) -> dict[str, Any]:
        return {**self.fact.sizes, **self.sizes}

    def values(self) -> dict[str, Any]:
        return {**self.fact.attributes(self.all_sizes()), **self.attributes}

    def shape(self, tensor: str) -> tuple[int, ...]:
        return self.shapes.get(tensor) or (() if tensor in self.shapes else self.fact.shapes(self.all_sizes())[tensor])

    def dtype(self, tensor: str) -> str:
        return self.dtypes.get(tensor) or self.fact.fixed.get(tensor, "float16")


class Call:
    """A draft as arguments of one door, with the memory of all its tensors."""

    def __init__(self, draft: Draft, door: str) -> None:
        self.draft, self.door, self.fact = draft, door, draft.fact
        self.buffers: dict[str, np.ndarray[Any, Any]] = {}
        self.arguments = {name: self.tensor(name) for name in draft.fact.tensors}
        if draft.shared:
            first, *rest = draft.fact.outputs
            self.arguments |= {name: self.arguments[first][: len(self.arguments[name])] for name in rest}
        self.arguments |= {name: None if name in draft.null else value for name, value in draft.values().items()}

    def tensor(self, name: str) -> Any:
        draft = self.draft
        if name in draft.null or (draft.omitted and name in draft.fact.outputs):
            return None
        shape, kind = draft.shape(name), draft.dtype(name)
        layout = {"strides": contiguous(shape), "offset": 0} | (draft.layouts[name](shape) if name in draft.layouts else {})
        itemsize = ITEMSIZE[kind]
        buffer = np.full((math.prod(shape) + 2 * GUARD) * itemsize, POISON, np.uint8)
        if name not in draft.fact.outputs:
            buffer[:] = 0
        self.buffers[name] = buffer
        described = kind in NOT_IN_NUMPY or name in draft.formats or "storage" in layout
        if described or (self.door == "aclnn" and len(shape) > 32):
            room = buffer[GUARD * itemsize :]
            room.flags.writeable = name not in draft.read_only
            return aclnn.create_tensor(
                shape, ACL_DTYPES[kind], layout["strides"], layout["offset"], draft.formats.get(name, "ND"), layout.get("storage"), room
            )
        room = buffer.view(numpy_dtype(kind))[GUARD:]
        steps = [step * itemsize for step in layout["strides"]]
        return np.lib.stride_tricks.as_strided(room, shape, steps, writeable=name not in draft.read_only)

    def make(self, series: Series) -> Any:
        if self.door == "aclnn":
            phase_one = getattr(aclnn, f"{self.fact.api}GetWorkspaceSize")
            return phase_one(*(self.arguments[name] for name in self.fact.parameters), product=series.name)
        named = {self.fact.python[name]: value for name, value in self.arguments.items() if name not in self.fact.outputs}
        out = tuple(self.arguments[name] for name in self.fact.outputs)
        return getattr(anycann, self.fact.function)(**named, out=out[0] if len(out) == 1 else out, product=series.name)

    def untouched(self) -> bool:
        return all(np.all(self.buffers[name] == POISON) for name in self.fact.outputs if name in self.buffers)

    def api(self) -> str:
        return f"{self.fact.api}GetWorkspaceSize" if self.door == "aclnn" else f"anycann.{self.fact.function}"

    def spelled(self, name: str) -> str:
        return name if self.door == "aclnn" else self.fact.python[name]


def home(fact: Fact) -> Series:
    """A series that has the operator, and bfloat16."""
    return next(series for series in SERIES if series.name in fact.products and series.bf16)


@dataclass
class Sample:
    """A valid call on random numbers, on the series `home`."""

    fact: Fact
    kind: str
    inputs: dict[str, np.ndarray[Any, Any]]
    attributes: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]

    def outputs(self) -> list[np.ndarray[Any, Any]]:
        """Poisoned memory for the results."""
        kinds = [numpy_dtype(self.fact.fixed.get(name, self.kind)) for name in self.fact.outputs]
        return [
            np.full(self.shapes[name], np.nan if kind.kind not in "iu" else -1, kind)
            for name, kind in zip(self.fact.outputs, kinds, strict=True)
        ]

    def named(self, /, **replaced: Any) -> dict[str, Any]:
        """The keyword arguments of the Python function; inputs by the names of the prototype may be replaced."""
        values = {**self.inputs, **self.attributes, **replaced}
        return {self.fact.python[name]: values[name] for name in self.fact.parameters if name not in self.fact.outputs}

    def python(self, /, out: Any = None, **replaced: Any) -> Any:
        """Call the Python function; the result as it comes."""
        return getattr(anycann, self.fact.function)(**self.named(**replaced), out=out, product=home(self.fact).name)

    def results(self, /, **replaced: Any) -> list[Any]:
        """The results of the Python function, as a list."""
        result = self.python(**replaced)
        return list(result) if isinstance(result, tuple) else [result]

    def phase_one(self, outputs: list[Any], /, **replaced: Any) -> tuple[int, aclnn.Executor]:
        """Phase 1 with these outputs."""
        values = {**self.inputs, **self.attributes, **dict(zip(self.fact.outputs, outputs, strict=True)), **replaced}
        function = getattr(aclnn, f"{self.fact.api}GetWorkspaceSize")
        result: tuple[int, aclnn.Executor] = function(*(values[name] for name in self.fact.parameters), product=home(self.fact).name)
        return result

    def phase_two(self, size: int, executor: Any, stream: Any = None, workspace: Any = ...) -> None:
        """Phase 2, with a workspace of the right size unless one is given."""
        workspace = (aclnn.empty_workspace(size) if size else None) if workspace is ... else workspace
        getattr(aclnn, self.fact.api)(workspace, size, executor, stream)

    def two_phase(self, outputs: list[Any], stream: Any = None, /, **replaced: Any) -> None:
        """Both phases."""
        self.phase_two(*self.phase_one(outputs, **replaced), stream)


def sample(fact: Fact, kind: str = "float16", seed: int = 0, **changed: Any) -> Sample:
    """Random inputs of one dtype for the baseline call with changed sizes."""
    sizes = {**fact.sizes, **changed}
    shapes, rng = fact.shapes(sizes), np.random.default_rng(seed)
    inputs: dict[str, np.ndarray[Any, Any]] = {}
    for name in fact.inputs:
        if fact.fixed.get(name) == "int32":
            rows = next(shape[0] for shape in shapes.values())
            inputs[name] = rng.integers(-1, rows + 1, shapes[name], np.int32)
        else:
            numbers = rng.normal(size=shapes[name])
            numbers = np.abs(numbers) + 0.5 if name in fact.positive else numbers
            inputs[name] = numbers.astype(numpy_dtype(fact.fixed.get(name, kind)))
    return Sample(fact, kind, inputs, fact.attributes(sizes), shapes)


def same_bits(a: Any, b: Any) -> bool:
    """Whether two arrays have the same dtype, shape and bits."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
