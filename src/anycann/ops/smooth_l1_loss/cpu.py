"""Smooth L1 loss on the CPU: one pass over blocks of the broadcast shape, and for mean and sum a partial sum of each block.

Operands of one dtype are read as they are; otherwise blocks are converted to float32 and the result from it. Where 1 / beta is exact
the division is a multiplication by it, which rounds to the same number. For a sum, losses of operands that are not one run go to memory
and are added from there, so that which are added to which does not depend on how the operands lie.
"""

import math
from collections.abc import Callable
from typing import Any

from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import (
    LAYOUT,
    SCRATCH,
    SHORT,
    block_in,
    fetch,
    fetch_only,
    once,
    room,
    settled,
    stack,
)
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    absolute,
    fma,
    load,
    load1_f64,
    load_f64,
    select,
    splat,
    store,
    store1_f64,
    store_tail,
    sum_lanes,
    tag_of,
    widen,
)
from anycann.backends.cpu_system import give_back, reserve
from anycann.backends.cpu_threads import partitioned, whole
from anycann.backends.cpu_walk import ORDERED, Walk, in_order, walk
from anycann.bind import Call, Launch, broadcast
from anycann.ops.quotient import exact_inverse
from anycann.ops.smooth_l1_loss.spec import ELEMENTS_PER_PARTIAL, PARTIALS_PER_GROUP, SUMS_PER_PARTIAL

__all__ = ["plan"]

_GRAIN = 1 << 15  # elements worth a thread
_FEW, _MANY = 4, ORDERED // ELEMENTS_PER_PARTIAL  # partial sums whose losses are computed at once, without tiles and with them
_LOSSES = 4 * ELEMENTS_PER_PARTIAL * _FEW  # bytes of a few


@device
def _loss(x: Any, beta: float, inverse: float | None, half: float) -> Any:
    """The loss of a difference; an `inverse` that is None chooses the code at compile time."""
    size = absolute(x)
    if inverse is None:  # beta may be 0
        return select(size < beta, (x * 0.5) * (x / beta), size - half)
    least = select(size > beta, splat(beta), size)  # one instruction, which a NaN passes
    return (least * inverse) * fma(least, splat(-0.5), size)  # a factor of 1 where it is beta


@device
def _losses(given: Any, i: int, m: int) -> Any:
    (b_self, b_target, _), (beta, inverse, half) = given
    return _loss(fetch(b_self, i, m) - fetch(b_target, i, m), beta, inverse, half)


@device
def _summands(given: Any, i: int, m: int) -> Any:
    (b_self, b_target, _), (beta, inverse, half) = given
    return _loss(fetch_only(b_self, i, m) - fetch_only(b_target, i, m), beta, inverse, half)


@partitioned
def _smooth_l1(
    tag: Tag,
    p_self: int,
    p_target: int,
    p_out: int,
    words: int,
    beta: float,
    inverse: float | None,
    half: float,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    walk(_losses, (beta, inverse, half), ((tag, p_self), (tag, p_target), None), (tag, p_out), words, stream, start, stop)


@device
def _stored(losses: int, i: int, m: int) -> Any:
    return load(F32, losses, i)


@device
def _partial_sum(compute: Callable[[Any, int, int], Any], given: Any, first: int) -> float:
    """The sum of ELEMENTS_PER_PARTIAL losses from `first` on: compute(given, i, 16) gives those from i on."""
    full = types.intp(LANES)  # not a literal, for which functions would be compiled once more
    sum0, sum1 = widen(compute(given, first, full)), widen(compute(given, first + LANES, full))
    sum2, sum3 = widen(compute(given, first + 2 * LANES, full)), widen(compute(given, first + 3 * LANES, full))
    for i in range(first + SUMS_PER_PARTIAL, first + ELEMENTS_PER_PARTIAL, SUMS_PER_PARTIAL):
        sum0 = sum0 + widen(compute(given, i, full))
        sum1 = sum1 + widen(compute(given, i + LANES, full))
        sum2 = sum2 + widen(compute(given, i + 2 * LANES, full))
        sum3 = sum3 + widen(compute(given, i + 3 * LANES, full))
    total: float = sum_lanes((sum0 + sum2) + (sum1 + sum3))
    return total


@partitioned
def _partial_sums(
    tag: Tag,
    tag_losses: Tag,
    p_self: int,
    p_target: int,
    words: int,
    beta: float,
    inverse: float | None,
    half: float,
    numel: int,
    together: int,
    partials: int,
    start: int,
    stop: int,
) -> None:
    """Partial sums [start, stop), `together` at once where the operands are not one run.

    The words are the layouts of the losses, which lie one behind the other, and of the operands. tag_losses: F32, as an argument, so that
    what is compiled for operands of that type serves both.
    """
    l_self, l_target = words + LAYOUT, words + 2 * LAYOUT
    s_self, s_target, losses, reserved = stack(SCRATCH), stack(SCRATCH), stack(_LOSSES), 0 * words
    if together > _FEW:
        losses = reserved = reserve(4 * ELEMENTS_PER_PARTIAL * min(together, stop - start))
    factors, partial, last = (beta, inverse, half), start, min(numel, stop * ELEMENTS_PER_PARTIAL)
    while partial < stop:
        first = partial * ELEMENTS_PER_PARTIAL
        n = room(tag, l_self, first, room(tag, l_target, first, last - first, SHORT), SHORT)
        count = n // ELEMENTS_PER_PARTIAL
        if together == _FEW and count > 0 and n >= min(last - first, together * ELEMENTS_PER_PARTIAL):
            n = count * ELEMENTS_PER_PARTIAL
            b_self, b_target = block_in(tag, p_self, l_self, first, n, s_self), block_in(tag, p_target, l_target, first, n, s_target)
            for k in range(count):
                total = _partial_sum(_summands, ((b_self, b_target, None), factors), k * ELEMENTS_PER_PARTIAL)
                store1_f64(partials, partial + k, total)
        else:
            count = min(stop - partial, together)
            end, places = min(last, first + count * ELEMENTS_PER_PARTIAL), count * ELEMENTS_PER_PARTIAL
            if end < first + places:
                for i in range(places - ELEMENTS_PER_PARTIAL, places, LANES):
                    store(tag_losses, losses, i, splat(0.0))
            walk(_losses, factors, ((tag, p_self), (tag, p_target), None), (tag_losses, losses - 4 * first), words, False, first, end)
            for k in range(count):
                store1_f64(partials, partial + k, _partial_sum(_stored, losses, k * ELEMENTS_PER_PARTIAL))
        partial += count
    give_back(reserved)


@whole
def _total(tag: Tag, p_out: int, partials: int, count: int, divisor: float) -> None:
    """The one element of the output; there are 16 float64 of workspace beyond the partial sums."""
    total = 0.0
    for first in range(0, count, PARTIALS_PER_GROUP):
        group = 0.0
        for partial in range(first, min(count, first + PARTIALS_PER_GROUP)):
            group = group + load1_f64(partials, partial)
        total = total + group
    store1_f64(partials, count, total / divisor)
    store_tail(tag, p_out, 0, settled(tag, once(tag, load_f64(partials, count))), 1)


def plan(call: Call) -> tuple[int, Launch]:
    """For mean and sum, the workspace holds the partial sums, and the total with room for a vector."""
    out, beta, reduction = call["result"], call.attrs["beta"], call.attrs["reduction"]
    operands = call["self"], call["target"]
    shape = broadcast([tensor.shape for tensor in operands]) or ()
    used = (*operands, out) if reduction == 0 else operands
    tag = tag_of(operands[0].dtype.name) if len({tensor.dtype for tensor in used}) == 1 else F32
    inverse = exact_inverse(beta)
    factors, number, integer = (beta, inverse, beta * 0.5), types.float32, types.intp
    kinds = number, types.none if inverse is None else number, number
    numel, program = math.prod(shape), Program(call.tensors)
    if reduction == 0:
        entry, way = _smooth_l1.for_types(tag, *(integer,) * 4, *kinds, types.boolean), Walk(used)
        for places, words, some in way.parts(program.operands):
            program.add(entry, (None, *places, words, *factors, way.stream), some, _GRAIN)
        return 0, program

    count, divisor = -(-numel // ELEMENTS_PER_PARTIAL), float(numel) if reduction == 1 else 1.0
    add = _partial_sums.for_types(tag, F32, *(integer,) * 3, *kinds, integer, integer, integer)
    finish = _total.for_types(tag_of(out.dtype.name), *(integer,) * 3, types.float64)
    p_self, p_target, p_out = program.operands
    words, tiled = in_order(used, shape, "float32")
    together = _MANY if tiled else _FEW
    summands = (None, None, p_self, p_target, words, *factors, numel, together, program.workspace)
    program.add(add, summands, count, max(together, _GRAIN // ELEMENTS_PER_PARTIAL))
    program.add(finish, (None, p_out, program.workspace, count, divisor))
    return 8 * (count + LANES), program
