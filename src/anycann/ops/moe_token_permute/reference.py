"""The definition of the permutation of tokens to experts, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference"]


def reference(
    tokens: Any, indices: Any, num_out_tokens: int = 0, padded_mode: bool = False
) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
    """The copies in the order of a stable sort of their experts, and the place of each copy in it."""
    copies = np.asarray(indices).reshape(-1)
    order = np.argsort(copies, kind="stable")
    count = num_out_tokens if num_out_tokens > 0 else num_out_tokens + copies.size
    top_k = copies.size // max(1, len(tokens))
    return np.asarray(tokens, np.float64)[order[: max(0, count)] // max(1, top_k)], np.argsort(order).astype(np.int32)
