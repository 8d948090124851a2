"""Places in a stable order, for any integers as keys, in one launch of its own and a search in the launch that needs the places.

The launch sorts tiles of 2,048 keys: the place of a key in its tile is the number of keys of the tile that come before it. If there is
one tile, that is all. Else a key's place is its place in its tile plus, for each other tile, the number of its keys that come before.
For keys from 0 to 511, experts for example, the launch has counted these numbers; they lie side by side, and one is read for each tile.
Groups with any other key are searched by halves in all tiles at once, with 12 probes for each. So a place among n keys costs n / 2,048
reads, or n / 171 probes, and all places n times that. Nothing depends on the order in which programs run.
"""

import triton
import triton.language as tl

from anycann.backends.gpu import Start, cdiv, jit, nest, offsets
from anycann.tensor import Tensor

__all__ = ["Tiles", "place_of"]

_TILE = 2048  # keys, a power of two
_SMALL = 512  # keys from 0 up to this one are looked up
_KEYS, _OTHERS = 8, 128  # of a step of the count, powers of two, the second not less
_WARPS = 4
_AT_ONCE = 128  # tiles that are searched at once, at most, a power of two
_TYPES = {"int32": (tl.int32, 2**31 - 1), "int64": (tl.int64, 2**63 - 1)}


@jit
def _others(
    keys: tl.tensor, start: tl.tensor, tile: tl.tuple, loops: tl.tuple, N: tl.constexpr, LARGEST: tl.constexpr, OTHERS: tl.constexpr
) -> tl.tensor:
    """Keys of a tile from `start` on, [1, OTHERS], and the largest number behind its end."""
    begin, count = tile
    j = start + tl.arange(0, OTHERS)
    return tl.load(keys + offsets(begin + j, loops[0], loops[1], N), mask=j < count, other=LARGEST)[None, :]


@jit
def _count(
    p_keys: tl.tensor,
    p_within: tl.tensor,
    p_sorted: tl.tensor,
    p_smaller: tl.tensor,
    numel: tl.tensor,
    tiles: tl.tensor,
    loops: tl.tuple,
    within_stride: tl.tensor,
    T: tl.constexpr,
    N: tl.constexpr,
    LARGEST: tl.constexpr,
    TILE: tl.constexpr,
    BOUNDS: tl.constexpr,
    KEYS: tl.constexpr,
    OTHERS: tl.constexpr,
) -> None:
    """Count the keys of a tile that come before each of KEYS of them, or of the bounds 0, 1, … that follow them; no bounds: one tile."""
    programs = (TILE + BOUNDS + KEYS - 1) // KEYS  # of a tile
    number, first = tl.program_id(0) // programs, tl.program_id(0) % programs * KEYS
    begin = number.to(tl.int64) * TILE
    own, count = first + tl.arange(0, KEYS), tl.minimum(numel - begin, TILE).to(tl.int32)  # [KEYS]
    keys, m, bound, tile = p_keys.to(tl.pointer_type(T)), own < count, own - TILE, (begin, count)
    key = tl.load(keys + offsets(begin + own, loops[0], loops[1], N), mask=m, other=0)
    key = tl.where(bound < 0, key, bound.to(T))[:, None]  # [KEYS, 1]
    near = tl.where(first < TILE, first // OTHERS * OTHERS, 0)  # keys of a step before or after this one all are earlier or later ones
    before = tl.full([KEYS, OTHERS], 0, tl.int32)
    for start in tl.range(0, near, OTHERS, loop_unroll_factor=4):
        before += (_others(keys, start, tile, loops, N, LARGEST, OTHERS) <= key).to(tl.int32)
    other, earlier = _others(keys, near, tile, loops, N, LARGEST, OTHERS), near + tl.arange(0, OTHERS)[None, :] < own[:, None]
    before += ((other < key) | ((other == key) & earlier & (bound < 0)[:, None])).to(tl.int32)
    for start in tl.range(near + OTHERS, count, OTHERS, loop_unroll_factor=4):
        before += (_others(keys, start, tile, loops, N, LARGEST, OTHERS) < key).to(tl.int32)
    place = tl.sum(before, 1)
    tl.store(p_within.to(tl.pointer_type(tl.int32)) + (begin + own) * within_stride, place, mask=m)
    if BOUNDS > 0:
        tl.store(p_sorted.to(tl.pointer_type(T)) + begin + place, tl.reshape(key, [KEYS]), mask=m)
        p_bound = p_smaller.to(tl.pointer_type(tl.int32)) + bound.to(tl.int64) * tiles + number
        tl.store(p_bound, place, mask=(bound >= 0) & (bound < BOUNDS))


@jit
def place_of(
    parts: tl.tuple,
    at: tl.tensor,
    m: tl.tensor,
    sizes: tl.tuple,
    T: tl.constexpr,
    TILE: tl.constexpr,
    SMALL: tl.constexpr,
    AT_ONCE: tl.constexpr,
) -> tl.tensor:
    """The places of the keys with the numbers `at`, where m is set; AT_ONCE tiles are searched side by side."""
    p_within, p_sorted, p_smaller = parts
    keys, smaller = p_sorted.to(tl.pointer_type(T)), p_smaller.to(tl.pointer_type(tl.int32))
    numel, tiles = sizes
    within = tl.load(p_within.to(tl.pointer_type(tl.int32)) + at, mask=m, other=0)  # [K]
    key = tl.load(keys + at // TILE * TILE + within, mask=m, other=0)
    large = tl.max(((key < 0) | (key >= SMALL)).to(tl.int32), 0)
    key, own = key[:, None], (at // TILE).to(tl.int32)[:, None]  # [K, 1]
    total = tl.full([at.shape[0], AT_ONCE], 0, tl.int32)
    for first in range(0, tiles, AT_ONCE):
        tile = first + tl.arange(0, AT_ONCE)[None, :]  # [1, AT_ONCE]
        there = m[:, None] & (tile < tiles) & (tile != own)  # [K, AT_ONCE]
        if large == 0:
            bound = key.to(tl.int64) + (tile < own)
            total += tl.load(smaller + bound * tiles + tile, mask=there, other=0)
        else:
            begin, before, half = tile.to(tl.int64) * TILE, total * 0, TILE
            while half > 0:
                enough = before + half
                inside = there & (begin + enough <= numel) & (enough <= TILE)
                other = tl.load(keys + begin + (enough - 1), mask=inside, other=0)
                comes = (other < key) | ((other == key) & (tile < own))
                before, half = tl.where(inside & comes, enough, before), half // 2
            total += before
    return within + tl.sum(total, 1)


class Tiles:
    """The launch that sorts tiles of keys, and what `place_of` takes, if there are several; of one tile, the launch writes the places.

    `out` is int32 of rank 1, and keys are int32 or int64, fewer than 2^31. Equal keys keep their order.
    """

    def __init__(self, keys: Tensor, out: Tensor) -> None:
        numel, (kind, largest), loops = keys.numel, _TYPES[keys.dtype.name], nest([keys], keys.shape)
        self.number = cdiv(numel, _TILE)
        self.several = self.number > 1
        bounds, stride = (_SMALL + 1, 1) if self.several else (0, out.strides[0])
        self.sorted, self.within, self.smaller = keys.dtype.itemsize * numel, 4 * numel, 4 * bounds * self.number  # bytes
        self.workspace = self.sorted + self.within + self.smaller if self.several else 0
        shape = numel, self.number, (loops.sizes, loops.strides[0]), stride
        choices = kind, len(loops.sizes), largest, _TILE, bounds, _KEYS, _OTHERS
        programs = cdiv(_TILE + bounds, _KEYS) * self.number if self.several else cdiv(numel, _KEYS)
        self.sort = Start(_count, programs, keys.device, _WARPS, *shape, *choices)
        self.sizes, self.choices = (numel, self.number), (kind, _TILE, _SMALL)

    def parts(self, p_out: int, workspace: int) -> tuple[int, int, int]:
        """The addresses of the keys' places in their tiles, of the sorted tiles, and of the numbers of keys smaller than the bounds."""
        if not self.several:
            return p_out, workspace, workspace
        return workspace + self.sorted, workspace, workspace + self.sorted + self.within

    def at_once(self, most: int) -> int:
        """How many tiles `place_of` searches side by side, up to a power of two; 0 if places are known."""
        return min(most, _AT_ONCE, triton.next_power_of_2(self.number)) if self.several else 0
