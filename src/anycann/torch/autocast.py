"""torch.autocast on the CPU: which operators compute in float32, and which in the dtype of the region. The others take what comes."""

from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey, DispatchKeySet

from anycann.torch.library import ENTRIES, LIBRARY, Entry

__all__ = ["register"]

FLOAT32 = ("layer_norm", "smooth_l1_loss", "smooth_l1_loss_backward")  # as torch does with its own layer norm and losses on GPUs
REGION = ("nsa_compress",)  # a weighted sum, like a convolution; devices have it in 16 bits only


def _kernel(entry: Entry, dtype: Callable[[], torch.dtype]) -> Callable[..., Any]:
    without = DispatchKeySet(DispatchKey.AutocastCPU)

    def cast(value: Any, wanted: torch.dtype) -> Any:
        eligible = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
        return value.to(wanted) if eligible else value

    def kernel(*args: Any, **named: Any) -> Any:
        wanted = dtype()
        with torch._C._ExcludeDispatchKeyGuard(without):
            return entry.op(*[cast(value, wanted) for value in args], **named)

    return kernel


def register() -> None:
    """Register the rules of the operators that have one."""
    for names, dtype in ((FLOAT32, lambda: torch.float32), (REGION, lambda: torch.get_autocast_dtype("cpu"))):
        for name in names:
            if name in ENTRIES:
                LIBRARY.impl(name, _kernel(ENTRIES[name], dtype), "AutocastCPU")
