"""The definition of GELU, in float64."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]

_erfc = np.frompyfunc(math.erfc, 1, 1)
_SLOPE, _CUBIC = math.sqrt(2 / math.pi), 0.044715


def reference(x: Any, approximate: int) -> NDArray[np.float64]:
    """x * Phi(x), or by tanh for approximate 1: off by at most 1e-13 relative, and 1e-60 in the far tail."""
    x = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        if approximate == 1:
            share = 1 / (1 + np.exp(-2 * _SLOPE * (x + _CUBIC * x**3)))  # (1 + tanh u) / 2
        else:
            share = np.asarray(_erfc(-x / math.sqrt(2)), np.float64) / 2
        return np.where(x == -np.inf, -0.0, x * share)
