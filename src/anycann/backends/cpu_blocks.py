"""Blocks for CPU kernels: strided, broadcast and converted operands, seen as short contiguous runs; nothing is materialised.

A *layout* describes how a tensor lies under an iteration shape: the int64 words [dtype code, dimensions, size, stride, size, stride, …],
innermost dimension first, dimensions that continue each other merged, broadcast dimensions with stride 0. A kernel walks the
row-major index `flat` of the iteration shape in blocks: `room` says how long the next block can be, `block_in` gives an operand of it,
`block_out` and `flush` take the results. A run that is contiguous in memory is used where it lies, any other is copied bit for bit
through scratch memory on the stack. A kernel may compute in float32 on operands of any type: tag F32 over another dtype converts.

An *operand* is a tuple (tag, address, step, ahead): element i of the run lies at index i * step, step being 0 or 1; with step 0 the
address holds the one element 16 times. What lies `ahead` bytes on is asked for when it is read.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from anycann.backends.cpu import apart, by_tag, device
from anycann.backends.cpu_llvm import FLOAT, I8, I32, I64, Emit, Value, lanes, operation
from anycann.backends.cpu_simd import (
    BF16,
    F16,
    F32,
    LANES,
    Tag,
    absolute,
    any_lane,
    bits,
    copy1,
    f32x16,
    from_bits,
    gather,
    itemsize,
    load,
    load1_i64,
    load_bits,
    load_bits_tail,
    load_f64,
    load_tail,
    narrow,
    prefetch,
    prefetch_far,
    reads_ahead,
    select,
    splat_i,
    store,
    store1_i64,
    store_line,
    store_pair,
    store_tail,
    widen,
)
from anycann.backends.cpu_system import give_back, reserve
from anycann.backends.cpu_tiles import transpose_tile, transposer
from anycann.backends.loops import LINE, Part
from anycann.dtypes import DType
from anycann.tensor import Tensor, address_of

__all__ = [
    "APART", "BELOW", "BLOCK", "DIRECT", "LAYOUT", "SCRATCH", "SHORT", "WALK_SCRATCH", "Held", "Operand", "ask", "ask_beside", "ask_line",
    "begin_walk", "block_in", "block_out", "copy_block", "end_walk", "entries", "fetch", "fetch_entries", "fetch_only", "flush",
    "following", "layout", "load_any", "near_rows", "nest_of", "offset_of", "once", "repeats", "room", "round_odd", "rows_in", "run_in",
    "run_out", "settled", "settled_pair", "stack", "store_sums", "streams", "sweep", "tile_in", "unload", "words_of",
]  # fmt: skip

F = TypeVar("F", bound=Callable[..., Any])
Operand: TypeAlias = tuple[Tag, int, int, int]

BLOCK = 1024  # elements of a block that is copied
SCRATCH = 8 * BLOCK + 128  # bytes of scratch for an operand: its bits, and then those bits as float32
WALK_SCRATCH = SCRATCH + 64  # and int64: the number of the tile that an operand has, counted from 1, and where it lies; 0 for nowhere
_TILE, _PLACE = SCRATCH // 8, SCRATCH // 8 + 1
DIRECT = 64  # elements that a contiguous run must have to be worth a block of its own
SHORT = 16  # the same, where blocks repeat
AHEAD = 2048  # bytes between a load and the prefetch of what comes later
APART = 1 << 13  # bytes up to which a run asks for those that follow, if these lie apart, and not for what lies between
STREAM = 1 << 23  # bytes of output from which on stores bypass the caches

_MAX_DIMENSIONS = 8
_ROWS = 2 + 2 * _MAX_DIMENSIONS  # where a layout has the rows and the columns of tiles, and the code that transposes them
_CODE = _ROWS + 2
BELOW, _NEAR = _CODE + 1, _CODE + 2  # how many rows it is from one to its neighbour in memory, and how many such neighbours
LAYOUT = 8 * (_NEAR + 1)  # bytes of a layout
_CODES = {"float16": 0, "bfloat16": 1, "float32": 2}
_HALF, _SINGLE = _CODES["float16"], _CODES["float32"]


def nest_of(strides: Sequence[int], shape: Sequence[int]) -> list[tuple[int, int]]:
    """The loops (size, stride) over a tensor, innermost first: no dimension of size 1, none that continues the one inside it."""
    nest: list[tuple[int, int]] = []
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size == 1:
            continue
        if nest and stride == nest[-1][0] * nest[-1][1]:
            nest[-1] = (nest[-1][0] * size, nest[-1][1])
        else:
            nest.append((size, stride))
    return nest or [(1, 1)]


class Held:
    """An array that kernels read by its address, which is good as long as this object lives."""

    __slots__ = ("address", "array")

    def __init__(self, array: "np.ndarray[Any, Any]") -> None:
        self.array = array
        self.address = address_of(array)


def layout(
    dtype: DType, strides: Sequence[int], shape: Sequence[int], tile: Sequence[int] = (0, 0), across: Sequence[int] = (0, 0, 0)
) -> list[int]:
    """The words that describe strides under a shape, whose rows, of the last axis, go by tiles of rows and columns if one is given.

    across: what transposes tiles, or rows for `rows_in`: a `transposer`, and where neighbours of rows are.
    """
    nest = nest_of(strides, shape)
    words = [_CODES[dtype.name], len(nest)]
    for loop in nest:
        words += loop
    return words + [1, 0] * (_MAX_DIMENSIONS - len(nest)) + [*tile, *across]


def near_rows(tensor: Tensor, axes: int) -> list[int]:
    """The layout of the rows of a tensor, each of them its last `axes` axes.

    Where one line has elements of several rows, it has a `transposer`, and the word BELOW: these are so many rows apart.
    """
    split = len(tensor.shape) - axes
    strides, shape = tensor.strides[:split], tensor.shape[:split]
    nest, rows = nest_of(tensor.strides[split:], tensor.shape[split:]), nest_of(strides, shape)
    across = len(nest) == 1 and abs(nest[0][1]) * tensor.dtype.itemsize >= LINE
    loop = next((d for d, (size, stride) in enumerate(rows) if across and size > 1 and stride == 1), None)
    if loop is None:
        return layout(tensor.dtype, strides, shape)
    return layout(tensor.dtype, strides, shape, across=(transposer(), math.prod(size for size, _ in rows[:loop]), rows[loop][0]))


def words_of(tensors: Sequence[Tensor], part: Part, first: int = 0) -> Held:
    """The layouts of tensors in a part of loops over them, LAYOUT bytes each: from tensor `first` on, and then the others."""
    rows = []
    for tensor, steps, across in zip(tensors, part.loops.strides, part.across, strict=True):
        given = (part.tile, (transposer(), 1, part.tile[0])) if across else ()
        rows.append(layout(tensor.dtype, steps, part.loops.sizes, *given))
    return Held(np.array(rows[first:] + rows[:first], np.int64))


def streams(output: Tensor) -> bool:
    """Whether an output is so large that its stores should bypass the caches."""
    return output.numel * output.dtype.itemsize >= STREAM


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def stack(typing_context: Any, size: types.Type) -> Any:
    """The address of `size` bytes, a constant, on the stack of the kernel, aligned to 64."""
    if not isinstance(size, types.IntegerLiteral):
        return None
    count = size.literal_value

    def generate(context: Any, builder: ir.IRBuilder, _: Any, values: Any) -> Value:
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(I8, count))
        memory.align = 64
        return builder.ptrtoint(memory, I64)

    return types.intp(size), generate


@operation(f32x16, types.intp, types.intp, types.intp)
def entries(e: Emit, table: Value, address: Value, i: Value) -> Value:
    """The entries of a float32 table that 16 elements of 16 bits name.

    One load each: many CPUs gather more slowly than that. Those with arithmetic for float16 do not.
    """
    if e.has("avx512fp16"):
        return gather.emit(e, table, load_bits.emit(e, F16, address, i))
    found = ir.Constant(lanes(FLOAT), ir.Undefined)
    for lane in range(0, LANES, 4):
        four = e.read(e.b.add(address, I64(2 * lane)), i, 2, I64)
        for k in range(4):
            index = e.b.and_(e.b.lshr(four, I64(16 * k)), I64(0xFFFF))
            found = e.b.insert_element(found, e.read(table, index, 4, FLOAT), I32(lane + k))
    return found


@apart
def copy_run(size: int, target: int, target_stride: int, source: int, source_stride: int, n: int) -> None:
    """Copy n elements of `size` bytes, bit for bit."""
    for i in range(n):
        copy1(size, target, i * target_stride, source, i * source_stride)


@device
def offset_of(words: int, flat: int) -> int:
    """Where element `flat` of the iteration lies, counted in elements from element 0."""
    offset, rest, last = 0, flat, load1_i64(words, 1) - 1
    for d in range(last):
        size = load1_i64(words, 2 + 2 * d)
        outer = rest // size
        offset += (rest - outer * size) * load1_i64(words, 3 + 2 * d)
        rest = outer
    place: int = offset + rest * load1_i64(words, 3 + 2 * last)
    return place


@apart
def copy_block(size: int, address: int, words: int, flat: int, n: int, packed: int, outward: int) -> None:
    """Copy n elements from `flat` on, bit for bit, between where they lie and packed memory."""
    inner, stride, outer, jump = load1_i64(words, 2), load1_i64(words, 3), load1_i64(words, 4), load1_i64(words, 5)
    row = flat // inner
    position, rows = flat - row * inner, outer - row % outer
    offset, done = offset_of(words, flat), 0
    while done < n:
        count = min(n - done, inner - position)
        place, there = address + offset * size, packed + done * size
        copy_run(size, place if outward else there, stride if outward else 1, there if outward else place, 1 if outward else stride, count)
        done += count
        rows -= 1
        if rows > 0:
            offset += jump - position * stride
        else:
            offset, rows = offset_of(words, flat + done), outer
        position = 0


@device
def load_any(code: int, address: int, i: int, m: int) -> Any:
    """The m <= 16 elements from i on of a tensor whose layout begins with this code, widened to float32; 0 in the other lanes."""
    if code == _SINGLE:
        return load_tail(F32, address, i, m)
    return load_tail(F16, address, i, m) if code == _HALF else load_tail(BF16, address, i, m)


@apart
def _to_single(code: int, source: int, target: int, n: int) -> None:
    """Widen n elements of a 16-bit type to float32; the target has room for a multiple of 16."""
    for i in range(0, n, LANES):
        m = min(LANES, n - i)
        store(F32, target, i, load_any(code, source, i, m))


@apart
def _from_single(code: int, source: int, target: int, n: int) -> None:
    """Round n float32 once to a 16-bit type; the source has room for a multiple of 16."""
    for i in range(0, n, LANES):
        m = min(LANES, n - i)
        if code == _HALF:
            store_tail(F16, target, i, load(F32, source, i), m)
        else:
            store_tail(BF16, target, i, load(F32, source, i), m)


@apart
def room(tag: Tag, words: int, flat: int, n: int, direct: int) -> int:
    """How many of the n elements from `flat` on this operand can give, or take, as one block; `direct`: DIRECT or SHORT."""
    if itemsize(tag) == 4 and load1_i64(words, 0) != _SINGLE:
        n = min(n, BLOCK)
    if load1_i64(words, _ROWS) > 0:
        tile = load1_i64(words, _ROWS) * load1_i64(words, _ROWS + 1)
        left: int = tile - flat % tile
        return min(n, left)
    inner, stride = load1_i64(words, 2), load1_i64(words, 3)
    left = inner - flat % inner
    long = inner >= direct and inner * load1_i64(words, 4) >= DIRECT
    return min(n, left) if 0 <= stride <= 1 and (long or n <= left) else min(n, BLOCK)


@apart
def _rows_across(size: int, address: int, words: int, first: int, row: int, beside: int, stride: int, n: int, target: int) -> None:
    """Copy rows of n elements that lie `stride` apart, one behind the other: all that are between `beside` neighbours in memory.

    first: the first one's index; row: what a row takes of the indices that the words are for.
    """
    below = load1_i64(words, BELOW)
    source = address + offset_of(words, first) * size
    for k in range(below):
        following_row = k + 1 if k + 1 < below else beside * below
        other = address + offset_of(words, first + following_row * row) * size
        transpose_tile(load1_i64(words, _CODE), size, source, stride * size, beside, n, target + k * n * size, n * below * size, other)
        source = other


@apart
def rows_in(size: int, address: int, words: int, row: int, count: int, stride: int, n: int, target: int) -> None:
    """Copy `count` rows from `row` on, n elements of each that lie `stride` apart, one behind the other.

    words: the layout of rows. Where it has a `transposer`, those that lie side by side in memory are copied at once.
    """
    below, near, done = load1_i64(words, BELOW), load1_i64(words, _NEAR), 0
    while done < count:
        first, place, some = row + done, target + done * n * size, types.intp(1)
        if below > 0 and first % below == 0 and below <= count - done:
            beside = min((count - done) // below, near - first // below % near)
            _rows_across(size, address, words, first, types.intp(1), beside, stride, n, place)
            some = beside * below
        else:
            copy_run(size, place, 1, address + offset_of(words, first) * size, stride, n)
        done += some


@device
def begin_walk(scratch: int) -> None:
    """A scratch of WALK_SCRATCH bytes has no tile yet."""
    store1_i64(scratch, _TILE, 0)
    store1_i64(scratch, _PLACE, 0)


@device
def end_walk(scratch: int) -> None:
    """It needs no tile any more."""
    give_back(load1_i64(scratch, _PLACE))


@apart
def tile_in(scratch: int, tile: int, size: int) -> tuple[bool, int]:
    """Whether a scratch has this tile, which it is taken to have then, and where it has room for `size` bytes."""
    there, place = load1_i64(scratch, _TILE) == tile + 1, load1_i64(scratch, _PLACE)
    if place == 0:
        place = reserve(size)
        store1_i64(scratch, _PLACE, place)
    store1_i64(scratch, _TILE, tile + 1)
    return there, place


@apart
def block_in(tag: Tag, address: int, words: int, flat: int, n: int, scratch: int) -> Operand:
    """The operand of n elements from `flat` on; n must be within `room`. The scratch has SCRATCH bytes, or is one of a walk."""
    code, inner, stride = load1_i64(words, 0), load1_i64(words, 2), load1_i64(words, 3)
    size = itemsize(tag) if code == _SINGLE else 2
    source, step = address + offset_of(words, flat) * size, 1
    whole, rows, columns = n <= inner - flat % inner, load1_i64(words, _ROWS), load1_i64(words, _ROWS + 1)
    if rows > 0:
        tile = flat // (rows * columns)
        first = tile * rows * columns
        there, held = tile_in(scratch, tile, rows * columns * size)
        if not there:
            column_step = offset_of(words, first + 1) - offset_of(words, first) if columns > 1 else 0 * first
            _rows_across(size, address, words, first, columns, rows // load1_i64(words, BELOW), column_step, columns, held)
        source = held + (flat - first) * size
    elif stride == 0 and whole:
        for k in range(LANES):
            copy1(size, scratch, k, source, 0)
        source, step, n = scratch, 0, LANES
    elif stride != 1 or not whole:
        copy_block(size, address, words, flat, n, scratch, types.intp(0))
        source = scratch
    if itemsize(tag) == 4 and code != _SINGLE:
        _to_single(code, source, scratch + 4 * BLOCK, n)
        source = scratch + 4 * BLOCK
    return tag, source, step, types.intp(AHEAD)


@apart
def block_out(tag: Tag, address: int, words: int, flat: int, n: int, scratch: int) -> int:
    """Where to write n elements from `flat` on: in place, or in the scratch."""
    code, inner, stride = load1_i64(words, 0), load1_i64(words, 2), load1_i64(words, 3)
    if (itemsize(tag) == 4 and code != _SINGLE) or stride != 1 or n > inner - flat % inner:
        address = scratch
    else:
        address += offset_of(words, flat) * itemsize(tag)
    return address


@apart
def repeats(tag: Tag, words: int, flat: int, n: int, most: int) -> tuple[int, int]:
    """How many blocks of n elements, from `flat` on and at most `most`, lie alike, and the bytes from each to the next."""
    code, inner, stride = load1_i64(words, 0), load1_i64(words, 2), load1_i64(words, 3)
    outer, jump, tile = load1_i64(words, 4), load1_i64(words, 5), load1_i64(words, _ROWS) * load1_i64(words, _ROWS + 1)
    size = itemsize(tag)
    row = flat // inner
    position, count, step = flat - row * inner, types.intp(1), types.intp(0)
    if size == 4 and code != _SINGLE:
        return count, step
    if tile > 0:
        count, step = (tile - flat % tile) // n, n * size
    elif 0 <= stride <= 1 and n < inner - position:
        count, step = (inner - position) // n, n * stride * size
    elif position == 0 and n == inner and (stride == 1 or (stride == 0 and jump == 0)):
        count, step = outer - row % outer, jump * size
    return min(count, most), step


@apart
def flush(tag: Tag, address: int, words: int, flat: int, n: int, scratch: int, written: int) -> None:
    """Finish the block that `block_out` made: `written` is its answer."""
    if written != scratch:
        return
    code, packed = load1_i64(words, 0), scratch
    size = itemsize(tag) if code == _SINGLE else 2
    if itemsize(tag) == 4 and code != _SINGLE:
        packed = scratch + 4 * BLOCK
        _from_single(code, scratch, packed, n)
    copy_block(size, address, words, flat, n, packed, types.intp(1))


@device
def run_in(tag: Tag, address: int, stride: int, n: int, scratch: int) -> int:
    """The address of n <= BLOCK contiguous elements that lie `stride` apart: themselves, or a copy in the scratch."""
    if stride == 1:
        return address
    copy_run(itemsize(tag), scratch, 1, address, stride, n)
    return scratch


@device
def run_out(address: int, stride: int, scratch: int) -> int:
    """Where to write at most BLOCK contiguous elements that shall lie `stride` apart: in place, or in the scratch."""
    return address if stride == 1 else scratch


@device
def unload(tag: Tag, address: int, stride: int, n: int, scratch: int) -> None:
    """Finish what `run_out` made."""
    if stride != 1:
        copy_run(itemsize(tag), address, stride, scratch, 1, n)


@device
def following(run: int, step: int, least: int, otherwise: int) -> int:
    """Bytes from an element to what is asked for: its place in a run that follows, `least` bytes of runs on, where runs lie apart.

    Runs of so many bytes lie `step` bytes apart. Where they continue each other, are one, or are long, it is `otherwise`.
    """
    apart = step != 0 and step != run and 0 < run <= APART
    return max(least // run, 1) * step if apart else otherwise


@device
def fetch(operand: Operand, i: int, m: int) -> Any:
    """The m <= 16 elements from i on, widened to float32."""
    tag, address, step, _ = operand
    return load_tail(tag, address, i * step, m)


@device
def ask_line(address: int, far: bool) -> None:
    """Prefetch the line at an address; `far`: into the second cache only."""
    if far:
        prefetch_far(address)
    else:
        prefetch(address)


@device
def ask(operand: Operand | None, i: int, k: int) -> None:
    """Prefetch what comes behind 16 elements from i on, half k of 32: a line holds 32 of 16 bits, and is asked for once."""
    if operand is not None:
        tag, address, step, ahead = operand
        if k == 0 or itemsize(tag) == 4:
            prefetch(address + i * step * itemsize(tag) + ahead)


@device
def ask_beside(operand: Operand | None, i: int, k: int) -> None:
    """`ask` for one of several operands: a CPU that reads ahead by itself is asked for less, and into its second cache."""
    if not reads_ahead():
        ask(operand, i, k)
    elif operand is not None:
        tag, address, step, ahead = operand
        if ahead != 0 and (k == 0 or itemsize(tag) == 4):
            prefetch_far(address + i * step * itemsize(tag) + ahead)


@device
def fetch_only(operand: Operand, i: int, m: int) -> Any:
    """`fetch` where nothing is written; what comes later is asked for at once, unless the CPU reads better by itself."""
    tag, address, step, ahead = operand
    if not reads_ahead():
        prefetch(address + i * step * itemsize(tag) + ahead)
    return load_tail(tag, address, i * step, m)


@device
def fetch_entries(operand: Operand, table: int, i: int, m: int) -> Any:
    """The entries of a float32 table at the raw bits of m <= 16 elements of 16 bits, from i on."""
    tag, address, step, _ = operand
    if m == LANES:
        return entries(table, address, i * step)
    return gather(table, load_bits_tail(tag, address, i * step, m))


@device
def settled(tag: Tag, v: Any) -> Any:
    """What is stored as float32: any NaN becomes 0x7FC00000, whatever order an addition took its operands in."""
    return from_bits(select(v == v, bits(v), splat_i(0x7FC00000))) if itemsize(tag) == 4 else v


@device
def settled_pair(tag: Tag, low: Any, high: Any) -> Any:
    """`settled` of two vectors: one comparison, as hardly any has a NaN."""
    if itemsize(tag) == 4 and any_lane((low != low) | (high != high)):
        low, high = settled(tag, low), settled(tag, high)
    return low, high


def _two_at_once(compute: Any, two: Any, ahead: Any, given: Any, i: int) -> Any:
    return two(given, i)


def _two_in_turn(compute: Any, two: Any, ahead: Any, given: Any, i: int) -> Any:
    full = types.intp(LANES)
    low = compute(given, i, full)
    if ahead is not None:
        ahead(given, i, types.intp(0))
    high = compute(given, i + LANES, full)
    if ahead is not None:
        ahead(given, i + LANES, types.intp(1))
    return low, high


@by_tag
def _two(compute: Any, two: Any, ahead: Any, given: Any, i: int) -> Any:
    return _two_in_turn if isinstance(two, (types.Omitted, types.NoneType)) else _two_at_once


@device
def _put_two(tag: Tag, address: int, i: int, low: Any, high: Any, stream: bool) -> None:
    low, high = settled_pair(tag, low, high)
    if stream:
        store_line(tag, address, i, low, high)
    else:
        store_pair(tag, address, i, low, high)


@device
def sweep(
    compute: Callable[[Any, int, int], Any],
    given: Any,
    tag: Tag,
    address: int,
    n: int,
    stream: bool,
    two: Callable[[Any, int], Any] | None = None,
    ahead: Callable[[Any, int, int], Any] | None = None,
    eight: Callable[[Any, int], Any] | None = None,
    many: bool = False,
) -> None:
    """Write n elements: compute(given, i, m) gives the m <= 16 from i on. `stream`: whole lines go past the caches.

    two(given, i), if there is such a function, gives 32 as two vectors; else ahead(given, i, k), if there is one,
    asks for what comes behind half k of 32. With `many`, eight(given, i) gives 128 as eight vectors.
    """
    i, pairs, limit, full = 0 * n, n, n, types.intp(LANES)  # no literals, for which functions would be compiled once more
    stream = stream and address & itemsize(tag) - 1 == 0  # else no element begins at a line
    if stream and address & 63 != 0:
        pairs, limit = 0 * n, min(n, (-address & 63) // itemsize(tag))
    while i < n:
        while eight is not None and many and i + 8 * LANES <= pairs:
            v = eight(given, i)
            _put_two(tag, address, i, v[0], v[1], stream)
            _put_two(tag, address, i + 2 * LANES, v[2], v[3], stream)
            _put_two(tag, address, i + 4 * LANES, v[4], v[5], stream)
            _put_two(tag, address, i + 6 * LANES, v[6], v[7], stream)
            i += 8 * LANES
        while i + 2 * LANES <= pairs:
            low, high = _two(compute, two, ahead, given, i)
            _put_two(tag, address, i, low, high, stream)
            i += 2 * LANES
        while i + LANES <= limit:
            if ahead is not None:
                ahead(given, i, types.intp(0))
            store(tag, address, i, settled(tag, compute(given, i, full)))
            i += LANES
        if i < limit:
            store_tail(tag, address, i, settled(tag, compute(given, i, limit - i)), limit - i)
            i = limit
        pairs = limit = n


@device
def round_odd(v: Any) -> Any:
    """float64 to float32 so that a second rounding to 16 bits gives what one rounding would: inexact results get an odd last bit."""
    near = narrow(v)
    back = widen(near)
    u = bits(near) - select(absolute(back) > absolute(v), splat_i(1), splat_i(0))
    return from_bits(select((back < v) | (back > v), u | 1, u))


@device
def once(tag: Tag, v: Any) -> Any:
    """float64 to float32 so that storing it as `tag` gives what one rounding would."""
    return narrow(v) if itemsize(tag) == 4 else round_odd(v)


@device
def _sum(given: tuple[Tag, int, int, int], i: int, m: int) -> Any:
    tag, sums, count, pitch = given
    total = load_f64(sums, i)
    for k in range(1, count):
        total = total + load_f64(sums + 8 * pitch * k, i)
    return once(tag, total)


@apart
def store_sums(tag: Tag, sums: int, count: int, pitch: int, address: int, stride: int, n: int) -> None:
    """n elements, `stride` apart: `count` rows of float64 that lie `pitch` elements apart, added in order and rounded once.

    15 float64 beyond the last one must be readable.
    """
    scratch = stack(SCRATCH)
    for i in range(0, n, BLOCK):
        m, place = min(BLOCK, n - i), address + i * stride * itemsize(tag)
        sweep(_sum, (tag, sums + 8 * i, count, pitch), tag, run_out(place, stride, scratch), m, False)
        unload(tag, place, stride, m, scratch)
