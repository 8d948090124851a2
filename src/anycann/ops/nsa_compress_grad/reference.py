"""The definition of the gradients of the NSA compression, in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.ops.windows import sequences

__all__ = ["reference"]


def reference(
    output_grad: Any, input: Any, weight: Any, act_seq_len: Any, block: int, stride: int, act_seq_len_type: int = 0, layout: str = "TND"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Every window c spreads weight[w] * output_grad[c] over its tokens, and gathers their products with output_grad[c]."""
    grad, x, w = (np.asarray(array, np.float64) for array in (output_grad, input, weight))
    input_grad, weight_grad = np.zeros_like(x), np.zeros_like(w)
    c = 0
    for start, length in sequences(None if act_seq_len is None else tuple(act_seq_len), len(x)):
        for first in range(start, start + length - block + 1, stride):
            tokens = slice(first, first + block)
            input_grad[tokens] += w[:, :, None] * grad[c]
            weight_grad += np.einsum("nd,wnd->wn", grad[c], x[tokens])
            c += 1
    return input_grad, weight_grad
