"""LayerNormGrad on whole arrays."""

from typing import Any

from anycann.ops.layer_norm_grad.spec import SPEC
from anycann.runtime import Operator

__all__ = ["layer_norm_grad"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def layer_norm_grad(
    input_dy: Any,
    input_x: Any,
    input_variance: Any,
    input_mean: Any,
    input_gamma: Any,
    epsilon: float = 1e-5,
    *,
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(input_dy, input_x, input_variance, input_mean, input_gamma, epsilon, out=out, product=product)
