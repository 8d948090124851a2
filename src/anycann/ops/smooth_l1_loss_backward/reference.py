"""The definition of the smooth L1 gradient, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(grad_out: Any, self: Any, target: Any, reduction: int, beta: float) -> NDArray[np.float64]:
    """d(self - target) * grad_out, divided by the number of elements of self - target for reduction 1 (mean)."""
    with np.errstate(all="ignore"):
        x = np.asarray(self, np.float64) - np.asarray(target, np.float64)
        d = np.where(np.abs(x) < beta, x / beta, np.sign(x))
        gradient: NDArray[np.float64] = d * np.asarray(grad_out, np.float64)
        return gradient / x.size if reduction == 1 else gradient
