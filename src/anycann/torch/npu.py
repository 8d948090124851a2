"""The names of torch_npu that model code calls, for machines without it: a module of that name over anycann's operators."""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from anycann.errors import AclnnError
from anycann.torch import functional

__all__ = ["install_torch_npu_shim"]


def npu_gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """GELU of each element."""
    return functional.gelu(self, approximate)


def npu_gelu_backward(grad_output: Tensor, self: Tensor, *, approximate: str = "none") -> Tensor:
    """The gradient of GELU."""
    result: Tensor = torch.ops.anycann.gelu_backward_v2(grad_output, self, approximate)
    return result


def npu_moe_token_permute(
    tokens: Tensor, indices: Tensor, num_out_tokens: int | None = None, padded_mode: bool = False
) -> tuple[Tensor, Tensor]:
    """Tokens in the order of their experts, and where each went."""
    return functional.moe_token_permute(tokens, indices, num_out_tokens, padded_mode)


def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> Tensor:
    """Each token's weighted sum of its copies."""
    return functional.moe_token_unpermute(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape)


def npu_moe_token_permute_grad_v2(
    grad_permuted_tokens: Tensor,
    sorted_indices: Tensor,
    tokens_size_0: int,
    tokens_dtype: torch.dtype,
    num_topK: int,
    padded_mode: bool = False,
) -> Tensor:
    """The gradient of npu_moe_token_permute."""
    if tokens_size_0 * num_topK != sorted_indices.numel():
        raise AclnnError(
            161002,
            "torch_npu.npu_moe_token_permute_grad_v2",
            f"sorted_indices must have tokens_size_0 * num_topK = {tokens_size_0 * num_topK} entries; got {sorted_indices.numel()}. "
            "Pass the sorted_indices that npu_moe_token_permute returned.",
        )
    result: Tensor = torch.ops.anycann.moe_token_permute_grad(grad_permuted_tokens, sorted_indices, num_topK, padded_mode)
    return result.to(tokens_dtype)


def npu_nsa_compress(
    input: Tensor, weight: Tensor, compress_block_size: int, compress_stride: int, *, actual_seq_len: Sequence[int] | None = None
) -> Tensor:
    """The NSA compression."""
    return functional.nsa_compress(input, weight, compress_block_size, compress_stride, actual_seq_len)


def npu_nsa_compress_grad(
    grad: Tensor,
    input: Tensor,
    weight: Tensor,
    compress_block_size: int,
    compress_stride: int,
    *,
    actual_seq_len: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradients of the NSA compression."""
    sizes: dict[str, Any] = {"compress_block_size": compress_block_size, "compress_stride": compress_stride}
    result: tuple[Tensor, Tensor] = torch.ops.anycann.nsa_compress_grad(grad, input, weight, actual_seq_len, **sizes)
    return result


_NAMES = (
    npu_gelu,
    npu_gelu_backward,
    npu_moe_token_permute,
    npu_moe_token_unpermute,
    npu_moe_token_permute_grad_v2,
    npu_nsa_compress,
    npu_nsa_compress_grad,
)


class _Shim(MetaPathFinder, Loader):
    """Finds and loads the module of that name: it can be imported and reloaded as any other."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name == "torch_npu" else None

    def exec_module(self, module: ModuleType) -> None:
        functions = {function.__name__: function for function in _NAMES}
        vars(module).update(functions, __anycann__=True, __doc__="The operators of torch_npu that anycann has.")


def install_torch_npu_shim() -> ModuleType:
    """Make `import torch_npu` give a module with these functions; tensors stay where they are.

    RuntimeError where torch_npu is installed.
    """
    known = sys.modules.get("torch_npu")
    if known is not None and vars(known).get("__anycann__"):
        return known
    found = importlib.util.find_spec("torch_npu") if known is None else None
    if known is not None or (found is not None and not isinstance(found.loader, _Shim)):
        raise RuntimeError("torch_npu is installed here: import it, and call anycann's operators by the names of anycann.torch")
    if found is None:
        sys.meta_path.append(_Shim())
    return importlib.import_module("torch_npu")
