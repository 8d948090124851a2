"""aclnnMoeTokenUnpermute."""

from collections.abc import Sequence
from typing import Any

from anycann.ops.moe_token_unpermute.spec import SPEC
from anycann.runtime import Operator

__all__ = ["moe_token_unpermute"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def moe_token_unpermute(
    permuted_tokens: Any,
    sorted_indices: Any,
    probs: Any = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(permuted_tokens, sorted_indices, probs, padded_mode, restore_shape, out=out, product=product)
