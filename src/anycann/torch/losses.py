"""The smooth L1 loss on a part of its elements: what a mean is over all of them, computed where only some of them are."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["part_of_gradient", "part_of_loss"]


def part_of_gradient(values: Mapping[str, Any], count: int) -> Tensor:
    """smooth_l1_loss_backward with the norm of `count` elements: the operator's own order of operations, and one rounding at the end."""
    given = [values[name] for name in ("grad_out", "self", "target")]
    result: Tensor = torch.ops.anycann.smooth_l1_loss_backward(*[tensor.float() for tensor in given], 0, values["beta"])
    if values["reduction"] == 1:
        result = result * torch.tensor(1 / max(count, 1), dtype=torch.float32, device="cpu")
    dtype = torch.promote_types(torch.promote_types(given[0].dtype, given[1].dtype), given[2].dtype)
    return result.to(dtype)


def part_of_loss(values: Mapping[str, Any], count: int) -> Tensor:
    """What these elements add to the mean of `count` elements."""
    given = [values[name] for name in ("self", "target")]
    total: Tensor = torch.ops.anycann.smooth_l1_loss(*[tensor.float() for tensor in given], 2, values["beta"])
    return (total / count).to(torch.promote_types(given[0].dtype, given[1].dtype))
