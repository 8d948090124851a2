"""Polynomials, a quotient and sums of products for CPU kernels: Horner's rule on float32 vectors, one fused multiply-add a step.

The bits are the same everywhere.
"""

from typing import Any

from anycann.backends.cpu import by_tag, device
from anycann.backends.cpu_llvm import Constants, Emit, Table, Value, f32x16, i32x16, operation
from anycann.backends.cpu_simd import F16, F32, Tag, fma, lookup

__all__ = ["Piecewise", "Polynomial", "add_product", "add_usual_product", "piecewise", "polynomial", "quotient"]


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


def _rounded_product(tag: Tag, total: Any, a: Any, b: Any) -> Any:
    return total + a * b


def _exact_product(tag: Tag, total: Any, a: Any, b: Any) -> Any:
    return fma(a, b, total)


@by_tag
def add_product(tag: Tag, total: Any, a: Any, b: Any) -> Any:
    """total + a * b, the product rounded to float32; those of two float16 are exact."""
    return _exact_product if tag == F16 else _rounded_product


@by_tag
def add_usual_product(tag: Tag, total: Any, a: Any, b: Any) -> Any:
    """total + a * b, the product rounded to float32; those of usual 16-bit numbers are exact."""
    return _rounded_product if tag == F32 else _exact_product
