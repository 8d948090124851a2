"""What the memory of this machine can do: the fastest of a few ways to copy, add, read, and gather rows, over buffers beyond the caches.

Rates count each byte read and each byte written once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numba import types

from anycann.backends.cpu_blocks import ask_line
from anycann.backends.cpu_program import parallel
from anycann.backends.cpu_simd import F32, LANES, fence, load, load1_i64, store, store_stream
from anycann.backends.cpu_threads import PartitionedKernel, partitioned
from anycann.bench import machine
from anycann.bench.timing import Spread, foretold, round_robin, spread
from anycann.plans import aligned_bytes
from anycann.tensor import address_of

__all__ = ["Ceiling", "Ceilings", "Mix"]

LINE = 64
BLOCK = 4  # lines that are handled together
AHEAD = (2048, 4096)  # bytes to the line that is prefetched
_FAR = ("", ", L2")  # into the nearest cache, or into the second only
_GRAIN = 1 << 12
_LEAST, _MOST = 256 << 20, 1 << 30  # bytes of a buffer


class Mix(NamedTuple):
    """What a kernel does to memory: streams read and written; or rows of `row` bytes gathered, `reads` for each one written."""

    reads: float
    writes: float
    row: int = 0

    @property
    def share_read(self) -> float:
        return self.reads / (self.reads + self.writes)


@dataclass(frozen=True)
class Ceiling:
    """The fastest way found for a mix: what it is called, how to run it, the bytes of a run, its seconds when it was chosen."""

    name: str
    mix: Mix
    variant: str
    bytes: int
    seconds: Spread
    run: Callable[[], None]

    def as_json(self, threads: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "threads": threads,
            "reads": self.mix.reads,
            "writes": self.mix.writes,
            "row_bytes": self.mix.row,
            "variant": self.variant,
            "bytes": self.bytes,
            "seconds": self.seconds._asdict(),
            "bytes_per_second": self.bytes / self.seconds.median,
        }


@partitioned
def _copy(a: int, b: int, out: int, ahead: int, far: bool, start: int, stop: int) -> None:
    for i in range(start * LANES, stop * LANES, LANES):
        store(F32, out, i, load(F32, a, i))


@partitioned
def _copy_past(a: int, b: int, out: int, ahead: int, far: bool, start: int, stop: int) -> None:
    for i in range(start * LANES, stop * LANES, LANES):
        ask_line(a + 4 * i + ahead, far)
        store_stream(F32, out, i, load(F32, a, i))
    fence()


@partitioned
def _triad(a: int, b: int, out: int, ahead: int, far: bool, start: int, stop: int) -> None:
    for i in range(start * LANES, stop * LANES, LANES):
        store(F32, out, i, load(F32, a, i) + 3.0 * load(F32, b, i))


@partitioned
def _triad_past(a: int, b: int, out: int, ahead: int, far: bool, start: int, stop: int) -> None:
    for i in range(start * LANES, stop * LANES, LANES):
        ask_line(a + 4 * i + ahead, far)
        ask_line(b + 4 * i + ahead, far)
        store_stream(F32, out, i, load(F32, a, i) + 3.0 * load(F32, b, i))
    fence()


@partitioned
def _read(a: int, b: int, out: int, ahead: int, far: bool, start: int, stop: int) -> None:
    i = start * LANES
    s0 = s1 = s2 = s3 = load(F32, a, i)
    while i + BLOCK * LANES <= stop * LANES:
        for k in range(BLOCK):
            ask_line(a + 4 * i + LINE * k + ahead, far)
        s0 = s0 + load(F32, a, i)
        s1 = s1 + load(F32, a, i + LANES)
        s2 = s2 + load(F32, a, i + 2 * LANES)
        s3 = s3 + load(F32, a, i + 3 * LANES)
        i += BLOCK * LANES
    store(F32, out, start * LANES, s0 + s1 + s2 + s3)


@partitioned
def _read_two(a: int, b: int, out: int, ahead: int, far: bool, start: int, stop: int) -> None:
    i = start * LANES
    s0 = s1 = s2 = s3 = load(F32, a, i)
    while i + 2 * LANES <= stop * LANES:
        for k in range(2):
            ask_line(a + 4 * i + LINE * k + ahead, far)
            ask_line(b + 4 * i + LINE * k + ahead, far)
        s0 = s0 + load(F32, a, i)
        s1 = s1 + load(F32, b, i)
        s2 = s2 + load(F32, a, i + LANES)
        s3 = s3 + load(F32, b, i + LANES)
        i += 2 * LANES
    store(F32, out, start * LANES, s0 + s1 + s2 + s3)


@partitioned
def _rows(a: int, places: int, out: int, lines: int, many: int, ahead: int, next_row: int, far: bool, start: int, stop: int) -> None:
    """Add `many` rows, whose addresses relative to a are listed, for each row of the output."""
    for row in range(start, stop):
        listed = places + 8 * row * many
        for i in range(0, lines * LANES, BLOCK * LANES):
            first = a + load1_i64(listed, 0)
            s0, s1 = load(F32, first, i), load(F32, first, i + LANES)
            s2, s3 = load(F32, first, i + 2 * LANES), load(F32, first, i + 3 * LANES)
            for k in range(many):
                soon = a + load1_i64(listed, k + next_row * many) + 4 * i + ahead
                for line in range(BLOCK):
                    ask_line(soon + LINE * line, far)
            for k in range(1, many):
                source = a + load1_i64(listed, k)
                s0 = s0 + load(F32, source, i)
                s1 = s1 + load(F32, source, i + LANES)
                s2 = s2 + load(F32, source, i + 2 * LANES)
                s3 = s3 + load(F32, source, i + 3 * LANES)
            target = out + row * lines * LINE
            store_stream(F32, target, i, s0)
            store_stream(F32, target, i + LANES, s1)
            store_stream(F32, target, i + 2 * LANES, s2)
            store_stream(F32, target, i + 3 * LANES, s3)
    fence()


_STREAMS = {  # name: mix, how, prefetch distances to try
    "copy": (Mix(1, 1), (("plain", _copy, (0,)), ("streaming", _copy_past, AHEAD))),
    "triad": (Mix(2, 1), (("plain", _triad, (0,)), ("streaming", _triad_past, AHEAD))),
    "read": (Mix(1, 0), (("prefetched", _read, (0, *AHEAD)),)),
    "two-stream read": (Mix(2, 0), (("prefetched", _read_two, (0, *AHEAD)),)),
}


class Ceilings:
    """Buffers far larger than the last cache, and the ceilings of each number of threads, found when they are first asked for."""

    def __init__(self, repeat: int, buffer_bytes: int | None = None) -> None:
        self.repeat = repeat
        wanted = min(max(4 * machine.last_level_cache(), _LEAST), _MOST, machine.memory() // 16) if buffer_bytes is None else buffer_bytes
        self.size = wanted // (LINE * BLOCK) * (LINE * BLOCK)
        self.buffers = [aligned_bytes(self.size) for _ in range(3)]
        for buffer in self.buffers:
            buffer.view(np.float32).fill(1.0)
        self.found: dict[tuple[int, Mix], Ceiling] = {}

    def _streaming(self, kernel: PartitionedKernel, ahead: int, far: bool) -> Callable[[], None]:
        entry, addresses = kernel.for_types(*(types.intp,) * 4, types.boolean), [address_of(buffer) for buffer in self.buffers]
        return lambda: parallel(entry, (*addresses, ahead, far), self.size // LINE, _GRAIN)

    def _gathering(self, mix: Mix) -> Iterator[tuple[str, Callable[[], None]]]:
        entry, (a, _, out) = _rows.for_types(*(types.intp,) * 7, types.boolean), [address_of(buffer) for buffer in self.buffers]
        lines = mix.row // LINE
        many = round(mix.reads)
        count = self.size // mix.row // many
        order = np.random.default_rng(0).permutation(count * many) * mix.row
        places = np.concatenate([order, order[:many]])  # the last row's next one

        def run(ahead: int, next_row: int, far: bool) -> Callable[[], None]:
            return lambda: parallel(entry, (a, address_of(places), out, lines, many, ahead, next_row, far), count)

        yield "lines of all rows", run(0, 0, False)
        for far in (False, True):
            yield f"prefetched by {AHEAD[0]} bytes{_FAR[far]}", run(AHEAD[0], 0, far)
            yield f"next rows prefetched{_FAR[far]}", run(0, 1, far)

    def _choose(self, name: str, mix: Mix, size: int, variants: Sequence[tuple[str, Callable[[], None]]]) -> Ceiling:
        calls = [call for _, call in variants]
        expected = [foretold(call) for call in calls]
        spreads = [spread(list(seconds.values())) for seconds in round_robin(calls, [self.repeat] * len(calls), expected)]
        best = min(range(len(calls)), key=lambda i: spreads[i].median)
        return Ceiling(name, mix, variants[best][0], size, spreads[best], calls[best])

    def stream(self, name: str, threads: int) -> Ceiling:
        """The ceiling of one of the streaming mixes."""
        mix, ways = _STREAMS[name]
        if (threads, mix) not in self.found:
            variants = [
                (
                    f"{how}, {ahead} bytes ahead{_FAR[far]}" if ahead else how.replace("prefetched", "plain"),
                    self._streaming(function, ahead, far),
                )
                for how, function, distances in ways
                for ahead in distances
                for far in (False, True)
                if ahead or not far
            ]
            self.found[threads, mix] = self._choose(name, mix, int(mix.reads + mix.writes) * self.size, variants)
        return self.found[threads, mix]

    def nearest(self, mix: Mix, threads: int) -> Ceiling:
        """The ceiling whose share of reads, and then number of streams, is nearest; for gathered rows, the same rows at random.

        `threads` is the number that kernels use now.
        """
        if mix.row:
            row = max(1, mix.row // (LINE * BLOCK)) * LINE * BLOCK
            same = Mix(round(mix.reads), 1, row)
            if (threads, same) not in self.found:
                size = self.size // row // round(mix.reads) * row * (round(mix.reads) + 1)
                self.found[threads, same] = self._choose("random rows", same, size, list(self._gathering(same)))
            return self.found[threads, same]
        names = list(_STREAMS)
        distance = {name: _STREAMS[name][0] for name in names}
        name = min(
            names, key=lambda name: (abs(distance[name].share_read - mix.share_read), abs(sum(distance[name][:2]) - mix.reads - mix.writes))
        )
        return self.stream(name, threads)

    def streams(self, threads: int) -> list[Ceiling]:
        """All streaming ceilings."""
        return [self.stream(name, threads) for name in _STREAMS]
