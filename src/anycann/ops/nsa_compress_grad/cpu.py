"""NSA compression gradients on the CPU: x is read once and its gradient written once, token by token.

A unit of work is the tokens of one partial sum times a group of heads. Tokens that the same windows cover make a segment; for each
head the rows of outputGrad of these windows are widened once, and then every token of the segment adds its products with them to its
gradient and to the lanes of weightGrad, for one or two windows in one pass. Sums start at -0.0, the one number that changes no first
term.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import device, kernel
from anycann.backends.cpu_blocks import (
    SCRATCH,
    Held,
    apart,
    run_in,
    run_out,
    settled,
    stack,
    store_sums,
    streams,
    unload,
)
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    fence,
    itemsize,
    load,
    load1,
    load1_i64,
    load_f64,
    prefetch,
    splat,
    store,
    store1_f64,
    store_f64,
    store_line,
    sum_lanes,
    tag_of,
    widen,
)
from anycann.backends.threads import get_num_threads, parallel
from anycann.bind import Call, Launch
from anycann.ops.nsa_compress_grad.spec import RUN_D, TOKENS_PER_PARTIAL
from anycann.ops.windows import sequences

__all__ = ["plan"]

_LANE_BYTES = 8 * LANES  # of the float64 sums of a place in the window and a head
_PAIR = 2 * LANES
_GRAIN = 512  # elements of weightGrad worth a thread
_CACHED = 1 << 18  # bytes of these sums that a unit works on, at most
_SEQUENCE = 4 * 8  # bytes of an entry: start, length, number of its first window, number of windows


@device
def _add_run(lanes: int, run: Any) -> None:
    store_f64(lanes, 0, load_f64(lanes, 0) + widen(run))


@device
def _prefetch_pair(tag: Tag, address: int) -> None:
    prefetch(address)
    if itemsize(tag) == 4:
        prefetch(address + 64)


@device
def _put(tag: Tag, out: int, i: int, low: Any, high: Any, ahead: int, stream: bool) -> None:
    """Write 32 elements from i on."""
    low, high = settled(tag, low), settled(tag, high)
    if stream:
        store_line(tag, out, i, low, high)
    else:
        _prefetch_pair(tag, out + i * itemsize(tag) + ahead)
        store(tag, out, i, low)
        store(tag, out, i + LANES, high)


@device
def _under_one(tag: Tag, n: int, x: int, grad: int, weight: float, lanes: int, out: int, ahead: tuple[int, int], stream: bool) -> None:
    """A token in one window: out = weight * grad, and the run of x * grad is added to the lanes."""
    run, pairs = splat(-0.0), n - n % _PAIR
    for i in range(0, pairs, _PAIR):
        _prefetch_pair(tag, x + i * itemsize(tag) + ahead[0])
        low, high = load(F32, grad, i), load(F32, grad, i + LANES)
        run = run + load(tag, x, i) * low + load(tag, x, i + LANES) * high
        _put(tag, out, i, low * weight, high * weight, ahead[1], stream)
    if pairs < n:
        last = load(F32, grad, pairs)
        run = run + load(tag, x, pairs) * last
        store(tag, out, pairs, settled(tag, last * weight))
    _add_run(lanes, run)


@device
def _under_two(
    tag: Tag,
    n: int,
    x: int,
    grads: tuple[int, int],
    weights: tuple[float, float],
    lanes: tuple[int, int],
    out: int,
    ahead: tuple[int, int],
    stream: bool,
) -> None:
    """A token in two windows: the sum of both products goes to out, and a run to the lanes of each."""
    run0, run1, pairs = splat(-0.0), splat(-0.0), n - n % _PAIR
    for i in range(0, pairs, _PAIR):
        _prefetch_pair(tag, x + i * itemsize(tag) + ahead[0])
        x_low, low0, low1 = load(tag, x, i), load(F32, grads[0], i), load(F32, grads[1], i)
        x_high, high0, high1 = load(tag, x, i + LANES), load(F32, grads[0], i + LANES), load(F32, grads[1], i + LANES)
        run0 = run0 + x_low * low0 + x_high * high0
        run1 = run1 + x_low * low1 + x_high * high1
        _put(tag, out, i, low0 * weights[0] + low1 * weights[1], high0 * weights[0] + high1 * weights[1], ahead[1], stream)
    if pairs < n:
        v, g0, g1 = load(tag, x, pairs), load(F32, grads[0], pairs), load(F32, grads[1], pairs)
        run0 = run0 + v * g0
        run1 = run1 + v * g1
        store(tag, out, pairs, settled(tag, g0 * weights[0] + g1 * weights[1]))
    _add_run(lanes[0], run0)
    _add_run(lanes[1], run1)


@device
def _under_many(
    tag: Tag,
    n: int,
    x: int,
    grads: int,
    pitch: int,
    windows: int,
    weights: int,
    weight_step: int,
    lanes: int,
    lane_step: int,
    out: int,
    sums: int,
) -> None:
    """A token in any number of windows, none included, one after the other; `sums` is memory for n float32."""
    for i in range(0, n, LANES):
        store(F32, sums, i, splat(-0.0 if windows > 0 else 0.0))
    for k in range(windows):
        run, grad, weight = splat(-0.0), grads + k * pitch, load1(tag, weights + k * weight_step, 0)
        for i in range(0, n, LANES):
            g = load(F32, grad, i)
            run = run + load(tag, x, i) * g
            store(F32, sums, i, load(F32, sums, i) + g * weight)
        _add_run(lanes + k * lane_step, run)
    for i in range(0, n, LANES):
        store(tag, out, i, settled(tag, load(F32, sums, i)))


@apart
def _widen_row(tag: Tag, row: int, step: int, n: int, target: int, scratch: int) -> None:
    for d in range(0, n, RUN_D):
        count = min(RUN_D, n - d)
        run = run_in(tag, row + d * step * itemsize(tag), step, count, scratch)
        for i in range(0, count, LANES):
            store(F32, target, d + i, load(tag, run, i))


@apart
def _segment(
    tag: Tag,
    addresses: tuple[int, int, int, int],
    strides: tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int], tuple[int, int, int]],
    tokens: tuple[int, int],
    heads: tuple[int, int],
    windows: tuple[int, int],
    place: int,
    stride: int,
    group: int,
    width: int,
    lanes: int,
    rows: int,
    scratch: tuple[int, int, int],
    stream: bool,
) -> None:
    """Tokens [first, end) and heads [first, end) under (first, number of) windows; place is the first token's in the first window."""
    (p_grad, p_x, p_weight, p_out), (grad_strides, x_strides, weight_strides, out_strides) = addresses, strides
    (first, count), size, (s_x, s_out, sums) = windows, itemsize(tag), scratch
    weight_step, lane_step, pitch = -stride * weight_strides[0] * size, -stride * group * _LANE_BYTES, 4 * width
    ahead = stride * x_strides[0] * size, stride * out_strides[0] * size
    for head in range(heads[0], heads[1]):
        for k in range(count):
            row = p_grad + ((first + k) * grad_strides[0] + head * grad_strides[1]) * size
            _widen_row(tag, row, grad_strides[2], width, rows + k * pitch, s_x)
        for token in range(tokens[0], tokens[1]):
            at = place + token - tokens[0]
            lane = lanes + (at * group + head - heads[0]) * _LANE_BYTES
            weight = p_weight + (at * weight_strides[0] + head * weight_strides[1]) * size
            for d in range(0, width, RUN_D):
                n = min(RUN_D, width - d)
                x = p_x + (token * x_strides[0] + head * x_strides[1] + d * x_strides[2]) * size
                p_place = p_out + (token * out_strides[0] + head * out_strides[1] + d * out_strides[2]) * size
                x, grad = run_in(tag, x, x_strides[2], n, s_x), rows + 4 * d
                out = run_out(p_place, out_strides[2], s_out)
                past = stream and out & 63 == 0
                if count == 2:
                    grads, sides = (grad, grad + pitch), (lane, lane + lane_step)
                    weights = load1(tag, weight, 0), load1(tag, weight + weight_step, 0)
                    _under_two(tag, n, x, grads, weights, sides, out, ahead, past)
                elif count == 1:
                    _under_one(tag, n, x, grad, load1(tag, weight, 0), lane, out, ahead, past)
                else:
                    _under_many(tag, n, x, grad, pitch, count, weight, weight_step, lane, lane_step, out, sums)
                unload(tag, p_place, out_strides[2], n, s_out)


@kernel
def _units(
    tag: Tag,
    addresses: tuple[int, int, int, int],
    strides: tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int], tuple[int, int, int]],
    sizes: tuple[int, int, int, int, int, int],
    tables: tuple[int, int],
    memory: tuple[int, int, int, int],
    begin: float,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """Units [start, stop): the gradients of their tokens, and their partial sums of weightGrad. Sums begin at -0.0, or 0.0 if empty."""
    (total, heads, width, block, stride, group), (p_sequences, p_first), (sums, pitch, slots, slot_bytes) = sizes, tables, memory
    scratch = stack(SCRATCH), stack(SCRATCH), stack(SCRATCH)
    groups, lanes = -(-heads // group), slots + start * slot_bytes
    rows = lanes + block * group * _LANE_BYTES
    for unit in range(start, stop):
        chunk = unit // groups
        head = (unit - chunk * groups) * group
        last_head = min(head + group, heads)
        for i in range(block * group):
            store_f64(lanes, i * LANES, widen(splat(begin)))
        token, end = chunk * TOKENS_PER_PARTIAL, min(total, (chunk + 1) * TOKENS_PER_PARTIAL)
        p_sequence = p_sequences + load1_i64(p_first, chunk) * _SEQUENCE
        while token < end:
            origin, length = load1_i64(p_sequence, 0), load1_i64(p_sequence, 1)
            number, count = load1_i64(p_sequence, 2), load1_i64(p_sequence, 3)
            place = token - origin
            if place >= length:
                p_sequence += _SEQUENCE
                continue
            low, high = max(0, (place - block) // stride + 1), min(count - 1, place // stride)
            until = min(length, end - origin)
            if high + 1 < count:
                until = min(until, (high + 1) * stride)
            if low <= high:
                until = min(until, low * stride + block)
            windows, at = (number + low, max(0, high - low + 1)), place - low * stride
            tokens, some = (token, origin + until), (head, last_head)
            _segment(tag, addresses, strides, tokens, some, windows, at, stride, group, width, lanes, rows, scratch, stream)
            token = origin + until
        for w in range(block):
            for i in range(head, last_head):
                lane = load_f64(lanes + (w * group + i - head) * _LANE_BYTES, 0)
                store1_f64(sums, chunk * pitch + w * heads + i, sum_lanes(lane))
    if stream:
        fence()


@kernel
def _totals(tag: Tag, p_out: int, strides: tuple[int, int], heads: int, sums: int, chunks: int, pitch: int, start: int, stop: int) -> None:
    """Rows [start, stop) of weightGrad."""
    for w in range(start, stop):
        store_sums(tag, sums + 8 * w * heads, chunks, pitch, p_out + w * strides[0] * itemsize(tag), strides[1], heads)


def _ints(n: int) -> Any:
    """The Numba type of a tuple of n integers."""
    return types.UniTuple(types.intp, n)


_STRIDES = types.Tuple((_ints(3), _ints(3), _ints(2), _ints(3)))


def _tables(act_seq_len: tuple[int, ...] | None, tokens: int, block: int, stride: int) -> tuple[Held, Held]:
    """The sequences that have tokens, as the kernel reads them, and for each partial sum the first of its sequences."""
    rows, number = [], 0
    for origin, length in sequences(act_seq_len, tokens):
        count = (length - block) // stride + 1 if length >= block else 0
        if length > 0:
            rows.append((origin, length, number, count))
        number += count
    table = np.array(rows, np.int64).reshape(-1, 4)
    firsts = np.searchsorted(table[:, 0] + table[:, 1], np.arange(0, max(1, tokens), TOKENS_PER_PARTIAL), side="right")
    return Held(table), Held(firsts.astype(np.int64))


def _group(heads: int, chunks: int, block: int) -> int:
    """Heads of a unit: as many as leave four units for every thread, and whose lanes stay in the cache."""
    group = max(1, min(heads, _CACHED // (block * _LANE_BYTES)))
    while group > 1 and chunks * -(-heads // group) < 4 * get_num_threads():
        group = -(-group // 2)
    return group


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the partial sums of weightGrad, then for each unit the lanes of its sums and widened rows of outputGrad."""
    tokens, heads, width, block = (call.axes[axis] for axis in "TNDW")
    stride = call.attrs["compressStride"]
    tag = tag_of(call["input"].dtype.name)
    table, firsts = _tables(call.attrs["actSeqLenOptional"], tokens, block, stride)
    chunks, pitch = len(firsts.array), block * heads
    group = _group(heads, chunks, block)
    units = chunks * -(-heads // group)
    slot_bytes = block * group * _LANE_BYTES + -(-block // stride) * width * 4
    slots = -(-(chunks * pitch + LANES) // 8) * 64
    begin = -0.0 if call.axes["C"] > 0 else 0.0
    strides = tuple(tensor.strides for tensor in call.tensors[:4])
    weight_grad_strides = call["weightGradOut"].strides
    sizes, stream = (tokens, heads, width, block, stride, group), streams(call["inputGradOut"])
    entry = _units.for_types(tag, _ints(4), _STRIDES, _ints(6), _ints(2), _ints(4), types.float32, types.boolean, types.intp, types.intp)
    finish = _totals.for_types(tag, types.intp, _ints(2), *(types.intp,) * 6)

    def launch(addresses: Sequence[int], workspace: int) -> None:
        operands, tables = tuple(addresses[:4]), (table.address, firsts.address)
        memory = (workspace, pitch, workspace + slots, slot_bytes)

        def run(start: int, stop: int) -> None:
            entry(None, operands, strides, sizes, tables, memory, begin, stream, start, stop)

        def add(start: int, stop: int) -> None:
            finish(None, addresses[4], weight_grad_strides, heads, workspace, chunks, pitch, start, stop)

        parallel(run, units)
        parallel(add, block, -(-_GRAIN // heads))

    return slots + units * slot_bytes, launch
