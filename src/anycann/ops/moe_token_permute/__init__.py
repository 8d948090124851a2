"""aclnnMoeTokenPermute."""

from typing import Any

from anycann.ops.moe_token_permute.spec import SPEC
from anycann.runtime import Operator

__all__ = ["moe_token_permute"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def moe_token_permute(
    tokens: Any, indices: Any, num_out_tokens: int = 0, padded_mode: bool = False, *, out: Any = None, product: str | None = None
) -> Any:
    return _operator.call(tokens, indices, num_out_tokens, padded_mode, out=out, product=product)
