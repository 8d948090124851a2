"""aclnnGeluBackwardV2."""

from typing import Any

from anycann.ops.gelu_backward_v2.spec import SPEC
from anycann.runtime import Operator

__all__ = ["gelu_backward_v2"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def gelu_backward_v2(grad_output: Any, self: Any, approximate: str = "none", *, out: Any = None, product: str | None = None) -> Any:
    return _operator.call(grad_output, self, approximate, out=out, product=product)
