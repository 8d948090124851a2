"""Write docs/operators.md from the operators' specifications; with --check, say whether it is up to date."""

import pathlib
import sys

from anycann.describe import checks, dtype_table, parameter
from anycann.ops import OPERATORS
from anycann.spec import OpSpec, Tensor

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "operators.md"
HEAD = """# The operators

Made from the specifications by `python tools/operator_docs.py`; do not edit by hand. Checks stand in the order in which they are made:
a call with several mistakes gets the code of the first. `help()` of a Python function says the same.
"""


def section(spec: OpSpec) -> str:
    """One operator in Markdown."""
    doors = f"`anycann.{spec.python}`" + (
        f", `anycann.aclnn.{spec.name}GetWorkspaceSize` and `anycann.aclnn.{spec.name}`" if spec.two_phase else ""
    )
    lines = [
        f"## {spec.name}",
        "",
        spec.summary,
        "",
        f"Python: {doors}.",
        "",
        "```text",
        *(part.strip() for part in spec.formula.split(";")),
        "```",
    ]
    lines += ["", "| parameter | Python | what it is |", "|---|---|---|"]
    lines += [f"| {param.name} | {param.python} | {parameter(spec, param).replace('|', '/')} |" for param in spec.params]
    tensors = [param for param in spec.params if isinstance(param, Tensor)]
    lines += ["", f"| product | {' | '.join(param.name for param in tensors)} |", "|---" * (len(tensors) + 1) + "|"]
    tables = [dtype_table(spec, param) for param in tensors]
    for rows in zip(*tables, strict=True):
        lines.append(f"| {rows[0][0].series} | {' | '.join(', '.join(names) for _, names in rows)} |")
    lines += ["", "Checks:", ""]
    lines += [f"{number}. {code}: {text.replace('|', '/')}" for number, (code, text) in enumerate(checks(spec), 1)]
    lines += ["", "Accuracy:", "", *(f"* {key}: {text}" for key, text in spec.accuracy.items())]
    lines += ["", "Notes:", "", *(f"* {note}" for note in spec.notes), "", "```python", spec.example, "```"]
    return "\n".join(lines) + "\n"


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(section(operator.spec) for operator in OPERATORS)])


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(0 if PAGE.read_text() == page() else "docs/operators.md is out of date: run python tools/operator_docs.py")
    PAGE.write_text(page())
