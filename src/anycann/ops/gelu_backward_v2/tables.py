"""d of every 16-bit input, correctly rounded to float32.

No entry is in doubt after the float64 evaluation below, and rounding an entry once more, to its 16-bit type, never differs from rounding
d itself: both are facts about these 65,536 inputs that the tests establish with more digits.
"""

import functools
import math

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["table"]

_DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
_erfc = np.frompyfunc(math.erfc, 1, 1)


def _exact(x: NDArray[np.float64]) -> NDArray[np.float64]:
    cdf = np.asarray(_erfc(x * -math.sqrt(0.5)), np.float64) / 2
    return cdf + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _tanh(x: NDArray[np.float64]) -> NDArray[np.float64]:
    slope = math.sqrt(8 / math.pi)
    a = slope * (x + 0.044715 * x**3)  # the forward formula is x * sigmoid(a)
    sigmoid = 1 / (1 + np.exp(-a))
    d = sigmoid + x * sigmoid / (1 + np.exp(a)) * slope * (1 + 3 * 0.044715 * x * x)
    return np.where(np.isinf(x), sigmoid, d)


@functools.cache
def table(dtype: str, approximate: str) -> NDArray[np.float32]:
    """d of the inputs with the bit patterns 0 to 65,535 of "float16" or "bfloat16", made in about 10 ms at the first use; read-only."""
    kind = _DTYPES[dtype]
    with np.errstate(all="ignore"):  # signalling NaNs, infinities and underflow are meant
        x = np.arange(1 << 16, dtype=np.uint16).view(kind).astype(np.float64)
        d = (_tanh if approximate == "tanh" else _exact)(x)
        entries = np.where(np.isnan(d), np.float32(np.nan), d.astype(np.float32))
    entries.setflags(write=False)
    return entries
