"""Each token adds the rows of its copies, times their weights."""

from collections.abc import Sequence

from anycann.backends.cpu_gather import sums_of_rows
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; no workspace."""
    add = sums_of_rows(call["permutedTokens"], call["sortedIndices"], call.get("probsOptional"), call["out"], call.axes["K"])

    def launch(addresses: Sequence[int], workspace: int) -> None:
        add(*addresses)

    return 0, launch
