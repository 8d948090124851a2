"""Timing that survives a busy machine: contenders take turns, and whatever is compared is compared round by round."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Spread", "foretold", "per_call", "ratios", "round_robin", "spread"]


SETTLE = 0.02  # seconds for which OpenMP threads may go on spinning after their work, and take a core from the next contender
WARM = 0.002  # seconds of untimed calls before each timing
LONG = 0.1  # seconds of a call that is timed without them


class Spread(NamedTuple):
    """Median and quartiles of so many `samples`."""

    median: float
    q1: float
    q3: float
    samples: int


def spread(samples: Sequence[float]) -> Spread:
    """Median and quartiles; ValueError without samples."""
    if not samples:
        raise ValueError("no samples")
    q1, median, q3 = (float(value) for value in np.percentile(samples, (25, 50, 75)))
    return Spread(median, q1, q3, len(samples))


def _once(call: Callable[[], Any]) -> float:
    """Seconds of one call. Dropping its result is not counted."""
    start = time.perf_counter()
    result = call()
    seconds = time.perf_counter() - start
    del result
    return seconds


def foretold(call: Callable[[], Any]) -> float:
    """Seconds of one call of those to come. The first may have code to compile, so a long one is repeated."""
    first = _once(call)
    return min(first, _once(call)) if first >= LONG else first


def _settle(call: Callable[[], Any], expected: float) -> None:
    """Let the threads of whoever ran before go to sleep, and wake those of this call by running it untimed, if it is not too long."""
    time.sleep(SETTLE)
    if expected >= LONG:
        return
    end = time.perf_counter() + WARM
    call()
    while time.perf_counter() < end:
        call()


def round_robin(calls: Sequence[Callable[[], Any]], rounds: Sequence[int], expected: Sequence[float]) -> list[dict[int, float]]:
    """Seconds of each call by round. Call i takes part in rounds[i] rounds, spread evenly; who begins moves on every round.

    `expected` seconds of a call decide how it settles before each timing.
    """
    total = max(rounds, default=0)
    seconds: list[dict[int, float]] = [{} for _ in calls]
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for number in range(total):
            for place in range(len(calls)):
                i = (place + number) % len(calls)
                if (number + 1) * rounds[i] // total > number * rounds[i] // total:
                    _settle(calls[i], expected[i])
                    seconds[i][number] = _once(calls[i])
    finally:
        if collecting:
            gc.enable()
    return seconds


def ratios(above: Mapping[int, float], below: Mapping[int, float]) -> Spread:
    """above / below in the rounds that both took part in."""
    return spread([above[number] / below[number] for number in sorted(above.keys() & below.keys())])


def per_call(calls: Sequence[Callable[[], Any]], repeat: int, loops: int) -> list[Spread]:
    """Seconds of one call of each, from `repeat` rounds of `loops` calls in a row."""

    def looped(call: Callable[[], Any]) -> Callable[[], None]:
        def many() -> None:
            for _ in range(loops):
                call()

        return many

    batches = [looped(call) for call in calls]
    timed = round_robin(batches, [repeat] * len(batches), [foretold(batch) for batch in batches])
    return [spread([value / loops for value in seconds.values()]) for seconds in timed]
