"""NSA compression gradients on the CPU: x is read once and its gradient written once, token by token.

A unit of work is the tokens of one partial sum times a group of heads. Tokens that the same windows cover make a segment. Rows of
outputGrad are widened once for all tokens of their window; every token, head by head, adds its products with them to its gradient and
to the lanes of weightGrad, for one or two windows in one pass. Gradients leave as whole lines past the caches, wherever the output
begins: a line takes its first words from the vector before. Sums start at -0.0, the one number that changes no first term.
"""

from typing import Any, TypeAlias

import numpy as np
from numba import types

from anycann.backends.cpu import apart, device
from anycann.backends.cpu_across import begin_box, box_in, code_across
from anycann.backends.cpu_blocks import (
    APART,
    SCRATCH,
    Held,
    following,
    run_in,
    run_out,
    settled,
    settled_pair,
    stack,
    store_sums,
    streams,
    unload,
)
from anycann.backends.cpu_lines import LINES, PAIR, begin_lines, carried_on, end_of, finish_lines, keep_lines, put_pair
from anycann.backends.cpu_math import add_product, add_usual_product
from anycann.backends.cpu_program import Program, clear
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    any_lane,
    bits,
    fence,
    itemsize,
    load,
    load1,
    load1_i64,
    load_f64,
    load_pair,
    load_tail,
    prefetch,
    prefetch_far,
    splat,
    store,
    store1,
    store1_f64,
    store1_i64,
    store_f64,
    sum_lanes,
    tag_of,
    widen,
)
from anycann.backends.cpu_system import give_back
from anycann.backends.cpu_threads import claim, partitioned, release
from anycann.backends.threads import get_num_threads, group_size
from anycann.bind import Call, Launch
from anycann.ops.nsa_compress_grad.spec import RUN_D, TOKENS_PER_PARTIAL
from anycann.ops.windows import sequences

__all__ = ["plan"]

_Ints: TypeAlias = tuple[int, ...]  # of a fixed length

_LANE_BYTES = 8 * LANES  # of the float64 sums of a place in the window and a head
# A thread's state: what is carried on between lines; int64: the first window of the unit that is not widened, the last with unusual
# rows; then lanes of sums that nobody reads, and a weight of 1.
_WIDENED, _STRANGE = LINES // 8, LINES // 8 + 1
_NOWHERE, _ONE, _STATE = LINES + 64, LINES + 192, LINES + 256
_GRADS, _WEIGHTS = 80, 32  # exponents of usual numbers: their products are exact in float32, and sums of two are 0 or normal
_FAR, _NEAR = 6144, 512  # bytes between a load of x and what is asked for at that time, for the second and the first cache
_BOX = 16  # tokens whose rows are copied at once
_GRAIN = 512  # elements of weightGrad worth a thread
_CACHED = 1 << 18  # bytes of these sums that a unit works on, at most
_SEQUENCE = 4 * 8  # bytes of an entry: start, length, number of its first window, number of windows


@device
def _add_run(lanes: int, run: Any) -> None:
    store_f64(lanes, 0, load_f64(lanes, 0) + widen(run))


@device
def _prefetch_pair(tag: Tag, address: int, aheads: tuple[int, int]) -> None:
    far, near = aheads
    prefetch_far(address + far)
    prefetch(address + near)
    if itemsize(tag) == 4:
        prefetch_far(address + 64 + far)
        prefetch(address + 64 + near)


@device
def _under_two(
    tag: Tag,
    n: int,
    x: int,
    aheads: tuple[int, int],
    grads: _Ints,
    weights: tuple[float, float],
    lanes: _Ints,
    out: int,
    before: Any,
    k: int,
    lines: bool,
) -> Any:
    """A token in two windows: the sum of both products goes to out, and a run to the lanes of each. Returns the last 64 bytes of out."""
    run0, run1, pairs, (w0, w1) = splat(-0.0), splat(-0.0), n - n % PAIR, weights
    for i in range(0, pairs, PAIR):
        _prefetch_pair(tag, x + i * itemsize(tag), aheads)
        x_low, x_high = load_pair(tag, x, i)
        low0, low1 = load(F32, grads[0], i), load(F32, grads[1], i)
        high0, high1 = load(F32, grads[0], i + LANES), load(F32, grads[1], i + LANES)
        run0 = add_product(tag, add_product(tag, run0, x_low, low0), x_high, high0)
        run1 = add_product(tag, add_product(tag, run1, x_low, low1), x_high, high1)
        low, high = add_usual_product(tag, low0 * w0, low1, splat(w1)), add_usual_product(tag, high0 * w0, high1, splat(w1))
        low, high = settled_pair(tag, low, high)
        before = put_pair(tag, out, i, low, high, (before, k), lines, True)
    if pairs < n:
        v, g0, g1 = load(tag, x, pairs), load(F32, grads[0], pairs), load(F32, grads[1], pairs)
        run0 = run0 + v * g0
        run1 = run1 + v * g1
        store(tag, out, pairs, settled(tag, g0 * w0 + g1 * w1))
    _add_run(lanes[0], run0)
    _add_run(lanes[1], run1)
    return before


@device
def _under_many(
    tag: Tag,
    n: int,
    x: int,
    grads: int,
    pitch: int,
    windows: _Ints,
    weights: int,
    weight_step: int,
    lanes: int,
    lane_step: int,
    out: int,
    sums: int,
) -> None:
    """A token in any number of windows, none included, one after the other; `sums` is memory for n float32."""
    first, count, slots = windows
    for i in range(0, n, LANES):
        store(F32, sums, i, splat(-0.0 if count > 0 else 0.0))
    for k in range(count):
        run, grad, weight = splat(-0.0), grads + (first + k) % slots * pitch, load1(tag, weights + k * weight_step, 0)
        for i in range(0, n, LANES):
            g = load(F32, grad, i)
            run = run + load(tag, x, i) * g
            store(F32, sums, i, load(F32, sums, i) + g * weight)
        _add_run(lanes + k * lane_step, run)
    for i in range(0, n, LANES):
        store(tag, out, i, settled(tag, load(F32, sums, i)))


@apart
def _widen_row(tag: Tag, row: int, step: int, n: int, target: int, scratch: int, ahead: int, exponent: int) -> bool:
    """Whether all numbers are usual: 0, or of a size from 2^-exponent to 2^exponent. A target has room for a multiple of 16; 0: none."""
    least, span, strange = (127 - exponent) << 23, 2 * exponent << 23, splat(0.0) > 0.0
    for d in range(0, n, RUN_D):
        count = min(RUN_D, n - d)
        run = run_in(tag, row + d * step * itemsize(tag), step, count, scratch)
        for i in range(0, count, LANES):
            prefetch(run + i * itemsize(tag) + ahead)
            v = load_tail(tag, run, i, count - i)
            size = bits(v) & 0x7FFFFFFF
            strange = strange | (size < least) & (size != 0) | (size > least + span)
            if target != 0:
                store(F32, target, d + i, v)
    return not any_lane(strange)


@apart
def _tokens(
    tag: Tag, counts: _Ints, places: _Ints, token_steps: _Ints, head_steps: _Ints, two: bool, sides: _Ints, state: int, stream: bool
) -> None:
    """Tokens, head by head, in two windows; sides: the steps from the first one's weight, lanes and row to the second's.

    In one window the second is made up: sides are the places of a weight 1, of lanes that nobody reads, and of a row of -0.0.
    """
    (tokens, heads, width), size = counts, itemsize(tag)
    x, out, weight, lane, row = places
    run, step = width * size, head_steps[0] if heads > 1 else token_steps[0]
    step = step if run < step <= APART else 0 * step  # heads as far apart as all tokens of one are read ahead head by head
    aheads = following(run, step, _FAR, _FAR), following(run, step, _NEAR, _NEAR)
    before, expected, k = carried_on(state)
    for _ in range(tokens):
        p_x, p_out, p_weight, p_lane, p_grad = x, out, weight, lane, row
        for _ in range(heads):
            other = (p_weight + sides[0], p_lane + sides[1], p_grad + sides[2]) if two else sides
            weights, d = (load1(tag, p_weight, 0), load1(tag, other[0], 0)), 0 * width
            while d < width:
                n = min(RUN_D, width - d)
                v, to, grads, run_lanes = p_x + d * size, p_out + d * size, (p_grad + 4 * d, other[2] + 4 * d), (p_lane, other[1])
                if stream and to != expected:
                    keep_lines(state, before, expected, k)
                    finish_lines(state)
                    k, expected = (to & 63) >> 2, to if to & 63 == 0 else 0 * to
                before = _under_two(tag, n, v, aheads, grads, weights, run_lanes, to, before, k, stream and to == expected)
                expected = end_of(tag, to, n)
                d += n
            p_x += head_steps[0]
            p_out += head_steps[1]
            p_weight += head_steps[2]
            p_lane += head_steps[3]
            p_grad += head_steps[4]
        x += token_steps[0]
        out += token_steps[1]
        weight += token_steps[2]
        lane += token_steps[3]
    keep_lines(state, before, expected, k)


@apart
def _segment(
    tag: Tag,
    addresses: _Ints,
    strides: tuple[_Ints, ...],
    tokens: _Ints,
    heads: _Ints,
    windows: _Ints,
    place: int,
    stride: int,
    group: int,
    width: int,
    lanes: int,
    rows: int,
    scratch: _Ints,
    across: _Ints,
    stream: bool,
    usual: bool,
) -> None:
    """Tokens [first, end) and heads [first, end) under (first, number of, at most) windows; place: the first token's in the first.

    across: a `transposer` where rows of x lie side by side, else 0, and where there is room for _BOX tokens.
    """
    (p_grad, p_x, p_weight, p_out), (grad_strides, x_strides, weight_strides, out_strides) = addresses, strides
    (first, count, slots), size, (s_x, s_out, sums, state) = windows, itemsize(tag), scratch
    weight_step, lane_step, row_bytes = -stride * weight_strides[0] * size, -stride * group * _LANE_BYTES, 4 * width
    pitch = row_bytes * group
    for c in range(max(first, load1_i64(state, _WIDENED)), first + count):
        for head in range(heads[0], heads[1]):
            row = p_grad + (c * grad_strides[0] + head * grad_strides[1]) * size
            target = rows + c % slots * pitch + (head - heads[0]) * row_bytes
            if not _widen_row(tag, row, grad_strides[2], width, target, s_x, grad_strides[0] * size, types.intp(_GRADS)):
                store1_i64(state, _STRANGE, c)
        store1_i64(state, _WIDENED, c + 1)
    usual = usual and load1_i64(state, _STRANGE) < first
    p_x += (tokens[0] * x_strides[0] + heads[0] * x_strides[1]) * size
    p_out += (tokens[0] * out_strides[0] + heads[0] * out_strides[1]) * size
    p_weight += (place * weight_strides[0] + heads[0] * weight_strides[1]) * size
    lanes += place * group * _LANE_BYTES
    if across[0] != 0:
        counts = tokens[1] - tokens[0], heads[1] - heads[0], width
        x_strides, p_x = box_in(across[0], size, p_x, counts, x_strides, across[1]), across[1]
    if 1 <= count <= 2 and (usual or size == 4) and x_strides[2] == 1 and out_strides[2] == 1:
        row, other = rows + first % slots * pitch, rows + (first + 1) % slots * pitch
        sides = (weight_step, lane_step, other - row) if count == 2 else (state + _ONE, state + _NOWHERE, rows + slots * pitch)
        counts, places = (tokens[1] - tokens[0], heads[1] - heads[0], width), (p_x, p_out, p_weight, lanes, row)
        token_steps = x_strides[0] * size, out_strides[0] * size, weight_strides[0] * size, group * _LANE_BYTES
        head_steps = x_strides[1] * size, out_strides[1] * size, weight_strides[1] * size, _LANE_BYTES, row_bytes
        _tokens(tag, counts, places, token_steps, head_steps, count == 2, sides, state, stream)
        return
    for t in range(tokens[1] - tokens[0]):
        for h in range(heads[1] - heads[0]):
            lane = lanes + (t * group + h) * _LANE_BYTES
            weight = p_weight + (t * weight_strides[0] + h * weight_strides[1]) * size
            for d in range(0, width, RUN_D):
                n = min(RUN_D, width - d)
                x = p_x + (t * x_strides[0] + h * x_strides[1] + d * x_strides[2]) * size
                p_place = p_out + (t * out_strides[0] + h * out_strides[1] + d * out_strides[2]) * size
                x, grad = run_in(tag, x, x_strides[2], n, s_x), rows + 4 * d + h * row_bytes
                out = run_out(p_place, out_strides[2], s_out)
                _under_many(tag, n, x, grad, pitch, (first, count, slots), weight, weight_step, lane, lane_step, out, sums)
                unload(tag, p_place, out_strides[2], n, s_out)


@partitioned
def _units(
    tag: Tag,
    addresses: _Ints,
    strides: tuple[_Ints, ...],
    sizes: _Ints,
    tables: _Ints,
    memory: _Ints,
    begin: float,
    stream: bool,
    across: int,
    start: int,
    stop: int,
) -> None:
    """Units [start, stop): the gradients of their tokens, and their partial sums of weightGrad. Sums begin at -0.0, or 0.0 if empty."""
    (total, heads, width, block, stride, group), (p_sequences, p_first), (sums, pitch, locks, slot_bytes, slots) = sizes, tables, memory
    scratch = stack(SCRATCH), stack(SCRATCH), stack(SCRATCH), stack(_STATE)
    begin_lines(scratch[3])
    store1(tag, scratch[3] + _ONE, 0, 1.0)
    store_f64(scratch[3] + _NOWHERE, 0, widen(splat(0.0)))
    slot = claim(locks, slots) if slots > 0 else slots
    groups, lanes = -(-heads // group), locks + -(-slots // 8) * 64 + slot * slot_bytes  # without slots, one piece does everything
    rows = lanes + block * group * _LANE_BYTES
    reserved, held = begin_box(across, _BOX * group * width * itemsize(tag))
    box = across, held
    for i in range(width):
        store1(F32, rows + -(-block // stride) * group * width * 4, i, -0.0)
    for unit in range(start, stop):
        chunk = unit // groups
        head = (unit - chunk * groups) * group
        last_head = min(head + group, heads)
        usual = block > 0  # not a literal, for which functions would be compiled once more
        row_step, step = strides[2]
        at_once = block if step == 1 and row_step == last_head - head else 1  # rows of weights
        for w in range(0, block, at_once):
            weights, n = addresses[2] + (w * row_step + head * step) * itemsize(tag), at_once * (last_head - head)
            ahead, nowhere = row_step * itemsize(tag), 0 * block
            usual = _widen_row(tag, weights, step, n, nowhere, scratch[0], ahead, types.intp(_WEIGHTS)) and usual
        store1_i64(scratch[3], _WIDENED, 0)
        store1_i64(scratch[3], _STRANGE, -1)
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
            if across != 0:
                until = min(until, place + _BOX)
            windows, at = (number + low, max(0, high - low + 1), -(-block // stride)), place - low * stride
            tokens, some = (token, origin + until), (head, last_head)
            _segment(tag, addresses, strides, tokens, some, windows, at, stride, group, width, lanes, rows, scratch, box, stream, usual)
            token = origin + until
        for w in range(block):
            for i in range(head, last_head):
                lane = load_f64(lanes + (w * group + i - head) * _LANE_BYTES, 0)
                store1_f64(sums, chunk * pitch + w * heads + i, sum_lanes(lane))
    if stream:
        finish_lines(scratch[3])
        fence()
    give_back(reserved)
    if slots > 0:
        release(locks, slot)


@partitioned
def _totals(tag: Tag, p_out: int, strides: _Ints, heads: int, sums: int, chunks: int, pitch: int, start: int, stop: int) -> None:
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


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the partial sums of weightGrad; for each thread lanes of sums, widened rows of outputGrad and one of -0.0."""
    tokens, heads, width, block = (call.axes[axis] for axis in "TNDW")
    stride = call.attrs["compressStride"]
    tag = tag_of(call["input"].dtype.name)
    table, firsts = _tables(call.attrs["actSeqLenOptional"], tokens, block, stride)
    chunks, pitch = len(firsts.array), block * heads
    group = group_size(heads, _CACHED // (block * _LANE_BYTES), 1, chunks)  # heads of a unit, whose lanes stay in the cache
    units = chunks * -(-heads // group)
    slot_bytes = block * group * _LANE_BYTES + (-(-block // stride) * group + 1) * width * 4
    slots, o_locks = min(units, get_num_threads()) if units > 1 else 0, -(-(chunks * pitch + LANES) // 8) * 64
    o_slots = o_locks + -(-slots // 8) * 64
    begin = -0.0 if call.axes["C"] > 0 else 0.0
    strides = tuple(tensor.strides for tensor in call.tensors[:4])
    sizes, stream = (tokens, heads, width, block, stride, group), streams(call["inputGradOut"]) and width % PAIR == 0
    entry = _units.for_types(tag, _ints(4), _STRIDES, _ints(6), _ints(2), _ints(5), types.float32, types.boolean, types.intp)
    finish = _totals.for_types(tag, types.intp, _ints(2), *(types.intp,) * 4)
    program = Program(call.tensors)
    operands, workspace = program.operands, program.workspace
    if slots > 0:
        program.add(clear.for_types(types.intp, types.intp), (workspace + o_locks, o_slots - o_locks))
    memory = (workspace, pitch, workspace + o_locks, slot_bytes, slots)
    program.add(entry, (None, operands[:4], strides, sizes, (table, firsts), memory, begin, stream, code_across(call["input"])), units)
    row, column = call["weightGradOut"].strides
    rows, columns = (1, pitch) if row == heads * column and pitch <= _GRAIN else (block, heads)
    program.add(finish, (None, operands[4], (row, column), columns, workspace, chunks, pitch), rows, -(-_GRAIN // heads))
    return o_slots + max(1, slots) * slot_bytes, program
