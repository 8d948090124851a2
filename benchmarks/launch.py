"""What a warm call on a CUDA device costs the host, beside torch's own: microseconds a call, median of 21 rounds of 500 calls."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import anycann


def microseconds(call: Callable[[], Any]) -> float:
    """The host's time for one call; the device keeps up, as the problems are small."""
    rounds = []
    for _ in range(21):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(500):
            call()
        rounds.append((time.perf_counter() - begin) / 500 * 1e6)
    return float(np.median(rounds))


def main() -> None:
    grad, x, out = (torch.randn(64, device="cuda") for _ in range(3))
    aten = torch.ops.aten.gelu_backward
    print(f"torch, out=:    {microseconds(lambda: aten.grad_input(grad, x, approximate='tanh', grad_input=out)):.2f} us")
    print(f"torch:          {microseconds(lambda: aten(grad, x, approximate='tanh')):.2f} us")
    print(f"anycann, out=:  {microseconds(lambda: anycann.gelu_backward_v2(grad, x, 'tanh', out=out)):.2f} us")
    print(f"anycann:        {microseconds(lambda: anycann.gelu_backward_v2(grad, x, 'tanh')):.2f} us")
    rows, sums = torch.randn(64, 64, device="cuda"), (torch.empty(64, device="cuda"), torch.empty(64, device="cuda"))
    print(f"anycann, two launches and a workspace: {microseconds(lambda: anycann.layer_norm_grad_beta(rows, rows, out=sums)):.2f} us")


if __name__ == "__main__":
    main()
