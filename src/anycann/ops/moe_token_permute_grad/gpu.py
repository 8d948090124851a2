"""Each token adds the rows of its copies."""

from collections.abc import Sequence

from anycann.backends.gpu_gather import sums_of_rows
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; no workspace."""
    grad, indices, out = call.tensors
    start = sums_of_rows(grad, indices, None, out, call.attrs["numTopk"])

    def run(addresses: Sequence[int], workspace: int) -> None:
        p_grad, p_indices, p_out = addresses
        start(p_grad, p_indices, 0, p_out)

    return 0, run
