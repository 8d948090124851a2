"""A whole benchmark: which problems, on how many threads, and the report as data."""

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anycann.bench import machine, overhead, peers, targets
from anycann.bench.ceilings import Ceilings
from anycann.bench.problems import prepare
from anycann.bench.race import Contender, Race, Rules, WrongResult, race
from anycann.bench.targets import Steps, adapted, target, verdict
from anycann.bench.threads import threads as use_threads
from anycann.check import samples
from anycann.check.golden import described
from anycann.dtypes import by_name
from anycann.runtime import Operator
from anycann.spec import OpSpec, Workload
from anycann.tensor import Tensor, contiguous_strides

__all__ = ["FORMAT", "Job", "Line", "Settings", "jobs", "lines", "measure", "report", "result"]

FORMAT = "anycann bench 1"
QUICK_ELEMENTS = 1 << 26  # of the largest tensor of a problem that --quick leaves in


@dataclass(frozen=True)
class Job:
    """One operator, workload and dtype, to be run on several numbers of threads."""

    operator: Operator
    workload: Workload
    dtype: str


@dataclass(frozen=True)
class Settings:
    """What to measure, and how."""

    rules: Rules = field(default_factory=Rules)
    threads: tuple[int, ...] = (1,)
    quick: bool = False
    seed: int = 0
    buffer_bytes: int | None = None  # of the ceilings; None: beyond the caches
    cache_bytes: int | None = None  # None: the last cache of this machine
    overhead: bool = True


@dataclass(frozen=True)
class Line:
    """One way of ours to be called, and how it compares: what the table shows."""

    race: Race
    ours: Contender
    avx512: bool

    @property
    def goal(self) -> targets.Target:
        problem = self.race.problem
        return target(problem.operator.spec.python, problem.dtype, problem.attrs, problem.elements)

    def comparisons(self) -> Iterator[dict[str, Any]]:
        """Ratio to the best peer, where the target says so to the best that is not compiled and to libraries; share of the ceiling."""
        apart = self.goal.against
        asked: list[tuple[str, Steps | None, Callable[[str], bool]]] = [
            ("best peer", self.goal.ratio, lambda library: library not in apart),
            ("best eager peer", self.goal.eager_ratio, lambda library: library not in (*apart, "compile")),
            *((f"best of {name}", steps, name.__eq__) for name, steps in apart.items()),
        ]
        for kind, steps, libraries in asked:
            peer = self.race.best(self.ours.allocates, libraries) if steps is not None else None
            if peer is not None and steps is not None:
                yield self._judged(kind, peer.name, self.race.ratio(self.ours, peer)._asdict(), steps)
        share = None if self.ours.allocates else self.race.share(self.ours)
        if share is not None and self.race.ceiling is not None:
            yield self._judged("ceiling", self.race.ceiling.name, share._asdict(), self.goal.share)

    def _judged(self, kind: str, name: str, value: Mapping[str, float], steps: Steps | None) -> dict[str, Any]:
        asked = None if steps is None else adapted(steps, self.avx512)
        reached = None if asked is None else verdict(value["median"], asked)
        return {"kind": kind, "name": name, "value": dict(value), "target": asked and asked._asdict(), "verdict": reached}

    def as_json(self) -> dict[str, Any]:
        return {
            "allocates": self.ours.allocates,
            "seconds": self.ours.spread()._asdict(),
            "bytes_per_second": self.race.bytes / self.ours.spread().median,
            "comparisons": list(self.comparisons()),
        }


def _largest(spec: OpSpec, workload: Workload) -> int:
    """Elements of the largest tensor."""
    listed = {param.name: (by_name(param.dtypes[0]), workload.shapes[param.name]) for param in spec.inputs if param.name in workload.shapes}
    tensors = {name: Tensor(0, dtype, shape, contiguous_strides(shape)) for name, (dtype, shape) in listed.items()}
    call = described(spec, tensors, samples.attributes(spec, workload))
    return max(tensor.numel for tensor in call.tensors if tensor is not None)


def jobs(operators: Sequence[Operator], workload: str | None, dtype: str | None, quick: bool) -> list[Job]:
    """The problems of these operators: those of one name, of one dtype, or all in the dtypes that have targets."""
    found = []
    for operator in operators:
        spec = operator.spec
        listed = targets.DTYPES[spec.python] if dtype is None else (dtype,)
        for chosen in spec.workloads:
            if (chosen.name == workload) if workload is not None else (not quick or _largest(spec, chosen) <= QUICK_ELEMENTS):
                found += [Job(operator, chosen, name) for name in listed if name in spec.inputs[0].dtypes + spec.inputs[0].superset]
    return found


def lines(finished: Race) -> list[Line]:
    """The lines of a race."""
    avx512 = machine.has("avx512f")
    return [Line(finished, ours, avx512) for ours in finished.ours]


def result(job: Job, threads: int, finished: Race | None, wrong: str, lines: Callable[[Race], Sequence[Line]] = lines) -> dict[str, Any]:
    """A race as data."""
    head = {
        "operator": job.operator.spec.python,
        "workload": job.workload.name,
        "shapes": {name: list(shape) for name, shape in job.workload.shapes.items()},
        "attrs": dict(job.workload.attrs),
        "dtype": job.dtype,
        "threads": threads,
        "wrong": wrong or None,
    }
    if finished is None:
        return head
    ceiling = finished.ceiling
    return {
        **head,
        "bytes_read": finished.problem.bytes_read,
        "bytes_written": finished.problem.bytes_written,
        "attainable": list(finished.problem.attainable),
        "ceiling": None if ceiling is None else {**ceiling.as_json(threads), "samples": list(finished.ceiling_seconds.values())},
        "contenders": [contender.as_json() for contender in (*finished.ours, *finished.others)],
        "lines": [line.as_json() for line in lines(finished)],
    }


def measure(
    todo: Sequence[Job], settings: Settings, shown: Callable[[dict[str, Any]], None] = lambda _: None
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run the problems, one in memory at a time; `shown` gets each result as it comes. Results and ceilings, as data."""
    ceilings = Ceilings(settings.rules.repeat, settings.buffer_bytes)
    cache = machine.last_level_cache() if settings.cache_bytes is None else settings.cache_bytes
    for threads in settings.threads:
        with use_threads(threads, False):
            ceilings.streams(threads)
    results = []
    for job in todo:
        problem = prepare(job.operator, job.workload, job.dtype, settings.seed)
        for threads in settings.threads:
            finished, wrong = None, ""
            try:
                finished = race(problem, threads, settings.rules, ceilings, cache)
            except WrongResult as error:
                wrong = str(error)
            results.append(result(job, threads, finished, wrong))
            shown(results[-1])
        del problem, finished
    return results, [ceiling.as_json(threads) for (threads, _), ceiling in ceilings.found.items()]


def report(
    todo: Sequence[Job],
    settings: Settings,
    shown: Callable[[dict[str, Any]], None] = lambda _: None,
    measure: Callable[..., tuple[list[dict[str, Any]], list[dict[str, Any]]]] = measure,
    described: Callable[[], dict[str, Any]] = machine.describe,
) -> dict[str, Any]:
    """Measure everything: the report that --json writes. Libraries that are not installed are named in it and left out.

    `measure` and `described` are a device's, where it is not the CPU.
    """
    missing = [name for name in settings.rules.libraries if not peers.installed(name)]
    present = tuple(name for name in settings.rules.libraries if name not in missing)
    rules = replace(settings.rules, libraries=present)
    settings = replace(settings, rules=rules)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    begun = datetime.datetime.now(datetime.timezone.utc)
    results, ceilings = measure(todo, settings, shown)
    costs = _costs(todo, settings) if settings.overhead else []
    return {
        "format": FORMAT,
        "begun": begun.isoformat(timespec="seconds"),
        "minutes": round((datetime.datetime.now(datetime.timezone.utc) - begun).total_seconds() / 60, 2),
        "load_before": load,
        "machine": described(),
        "versions": machine.versions(),
        "settings": {
            "repeat": rules.repeat,
            "budget_seconds": rules.budget,
            "peers": list(present),
            "threads": list(settings.threads),
            "quick": settings.quick,
            "seed": settings.seed,
        },
        "missing": missing,
        "ceilings": ceilings,
        "results": results,
        "overhead": costs,
        "right": not any(result["wrong"] for result in results),
    }


def _costs(todo: Sequence[Job], settings: Settings) -> list[dict[str, Any]]:
    """Costs of a call of each operator, in its first dtype."""
    found: list[dict[str, Any]] = []
    loops = 200 if settings.quick else 2000
    torch_too = "torch" in settings.rules.libraries
    for name, operator in {job.operator.spec.python: job.operator for job in todo}.items():
        dtype = next(job.dtype for job in todo if job.operator.spec.python == name)
        with use_threads(1, torch_too):
            found += [cost.as_json() for cost in overhead.costs(operator, dtype, settings.rules.repeat, loops, torch_too)]
    return found
