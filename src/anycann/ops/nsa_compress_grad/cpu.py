"""NSA compression gradients on the CPU: x is read once and its gradient written once, token by token.

A unit of work is the tokens of one partial sum times a group of heads. Tokens that the same windows cover make a segment; for each
head the rows of outputGrad of these windows are widened once, and then every token of the segment adds its products with them, two
windows at a time, to its gradient and to the lanes of weightGrad. Sums start at -0.0, the one number that changes no first term.
"""

from collections.abc import Sequence

import numpy as np
from numba import types

from anycann.backends.cpu import device, kernel
from anycann.backends.cpu_blocks import SCRATCH, Held, layouts, run_in, run_out, stack, store_sums, unload
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    itemsize,
    load,
    load1,
    load1_i64,
    load_f64,
    splat,
    store,
    store1_f64,
    store_f64,
    sum_lanes,
    tag_of,
    widen,
)
from anycann.backends.threads import get_num_threads, parallel
from anycann.bind import Call, Launch
from anycann.ops.nsa_compress_grad.spec import RUN_D, TOKENS_PER_PARTIAL, sequences

__all__ = ["plan"]

_LANE_BYTES = 8 * LANES  # of the float64 sums of a place in the window and a head
_VECTOR = 4 * LANES  # bytes of a vector of float32
_CACHED = 1 << 18  # bytes of these sums that a unit works on, at most
_SEQUENCE = 4 * 8  # bytes of an entry: start, length, number of its first window, number of windows


@device
def _one_window(tag: Tag, to: Tag, n: int, x: int, grad: int, weight: float, lanes: int, base: int, base_step: int, out: int) -> None:
    """out = base + weight * grad, and the run of x * grad goes to the lanes."""
    run = splat(-0.0)
    for i in range(0, n, LANES):
        g = load(F32, grad, i)
        run = run + load(tag, x, i) * g
        store(to, out, i, load(F32, base, i * base_step) + g * weight)
    store_f64(lanes, 0, load_f64(lanes, 0) + widen(run))


@device
def _two_windows(
    tag: Tag,
    to: Tag,
    n: int,
    x: int,
    grads: tuple[int, int],
    weights: tuple[float, float],
    lanes: tuple[int, int],
    base: int,
    base_step: int,
    out: int,
) -> None:
    run0, run1 = splat(-0.0), splat(-0.0)
    for i in range(0, n, LANES):
        v, g0, g1 = load(tag, x, i), load(F32, grads[0], i), load(F32, grads[1], i)
        run0 = run0 + v * g0
        run1 = run1 + v * g1
        store(to, out, i, load(F32, base, i * base_step) + g0 * weights[0] + g1 * weights[1])
    store_f64(lanes[0], 0, load_f64(lanes[0], 0) + widen(run0))
    store_f64(lanes[1], 0, load_f64(lanes[1], 0) + widen(run1))


@device
def _token(
    tag: Tag,
    n: int,
    x: int,
    grads: int,
    grad_bytes: int,
    windows: int,
    p_weight: int,
    weight_bytes: int,
    lanes: int,
    lane_bytes: int,
    out: int,
    zero: int,
    partial: int,
) -> None:
    """Add a token's products with the rows of its windows; from one window to the next, addresses change by the bytes given."""
    base, step, k = zero, 0, 0
    while windows - k > 1:
        both = grads + k * grad_bytes, grads + (k + 1) * grad_bytes
        weights = load1(tag, p_weight + k * weight_bytes, 0), load1(tag, p_weight + (k + 1) * weight_bytes, 0)
        sums = lanes + k * lane_bytes, lanes + (k + 1) * lane_bytes
        k += 2
        if k < windows:
            _two_windows(tag, F32, n, x, both, weights, sums, base, step, partial)
            base, step = partial, 1
        else:
            _two_windows(tag, tag, n, x, both, weights, sums, base, step, out)
    if k < windows:
        weight = load1(tag, p_weight + k * weight_bytes, 0)
        _one_window(tag, tag, n, x, grads + k * grad_bytes, weight, lanes + k * lane_bytes, base, step, out)


@device
def _widen_row(tag: Tag, row: int, step: int, n: int, target: int, scratch: int) -> None:
    for d in range(0, n, RUN_D):
        count = min(RUN_D, n - d)
        run = run_in(tag, row + d * step * itemsize(tag), step, count, scratch)
        for i in range(0, count, LANES):
            store(F32, target, d + i, load(tag, run, i))


@device
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
    scratch: tuple[int, int, int, int],
) -> None:
    """Tokens [first, end) and heads [first, end) under (first, number of) windows; place is the first token's in the first window."""
    (p_grad, p_x, p_weight, p_out), (grad_strides, x_strides, weight_strides, out_strides) = addresses, strides
    (first, count), size, (s_x, s_out, partial, zero) = windows, itemsize(tag), scratch
    for head in range(heads[0], heads[1]):
        for k in range(count):
            row = p_grad + ((first + k) * grad_strides[0] + head * grad_strides[1]) * size
            _widen_row(tag, row, grad_strides[2], width, rows + 4 * k * width, s_x)
        for token in range(tokens[0], tokens[1]):
            at = place + token - tokens[0]
            p_lane = lanes + (at * group + head - heads[0]) * _LANE_BYTES
            weight = p_weight + (at * weight_strides[0] + head * weight_strides[1]) * size
            for d in range(0, width, RUN_D):
                n = min(RUN_D, width - d)
                p_run = p_x + (token * x_strides[0] + head * x_strides[1] + d * x_strides[2]) * size
                p_place = p_out + (token * out_strides[0] + head * out_strides[1] + d * out_strides[2]) * size
                out = run_out(p_place, out_strides[2], s_out)
                if count == 0:
                    for i in range(0, n, LANES):
                        store(tag, out, i, splat(0.0))
                else:
                    x = run_in(tag, p_run, x_strides[2], n, s_x)
                    change = -stride * weight_strides[0] * size, -stride * group * _LANE_BYTES
                    _token(tag, n, x, rows + 4 * d, 4 * width, count, weight, change[0], p_lane, change[1], out, zero, partial)
                unload(tag, p_place, out_strides[2], n, s_out)


@kernel
def _units(
    tag: Tag,
    addresses: tuple[int, int, int, int],
    strides: tuple[tuple[int, int, int], tuple[int, int, int], tuple[int, int], tuple[int, int, int]],
    sizes: tuple[int, int, int, int, int],
    p_sequences: int,
    p_first: int,
    group: int,
    begin: float,
    sums: int,
    pitch: int,
    slots: int,
    slot_bytes: int,
    start: int,
    stop: int,
) -> None:
    """Units [start, stop): the gradients of their tokens, and their partial sums of weightGrad. Sums begin at -0.0, or 0.0 if empty."""
    total, heads, width, block, stride = sizes
    scratch = stack(SCRATCH), stack(SCRATCH), stack(SCRATCH), stack(_VECTOR)
    store(F32, scratch[3], 0, splat(-0.0))
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
            windows = number + low, max(0, high - low + 1)
            at = place - low * stride
            parts = (token, origin + until), (head, last_head)
            _segment(tag, addresses, strides, parts[0], parts[1], windows, at, stride, group, width, lanes, rows, scratch)
            token = origin + until
        for w in range(block):
            for i in range(head, last_head):
                lane = load_f64(lanes + (w * group + i - head) * _LANE_BYTES, 0)
                store1_f64(sums, chunk * pitch + w * heads + i, sum_lanes(lane))


@kernel
def _totals(tag: Tag, p_out: int, words: int, sums: int, chunks: int, pitch: int, start: int, stop: int) -> None:
    """Elements [start, stop) of weightGrad."""
    store_sums(tag, sums, chunks, pitch, p_out, words, start, stop)


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
    words = layouts(call.tensors[4:], call.tensors[4].shape)
    one, triple = types.intp, types.UniTuple(types.intp, 3)
    all_strides = types.Tuple((triple, triple, types.UniTuple(one, 2), triple))
    head = (types.UniTuple(one, 4), all_strides, types.UniTuple(one, 5))
    entry = _units.for_types(tag, *head, one, one, one, types.float32, *(one,) * 6)
    finish = _totals.for_types(tag, *(one,) * 7)

    def launch(addresses: Sequence[int], workspace: int) -> None:
        operands, out = tuple(addresses[:4]), addresses[4]
        sizes = (tokens, heads, width, block, stride)

        def run(start: int, stop: int) -> None:
            entry(
                None, operands, strides, sizes, table.address, firsts.address, group, begin, workspace, pitch, workspace + slots, slot_bytes,
                start, stop,
            )  # fmt: skip

        def add(start: int, stop: int) -> None:
            finish(None, out, words.address, workspace, chunks, pitch, start, stop)

        parallel(run, units)
        parallel(add, pitch, 512)

    return slots + units * slot_bytes, launch
