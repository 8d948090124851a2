"""The definition of LayerNormGrad, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(
    input_dy: Any, input_x: Any, input_variance: Any, input_mean: Any, input_gamma: Any, epsilon: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """pdX and resForGamma, in the order in which the documentation prints them."""
    dy, x, variance, mean, gamma = (np.asarray(each, np.float64) for each in (input_dy, input_x, input_variance, input_mean, input_gamma))
    with np.errstate(all="ignore"):
        a, c, r, width = dy * gamma, x - mean[..., None], (variance + epsilon)[..., None] ** -0.5, dy.shape[-1]
        pd_var = (-0.5 * a * c * r**3).sum(-1, keepdims=True)
        pd_mean = (-a * r).sum(-1, keepdims=True) + pd_var * (-2 * c).sum(-1, keepdims=True) / width
        return a * r + pd_var * 2 * c / width + pd_mean / width, c * r
