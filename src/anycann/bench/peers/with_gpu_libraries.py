"""Libraries of GPU kernels: Liger's layer norm and TransformerEngine's permutation, written after their documentation."""

from typing import Any

import torch

from anycann.bench.peers import Peer
from anycann.bench.problems import Problem

__all__ = ["liger", "transformer_engine"]


def liger(problem: Problem) -> list[Peer]:
    """Gradients of a layer norm, that of its input included."""
    if problem.operator.spec.python != "layer_norm_grad_beta":
        return []
    from liger_kernel.ops.layer_norm import layer_norm_backward

    arrays: Any = tuple(problem.inputs.values())
    normalised, dy = (array.reshape(-1, array.shape[-1]) for array in arrays)
    rows, width = dy.shape
    mean, rstd = torch.zeros(rows, dtype=torch.float32), torch.ones(rows, dtype=torch.float32)
    weight, bias = torch.ones(width, dtype=dy.dtype), torch.zeros(width, dtype=dy.dtype)
    return [Peer("liger", "liger layer_norm_backward", True, lambda: layer_norm_backward(dy, normalised, weight, bias, mean, rstd)[1:])]


def transformer_engine(problem: Problem) -> list[Peer]:
    """The backward pass of moe_permute: rows are sorted by expert, and each row is an expert of its own."""
    if problem.operator.spec.python != "moe_token_permute_grad":
        return []
    from transformer_engine.pytorch import moe_permute

    arrays: Any = tuple(problem.inputs.values())
    grad, places = arrays
    many = problem.attrs["numTopk"]
    tokens = torch.zeros(len(places) // many, grad.shape[1], dtype=grad.dtype).requires_grad_()
    permuted, _ = moe_permute(tokens, places.view(-1, many), map_type="index")
    return [
        Peer("te", "autograd of moe_permute", True, lambda: torch.autograd.grad(permuted, tokens, grad, retain_graph=True)[0]),
    ]
