"""Patterns of axes: "T H" names each, "*D H" has a group of any number of them, "1" is a size, "" has none. And how shapes meet."""

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = [
    "MAX_RANK",
    "MOST_ELEMENTS",
    "Pattern",
    "broadcast",
    "divided",
    "fits_rank",
    "is_group",
    "patterns",
    "rank_words",
    "same",
    "surely",
    "words",
]

MAX_RANK = 8
MOST_ELEMENTS = 2**60  # of a tensor, those that repeat included: their bytes, of 8 each, are counted in 63 bits
Pattern = tuple[str, ...]


@functools.cache
def patterns(text: str | tuple[str, ...]) -> tuple[Pattern, ...]:
    """The patterns that a text, or each of several alternatives, spells."""
    return tuple(tuple(each.split()) for each in ((text,) if isinstance(text, str) else text))


def is_group(axis: str) -> bool:
    """Whether a name stands for any number of axes."""
    return axis.startswith("*")


@functools.cache
def _groups(pattern: Pattern) -> tuple[str, ...]:
    return tuple([axis for axis in pattern if is_group(axis)])


@functools.cache
def fits_rank(pattern: Pattern, rank: int) -> bool:
    """Whether a tensor of this rank can have the pattern."""
    least = sum(not is_group(axis) for axis in pattern)
    return least <= rank <= MAX_RANK if least < len(pattern) else rank == least


def rank_words(pattern: Pattern) -> str:
    """The ranks of a pattern in words."""
    least = sum(not is_group(axis) for axis in pattern)
    return f"{least} to {MAX_RANK} dimensions" if least < len(pattern) else f"{least} dimension{'s' * (least != 1)}"


def words(pattern: Pattern) -> str:
    """[T, H]; [..., H] where there is one group, which then needs no name."""
    named = sum(map(is_group, pattern)) > 1 or len(pattern) == 1
    return f"[{', '.join(axis if named or not is_group(axis) else '...' for axis in pattern)}]"


def divided(pattern: Pattern, shape: tuple[int, ...], known: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part of a shape that each axis of a pattern takes: a size, or the tuple of a group; None where the rank does not fit.

    Of several groups, all but one must be known: the first that is not known, or else the first, takes what the others leave.
    """
    groups = _groups(pattern)
    if not groups:
        return dict(zip(pattern, shape, strict=True)) if len(pattern) == len(shape) else None
    free = next((axis for axis in groups if axis not in known), groups[0])
    rest = len(shape) - sum([0 if axis == free else len(known[axis]) if axis in groups else 1 for axis in pattern])
    if rest < 0:
        return None
    found: dict[str, Any] = {}
    place = 0
    for axis in pattern:
        count = rest if axis == free else len(known[axis]) if axis in groups else 1
        found[axis] = shape[place : place + count] if axis in groups else shape[place]
        place += count
    return found


def surely(said: Any) -> bool:
    """Whether a comparison holds. Of sizes that PyTorch traces only what it knows: to be asked more would fix them."""
    if isinstance(said, bool):
        return said
    known: bool = sys.modules["torch.fx.experimental.symbolic_shapes"].statically_known_true(said)
    return known


def same(sizes: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether sizes, or strides, are surely the same."""
    return len(sizes) == len(others) and all(a is b or surely(a == b) for a, b in zip(sizes, others, strict=True))


def _met(sizes: list[Any]) -> Any:
    """The size that sizes of one axis broadcast to; None where there is none."""
    met = sizes[0]
    for size in sizes[1:]:
        if surely(met == 1):
            met = size
        elif not surely(size == 1) and met != size:  # of sizes that PyTorch traces more is asked only where they may differ
            if met == 1:
                met = size
            elif size != 1:
                return None
    return met


def broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """NumPy's rule, right aligned; a dimension of 1 against 0 gives 0. None where there is none, or one that no tensor has."""
    rank = max(map(len, shapes))
    result = [_met([shape[axis] for shape in shapes if len(shape) >= -axis]) for axis in range(-rank, 0)]
    if None in result:
        return None
    known = math.prod([size for size in result if isinstance(size, int)])  # of others, which PyTorch traces, nothing is asked
    return None if known > MOST_ELEMENTS else tuple(result)
