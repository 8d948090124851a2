"""An operator's contract in words, read off its specification: for docstrings, the command line and the documentation."""

from anycann.products import PRODUCTS, Product
from anycann.spec import MAX_RANK, Attr, Broadcast, Int, IntArray, Let, OpSpec, Promote, Rule, Same, Str, Tensor

__all__ = ["checks", "docstring", "dtype_table", "parameter"]


_ANY_SHAPE = "any shape"


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def shape_words(param: Tensor) -> str:
    """[T, H], [..., H], any shape, or the broadcast of others."""
    if isinstance(param.shape, Broadcast):
        return f"the broadcast of {' and '.join(param.shape.names)}"
    if len(param.axes) == 1 and param.axes[0].startswith("*"):
        return _ANY_SHAPE
    return f"[{', '.join('...' if axis.startswith('*') else axis for axis in param.axes)}]"


def dtype_words(param: Tensor) -> str:
    """The support list, and how the dtype depends on others."""
    words = " | ".join(param.dtypes + param.superset)
    if isinstance(param.dtype, Same):
        return f"{words}, that of {param.dtype.name}"
    if isinstance(param.dtype, Promote):
        how = "any that it casts to from" if param.dtype.castable else "exactly"
        return f"{words}, {how} the promotion of {' and '.join(param.dtype.names)}"
    return words


def parameter(param: Tensor | Attr) -> str:
    """One line on a parameter: kind, shape or domain, dtypes, what it is."""
    if isinstance(param, Tensor):
        return f"{'output' if param.output else 'input'} {shape_words(param)}; {dtype_words(param)}; {param.doc}"
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
    strings = tuple(attr.name for attr in spec.attrs if isinstance(attr, Str) and attr.null is None)
    return [(161001, f"{_listed(tuple(param.name for param in spec.tensors) + strings)} must not be null")]


def _dtypes(spec: OpSpec) -> list[tuple[int, str]]:
    rows = []
    for param in spec.tensors:
        if_any = " (bfloat16 on products that have it)" if "bfloat16" in param.dtypes else ""
        rows.append((161002, f"{param.name} has dtype {' | '.join(param.dtypes)}{if_any}, format ND"))
    return rows


def _promotion(spec: OpSpec) -> list[tuple[int, str]]:
    return [(161002, f"{param.name}: {dtype_words(param)}") for param in spec.tensors if param.dtype is not None]


def _ranks(spec: OpSpec) -> list[tuple[int, str]]:
    rows = []
    for param in spec.tensors:
        least = sum(not axis.startswith("*") for axis in param.axes)
        fixed = bool(param.axes) and least == len(param.axes)
        count = f"{least} dimension{'s' * (least > 1)}" if fixed else f"{least} to {MAX_RANK} dimensions"
        rows.append((161002, f"{param.name} has {count}"))
    return rows


def _shape_attrs(spec: OpSpec) -> list[Attr]:
    """Attributes that shapes depend on, where shapes are checked before the other attributes."""
    first = spec.stages.index("shapes") < spec.stages.index("attributes")
    return [attr for attr in spec.attrs if first and isinstance(attr, Int) and attr.alias]


def _shapes(spec: OpSpec) -> list[tuple[int, str]]:
    rows = [(attr.code, f"{attr.name} is {attr.domain}") for attr in _shape_attrs(spec)]
    for rule in spec.rules:
        if isinstance(rule, Let):
            rows.append((161002, f"{rule.axis} is {rule.expression}"))
        elif rule.stage == "shapes":
            rows.append(_rule(rule))
    return rows + [(161002, f"{param.name} has shape {shape_words(param)}") for param in spec.tensors if shape_words(param) != _ANY_SHAPE]


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
    rest = [attr for attr in spec.attrs if not isinstance(attr, IntArray) and attr not in _shape_attrs(spec)]
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
    lines += [f"    {param.python}: {parameter(param)}" for param in spec.params if not (isinstance(param, Tensor) and param.output)]
    outputs = _listed(tuple(param.python for param in spec.outputs))
    lines += [f"    out: where to write {outputs}" + ("" if len(spec.outputs) == 1 else " (a tuple)") + "; None makes new arrays"]
    lines += ["    product: the product whose contract holds for this call; None is the one in force", "", "Returns:"]
    lines += [f"    {param.python}: {parameter(param)}" for param in spec.outputs]
    lines += ["", "Raises:", "    AclnnError, with the code in .status, in this order of checks:"]
    lines += [f"    {code}: {text}" for code, text in checks(spec)]
    lines += ["    TypeError: an argument of a Python type that no conversion exists for", "", "Accuracy:"]
    lines += [f"    {key}: {text}" for key, text in spec.accuracy.items()]
    lines += ["", "Notes:", *(f"    {note}" for note in spec.notes)]
    lines += ["", "Example:", *(f"    {line}" for line in spec.example.splitlines())]
    lines += ["", f"Source: {spec.source}. Products: {_listed(tuple(product.series for product in spec.products))}."]
    return "\n".join(lines) + "\n"
