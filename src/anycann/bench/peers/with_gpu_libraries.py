"""Libraries of GPU kernels: the layer norms of Liger and quack, TransformerEngine's permutation, written after their documentation.

What they want in another dtype or shape is made before the timing. Where they have no kernel for sums over rows alone, they compute the
gradient of the input as well.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from anycann.bench.peers import Peer
from anycann.bench.problems import Problem

__all__ = ["of"]


def _rows(tensor: Any) -> Any:
    return tensor.reshape(-1, tensor.shape[-1])


def _shaped(problem: Problem, results: Sequence[Any]) -> tuple[Any, ...]:
    """What a library has computed on rows in the shapes of the problem."""
    return tuple([result.view(out.shape) for result, out in zip(results, problem.outs, strict=True)])


def _forward(problem: Problem) -> tuple[Any, ...]:
    """input, weight and bias."""
    arrays: Any = problem.inputs
    return _rows(arrays["input"]), arrays["weightOptional"].reshape(-1), arrays["biasOptional"].reshape(-1)


def _backward(problem: Problem) -> tuple[Any, ...]:
    """gradient, input, weight, mean and rstd; for sums alone a weight of ones and means of zero, with which they are the same sums."""
    arrays: Any = problem.inputs
    if problem.operator.spec.python == "layer_norm_backward":
        statistics = (arrays[name].reshape(-1).float() for name in ("mean", "rstd"))
        return _rows(arrays["gradOut"]), _rows(arrays["input"]), arrays["weightOptional"].reshape(-1), *statistics
    x, dy = (_rows(arrays[name]) for name in ("resForGamma", "inputDy"))
    rows, width = dy.shape
    return dy, x, torch.ones(width, dtype=dy.dtype), torch.zeros(rows), torch.ones(rows)


def _liger_forward(problem: Problem) -> Callable[[], Any]:
    from liger_kernel.ops.layer_norm import layer_norm_forward

    (x, weight, bias), eps = _forward(problem), problem.attrs["eps"]

    def run() -> Any:
        out, _, mean, rstd, *_ = layer_norm_forward(x, weight, bias, eps)
        return _shaped(problem, (out, mean, rstd))

    return run


def _liger_backward(problem: Problem) -> Callable[[], Any]:
    from liger_kernel.ops.layer_norm import layer_norm_backward

    dy, x, weight, mean, rstd = _backward(problem)
    bias, many = torch.zeros_like(weight), len(problem.outs)
    return lambda: _shaped(problem, layer_norm_backward(dy, x, weight, bias, mean, rstd)[-many:])


def _quack_forward(problem: Problem) -> Callable[[], Any]:
    from quack.rmsnorm import layernorm_fwd

    (x, weight, bias), eps = _forward(problem), problem.attrs["eps"]
    weight, bias = weight.float(), bias.float()

    def run() -> Any:
        out, rstd, mean = layernorm_fwd(x, weight, bias, eps, return_rstd=True, return_mean=True)
        return _shaped(problem, (out, mean, rstd))

    return run


def _quack_backward(problem: Problem) -> Callable[[], Any]:
    from quack.rmsnorm import layernorm_bwd

    dy, x, weight, mean, rstd = _backward(problem)
    many = len(problem.outs)
    return lambda: _shaped(problem, layernorm_bwd(x, weight, dy, rstd, mean)[-many:])


def _permutation(problem: Problem) -> Callable[[], Any]:
    """The backward pass of moe_permute: rows are sorted by expert, and each row is an expert of its own."""
    from transformer_engine.pytorch import moe_permute

    arrays: Any = tuple(problem.inputs.values())
    grad, places = arrays
    many = problem.attrs["numTopk"]
    tokens = torch.zeros(len(places) // many, grad.shape[1], dtype=grad.dtype).requires_grad_()
    permuted, _ = moe_permute(tokens, places.view(-1, many), map_type="index")
    return lambda: torch.autograd.grad(permuted, tokens, grad, retain_graph=True)[0]


_PEERS: dict[str, dict[str, tuple[str, Callable[[Problem], Callable[[], Any]]]]] = {
    "liger": {
        "layer_norm": ("liger layer_norm_forward", _liger_forward),
        "layer_norm_backward": ("liger layer_norm_backward", _liger_backward),
        "layer_norm_grad_beta": ("liger layer_norm_backward", _liger_backward),
    },
    "quack": {
        "layer_norm": ("quack layernorm_fwd", _quack_forward),
        "layer_norm_backward": ("quack layernorm_bwd", _quack_backward),
        "layer_norm_grad_beta": ("quack layernorm_bwd", _quack_backward),
    },
    "te": {"moe_token_permute_grad": ("autograd of moe_permute", _permutation)},
}


def of(problem: Problem, libraries: Sequence[str]) -> list[Peer]:
    """Who of these libraries computes this problem."""
    found = []
    for library in libraries:
        name, prepared = _PEERS.get(library, {}).get(problem.operator.spec.python, ("", None))
        if prepared is not None:
            found.append(Peer(library, name, True, prepared(problem)))
    return found
