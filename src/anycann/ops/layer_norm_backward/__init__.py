"""aclnnLayerNormBackward."""

from collections.abc import Sequence
from typing import Any

from anycann.ops.layer_norm_backward.spec import SPEC
from anycann.runtime import Operator

__all__ = ["layer_norm_backward"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def layer_norm_backward(
    grad_out: Any,
    input: Any,
    normalized_shape: Sequence[int],
    mean: Any,
    rstd: Any,
    weight: Any = None,
    bias: Any = None,
    output_mask: Sequence[bool] = (True, True, True),
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask, out=out, product=product)
