"""aclnnLayerNorm."""

from collections.abc import Sequence
from typing import Any

from anycann.ops.layer_norm.spec import SPEC
from anycann.runtime import Operator

__all__ = ["layer_norm"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(input, normalized_shape, weight, bias, eps, out=out, product=product)
