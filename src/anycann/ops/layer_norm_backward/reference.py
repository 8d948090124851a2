"""The definition of the gradients of layer normalisation, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(
    grad_out: Any, input: Any, normalized_shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, output_mask: Any = (True, True, True)
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """All three gradients, whatever output_mask says; the bias does not matter."""
    dy, scale = np.asarray(grad_out, np.float64), np.asarray(rstd, np.float64)
    split = dy.ndim - len(normalized_shape)
    rows, axes = tuple(range(split)), tuple(range(split, dy.ndim))
    with np.errstate(all="ignore"):
        x = (np.asarray(input, np.float64) - np.asarray(mean, np.float64)) * scale
        g = dy if weight is None else dy * np.asarray(weight, np.float64)
        count = np.float64(np.prod(normalized_shape))
        mean_g, mean_gx = (terms.sum(axes, keepdims=True) / count for terms in (g, g * x))
        return (g - mean_g - x * mean_gx) * scale, (dy * x).sum(rows), dy.sum(rows)
