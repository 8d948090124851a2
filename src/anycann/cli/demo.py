"""`anycann demo`: the operators on input of real size: time, bandwidth and error, beside the same formula in NumPy."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

import anycann
from anycann import ops
from anycann.backends.threads import get_num_threads
from anycann.bench.naive import NAIVE
from anycann.check import golden, samples, standards
from anycann.check.standards import Figures, Tally
from anycann.cli.output import number, print_table, progress, table
from anycann.products import Product
from anycann.runtime import Operator
from anycann.spec import Workload

__all__ = ["SCALES", "Row", "as_json", "jobs", "print_rows", "run"]

Array = NDArray[Any]
Job = tuple[Operator, Workload, str]

SCALES = ("real", "small")
SAMPLE = 1 << 20  # golden values of about so many input elements
REPEATS = 7
NAIVE_SECONDS, NAIVE_REPEATS = 1.0, 3  # the NumPy formula is repeated until either is reached

ROWS: tuple[tuple[str, str, Mapping[str, Any], str], ...] = (
    ("gelu_backward_v2", "ffn", {"approximate": "none"}, "float32"),
    ("gelu_backward_v2", "ffn", {"approximate": "none"}, "bfloat16"),
    ("gelu_backward_v2", "ffn", {"approximate": "tanh"}, "float32"),
    ("gelu_backward_v2", "ffn", {"approximate": "tanh"}, "bfloat16"),
    ("gelu_v2", "ffn", {}, "float32"),
    ("gelu_v2", "ffn", {}, "bfloat16"),
    ("smooth_l1_loss", "mean", {}, "float32"),
    ("smooth_l1_loss_backward", "mean", {}, "float32"),
    ("layer_norm", "8192x4096", {}, "float32"),
    ("layer_norm", "8192x4096", {}, "bfloat16"),
    ("layer_norm_backward", "8192x4096", {}, "bfloat16"),
    ("layer_norm_grad", "8192x4096", {}, "float32"),
    ("layer_norm_grad_beta", "8192x4096", {}, "float32"),
    ("layer_norm_grad_beta", "8192x4096", {}, "bfloat16"),
    ("moe_token_permute", "mixtral", {}, "bfloat16"),
    ("moe_token_permute_grad", "mixtral", {}, "bfloat16"),
    ("moe_token_unpermute", "mixtral", {}, "bfloat16"),
    ("moe_token_unpermute_grad", "mixtral", {}, "bfloat16"),
    ("nsa_compress", "n4d128", {}, "bfloat16"),
    ("nsa_compress_grad", "n4d128", {}, "bfloat16"),
)


@dataclass(frozen=True)
class Row:
    """One measurement. Times are medians after a warm-up, errors those of `sampled` elements."""

    operator: str
    workload: str
    attrs: Mapping[str, Any]
    dtype: str
    seconds: float
    bytes: int  # inputs and outputs
    figures: tuple[Figures, ...]
    right: bool  # no output fails S1 or S2
    sampled: int
    elements: int
    numpy_seconds: float
    numpy_figures: tuple[Figures, ...]

    @property
    def max_ulp(self) -> float:
        return max(figures.max_ulp for figures in self.figures)

    @property
    def numpy_max_ulp(self) -> float:
        return max(figures.max_ulp for figures in self.numpy_figures)


def jobs(product: Product, scale: str) -> tuple[list[Job], list[str]]:
    """What to measure on a product, and what cannot be."""
    found: list[Job] = []
    missing = []
    for name, workload_name, attrs, dtype in ROWS:
        operator = next(operator for operator in ops.OPERATORS if operator.spec.python == name)
        spec = operator.spec
        if product not in spec.products or dtype not in samples.output_dtypes(spec, product):
            missing.append(f"{name} {dtype}")
            continue
        workload = spec.workloads[0] if scale == "small" else next(load for load in spec.workloads if load.name == workload_name)
        label = " ".join((workload.name, *attrs.values()))
        found.append((operator, replace(workload, name=label, attrs={**workload.attrs, **attrs}), dtype))
    return found, missing


def run(todo: list[Job], product: Product) -> Iterator[Row]:
    """Measure, one after the other."""
    with progress(len(todo)) as steps:
        for operator, workload, dtype in todo:
            steps.say(f"{operator.spec.python} {workload.name} {dtype}")
            yield _measure(operator, workload, dtype, product)
            steps.advance(1)


def _tuple(result: Any) -> tuple[Array, ...]:
    return result if isinstance(result, tuple) else (result,)


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def _naive(operator: Operator, inputs: Mapping[str, Array], attrs: Mapping[str, Any], dtype: str) -> tuple[float, tuple[Array, ...]]:
    """Median time and result of the NumPy formula, conversions to and from float32 included."""
    results: list[tuple[Array, ...]] = []

    def compute() -> None:
        wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float32, copy=False) for name, array in inputs.items()}
        values = _tuple(NAIVE[operator.spec.python](*samples.arguments(operator.spec, wide, attrs)))
        results[:] = [tuple(value.astype(inputs[operator.spec.inputs[0].name].dtype, copy=False) for value in values)]

    times: list[float] = []
    while len(times) < NAIVE_REPEATS and sum(times) < NAIVE_SECONDS:
        times.append(_seconds(compute))
    return statistics.median(times), results[0]


def _measure(operator: Operator, workload: Workload, dtype: str, product: Product) -> Row:
    spec = operator.spec
    inputs, attrs = samples.inputs(spec, workload, dtype), samples.attributes(spec, workload)
    values = samples.arguments(spec, inputs, attrs)
    first = operator.call(*values, product=product.key)
    results = _tuple(first)
    for result in results:
        result.fill(-1 if result.dtype.kind in "iu" else np.nan)
    _seconds(lambda: operator.call(*values, out=first, product=product.key))
    seconds = statistics.median(_seconds(lambda: operator.call(*values, out=first, product=product.key)) for _ in range(REPEATS))
    numpy_seconds, numpy_results = _naive(operator, inputs, attrs, dtype)
    ours, best, naive = ([Tally(result.dtype.name) for result in results] for _ in range(3))
    for part in golden.parts(operator, inputs, attrs, sample=SAMPLE):
        for i, (where, value) in enumerate(zip(part.where, part.values, strict=True)):
            ours[i].add(results[i][where], value)
            best[i].add(standards.round_to(value, best[i].dtype), value)
            naive[i].add(numpy_results[i][where], value)
    figures, rounded = [tally.figures() for tally in ours], [tally.figures() for tally in best]
    return Row(
        spec.python,
        workload.name,
        attrs,
        dtype,
        seconds,
        sum(array.nbytes for array in (*inputs.values(), *results)),
        tuple(figures),
        all(standards.verdict(name, a, b) != "fail" for name in standards.STANDARDS for a, b in zip(figures, rounded, strict=True)),
        sum(tally.elements for tally in ours),
        sum(result.size for result in results),
        numpy_seconds,
        tuple(tally.figures() for tally in naive),
    )


def print_rows(out: Console, rows: list[Row], missing: list[str], total: float) -> None:
    """The table, how it was measured, and one line that sums it up."""
    figures = ("ms", "GB/s", "max ULP", "NumPy\nms", "NumPy\nmax ULP", "times\nfaster")
    shown = table("operator, workload", "dtype", *figures, right=figures, fixed=("dtype", "operator, workload"), gap=1)
    for row in rows:
        title = Text(row.operator, style="bold").append(f"\n  {row.workload}", style="not bold")
        speed = (number(row.seconds * 1e3), number(row.bytes / row.seconds / 1e9)) if row.right else ("WRONG", "")
        ratio = f"{row.numpy_seconds / row.seconds:.1f}" if row.right else ""
        shown.add_row(title, row.dtype, *speed, number(row.max_ulp), number(row.numpy_seconds * 1e3), number(row.numpy_max_ulp), ratio)
    print_table(out, shown)
    out.print()
    shares = ", ".join(dict.fromkeys(f"{row.sampled:,} of {row.elements:,}" for row in rows))
    out.print(f"Time: median of {REPEATS} calls into given outputs, {get_num_threads()} threads. GB/s: inputs and outputs, once each.")
    out.print(f"Error: against float64 golden values of random slices ({shares} elements), in ULP of the output dtype.")
    out.print("NumPy: the formula in float32 as one would write it, math.erf for erf, rounded to the output dtype.")
    for name in missing:
        out.print(f"Not on this product: {name}.")
    out.print()
    out.print(summary(rows, total), style="bold")


def summary(rows: list[Row], total: float) -> str:
    """One line."""
    wrong = [f"{row.operator} {row.workload} {row.dtype}" for row in rows if not row.right]
    if wrong:
        return f"WRONG results: {', '.join(wrong)}."
    ratios = [row.numpy_seconds / row.seconds for row in rows]
    return (
        f"{len(rows)} measurements in {total:.0f} s, every result within S1 and S2: "
        f"{min(ratios):.1f} to {max(ratios):.1f} times as fast as NumPy, median {statistics.median(ratios):.1f}."
    )


def _s3(row: Row) -> list[dict[str, Any]]:
    """The dual benchmark of each output, with the NumPy formula as the second implementation."""
    pairs = zip(row.figures, row.numpy_figures, strict=True)
    return [standards.dual_benchmark(ours, other)._asdict() for ours, other in pairs]


def as_json(rows: list[Row], missing: list[str], product: Product, scale: str) -> dict[str, Any]:
    """Every figure of every row."""
    return {
        "format": "anycann demo 1",
        "version": anycann.__version__,
        "product": product.key,
        "scale": scale,
        "threads": get_num_threads(),
        "not_on_product": missing,
        "rows": [{**asdict(row), "S3_against_numpy": _s3(row)} for row in rows],
        "right": all(row.right for row in rows),
    }
