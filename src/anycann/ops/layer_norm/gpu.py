"""Layer normalisation on the GPU: a program goes through some rows for their means and variances, and again for the result."""

import math
from collections.abc import Sequence

import triton.language as tl

from anycann.backends.gpu import Start, cdiv, fma, jit, load, offsets, store, type_of
from anycann.backends.gpu_rows import LANES, WARPS, at, bits, number, numbered, of_rows, of_width, parameter, programs, sum_lanes, within
from anycann.bind import Call, Launch

__all__ = ["plan"]

_SHORT_STEPS = 8  # of 16 elements of a short row at once


@jit
def _moments(
    p: tl.tensor,
    o: tl.tensor,
    there: tl.tensor,
    width: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    T: tl.constexpr,
    LOOPS: tl.constexpr,
    WIDE: tl.constexpr,
    STEPS: tl.constexpr,
) -> tl.tuple:
    """Mean and variance of the rows [R], from the elements less the first one of their row."""
    shift = load(p, o, there & (o * 0 + width > 0), T, "").to(tl.float64)
    shift = tl.where(tl.abs(shift) < float("inf"), shift, 0.0)
    total = tl.full([there.shape[0], LANES], 0.0, tl.float64)
    squares = total
    for i in range(0, width, LANES * STEPS):
        for j in tl.static_range(STEPS):
            columns = numbered(i, LANES, WIDE) + j * LANES  # [LANES]
            m = there[:, None] & (columns < width)[None, :]  # [R, LANES]
            d = load(p, at(o, columns, sizes, strides, LOOPS), m, T, "").to(tl.float64) - shift[:, None]
            d = tl.where(m, d, 0.0)
            total, squares = total + d, fma(d, d, squares)
    n = tl.cast(width, tl.float64)
    offset = sum_lanes(total) / n
    variance = (sum_lanes(squares) - offset * offset * n) / n
    return shift + offset, tl.where(variance < 0.0, 0.0, variance)


@jit
def _normalised(x: tl.tensor, mean: tl.tensor, root: tl.tensor, weight: tl.tensor, bias: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """In float64 where the result is float32: what the mean or the bias cancels keeps its digits."""
    if T == tl.float32:
        y = (x.to(tl.float64) - mean[:, None]) * root[:, None]
        return fma(y, weight.to(tl.float64), bias.to(tl.float64)).to(tl.float32)
    else:
        near = mean.to(tl.float32)
        rest = (mean - near.to(tl.float64)).to(tl.float32)
        return fma((x - near[:, None] - rest[:, None]) * root.to(tl.float32)[:, None], weight, bias)


@jit
def _rows(
    p_x: tl.tensor,
    p_weight: tl.tensor,
    p_bias: tl.tensor,
    p_out: tl.tensor,
    p_mean: tl.tensor,
    p_rstd: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    units: tl.tensor,
    eps: tl.tensor,
    row_sizes: tl.tuple,
    row_strides: tl.tuple,
    sizes: tl.tuple,
    strides: tl.tuple,
    T: tl.constexpr,
    T_WEIGHT: tl.constexpr,
    T_BIAS: tl.constexpr,
    MEAN: tl.constexpr,
    RSTD: tl.constexpr,
    ROW_LOOPS: tl.constexpr,
    LOOPS: tl.constexpr,
    WIDE: tl.constexpr,
    R: tl.constexpr,
    STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    for unit in range(tl.program_id(0), units, tl.num_programs(0)):
        row = tl.cast(unit, tl.int64) * R + tl.arange(0, R)  # [R]
        there = row < rows
        o_x, o_out = offsets(row, row_sizes, row_strides[0], ROW_LOOPS), offsets(row, row_sizes, row_strides[1], ROW_LOOPS)
        mean, variance = _moments(p_x, o_x, there, width, sizes, strides[0], T, LOOPS, WIDE, STEPS)
        root = 1.0 / tl.sqrt(variance + number(eps))
        if MEAN:
            store(p_mean, offsets(row, row_sizes, row_strides[2], ROW_LOOPS), mean.to(tl.float32), there, tl.float32)
        if RSTD:
            store(p_rstd, offsets(row, row_sizes, row_strides[3], ROW_LOOPS), root.to(tl.float32), there, tl.float32)
        for i in range(0, width, COLUMNS):
            columns = numbered(i, COLUMNS, WIDE)  # [COLUMNS]
            m = there[:, None] & (columns < width)[None, :]  # [R, COLUMNS]
            x = load(p_x, at(o_x, columns, sizes, strides[0], LOOPS), m, T, "evict_first")
            weight = parameter(p_weight, offsets(columns, sizes, strides[2], LOOPS), columns < width, T_WEIGHT, 1.0)
            bias = parameter(p_bias, offsets(columns, sizes, strides[3], LOOPS), columns < width, T_BIAS, None)
            store(p_out, at(o_out, columns, sizes, strides[1], LOOPS), _normalised(x, mean, root, weight, bias, T), m, T)


def plan(call: Call) -> tuple[int, Launch]:
    """Rows are independent; no workspace."""
    x, out, mean, rstd = call["input"], call["out"], call.get("meanOutOptional"), call.get("rstdOutOptional")
    weight, bias = call.get("weightOptional"), call.get("biasOptional")
    rows, width, axes = math.prod(call.axes["*M"]), math.prod(call.axes["*N"]), len(call.axes["*N"])
    outer, (inner, far) = of_rows([x, out, mean or x, rstd or x], axes), within([x, out, weight or x, bias or x], axes)
    how = of_width(width, x.dtype.itemsize, _SHORT_STEPS)
    units = cdiv(rows, how.rows)
    kinds = [None if each is None else type_of(each.dtype.name) for each in (x, weight, bias)]
    choices = *kinds, mean is not None, rstd is not None, len(outer.sizes), len(inner.sizes), far, *how
    grid = programs(units, how.rows * width * x.dtype.itemsize, x.device)
    start = Start(_rows, grid, x.device, WARPS, rows, width, units, bits(call.attrs["eps"]), *outer, *inner, *choices)

    def run(addresses: Sequence[int], workspace: int) -> None:
        start(*addresses)

    return 0, run
