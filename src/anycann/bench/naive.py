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


def gelu_v2(x: Array, approximate: int) -> Array:
    if approximate == 1:
        y: Array = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    else:
        y = 0.5 * x * (1 + np.stack([_erf(row) for row in x / math.sqrt(2)]))  # row by row, to save memory
    return y


def smooth_l1_loss(prediction: Array, target: Array, reduction: int, beta: float) -> Array:
    x = np.abs(prediction - target)
    loss: Array = np.where(x < beta, 0.5 * x * x / beta, x - 0.5 * beta)
    return loss if reduction == 0 else np.asarray(loss.mean() if reduction == 1 else loss.sum())


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


def layer_norm(x: Array, shape: tuple[int, ...], weight: Array, bias: Array, eps: float) -> tuple[Array, Array, Array]:
    axes = tuple(range(-len(shape), 0))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    rstd = 1 / np.sqrt(variance + np.float32(eps))
    return (x - mean) * rstd * weight + bias, mean, rstd


def layer_norm_backward(
    dy: Array, x: Array, shape: tuple[int, ...], mean: Array, rstd: Array, weight: Array, bias: Array, mask: tuple[bool, ...]
) -> tuple[Array, Array, Array]:
    axes, rows = tuple(range(-len(shape), 0)), tuple(range(x.ndim - len(shape)))
    normalised, g = (x - mean) * rstd, dy * weight
    dx = (g - g.mean(axes, keepdims=True) - normalised * (g * normalised).mean(axes, keepdims=True)) * rstd
    return dx, (dy * normalised).sum(rows), dy.sum(rows)


def layer_norm_grad(dy: Array, x: Array, variance: Array, mean: Array, gamma: Array, epsilon: float) -> tuple[Array, Array]:
    a, c, r = dy * gamma, x - mean[..., None], 1 / np.sqrt(variance + np.float32(epsilon))[..., None]
    return (a - a.mean(-1, keepdims=True) - c * r * r * (a * c).mean(-1, keepdims=True)) * r, c * r


def nsa_compress(x: Array, weight: Array, lengths: tuple[int, ...], layout: str, block: int, stride: int, *_: Any) -> Array:
    count = (len(x) - block) // stride + 1
    total = np.zeros((count, *x.shape[1:]), np.float32)
    for w in range(block):
        total += weight[w][:, None] * x[w : w + (count - 1) * stride + 1 : stride]
    return total


def moe_token_permute(tokens: Array, experts: NDArray[np.int64], count: int, padded: bool) -> tuple[Array, NDArray[np.intp]]:
    order = np.argsort(experts, axis=None, kind="stable")
    return tokens[order // experts.shape[1]], np.argsort(order)


def moe_token_unpermute(rows: Array, places: NDArray[np.int32], probs: Array | None, *_: Any) -> Array:
    if probs is None:
        found: Array = rows[places]
        return found
    total: Array = (rows[places].reshape(*probs.shape, -1) * probs[:, :, None]).sum(axis=1)
    return total


def moe_token_unpermute_grad(rows: Array, grad: Array, places: NDArray[np.int32], probs: Array, *_: Any) -> tuple[Array, Array]:
    copies, rows_grad = np.repeat(grad, probs.shape[1], axis=0), np.zeros_like(rows)
    rows_grad[places] = copies * probs.reshape(-1, 1)
    return rows_grad, (copies * rows[places]).sum(axis=1).reshape(probs.shape)


NAIVE: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        gelu_backward_v2,
        gelu_v2,
        smooth_l1_loss,
        smooth_l1_loss_backward,
        layer_norm,
        layer_norm_backward,
        layer_norm_grad,
        layer_norm_grad_beta,
        moe_token_permute,
        moe_token_permute_grad,
        moe_token_unpermute,
        moe_token_unpermute_grad,
        nsa_compress,
        nsa_compress_grad,
    )
}
