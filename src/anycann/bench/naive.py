"""The operators' formulas as a user would write them in NumPy, in float32: what `anycann demo` compares with.

Arguments stand in the order of the prototype, arrays already converted to float32.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NAIVE"]

Array = NDArray[Any]

_erf = np.vectorize(math.erf, otypes=[np.float32])  # NumPy has none


def gelu_backward_v2(grad: Array, x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        slope = math.sqrt(2 / math.pi)
        t = np.tanh(slope * (x + 0.044715 * x * x * x))
        d: Array = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope * (1 + 3 * 0.044715 * x * x)
        return grad * d
    phi = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    erf = np.stack([_erf(row) for row in x / math.sqrt(2)])  # row by row, to save memory
    d = 0.5 * (1 + erf) + x * phi
    return grad * d


def smooth_l1_loss_backward(grad: Array, prediction: Array, target: Array, reduction: int, beta: float) -> Array:
    x = prediction - target
    gradient: Array = np.where(np.abs(x) < beta, x / beta, np.sign(x)) * grad
    return gradient / x.size if reduction == 1 else gradient


def layer_norm_grad_beta(normalised: Array, dy: Array) -> tuple[Array, Array]:
    return (dy * normalised).sum(axis=0), dy.sum(axis=0)


def moe_token_permute_grad(grad: Array, indices: NDArray[np.int32], top_k: int, padded: bool) -> Array:
    total: Array = grad[indices].reshape(-1, top_k, grad.shape[1]).sum(axis=1)
    return total


def nsa_compress_grad(grad: Array, x: Array, weight: Array, lengths: None, block: int, stride: int, *_: Any) -> tuple[Array, Array]:
    dx, dw = np.zeros_like(x), np.zeros_like(weight)
    for w in range(block):
        tokens = slice(w, w + (len(grad) - 1) * stride + 1, stride)
        dx[tokens] += weight[w][:, None] * grad
        dw[w] = (grad * x[tokens]).sum(axis=(0, 2))
    return dx, dw


NAIVE: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (gelu_backward_v2, smooth_l1_loss_backward, layer_norm_grad_beta, moe_token_permute_grad, nsa_compress_grad)
}
