"""Polynomials and a quotient for CPU kernels: Horner's rule on float32 vectors, one fused multiply-add a step; the same bits everywhere."""

from typing import Any

from anycann.backends.cpu import device
from anycann.backends.cpu_llvm import Constants, Emit, Table, Value, f32x16, i32x16, operation
from anycann.backends.cpu_simd import fma, lookup

__all__ = ["Piecewise", "Polynomial", "piecewise", "polynomial", "quotient"]


class Polynomial(Constants):
    """Coefficients of a polynomial, the constant first."""


class Piecewise(Constants):
    """Coefficients of one polynomial on each of 8, 16 or 32 intervals: a tuple of the constants of all, one of the linear terms, …"""

    def __init__(self, values: tuple[tuple[float, ...], ...]) -> None:
        super().__init__(values)
        self.tables = tuple(Table(row) for row in values)


@operation(f32x16, Polynomial, f32x16)
def polynomial(e: Emit, coefficients: Polynomial, x: Value) -> Value:
    """The polynomial at x."""
    *lower, result = (e.like(x, value) for value in coefficients.values)
    for constant in reversed(lower):
        result = fma.emit(e, result, x, constant)
    return result


@operation(f32x16, Piecewise, i32x16, f32x16)
def piecewise(e: Emit, coefficients: Piecewise, index: Value, x: Value) -> Value:
    """The polynomial of interval index, taken modulo their number, at x."""
    *lower, result = (lookup.emit(e, table, index) for table in coefficients.tables)
    for constant in reversed(lower):
        result = fma.emit(e, result, x, constant)
    return result


@device
def quotient(x: Any, y: float, inverse: float | None) -> Any:
    """x / y, or x * inverse; an `inverse` that is None chooses the code at compile time."""
    if inverse is None:
        return x / y
    return x * inverse
