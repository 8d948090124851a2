"""Tables of functions of one 16-bit number: all 65,536 results, as float32; and the choice between such a table and formulas."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numba import types
from numpy.typing import NDArray

from anycann.backends.cpu import by_tag
from anycann.backends.cpu_blocks import Operand, fetch, fetch_entries

__all__ = ["tabulated", "with_modes"]

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


def with_modes(none: Callable[[Any], Any], tanh: Callable[[Any], Any]) -> Callable[..., Any]:
    """The function of m <= 16 elements from i on that kernels call: a table's entries, or where that is None one of two formulas.

    Types choose: `is_tanh` is None, or not. What is not chosen is not compiled.
    """

    def of_table(x: Operand, i: int, m: int, table: Any, is_tanh: Any) -> Any:
        return fetch_entries(x, table, i, m)

    def of_none(x: Operand, i: int, m: int, table: Any, is_tanh: Any) -> Any:
        return none(fetch(x, i, m))

    def of_tanh(x: Operand, i: int, m: int, table: Any, is_tanh: Any) -> Any:
        return tanh(fetch(x, i, m))

    @by_tag
    def chosen(x: Operand, i: int, m: int, table: Any, is_tanh: Any) -> Any:
        absent = types.none
        return of_table if table != absent else of_none if is_tanh == absent else of_tanh

    return chosen
