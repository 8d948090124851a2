"""`anycann check`: every operator against its golden values, judged by the standards."""

from typing import Any

from rich.console import Console

import anycann
from anycann.check import report, samples, standards
from anycann.check.report import Case
from anycann.cli.output import Wrong, number, print_table, progress, styled, table, titled
from anycann.products import Product
from anycann.runtime import Operator
from anycann.spec import Workload

__all__ = ["as_json", "plan", "print_cases", "run"]

WORDS = {"pass": "pass", "fail": "FAIL", "not attainable": "n/a"}

Job = tuple[Operator, Workload, str]


def plan(operators: list[Operator], product: Product, dtype: str | None, every: bool) -> list[Job]:
    """What to check: operators x workloads x dtypes. `Wrong` for a dtype that none of the operators has.

    All dtypes are those of the product; one that is asked for by name may also be one that only the Python functions take.
    """
    listed = {operator.spec.name: samples.output_dtypes(operator.spec, product, superset=dtype is not None) for operator in operators}
    jobs = [
        (operator, workload, name)
        for operator in operators
        for workload in report.cases(operator.spec, every)
        for name in listed[operator.spec.name]
        if dtype in (None, name)
    ]
    if not jobs:
        names = dict.fromkeys(name for dtypes in listed.values() for name in dtypes)
        raise Wrong(f"--dtype {dtype}: must be one of {', '.join(names)} on {product.series}")
    return jobs


def run(jobs: list[Job], product: Product, seed: int, distribution: str) -> list[Case]:
    """The cases, one after the other."""
    cases = []
    with progress(len(jobs)) as steps:
        for operator, workload, dtype in jobs:
            steps.say(f"{operator.spec.python} {workload.name} {dtype}")
            cases.append(report.check(operator, workload, dtype, product, seed=seed, distribution=distribution, progress=steps.advance))
    return cases


def print_cases(out: Console, cases: list[Case], product: Product) -> None:
    """A table for each operator, what was noticed, and a last line that counts."""
    for name in dict.fromkeys(case.python for case in cases):
        mine = [case for case in cases if case.python == name]
        out.print(titled(name))
        _print_table(out, mine)
        for case in mine:
            for observation in case.observations:
                if observation.out_of_range:
                    out.print(f"{case.workload} {case.dtype}: {observation}")
            if not case.same_bits:
                out.print(f"{case.workload} {case.dtype}: one thread, writing over NaN, gave other bits", style="bold red")
        out.print()
    failed = sum(not case.passed for case in cases)
    out.print(f"{len(cases) - failed} passed, {failed} failed on {product.series}.", style="bold red" if failed else "")
    if any(output.unattainable for case in cases for output in case.outputs):
        out.print(
            "n/a: missed, as even the correctly rounded golden values miss it, or as the prescribed float32 sum must; ours are no worse."
        )


def _print_table(out: Console, cases: list[Case]) -> None:
    figures = ("max ULP", "MERE", "MARE")
    words = ("workload", "dtype", "output", "S1", "S2")
    rows = table(*words, *figures, "attainable?", right=figures, fixed=(*words[1:], "attainable?"), gap=1)
    for case in cases:
        for output in case.outputs:
            ours = output.ours
            rows.add_row(
                case.workload,
                case.dtype,
                output.name,
                *(styled(WORDS[output.verdict(name)]) for name in standards.STANDARDS),
                *(number(value) for value in (ours.max_ulp, ours.mere, ours.mare)),
                f"not {', '.join(output.unattainable)}" if output.unattainable else "yes",
            )
    print_table(out, rows)


def as_json(cases: list[Case], skipped: list[Operator], product: Product) -> dict[str, Any]:
    """Everything measured, with the thresholds that it was judged by."""
    return {
        "format": "anycann check 1",
        "version": anycann.__version__,
        "product": product.key,
        "thresholds": {name: limits._asdict() for name, limits in standards.THRESHOLDS.items()},
        "not_on_product": [operator.spec.name for operator in skipped],
        "cases": [case.as_json() for case in cases],
        "passed": all(case.passed for case in cases),
    }
