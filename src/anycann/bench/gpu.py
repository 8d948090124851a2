"""The benchmark on a CUDA device: the problems, judgement, report and picture of the CPU's, times from CUDA events.

Results must have the bits of the CPU's, whose golden values are known. Before each timing the second-level cache is overwritten, while
which the call is already being launched; so the time is the device's. All are held against a copy within the device, in the same rounds.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from anycann import cuda
from anycann.bench import machine, peers, targets
from anycann.bench.ceilings import Ceiling, Mix
from anycann.bench.peers import with_torch
from anycann.bench.problems import Problem, prepare
from anycann.bench.race import Contender, Race, Rules, WrongResult
from anycann.bench.run import Job, Line, Settings, result
from anycann.bench.targets import Steps, Target
from anycann.bench.timing import spread
from anycann.spec import FLOATS

__all__ = ["Device", "lines", "race", "target"]

COPIED = 1 << 29  # bytes that the copy reads
FLUSHED = 1 << 28  # bytes that are written before each timing: more than a second-level cache holds
WARM = 3  # untimed calls

_OF_NORMS = {"quack": Steps(0.97), "liger": targets.NEVER_SLOWER}
TARGETS = (
    Target("gelu_backward_v2", FLOATS, Steps(1.0), Steps(0.90, 0.95)),
    Target("smooth_l1_loss_backward", FLOATS, Steps(1.15), Steps(0.90, 0.95), where={"reduction": (1, 2)}),
    Target("smooth_l1_loss_backward", FLOATS, Steps(1.0), Steps(0.90, 0.95)),
    Target("layer_norm_grad_beta", FLOATS, Steps(1.5), Steps(0.80, 0.90), against=_OF_NORMS | {"liger": Steps(3.0)}),
    *(
        Target(name, FLOATS, Steps(2.0), Steps(0.78, 0.87), against=_OF_NORMS)
        for name in ("layer_norm", "layer_norm_grad", "layer_norm_backward")
    ),
    Target("moe_token_permute_grad", FLOATS, Steps(1.0), Steps(0.88, 0.95), Steps(5.0), against={"te": targets.NEVER_SLOWER}),
    Target("nsa_compress_grad", FLOATS, Steps(1.0), Steps(0.75, 0.87), Steps(20.0)),
)
TALL = 256  # columns up to which a layer norm is tall and skinny
TALL_SHARE = Steps(0.65, 0.80)
WIDE = 2048  # columns from which on its sums are not held against three times Liger's speed


def target(problem: Problem) -> Target:
    """What is asked of a problem on a GPU."""
    name, large = problem.operator.spec.python, problem.elements >= targets.LARGE
    for line in TARGETS:
        if large and line.operator == name and all(problem.attrs[key] in values for key, values in line.where.items()):
            return _by_width(line, problem.outs[0].size) if name == "layer_norm_grad_beta" else line
    return Target(name, (problem.dtype,), targets.NEVER_SLOWER)


def _by_width(line: Target, columns: int) -> Target:
    if columns <= TALL:
        return dataclasses.replace(line, share=TALL_SHARE)
    return dataclasses.replace(line, against=_OF_NORMS) if columns > WIDE else line


@dataclasses.dataclass(frozen=True)
class _Line(Line):
    @property
    def goal(self) -> Target:
        return target(self.race.problem)


def lines(finished: Race) -> list[Line]:
    """The lines of a race, held against the targets of GPUs."""
    return [_Line(finished, ours, True) for ours in finished.ours]


class Device:
    """A device and its clock."""

    def __init__(self, name: str) -> None:
        cuda.need("--device", name)
        self.name = name
        self.flushed = torch.empty(FLUSHED, dtype=torch.uint8, device=name)
        self.source, self.copy = (torch.ones(COPIED, dtype=torch.uint8, device=name) for _ in range(2))
        self.found: dict[tuple[int, Mix], Ceiling] = {}

    def seconds(self, call: Callable[[], Any]) -> float:
        """Seconds of one call, whose operands are not in the cache."""
        event: Any = torch.cuda.Event
        begin, end = event(enable_timing=True), event(enable_timing=True)
        self.flushed.zero_()
        begin.record()
        made = call()
        end.record()
        end.synchronize()
        del made
        return float(begin.elapsed_time(end)) / 1e3

    def rounds(self, calls: Sequence[Callable[[], Any]], repeat: int) -> list[dict[int, float]]:
        """Seconds of each call by round; who begins moves on every round."""
        found: list[dict[int, float]] = [{} for _ in calls]
        for call in calls:
            for _ in range(WARM):
                call()
        for number in range(repeat):
            for place in range(len(calls)):
                i = (place + number) % len(calls)
                found[i][number] = self.seconds(calls[i])
        return found

    def ceiling(self, repeat: int) -> Ceiling:
        """The copy that everybody is held against."""
        mix = Mix(1, 1)
        if (1, mix) not in self.found:

            def run() -> None:
                self.copy.copy_(self.source)

            (taken,) = self.rounds([run], repeat)
            self.found[1, mix] = Ceiling("copy", mix, "torch copy_ within the device", 2 * COPIED, spread([*taken.values()]), run)
        return self.found[1, mix]

    def measure(
        self, todo: Sequence[Job], settings: Settings, shown: Callable[[dict[str, Any]], None] = lambda _: None
    ) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Run the problems, one in memory at a time, as `run.measure` does."""
        self.ceiling(settings.rules.repeat)
        results = []
        for job in todo:
            problem = prepare(job.operator, job.workload, job.dtype, settings.seed)
            finished, wrong = None, ""
            try:
                finished = race(problem, self, settings.rules)
            except WrongResult as error:
                wrong = str(error)
            results.append(result(job, 1, finished, wrong, lines))
            shown(results[-1])
            del problem, finished
            torch.cuda.empty_cache()
        return results, [ceiling.as_json(threads) for (threads, _), ceiling in self.found.items()]

    def describe(self) -> dict[str, Any]:
        """The machine and the device, for a report."""
        properties = torch.cuda.get_device_properties(self.name)
        return machine.describe() | {
            "processor": properties.name,
            "host_processor": machine.describe()["processor"],
            "memory_bytes": properties.total_memory,
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": torch.version.cuda,
            "packages": machine.versions_of(("triton", "liger-kernel", "quack-kernels", "transformer-engine")),
        }


def _placed(problem: Problem, device: str) -> Problem:
    """The same problem in the memory of a device: its arrays are tensors there."""
    inputs: Any = {name: with_torch.as_torch(array).to(device) for name, array in problem.inputs.items()}
    outs: Any = tuple([torch.empty_like(with_torch.as_torch(out), device=device) for out in problem.outs])
    return dataclasses.replace(problem, inputs=inputs, outs=outs)


def _poison(placed: Problem) -> None:
    outs: Any = placed.outs
    for out in outs:
        out.view(torch.uint8).fill_(0xFE)


def _home(problem: Problem, results: Any) -> tuple[Any, ...]:
    """Results on the device as arrays."""
    given = results if isinstance(results, (tuple, list)) else (results,)
    return tuple([with_torch.as_numpy(made.detach().cpu(), out.dtype) for made, out in zip(given, problem.outs, strict=True)])


def _same_bits(problem: Problem, results: Any, what: str) -> None:
    for param, made, wanted in zip(problem.operator.spec.outputs, _home(problem, results), problem.outs, strict=True):
        kind = f"u{wanted.itemsize}"
        differ = np.count_nonzero(np.ascontiguousarray(made).view(kind) != np.ascontiguousarray(wanted).view(kind))
        if differ:
            raise WrongResult(f"{what}: {differ} of {wanted.size} elements of {param.name} differ from the CPU's")


@contextmanager
def _on(device: str) -> Iterator[None]:
    """New tensors of peers are made on the device."""
    with torch.device(device):
        yield


def _others(placed: Problem, problem: Problem, libraries: Sequence[str]) -> list[Contender]:
    """The peers after a first run, which may show that they fail here or compute something else."""
    found = []
    for peer in peers.of(placed, [name for name in libraries if name != "numpy"]):
        contender = Contender(peer.library, peer.name, peer.allocates, peer.call)
        _poison(placed)
        try:
            contender.judgement = problem.judge(_home(problem, peer.call()), promised=False)
        except Exception as error:  # another library's: reported, whatever it is
            contender.state = f"failed: {type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
        else:
            contender.state = f"wrong: {contender.judgement.fault}" if contender.judgement.fault else "ok"
        found.append(contender)
    return found


def race(problem: Problem, device: Device, rules: Rules) -> Race:
    """Check and time everybody on a device. WrongResult if a result of ours is not the CPU's."""
    problem.ours(allocate=False)
    placed = _placed(problem, device.name)
    into = Contender("anycann", "anycann, out=", False, lambda: placed.ours(allocate=False))
    made = Contender("anycann", "anycann", True, lambda: placed.ours(allocate=True))
    _poison(placed)
    into.call()
    _same_bits(problem, placed.outs, into.name)
    into.judgement = problem.judge(_home(problem, placed.outs), promised=True)
    _same_bits(problem, made.call(), made.name)
    made.judgement = into.judgement
    if into.judgement.fault:
        raise WrongResult(f"{into.name}: {into.judgement.fault}")
    with _on(device.name):
        others = _others(placed, problem, rules.libraries)
        running = [into, made, *(peer for peer in others if peer.state == "ok")]
        ceiling = device.ceiling(rules.repeat)
        seconds = device.rounds([*(contender.call for contender in running), ceiling.run], rules.repeat)
    for contender, samples in zip(running, seconds, strict=False):
        contender.seconds = samples
    _poison(placed)
    into.call()
    _same_bits(problem, placed.outs, "after the timing")
    return Race(problem, 1, (into, made), tuple(others), ceiling, seconds[-1])
