"""The definition of the way back from a permutation of tokens, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(
    permuted_tokens: Any, sorted_indices: Any, probs: Any = None, padded_mode: bool = False, restore_shape: Any = None
) -> NDArray[np.float64]:
    """out[t] is the sum of the rows that its K indices name, times their weights; no term where the index or the weight is none."""
    rows, indices = np.asarray(permuted_tokens, np.float64), np.asarray(sorted_indices, np.int64)
    weights = np.ones((indices.size, 1)) if probs is None else np.asarray(probs, np.float64)
    indices = indices.reshape(weights.shape)
    out = np.zeros((len(weights), rows.shape[1]))
    for k in range(weights.shape[1]):
        kept = (indices[:, k] >= 0) & (indices[:, k] < len(rows)) & (weights[:, k] != 0)
        out[kept] += rows[indices[kept, k]] * weights[kept, k, None]
    return out
