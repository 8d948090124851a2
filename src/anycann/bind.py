"""bind: a call becomes a checked, frozen Call, or an AclnnError that says what is wrong with it. Nothing is written."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from anycann import axes as patterns
from anycann import dtypes, overlap, products
from anycann.axes import broadcast
from anycann.dtypes import DType
from anycann.errors import AclnnError, told
from anycann.products import Product
from anycann.spec import Attr, Broadcast, Let, OpSpec, Promote, Rule, Same, When, compiled
from anycann.spec import Tensor as Param
from anycann.tensor import ABSENT, ND, Tensor, out_of_storage, strides_like

__all__ = ["Call", "Launch", "bind", "broadcast"]

Allocate = Callable[[Param, tuple[int, ...], tuple[int, ...], DType], Tensor]  # of these shape and strides
Launch = Callable[[Sequence[int], int], None]  # addresses of the tensors' first elements in prototype order, address of the workspace


@dataclass(frozen=True, slots=True)
class Call:
    """A call that every check has passed: tensors in prototype order, converted attributes, the sizes of the named axes.

    A tensor that is not there, or an output that is not to be computed, is ABSENT.
    """

    spec: OpSpec
    tensors: tuple[Tensor, ...]
    attrs: Mapping[str, Any]
    axes: Mapping[str, Any]  # a tuple for a group

    def __getitem__(self, name: str) -> Tensor:
        found = self.get(name)
        if found is None:
            raise KeyError(f"{name} of {self.spec.name} is absent in this call: ask for it with get")
        return found

    def get(self, name: str) -> Tensor | None:
        """A tensor, or None if it is absent."""
        found = self.tensors[self.spec.numbers[name]]
        return None if found is ABSENT else found


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
        self.spec, self.attrs, self.api = spec, attrs, api
        self.tensors = {param.name: tensors.get(param.name) for param in spec.tensors}
        self.product, self.names, self.superset, self.allocate = product, names, superset, allocate
        self.axes: dict[str, Any] = {}
        self.origin: dict[str, str] = {}
        self.known = {attr.alias or attr.name: attrs[attr.name] for attr in spec.attrs}  # what expressions may name
        self.known |= {param.name: self.tensors[param.name] is not None for param in spec.inputs if param.optional}

    def refuse(self, code: int, name: str, text: str, mend: str) -> NoReturn:
        raise AclnnError(code, self.api, f"{self.shown(name)} {text}. {mend}")

    def shown(self, name: str) -> str:
        return self.names.get(name, name)

    def spelled(self, text: str) -> str:
        """A sentence of a rule, with the caller's spellings of the parameters that it names in braces."""
        return text.format_map({param.name: self.shown(param.name) for param in self.spec.params})

    def present(self) -> list[tuple[Param, Tensor]]:
        tensors = self.tensors
        return [(param, tensor) for param in self.spec.tensors if (tensor := tensors[param.name]) is not None]

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.tensors[name]
        if tensor is None:
            raise RuntimeError(f"{self.api}: {name} is read before it is there; the specification's stages are out of order")
        return tensor

    def name_axis(self, axis: str, size: Any, origin: str) -> None:
        self.axes[axis], self.origin[axis] = size, origin
        self.known.setdefault(axis.removeprefix("*"), size)  # an attribute of that name is the same

    def value_of(self, expression: str) -> Any:
        return eval(compiled(expression), self.spec.scope, self.known)

    # The stages, in the framework's order; `describe` below says each in words.

    def nulls(self) -> None:
        for param in self.spec.tensors:
            needed = self.needed(param)
            if param.needed and param.output and needed is False:
                self.tensors[param.name] = None
            elif needed and self.tensors[param.name] is None and not (param.output and self.allocate):
                said = re.sub(r"\w+", lambda name: self.shown(name[0]), param.needed)
                why = f", because of {said}" if said else ""
                self.refuse(161001, param.name, f"must be a tensor{why}; got a null pointer (None)", "Pass the tensor.")
        for attr in self.spec.attrs:
            if attr.refuses_null(self.superset) == 161001:
                self.check_null(attr)

    def needed(self, param: Param) -> bool | None:
        """Whether a tensor must be there; None where attributes that say so are not allowed themselves, which a later pass refuses."""
        if not param.needed:
            return not param.optional
        said = [attr for attr in self.spec.attrs if (attr.alias or attr.name) in compiled(param.needed).co_names]
        return None if any(attr.violation(self.attrs[attr.name]) for attr in said) else bool(self.value_of(param.needed))

    def check_null(self, attr: Attr) -> None:
        code = attr.refuses_null(self.superset)
        if code and self.attrs[attr.name] is None:
            self.refuse(code, attr.name, f"must be {attr.domain}; got a null pointer (None)", attr.null_mend)

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
            rule = self.relation(param)
            if rule is None:
                continue
            want = self.result_dtype(param)
            also = rule.also if isinstance(rule, Same) else ()
            loose = isinstance(rule, Promote) and rule.castable and dtypes.castable(want, tensor.dtype)
            if tensor.dtype != want and tensor.dtype.name not in also and not loose:
                of = ", ".join(f"{self.shown(name)} ({self[name].dtype})" for name in self.related(rule))
                how = "that of" if isinstance(rule, Same) else "the promotion of"
                wider = "".join(f", or {name}" for name in also if name != want.name)
                self.refuse(161002, param.name, f"must have dtype {want}, {how} {of}{wider}; got {tensor.dtype}", f"Use {want}.")

    def relation(self, param: Param) -> Same | Promote | None:
        """How the dtype of a tensor depends on others that are there."""
        rule = param.dtype
        while isinstance(rule, Same) and self.tensors[rule.name] is None:
            rule = rule.otherwise
        return rule

    def related(self, rule: Same | Promote | Broadcast) -> list[str]:
        names = (rule.name,) if isinstance(rule, Same) else rule.names
        return [name for name in names if self.tensors[name] is not None]

    def result_dtype(self, param: Param) -> DType:
        rule = self.relation(param)
        if isinstance(rule, Same):
            return self[rule.name].dtype
        if rule is None:
            return dtypes.by_name(param.dtypes[0])
        names = self.related(rule)
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
            rank, options = len(tensor.shape), param.patterns or (("*",),)
            if not any(patterns.fits_rank(pattern, rank) for pattern in options):
                fixed = [f" [{', '.join(pattern)}]" if not any(map(patterns.is_group, pattern)) else "" for pattern in options]
                expected = " or ".join(patterns.rank_words(pattern) + shown for pattern, shown in zip(options, fixed, strict=True))
                self.refuse(161002, param.name, f"must have {expected}; got {rank}, shape {tensor.shape}", "Reshape it.")

    def shapes(self) -> None:
        for attr in self.spec.shape_attrs:
            self.check_attr(attr)
        for attr in self.spec.attrs:
            if any(attr.alias in param.axes for param in self.spec.tensors):
                self.name_axis(attr.alias, self.attrs[attr.name], self.shown(attr.name))
        late = self.spec.late
        for let in self.spec.lets:
            if let.axis not in late:
                self.let(let)
        for param in self.spec.inputs:
            self.match(param, skip=late)
        self.absent_axes(late)
        for rule in self.spec.rules:
            if isinstance(rule, Let) and rule.axis in late:
                self.let(rule)
            elif isinstance(rule, Rule) and rule.stage == "shapes":
                self.check_rule(rule)
        for param in self.spec.inputs:
            if late.intersection(param.axes):
                self.match(param)
        for param in self.spec.outputs:
            self.check_output_shape(param)

    def let(self, rule: Let) -> None:
        self.name_axis(rule.axis, self.value_of(rule.expression), self.spelled(rule.sentence))

    def absent_axes(self, late: frozenset[str]) -> None:
        """Axes that only tensors have that are absent."""
        for param in self.spec.inputs:
            for axis in param.axes if self.tensors[param.name] is None else ():
                if axis not in self.axes and axis not in late:
                    self.name_axis(axis, () if patterns.is_group(axis) else 1, f"as {self.shown(param.name)} is absent")

    def match(self, param: Param, skip: frozenset[str] = frozenset()) -> None:
        """Give the named axes of an input their sizes, or compare them."""
        tensor = self.tensors[param.name]
        pattern = None if tensor is None else next((p for p in param.patterns if patterns.fits_rank(p, len(tensor.shape))), None)
        if tensor is None or pattern is None:
            return
        sizes = patterns.divided(pattern, tensor.shape, self.axes)
        if sizes is None:
            self.mismatch(param, pattern, "Give it the dimensions that it lacks, or take some away.")
        for axis, size in sizes.items():
            if axis not in skip and self.axes.get(axis, size) != size:
                self.mismatch(param, pattern, f"Make its {axis} {self.axes[axis]}.")
        for axis, size in (dict.fromkeys(param.axes, 1) | sizes).items():  # axes of other patterns are 1
            if axis not in skip and axis not in self.axes:
                self.name_axis(axis, size, f"from {self.shown(param.name)}")

    def mismatch(self, param: Param, pattern: patterns.Pattern, mend: str) -> NoReturn:
        bound = self.bound(axis for axis in pattern if axis in self.axes)
        shape = self[param.name].shape
        self.refuse(161002, param.name, f"must have shape [{', '.join(pattern)}] with {bound}; got {shape}", mend)

    def bound(self, names: Iterable[str]) -> str:
        return ", ".join(f"{axis} = {self.axes[axis]} ({self.origin[axis]})" for axis in names)

    def output_patterns(self, param: Param) -> Sequence[patterns.Pattern] | Broadcast:
        """The patterns of which an output has one, or what it is the broadcast of."""
        shape = param.shape
        if isinstance(shape, When):
            shape = shape.then if self.value_of(shape.condition) else shape.otherwise
        return shape if isinstance(shape, Broadcast) else patterns.patterns(shape)

    def output_shapes(self, param: Param) -> list[tuple[int, ...]]:
        """The shapes that an output may have."""
        options = self.output_patterns(param)
        if isinstance(options, Broadcast):
            return [self.broadcast(self.related(options))]
        found = []
        for pattern in options:
            sizes = [int(axis) if axis.isdigit() else self.axes[axis] for axis in pattern]
            found.append(tuple([size for each in sizes for size in (each if isinstance(each, tuple) else (each,))]))
        return found

    def reasons(self, param: Param) -> list[str]:
        """Why an output has these shapes."""
        options = self.output_patterns(param)
        if isinstance(options, Broadcast):
            return ["the broadcast of " + " and ".join(f"{self.shown(name)} {self[name].shape}" for name in self.related(options))]
        named = [[axis for axis in pattern if not axis.isdigit()] for pattern in options]
        return [f"[{', '.join(pattern)}]" + (f": {self.bound(axes)}" if axes else "") for pattern, axes in zip(options, named, strict=True)]

    def broadcast(self, names: Sequence[str]) -> tuple[int, ...]:
        shape = broadcast([self[name].shape for name in names])
        if shape is None:
            first, *rest = names
            others = " and ".join(f"{self.shown(name)} {self[name].shape}" for name in rest)
            mend = "Right-aligned dimensions must be equal, or one of them 1, and all together 2**60 elements at most."
            self.refuse(161002, first, f"must broadcast with {others}; got {self[first].shape}", mend)
        return shape

    def check_output_shape(self, param: Param) -> None:
        tensor, options = self.tensors[param.name], self.output_shapes(param)
        if tensor is None or tensor.shape in options:
            return
        expected = " or ".join(f"{shape}, {reason}" for shape, reason in zip(options, self.reasons(param), strict=True))
        mend = f"Pass an output of shape {' or '.join(map(str, options))}."
        self.refuse(161002, param.name, f"must have shape {expected}; got {tensor.shape}", mend)

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
        self.check_null(attr)
        value = self.attrs[attr.name]
        expected = attr.violation(value)
        if expected is not None:
            self.refuse(attr.code, attr.name, f"must be {expected}; got {told(value)}", "Change this value.")

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
            known = [name for name in dict.fromkeys(compiled(condition).co_names) if name in self.known]
            got = ", ".join(f"{name} = {self.known[name]}" for name in known)
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
                if self.tensors[param.name] is None and (not param.needed or self.needed(param)):
                    shape = self.output_shapes(param)[0]
                    alike = [tensor for other, tensor in self.present() if not other.output] if self.spec.elementwise else []
                    self.tensors[param.name] = self.allocate(param, shape, strides_like(shape, alike), self.result_dtype(param))
        outputs = [(param, tensor) for param, tensor in self.present() if param.output]
        for i, (param, tensor) in enumerate(outputs):
            for other, before in outputs[:i]:
                if overlap.between(tensor, before):
                    self.refuse(
                        161002,
                        param.name,
                        f"must have memory of its own; got memory that is shared with {self.shown(other.name)}",
                        "Pass outputs that do not overlap.",
                    )
        places = [self.tensors[param.name] for param in self.spec.tensors]
        return Call(self.spec, tuple([ABSENT if place is None else place for place in places]), self.attrs, self.axes)


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
