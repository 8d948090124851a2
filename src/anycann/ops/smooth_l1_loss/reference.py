"""The definition of the smooth L1 loss, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(self: Any, target: Any, reduction: int, beta: float) -> NDArray[np.float64]:
    """The loss of each element of self - target, for reduction 1 (mean) or 2 (sum) as one number."""
    with np.errstate(all="ignore"):
        x = np.abs(np.asarray(self, np.float64) - np.asarray(target, np.float64))
        loss: NDArray[np.float64] = np.where(x < beta, 0.5 * x * (x / beta), x - 0.5 * beta)
        if reduction == 0:
            return loss
        total = np.sum(loss, dtype=np.float64)
        return np.asarray(total / loss.size if reduction == 1 else total)
