"""Ascend C kernels on simulated cores: compile a kernel source unchanged, run it on NumPy arrays, learn of every mistake."""

from anycann.ascendc.build import Module, build
from anycann.ascendc.definitions import layer_norm_grad_beta
from anycann.ascendc.devices import Device, device
from anycann.ascendc.launch import Kernel, Launch
from anycann.ascendc.program import build_program, how_to_launch, run, run_program
from anycann.ascendc.report import CompileError, KernelError, Report
from anycann.ascendc.sources import kind
from anycann.ascendc.tiling import (
    Struct,
    TilingData,
    layer_norm_grad_beta_max_min_tmp_size,
    layer_norm_grad_beta_tiling,
    layer_norm_grad_max_min_tmp_size,
    layer_norm_grad_tiling,
    layer_norm_max_min_tmp_size,
    layer_norm_tiling,
)
from anycann.ascendc.trace import RunSummary
from anycann.toolchain import ToolchainError

__all__ = [
    "CompileError",
    "Device",
    "Kernel",
    "KernelError",
    "Launch",
    "Module",
    "Report",
    "RunSummary",
    "Struct",
    "TilingData",
    "ToolchainError",
    "build",
    "build_program",
    "device",
    "how_to_launch",
    "kind",
    "layer_norm_grad_beta",
    "layer_norm_grad_beta_max_min_tmp_size",
    "layer_norm_grad_beta_tiling",
    "layer_norm_grad_max_min_tmp_size",
    "layer_norm_grad_tiling",
    "layer_norm_max_min_tmp_size",
    "layer_norm_tiling",
    "run",
    "run_program",
]
