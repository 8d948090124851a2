"""The definition of the gradients of gamma and beta, with sums in float64 that lose nothing."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def _sums(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.array([math.fsum(column) for column in terms.T], np.float64)


def reference(res_for_gamma: Any, input_dy: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Column sums of input_dy * res_for_gamma and of input_dy; products of two float32 are exact in float64."""
    normalised, dy = np.asarray(res_for_gamma, np.float64), np.asarray(input_dy, np.float64)
    width = dy.shape[-1]
    rows = dy.size // width if width else 0
    normalised, dy = normalised.reshape(rows, width), dy.reshape(rows, width)
    return _sums(dy * normalised), _sums(dy)
