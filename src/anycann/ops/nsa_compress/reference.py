"""The definition of the NSA compression, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.ops.windows import sequences

__all__ = ["reference"]


def reference(
    input: Any, weight: Any, act_seq_len: Any, layout: str | None, block: int, stride: int, act_seq_len_type: int = 0
) -> NDArray[np.float64]:
    """Every window is the sum of its tokens, each times the weight of its place."""
    x, w = np.asarray(input, np.float64), np.asarray(weight, np.float64)
    rows = [
        np.einsum("wn,wnd->nd", w, x[first : first + block])
        for start, length in sequences(None if act_seq_len is None else tuple(act_seq_len), len(x))
        for first in range(start, start + length - block + 1, stride)
    ]
    return np.array(rows).reshape(-1, *x.shape[1:])
