"""What each operator promises of its results, checked on a part of them: no speed is reported for a result that breaks it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.check.golden import Part
from anycann.check.standards import ulp
from anycann.spec import OpSpec

__all__ = ["broken"]

Array = NDArray[Any]
Inputs = Mapping[str, Array]
Limits = Callable[[Inputs, Mapping[str, Any], Sequence[Array], Part, Part], tuple[Any, ...]]

HALF = 0.5
SUM = 1.1e-6  # of sum |terms|, for sums of any length
STEP = 2.0**-24  # of sum |terms|, for each rounding of a sum in float32


def _gelu(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    dtype = results[0].dtype.name
    return ((5.0 if dtype == "float32" else 0.51) * ulp(part.values[0], dtype),)


def _sum_limit(coefficient: float, result: Array, golden: Array, terms: Array) -> Any:
    """coefficient * sum |terms|, and for 16-bit results the one rounding at the end."""
    error = coefficient * terms
    return error if result.itemsize == 4 else error + HALF * ulp(np.abs(golden) + error, result.dtype.name)


def _layer_norm(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    return tuple(_sum_limit(SUM, *each) for each in zip(results, part.values, magnitude.values, strict=True))


def _nsa(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    terms = math.ceil(attrs["compressBlockSize"] / attrs["compressStride"])
    coefficients = (2 * terms * STEP, SUM)  # a product and a sum for each window over a token
    return tuple(_sum_limit(*each) for each in zip(coefficients, results, part.values, magnitude.values, strict=True))


def _smooth_l1(inputs: Inputs, attrs: Mapping[str, Any], result: Array, part: Part) -> Array:
    """The float32 evaluation in the stated order, each operation rounded once."""
    grad, self, target = (
        np.broadcast_to(inputs[name], result.shape)[part.where[0]].astype(np.float32) for name in ("gradOut", "self", "target")
    )
    beta = np.float32(attrs["beta"])
    x = self - target
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(np.abs(x) < beta, x / beta, np.sign(x)) * grad
    if attrs["reduction"] == 1:
        value = value * np.float32(1 / np.broadcast(inputs["self"], inputs["target"]).size)
    rounded: Array = value.astype(result.dtype)
    return rounded


def _permute(inputs: Inputs, attrs: Mapping[str, Any], result: Array, part: Part) -> Array:
    """The float32 sum in the order of k, rounded once."""
    rows = inputs["permutedOutputGrad"][part.where[0]].astype(np.float32)
    places = inputs["sortedIndices"].reshape(-1, attrs["numTopk"])
    total: Array = rows[places[:, 0]]
    for k in range(1, places.shape[1]):
        total = total + rows[places[:, k]]
    return total.astype(result.dtype)


_LIMITS: dict[str, Limits] = {"gelu_backward_v2": _gelu, "layer_norm_grad_beta": _layer_norm, "nsa_compress_grad": _nsa}
_EXACT = {"smooth_l1_loss_backward": _smooth_l1, "moe_token_permute_grad": _permute}


def broken(spec: OpSpec, inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> str:
    """How results break the operator's promise in a part with golden values; "" where they keep it.

    `magnitude` holds the golden values of the absolute inputs: for sums, the sums of |terms|.
    """
    exact = _EXACT.get(spec.python)
    if exact is not None:
        bits = f"u{results[0].itemsize}"
        got, expected = results[0][part.where[0]], exact(inputs, attrs, results[0], part)
        wrong = int(np.sum(np.ascontiguousarray(got).view(bits) != np.ascontiguousarray(expected).view(bits)))
        return f"{wrong} of {got.size} elements of {spec.outputs[0].name} are not the promised bits" if wrong else ""
    limits = _LIMITS[spec.python](inputs, attrs, results, part, magnitude)
    for param, result, where, golden, limit in zip(spec.outputs, results, part.where, part.values, limits, strict=True):
        error = np.abs(result[where].astype(np.float64) - golden)
        wrong = int(np.sum(~(error <= limit)))
        if wrong:
            times = np.nanmax(error / limit)
            return f"{wrong} of {error.size} elements of {param.name} break the promised bound, by up to {times:.3g} times"
    return ""
