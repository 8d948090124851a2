"""Smooth L1 gradient on the CPU: one pass over blocks of the broadcast shape.

All operands of one dtype are read and written as they are; otherwise blocks are converted to float32 and the result from it. d is
x / beta held between -1 and 1, except where beta is 0 or infinite; where 1 / beta is exact the division is a multiplication by it,
which rounds to the same number.
"""

import math
from typing import Any

from numba import types

from anycann.backends.cpu import device
from anycann.backends.cpu_blocks import fetch
from anycann.backends.cpu_math import quotient
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_simd import F32, Tag, absolute, select, splat, tag_of
from anycann.backends.cpu_threads import partitioned
from anycann.backends.cpu_walk import Walk, walk
from anycann.bind import Call, Launch, broadcast
from anycann.ops.quotient import exact_inverse
from anycann.ops.smooth_l1_loss_backward.norm import reciprocal

__all__ = ["plan"]

_GRAIN = 1 << 15  # elements worth a thread


@device
def _slope(x: Any, beta: float, inverse: float | None, edge: bool | None) -> Any:
    """d; the arguments that are None choose the code at compile time. Where |x| >= beta, a quotient is beyond 1, or 1."""
    if edge is not None:
        sign = select(x > 0.0, splat(1.0), select(x < 0.0, splat(-1.0), select(x == 0.0, splat(0.0), x)))
        return select(absolute(x) < beta, x / beta, sign)
    slope = quotient(x, beta, inverse)
    slope = select(slope < -1.0, splat(-1.0), slope)  # one instruction each, which a NaN passes
    return select(slope > 1.0, splat(1.0), slope)


@device
def _gradient(given: Any, i: int, m: int) -> Any:
    (b_grad, b_self, b_target), (beta, inverse, edge, norm) = given
    d = _slope(fetch(b_self, i, m) - fetch(b_target, i, m), beta, inverse, edge)
    return d * fetch(b_grad, i, m) * norm


@partitioned
def _smooth_l1(
    tag: Tag,
    p_grad: int,
    p_self: int,
    p_target: int,
    p_out: int,
    words: int,
    beta: float,
    inverse: float | None,
    edge: bool | None,
    norm: float,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    given = beta, inverse, edge, norm
    walk(_gradient, given, ((tag, p_grad), (tag, p_self), (tag, p_target)), (tag, p_out), words, stream, start, stop)


def plan(call: Call) -> tuple[int, Launch]:
    """One kernel over the flat index of the output; `norm` is 1 where the reduction has none."""
    out, beta = call["gradInput"], call.attrs["beta"]
    shape = broadcast([call["self"].shape, call["target"].shape]) or ()
    norm = reciprocal(math.prod(shape)) if call.attrs["reduction"] == 1 else 1.0
    program, way = Program(call.tensors), Walk(call.tensors)
    tag = tag_of(out.dtype.name) if len({tensor.dtype for tensor in call.tensors}) == 1 else F32
    inverse = exact_inverse(beta)
    edge = None if 0.0 < beta < math.inf else True
    number, kinds = types.float32, (types.none if inverse is None else types.float32, types.none if edge is None else types.boolean)
    entry = _smooth_l1.for_types(tag, *(types.intp,) * 5, number, *kinds, number, types.boolean)
    for places, words, numel in way.parts(program.operands):
        program.add(entry, (None, *places, words, beta, inverse, edge, norm, way.stream), numel, _GRAIN)
    return 0, program
