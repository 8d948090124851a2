"""Gradients of rows that were centred and scaled.

With centre m and scale r of each row, c = x - m, a = dy * weight and sums over the n elements of the row in float64:
out = a * r + (k * c + b), k = -r**3 * sum(a * c) / n, b = -r * sum(a) / n. Beside it c * r (b is greater by -k * sum(c) / n then: by 0
but for the rounding of m), and column sums of dy * c * r and of dy: those of a run of rows in float32. Short rows keep a and c in the
nearest cache from their sums to their results.
"""

from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import by_tag, device
from anycann.backends.cpu_blocks import SCRATCH, WALK_SCRATCH, ask_line, begin_walk, end_walk, stack, sweep
from anycann.backends.cpu_lines import LINES, begin_lines, finish_lines, sweep_lines
from anycann.backends.cpu_rows import RECORD, ahead_of, joins, piece_in, piece_out, put_piece, step_of, weights
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    fence,
    fma,
    iota,
    itemsize,
    load,
    load1,
    load_tail,
    narrow,
    reads_ahead,
    select,
    splat,
    splat_d,
    splat_i,
    store,
    store_f64,
    sum_lanes,
    widen,
)
from anycann.backends.cpu_threads import partitioned

__all__ = ["gradients", "keeps"]

_KEPT = 1 << 13  # bytes of the products, or of the differences, that are kept
_BOTH_KEPT = 2 * _KEPT


def _exact_product(tag: Tag, x: Any, weight: Any) -> Any:
    return widen(x) * weight


def _rounded_product(tag: Tag, x: Any, weight: Any) -> Any:
    return x * weight


@by_tag
def _product(tag: Tag, x: Any, weight: Any) -> Any:
    """x * weight: exactly, as float64, where results are float32, as their differences cancel."""
    return _exact_product if tag == F32 else _rounded_product


def _exact_difference(tag: Tag, x: Any, centre: Any) -> Any:
    return widen(x) - widen(centre)


def _rounded_difference(tag: Tag, x: Any, centre: Any) -> Any:
    return x - centre


@by_tag
def _difference(tag: Tag, x: Any, centre: Any) -> Any:
    """x - centre: exactly, as float64, where results are float32."""
    return _exact_difference if tag == F32 else _rounded_difference


def _keep_wide(tag: Tag, address: int, i: int, v: Any) -> None:
    store_f64(address, i, v)


def _keep_short(tag: Tag, address: int, i: int, v: Any) -> None:
    store(F32, address, i, v)


@by_tag
def _keep(tag: Tag, address: int, i: int, v: Any) -> None:
    """Write 16 products or differences where `weights` can read them."""
    return _keep_wide if tag == F32 else _keep_short  # type: ignore[return-value]


@device
def _parts(tag: Tag, kept: Any, dy: int, x: int, weight: int, centre: float, i: int, m: int) -> Any:
    """a = dy * weight and c = x - centre of m <= 16 elements from i on: what was kept, or computed once more where that is None."""
    if kept is not None:
        return weights(tag, kept, i, m), weights(tag, kept + _KEPT, i, m)
    a = _product(tag, load_tail(tag, dy, i, m), weights(tag, weight, i, m))
    return a, _difference(tag, load_tail(tag, x, i, m), splat(centre))


def _exact_line(tag: Tag, a: Any, c: Any, r: float, slope: float, base: float) -> Any:
    return narrow(fma(a, splat_d(r), fma(c, splat_d(slope), splat_d(base))))


def _rounded_line(tag: Tag, a: Any, c: Any, r: float, slope: float, base: float) -> Any:
    return fma(a, splat(np.float32(r)), fma(c, splat(np.float32(slope)), splat(np.float32(base))))


@by_tag
def _line(tag: Tag, a: Any, c: Any, r: float, slope: float, base: float) -> Any:
    """a * r + (c * slope + base)."""
    return _exact_line if tag == F32 else _rounded_line


@device
def _gradient(given: tuple[Tag, Any, int, int, int, float, float, float, float], i: int, m: int) -> Any:
    tag, kept, dy, x, weight, centre, r, slope, base = given
    a, c = _parts(tag, kept, dy, x, weight, centre, i, m)
    return _line(tag, a, c, r, slope, base)


def _kept_single(tag: Tag, kept: Any, x: int, centre: float, i: int, m: int) -> Any:
    return weights(tag, kept + _KEPT, i, m)


def _new_single(tag: Tag, kept: Any, x: int, centre: float, i: int, m: int) -> Any:
    return load_tail(tag, x, i, m) - splat(centre)


@by_tag
def _single(tag: Tag, kept: Any, x: int, centre: float, i: int, m: int) -> Any:
    """x - centre in float32."""
    return _new_single if kept == types.none or tag == F32 else _kept_single


@device
def _scaled(given: tuple[Tag, Any, int, float, float], i: int, m: int) -> Any:
    tag, kept, x, centre, scale = given
    return _single(tag, kept, x, centre, i, m) * splat(scale)


def _wide_already(tag: Tag, v: Any) -> Any:
    return v


def _widened(tag: Tag, v: Any) -> Any:
    return widen(v)


@by_tag
def _wide(tag: Tag, v: Any) -> Any:
    """A product or a difference as float64."""
    return _wide_already if tag == F32 else _widened


@device
def _summed(tag: Tag, totals: tuple[Any, Any, Any], kept: Any, i: int, d: Any, v: Any, weight: Any, centre: Any) -> Any:
    """The sums of a, a * c and c with those of 16 elements from i on, which are kept unless `kept` is None."""
    total_a, total_ac, total_c = totals
    short_a, short_c = _product(tag, d, weight), _difference(tag, v, centre)
    if kept is not None:
        _keep(tag, kept, i, short_a)
        _keep(tag, kept + _KEPT, i, short_c)
    a, c = _wide(tag, short_a), _wide(tag, short_c)
    return total_a + a, fma(a, c, total_ac), total_c + c


@device
def _add_columns(sums: tuple[int, int], d: Any, v: Any, centre: float, scale: float, i: int, begin: bool) -> None:
    """Add 16 elements of d * (v - centre) * scale to the first sums, and of d to the second; `begin`: to nothing.

    Sums have room for a multiple of 16, and what is beyond a row matters to nobody.
    """
    first = second = splat(-0.0)
    if not begin:
        first, second = load(F32, sums[0], i), load(F32, sums[1], i)
    store(F32, sums[0], i, first + d * ((v - splat(centre)) * splat(scale)))
    store(F32, sums[1], i, second + d)


def keeps(tag: Tag, width: int) -> bool | None:
    """True where rows are so short that their products and differences are kept from their sums to their results, else None."""
    return True if -(-width // LANES) * LANES * (8 if tag == F32 else 4) <= _KEPT else None


@partitioned
def gradients(
    tag: Tag,
    p_dy: int,
    p_x: int,
    p_out: int,
    p_scaled: int | None,
    words: int,
    centres: int,
    scales: int,
    rests: int,
    weight: int,
    sums: int | None,
    first_run: int,
    rows: int,
    width: int,
    size: int,
    run: int,
    stream: bool,
    keep: bool | None,
    start: int,
    stop: int,
) -> None:
    """Runs [start, stop) of `run` rows, counted from first_run on. `words`: the row records of dy, x, out, scaled. An address 0 of out, and
    None of scaled or sums, leaves them out.

    weight: what `weights` reads; keep: what `keeps` says. A row is divided by the float32 in scales, plus the one in rests where those are.

    Sums of run u lie at sums + 8 * (u - first_run) * pitch, pitch being the width rounded up to 16: those of dy * c * r, then those of dy.
    """
    s_dy, s_x, s_out = stack(WALK_SCRATCH), stack(WALK_SCRATCH), stack(SCRATCH)
    kept: Any = keep
    if keep is not None:
        kept = stack(_BOTH_KEPT)
    begin_walk(s_dy)
    begin_walk(s_x)
    w_dy, w_x, w_out, w_scaled = words, words + RECORD, words + 2 * RECORD, words + 3 * RECORD
    dy_step, x_step, out_step, scaled_step = step_of(tag, w_dy), step_of(tag, w_x), types.intp(0), types.intp(0)
    dy_ahead, x_ahead = ahead_of(tag, w_dy, width), ahead_of(tag, w_x, width)
    far = reads_ahead() and itemsize(tag) == 4  # rows of float32 fill the first cache
    if p_out != 0:
        out_step = step_of(tag, w_out)
    if p_scaled is not None:
        scaled_step = step_of(tag, w_scaled)
    pitch, full, number = -(-width // LANES) * LANES, types.intp(LANES), 8 if itemsize(tag) == 4 else 4
    carried, lines = stack(LINES), stream and p_out != 0 and joins(tag, p_out, w_out, width)
    share = 1.0 / max(1, width)  # rows would wait for quotients
    begin_lines(carried)
    if p_scaled is not None:
        scaled_carried, scaled_lines = stack(LINES), stream and joins(tag, p_scaled, w_scaled, width)
        begin_lines(scaled_carried)
    for unit in range(first_run + start, first_run + stop):
        for row in range(unit * run, min(rows, (unit + 1) * run)):
            centre, scale = load1(F32, centres, row), load1(F32, scales, row)
            r = types.float64(scale)
            if rests != 0:
                r += types.float64(load1(F32, rests, row))
            slope = base = 0.0
            totals, begins = (widen(splat(0.0)), widen(splat(0.0)), widen(splat(0.0))), row == unit * run
            begin = dy = x = 0 * width  # a loop without range, which divides
            while begin < width:
                n = min(size, width - begin)
                tail = n % LANES
                dy, x = (
                    piece_in(tag, p_dy, dy_step, w_dy, row, width, begin, n, s_dy),
                    piece_in(tag, p_x, x_step, w_x, row, width, begin, n, s_x),
                )
                if sums is not None:
                    gamma = sums + 8 * (unit - first_run) * pitch + 4 * begin
                    columns = gamma, gamma + 4 * pitch
                if p_out != 0:
                    for i in range(0, n - tail, LANES):
                        ask_line(dy + i * itemsize(tag) + dy_ahead, far)
                        ask_line(x + i * itemsize(tag) + x_ahead, far)
                        d, v = load(tag, dy, i), load(tag, x, i)
                        totals = _summed(tag, totals, kept, begin + i, d, v, weights(tag, weight, begin + i, full), splat(centre))
                        if sums is not None:
                            _add_columns(columns, d, v, centre, scale, i, begins)
                elif sums is not None:
                    for i in range(0, n - tail, LANES):
                        _add_columns(columns, load(tag, dy, i), load(tag, x, i), centre, scale, i, begins)
                if tail > 0:
                    i = n - tail
                    there = select(iota() < splat_i(np.int32(tail)), splat(centre), splat(0.0))  # 0 in the other lanes
                    d, v = load_tail(tag, dy, i, tail), load_tail(tag, x, i, tail)
                    totals = _summed(tag, totals, kept, begin + i, d, v, weights(tag, weight, begin + i, tail), there)
                    if sums is not None:
                        _add_columns(columns, d, v, centre, scale, i, begins)
                begin += size
            if p_out != 0:
                cube = r * r * r * (sum_lanes(totals[1]) * share)
                slope, base = -cube, -r * (sum_lanes(totals[0]) * share)
                if p_scaled is not None:
                    base += cube * (sum_lanes(totals[2]) * share)
            elif p_scaled is None:
                continue
            begin = 0 * width
            while begin < width:
                n = min(size, width - begin)
                if size < width:  # else they are where they were
                    dy = piece_in(tag, p_dy, dy_step, w_dy, row, width, begin, n, s_dy)
                    x = piece_in(tag, p_x, x_step, w_x, row, width, begin, n, s_x)
                here: Any = keep
                if keep is not None:
                    here = kept + number * begin
                if p_scaled is not None:
                    place = piece_out(tag, p_scaled, scaled_step, w_scaled, row, begin, s_out)
                    if scaled_lines:
                        sweep_lines(_scaled, (tag, here, x, centre, scale), tag, place, n, scaled_carried)
                    else:
                        sweep(_scaled, (tag, here, x, centre, scale), tag, place, n, stream and place != s_out)
                    put_piece(tag, p_scaled, scaled_step, w_scaled, row, width, begin, n, s_out)
                if p_out != 0:
                    place = piece_out(tag, p_out, out_step, w_out, row, begin, s_out)
                    given = (tag, here, dy, x, weight + number * begin, centre, r, slope, base)
                    if lines:
                        sweep_lines(_gradient, given, tag, place, n, carried)
                    else:
                        sweep(_gradient, given, tag, place, n, stream and place != s_out)
                    put_piece(tag, p_out, out_step, w_out, row, width, begin, n, s_out)
                begin += size
    end_walk(s_dy)
    end_walk(s_x)
    if stream:
        finish_lines(carried)
        if p_scaled is not None:
            finish_lines(scaled_carried)
        fence()
