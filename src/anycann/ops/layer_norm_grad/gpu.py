"""LayerNormGrad on the GPU: a program goes through some rows for their sums, and again for the two results."""

from collections.abc import Sequence

from anycann.backends.gpu_gradients import gradients
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Rows are independent; no workspace."""
    dy, x, variance, mean, gamma, out, normalised = call.tensors
    start = gradients(dy, x, mean, variance, gamma, out, normalised, 1, epsilon=call.attrs["epsilon"])

    def run(addresses: Sequence[int], workspace: int) -> None:
        p_dy, p_x, p_variance, p_mean, *rest = addresses
        start(p_dy, p_x, p_mean, p_variance, *rest, 0)

    return 0, run
