"""Places in a stable order, for any integers as keys: tiles are sorted by counting, then merged, all in a number of launches that only
depends on how many keys there are.

A sort by digits would need passes for as many digits as keys differ in, which the host may not look at, and three launches for each. Here
the place of a key in a tile is the number of keys of the tile that come before it. To merge tiles, a key adds up how many come before it
in each of up to 64 sorted runs, all of which are searched by halves at once. So many keys take one launch (the count alone) up to 2,048,
two up to 32,768, three up to 2,097,152, and one more for each factor of 64. Nothing depends on the order in which programs run.
"""

from collections.abc import Callable

import triton.language as tl

from anycann.backends.gpu import Start, cdiv, jit, nest, offsets
from anycann.tensor import Tensor

__all__ = ["stable_places"]

_WHOLE = 2048  # so many keys are counted at once, a power of two
_TILE = 512  # of more keys, a power of two
_FAN = 64  # runs that are merged at once, at most, a power of two
_KEYS, _OTHERS = 8, 128  # of a step of the count
_SEARCHES = 2048  # of a program
_WARPS = 4
_TYPES = {"int32": tl.int32, "int64": tl.int64}


@jit
def _count(
    p_keys: tl.tensor,
    p_sorted: tl.tensor,
    p_ids: tl.tensor,
    p_out: tl.tensor,
    numel: tl.tensor,
    tile: tl.tensor,
    sizes: tl.tuple,
    strides: tl.tuple,
    out_stride: tl.tensor,
    T: tl.constexpr,
    N: tl.constexpr,
    LAST: tl.constexpr,
    KEYS: tl.constexpr,
    OTHERS: tl.constexpr,
) -> None:
    """Sort each tile, or with LAST the one tile that there is."""
    first = tl.program_id(0).to(tl.int64) * KEYS
    begin = first // tile * tile
    own, count = (first - begin).to(tl.int32) + tl.arange(0, KEYS), tl.minimum(numel - begin, tile).to(tl.int32)  # [KEYS]
    keys, m = p_keys.to(tl.pointer_type(T)), own < count
    key = tl.load(keys + offsets(begin + own, sizes, strides, N), mask=m, other=0)  # [KEYS]
    before = tl.full([KEYS, OTHERS], 0, tl.int32)
    for start in range(0, count, OTHERS):
        j = start + tl.arange(0, OTHERS)  # [OTHERS]
        other = tl.load(keys + offsets(begin + j, sizes, strides, N), mask=j < count, other=0)[None, :]
        comes = (other < key[:, None]) | ((other == key[:, None]) & (j[None, :] < own[:, None]))  # [KEYS, OTHERS]
        before += (comes & (j < count)[None, :]).to(tl.int32)
    place = begin + tl.sum(before, 1)
    if LAST:
        tl.store(p_out.to(tl.pointer_type(tl.int32)) + own.to(tl.int64) * out_stride, place.to(tl.int32), mask=m)
    else:
        tl.store(p_sorted.to(tl.pointer_type(T)) + place, key, mask=m)
        tl.store(p_ids.to(tl.pointer_type(tl.int32)) + place, (begin + own).to(tl.int32), mask=m)


@jit
def _merge(
    p_keys: tl.tensor,
    p_ids: tl.tensor,
    p_sorted: tl.tensor,
    p_sorted_ids: tl.tensor,
    p_out: tl.tensor,
    numel: tl.tensor,
    out_stride: tl.tensor,
    T: tl.constexpr,
    LOG_RUN: tl.constexpr,
    FAN: tl.constexpr,
    LAST: tl.constexpr,
    KEYS: tl.constexpr,
) -> None:
    """Merge FAN runs of 2 ** LOG_RUN sorted keys each; the last one may be shorter. LAST: write the places, by the keys' numbers."""
    first = tl.program_id(0).to(tl.int64) * KEYS
    group = first >> LOG_RUN
    own_run = (group % FAN).to(tl.int32)
    group = (group - own_run) << LOG_RUN
    at, run = first + tl.arange(0, KEYS), tl.arange(0, FAN)  # [KEYS], [FAN]
    keys, m = p_keys.to(tl.pointer_type(T)), at < numel
    key = tl.load(keys + at, mask=m, other=0)[None, :]  # [1, KEYS]
    begin = group + (run.to(tl.int64) << LOG_RUN)  # [FAN]
    count = tl.minimum(numel - begin, 1 << LOG_RUN)[:, None]  # [FAN, 1]
    earlier = (run < own_run)[:, None]
    before = tl.full([FAN, KEYS], 0, tl.int32)
    for halving in tl.static_range(LOG_RUN + 1):
        enough = before + (1 << (LOG_RUN - halving))  # [FAN, KEYS]
        there = (enough <= count) & m[None, :]
        other = tl.load(keys + begin[:, None] + (enough - 1), mask=there, other=0)
        comes = (other < key) | ((other == key) & earlier)
        before = tl.where(there & comes, enough, before)
    own = (at - group - (own_run.to(tl.int64) << LOG_RUN)).to(tl.int32)[None, :]
    before = tl.where((run == own_run)[:, None], own, before)
    place, number = group + tl.sum(before, 0), tl.load(p_ids.to(tl.pointer_type(tl.int32)) + at, mask=m, other=0)
    if LAST:
        tl.store(p_out.to(tl.pointer_type(tl.int32)) + number.to(tl.int64) * out_stride, place.to(tl.int32), mask=m)
    else:
        tl.store(p_sorted.to(tl.pointer_type(T)) + place, tl.reshape(key, [KEYS]), mask=m)
        tl.store(p_sorted_ids.to(tl.pointer_type(tl.int32)) + place, number, mask=m)


def _levels(tiles: int) -> tuple[int, int]:
    """How often runs are merged, and how many at once, a power of two."""
    levels, fan = 0, 1
    while _FAN**levels < tiles:
        levels += 1
    while fan**levels < tiles:
        fan *= 2
    return levels, fan


def stable_places(keys: Tensor, out: Tensor) -> tuple[int, Callable[[int, int, int], None]]:
    """The workspace, and a function of the addresses of keys, out and workspace: out[i] is the place of key i, in row-major order.

    `out` is int32 of rank 1, and keys are int32 or int64, fewer than 2^31. Equal keys keep their order.
    """
    numel, size, kind = keys.numel, keys.dtype.itemsize, _TYPES[keys.dtype.name]
    tile = _WHOLE if numel <= _WHOLE else _TILE
    levels, fan = _levels(cdiv(numel, tile))
    loops, (stride,) = nest([keys], keys.shape), out.strides
    grid, sizes = cdiv(numel, _KEYS), (loops.sizes, loops.strides[0], stride, kind, len(loops.sizes))
    count = Start(_count, grid, keys.device, _WARPS, numel, tile, *sizes, levels == 0, _KEYS, _OTHERS)
    merges, log_run, side = [], tile.bit_length() - 1, min(tile, _SEARCHES // fan)
    for level in range(levels):
        choices = kind, log_run, fan, level == levels - 1, side
        merges.append(Start(_merge, cdiv(numel, side), keys.device, _WARPS, numel, stride, *choices))
        log_run += fan.bit_length() - 1
    rooms = min(levels, 2)  # for keys and their numbers, which merges read and write in turn

    def run(p_keys: int, p_out: int, workspace: int) -> None:
        ids = workspace + rooms * size * numel
        halves = [(workspace, ids), (workspace + (rooms - 1) * size * numel, ids + (rooms - 1) * 4 * numel)]
        count(p_keys, *halves[0], p_out)
        for level, merge in enumerate(merges):
            merge(*halves[level % 2], *halves[~level % 2], p_out)

    return rooms * (size + 4) * numel, run
