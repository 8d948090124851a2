"""The definition of the gradient of a token permutation, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(permuted_output_grad: Any, sorted_indices: Any, num_topk: int, padded_mode: bool = False) -> NDArray[np.float64]:
    """out[t] is the sum of the rows that its num_topk indices name; indices outside the rows add nothing."""
    grad, indices = np.asarray(permuted_output_grad, np.float64), np.asarray(sorted_indices, np.int64)
    rows = len(grad)
    padded = np.concatenate([grad, np.zeros((1, grad.shape[1]))])
    kept = np.where((indices >= 0) & (indices < rows), indices, rows).reshape(-1, num_topk)
    out = np.zeros((len(kept), grad.shape[1]))
    for k in range(num_topk):
        out += padded[kept[:, k]]
    return out
