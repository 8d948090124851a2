"""The definition of the gradients of the way back from a permutation of tokens, in float64."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["reference", "slices"]


def reference(
    permute_tokens: Any,
    unpermuted_tokens_grad: Any,
    sorted_indices: Any,
    probs: Any = None,
    padded_mode: bool = False,
    restore_shape: Any = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """Each copy of a token gets its gradient times the copy's weight; the weight gets the dot product of both rows."""
    grad, indices = np.asarray(unpermuted_tokens_grad, np.float64), np.asarray(sorted_indices, np.int64)
    weights = np.ones((indices.size, 1)) if probs is None else np.asarray(probs, np.float64)
    rows_grad = np.zeros((len(indices) if permute_tokens is None else len(permute_tokens), grad.shape[1]))
    weights_grad = np.zeros(weights.shape)
    for (t, k), row in zip(np.ndindex(weights.shape), indices, strict=True):
        if 0 <= row < len(rows_grad):
            rows_grad[row] = grad[t] * weights[t, k]
            weights_grad[t, k] = 0 if probs is None else grad[t] @ np.asarray(permute_tokens[row], np.float64)
    return rows_grad, None if probs is None else weights_grad


def slices(inputs: Mapping[str, Any]) -> tuple[int, Callable[[Any], tuple[dict[str, Any], tuple[Any, ...]]]] | None:
    """How many tokens there are, and what gives the problem of some of them alone and where its results belong.

    None where indices do not name each row once: then tokens depend on each other.
    """
    rows, probs, indices = inputs.get("permuteTokensOptional"), inputs.get("probsOptional"), inputs["sortedIndices"]
    copies = indices.reshape(-1, 1 if probs is None else probs.shape[1])
    if not np.array_equal(np.sort(indices), np.arange(len(indices) if rows is None else len(rows))):
        return None

    def some(tokens: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
        named = copies[tokens].reshape(-1)
        cut = {
            "permuteTokensOptional": None if rows is None else rows[named],
            "unpermutedTokensGrad": inputs["unpermutedTokensGrad"][tokens],
            "sortedIndices": np.arange(len(named), dtype=indices.dtype),
            "probsOptional": None if probs is None else probs[tokens],
        }
        return {name: array for name, array in cut.items() if array is not None}, ((named,), (tokens,))

    return len(copies), some
