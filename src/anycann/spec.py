"""The words in which an operator's contract is written, as data. Everything about a call that can be derived is derived from it."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from anycann.attributes import Attr, Bool, Bools, Double, Float, Int, IntArray, Str, snake_case
from anycann.axes import MAX_RANK, Pattern, broadcast, patterns
from anycann.products import Product

__all__ = [
    "FLOATS",
    "MAX_RANK",
    "Attr",
    "Bool",
    "Bools",
    "Broadcast",
    "Double",
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
    "When",
    "Workload",
    "compiled",
    "snake_case",
]

FLOATS = ("float16", "bfloat16", "float32")


def broadcasts(*shapes: tuple[int, ...]) -> bool:
    """Whether shapes broadcast."""
    return broadcast(list(shapes)) is not None


BUILTINS: Mapping[str, Callable[..., Any]] = {"len": len, "min": min, "max": max, "prod": math.prod, "broadcasts": broadcasts}


@functools.cache
def compiled(expression: str) -> CodeType:
    """An expression over axes (groups without their star), attributes, and optional tensors, which stand for whether they are there."""
    return compile(expression, "<rule>", "eval")


@dataclass(frozen=True, eq=False)
class Broadcast:
    """The shape that the named tensors broadcast to."""

    names: tuple[str, ...]


Shape = str | tuple[str, ...] | Broadcast


@dataclass(frozen=True, eq=False)
class When:
    """The shape of an output that depends on a condition. Of several patterns any will do, and the first is what functions make."""

    condition: str
    then: Shape
    otherwise: Shape


@dataclass(frozen=True, eq=False)
class Same:
    """Exactly the dtype of another tensor, or one of `also`; of the tensor that `otherwise` says where that other one is absent."""

    name: str
    also: tuple[str, ...] = ()
    otherwise: "Same | None" = None


@dataclass(frozen=True, eq=False)
class Promote:
    """The dtype that the named tensors promote to; with `castable`, any listed dtype that it can be cast to."""

    names: tuple[str, ...]
    castable: bool = False


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor parameter. `shape` is a pattern of axes ("T H"; "*D" is any number of axes), patterns among which the rank
    chooses ("N K", "N"; the axes that are left out are 1), a Broadcast, or for outputs a When.

    `dtypes` is the support list of products with bfloat16; the others have it without bfloat16. `superset` dtypes are
    accepted by the Python functions only. `values` says which sample values make sense ("normal", "positive", "experts" or
    "permutation").
    An `optional` tensor may be null. A tensor is `needed` where that expression is true: then null is refused. Where it is
    false an input may be null, and an output is not computed. Entries of an index tensor that are negative or not `below` that
    expression over axes are mistakes of the caller, which the device's check mode reports.
    """

    name: str
    shape: Shape | When
    dtypes: tuple[str, ...]
    dtype: Same | Promote | None = None
    output: bool = False
    superset: tuple[str, ...] = ()
    values: str = "normal"
    doc: str = ""
    optional: bool = False
    needed: str = ""
    below: str = ""
    const: bool = False  # an output that the C prototype declares const, though it is written

    @property
    def ctype(self) -> str:
        """Its type in the C prototype."""
        return "aclTensor *" if self.output and not self.const else "const aclTensor *"

    @functools.cached_property
    def python(self) -> str:
        name = self.name.removesuffix("Optional")
        name = name.removesuffix("Out") if self.output and name != "Out" else name
        return snake_case(name.removesuffix("Optional"))

    @functools.cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        """The patterns of axes that it may have; none where its shape is a Broadcast or depends on a condition."""
        return () if isinstance(self.shape, (Broadcast, When)) else patterns(self.shape)

    @functools.cached_property
    def axes(self) -> tuple[str, ...]:
        """The axes of its patterns, each once."""
        return tuple(dict.fromkeys(axis for pattern in self.patterns for axis in pattern))


@dataclass(frozen=True, eq=False)
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


@dataclass(frozen=True, eq=False)
class Let:
    """An axis, or a group of axes, that is computed from axes and attributes; before the shapes are looked at if from attributes alone."""

    axis: str
    expression: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Workload:
    """A named problem of real size: shapes of the inputs and attribute values, for tests, demo and benchmarks alike."""

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    attrs: Mapping[str, Any] = field(default_factory=dict)


Param = Tensor | Attr

STAGES = ("nulls", "dtypes", "promotion", "ranks", "shapes", "storage", "aliases", "attributes", "tiling", "empty", "product")


@dataclass(frozen=True, eq=False)
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

    @functools.cached_property
    def python(self) -> str:
        return snake_case(self.name)

    @functools.cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(param for param in self.params if isinstance(param, Tensor))

    @functools.cached_property
    def numbers(self) -> Mapping[str, int]:
        """The numbers of the tensors among themselves."""
        return {param.name: number for number, param in enumerate(self.tensors)}

    @functools.cached_property
    def tensor_places(self) -> tuple[int, ...]:
        """The places of the tensors among the parameters."""
        return tuple(place for place, param in enumerate(self.params) if isinstance(param, Tensor))

    @functools.cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(param for param in self.tensors if not param.output)

    @functools.cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        return tuple(param for param in self.tensors if param.output)

    @functools.cached_property
    def attrs(self) -> tuple[Attr, ...]:
        return tuple(param for param in self.params if isinstance(param, Attr))

    @functools.cached_property
    def shape_attrs(self) -> tuple[Attr, ...]:
        """Attributes that shapes depend on, whose range is checked first."""
        rules = [rule for rule in self.rules if isinstance(rule, Let) or rule.stage == "shapes"]
        texts = [rule.expression if isinstance(rule, Let) else rule.condition for rule in rules]
        texts += [param.shape.condition for param in self.tensors if isinstance(param.shape, When)]
        used = {name for text in texts for name in compiled(text).co_names} | {axis for param in self.tensors for axis in param.axes}
        return tuple(attr for attr in self.attrs if (attr.alias or attr.name) in used)

    @functools.cached_property
    def lets(self) -> tuple[Let, ...]:
        return tuple(rule for rule in self.rules if isinstance(rule, Let))

    @functools.cached_property
    def late(self) -> frozenset[str]:
        """The axes that are computed, but not from attributes alone."""
        known = {attr.alias or attr.name for attr in self.attrs} | {*self.functions, *BUILTINS}
        return frozenset(let.axis for let in self.lets if not known.issuperset(compiled(let.expression).co_names))

    @functools.cached_property
    def scope(self) -> dict[str, Any]:
        """The functions that expressions may call."""
        return {"__builtins__": BUILTINS, **self.functions}

    def dtypes(self, param: Tensor, product: Product, superset: bool = False) -> tuple[str, ...]:
        """The support list of a tensor on a product."""
        return _listed(param, product.bf16, superset)


@functools.cache
def _listed(param: Tensor, bf16: bool, superset: bool) -> tuple[str, ...]:
    listed = param.dtypes + (param.superset if superset else ())
    return tuple([name for name in listed if bf16 or name != "bfloat16"])
