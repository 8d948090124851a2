"""The windows of the NSA compression: how sequences lie one after the other, where their windows begin, and what must hold of them."""

from collections.abc import Callable
from typing import Any

from anycann.spec import Let, Rule

__all__ = ["FUNCTIONS", "MULTIPLES", "SEQUENCES", "nothing_empty", "sequences", "windows"]


def sequences(act_seq_len: tuple[int, ...] | None, tokens: int) -> list[tuple[int, int]]:
    """(start, length) of each sequence, from the running sums of the lengths; None is one sequence of all tokens."""
    ends = (tokens,) if act_seq_len is None else act_seq_len
    return [(start, end - start) for start, end in zip((0, *ends), ends, strict=False)]


def windows(act_seq_len: tuple[int, ...] | None, tokens: int, block: int, stride: int) -> int:
    """How many windows all sequences have: a sequence shorter than a window has none."""
    return sum((length - block) // stride + 1 for _, length in sequences(act_seq_len, tokens) if length >= block)


def rising(act_seq_len: tuple[int, ...] | None) -> bool:
    """Whether running sums start at 0 or above and do not decrease."""
    return act_seq_len is None or all(low <= high for low, high in zip((0, *act_seq_len), act_seq_len, strict=False))


def total(act_seq_len: tuple[int, ...] | None, tokens: int) -> int:
    """The last running sum: all tokens."""
    return tokens if act_seq_len is None else act_seq_len[-1] if act_seq_len else 0


FUNCTIONS: dict[str, Callable[..., Any]] = {"windows": windows, "rising": rising, "total": total}  # that the rules call

SEQUENCES = (
    Rule(
        "rising(actSeqLen)",
        "must start at 0 or above and never decrease",
        "actSeqLenOptional",
        mend="Pass running sums of the lengths.",
    ),
    Rule(
        "total(actSeqLen, T) == T",
        "must end with the number of tokens",
        "actSeqLenOptional",
        mend="The last running sum is T, the first size of {input}.",
    ),
    Let("C", "windows(actSeqLen, T, W, s)", "windows of all sequences"),
)

MULTIPLES = (
    Rule("W % 16 == 0", "must be a multiple of 16", "compressBlockSize", "tiling", 561002),
    Rule("s % 16 == 0", "must be a multiple of 16", "compressStride", "tiling", 561002),
    Rule("D % 16 == 0", "must have a last size that is a multiple of 16", "input", "tiling", 561002),
)


def nothing_empty(compressed: str, mend: str) -> tuple[Rule, ...]:
    """No tensor is empty; `compressed` is the one with a row for each window."""
    return (
        Rule("N > 0 and D > 0", "must not be empty", "input", "empty"),
        Rule("T > 0", "must not be empty", "input", "empty", superset=""),
        Rule("C > 0", "must not be empty: every sequence is shorter than a window", compressed, "empty", superset="", mend=mend),
    )
