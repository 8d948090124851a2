"""LayerNormGrad on the CPU: a unit of work is a row, read from memory once and then again from the caches."""

import math

import numpy as np
from numba import types

from anycann.backends.cpu_blocks import Held, streams
from anycann.backends.cpu_gradients import gradients, keeps
from anycann.backends.cpu_program import Program
from anycann.backends.cpu_rows import GRAIN, Numbers, piece_size, record
from anycann.backends.cpu_simd import F32, LANES, Tag, load1, store1, tag_of
from anycann.backends.cpu_threads import partitioned
from anycann.bind import Call, Launch

__all__ = ["plan"]


@partitioned
def _inverse_roots(tag: Tag, given: int, roots: int, rests: int, epsilon: float, start: int, stop: int) -> None:
    """(v + epsilon)**(-1/2) of each number, and what its rounding leaves; `tag` is F32."""
    for i in range(start, stop):
        root = 1.0 / math.sqrt(types.float64(load1(tag, given, i)) + epsilon)
        near = np.float32(root)
        store1(tag, roots, i, near)
        store1(tag, rests, i, np.float32(root - near))


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the reciprocal standard deviation of each row in two float32; and the other numbers, where they do not lie so."""
    dy, x, variance, mean, gamma, out, normalised = call.tensors
    rows, width, tag = variance.numel, call.axes["H"], tag_of(x.dtype.name)
    records = [record(tensor, 1) for tensor in (dy, x, out, normalised)]
    words, size = Held(np.array(records, np.int64)), piece_size(records, width)
    room_of_rows = 4 * -(-rows // LANES) * LANES
    gammas, means, variances = Numbers(gamma, width, 1.0, tag == F32), Numbers(mean, rows, 0.0), Numbers(variance, rows, 0.0)
    roots = _inverse_roots.for_types(F32, *(types.intp,) * 3, types.float64)
    keep = keeps(tag, width)
    kinds = *(types.intp,) * 9, types.none, *(types.intp,) * 5, types.boolean, types.none if keep is None else types.boolean
    entry = gradients.for_types(tag, *kinds)
    epsilon, stream, grain = call.attrs["epsilon"], streams(out), max(1, GRAIN // width)
    program = Program(call.tensors)
    (p_dy, p_x, p_variance, p_mean, p_gamma, p_out, p_normalised), scales = program.operands, program.workspace
    rests, free = scales + room_of_rows, scales + 2 * room_of_rows
    program.add(roots, (None, variances.place(program, p_variance, free), scales, rests, epsilon), rows, GRAIN)
    weight, centres = gammas.place(program, p_gamma, free), means.place(program, p_mean, free + gammas.room)
    tensors, constants = (p_dy, p_x, p_out, p_normalised, words), (centres, scales, rests, weight, None)
    program.add(entry, (None, *tensors, *constants, 0, rows, width, size, 1, stream, keep), rows, grain)
    return 2 * room_of_rows + max(variances.room, gammas.room + means.room), program
