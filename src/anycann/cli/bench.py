"""`anycann bench`: every workload against other libraries and against the memory of this machine."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anycann.backends.threads import MOST
from anycann.cli.options import Json, writable
from anycann.cli.output import Wrong, console, number, print_table, progress, styled, table, titled, write_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from anycann.bench.run import Job, Settings

__all__ = ["bench_command"]

Result = Mapping[str, Any]

PEERS = "torch,compile,numpy"
DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
COLUMNS = {  # of the table of results, and the width that each needs
    "workload": 6,
    "dtype": 5,
    "thr": 3,
    "call": 4,
    "ms": 4,
    "GB/s": 4,
    "share": 5,
    "best peer": 11,
    "ratio [quartiles]": 11,
    "ULP : its": 7,
}
BUSY = 0.3  # load of each core from which on timings are doubtful


def bench_command(
    op: Annotated[str | None, typer.Argument(metavar="OP", help="Only this operator.")] = None,
    json: Json = None,
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE.png", help="Also draw bytes per second and ratios; needs matplotlib.", callback=writable),
    ] = None,
    peers: Annotated[
        str,
        typer.Option(
            metavar="NAMES", help="Whom to compare with: torch, compile, numpy (on a GPU torch, compile, liger, quack, te); or none."
        ),
    ] = PEERS,
    threads: Annotated[
        list[int] | None, typer.Option(metavar="N", min=1, max=MOST, help="Number of threads; may be repeated. Default: 1 and all cores.")
    ] = None,
    workload: Annotated[str | None, typer.Option(metavar="NAME", help="Only workloads of this name.")] = None,
    dtype: Annotated[str | None, typer.Option(metavar="NAME", help="This dtype instead of those that have targets.")] = None,
    repeat: Annotated[int | None, typer.Option(metavar="N", min=3, help="Rounds of timing. Default: 21, with --quick 5.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds, and no workload of more than 67 million elements.")] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="Where to run: cpu, or a CUDA device (cuda, cuda:1).")] = "cpu",
) -> None:
    """Speed against other libraries and against this machine's memory. Exit status 1 if a result is wrong."""
    from anycann.cli import names

    names.product_of(None)
    names.require_kernels()
    from anycann import ops
    from anycann.bench import plot as picture
    from anycann.bench import run

    operators = list(ops.OPERATORS) if op is None else [names.find_operator(op)]
    todo = run.jobs(operators, workload, dtype, quick)
    if not todo:
        known = dict.fromkeys(each.name for operator in operators for each in operator.spec.workloads)
        raise Wrong(f"nothing to measure: workloads are {', '.join(known)}; dtypes float32, float16, bfloat16")
    if plot is not None and not plot.endswith(picture.SUFFIXES):
        raise Wrong(f"--plot {plot}: must end in {', '.join(picture.SUFFIXES)}")
    if plot is not None and not picture.available():
        raise Wrong("--plot needs matplotlib: pip install 'anycann[bench]'")
    if device != "cpu":
        threads, todo = [1], [job for job in todo if job.operator.has_kernels("gpu")]
    settings = _settings(peers, threads, repeat, quick, device, overhead=workload is None and device == "cpu")
    out = console(stderr=json == "-")
    report = _measured(todo, settings, out, device)
    if json is not None:
        write_json(report, json)
    if plot is not None and any(not result["wrong"] for result in report["results"]):
        try:
            picture.draw(report, plot)
        except OSError as error:
            raise Wrong(f"--plot {plot}: {error.strerror}") from None
    raise typer.Exit(0 if report["right"] else 1)


def _settings(peers: str, threads: Sequence[int] | None, repeat: int | None, quick: bool, device: str, overhead: bool) -> "Settings":
    from anycann.bench import machine
    from anycann.bench.peers import GPU_LIBRARIES, LIBRARIES
    from anycann.bench.race import Rules
    from anycann.bench.run import Settings

    known = LIBRARIES if device == "cpu" else GPU_LIBRARIES
    asked = [*known] if peers == PEERS else [name.strip() for name in peers.split(",")]
    libraries = tuple(dict.fromkeys(name for name in asked if name not in ("", "none")))
    for name in libraries:
        if name not in known:
            raise Wrong(f"--peers {name}: must be some of {', '.join(known)}, or none")
    rules = Rules(repeat or (5 if quick else 21), 5.0 if quick else 60.0, libraries)
    counts = threads or (1, machine.cores())
    return Settings(rules, tuple(dict.fromkeys(counts)), quick, overhead=overhead)


def _device(name: str) -> dict[str, Any]:
    """How `report` measures on a CUDA device."""
    from anycann import cuda

    if name.partition(":")[0] != "cuda":
        raise Wrong(f"--device {name}: must be cpu, cuda or cuda:N")
    if not cuda.available():
        raise Wrong(f"--device {name}: needs a CUDA device, and a torch that finds it: pip install 'anycann[gpu]'")
    from anycann.bench.gpu import Device

    chosen = Device(name)
    return {"measure": chosen.measure, "described": chosen.describe}


def _measured(todo: Sequence["Job"], settings: "Settings", out: "Console", device: str = "cpu") -> dict[str, Any]:
    """Measure, and print each operator's table as soon as it is complete."""
    from anycann.bench import run

    pending: list[Result] = []

    def flush() -> None:
        _print_results(out, pending)
        pending.clear()

    with progress(len(todo) * len(settings.threads)) as steps:
        steps.say("ceilings")

        def shown(result: Result) -> None:
            if pending and pending[0]["operator"] != result["operator"]:
                flush()
            pending.append(result)
            steps.say(f"after {result['operator']} {result['workload']} {result['dtype']}")
            steps.advance(1)

        report = run.report(todo, settings, shown, **(_device(device) if device != "cpu" else {}))
        flush()
    _print_rest(out, report)
    return report


def _max_ulp(contender: Result) -> float:
    return max(float(output["max_ulp"]) for output in contender["error"])


def _remarks(results: Sequence[Result]) -> list[str]:
    """What was wrong; peers without a time, and peers whose results fail a standard, with the problems where they do."""
    found: dict[str, dict[str, None]] = {}
    for result in results:
        problem = f"{result['workload']} {DTYPES[result['dtype']]}"
        if result["wrong"]:
            found.setdefault(f"WRONG: {result['wrong']}", {})[f"{problem}, threads {result['threads']}"] = None
            continue
        for peer in result["contenders"]:
            misses = [name for name in result["attainable"] if not all(output[name] for output in peer["error"])]
            remark = peer["state"] if peer["state"] != "ok" else f"fails {' and '.join(misses)}" if misses else ""
            if remark:
                found.setdefault(f"{peer['name']} {remark}", {})[problem] = None
    return [f"{remark}: {', '.join(problems)}" for remark, problems in found.items()]


def _judged(text: str, reached: str | None) -> "Text":
    """A figure, and the step that it reaches."""
    from rich.text import Text

    styles = {"missed": "bold red", "goal": "green", "stretch": "bold green"}
    return Text(text) if reached is None else Text.assemble(f"{text} ", (reached, styles.get(reached, "")))


def _print_results(out: "Console", results: Sequence[Result]) -> None:
    """One operator's table: a line for each way to be called, one more where the best eager peer is compared, too; then remarks."""
    out.print(titled(results[0]["operator"]))
    rows = table(*COLUMNS, right=("thr", "ms", "GB/s"), fixed=("dtype", "call"), gap=1)
    for column in rows.columns:
        column.min_width = COLUMNS[str(column.header)]
    right = [result for result in results if not result["wrong"]]
    for result in right:
        for line in result["lines"]:
            _add_line(rows, result, line)
    if right:
        print_table(out, rows)
    for remark in _remarks(results):
        out.print(remark)
    out.print()


def _add_line(rows: "Table", result: Result, line: Result) -> None:
    compared = {each["kind"]: each for each in line["comparisons"]}
    share = compared.pop("ceiling", None)
    contenders = {each["name"]: each for each in result["contenders"]}
    ours = next(each for each in result["contenders"] if each["allocates"] == line["allocates"])
    unlimited = "" if result["ceiling"] or line["allocates"] else "in cache"
    head: list[Any] = [
        result["workload"],
        DTYPES[result["dtype"]],
        str(result["threads"]),
        "new" if line["allocates"] else "out=",
        f"{line['seconds']['median'] * 1e3:.3g}",
        f"{line['bytes_per_second'] / 1e9:.3g}",
        _judged(f"{share['value']['median']:.0%}", share["verdict"]) if share else unlimited,
    ]
    accuracy = number(_max_ulp(ours))
    if not compared:
        rows.add_row(*head, "", "", accuracy)
    for each in compared.values():
        value = each["value"]
        ratio = _judged(f"{value['median']:.2f} [{value['q1']:.2f}–{value['q3']:.2f}]", each["verdict"])
        rows.add_row(*head, each["name"], ratio, f"{accuracy} : {number(_max_ulp(contenders[each['name']]))}")
        head = [""] * len(head)


def _print_rest(out: "Console", report: dict[str, Any]) -> None:
    """Costs of a call, ceilings, and what the reader must know about this run."""
    if report["overhead"]:
        _print_costs(out, report["overhead"])
    rows = table("ceiling", "thr", "GB/s", "by", right=("thr", "GB/s"))
    for ceiling in sorted(report["ceilings"], key=lambda each: (each["name"], each["row_bytes"], each["reads"], each["threads"])):
        rows_of = f" of {ceiling['row_bytes']} bytes, {ceiling['reads']} for each written" if ceiling["row_bytes"] else ""
        rate = f"{ceiling['bytes_per_second'] / 1e9:.3g}"
        rows.add_row(ceiling["name"] + rows_of, str(ceiling["threads"]), rate, ceiling["variant"])
    out.print(titled("What the memory of this machine can do"))
    print_table(out, rows)
    if report["missing"]:
        out.print(f"Not installed, and so not compared with: {', '.join(report['missing'])}.")
    load, cores = report["load_before"], report["machine"]["cores"]
    if load is not None and load > BUSY * cores:
        out.print(f"The machine was busy when this began (load {load:.1f} on {cores} cores): repeat it on an idle one.")
    wrong = sum(bool(result["wrong"]) for result in report["results"])
    verdicts = [
        each["verdict"] for result in report["results"] if not result["wrong"] for line in result["lines"] if not line["allocates"]
        for each in line["comparisons"] if each["verdict"] is not None
    ]  # fmt: skip
    missed = verdicts.count("missed")
    out.print(
        f"{len(report['results'])} measurements in {report['minutes']:.1f} minutes, {wrong} wrong; with out= "
        f"{len(verdicts) - missed} of {len(verdicts)} gates reached."
    )


def _print_costs(out: "Console", costs: Sequence[dict[str, Any]]) -> None:
    out.print(titled("One small call, 1 thread"))
    rows = table("operator", "elements", "call", "µs [quartiles]", "torch's own, µs", "limit, µs", "", right=("limit, µs",))
    for cost in costs:
        seconds, beside = cost["seconds"], cost["beside_seconds"]
        rows.add_row(
            cost["operator"],
            cost["problem"],
            cost["what"],
            f"{seconds['median'] * 1e6:.2f} [{seconds['q1'] * 1e6:.2f}–{seconds['q3'] * 1e6:.2f}]",
            f"{beside['median'] * 1e6:.2f} ({cost['beside']})" if beside else "",
            "" if cost["limit_us"] is None else f"{'+' if beside else ''}{cost['limit_us']:g}",
            styled(cost["verdict"] or ""),
        )
    print_table(out, rows)
