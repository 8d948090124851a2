"""bind: a call becomes a checked, frozen Call, or an AclnnError that says what is wrong with it. Nothing is written."""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, NoReturn

from anycann import dtypes, overlap, products
from anycann.dtypes import DType
from anycann.errors import AclnnError
from anycann.products import Product
from anycann.spec import MAX_RANK, Attr, Broadcast, Let, OpSpec, Promote, Rule, Same, Str
from anycann.spec import Tensor as Param
from anycann.tensor import ND, Tensor, out_of_storage

__all__ = ["Call", "Launch", "bind"]

Allocate = Callable[[Param, tuple[int, ...], DType], Tensor]
Launch = Callable[[Sequence[int], int], None]  # addresses of the tensors' first elements in prototype order, address of the workspace


@dataclass(frozen=True, slots=True)
class Call:
    """A call that every check has passed: tensors in prototype order, converted attributes, the sizes of the named axes."""

    spec: OpSpec
    tensors: tuple[Tensor, ...]
    attrs: Mapping[str, Any]
    axes: Mapping[str, int]

    def __getitem__(self, name: str) -> Tensor:
        return next(tensor for param, tensor in zip(self.spec.tensors, self.tensors, strict=True) if param.name == name)


@functools.cache
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<rule>", "eval")


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """NumPy's rule, right aligned; a dimension of 1 against 0 gives 0."""
    result = [1] * max(len(shape) for shape in shapes)
    for shape in shapes:
        for position, size in enumerate(reversed(shape), 1):
            if size != 1:
                if result[-position] not in (1, size):
                    return None
                result[-position] = size
    return tuple(result)


class _Binding:
    """One call on its way through the stages."""

    def __init__(
        self,
        spec: OpSpec,
        tensors: Mapping[str, Tensor | None],
        attrs: Mapping[str, Any],
        api: str,
        product: Product,
        names: Mapping[str, str],
        superset: bool,
        allocate: Allocate | None,
    ) -> None:
        self.spec, self.tensors, self.attrs, self.api = spec, dict(tensors), attrs, api
        self.product, self.names, self.superset, self.allocate = product, names, superset, allocate
        self.axes: dict[str, int] = {}
        self.origin: dict[str, str] = {}

    def refuse(self, code: int, name: str, text: str, mend: str) -> NoReturn:
        raise AclnnError(code, self.api, f"{self.shown(name)} {text}. {mend}")

    def shown(self, name: str) -> str:
        return self.names.get(name, name)

    def spelled(self, text: str) -> str:
        """A sentence of a rule, with the caller's spellings of the parameters that it names in braces."""
        return text.format_map({param.name: self.shown(param.name) for param in self.spec.params})

    def present(self) -> list[tuple[Param, Tensor]]:
        pairs = ((param, self.tensors[param.name]) for param in self.spec.tensors)
        return [(param, tensor) for param, tensor in pairs if tensor is not None]

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        if tensor is None:
            raise RuntimeError(f"{self.api}: {name} is read before it is there; the specification's stages are out of order")
        return tensor

    def value_of(self, expression: str) -> Any:
        values = dict(self.axes)
        for attr in self.spec.attrs:
            values[attr.alias or attr.name] = self.attrs[attr.name]
        return eval(_compiled(expression), {"__builtins__": {"len": len, "min": min, "max": max}, **self.spec.functions}, values)

    # The stages, in the framework's order; `describe` below says each in words.

    def nulls(self) -> None:
        for param in self.spec.tensors:
            if self.tensors[param.name] is None and not (param.output and self.allocate):
                self.refuse(161001, param.name, "must be a tensor; got a null pointer (None)", "Pass the tensor.")
        for attr in self.spec.attrs:
            if isinstance(attr, Str) and attr.null is None and self.attrs[attr.name] is None:
                self.refuse(161001, attr.name, f"must be {attr.domain}; got a null pointer (None)", "Pass one of these strings.")

    def dtypes(self) -> None:
        for param, tensor in self.present():
            listed = self.spec.dtypes(param, self.product, self.superset)
            got = tensor.dtype.name
            if got not in listed:
                lacks = got == "bfloat16" and got in param.dtypes
                wider = got in param.superset
                self.refuse(
                    161002,
                    param.name,
                    f"must have dtype {' or '.join(listed)} on {self.product.series}; got {got}",
                    f"This product has no bfloat16: choose another with set_product, or convert {self.shown(param.name)}."
                    if lacks
                    else f"Only the function anycann.{self.spec.python} takes {got}; convert {self.shown(param.name)}."
                    if wider
                    else f"Convert {self.shown(param.name)}.",
                )
            if tensor.format != ND:
                name = next((name for name, value in dtypes.FORMATS.items() if value == tensor.format), tensor.format)
                self.refuse(161002, param.name, f"must have format ND; got {name}", "Create the tensor with ACL_FORMAT_ND.")

    def promotion(self) -> None:
        for param, tensor in self.present():
            if param.dtype is None:
                continue
            want = self.result_dtype(param)
            loose = isinstance(param.dtype, Promote) and param.dtype.castable
            if tensor.dtype != want and not (loose and dtypes.castable(want, tensor.dtype)):
                of = ", ".join(
                    f"{self.shown(name)} ({self[name].dtype})"
                    for name in ((param.dtype.name,) if isinstance(param.dtype, Same) else param.dtype.names)
                )
                how = "that of" if isinstance(param.dtype, Same) else "the promotion of"
                self.refuse(161002, param.name, f"must have dtype {want}, {how} {of}; got {tensor.dtype}", f"Use {want}.")

    def result_dtype(self, param: Param) -> DType:
        if isinstance(param.dtype, Same):
            return self[param.dtype.name].dtype
        if param.dtype is None:
            return dtypes.by_name(param.dtypes[0])
        names = param.dtype.names
        want: DType = self[names[0]].dtype
        for name in names[1:]:
            met = dtypes.promote(want, self[name].dtype)
            if met is None or met.name not in self.spec.dtypes(param, self.product, self.superset):
                listed = " and ".join(f"{self.shown(name)} ({self[name].dtype})" for name in names)
                got = "no common dtype" if met is None else f"{met}, which {self.product.series} does not support here"
                self.refuse(161002, name, f"must promote with the other inputs: {listed}; got {got}", "Convert one of them.")
            want = met
        return want

    def ranks(self) -> None:
        for param, tensor in self.present():
            rank, axes = len(tensor.shape), param.axes
            any_number = any(axis.startswith("*") for axis in axes) or not axes
            least = sum(not axis.startswith("*") for axis in axes)
            if any_number and not least <= rank <= MAX_RANK:
                expected = f"{least} to {MAX_RANK} dimensions"
            elif not any_number and rank != least:
                expected = f"{least} dimension{'s' * (least > 1)} [{', '.join(axes)}]"
            else:
                continue
            self.refuse(161002, param.name, f"must have {expected}; got {rank}, shape {tensor.shape}", "Reshape it.")

    def shapes(self) -> None:
        for attr in self.spec.attrs:
            if self.shapes_use(attr):
                self.check_attr(attr)
        lets = {rule.axis for rule in self.spec.rules if isinstance(rule, Let)}
        for attr in self.spec.attrs:
            if any(attr.alias in param.axes for param in self.spec.tensors):
                self.axes[attr.alias], self.origin[attr.alias] = self.attrs[attr.name], self.shown(attr.name)
        for param in self.spec.inputs:
            self.match(param, skip=lets)
        for rule in self.spec.rules:
            if isinstance(rule, Let):
                self.axes[rule.axis], self.origin[rule.axis] = self.value_of(rule.expression), rule.sentence
            elif rule.stage == "shapes":
                self.check_rule(rule)
        for param in self.spec.inputs:
            if lets.intersection(param.axes):
                self.match(param)
        for param in self.spec.outputs:
            self.check_output_shape(param)

    def shapes_use(self, attr: Attr) -> bool:
        """Whether shapes depend on an attribute, whose range is then checked first."""
        name = attr.alias or attr.name
        rules = [rule for rule in self.spec.rules if isinstance(rule, Let) or rule.stage == "shapes"]
        texts = [rule.expression if isinstance(rule, Let) else rule.condition for rule in rules]
        return any(name in _compiled(text).co_names for text in texts) or any(name in param.axes for param in self.spec.tensors)

    def match(self, param: Param, skip: frozenset[str] | set[str] = frozenset()) -> None:
        """Give the named axes of an input their sizes, or compare them."""
        tensor, axes = self[param.name], param.axes
        if not axes:
            return
        star = next((i for i, axis in enumerate(axes) if axis.startswith("*")), None)
        found: list[Any] = list(tensor.shape)
        if star is not None:
            end = len(found) - (len(axes) - star - 1)
            found[star:end] = [tensor.shape[star:end]]
        sizes = dict(zip(axes, found, strict=True))
        for axis, size in sizes.items():
            if axis in skip:
                continue
            if axis in self.axes and self.axes[axis] != size:
                bound = ", ".join(f"{name} = {self.axes[name]} ({self.origin[name]})" for name in axes if name in self.axes)
                self.refuse(
                    161002,
                    param.name,
                    f"must have shape [{', '.join(axes)}] with {bound}; got {tensor.shape}",
                    f"Make its {axis} {self.axes[axis]}.",
                )
            if axis not in self.axes:
                self.axes[axis], self.origin[axis] = size, f"from {self.shown(param.name)}"

    def output_shape(self, param: Param) -> tuple[int, ...]:
        if isinstance(param.shape, Broadcast):
            shapes = [self[name].shape for name in param.shape.names]
            shape = broadcast(shapes)
            if shape is None:
                first, *rest = param.shape.names
                others = " and ".join(f"{self.shown(name)} {self[name].shape}" for name in rest)
                self.refuse(
                    161002,
                    first,
                    f"must broadcast with {others}; got {self[first].shape}",
                    "Right-aligned dimensions must be equal, or one of them 1.",
                )
            return shape
        shape = ()
        for axis in param.axes:
            size: Any = self.axes[axis]
            shape += size if isinstance(size, tuple) else (size,)
        return shape

    def check_output_shape(self, param: Param) -> None:
        want, tensor = self.output_shape(param), self.tensors[param.name]
        if tensor is None or tensor.shape == want:
            return
        if isinstance(param.shape, Broadcast):
            reason = "the broadcast of " + " and ".join(f"{self.shown(name)} {self[name].shape}" for name in param.shape.names)
        else:
            reason = f"[{', '.join(param.axes)}]: " + ", ".join(f"{axis} = {self.axes[axis]} ({self.origin[axis]})" for axis in param.axes)
        self.refuse(161002, param.name, f"must have shape {want}, {reason}; got {tensor.shape}", f"Pass an output of shape {want}.")

    def storage(self) -> None:
        for param, tensor in self.present():
            fault = out_of_storage(tensor)
            if fault:
                self.refuse(561103, param.name, f"must lie inside its storage; got {fault}", "Check strides, offset and storage shape.")

    def aliases(self) -> None:
        for param, tensor in self.present():
            if not param.output:
                continue
            if not tensor.writable:
                self.refuse(161002, param.name, "must be writable; got read-only memory", "Pass a writable output.")
            if overlap.within(tensor.shape, tensor.strides):
                self.refuse(
                    161002,
                    param.name,
                    f"must give each element its own memory; got shape {tensor.shape} with strides {tensor.strides}",
                    "Pass a contiguous output.",
                )

    def attributes(self) -> None:
        for attr in self.spec.attrs:
            self.check_attr(attr)

    def check_attr(self, attr: Attr) -> None:
        value = self.attrs[attr.name]
        expected = attr.violation(value)
        if expected is not None:
            self.refuse(attr.code, attr.name, f"must be {expected}; got {value!r}", "Change this value.")

    def tiling(self) -> None:
        self.rules_of("tiling")

    def empty(self) -> None:
        self.rules_of("empty")

    def rules_of(self, stage: str) -> None:
        for rule in self.spec.rules:
            if isinstance(rule, Rule) and rule.stage == stage:
                self.check_rule(rule)

    def check_rule(self, rule: Rule) -> None:
        condition = rule.superset if self.superset and rule.superset is not None else rule.condition
        if condition and not self.value_of(condition):
            known = {**self.axes, **{attr.alias or attr.name: self.attrs[attr.name] for attr in self.spec.attrs}}
            got = ", ".join(f"{name} = {known[name]}" for name in dict.fromkeys(_compiled(condition).co_names) if name in known)
            self.refuse(
                rule.code,
                rule.parameter,
                f"{self.spelled(rule.sentence)}{'' if '(' in condition else f': expected {condition}'}; got {got}",
                self.spelled(rule.mend) or "Change these sizes.",
            )

    def product_stage(self) -> None:
        if self.product not in self.spec.products:
            listed = ", ".join(product.series for product in self.spec.products)
            raise AclnnError(
                561003,
                self.api,
                f"{self.spec.name} is not available on {self.product.series}; expected one of: {listed}. "
                "Choose one with anycann.set_product or the variable ANYCANN_PRODUCT.",
            )

    def finish(self) -> Call:
        if self.allocate is not None:
            for param in self.spec.outputs:
                if self.tensors[param.name] is None:
                    self.tensors[param.name] = self.allocate(param, self.output_shape(param), self.result_dtype(param))
        tensors = tuple([self[param.name] for param in self.spec.tensors])
        outputs = [(param, tensor) for param, tensor in zip(self.spec.tensors, tensors, strict=True) if param.output]
        for i, (param, tensor) in enumerate(outputs):
            for other, before in outputs[:i]:
                if overlap.between(tensor, before):
                    self.refuse(
                        161002,
                        param.name,
                        f"must have memory of its own; got memory that is shared with {self.shown(other.name)}",
                        "Pass outputs that do not overlap.",
                    )
        return Call(self.spec, tensors, self.attrs, self.axes)


_STAGES: dict[str, Callable[[_Binding], None]] = {
    "nulls": _Binding.nulls,
    "dtypes": _Binding.dtypes,
    "promotion": _Binding.promotion,
    "ranks": _Binding.ranks,
    "shapes": _Binding.shapes,
    "storage": _Binding.storage,
    "aliases": _Binding.aliases,
    "attributes": _Binding.attributes,
    "tiling": _Binding.tiling,
    "empty": _Binding.empty,
    "product": _Binding.product_stage,
}


def bind(
    spec: OpSpec,
    tensors: Mapping[str, Tensor | None],
    attrs: Mapping[str, Any],
    *,
    api: str,
    product: Product | None = None,
    names: Mapping[str, str] | None = None,
    superset: bool = False,
    allocate: Allocate | None = None,
) -> Call:
    """Check a call against its contract. Attributes are already converted; `names` are the caller's spellings of parameters.

    `allocate` makes outputs that are None, after every check has passed; without it a missing output is a null pointer.
    `superset` also accepts what the specification offers to Python functions only. Raises AclnnError.
    """
    binding = _Binding(spec, tensors, attrs, api, product or products.current(), names or {}, superset, allocate)
    for stage in spec.stages:
        _STAGES[stage](binding)
    return binding.finish()
