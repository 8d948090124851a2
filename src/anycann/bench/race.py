"""One problem: check every contender, let them take turns, and compare what can be compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann import release_buffers
from anycann.bench import peers
from anycann.bench.ceilings import Ceiling, Ceilings, Mix
from anycann.bench.peers import Peer
from anycann.bench.problems import Judgement, Problem
from anycann.bench.threads import threads as use_threads
from anycann.bench.timing import Spread, foretold, ratios, round_robin, spread

__all__ = ["Contender", "Race", "Rules", "WrongResult", "race"]

Array = NDArray[Any]

FEWEST = 3  # rounds of a contender that would take too long
MEMORY = 6 << 30  # bytes that inputs, outputs and temporaries may take
_BUDGETS = {"numpy": 0.1}  # share of the seconds that one contender may take; 1 elsewhere


class WrongResult(Exception):
    """A result of ours that breaks the operator's promise: nothing is timed."""


@dataclass(frozen=True)
class Rules:
    """How a race is run: rounds, seconds for one slow contender, and who takes part."""

    repeat: int = 21
    budget: float = 60.0
    libraries: tuple[str, ...] = tuple(peers.LIBRARIES)


@dataclass
class Contender:
    """Who took part, how right it was and how fast. `state` is "ok", or says why there is no time."""

    library: str
    name: str
    allocates: bool
    call: Callable[[], Any]
    state: str = "ok"
    judgement: Judgement = field(default_factory=lambda: Judgement(()))
    seconds: dict[int, float] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        return bool(self.seconds)

    def spread(self) -> Spread:
        return spread(list(self.seconds.values()))

    def as_json(self) -> dict[str, Any]:
        return {
            "library": self.library,
            "name": self.name,
            "allocates": self.allocates,
            "state": self.state,
            "error": self.judgement.as_json(),
            "seconds": self.spread()._asdict() if self.timed else None,
            "samples": list(self.seconds.values()),
        }


@dataclass(frozen=True)
class Race:
    """A problem on a number of threads: ours (into given outputs, allocating), the peers, and the ceiling in the same rounds."""

    problem: Problem
    threads: int
    ours: tuple[Contender, Contender]
    others: tuple[Contender, ...]
    ceiling: Ceiling | None  # None where all bytes fit into the caches
    ceiling_seconds: dict[int, float]

    @property
    def bytes(self) -> int:
        return self.problem.bytes_read + self.problem.bytes_written

    def best(self, allocating: bool, libraries: Callable[[str], bool]) -> Contender | None:
        """The fastest peer of some libraries; for our allocating call among those that allocate, too."""
        timed = [peer for peer in self.others if peer.timed and libraries(peer.library)]
        fair = [peer for peer in timed if peer.allocates or not allocating]
        return min(fair, key=lambda peer: peer.spread().median, default=None)

    def ratio(self, ours: Contender, peer: Contender) -> Spread:
        """Time of a peer / our time, round by round."""
        return ratios(peer.seconds, ours.seconds)

    def share(self, ours: Contender) -> Spread | None:
        """Our bytes per second / those of the ceiling, round by round."""
        if self.ceiling is None:
            return None
        scale = self.bytes / self.ceiling.bytes
        return spread([scale * self.ceiling_seconds[number] / seconds for number, seconds in ours.seconds.items()])


def _arrays(problem: Problem, results: Any) -> tuple[Array, ...]:
    """Results of any library as arrays over the same memory."""
    found = []
    for result, out in zip(results if isinstance(results, (tuple, list)) else (results,), problem.outs, strict=True):
        if isinstance(result, np.ndarray):
            found.append(result)
        else:
            from anycann.bench.peers.with_torch import as_numpy

            found.append(as_numpy(result, out.dtype))
    return tuple(found)


def _ours(problem: Problem) -> tuple[Contender, Contender]:
    """Our two calls, checked: the promise holds on the part that is compared, every element is written, and both give the same bits."""
    into = Contender("anycann", "anycann, out=", False, lambda: problem.ours(allocate=False))
    made = Contender("anycann", "anycann", True, lambda: problem.ours(allocate=True))
    problem.poison()
    into.call()
    into.judgement = problem.judge(problem.outs, promised=True)
    results = _arrays(problem, made.call())
    made.judgement = problem.judge(results, promised=True)
    for contender in (into, made):
        if contender.judgement.fault:
            raise WrongResult(f"{contender.name}: {contender.judgement.fault}")
    for param, a, b in zip(problem.operator.spec.outputs, problem.outs, results, strict=True):
        if not np.array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}")):
            raise WrongResult(f"{param.name} is not the same with out= and without")
    return into, made


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _other(problem: Problem, peer: Peer, room: int) -> Contender:
    """A peer after a first run, which may show that it fails here or computes something else."""
    contender = Contender(peer.library, peer.name, peer.allocates, peer.call)
    if peer.needs > room:
        contender.state = f"skipped: needs about {peer.needs / 2**30:.1f} GiB of temporaries"
        return contender
    problem.poison()
    try:
        results = _arrays(problem, peer.call())
    except Exception as error:  # another library's: reported, whatever it is
        contender.state = f"failed: {_reason(error)}"
        return contender
    contender.judgement = problem.judge(results, promised=False)
    if contender.judgement.fault:
        contender.state = f"wrong: {contender.judgement.fault}"
    return contender


def _mix(problem: Problem) -> Mix:
    """What a problem asks of memory, in units of its outputs (or of its largest input, if outputs are next to nothing)."""
    places = next((param.name for param in problem.operator.spec.inputs if param.values == "permutation"), None)
    rows = problem.outs[0]
    if places is not None:
        return Mix(problem.inputs[places].size / len(rows), 1, rows.nbytes // len(rows))
    unit = max(problem.bytes_written, max(array.nbytes for array in problem.inputs.values()))
    return Mix(problem.bytes_read / unit, problem.bytes_written / unit)


def _rounds(contender: Contender, seconds: float, rules: Rules) -> int:
    budget = rules.budget * _BUDGETS.get(contender.library, 1.0)
    return max(min(FEWEST, rules.repeat), min(rules.repeat, int(budget / max(seconds, 1e-9))))


def race(problem: Problem, threads: int, rules: Rules, ceilings: Ceilings, cache: int) -> Race:
    """Check and time everybody on a number of threads. WrongResult if a result of ours breaks its promise.

    `cache` is the size of the caches: problems that fit into twice that are not held against a ceiling of memory.
    """
    with use_threads(threads, bool({"torch", "compile"} & set(rules.libraries))):
        return _race(problem, threads, rules, ceilings, cache)


def _race(problem: Problem, threads: int, rules: Rules, ceilings: Ceilings, cache: int) -> Race:
    ours = _ours(problem)
    room = MEMORY - 2 * problem.bytes_written - problem.bytes_read
    others = tuple(_other(problem, peer, room) for peer in peers.of(problem, rules.libraries))
    beyond = problem.bytes_read + problem.bytes_written > 2 * cache
    ceiling = ceilings.nearest(_mix(problem), threads) if beyond else None
    running: Sequence[Contender] = [*ours, *(peer for peer in others if peer.state == "ok")]
    calls, expected = [contender.call for contender in running], [foretold(contender.call) for contender in running]
    rounds = [_rounds(contender, seconds, rules) for contender, seconds in zip(running, expected, strict=True)]
    if ceiling is not None:
        calls.append(ceiling.run)
        rounds.append(rules.repeat)
        expected.append(ceiling.seconds.median)
    seconds = round_robin(calls, rounds, expected)
    for contender, samples in zip(running, seconds, strict=False):
        contender.seconds = samples
    problem.poison()
    ours[0].call()
    again = problem.judge(problem.outs, promised=True)
    release_buffers()
    if again.fault:
        raise WrongResult(f"after the timing: {again.fault}")
    return Race(problem, threads, ours, others, ceiling, seconds[-1] if ceiling is not None else {})
