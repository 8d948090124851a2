"""aclnnSmoothL1Loss."""

from typing import Any

from anycann.ops.smooth_l1_loss.spec import SPEC
from anycann.runtime import Operator

__all__ = ["smooth_l1_loss"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def smooth_l1_loss(
    self: Any, target: Any, reduction: str | int = "mean", beta: float = 1.0, *, out: Any = None, product: str | None = None
) -> Any:
    return _operator.call(self, target, reduction, beta, out=out, product=product)
