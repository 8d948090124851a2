"""Each token adds the rows of its copies, times their weights."""

from collections.abc import Sequence

from anycann.backends.gpu_gather import sums_of_rows
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; no workspace."""
    start = sums_of_rows(call["permutedTokens"], call["sortedIndices"], call.get("probsOptional"), call["out"], call.axes["K"])

    def run(addresses: Sequence[int], workspace: int) -> None:
        start(*addresses)

    return 0, run
