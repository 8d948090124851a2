"""aclnnGeluV2."""

from typing import Any

from anycann.ops.gelu_v2.spec import SPEC
from anycann.runtime import Operator

__all__ = ["gelu_v2"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def gelu_v2(x: Any, approximate: str | int = "none", *, out: Any = None, product: str | None = None) -> Any:
    return _operator.call(x, approximate, out=out, product=product)
