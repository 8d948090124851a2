"""aclnnMoeTokenUnpermuteGrad."""

from collections.abc import Sequence
from typing import Any

from anycann.ops.moe_token_unpermute_grad.spec import SPEC
from anycann.runtime import Operator

__all__ = ["moe_token_unpermute_grad"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def moe_token_unpermute_grad(
    permute_tokens: Any,
    unpermuted_tokens_grad: Any,
    sorted_indices: Any,
    probs: Any = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(
        permute_tokens, unpermuted_tokens_grad, sorted_indices, probs, padded_mode, restore_shape, out=out, product=product
    )
