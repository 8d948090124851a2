"""The commands and their arguments. What they do is in the other modules of this folder, imported when a command runs."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from anycann import __version__
from anycann.cli.bench import bench_command
from anycann.cli.config import config_command
from anycann.cli.options import Json
from anycann.cli.output import Wrong, console, print_table, styled, table, write_json
from anycann.cli.run import RunCommand, run_command
from anycann.errors import AclnnError

__all__ = ["app"]


class _Group(TyperGroup):
    """Shows the user's mistakes in one line; our own faults keep their traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (Wrong, AclnnError) as error:
            console(stderr=True).print(f"anycann: {error}", soft_wrap=True)
            raise typer.Exit(2) from None


app = typer.Typer(
    name="anycann",
    cls=_Group,
    help="Run Ascend CANN's aclnn operators on this machine: look them up, check their accuracy, see what they do.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Product = Annotated[str | None, typer.Option("--product", metavar="NAME", help="The product whose contract holds; a SoC or series name.")]


def _version(wanted: bool) -> None:
    if wanted:
        print(f"anycann {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Options of the program itself."""


@app.command("list")
def list_command() -> None:
    """The operators: names, what they compute, doors, products."""
    from anycann.cli import show

    show.list_operators(console())


@app.command("show")
def show_command(op: Annotated[str, typer.Argument(metavar="OP", help="Official or Python name, in any case.")]) -> None:
    """Everything about one operator: formula, parameters, dtypes, checks and their codes, accuracy, example."""
    from anycann.cli import names, show

    show.show(console(), names.find_operator(op))


@app.command("explain")
def explain_command(code: Annotated[str, typer.Argument(metavar="CODE", help="A status code: number or name.")]) -> None:
    """What a status code means, when it is given, and what to do."""
    from anycann.cli import show

    show.explain(console(), code)


@app.command("check")
def check_command(
    op: Annotated[str | None, typer.Argument(metavar="OP", help="Only this operator.")] = None,
    json: Json = None,
    every: Annotated[bool, typer.Option("--all", help="Every workload, also those of more than 4 million elements.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of the random inputs.")] = 0,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="Only this dtype.")] = None,
    values: Annotated[str, typer.Option(metavar="normal|L0", help="Distribution of the inputs; L0 is that of standard S3.")] = "normal",
    product: Product = None,
) -> None:
    """Compare results with golden values by the standards S1 and S2. Exit status 1 if one is failed."""
    from anycann import ops
    from anycann.check import samples
    from anycann.cli import checking, names

    if values not in samples.DISTRIBUTIONS:
        raise Wrong(f"--values {values}: must be one of {', '.join(samples.DISTRIBUTIONS)}")
    chosen = names.product_of(product)
    names.require_kernels()
    operators = list(ops.OPERATORS) if op is None else [names.find_operator(op)]
    skipped = [] if op else [operator for operator in operators if chosen not in operator.spec.products]
    jobs = checking.plan([operator for operator in operators if operator not in skipped], chosen, dtype, every)
    cases = checking.run(jobs, chosen, seed, values)
    if json != "-":
        out = console()
        checking.print_cases(out, cases, chosen)
        for operator in skipped:
            out.print(f"Not on {chosen.series}: {operator.spec.name}.")
    data = checking.as_json(cases, skipped, chosen)
    if json:
        write_json(data, json)
    raise typer.Exit(0 if data["passed"] else 1)


@app.command("doctor")
def doctor_command(json: Json = None) -> None:
    """Versions, CPU, caches, and whether every operator works here. Exit status 1 if something needed is broken."""
    from anycann.cli import doctor

    found = list(doctor.findings())
    broken = any(finding.state == "BROKEN" for finding in found)
    if json != "-":
        rows = table("what", "state", "found", fixed=("state",))
        for finding in found:
            rows.add_row(finding.topic, styled(finding.state), finding.text)
        print_table(console(), rows)
    if json:
        write_json({"format": "anycann doctor 1", "findings": [finding._asdict() for finding in found], "broken": broken}, json)
    raise typer.Exit(1 if broken else 0)


@app.command("demo")
def demo_command(
    json: Json = None,
    scale: Annotated[str, typer.Option(metavar="real|small", help="Size of the input.")] = "real",
    product: Product = None,
) -> None:
    """Every operator on input of real size, beside the same formula in NumPy: time, bandwidth, error. About a minute."""
    import time

    from anycann.cli import demo, names

    if scale not in demo.SCALES:
        raise Wrong(f"--scale {scale}: must be one of {', '.join(demo.SCALES)}")
    chosen = names.product_of(product)
    names.require_kernels()
    start = time.perf_counter()
    todo, missing = demo.jobs(chosen, scale)
    rows = list(demo.run(todo, chosen))
    if json != "-":
        demo.print_rows(console(), rows, missing, time.perf_counter() - start)
    if json:
        write_json(demo.as_json(rows, missing, chosen, scale), json)
    raise typer.Exit(0 if all(row.right for row in rows) else 1)


app.command("bench")(bench_command)
app.command("config")(config_command)
app.command("run", cls=RunCommand, help="\n\n".join(" ".join(part.split()) for part in str(run_command.__doc__).split("\n\n")))(run_command)
