"""Layer normalisation on the CPU: a unit of work is a row, read from memory once and then twice more from the caches.

The sums of a row are float64. What is subtracted from its elements is the mean in float64, or as the sum of two float32.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import types

from anycann.backends.cpu import device, kernel
from anycann.backends.cpu_blocks import AHEAD, SCRATCH, Held, layout, offset_of, stack, streams, sweep
from anycann.backends.cpu_rows import GRAIN, RECORD, piece_in, piece_out, piece_size, put_piece, record, singles
from anycann.backends.cpu_simd import (
    F32,
    LANES,
    Tag,
    fence,
    fma,
    iota,
    itemsize,
    load,
    load_tail,
    narrow,
    prefetch,
    select,
    splat,
    splat_i,
    store1,
    sum_lanes,
    tag_of,
    widen,
)
from anycann.backends.threads import parallel
from anycann.bind import Call, Launch

__all__ = ["plan"]


@device
def _sum(tag: Tag, x: int, n: int, total: Any) -> Any:
    tail = n % LANES
    for i in range(0, n - tail, LANES):
        prefetch(x + i * itemsize(tag) + AHEAD)
        total = total + widen(load(tag, x, i))
    return total + widen(load_tail(tag, x, n - tail, tail)) if tail > 0 else total


@device
def _squares(tag: Tag, x: int, n: int, mean: float, total: Any) -> Any:
    tail = n % LANES
    for i in range(0, n - tail, LANES):
        d = widen(load(tag, x, i)) - mean
        total = fma(d, d, total)
    if tail > 0:
        d = select(iota() < splat_i(np.int32(tail)), widen(load_tail(tag, x, n - tail, tail)) - mean, widen(splat(0.0)))
        total = fma(d, d, total)
    return total


@device
def _normalised(given: tuple[Tag, int, int, int, float, float], i: int, m: int) -> Any:
    """In float64 where the result is float32: what the mean or the bias cancels keeps its digits."""
    tag, x, weight, bias, mean, root = given
    v, w, b = load_tail(tag, x, i, m), load_tail(F32, weight, i, m), load_tail(F32, bias, i, m)
    if itemsize(tag) == 4:
        return narrow(fma((widen(v) - mean) * root, widen(w), widen(b)))
    near = np.float32(mean)
    return (v - splat(near) - splat(np.float32(mean - near))) * splat(np.float32(root)) * w + b


@kernel
def _rows(
    tag: Tag,
    p_x: int,
    p_out: int,
    p_mean: int,
    p_rstd: int,
    words: int,
    mean_words: int,
    rstd_words: int,
    weight: int,
    bias: int,
    eps: float,
    width: int,
    size: int,
    stream: bool,
    start: int,
    stop: int,
) -> None:
    """Rows [start, stop). `words`: the row records of x and out; addresses 0 of mean and rstd leave them out."""
    s_x, s_out = stack(SCRATCH), stack(SCRATCH)
    for row in range(start, stop):
        total = widen(splat(0.0))
        for i in range(0, width, size):
            n = min(size, width - i)
            total = _sum(tag, piece_in(tag, p_x, words, row, width, i, n, s_x), n, total)
        mean = sum_lanes(total) / width
        total = widen(splat(0.0))
        for i in range(0, width, size):
            n = min(size, width - i)
            total = _squares(tag, piece_in(tag, p_x, words, row, width, i, n, s_x), n, mean, total)
        root = 1.0 / math.sqrt(sum_lanes(total) / width + eps)
        if p_mean != 0:
            store1(F32, p_mean, offset_of(mean_words, row), np.float32(mean))
        if p_rstd != 0:
            store1(F32, p_rstd, offset_of(rstd_words, row), np.float32(root))
        for i in range(0, width, size):
            n = min(size, width - i)
            x, place = piece_in(tag, p_x, words, row, width, i, n, s_x), piece_out(tag, p_out, words + RECORD, row, i, s_out)
            sweep(_normalised, (tag, x, weight + 4 * i, bias + 4 * i, mean, root), tag, place, n, stream and place != s_out)
            put_piece(tag, p_out, words + RECORD, row, width, i, n, s_out)
    if stream:
        fence()


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds weight and bias in float32."""
    x, out, mean, rstd = call["input"], call["out"], call.get("meanOutOptional"), call.get("rstdOutOptional")
    rows, width, tag = math.prod(call.axes["*M"]), math.prod(call.axes["*N"]), tag_of(x.dtype.name)
    records = [record(tensor, len(call.axes["*N"])) for tensor in (x, out)]
    words, size, pitch = Held(np.array(records, np.int64)), piece_size(records, width), -(-width // LANES) * LANES
    mean_words, rstd_words = (
        Held(np.array([] if each is None else layout(each.dtype, each.strides, each.shape), np.int64)) for each in (mean, rstd)
    )
    put_weight, put_bias = singles(call.get("weightOptional"), width, 1.0), singles(call.get("biasOptional"), width, -0.0)
    entry = _rows.for_types(tag, *(types.intp,) * 9, types.float64, *(types.intp,) * 2, types.boolean, types.intp, types.intp)
    eps, stream, grain = call.attrs["eps"], streams(out), max(1, GRAIN // max(1, width))

    def launch(addresses: Sequence[int], workspace: int) -> None:
        p_x, p_weight, p_bias, p_out, p_mean, p_rstd = addresses
        weight, bias = workspace, workspace + 4 * pitch
        put_weight(p_weight, weight)
        put_bias(p_bias, bias)
        where = (words.address, mean_words.address, rstd_words.address)

        def piece(start: int, stop: int) -> None:
            entry(None, p_x, p_out, p_mean, p_rstd, *where, weight, bias, eps, width, size, stream, start, stop)

        parallel(piece, rows, grain)

    return 8 * pitch, launch
