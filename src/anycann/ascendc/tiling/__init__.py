"""Tiling: describing the structs that kernels receive, and filling those of the layer-norm functions."""

from anycann.ascendc.tiling.layer_norm import (
    layer_norm_grad_beta_max_min_tmp_size,
    layer_norm_grad_beta_tiling,
    layer_norm_grad_max_min_tmp_size,
    layer_norm_grad_tiling,
    layer_norm_max_min_tmp_size,
    layer_norm_tiling,
)
from anycann.ascendc.tiling.structs import Struct, TilingData, describe, parse_definitions

__all__ = [
    "Struct",
    "TilingData",
    "describe",
    "layer_norm_grad_beta_max_min_tmp_size",
    "layer_norm_grad_beta_tiling",
    "layer_norm_grad_max_min_tmp_size",
    "layer_norm_grad_tiling",
    "layer_norm_max_min_tmp_size",
    "layer_norm_tiling",
    "parse_definitions",
]
