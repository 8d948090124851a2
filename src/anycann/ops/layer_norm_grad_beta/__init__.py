"""LayerNormGradBeta on whole arrays."""

from typing import Any

from anycann.ops.layer_norm_grad_beta.spec import SPEC
from anycann.runtime import Operator

__all__ = ["layer_norm_grad_beta"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def layer_norm_grad_beta(res_for_gamma: Any, input_dy: Any, *, out: Any = None, product: str | None = None) -> Any:
    return _operator.call(res_for_gamma, input_dy, out=out, product=product)
