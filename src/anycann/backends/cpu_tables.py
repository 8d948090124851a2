"""Tables of functions of one 16-bit number: all 65,536 results, as float32."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

__all__ = ["tabulated"]

_DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


def tabulated(function: Callable[[NDArray[np.float64]], NDArray[np.float64]], dtype: str, odd: bool = False) -> NDArray[np.float32]:
    """function of the inputs with the bit patterns 0 to 65,535 of "float16" or "bfloat16", rounded to float32; read-only.

    Rounded to nearest, or with `odd` so that a second rounding to 16 bits gives what one rounding would: inexact entries get an odd last
    bit. Any NaN becomes the quiet one without further bits.
    """
    with np.errstate(all="ignore"):  # signalling NaNs, infinities and underflow are meant
        values = function(np.arange(1 << 16, dtype=np.uint16).view(_DTYPES[dtype]).astype(np.float64))
        entries = values.astype(np.float32)
        if odd:
            towards_zero = np.where(np.abs(entries) > np.abs(values), np.nextafter(entries, np.float32(0)), entries)
            entries = (towards_zero.view(np.uint32) | (entries != values)).view(np.float32)
    entries = np.where(np.isnan(values), np.float32(np.nan), entries)
    entries.setflags(write=False)
    return entries
