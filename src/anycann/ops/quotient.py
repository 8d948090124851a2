"""Dividing by beta, in the smooth L1 loss and in its gradient."""

import math

__all__ = ["exact_inverse"]


def exact_inverse(beta: float) -> float | None:
    """1 / beta where it is exact, so that multiplying by it rounds to the quotient; else None."""
    return 1 / beta if beta >= 2.0**-127 and math.frexp(beta)[0] == 0.5 else None
