"""An operator's contract in words, read off its specification: for docstrings, the command line and the documentation."""

from anycann import axes
from anycann.products import PRODUCTS, Product
from anycann.spec import Attr, Broadcast, Let, OpSpec, Promote, Rule, Same, Shape, Tensor, When

__all__ = ["checks", "docstring", "dtype_table", "parameter"]


_ANY_SHAPE = "any shape"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def shape_words(spec: OpSpec, param: Tensor) -> str:
    """[T, H], [..., H], any shape, the broadcast of others, or which of these a condition chooses."""
    if isinstance(param.shape, When):
        return f"{_shape(param.shape.then)} if {param.shape.condition}, else {_shape(param.shape.otherwise)}"
    elsewhere = {axis for other in spec.tensors if other is not param for axis in other.axes} | {let.axis for let in spec.lets}
    if len(param.axes) == 1 and axes.is_group(param.axes[0]) and not elsewhere.intersection(param.axes):
        return _ANY_SHAPE
    return _shape(param.shape)


def _shape(shape: Shape) -> str:
    if isinstance(shape, Broadcast):
        return f"the broadcast of {' and '.join(shape.names)}"
    return " or ".join(axes.words(pattern) for pattern in axes.patterns(shape))


def dtype_words(param: Tensor) -> str:
    """The support list, and how the dtype depends on others."""
    words = " | ".join(param.dtypes + param.superset)
    if isinstance(param.dtype, Same):
        return f"{words}, {_same(param.dtype)}"
    if isinstance(param.dtype, Promote):
        how = "any that it casts to from" if param.dtype.castable else "exactly"
        return f"{words}, {how} the promotion of {' and '.join(param.dtype.names)}"
    return words


def _same(rule: Same) -> str:
    words = " or ".join((f"that of {rule.name}", *rule.also))
    return words if rule.otherwise is None else f"{words} (without {rule.name}: {_same(rule.otherwise)})"


def parameter(spec: OpSpec, param: Tensor | Attr) -> str:
    """One line on a parameter: kind, shape or domain, dtypes, what it is."""
    if isinstance(param, Tensor):
        kind = ("optional " if param.optional else "") + ("output" if param.output else "input")
        where = f" where {param.needed}" if param.needed else ""
        return f"{kind} {shape_words(spec, param)}{where}; {dtype_words(param)}; {param.doc}"
    default = "" if param.required else f", default {param.default!r}"
    alias = f" ({param.alias})" if param.alias else ""
    return f"{param.ctype.replace(' *', '*')}{alias}, {param.domain}{default}; {param.doc}"


def dtype_table(spec: OpSpec, param: Tensor) -> list[tuple[Product, tuple[str, ...]]]:
    """The dtypes of a tensor on each product that has the operator."""
    return [(product, spec.dtypes(param, product)) for product in PRODUCTS if product in spec.products]


def checks(spec: OpSpec) -> list[tuple[int, str]]:
    """Every check in the order in which it is made, with the code of its refusal."""
    return [row for stage in spec.stages for row in _STAGE_ROWS[stage](spec)]


def _nulls(spec: OpSpec) -> list[tuple[int, str]]:
    needed = [param.name for param in spec.tensors if not (param.optional or param.needed)]
    needed += [attr.name for attr in spec.attrs if attr.refuses_null() == 161001]
    rows = [(161001, f"{_listed(tuple(needed))} must not be null")]
    return rows + [(161001, f"{param.name} must not be null where {param.needed}") for param in spec.tensors if param.needed]


def _dtypes(spec: OpSpec) -> list[tuple[int, str]]:
    rows = []
    for param in spec.tensors:
        if_any = " (bfloat16 on products that have it)" if "bfloat16" in param.dtypes else ""
        rows.append((161002, f"{param.name} has dtype {' | '.join(param.dtypes)}{if_any}, format ND"))
    return rows


def _promotion(spec: OpSpec) -> list[tuple[int, str]]:
    return [(161002, f"{param.name}: {dtype_words(param)}") for param in spec.tensors if param.dtype is not None]


def _ranks(spec: OpSpec) -> list[tuple[int, str]]:
    options = [(param.name, param.patterns or (("*",),)) for param in spec.tensors]
    return [(161002, f"{name} has {' or '.join(dict.fromkeys(map(axes.rank_words, patterns)))}") for name, patterns in options]


def _shape_attrs(spec: OpSpec) -> list[Attr]:
    """Attributes that shapes depend on, where shapes are checked before the other attributes."""
    first = spec.stages.index("shapes") < spec.stages.index("attributes")
    return [attr for attr in spec.shape_attrs if first and attr.limited]


def _shapes(spec: OpSpec) -> list[tuple[int, str]]:
    rows = [(attr.code, f"{attr.name} is {attr.domain}") for attr in _shape_attrs(spec)]
    for rule in spec.rules:
        if isinstance(rule, Let):
            rows.append((161002, f"{rule.axis} is {rule.expression}"))
        elif rule.stage == "shapes":
            rows.append(_rule(rule))
    shapes = ((param.name, shape_words(spec, param)) for param in spec.tensors)
    return rows + [(161002, f"{name} has shape {words}") for name, words in shapes if words != _ANY_SHAPE]


def _rule(rule: Rule) -> tuple[int, str]:
    wider = ""
    if rule.superset is not None:
        wider = f" (the Python function: {rule.superset})" if rule.superset else " (not asked by the Python function)"
    sentence = rule.sentence.replace("{", "").replace("}", "")
    return rule.code, f"{rule.parameter} {sentence}: {rule.condition}{wider}"


def _storage(spec: OpSpec) -> list[tuple[int, str]]:
    return [(561103, "every view lies inside its storage")]


def _aliases(spec: OpSpec) -> list[tuple[int, str]]:
    names = _listed(tuple(param.name for param in spec.outputs))
    return [(161002, f"{names}: writable, and no two elements share memory")]


def _attributes(spec: OpSpec) -> list[tuple[int, str]]:
    rest = [attr for attr in spec.attrs if attr.limited and attr not in _shape_attrs(spec)]
    return [(attr.code, f"{attr.name} is {attr.domain}") for attr in rest]


def _tiling(spec: OpSpec) -> list[tuple[int, str]]:
    return [_rule(rule) for rule in spec.rules if isinstance(rule, Rule) and rule.stage == "tiling"]


def _empty(spec: OpSpec) -> list[tuple[int, str]]:
    return [_rule(rule) for rule in spec.rules if isinstance(rule, Rule) and rule.stage == "empty"]


def _product(spec: OpSpec) -> list[tuple[int, str]]:
    return [(561003, f"the product is {' or '.join(product.series for product in spec.products)}")]


_STAGE_ROWS = {
    "nulls": _nulls,
    "dtypes": _dtypes,
    "promotion": _promotion,
    "ranks": _ranks,
    "shapes": _shapes,
    "storage": _storage,
    "aliases": _aliases,
    "attributes": _attributes,
    "tiling": _tiling,
    "empty": _empty,
    "product": _product,
}


def docstring(spec: OpSpec) -> str:
    """The documentation of an operator's Python function."""
    lines = [spec.summary, "", *(part.strip() for part in spec.formula.split(";")), "", "Parameters:"]
    lines += [f"    {param.python}: {parameter(spec, param)}" for param in spec.params if not (isinstance(param, Tensor) and param.output)]
    outputs = _listed(tuple(param.python for param in spec.outputs))
    lines += [f"    out: where to write {outputs}" + ("" if len(spec.outputs) == 1 else " (a tuple)") + "; None makes new arrays"]
    lines += ["    product: the product whose contract holds for this call; None is the one in force", "", "Returns:"]
    lines += [f"    {param.python}: {parameter(spec, param)}" for param in spec.outputs]
    lines += ["", "Raises:", "    AclnnError, with the code in .status, in this order of checks:"]
    lines += [f"    {code}: {text}" for code, text in checks(spec)]
    lines += ["    TypeError: an argument of a Python type that no conversion exists for", "", "Accuracy:"]
    lines += [f"    {key}: {text}" for key, text in spec.accuracy.items()]
    lines += ["", "Notes:", *(f"    {note}" for note in spec.notes)]
    lines += ["", "Example:", *(f"    {line}" for line in spec.example.splitlines())]
    lines += ["", f"Source: {spec.source}. Products: {_listed(tuple(product.series for product in spec.products))}."]
    return "\n".join(lines) + "\n"
