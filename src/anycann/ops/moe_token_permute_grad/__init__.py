"""aclnnMoeTokenPermuteGrad."""

from typing import Any

from anycann.ops.moe_token_permute_grad.spec import SPEC
from anycann.runtime import Operator

__all__ = ["moe_token_permute_grad"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def moe_token_permute_grad(
    permuted_output_grad: Any, sorted_indices: Any, num_topk: int, padded_mode: bool = False, *, out: Any = None, product: str | None = None
) -> Any:
    return _operator.call(permuted_output_grad, sorted_indices, num_topk, padded_mode, out=out, product=product)
