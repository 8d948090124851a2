"""What calls of the kernel-level library compute, on arrays: the same operations in the same order, and so the same bits."""

from typing import Any

import numpy as np

__all__ = ["layer_norm_grad_beta"]

_DTYPES = (np.float16, np.float32)


def layer_norm_grad_beta(res_for_gamma: Any, input_dy: Any) -> tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
    """LayerNormGradBeta of Ascend C on whole arrays: pdGamma and pdBeta, bit for bit what a kernel that calls it writes.

    pdGamma[h] is the sum over rows of inputDy[..., h] * resForGamma[..., h], pdBeta[h] that of inputDy[..., h]: products rounded to
    float32, rows added one after the other in float32, one rounding to the dtype at the end, as if all rows fitted into one call.
    `anycann.layer_norm_grad_beta` is more accurate for many rows (error <= 1.1e-6 of the sum of |terms|; here it grows with the number of
    rows) and much faster; up to 16 rows both have the same bits.

    Both arrays have one shape, its last axis H, and one dtype, float16 or float32; results have shape (H,). Others raise ValueError.

    >>> import numpy as np
    >>> x = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    >>> layer_norm_grad_beta(x, x)[0].tolist()
    [8960.0, 9416.0, 9888.0, 10376.0, 10880.0, 11400.0, 11936.0, 12488.0]

    Source: LayerNormGradBeta of the Ascend C API documentation.
    """
    x, dy = np.asarray(res_for_gamma), np.asarray(input_dy)
    if x.shape != dy.shape or x.ndim == 0 or x.dtype != dy.dtype or x.dtype not in _DTYPES:
        raise ValueError(
            "layer_norm_grad_beta takes two arrays of one shape, of rank 1 or more, and one dtype, float16 or float32; "
            f"got {x.dtype}{list(x.shape)} and {dy.dtype}{list(dy.shape)}"
        )
    width = x.shape[-1]
    gamma, beta = np.zeros(width, np.float32), np.zeros(width, np.float32)
    with np.errstate(all="ignore"):
        for row, gradient in zip(x.reshape(-1, width).astype(np.float32), dy.reshape(-1, width).astype(np.float32), strict=True):
            gamma += row * gradient
            beta += gradient
        return gamma.astype(x.dtype), beta.astype(x.dtype)
