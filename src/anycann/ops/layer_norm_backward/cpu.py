"""Gradients of layer normalisation on the CPU: a unit of work is a run of rows, read from memory once.

Each row gives its gradient and is added to the float32 column sums of its run. After as many runs as have room in the workspace, a unit
is a tile of columns, whose runs are added to the float64 partial sums; in the end the partial sums are added.
"""

import math

import numpy as np
from numba import types

from anycann.backends.cpu_blocks import Held, streams
from anycann.backends.cpu_columns import TILE, add_run, start_sums, totals
from anycann.backends.cpu_gradients import gradients, keeps
from anycann.backends.cpu_program import Program, clear
from anycann.backends.cpu_rows import GRAIN, Numbers, piece_size, record
from anycann.backends.cpu_simd import F32, LANES, tag_of
from anycann.backends.cpu_threads import partitioned
from anycann.backends.threads import get_num_threads
from anycann.bind import Call, Launch
from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL

__all__ = ["plan"]


_WORKSPACE = 1 << 21  # bytes of sums of runs, unless those of all threads need more


@partitioned
def _partial_sums(singles: int, doubles: int, first: int, last: int, pitch: int, start: int, stop: int) -> None:
    """Tiles [start, stop) of the `pitch` columns: add runs [first, last), of which `singles` has the sums, to their partial sums."""
    for unit in range(start, stop):
        column = unit * TILE
        n = min(TILE, pitch - column)
        for run in range(first, last):
            partial = run // RUNS_PER_PARTIAL
            double = doubles + 8 * (partial * pitch + column)
            if run == partial * RUNS_PER_PARTIAL:
                start_sums(double, n, -0.0)
            for i in range(0, n, LANES):
                add_run(double, singles + 4 * ((run - first) * pitch + column), i)


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds two rows of float64 for each partial sum, and two rows of float32 for each run of a batch.

    Weight, mean and rstd follow, where they do not lie as the kernel reads them.
    """
    dy, x, out = call["gradOut"], call["input"], call.get("gradInputOut")
    gamma, beta = call.get("gradWeightOut"), call.get("gradBiasOut")
    rows, width, tag = math.prod(call.axes["*M"]), math.prod(call.axes["*N"]), tag_of(x.dtype.name)
    used = [dy, x] if out is None else [dy, x, out]
    records = [record(tensor, len(call.axes["*N"])) for tensor in used]
    words, size = Held(np.array(records, np.int64)), piece_size(records, width)
    pitch, runs, summed = -(-width // LANES) * LANES, -(-rows // ROWS_PER_RUN), gamma is not None or beta is not None
    partials, tiles, grain = max(1, -(-runs // RUNS_PER_PARTIAL)), -(-2 * pitch // TILE), max(1, GRAIN // (width * ROWS_PER_RUN))
    batch = max(1, min(runs, max(_WORKSPACE // (8 * pitch), 4 * get_num_threads()))) if summed else max(1, runs)
    o_runs = partials * 2 * pitch * 8 if summed else 0
    free = o_runs + (batch * 2 * pitch * 4 if summed else 0)
    weights = Numbers(call.get("weightOptional"), width, 1.0, tag == F32)
    means, roots = (Numbers(call[name], rows, 0.0) for name in ("mean", "rstd"))
    keep = None if out is None else keeps(tag, width)
    kinds = types.intp if summed else types.none, *(types.intp,) * 5, types.boolean, types.none if keep is None else types.boolean
    add = gradients.for_types(tag, *(types.intp,) * 3, types.none, *(types.intp,) * 5, *kinds)
    add_runs = _partial_sums.for_types(*(types.intp,) * 5)
    stream, program = out is not None and streams(out), Program(call.tensors)
    (p_dy, p_x, p_mean, p_rstd, p_weight, _, p_out, p_gamma, p_beta), workspace = program.operands, program.workspace
    sums = workspace + o_runs if summed else None
    weight, mean = weights.place(program, p_weight, workspace + free), means.place(program, p_mean, workspace + free + weights.room)
    root = roots.place(program, p_rstd, workspace + free + weights.room + means.room)
    tensors, constants = (p_dy, p_x, p_out, None, words), (mean, root, 0, weight, sums)
    for first in range(0, runs, batch):
        last = min(runs, first + batch)
        program.add(add, (None, *tensors, *constants, first, rows, width, size, ROWS_PER_RUN, stream, keep), last - first, grain)
        if summed:
            program.add(add_runs, (sums, workspace, first, last, 2 * pitch), tiles)
    if summed and runs == 0:
        program.add(clear.for_types(types.intp, types.intp), (workspace, o_runs))
    totals(program, gamma, p_gamma, width, partials, pitch, workspace)
    totals(program, beta, p_beta, width, partials, pitch, workspace + 8 * pitch)
    return free + weights.room + means.room + roots.room, program
