"""The windows of the NSA compression: how sequences lie one after the other, and where their windows begin."""

__all__ = ["rising", "sequences", "total", "windows"]


def sequences(act_seq_len: tuple[int, ...] | None, tokens: int) -> list[tuple[int, int]]:
    """(start, length) of each sequence, from the running sums of the lengths; None is one sequence of all tokens."""
    ends = (tokens,) if act_seq_len is None else act_seq_len
    starts = (0, *ends[:-1])
    return [(start, end - start) for start, end in zip(starts, ends, strict=True)]


def windows(act_seq_len: tuple[int, ...] | None, tokens: int, block: int, stride: int) -> int:
    """How many windows all sequences have: a sequence shorter than a window has none."""
    return sum((length - block) // stride + 1 for _, length in sequences(act_seq_len, tokens) if length >= block)


def rising(act_seq_len: tuple[int, ...] | None) -> bool:
    """Whether running sums start at 0 or above and do not decrease."""
    return act_seq_len is None or all(low <= high for low, high in zip((0, *act_seq_len), act_seq_len, strict=False))


def total(act_seq_len: tuple[int, ...] | None, tokens: int) -> int:
    """The last running sum: all tokens."""
    return tokens if act_seq_len is None else act_seq_len[-1] if act_seq_len else 0
