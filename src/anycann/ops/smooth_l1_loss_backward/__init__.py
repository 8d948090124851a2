"""aclnnSmoothL1LossBackward."""

from typing import Any

from anycann.ops.smooth_l1_loss_backward.spec import SPEC
from anycann.runtime import Operator

__all__ = ["smooth_l1_loss_backward"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def smooth_l1_loss_backward(
    grad_out: Any, self: Any, target: Any, reduction: str | int = "mean", beta: float = 1.0, *, out: Any = None, product: str | None = None
) -> Any:
    return _operator.call(grad_out, self, target, reduction, beta, out=out, product=product)
