"""The words in which an operator's contract is written, as data. Everything about a call that can be derived is derived from it."""

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from anycann.products import Product

__all__ = [
    "FLOATS",
    "MAX_RANK",
    "Attr",
    "Bool",
    "Broadcast",
    "Float",
    "Int",
    "IntArray",
    "Let",
    "OpSpec",
    "Promote",
    "Rule",
    "Same",
    "Str",
    "Tensor",
    "Workload",
]

FLOATS = ("float16", "bfloat16", "float32")
MAX_RANK = 8


def snake_case(name: str) -> str:
    """numTopk -> num_topk, aclnnGeluBackwardV2 -> gelu_backward_v2."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.removeprefix("aclnn")).lower()


@dataclass(frozen=True)
class Broadcast:
    """The shape that the named tensors broadcast to."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class Same:
    """Exactly the dtype of another tensor."""

    name: str


@dataclass(frozen=True)
class Promote:
    """The dtype that the named tensors promote to; with `castable`, any listed dtype that it can be cast to."""

    names: tuple[str, ...]
    castable: bool = False


@dataclass(frozen=True)
class Tensor:
    """A tensor parameter. `shape` names its axes ("T H"; "*D" is any number of axes) or is a Broadcast.

    `dtypes` is the support list of products with bfloat16; the others have it without bfloat16. `superset` dtypes are
    accepted by the Python functions only. `values` says which sample values make sense ("normal" or "permutation").
    """

    name: str
    shape: str | Broadcast
    dtypes: tuple[str, ...]
    dtype: Same | Promote | None = None
    output: bool = False
    superset: tuple[str, ...] = ()
    values: str = "normal"
    doc: str = ""

    @property
    def python(self) -> str:
        name = self.name.removesuffix("Optional")
        return snake_case(name.removesuffix("Out") if self.output and name != "Out" else name)

    @property
    def axes(self) -> tuple[str, ...]:
        return () if isinstance(self.shape, Broadcast) else tuple(self.shape.split())


@dataclass(frozen=True)
class Attr:
    """An attribute parameter. `default` is what Python functions use when it is left out; `required` has none."""

    name: str
    default: Any = None
    required: bool = False
    alias: str = ""  # its name in formulas and rules
    code: int = 161002
    doc: str = ""
    ctype: ClassVar[str] = ""

    @property
    def python(self) -> str:
        return snake_case(self.name.removesuffix("Optional"))

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        """To the C type; TypeError, about `name`, for Python types that have none. `friendly` also takes names of values."""
        raise NotImplementedError

    def violation(self, value: Any) -> str | None:
        """What a converted value should have been, if it is not allowed."""
        raise NotImplementedError

    @property
    def domain(self) -> str:
        """The allowed values in words."""
        raise NotImplementedError


@dataclass(frozen=True)
class Int(Attr):
    low: int | None = None
    high: int | None = None
    names: tuple[str, ...] = ()  # names of the values 0, 1, … for Python functions
    ctype: ClassVar[str] = "int64_t"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if friendly and isinstance(value, str) and value in self.names:
            return self.names.index(value)
        try:
            return operator.index(value)
        except TypeError:
            if friendly and self.names and isinstance(value, str):
                return value  # refused by `violation`
            raise TypeError(f"{name} must be an int; got {value!r} of type {type(value).__name__}") from None

    def violation(self, value: Any) -> str | None:
        low = -(2**63) if self.low is None else self.low
        high = 2**63 - 1 if self.high is None else self.high
        return None if isinstance(value, int) and low <= value <= high else self.domain

    @property
    def domain(self) -> str:
        if self.names:
            return ", ".join(f"{value} ({name!r})" for value, name in enumerate(self.names))
        if self.low is not None and self.low == self.high:
            return f"{self.low}"
        if self.low is None and self.high is None:
            return "a 64-bit integer"
        if self.high is None:
            return f"at least {self.low}"
        return f"at most {self.high}" if self.low is None else f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Bool(Attr):
    allowed: tuple[bool, ...] = (False, True)
    ctype: ClassVar[str] = "bool"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if isinstance(value, (bool, np.bool_)):
            return bool(value)
        try:
            return bool(operator.index(value))
        except TypeError:
            raise TypeError(f"{name} must be a bool; got {value!r} of type {type(value).__name__}") from None

    def violation(self, value: Any) -> str | None:
        return None if value in self.allowed else self.domain

    @property
    def domain(self) -> str:
        return " or ".join(str(value) for value in self.allowed)


@dataclass(frozen=True)
class Float(Attr):
    low: float = -math.inf
    ctype: ClassVar[str] = "float"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if isinstance(value, (str, bytes)):
            raise TypeError(f"{name} must be a number; got {value!r}")
        try:
            number = float(value)
        except TypeError:
            raise TypeError(f"{name} must be a number; got {value!r} of type {type(value).__name__}") from None
        except OverflowError:  # an int beyond float64 is beyond float32 too
            number = math.inf if value > 0 else -math.inf
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float32(number))

    def violation(self, value: Any) -> str | None:
        return None if value >= self.low else self.domain

    @property
    def domain(self) -> str:
        return "any number but NaN" if self.low == -math.inf else f"at least {self.low:g} and not NaN"


@dataclass(frozen=True)
class Str(Attr):
    choices: tuple[str, ...] = ()
    null: str | None = None  # what a null pointer stands for; without it null is refused
    ctype: ClassVar[str] = "char *"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if value is None:
            return self.null
        if isinstance(value, str):
            return value
        if isinstance(value, bytes):
            return value.decode("utf-8", "backslashreplace")
        raise TypeError(f"{name} must be a str; got {value!r} of type {type(value).__name__}")

    def violation(self, value: Any) -> str | None:
        return None if value in self.choices else self.domain

    @property
    def domain(self) -> str:
        return " or ".join(repr(choice) for choice in self.choices)


@dataclass(frozen=True)
class IntArray(Attr):
    """A list of integers, or null."""

    ctype: ClassVar[str] = "const aclIntArray *"

    def convert(self, value: Any, name: str, friendly: bool = False) -> Any:
        if value is None:
            return None
        try:
            return tuple([operator.index(item) for item in value])
        except TypeError:
            raise TypeError(f"{name} must be a list of ints or None; got {value!r}") from None

    def violation(self, value: Any) -> str | None:
        fits = value is None or all(-(2**63) <= item < 2**63 for item in value)
        return None if fits else self.domain

    @property
    def domain(self) -> str:
        return "64-bit integers, or null"


@dataclass(frozen=True)
class Rule:
    """A condition over axes and attributes that must hold, with the sentence that the user reads.

    `superset` is the wider condition of the Python functions ("" for none at all). `stage` says when it is checked.
    """

    condition: str
    sentence: str
    parameter: str
    stage: str = "shapes"
    code: int = 161002
    mend: str = ""
    superset: str | None = None


@dataclass(frozen=True)
class Let:
    """An axis that is computed from axes and attributes."""

    axis: str
    expression: str
    sentence: str


@dataclass(frozen=True)
class Workload:
    """A named problem of real size: shapes of the inputs and attribute values, for tests, demo and benchmarks alike."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    attrs: Mapping[str, Any] = field(default_factory=dict)


Param = Tensor | Attr

STAGES = ("nulls", "dtypes", "promotion", "ranks", "shapes", "storage", "aliases", "attributes", "tiling", "empty", "product")


@dataclass(frozen=True)
class OpSpec:
    """One operator. `params` stand in the order of the C prototype; `stages` in the order in which a call is checked."""

    name: str
    summary: str
    formula: str
    params: tuple[Param, ...]
    products: tuple[Product, ...]
    accuracy: Mapping[str, str]
    source: str
    example: str
    rules: tuple[Rule | Let, ...] = ()
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)  # that rules may call
    workloads: tuple[Workload, ...] = ()
    notes: tuple[str, ...] = ()
    stages: tuple[str, ...] = STAGES
    sum_error: str = ""  # promised error of its sums before the last rounding, over the sum of |terms|, by axes and attributes
    elementwise: bool = False  # an output may be the very memory of an input
    two_phase: bool = True

    def __post_init__(self) -> None:
        if set(self.stages) != set(STAGES):
            raise TypeError(f"{self.name}: stages must be {STAGES} in some order")
        if self.tensors != self.inputs + self.outputs:
            raise TypeError(f"{self.name}: outputs must come after inputs")

    @property
    def python(self) -> str:
        return snake_case(self.name)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(param for param in self.params if isinstance(param, Tensor))

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(param for param in self.tensors if not param.output)

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(param for param in self.tensors if param.output)

    @property
    def attrs(self) -> tuple[Attr, ...]:
        return tuple(param for param in self.params if isinstance(param, Attr))

    def dtypes(self, param: Tensor, product: Product, superset: bool = False) -> tuple[str, ...]:
        """The support list of a tensor on a product."""
        listed = param.dtypes + (param.superset if superset else ())
        return tuple(name for name in listed if product.bf16 or name != "bfloat16")
