"""Functions on tensors, in the manner of torch.nn.functional: names of attribute values are accepted, gradients are recorded."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anycann.errors import AclnnError
from anycann.spec import Attr
from anycann.torch.library import ENTRIES

__all__ = ["gelu", "layer_norm", "moe_token_permute", "moe_token_unpermute", "nsa_compress", "smooth_l1_loss"]


def _code(operator: str, name: str, value: str | int) -> Any:
    """The number of a named value."""
    attr = ENTRIES[operator].given[name]
    if not isinstance(attr, Attr):
        raise TypeError(f"{name} of {operator} is a tensor")
    code = attr.convert(value, name, friendly=True)
    if attr.violation(code):
        text = f"{name} must be {attr.domain}; got {value!r}. Change this value."
        if torch.compiler.is_dynamo_compiling():  # which cannot make the error below; it quotes this one where one graph is asked for
            raise ValueError(text)
        raise AclnnError(attr.code, f"anycann.{operator}", text)
    return code


def gelu(input: Tensor, approximate: str | int = "none") -> Tensor:
    """GELU of each element, exact ("none") or by its tanh approximation ("tanh"); like torch.nn.functional.gelu."""
    result: Tensor = torch.ops.anycann.gelu_v2(input, _code("gelu_v2", "approximate", approximate))
    return result


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str | int = "mean", beta: float = 1.0) -> Tensor:
    """The smooth L1 loss of input against target; like torch.nn.functional.smooth_l1_loss, but the two may broadcast in silence."""
    result: Tensor = torch.ops.anycann.smooth_l1_loss(input, target, _code("smooth_l1_loss", "reduction", reduction), beta)
    return result


def layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Layer normalisation over the last axes, like that of torch.nn.functional; torch.ops.anycann.layer_norm also gives mean and rstd."""
    result: Tensor = torch.ops.anycann.layer_norm(input, normalized_shape, weight, bias, eps)[0]
    return result


def moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """Tokens [N, H] in the order of their experts, indices [N] or [N, K], and the row of each copy, for `moe_token_unpermute`."""
    result: tuple[Tensor, Tensor] = torch.ops.anycann.moe_token_permute(tokens, indices, num_out_tokens or 0, padded_mode)
    return result


def moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> Tensor:
    """Each token's sum of its copies, weighted by probs [N, K] or each counted once."""
    result: Tensor = torch.ops.anycann.moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)
    return result


def nsa_compress(
    input: Tensor, weight: Tensor, compress_block_size: int, compress_stride: int, act_seq_len: Sequence[int] | None = None
) -> Tensor:
    """Windows of tokens [T, N, D] as their sums, weighted by weight [W, N]; act_seq_len holds running sums of the sequence lengths."""
    sizes = {"compress_block_size": compress_block_size, "compress_stride": compress_stride}
    result: Tensor = torch.ops.anycann.nsa_compress(input, weight, act_seq_len, **sizes)
    return result
