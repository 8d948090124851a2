"""NSA compression gradients on the GPU: a program takes the tokens of one partial sum for one head, in tiles.

Windows begin and end at multiples of 16 tokens of a sequence, so 16 tokens from such a place on are in the same windows. A tile is one
or several such groups. Lanes of d (l, l + 16, …) lie side by side in a thread, which reads x once; inputGrad is written once. A second
launch adds the partial sums of weightGrad.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl

from anycann.backends.gpu import Placed, Start, cdiv, constant, in_order, jit, load, once, store, sum_of_partials, type_of
from anycann.bind import Call, Launch
from anycann.ops.nsa_compress_grad.spec import LANES, RUN_D, TOKENS_PER_PARTIAL
from anycann.ops.windows import sequences

__all__ = ["plan"]

_GROUP = 16  # tokens in the same windows
_TILE = 64  # tokens of a tile, where a run of d holds a whole row
_TOKENS, _RUN, _SIDE, _LANES = tl.constexpr(TOKENS_PER_PARTIAL), tl.constexpr(RUN_D), tl.constexpr(_GROUP), tl.constexpr(LANES)
_FIELDS = tl.constexpr(6)  # of a segment: first and last token, its sequence's first token and windows, and how many; first place
_COLUMNS = 32  # of a program that adds partial sums


@jit
def _window(
    p_weight: tl.tensor,
    place: tl.tensor,
    inside: tl.tensor,
    number: tl.tensor,
    count: tl.tensor,
    o: tl.tensor,
    sizes: tl.tuple,
    step: tl.tensor,
    k: tl.constexpr,
    T: tl.constexpr,
) -> tl.tuple:
    """Window k of those that tokens may be in: whether it is there, its row of outputGrad, its 16 places, and weights (0 if not there)."""
    _, _, block, stride = sizes
    j = place // stride - k
    at = place - j * stride
    there = inside & (j >= 0) & (j < count) & (at < block)
    weight = tl.where(there, load(p_weight, at * step + o, there, T, ""), 0.0)
    return there, number + j, (at // _SIDE).to(tl.int32), weight


@jit
def _chunks(
    p_grad: tl.tensor,
    p_x: tl.tensor,
    p_weight: tl.tensor,
    p_dx: tl.tensor,
    p_sums: tl.tensor,
    p_segments: tl.tensor,
    p_ranges: tl.tensor,
    sizes: tl.tuple,
    grad_strides: tl.tuple,
    x_strides: tl.tuple,
    weight_strides: tl.tuple,
    dx_strides: tl.tuple,
    T: tl.constexpr,
    WINDOWS: tl.constexpr,
    PHASES: tl.constexpr,
    PADDED: tl.constexpr,
    RUNS: tl.constexpr,
    SLICES: tl.constexpr,
    TILE: tl.constexpr,
    BEGIN: tl.constexpr,
) -> None:
    heads, width, _, _ = sizes
    chunk, head = (tl.program_id(0) // heads).to(tl.int64), (tl.program_id(0) % heads).to(tl.int64)
    segments, ranges = p_segments.to(tl.pointer_type(tl.int64)), p_ranges.to(tl.pointer_type(tl.int64))
    r, lanes = tl.arange(0, TILE), tl.arange(0, _LANES)  # [TILE], [16]
    o_grad, o_x = head * grad_strides[1] + lanes * grad_strides[2], head * x_strides[1] + lanes * x_strides[2]  # [16]
    o_dx, o_weight = head * dx_strides[1] + lanes * dx_strides[2], head * weight_strides[1]
    phases = tl.arange(0, PADDED)[:, None, None]  # [PADDED, 1, 1]
    sums = constant([PADDED * _SIDE * _LANES], BEGIN, tl.float64)  # place in the window / 16, place % 16, lane
    for segment in range(tl.load(ranges + chunk), tl.load(ranges + chunk + 1)):
        at = segments + segment * _FIELDS
        first, last, origin, number, count = tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3), tl.load(at + 4)
        for start in range(tl.load(at + 5), last - origin, TILE):
            place = start + r  # [TILE]
            tokens = origin + place
            inside = (tokens >= first) & (tokens < last)
            windows: tl.tuple = ()
            covered = inside & False
            for k in tl.static_range(WINDOWS):  # in ascending order
                window = _window(p_weight, place, inside, number, count, o_weight, sizes, weight_strides[0], WINDOWS - 1 - k, T)
                covered = covered | window[0]
                windows = windows + (window,)
            for part in range(0, RUNS):
                d = tl.cast(part * _RUN, tl.int64) if RUNS > 1 else 0
                run: tl.tuple = ()
                for k in tl.static_range(WINDOWS):
                    run = run + (constant([TILE, _LANES], None, tl.float32),)
                for i in tl.static_range(SLICES):
                    m = inside[:, None] & (lanes + (d + i * _LANES) < width)[None, :]  # [TILE, 16]
                    x = load(p_x, tokens[:, None] * x_strides[0] + (o_x + (d + i * _LANES) * x_strides[2])[None, :], m, T, "evict_first")
                    added: tl.tuple = ()
                    for k in tl.static_range(WINDOWS):
                        o_d = (o_grad + (d + i * _LANES) * grad_strides[2])[None, :]
                        g = load(p_grad, windows[k][1][:, None] * grad_strides[0] + o_d, m & windows[k][0][:, None], T, "")
                        added = added + (run[k] + tl.where(m, x * g, constant([], None, tl.float32)),)
                    run = added
                placed = constant([PADDED, TILE, _LANES], None, tl.float32)
                for k in tl.static_range(WINDOWS):
                    here = windows[k][0][None, :, None] & (windows[k][2][None, :, None] == phases)
                    placed = tl.where(here, run[k][None, :, :], placed)
                placed = tl.permute(tl.reshape(placed, [PADDED, TILE // _SIDE, _SIDE * _LANES]), (0, 2, 1))
                sums = in_order(sums, tl.reshape(placed, [PADDED * _SIDE * _LANES, TILE // _SIDE]), TILE // _SIDE)
                begin = tl.where(covered, constant([], None, tl.float32), 0.0)[:, None]
                for i in tl.static_range(SLICES):
                    m = inside[:, None] & (lanes + (d + i * _LANES) < width)[None, :]  # [TILE, 16]
                    dx = tl.broadcast_to(begin, [TILE, _LANES])
                    for k in tl.static_range(WINDOWS):
                        o_d = (o_grad + (d + i * _LANES) * grad_strides[2])[None, :]
                        g = load(p_grad, windows[k][1][:, None] * grad_strides[0] + o_d, m & windows[k][0][:, None], T, "")
                        dx = dx + windows[k][3][:, None] * g
                    store(p_dx, tokens[:, None] * dx_strides[0] + (o_dx + (d + i * _LANES) * dx_strides[2])[None, :], dx, m, T)
    half: tl.constexpr = _LANES // 2
    sums = tl.sum(tl.reshape(sums, [PADDED, _SIDE, 2, half]), 2)
    sums = tl.sum(tl.reshape(sums, [PADDED, _SIDE, 2, half // 2]), 2)
    sums = tl.sum(tl.reshape(sums, [PADDED, _SIDE, 2, half // 4]), 2)
    sums = tl.sum(sums, 2)  # [PADDED, 16]
    places = tl.arange(0, PADDED)[:, None] * _SIDE + tl.arange(0, _SIDE)[None, :]
    o = (chunk * PHASES * _SIDE + places) * heads + head
    tl.store(p_sums.to(tl.pointer_type(tl.float64)) + o, sums, mask=places < PHASES * _SIDE)


@jit
def _totals(
    p_sums: tl.tensor,
    p_out: tl.tensor,
    chunks: tl.tensor,
    numel: tl.tensor,
    heads: tl.tensor,
    strides: tl.tuple,
    T: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m = i < numel
    total = once(sum_of_partials(p_sums, i, numel, chunks, m, None), T)
    store(p_out, i // heads * strides[0] + i % heads * strides[1], total, m, T)


def _tables(act_seq_len: tuple[int, ...] | None, tokens: int, block: int, stride: int) -> tuple[Any, Any]:
    """The segments, which are the tokens of one sequence in one partial sum, and the first of each partial sum (and of one more)."""
    segments: list[tuple[int, ...]] = []
    ranges, number = [0], 0
    for origin, length in sequences(act_seq_len, tokens):
        count = (length - block) // stride + 1 if length >= block else 0
        first = origin
        while first < origin + length:
            chunk = first // TOKENS_PER_PARTIAL
            while len(ranges) <= chunk:
                ranges.append(len(segments))
            last = min(origin + length, (chunk + 1) * TOKENS_PER_PARTIAL)
            segments.append((first, last, origin, number, count, (first - origin) // _GROUP * _GROUP))
            first = last
        number += count
    chunks = max(1, cdiv(tokens, TOKENS_PER_PARTIAL))
    ranges += [len(segments)] * (chunks + 1 - len(ranges))
    return np.array(segments, np.int64).reshape(-1, 6), np.array(ranges, np.int64)


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace holds the partial sums of weightGrad in float64."""
    tokens, heads, width, block = (call.axes[axis] for axis in "TNDW")
    grad, x, weight, dx, dw = call.tensors
    stride, device = call.attrs["compressStride"], x.device
    segments, ranges = _tables(call.attrs["actSeqLenOptional"], tokens, block, stride)
    chunks, numel, kind = len(ranges) - 1, block * heads, type_of(x.dtype.name)
    tables = Placed(segments, device), Placed(ranges, device)
    phases, slices = block // _GROUP, min(width, RUN_D) // LANES
    tile = _TILE if width <= RUN_D else _GROUP
    shape = (heads, width, block, stride), grad.strides, x.strides, weight.strides, dx.strides, kind
    choices = cdiv(block, stride), phases, triton.next_power_of_2(phases), cdiv(width, RUN_D), slices, tile
    warps = tile // _GROUP * x.dtype.itemsize // 2  # 16 bytes of a row for each thread
    add = Start(_chunks, chunks * heads, device, warps, *shape, *choices, None if call.axes["C"] > 0 else 0.0)
    finish = Start(_totals, cdiv(numel, _COLUMNS), device, 1, chunks, numel, heads, dw.strides, kind, _COLUMNS)

    def run(addresses: Sequence[int], workspace: int) -> None:
        *given, p_dw = addresses
        add(*given, workspace, *(table.address for table in tables))
        finish(workspace, p_dw)

    return 8 * chunks * numel, run
