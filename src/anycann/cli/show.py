"""`anycann list`, `anycann show OP` and `anycann explain CODE`: contracts and status codes in words."""

import textwrap

from rich.console import Console
from rich.text import Text

from anycann import describe, errors, ops
from anycann.cli.names import doors, product_label
from anycann.cli.output import Wrong, print_table, table, titled
from anycann.products import PRODUCTS
from anycann.runtime import Operator
from anycann.spec import OpSpec

__all__ = ["explain", "list_operators", "show"]


def list_operators(out: Console) -> None:
    """One entry for every operator."""
    rows = table("operator", "what it computes", "doors", "products", fixed=("operator",))
    for spec in (operator.spec for operator in ops.OPERATORS):
        names = Text(spec.name, style="bold").append(f"\n{spec.python}", style="not bold")
        rows.add_row(names, spec.summary, " ".join(doors(spec)), " ".join(map(product_label, spec.products)))
        rows.add_section()
    print_table(out, rows)
    out.print("anycann show OP prints everything about one of them.")


def _entries(out: Console, title: str, entries: list[str]) -> None:
    if not entries:
        return
    out.print()
    out.print(titled(title))
    for entry in entries:
        out.print(Text(textwrap.fill(entry, out.width - 1, initial_indent="  ", subsequent_indent="    ")))


def show(out: Console, operator: Operator) -> None:
    """Everything that the contract of one operator says."""
    spec = operator.spec
    out.print(titled(spec.name))
    out.print(f"anycann.{spec.python}   doors: {', '.join(doors(spec))}")
    out.print(f"\n{spec.summary}")
    _entries(out, "Formula", [part.strip() for part in spec.formula.split(";")])
    _parameters(out, spec)
    _dtypes(out, spec)
    out.print()
    out.print(titled("Checks, in this order"))
    for code, text in describe.checks(spec):
        out.print(Text(textwrap.fill(text, out.width - 1, initial_indent=f"  {code}  ", subsequent_indent=" " * 10)))
    _entries(out, "Accuracy", [f"{key}: {text}" for key, text in spec.accuracy.items()])
    _entries(out, "Notes", list(spec.notes))
    _workloads(out, spec)
    out.print()
    out.print(titled("Example"))
    out.print(textwrap.indent(spec.example, "  "), soft_wrap=True)
    _entries(out, "Source", [spec.source])


def _parameters(out: Console, spec: OpSpec) -> None:
    out.print()
    out.print(titled("Parameters, in the order of the C prototype" if spec.two_phase else "Parameters"))
    rows = table("parameter", "description", fixed=("parameter",))
    for param in spec.params:
        names = Text(param.name, style="bold")
        if param.python != param.name:
            names.append(f"\n{param.python}", style="not bold")
        if spec.two_phase:
            names.append(f"\n{param.ctype}", style="dim not bold")
        words = describe.parameter(spec, param)
        rows.add_row(names, words.removeprefix(param.ctype.replace(" *", "*")).lstrip(", ") if spec.two_phase else words)
        rows.add_section()
    print_table(out, rows)


def _dtypes(out: Console, spec: OpSpec) -> None:
    """Products with the same support lists share a row, tensors with the same lists a column."""
    lists = {param.name: tuple(describe.dtype_table(spec, param)) for param in spec.tensors}
    columns = {same: [name for name in lists if lists[name] == same] for same in lists.values()}
    by_dtypes: dict[tuple[tuple[str, ...], ...], list[str]] = {}
    for place, product in enumerate(product for product in PRODUCTS if product in spec.products):
        by_dtypes.setdefault(tuple(column[place][1] for column in columns), []).append(product.series)
    out.print()
    out.print(titled("Dtypes"))
    rows = table("product", *(", ".join(names) for names in columns.values()))
    for listed, series in by_dtypes.items():
        rows.add_row(", ".join(series), *(" ".join(names) for names in listed))
    print_table(out, rows)
    for name in dict.fromkeys(name for param in spec.tensors for name in param.superset):
        wider = ", ".join(param.name for param in spec.tensors if name in param.superset)
        out.print(Text(textwrap.fill(f"Python functions also take {name} for {wider}.", out.width - 1)))


def _workloads(out: Console, spec: OpSpec) -> None:
    entries = []
    for workload in spec.workloads:
        shapes = ", ".join(f"{name} {list(shape)}" for name, shape in workload.shapes.items())
        attrs = "".join(f", {name} = {value!r}" for name, value in workload.attrs.items())
        entries.append(f"{workload.name}: {shapes}{attrs}")
    _entries(out, "Workloads", entries)


def explain(out: Console, code: str) -> None:
    """What a status code means, when it is given, and what to do."""
    try:
        row = errors.status(code.strip())
    except (KeyError, ValueError):
        known = "\n".join(f"  {row.value:>6}  {row.name}" for row in errors.CODES.values())
        raise Wrong(f"no status code is {code!r}. Known codes:\n{known}") from None
    out.print(titled(f"{row.value} {row.name}"))
    out.print(f"When: {row.when}")
    out.print(f"What to do: {row.mend}")
