"""Gradients of layer normalisation on the CPU: a unit of work is a run of rows, read from memory once.

Each row gives its gradient and is added to the float32 column sums of its run. Then a unit is a tile of the columns of a partial sum,
over whose runs float64 sums are taken; then the partial sums are added.
"""

import math
from collections.abc import Sequence

import numpy as np
from numba import types

from anycann.backends.cpu import kernel
from anycann.backends.cpu_blocks import Held, streams
from anycann.backends.cpu_columns import TILE, add_run, start_sums, totals
from anycann.backends.cpu_rows import GRAIN, gradients, piece_size, record, singles
from anycann.backends.cpu_simd import LANES, tag_of
from anycann.backends.threads import parallel
from anycann.bind import Call, Launch
from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL

__all__ = ["plan"]


@kernel
def _partial_sums(singles: int, doubles: int, runs: int, pitch: int, start: int, stop: int) -> None:
    """Units [start, stop): tiles of the `pitch` columns of partial sums, over all runs of each."""
    tiles = -(-pitch // TILE)
    for unit in range(start, stop):
        partial = unit // tiles
        column = (unit - partial * tiles) * TILE
        n = min(TILE, pitch - column)
        double = doubles + 8 * (partial * pitch + column)
        start_sums(double, n, -0.0 if runs > 0 else 0.0)
        for run in range(partial * RUNS_PER_PARTIAL, min(runs, (partial + 1) * RUNS_PER_PARTIAL)):
            for i in range(0, n, LANES):
                add_run(double, singles + 4 * (run * pitch + column), i)


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds two rows of float64 for each partial sum, then two rows of float32 for each run; then weight, mean, rstd."""
    dy, x, out = call["gradOut"], call["input"], call.get("gradInputOut")
    gamma, beta = call.get("gradWeightOut"), call.get("gradBiasOut")
    rows, width, tag = math.prod(call.axes["*M"]), math.prod(call.axes["*N"]), tag_of(x.dtype.name)
    used = [dy, x] if out is None else [dy, x, out]
    records = [record(tensor, len(call.axes["*N"])) for tensor in used]
    words, size = Held(np.array(records, np.int64)), piece_size(records, width)
    pitch, runs, summed = -(-width // LANES) * LANES, -(-rows // ROWS_PER_RUN), gamma is not None or beta is not None
    partials = max(1, -(-runs // RUNS_PER_PARTIAL))
    units, grain = (partials * -(-2 * pitch // TILE) if summed else 0), max(1, GRAIN // (width * ROWS_PER_RUN))
    o_runs = partials * 2 * pitch * 8 if summed else 0
    o_weight = o_runs + (runs * 2 * pitch * 4 if summed else 0)
    o_mean, room_of_rows = o_weight + 4 * pitch, 4 * -(-rows // LANES) * LANES
    put_weight = singles(call.get("weightOptional"), width, 1.0)
    put_mean, put_rstd = singles(call["mean"], rows, 0.0), singles(call["rstd"], rows, 0.0)
    add = gradients.for_types(tag, *(types.intp,) * 14, types.boolean, types.boolean, types.intp, types.intp)
    add_runs = _partial_sums.for_types(*(types.intp,) * 6)
    put_gamma, put_beta = (totals(output, width, partials, pitch) for output in (gamma, beta))
    wanted, stream = out is not None, out is not None and streams(out)

    def launch(addresses: Sequence[int], workspace: int) -> None:
        p_dy, p_x, p_mean, p_rstd, p_weight, _, p_out, p_gamma, p_beta = addresses
        weight, mean = workspace + o_weight, workspace + o_mean
        sums, rstd = workspace + o_runs if summed else 0, mean + room_of_rows
        put_weight(p_weight, weight)
        put_mean(p_mean, mean)
        put_rstd(p_rstd, rstd)
        tensors, constants = (p_dy, p_x, p_out if wanted else 0, 0, words.address), (mean, rstd, 0, weight, sums)

        def add_rows(start: int, stop: int) -> None:
            add(None, *tensors, *constants, rows, width, size, ROWS_PER_RUN, False, stream, start, stop)

        parallel(add_rows, runs, grain)
        parallel(lambda start, stop: add_runs(sums, workspace, runs, 2 * pitch, start, stop), units)
        put_gamma(p_gamma, workspace)
        put_beta(p_beta, workspace + 8 * pitch)

    return o_mean + 2 * room_of_rows, launch
