"""One pass over the tokens: each writes its gradient to the rows of its copies, and adds up its products with what they were.

Before it one thread notes for every row the last index that names it, in the workspace; after it rows that none names are set to 0.
Sums start at -0.0, the one number that changes no first term.
"""

from typing import Any

from numba import types

from anycann.backends.cpu import apart, device
from anycann.backends.cpu_blocks import (
    BLOCK,
    SCRATCH,
    ask_beside,
    fetch,
    run_in,
    run_out,
    settled,
    settled_pair,
    stack,
    store_sums,
    streams,
    sweep,
    unload,
)
from anycann.backends.cpu_gather import GRAIN, MOST_ROWS, ask_ends, row_address, zero
from anycann.backends.cpu_lines import PAIR, finish_lines, keep_lines, put_head, put_pair
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import (
    LANES,
    Tag,
    fence,
    iota,
    itemsize,
    load,
    load1,
    load1_i32,
    load1_i64,
    load_tail,
    select,
    splat,
    splat_i,
    store,
    store1_f64,
    store1_i64,
    store_line,
    store_tail,
    sum_lanes,
    tag_of,
    widen,
)
from anycann.backends.cpu_threads import partitioned, whole
from anycann.bind import Call, Launch
from anycann.ops.moe_token_unpermute_grad.spec import RUN_H

__all__ = ["plan"]

_SUMS = 8 * (MOST_ROWS + LANES)  # bytes of the sums of a token, and what `store_sums` may read beyond them


@whole
def _last_names(p_indices: int, stride: int, entries: int, rows: int, last: int) -> None:
    """For every row the last index that names it, or -1."""
    for row in range(rows):
        store1_i64(last, row, -1)
    for i in range(entries):
        row = load1_i32(p_indices, i * stride)
        if 0 <= row < rows:
            store1_i64(last, row, i)


@device
def _run(
    tag: Tag, grad: int, row: int, ahead: int, weight: float, out: int, first: int, n: int, before: Any, k: int, lines: bool
) -> tuple[Any, Any]:
    """Elements [first, first + n) of a row, at most RUN_H: out = grad * weight, and the lanes of the sum of grad * row.

    ahead: bytes from this row to what is asked for. `lines`: out, k words behind the beginning of a line, is written as whole lines past
    the caches; then `before` is what `put_pair` returned last, and is returned as well.
    """
    run, end, later = splat(-0.0), first + n - n % PAIR, (tag, row, 1, ahead)
    for i in range(first, end, PAIR):
        ask_beside(later, i, types.intp(0))
        ask_beside(later, i + LANES, types.intp(1))
        low, high = load(tag, grad, i), load(tag, grad, i + LANES)
        run = run + low * load(tag, row, i) + high * load(tag, row, i + LANES)
        low, high = settled_pair(tag, low * weight, high * weight)
        if not lines:
            store(tag, out, i, low)
            store(tag, out, i + LANES, high)
        elif k == 0:
            store_line(tag, out, i, low, high)
        elif i == 0:
            before = put_head(tag, out, low, high, k)
        else:
            before = put_pair(tag, out, i, low, high, (before, k), lines, False)
    for i in range(end, first + n, LANES):
        m = min(LANES, first + n - i)
        part = load_tail(tag, grad, i, m)
        run = run + select(iota() < types.int32(m), part * load_tail(tag, row, i, m), splat(-0.0))
        store_tail(tag, out, i, settled(tag, part * weight), m)
    return run, before


@apart
def _copy(
    tag: Tag,
    grad: int,
    grad_step: int,
    row: int,
    row_step: int,
    ahead: int,
    weight: float,
    place: int,
    out_step: int,
    decides: bool,
    width: int,
    scratch: tuple[int, int, int],
    stream: bool,
) -> float:
    """One copy of a token: the sum of grad * row, and grad * weight where this index decides. Steps are the strides of columns.

    ahead: bytes from this row to the next one.
    """
    size, total = itemsize(tag), widen(splat(-0.0 if width > 0 else 0.0))
    block = width if grad_step == row_step == out_step == 1 and decides else min(BLOCK, width)
    lines = stream and decides and out_step == 1 and place & 3 == 0 and PAIR <= width == block
    k, before, d = (place & 63) >> 2, splat_i(0), 0 * width
    while d < width:
        n = min(block, width - d)
        p_grad = run_in(tag, grad + d * grad_step * size, grad_step, n, scratch[0])
        p_row = run_in(tag, row + d * row_step * size, row_step, n, scratch[1])
        out = run_out(place + d * out_step * size, out_step, scratch[2]) if decides else scratch[2]
        for first in range(0, n, RUN_H):
            run, before = _run(tag, p_grad, p_row, ahead, weight, out, first, min(RUN_H, n - first), before, k, lines)
            total = total + widen(run)
        if decides:
            unload(tag, place + d * out_step * size, out_step, n, scratch[2])
        d += n
    if lines:
        keep_lines(scratch[0], before, place + (width - width % PAIR) * size, k)
        finish_lines(scratch[0])
    result: float = sum_lanes(total)
    return result


@partitioned
def _weighted(
    tag: Tag,
    p_tag: Tag,
    addresses: tuple[int, int, int, int, int, int, int],
    strides: tuple[tuple[int, int], tuple[int, int], int, tuple[int, int], tuple[int, int], tuple[int, int]],
    sizes: tuple[int, int, int],
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """Tokens [start, stop) with weights: their copies' gradients, and those of the weights."""
    (p_rows, p_grad, p_indices, p_probs, p_out, p_probs_grad, last), (rows, k, width) = addresses, sizes
    row_strides, grad_strides, index_stride, prob_strides, out_strides, prob_grad_strides = strides
    size, sums, scratch = itemsize(tag), stack(_SUMS), (stack(SCRATCH), stack(SCRATCH), stack(SCRATCH))
    for token in range(start, stop):
        grad = row_address(p_grad, token, grad_strides[0], size)
        for i in range(k):
            entry = token * k + i
            index, total = load1_i32(p_indices, entry * index_stride), 0.0
            if 0 <= index < rows:
                weight = load1(p_tag, p_probs, token * prob_strides[0] + i * prob_strides[1])
                row, place = row_address(p_rows, index, row_strides[0], size), row_address(p_out, index, out_strides[0], size)
                decides, other = load1_i64(last, index) == entry, load1_i32(p_indices, min(entry + 1, stop * k - 1) * index_stride)
                ahead, step = 0 * row, out_strides[1]
                if 0 <= other < rows:
                    ahead = row_address(p_rows, other, row_strides[0], size) - row
                    if stream:
                        ask_ends(row_address(p_out, other, out_strides[0], size), width * size)
                total = _copy(tag, grad, grad_strides[1], row, row_strides[1], ahead, weight, place, step, decides, width, scratch, stream)
            store1_f64(sums, i, total)
        store_sums(p_tag, sums, 1, 0, row_address(p_probs_grad, token, prob_grad_strides[0], itemsize(p_tag)), prob_grad_strides[1], k)
    if stream:
        fence()


@partitioned
def _rows(
    tag: Tag,
    p_grad: int,
    p_out: int,
    grad_stride: int,
    grad_step: int,
    out_stride: int,
    out_step: int,
    width: int,
    last: int,
    copies: bool,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """Rows [start, stop) of the gradient: 0 if no index names them, else with `copies` the gradient of the token that does."""
    size, s_grad, s_out = itemsize(tag), stack(SCRATCH), stack(SCRATCH)
    block = max(1, width) if grad_step == out_step == 1 else types.intp(BLOCK)
    for row in range(start, stop):
        token = load1_i64(last, row)
        if token >= 0 and not copies:
            continue
        for d in range(0, width, block):
            n, place = min(block, width - d), row_address(p_out, row, out_stride, size) + d * out_step * size
            out = run_out(place, out_step, s_out)
            if token < 0:
                sweep(zero, None, tag, out, n, False)
            else:
                source = run_in(tag, row_address(p_grad, token, grad_stride, size) + d * grad_step * size, grad_step, n, s_grad)
                other = load1_i64(last, min(row + 1, stop - 1))
                ahead = (other - token) * grad_stride * size if other >= 0 else 0 * token
                sweep(fetch, (tag, source, 1, ahead), tag, out, n, stream and out_step == 1, None, ask_beside)
            unload(tag, place, out_step, n, s_out)
    if stream:
        fence()


def _pairs(n: int) -> Any:
    """The Numba type of a tuple of n integers."""
    return types.UniTuple(types.intp, n)


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the last index that names each row."""
    row_source, grad, indices, probs, out, probs_grad = call.tensors
    rows, k, width, entries, tag = call.axes["R"], call.axes["K"], call.axes["H"], call.axes["L"], tag_of(out.dtype.name)
    weighted, stream = call.get("probsOptional") is not None, streams(out)
    names = _last_names.for_types(*(types.intp,) * 5)
    fill = _rows.for_types(tag, *(types.intp,) * 8, types.boolean, types.boolean)
    (index_stride,) = indices.strides
    row_strides, tokens, grain = (*grad.strides, *out.strides), grad.shape[0], max(1, GRAIN // max(1, width))
    program = Program(call.tensors)
    operands, last = program.operands, program.workspace
    program.add(names, (operands[2], index_stride, entries, rows, last))
    if weighted:
        two, one = _pairs(2), types.intp
        arguments = _pairs(7), types.Tuple((two, two, one, two, two, two)), _pairs(3), types.boolean
        entry = _weighted.for_types(tag, tag_of(probs.dtype.name), *arguments)
        strides = (row_source.strides, grad.strides, index_stride, probs.strides, out.strides, probs_grad.strides)
        program.add(entry, (None, None, (*operands, last), strides, (rows, k, width), stream), tokens, max(1, grain // k))
    program.add(fill, (None, operands[1], operands[4], *row_strides, width, last, not weighted, stream), rows, grain)
    return 8 * rows, program
