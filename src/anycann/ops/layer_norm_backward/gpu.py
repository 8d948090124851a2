"""Gradients of layer normalisation on the GPU: a program takes a run of rows, a second launch adds the column sums of the runs.

Several partial sums of runs are taken side by side, and then added one after the other.
"""

import math
from collections.abc import Sequence

import triton
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, constant, in_order, jit, nest, offsets, once, store, type_of
from anycann.backends.gpu_gradients import gradients
from anycann.bind import Call, Launch
from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL

__all__ = ["plan"]

_RUNS = tl.constexpr(RUNS_PER_PARTIAL)
_AT_ONCE = tl.constexpr(16)  # runs of a partial sum whose loads are in flight together
_SIDE_BY_SIDE = 64  # partial sums, at most
_SUMS, _WARPS = 512, 4  # of a program: partial sums of some columns
_COLUMNS = 64  # at most


@jit
def _totals(
    p_runs: tl.tensor,
    p_gamma: tl.tensor,
    p_beta: tl.tensor,
    runs: tl.tensor,
    width: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    T_GAMMA: tl.constexpr,
    T_BETA: tl.constexpr,
    LOOPS: tl.constexpr,
    FIRST: tl.constexpr,
    PARTIALS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    which = tl.program_id(0) % 2
    columns = (tl.program_id(0) // 2).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)  # [COLUMNS]
    m = columns < width
    p_columns = p_runs.to(tl.pointer_type(tl.float32)) + which * width + columns
    total = constant([COLUMNS], FIRST, tl.float64)
    for begin in range(0, runs, PARTIALS * _RUNS):
        partial = constant([PARTIALS, COLUMNS], None, tl.float64)
        for i in range(0, _RUNS, _AT_ONCE):
            for j in tl.static_range(_AT_ONCE):
                run = begin + i + j + tl.arange(0, PARTIALS).to(tl.int64) * _RUNS  # [PARTIALS]
                there = (run < runs)[:, None] & m[None, :]  # [PARTIALS, COLUMNS]
                partial += tl.load(p_columns[None, :] + (run * 2 * width)[:, None], mask=there, other=constant([], None, tl.float32)).to(
                    tl.float64
                )
        total = in_order(total, tl.trans(partial), PARTIALS)
    if which == 0:
        if T_GAMMA is not None:
            store(p_gamma, offsets(columns, sizes, strides[0], LOOPS), once(total, T_GAMMA), m, T_GAMMA)
    else:
        if T_BETA is not None:
            store(p_beta, offsets(columns, sizes, strides[1], LOOPS), once(total, T_BETA), m, T_BETA)


def _finish(call: Call, width: int, runs: int) -> Start:
    """The launch on the addresses of the runs' sums and of the gradients of weight and bias."""
    outputs = call.get("gradWeightOut"), call.get("gradBiasOut")
    one = outputs[0] or outputs[1] or call["input"]
    loops = nest([output or one for output in outputs], one.shape)
    kinds = [None if output is None else type_of(output.dtype.name) for output in outputs]
    partials = min(_SIDE_BY_SIDE, triton.next_power_of_2(max(1, cdiv(runs, RUNS_PER_PARTIAL))))
    columns = min(_COLUMNS, _SUMS // partials)
    choices = *kinds, len(loops.sizes), None if runs else 0.0, partials, columns
    return Start(_totals, 2 * cdiv(width, columns), one.device, _WARPS, runs, width, *loops, *choices)


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds two rows of float32 for each run."""
    dy, x, mean, rstd, out = call["gradOut"], call["input"], call["mean"], call["rstd"], call.get("gradInputOut")
    rows, width, axes = math.prod(call.axes["*M"]), math.prod(call.axes["*N"]), len(call.axes["*N"])
    summed = call.get("gradWeightOut") is not None or call.get("gradBiasOut") is not None
    runs = cdiv(rows, ROWS_PER_RUN)
    start = gradients(dy, x, mean, rstd, call.get("weightOptional"), out, None, axes, ROWS_PER_RUN if summed else 0)
    finish = _finish(call, width, runs) if summed else None

    def run(addresses: Sequence[int], workspace: int) -> None:
        *given, _, p_out, p_gamma, p_beta = addresses
        if rows:
            start(*given, p_out, 0, workspace)
        if finish is not None:
            finish(workspace, p_gamma, p_beta)

    return 8 * runs * width if summed else 0, run
