"""Modules: those of torch.nn with anycann's operators inside, and the NSA compression. State dicts are interchangeable with torch.nn's."""

from collections.abc import Sequence

import torch
from torch import Tensor

from anycann.torch import functional

__all__ = ["GELU", "LayerNorm", "NsaCompress", "SmoothL1Loss"]


class GELU(torch.nn.GELU):
    """torch.nn.GELU by aclnnGeluV2 and aclnnGeluBackwardV2."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input, self.approximate)


class SmoothL1Loss(torch.nn.SmoothL1Loss):
    """torch.nn.SmoothL1Loss by aclnnSmoothL1Loss and aclnnSmoothL1LossBackward."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return functional.smooth_l1_loss(input, target, self.reduction, self.beta)


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm by aclnnLayerNorm and aclnnLayerNormBackward."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class NsaCompress(torch.nn.Module):
    """The compression of native sparse attention: each window of tokens becomes their weighted sum, with weights for each head.

    The weight [compress_block_size, heads] starts as the mean of a window.
    """

    def __init__(
        self,
        heads: int,
        compress_block_size: int = 32,
        compress_stride: int = 16,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.compress_block_size, self.compress_stride = compress_block_size, compress_stride
        size = compress_block_size, heads
        self.weight = torch.nn.Parameter(torch.full(size, 1 / compress_block_size, device=device, dtype=dtype))

    def forward(self, input: Tensor, act_seq_len: Sequence[int] | None = None) -> Tensor:
        return functional.nsa_compress(input, self.weight, self.compress_block_size, self.compress_stride, act_seq_len)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[1]}, compress_block_size={self.compress_block_size}, compress_stride={self.compress_stride}"
