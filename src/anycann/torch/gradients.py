"""Which operator is the gradient of which, and what gradients have for gradients of their own."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from anycann.errors import AclnnError
from anycann.torch import autograd, second
from anycann.torch.autograd import Given, Rule
from anycann.torch.library import ENTRIES

__all__ = ["RULES", "register"]

Needs = Callable[[str], bool]
Grads = tuple[Tensor, ...]
Found = dict[str, Tensor | None]

_GELU_MODES = ("none", "tanh")
_MOST_COPIES = int(vars(ENTRIES["moe_token_permute_grad"].given["num_topk"])["high"])  # of a token


def _ops() -> Any:
    return torch.ops.anycann


def _gelu(given: Given, grads: Grads, needs: Needs) -> Found:
    return {"x": _ops().gelu_backward_v2(grads[0], given["x"], _GELU_MODES[given["approximate"]])}


def _gelu_backward(given: Given, grads: Grads, needs: Needs) -> Found:
    x, approximate = given["self"], given["approximate"]
    found: Found = {"grad_output": _ops().gelu_backward_v2(grads[0], x, approximate)} if needs("grad_output") else {}
    if needs("self"):
        found["self"] = grads[0].double() * given["grad_output"].double() * second.gelu(x, approximate)
    return found


def _smooth_l1(given: Given, grads: Grads, needs: Needs) -> Found:
    gradient = _ops().smooth_l1_loss_backward(grads[0], given["self"], given["target"], given["reduction"], given["beta"])
    return {"self": gradient, "target": -gradient if needs("target") else None}


def _smooth_l1_backward(given: Given, grads: Grads, needs: Needs) -> Found:
    x, target, reduction, beta = (given[name] for name in ("self", "target", "reduction", "beta"))
    found: Found = {"grad_out": _ops().smooth_l1_loss_backward(grads[0], x, target, reduction, beta)} if needs("grad_out") else {}
    if needs("self") or needs("target"):
        slope = second.smooth_l1(x, target, beta)
        curved = grads[0].double() * given["grad_out"].double() * (slope / slope.numel() if reduction == 1 else slope)
        found |= {"self": curved, "target": -curved}
    return found


def _layer_norm(given: Given, grads: Grads, needs: Needs) -> Found:
    mask = [needs("input"), needs("weight"), needs("bias")]
    statistics = given["output 1"], given["output 2"]
    found = _ops().layer_norm_backward(
        grads[0], given["input"], given["normalized_shape"], *statistics, given["weight"], given["bias"], mask
    )
    return dict(zip(("input", "weight", "bias"), found, strict=True))


def _layer_norm_backward(given: Given, grads: Grads, needs: Needs) -> Found:
    x, weight = given["input"], given["weight"]
    axes = tuple(range(x.dim() - len(given["normalized_shape"]), x.dim()))
    to_grad, to_input, to_weight = second.layer_norm(grads, given["grad_out"], x, given["mean"], given["rstd"], weight, axes)
    return {"grad_out": to_grad, "input": to_input, "weight": to_weight}


def _layer_norm_grad_beta(given: Given, grads: Grads, needs: Needs) -> Found:
    gamma, beta = (gradient.float() for gradient in grads)
    return {
        "res_for_gamma": given["input_dy"] * gamma if needs("res_for_gamma") else None,
        "input_dy": given["res_for_gamma"] * gamma + beta if needs("input_dy") else None,
    }


def _permute(given: Given, grads: Grads, needs: Needs) -> Found:
    rows, *copies = given["indices"].shape
    top_k = copies[0] if copies else 1
    if top_k == 0:
        return {"tokens": grads[0].new_zeros(rows, grads[0].shape[1])}
    if top_k > _MOST_COPIES:
        raise AclnnError(
            161002,
            "anycann.moe_token_permute",
            f"indices must have at most {_MOST_COPIES} columns where the gradient of tokens is asked for, the numTopk of "
            f"aclnnMoeTokenPermuteGrad; got {top_k}. Pass tokens.detach(), or permute in parts.",
        )
    return {"tokens": _ops().moe_token_permute_grad(grads[0], given["output 1"], top_k)}


def _permute_grad(given: Given, grads: Grads, needs: Needs) -> Found:
    """Every token's row goes back to each place that it was gathered from, in float32; dropped places are one row too many."""
    indices, rows = given["sorted_indices"].long(), given["permuted_output_grad"].shape[0]
    kept = torch.where((indices >= 0) & (indices < rows), indices, rows)
    copies = grads[0].float().repeat_interleave(given["num_topk"], 0)
    spread = copies.new_zeros(rows + 1, copies.shape[1]).index_add(0, kept, copies)
    return {"permuted_output_grad": spread[:rows]}


def _unpermute(given: Given, grads: Grads, needs: Needs) -> Found:
    found = _ops().moe_token_unpermute_grad(given["permuted_tokens"], grads[0], given["sorted_indices"], given["probs"])
    return dict(zip(("permuted_tokens", "probs"), found, strict=True))


def _unpermute_grad(given: Given, grads: Grads, needs: Needs) -> Found:
    """Both results are bilinear: that of the tokens in outGrad and probs, that of probs in outGrad and the tokens."""
    indices, probs, tokens = given["sorted_indices"], given["probs"], given["permute_tokens"]
    of_tokens, of_probs = grads
    through_tokens = _ops().moe_token_unpermute(of_tokens, indices, probs)
    if probs is None:
        return {"unpermuted_tokens_grad": through_tokens}
    both = _ops().moe_token_unpermute_grad(of_tokens, given["unpermuted_tokens_grad"], indices, of_probs)
    through_probs = _ops().moe_token_unpermute(tokens, indices, of_probs)
    return {"permute_tokens": both[0], "probs": both[1], "unpermuted_tokens_grad": through_tokens + through_probs}


def _nsa(given: Given, grads: Grads, needs: Needs) -> Found:
    sizes = {name: given[name] for name in ("compress_block_size", "compress_stride")}
    found = _ops().nsa_compress_grad(grads[0], given["input"], given["weight"], given["act_seq_len"], **sizes)
    return dict(zip(("input", "weight"), found, strict=True))


def _nsa_grad(given: Given, grads: Grads, needs: Needs) -> Found:
    """Both results are bilinear: inputGrad in weight and outputGrad, weightGrad in input and outputGrad."""
    of_input, of_weight = grads
    sizes = {name: given[name] for name in ("compress_block_size", "compress_stride")}
    lengths = given["act_seq_len"]
    both = _ops().nsa_compress_grad(given["output_grad"], of_input, of_weight, lengths, **sizes)
    found: Found = {"input": both[0], "weight": both[1]}
    if needs("output_grad"):
        through_input = _ops().nsa_compress(of_input, given["weight"], lengths, **sizes)
        through_weight = _ops().nsa_compress(given["input"], of_weight, lengths, **sizes)
        found["output_grad"] = through_input + through_weight
    return found


RULES: dict[str, Rule] = {
    "gelu_v2": Rule(("x",), _gelu),
    "gelu_backward_v2": Rule(("grad_output", "self"), _gelu_backward),
    "smooth_l1_loss": Rule(("self", "target"), _smooth_l1),
    "smooth_l1_loss_backward": Rule(("grad_out", "self", "target"), _smooth_l1_backward),
    "layer_norm": Rule(("input", "weight", "bias", "output 1", "output 2"), _layer_norm, constant=(1, 2)),
    "layer_norm_backward": Rule(
        ("grad_out", "input", "mean", "rstd", "weight"),
        _layer_norm_backward,
        dict.fromkeys(
            ("mean", "rstd"), "the statistics of layer_norm_backward are those of its input, by which the derivatives go: detach them"
        ),
    ),
    "layer_norm_grad_beta": Rule(("res_for_gamma", "input_dy"), _layer_norm_grad_beta),
    "moe_token_permute": Rule(("indices", "output 1"), _permute, constant=(1,)),
    "moe_token_permute_grad": Rule(("permuted_output_grad", "sorted_indices"), _permute_grad),
    "moe_token_unpermute": Rule(("permuted_tokens", "sorted_indices", "probs"), _unpermute),
    "moe_token_unpermute_grad": Rule(("permute_tokens", "unpermuted_tokens_grad", "sorted_indices", "probs"), _unpermute_grad),
    "nsa_compress": Rule(("input", "weight"), _nsa),
    "nsa_compress_grad": Rule(("output_grad", "input", "weight"), _nsa_grad),
}


def _without(name: str) -> Rule:
    """The rule of an operator that has none: an error for every tensor that needs a gradient."""
    message = f"torch.ops.anycann.{name} has no derivative: detach its tensors, or use the functions of anycann.torch"
    return Rule(refuses=dict.fromkeys(ENTRIES[name].tensors, message))


def register() -> None:
    """Register the gradients of all operators."""
    for name, entry in ENTRIES.items():
        autograd.register(entry, RULES.get(name) or _without(name))
