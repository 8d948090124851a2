"""What each operator promises of its results, checked on a part of them: no speed is reported for a result that breaks it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.check.golden import Part
from anycann.check.standards import round_to, ulp
from anycann.ops.smooth_l1_loss.spec import ELEMENTS_PER_PARTIAL, PARTIALS_PER_GROUP, SUMS_PER_PARTIAL
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


def _gelu_value(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    dtype = results[0].dtype.name
    return ((2.0 if dtype == "float32" else HALF) * ulp(part.values[0], dtype),)


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


def _compress(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    return (_sum_limit((16 + attrs["compressBlockSize"] // 16) * STEP, results[0], part.values[0], magnitude.values[0]),)


def _copies(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    return 0.0, 0.0


def _unpermute(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    terms = inputs["probsOptional"].shape[1] if "probsOptional" in inputs else 1
    return (_sum_limit((terms + 1) * STEP, results[0], part.values[0], magnitude.values[0]),)


def _unpermute_grad(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    return tuple(_sum_limit(*each) for each in zip((STEP, SUM), results, part.values, magnitude.values, strict=True))


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


def _loss(inputs: Inputs, attrs: Mapping[str, Any], result: Array, part: Part) -> Array:
    """The float32 evaluation in the stated order; for mean and sum, added as the contract says."""
    shape = np.broadcast_shapes(*(array.shape for array in inputs.values()))
    self, target = (np.broadcast_to(inputs[name], shape)[part.where[0]].astype(np.float32) for name in ("self", "target"))
    beta, half = np.float32(attrs["beta"]), np.float32(0.5)
    x = self - target
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.where(np.abs(x) < beta, (half * x) * (x / beta), np.abs(x) - half * beta)
    if attrs["reduction"] == 0:
        rounded: Array = losses.astype(result.dtype)
        return rounded
    padded = np.zeros(-(-losses.size // ELEMENTS_PER_PARTIAL) * ELEMENTS_PER_PARTIAL)
    padded[: losses.size] = losses.ravel()
    rows = padded.reshape(-1, ELEMENTS_PER_PARTIAL // SUMS_PER_PARTIAL, SUMS_PER_PARTIAL)
    sums = rows[:, 0]
    for k in range(1, rows.shape[1]):
        sums = sums + rows[:, k]
    while sums.shape[1] > 1:
        sums = sums[:, : sums.shape[1] // 2] + sums[:, sums.shape[1] // 2 :]
    groups = [np.cumsum(sums[first : first + PARTIALS_PER_GROUP])[-1] for first in range(0, len(sums), PARTIALS_PER_GROUP)]
    total = np.cumsum(groups)[-1] / (losses.size if attrs["reduction"] == 1 else 1)
    return round_to(np.asarray(total), result.dtype.name)


def _permute(inputs: Inputs, attrs: Mapping[str, Any], result: Array, part: Part) -> Array:
    """The float32 sum in the order of k, rounded once."""
    rows = inputs["permutedOutputGrad"][part.where[0]].astype(np.float32)
    places = inputs["sortedIndices"].reshape(-1, attrs["numTopk"])
    total: Array = rows[places[:, 0]]
    for k in range(1, places.shape[1]):
        total = total + rows[places[:, k]]
    return total.astype(result.dtype)


def _half_ulp(result: Array, size: Array) -> Any:
    """The one rounding to 16 bits at the end."""
    return 0.0 if result.itemsize == 4 else HALF * ulp(size, result.dtype.name)


def _rounded(result: Array, golden: Array, error: Array) -> Any:
    return error + _half_ulp(result, np.abs(golden) + error)


def _wide(inputs: Inputs, where: Any, *names: str) -> list[Array]:
    return [inputs[name][where].astype(np.float64) for name in names]


def _norm(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    out, mean, rstd = part.values
    bias = inputs["biasOptional"].astype(np.float64) if "biasOptional" in inputs else 0.0
    error = 4 * STEP * np.abs(out - bias) + STEP * np.abs(out)
    return _rounded(results[0], out, error), *(0.51 * ulp(values, "float32") for values in (mean, rstd))


def _gradient(a: Array, c: Array, r: Array, axes: tuple[int, ...]) -> Array:
    """The promised error of a gradient of normalised rows: a is dy * weight, c what the rows are scaled to."""
    sizes = [np.abs(terms).mean(axes, keepdims=True) for terms in (a, a * c)]
    error: Array = 8 * STEP * (np.abs(a) + sizes[0] + np.abs(c) * sizes[1]) * r
    return error


def _norm_backward(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    dy, x, mean, rstd = _wide(inputs, ..., "gradOut", "input", "mean", "rstd")
    weight = inputs["weightOptional"].astype(np.float64) if "weightOptional" in inputs else 1.0
    split = dy.ndim - len(attrs["normalizedShape"])
    c, rows = (x - mean) * rstd, tuple(range(split))
    errors = _gradient(dy * weight, c, rstd, tuple(range(split, dy.ndim))), *(1.2e-6 * np.abs(terms).sum(rows) for terms in (dy * c, dy))
    return tuple(map(_rounded, results, part.values, errors))


def _norm_grad(inputs: Inputs, attrs: Mapping[str, Any], results: Sequence[Array], part: Part, magnitude: Part) -> tuple[Any, ...]:
    dy, x, variance, mean = _wide(inputs, part.where[0], "inputDy", "inputX", "inputVariance", "inputMean")
    r = (variance + attrs["epsilon"])[..., None] ** -0.5
    c = (x - mean[..., None]) * r
    errors = _gradient(dy * inputs["inputGamma"].astype(np.float64), c, r, (-1,)), 3 * STEP * np.abs(c)
    return tuple(map(_rounded, results, part.values, errors))


_LIMITS: dict[str, Limits] = {
    "gelu_backward_v2": _gelu,
    "gelu_v2": _gelu_value,
    "layer_norm": _norm,
    "layer_norm_backward": _norm_backward,
    "layer_norm_grad": _norm_grad,
    "layer_norm_grad_beta": _layer_norm,
    "moe_token_permute": _copies,
    "moe_token_unpermute": _unpermute,
    "moe_token_unpermute_grad": _unpermute_grad,
    "nsa_compress": _compress,
    "nsa_compress_grad": _nsa,
}
_EXACT = {"smooth_l1_loss": _loss, "smooth_l1_loss_backward": _smooth_l1, "moe_token_permute_grad": _permute}


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
            with np.errstate(divide="ignore", invalid="ignore"):  # a limit of 0
                times = np.nanmax(error / limit)
            return f"{wrong} of {error.size} elements of {param.name} break the promised bound, by up to {times:.3g} times"
    return ""
