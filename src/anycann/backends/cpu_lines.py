"""Lines: what continues in memory what was written before leaves as whole lines of 64 bytes past the caches, wherever it begins.

A line takes its first words from the 64 bytes before. Where something new begins inside a line, the first piece of it is written in
the ordinary way. The memory of what is carried on: the last 64 bytes; int64: where they end, how many of their words are not yet written.
"""

from collections.abc import Callable
from typing import Any

from numba import types

from anycann.backends.cpu import apart, by_tag, device
from anycann.backends.cpu_blocks import settled_pair
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    bits,
    from_bits,
    itemsize,
    joined,
    load,
    load1_i32,
    load1_i64,
    pack,
    pack_usual,
    store,
    store1_i32,
    store1_i64,
    store_stream,
    store_tail,
)

__all__ = ["LINES", "PAIR", "begin_lines", "carried_on", "end_of", "finish_lines", "keep_lines", "put_head", "put_pair", "sweep_lines"]

LINES = 128  # bytes of that memory
PAIR = 2 * LANES
_END, _CARRIED = 8, 9


def _put_single(tag: Tag, out: int, i: int, low: Any, high: Any, carried: tuple[Any, int], lines: bool, usual: bool) -> Any:
    before, k = carried
    if lines:
        store_stream(F32, out - 4 * k, i, from_bits(joined(before, bits(low), k)))
        store_stream(F32, out - 4 * k, i + LANES, from_bits(joined(bits(low), bits(high), k)))
    else:
        store(F32, out, i, low)
        store(F32, out, i + LANES, high)
    return bits(high)


def _put_half(tag: Tag, out: int, i: int, low: Any, high: Any, carried: tuple[Any, int], lines: bool, usual: bool) -> Any:
    (before, k), packed = carried, pack_usual(tag, low, high) if usual else pack(tag, low, high)
    if lines:
        store_stream(F32, out - 4 * k + 2 * i, 0, from_bits(joined(before, packed, k)))
    else:
        store(F32, out + 2 * i, 0, from_bits(packed))
    return packed


@by_tag
def put_pair(tag: Tag, out: int, i: int, low: Any, high: Any, carried: tuple[Any, int], lines: bool, usual: bool) -> Any:
    """Write 32 elements from i on, and return their last 64 bytes. `usual`: none is a NaN or a subnormal number.

    `lines`: as whole lines past the caches, the first k words of which are the last ones of `before`.
    """
    return _put_single if tag == F32 else _put_half


def _head_single(tag: Tag, out: int, low: Any, high: Any, k: int) -> Any:
    store_tail(F32, out, 0, low, LANES - k)
    store_stream(F32, out - 4 * k, LANES, from_bits(joined(bits(low), bits(high), k)))
    return bits(high)


def _head_half(tag: Tag, out: int, low: Any, high: Any, k: int) -> Any:
    packed = pack(tag, low, high)
    store_tail(F32, out, 0, from_bits(packed), LANES - k)
    return packed


@by_tag
def put_head(tag: Tag, out: int, low: Any, high: Any, k: int) -> Any:
    """Begin with 32 elements behind the first k words of a line, which are left alone, and return their last 64 bytes."""
    return _head_single if tag == F32 else _head_half


@device
def begin_lines(memory: int) -> None:
    """Nothing is carried on."""
    store1_i64(memory, _END, 0)


@device
def carried_on(memory: int) -> Any:
    """The last 64 bytes, where they end (0: nowhere), and how many of their words are not yet written."""
    return bits(load(F32, memory, 0)), load1_i64(memory, _END), load1_i64(memory, _CARRIED)


@device
def keep_lines(memory: int, before: Any, end: int, k: int) -> None:
    """What `carried_on` shall give."""
    store(F32, memory, 0, from_bits(before))
    store1_i64(memory, _END, end)
    store1_i64(memory, _CARRIED, k)


@apart
def finish_lines(memory: int) -> None:
    """Write the last part of a line that was carried on."""
    end, k = load1_i64(memory, _END), load1_i64(memory, _CARRIED)
    if end != 0:
        for i in range(-k, 0):
            store1_i32(end, i, load1_i32(memory + 64, i))
    store1_i64(memory, _END, 0)


@device
def end_of(tag: Tag, address: int, n: int) -> int:
    """Where n elements end, 0 if lines cannot be joined there."""
    return address + n * itemsize(tag) if address & 3 == 0 else 0 * n


@device
def sweep_lines(compute: Callable[[Any, int, int], Any], given: Any, tag: Tag, address: int, n: int, memory: int) -> None:
    """`sweep` of n elements, a multiple of 32, after what was written with the same memory before."""
    before, end, k = carried_on(memory)
    lines = address == end
    if not lines:
        finish_lines(memory)
        lines, k = address & 63 == 0, (address & 63) >> 2
    full = types.intp(LANES)
    for i in range(0, n, PAIR):
        low, high = settled_pair(tag, compute(given, i, full), compute(given, i + LANES, full))
        before = put_pair(tag, address, i, low, high, (before, k), lines, False)
    keep_lines(memory, before, end_of(tag, address, n), k)
