"""Prints the tables of docs/torch.md: errors of anycann's and of torch's own operators, and what a call through torch costs."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

import anycann
import anycann.torch
from anycann import ops

op = torch.ops.anycann
REFERENCES = {operator.spec.python: operator.reference() for operator in ops.OPERATORS}


def relative(found: torch.Tensor, golden: Any) -> float:
    """The largest relative error."""
    golden = np.asarray(golden, np.float64)
    error = np.abs(found.double().numpy() - golden)
    return float(np.max(error[golden != 0] / np.abs(golden[golden != 0])))


def of_largest(found: torch.Tensor, golden: Any) -> float:
    """The largest error, over the largest golden value."""
    golden = np.asarray(golden, np.float64)
    return float(np.max(np.abs(found.double().numpy() - golden)) / np.max(np.abs(golden)))


def rows() -> list[tuple[str, str, float, float]]:
    """What is computed, on which data, the error of anycann, the error of torch."""
    found = []
    x = torch.linspace(-10, 5, 30001)
    one = torch.ones(())
    for mode, code in (("none", 0), ("tanh", 1)):
        golden = REFERENCES["gelu_v2"](x.numpy(), code)
        found.append(
            (f"gelu {mode}", "float32, -10 to 5", relative(op.gelu_v2(x, code), golden), relative(F.gelu(x, approximate=mode), golden))
        )
        golden = REFERENCES["gelu_backward_v2"](1.0, x.numpy(), mode)
        theirs = torch.ops.aten.gelu_backward(torch.ones_like(x), x, approximate=mode)
        found.append(
            (f"gelu backward {mode}", "float32, -10 to 5", relative(op.gelu_backward_v2(one, x, mode), golden), relative(theirs, golden))
        )
    torch.manual_seed(0)
    a, b = torch.randn(1 << 20).half(), torch.zeros(1 << 20).half()
    golden = REFERENCES["smooth_l1_loss"](a.float().numpy(), b.float().numpy(), 1, 1.0)
    found.append(
        ("smooth l1 loss, mean", "float16, 2^20", relative(op.smooth_l1_loss(a, b), golden), relative(F.smooth_l1_loss(a, b), golden))
    )
    a, b = torch.randn(1 << 20), torch.zeros(1 << 20)
    golden = REFERENCES["smooth_l1_loss"](a.numpy(), b.numpy(), 1, 1.0)
    found.append(
        ("smooth l1 loss, mean", "float32, 2^20", relative(op.smooth_l1_loss(a, b), golden), relative(F.smooth_l1_loss(a, b), golden))
    )
    x = torch.randn(256, 1024) + 1000
    golden = REFERENCES["layer_norm"](x.numpy(), (1024,), None, None, 1e-5)[0]
    found.append(
        ("layer norm", "float32, mean 1000", of_largest(op.layer_norm(x, (1024,))[0], golden), of_largest(F.layer_norm(x, (1024,)), golden))
    )
    for dtype in (torch.float32, torch.bfloat16):
        x, g = torch.randn(32768, 64).to(dtype), torch.ones(32768, 64).to(dtype)
        weight, bias = torch.ones(64).to(dtype), torch.zeros(64).to(dtype)
        ours, theirs = (
            torch.ops.anycann.layer_norm_backward(g, x, (64,), *op.layer_norm(x, (64,), weight, bias)[1:], weight, bias)[2],
            torch.ops.aten.native_layer_norm_backward(
                g, x, [64], *torch.native_layer_norm(x, [64], weight, bias, 1e-5)[1:], weight, bias, [True] * 3
            )[2],
        )
        name = str(dtype).removeprefix("torch.")
        golden = np.full(64, 32768.0)
        found.append(("layer norm backward, bias", f"{name}, 32,768 rows of ones", relative(ours, golden), relative(theirs, golden)))
    return found


def microseconds(functions: dict[str, Callable[[], Any]], rounds: int = 60, calls: int = 500) -> dict[str, float]:
    """The shortest time of each, taken in turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            best[name] = min(best[name], (time.perf_counter() - start) / calls * 1e6)
    return best


def minimal() -> Any:
    """The least operator that torch.library can make: a Python function on the CPU, without a rule for autograd."""
    library: Any = torch.library.Library("anycann_minimal", "DEF")
    library.define("first(Tensor a, Tensor b) -> Tensor")
    library.impl("first", lambda a, b: a, "CPU")
    return library, torch.ops.anycann_minimal.first


def main() -> None:
    print("| operator | data | anycann | torch |\n|---|---|---|---|")
    for name, data, ours, theirs in rows():
        print(f"| {name} | {data} | {ours:.1e} | {theirs:.1e} |")
    _keep, least = minimal()
    g, x = torch.randn(8), torch.randn(8)
    found = microseconds(
        {
            "anycann.gelu_backward_v2": lambda: anycann.gelu_backward_v2(g, x),
            "torch.ops.anycann.gelu_backward_v2": lambda: op.gelu_backward_v2(g, x),
            "the least torch.library operator": lambda: least(g, x),
            "torch.ops.aten.gelu_backward": lambda: torch.ops.aten.gelu_backward(g, x),
        }
    )
    print("\n| call on 8 elements | µs |\n|---|---|")
    for name, time_of in found.items():
        print(f"| {name} | {time_of:.1f} |")


if __name__ == "__main__":
    main()
