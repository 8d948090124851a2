"""Sort, then copy: the places of all copies come from a radix sort on one thread, then all threads copy rows to their places.

The sort counts the bytes in which experts, less the smallest of them, differ: up to 256 experts are one pass over memory in order.
"""

from numba import types

from anycann.backends.cpu import apart, device
from anycann.backends.cpu_across import columns_at_once, turned
from anycann.backends.cpu_blocks import AHEAD, copy_run, stack, streams
from anycann.backends.cpu_gather import GRAIN, ask_ends, row_address
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import (
    F32,
    copy1,
    fence,
    load,
    load1_i32,
    load1_i64,
    load_tail,
    prefetch,
    store,
    store1_i32,
    store1_i64,
    store_stream,
    store_tail,
)
from anycann.backends.cpu_threads import partitioned, whole
from anycann.bind import Call, Launch

__all__ = ["plan"]

_DIGIT = 8  # bits that a pass sorts by
_COUNTS = 8 << _DIGIT  # bytes
_LINE = 64


@apart
def _count(keys: int, copies: int, shift: int, counts: int) -> None:
    """Where in the sorted order each value of a digit begins."""
    for digit in range(1 << _DIGIT):
        store1_i64(counts, digit, 0)
    for i in range(copies):
        digit = load1_i64(keys, i) >> shift & 255
        store1_i64(counts, digit, load1_i64(counts, digit) + 1)
    before = 0
    for digit in range(1 << _DIGIT):
        count = load1_i64(counts, digit)
        store1_i64(counts, digit, before)
        before += count


@device
def _next_place(counts: int, key: int, shift: int) -> int:
    digit = key >> shift & 255
    place: int = load1_i64(counts, digit)
    store1_i64(counts, digit, place + 1)
    return place


@whole
def _sort(
    p_indices: int,
    token_stride: int,
    stride: int,
    wide: int,
    tokens: int,
    k: int,
    p_places: int,
    place_stride: int,
    keys: int,
) -> None:
    """The place of each copy. At `keys` is room for three int64 of each: its key, and two orders that passes read and write in turn."""
    copies, counts = tokens * k, stack(_COUNTS)
    order, other = keys + 8 * copies, keys + 16 * copies
    low = high = load1_i64(p_indices, 0) if wide else types.int64(load1_i32(p_indices, 0))
    for token in range(tokens):
        for i in range(k):
            at = token * token_stride + i * stride
            key = load1_i64(p_indices, at) if wide else types.int64(load1_i32(p_indices, at))
            store1_i64(keys, token * k + i, key)
            low, high = min(low, key), max(high, key)
    for i in range(copies):
        store1_i64(keys, i, load1_i64(keys, i) - low)  # modulo 2^64: digits are read as if it had no sign
        store1_i64(order, i, i)
    span, shift = high - low, 0
    while shift + _DIGIT < 64 and span >> shift + _DIGIT != 0:
        _count(keys, copies, shift, counts)
        for i in range(copies):
            copy = load1_i64(order, i)
            store1_i64(other, _next_place(counts, load1_i64(keys, copy), shift), copy)
        order, other, shift = other, order, shift + _DIGIT
    _count(keys, copies, shift, counts)
    for i in range(copies):
        copy = load1_i64(order, i)
        store1_i32(p_places, copy * place_stride, _next_place(counts, load1_i64(keys, copy), shift))


@device
def _copy_part(target: int, source: int, n: int) -> None:
    """n < 64 bytes, an even number."""
    words = n // 4
    if words > 0:  # even a store of nothing would ask for the line
        store_tail(F32, target, 0, load_tail(F32, source, 0, words), words)
    if n & 2 != 0:
        copy1(2, target, 2 * words, source, 2 * words)


@device
def _copy(target: int, source: int, n: int, stream: bool) -> None:
    """n bytes, an even number; `stream`: whole lines go past the caches, if an element may begin at one."""
    stream = stream and target & 1 == 0
    head = min(n, -target & 62)  # nothing else: a line of which the cache has a part is slow to write past it
    tail = (n - head) & 63
    _copy_part(target, source, head)
    _copy_part(target + n - tail, source + n - tail, tail)
    for i in range(head, n - tail, _LINE):
        prefetch(source + i + AHEAD)
        if stream:
            store_stream(F32, target + i, 0, load(F32, source + i, 0))
        else:
            store(F32, target + i, 0, load(F32, source + i, 0))


@partitioned
def _copy_rows(
    p_tokens: int,
    p_places: int,
    p_out: int,
    token_stride: int,
    token_step: int,
    place_stride: int,
    out_stride: int,
    out_step: int,
    size: int,
    rows: int,
    k: int,
    width: int,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """The copies of tokens [start, stop) whose place is below `rows`."""
    for token in range(start, stop):
        source = row_address(p_tokens, token, token_stride, size)
        for i in range((token + 1) * k, min(stop, token + 2) * k):
            ask_ends(row_address(p_out, load1_i32(p_places, i * place_stride), out_stride, size), width * size)
        for i in range(token * k, (token + 1) * k):
            place = load1_i32(p_places, i * place_stride)
            if place >= rows:
                continue
            target = row_address(p_out, place, out_stride, size)
            if token_step == 1 and out_step == 1:
                _copy(target, source, width * size, stream)
            else:
                copy_run(size, target, out_step, source, token_step, width)
    if stream:
        fence()


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace is that of the sort, and then of tokens that lie side by side in memory, some columns of them after the other."""
    tokens, indices, out, places = call.tensors
    rows, k, width = call.axes["R"], call.axes["K"], call.axes["H"]
    wide, sort_strides = indices.dtype.name == "int64", (*indices.strides, 0)[:2]
    sort = _sort.for_types(*(types.intp,) * 3, types.boolean, *(types.intp,) * 5)
    copy = _copy_rows.for_types(*(types.intp,) * 12, types.boolean)
    size, stream, (place_stride,) = tokens.dtype.itemsize, streams(out), places.strides
    count, grain = tokens.shape[0], max(1, GRAIN // max(1, k * width))
    program = Program(call.tensors)
    p_tokens, p_indices, p_out, p_places = program.operands
    program.add(sort, (p_indices, *sort_strides, wide, count, k, p_places, place_stride, program.workspace))
    pitch = columns_at_once(tokens)
    if pitch == 0:
        strides = *tokens.strides, place_stride, *out.strides
        program.add(copy, (p_tokens, p_places, p_out, *strides, size, rows, k, width, stream), count, grain)
        return 24 * call.axes["L"], program
    for first, some in turned(program, tokens, p_tokens, program.workspace):
        strides, place = (pitch, 1, place_stride, *out.strides), p_out + first * out.strides[1] * size
        program.add(copy, (program.workspace, p_places, place, *strides, size, rows, k, some, stream), count, grain)
    return max(24 * call.axes["L"], count * pitch * size), program
