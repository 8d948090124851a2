"""Gradients of rows that were centred and scaled, on the GPU: the formulas of cpu_gradients.py with its order of every sum.

A program takes a run of rows, some at once: for the sums over each row first, and then for the results and the sums of the columns.
"""

import math

import triton.language as tl

from anycann.backends.gpu import Start, cdiv, constant, fma, in_order, jit, load, offsets, store, type_of
from anycann.backends.gpu_rows import LANES, WARPS, at, bits, number, numbered, of_rows, of_width, parameter, programs, sum_lanes, within
from anycann.tensor import Tensor

__all__ = ["gradients"]

_SHORT_STEPS = 4  # of short rows whose loads are in flight together


@jit
def _product(x: tl.tensor, y: tl.tensor, EXACT: tl.constexpr) -> tl.tensor:
    """x * y as float64, exactly where results are float32: their differences cancel."""
    return x.to(tl.float64) * y.to(tl.float64) if EXACT else (x * y).to(tl.float64)


@jit
def _difference(x: tl.tensor, y: tl.tensor, EXACT: tl.constexpr) -> tl.tensor:
    """x - y as float64, exactly where results are float32."""
    return x.to(tl.float64) - y.to(tl.float64) if EXACT else (x - y).to(tl.float64)


@jit
def _line(
    given: tl.tuple,
    places: tl.tuple,
    shape: tl.tuple,
    there: tl.tensor,
    centre: tl.tensor,
    r: tl.tensor,
    T: tl.constexpr,
    T_WEIGHT: tl.constexpr,
    LOOPS: tl.constexpr,
    WIDE: tl.constexpr,
    EXACT: tl.constexpr,
    SHIFTED: tl.constexpr,
    STEPS: tl.constexpr,
) -> tl.tuple:
    """k and b of the rows [R]."""
    p_dy, p_x, p_weight = given
    o_dy, o_x = places
    width, sizes, strides = shape
    sum_a = tl.full([there.shape[0], LANES], 0.0, tl.float64)
    sum_c, sum_ac = sum_a, sum_a
    for i in range(0, width, LANES * STEPS):
        for j in tl.static_range(STEPS):
            columns = numbered(i, LANES, WIDE) + j * LANES  # [LANES]
            m = there[:, None] & (columns < width)[None, :]  # [R, LANES]
            dy = load(p_dy, at(o_dy, columns, sizes, strides[0], LOOPS), m, T, "")
            x = load(p_x, at(o_x, columns, sizes, strides[1], LOOPS), m, T, "")
            weight = parameter(p_weight, offsets(columns, sizes, strides[2], LOOPS), columns < width, T_WEIGHT, 1.0)
            a = tl.where(m, _product(dy, weight, EXACT), 0.0)
            c = tl.where(m, _difference(x, centre[:, None], EXACT), 0.0)
            sum_a, sum_c, sum_ac = sum_a + a, sum_c + c, fma(a, c, sum_ac)
    share = 1.0 / tl.cast(width, tl.float64)
    cube = r * r * r * (sum_lanes(sum_ac) * share)
    base = r * -1.0 * (sum_lanes(sum_a) * share)
    if SHIFTED:
        base += cube * (sum_lanes(sum_c) * share)
    return cube * -1.0, base  # some versions of Triton subtract from 0 instead, which gives other zeros


@jit
def _gradient(
    dy: tl.tensor, x: tl.tensor, weight: tl.tensor, centre: tl.tensor, r: tl.tensor, k: tl.tensor, b: tl.tensor, EXACT: tl.constexpr
) -> tl.tensor:
    """a * r + (k * c + b) in float32, of elements [R, N] and numbers [R]."""
    if EXACT:
        line = fma(_difference(x, centre[:, None], EXACT), k[:, None], b[:, None])
        result = fma(_product(dy, weight, EXACT), r[:, None], line).to(tl.float32)
    else:
        line = fma(x - centre[:, None], k.to(tl.float32)[:, None], b.to(tl.float32)[:, None])
        result = fma(dy * weight, r.to(tl.float32)[:, None], line)
    return result


@jit
def _add_rows(p: tl.tensor, m: tl.tensor, later: tl.tensor, x: tl.tensor) -> None:
    """Add rows [R, N] one after the other to the sums [N] of the rows before them, or to nothing."""
    sums = tl.load(p, mask=later, other=constant([], None, tl.float32))
    tl.store(p, in_order(sums, tl.trans(x), x.shape[0]), mask=m)


@jit
def _gradients(
    p_dy: tl.tensor,
    p_x: tl.tensor,
    p_centre: tl.tensor,
    p_scale: tl.tensor,
    p_weight: tl.tensor,
    p_out: tl.tensor,
    p_scaled: tl.tensor,
    p_sums: tl.tensor,
    rows: tl.tensor,
    width: tl.tensor,
    units: tl.tensor,
    epsilon: tl.tensor,
    row_sizes: tl.tuple,
    row_strides: tl.tuple,
    sizes: tl.tuple,
    strides: tl.tuple,
    T: tl.constexpr,
    T_ROW: tl.constexpr,
    T_WEIGHT: tl.constexpr,
    ROW_LOOPS: tl.constexpr,
    LOOPS: tl.constexpr,
    WIDE: tl.constexpr,
    EXACT: tl.constexpr,
    ROOT: tl.constexpr,
    OUT: tl.constexpr,
    SCALED: tl.constexpr,
    SUMS: tl.constexpr,
    RUN: tl.constexpr,
    R: tl.constexpr,
    STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    for unit in range(tl.program_id(0), units, tl.num_programs(0)):
        first = tl.cast(unit, tl.int64) * RUN
        for begin in range(0, tl.minimum(rows - first, RUN).to(tl.int32), R):
            row = first + begin + tl.arange(0, R)  # [R]
            there = row < rows
            o_dy, o_x = offsets(row, row_sizes, row_strides[0], ROW_LOOPS), offsets(row, row_sizes, row_strides[1], ROW_LOOPS)
            centre = load(p_centre, offsets(row, row_sizes, row_strides[2], ROW_LOOPS), there, T_ROW, "")
            scale = load(p_scale, offsets(row, row_sizes, row_strides[3], ROW_LOOPS), there, T_ROW, "")
            r = scale.to(tl.float64)
            if ROOT:
                root = 1.0 / tl.sqrt(r + number(epsilon))
                scale = root.to(tl.float32)
                r = scale.to(tl.float64) + (root - scale.to(tl.float64)).to(tl.float32).to(tl.float64)
            if OUT:
                given, places, shape = (p_dy, p_x, p_weight), (o_dy, o_x), (width, sizes, strides)
                k, b = _line(given, places, shape, there, centre, r, T, T_WEIGHT, LOOPS, WIDE, EXACT, ROOT, STEPS)
            for i in range(0, width, COLUMNS):
                columns = numbered(i, COLUMNS, WIDE)  # [COLUMNS]
                m_columns = columns < width
                m = there[:, None] & m_columns[None, :]  # [R, COLUMNS]
                dy = load(p_dy, at(o_dy, columns, sizes, strides[0], LOOPS), m, T, "evict_first")
                x = load(p_x, at(o_x, columns, sizes, strides[1], LOOPS), m, T, "evict_first")
                scaled = (x - centre[:, None]) * scale[:, None]
                if SCALED:
                    o_scaled = offsets(row, row_sizes, row_strides[5], ROW_LOOPS)
                    store(p_scaled, at(o_scaled, columns, sizes, strides[4], LOOPS), scaled, m, T)
                if OUT:
                    weight = parameter(p_weight, offsets(columns, sizes, strides[2], LOOPS), m_columns, T_WEIGHT, 1.0)
                    o_out = offsets(row, row_sizes, row_strides[4], ROW_LOOPS)
                    store(p_out, at(o_out, columns, sizes, strides[3], LOOPS), _gradient(dy, x, weight, centre, r, k, b, EXACT), m, T)
                if SUMS:
                    p_run = p_sums.to(tl.pointer_type(tl.float32)) + (tl.cast(unit, tl.int64) * 2 * width + columns)
                    later = m_columns & (columns * 0 + begin > 0)
                    _add_rows(p_run, m_columns, later, tl.where(m, dy * scaled, constant([], None, tl.float32)))
                    _add_rows(p_run + width, m_columns, later, dy)
            if SUMS:
                tl.debug_barrier()


def gradients(
    dy: Tensor,
    x: Tensor,
    centre: Tensor,
    scale: Tensor,
    weight: Tensor | None,
    out: Tensor | None,
    scaled: Tensor | None,
    axes: int,
    run: int = 0,
    epsilon: float | None = None,
) -> Start:
    """A launch on the addresses of these tensors and of sums; rows are their last `axes` axes.

    With a `run`, the float32 sums of run u over that many rows lie at 2 * u * width: those of dy * c * r, then those of dy.
    With an epsilon, `scale` is the variance, r its root's inverse in more than float32, and out is `shifted`.
    """
    split = len(x.shape) - axes
    rows, width = math.prod(x.shape[:split]), math.prod(x.shape[split:])
    outer = of_rows([dy, x, centre, scale, out or x, scaled or x], axes)
    inner, far = within([dy, x, weight or x, out or x, scaled or x], axes)
    how = of_width(width, x.dtype.itemsize, _SHORT_STEPS)
    wanted = epsilon is not None, out is not None, scaled is not None, run > 0
    run = run or how.rows
    units = cdiv(rows, run)
    kinds = type_of(x.dtype.name), type_of(centre.dtype.name), None if weight is None else type_of(weight.dtype.name)
    loops, exact = (len(outer.sizes), len(inner.sizes), far), x.dtype.name == "float32"
    grid = programs(units, 2 * how.rows * width * x.dtype.itemsize, x.device)
    shape = rows, width, units, bits(epsilon or 0.0), *outer, *inner
    return Start(_gradients, grid, x.device, WARPS, *shape, *kinds, *loops, exact, *wanted, run, *how)
