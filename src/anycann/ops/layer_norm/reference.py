"""The definition of layer normalisation, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> tuple[NDArray[np.float64], ...]:
    """(input - mean) * rstd * weight + bias over the last axes; the mean is taken twice, for what the first sum lost."""
    x = np.asarray(input, np.float64)
    axes = tuple(range(x.ndim - len(normalized_shape), x.ndim))
    with np.errstate(all="ignore"):
        count = np.float64(np.prod(normalized_shape))
        rough = x.sum(axes, keepdims=True) / count
        mean = rough + (x - rough).sum(axes, keepdims=True) / count
        rstd = 1 / np.sqrt(np.square(x - mean).sum(axes, keepdims=True) / count + eps)
        out = (x - mean) * rstd
        out = out if weight is None else out * np.asarray(weight, np.float64)
        return (out if bias is None else out + np.asarray(bias, np.float64)), mean, rstd
