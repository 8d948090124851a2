"""Fit the constants of the float32 GELU derivative: prints src/anycann/ops/gelu_backward_v2/coefficients.py.

    python tools/fit_gelu.py > src/anycann/ops/gelu_backward_v2/coefficients.py && ruff format src/anycann/ops/gelu_backward_v2

The scheme is written in derivative.py: d(-t) = -g(t) and d(t) = 1 + g(t) with g(t) = exp(-a(t)) B(t), a(t) = t^2 / 2 for "none". This
script fits B on eight intervals of t and the exponential on one, by weighted least squares on Chebyshev points with 50 digits (so that
every machine prints the same numbers). Coefficients are rounded to float32 one by one, lowest first, the others fitted again each time.
What matters, the error of the finished float32 evaluation, is measured by tests/ops/test_gelu_numerics.py, on all 2^32 inputs if asked.
"""

from collections.abc import Callable

import numpy as np
from mpmath import mp, mpf

mp.dps = 50

EDGES = (0, 0.5, 1, 2, 3, 5, 7, 11, 15)  # 1 + t: two intervals to each power of two
FIRST = 2  # the interval of t that bits(1 + t) >> 22 maps to 0 modulo 8 is the one from 1 to 2
DEGREE = {"none": 7, "tanh": 8}
EXP_DEGREE = 4

LN2 = mp.ln(2)
K1 = 2 * mp.sqrt(2 / mp.pi)  # tanh: a(t) = 2u = K1 (t + 0.044715 t^3)
CUBIC = mpf("0.044715")


def single(value: mpf) -> float:
    """The nearest float32."""
    return float(np.float32(float(value)))


def grid(value: mpf, step: float) -> float:
    """The nearest multiple of step."""
    return float(mp.nint(value / step) * step)


def bracket_none(t: mpf) -> mpf:
    """B = (t - Mills ratio) / sqrt(2 pi)."""
    mills = mp.sqrt(mp.pi / 2) * mp.erfc(t / mp.sqrt(2)) * mp.exp(t * t / 2)
    return (t - mills) / mp.sqrt(2 * mp.pi)


def bracket_tanh(t: mpf) -> mpf:
    """B = (t a' - 1 - e) / (1 + e)^2 with e = exp(-a)."""
    e = mp.exp(-K1 * (t + CUBIC * t**3))
    return (t * K1 * (1 + 3 * CUBIC * t * t) - 1 - e) / (1 + e) ** 2


def chebyshev(low: float, high: float, count: int = 60) -> list[mpf]:
    return [(mpf(low) + high) / 2 + (mpf(high) - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def fit(points: list[mpf], f: Callable[[mpf], mpf], weight: Callable[[mpf], mpf], degree: int, fixed: tuple[float, ...] = ()) -> list[float]:
    """Float32 coefficients, lowest first, of the polynomial of weighted least squares; the fixed ones are given."""
    weights, rest = [weight(x) for x in points], [f(x) for x in points]
    coefficients = list(fixed)
    for done in range(len(fixed), degree + 1):
        rows = [[w * x**k for k in range(done, degree + 1)] for x, w in zip(points, weights, strict=True)]
        known = [mp.fsum(c * x**k for k, c in enumerate(coefficients)) for x in points]
        right = [w * (y - p) for w, y, p in zip(weights, rest, known, strict=True)]
        coefficients.append(single(mp.lu_solve(mp.matrix(rows), mp.matrix(right))[0]))
    return coefficients


def fit_piece(bracket: Callable[[mpf], mpf], root: mpf, low: float, high: float, degree: int) -> tuple[float, float, float, list[float]]:
    """(centre, slope, offset, coefficients) with B(t) = (slope t + offset) + polynomial(t - centre), the line exact in float32."""
    if low < root < high:
        centre = single(root)
    else:
        centre = (low + high) / 2
    rise = mp.diff(bracket, centre)
    slope = 2.0 ** float(mp.floor(mp.log(rise, 2)))
    if low < root < high:
        offset, fixed = -slope * centre, (single(bracket(mpf(centre))),)
    else:
        unit = slope * 2.0 ** (np.floor(np.log2(max(high - 2**-10, 1))) - 23)
        offset, fixed = grid(bracket(mpf(centre)) - slope * mpf(centre), unit), ()
    points = [x - centre for x in chebyshev(low, high)]
    line = lambda x: slope * (x + centre) + offset
    coefficients = fit(points, lambda x: bracket(x + centre) - line(x), lambda x: 1 / abs(bracket(x + centre)), degree, fixed)
    return centre, slope, offset, coefficients


def main() -> None:
    for mode, bracket in (("none", bracket_none), ("tanh", bracket_tanh)):
        root = mp.findroot(bracket, 0.7522)
        pieces = [fit_piece(bracket, root, low, high, DEGREE[mode]) for low, high in zip(EDGES, EDGES[1:])]
        for (low, high), (centre, slope, offset, co) in zip(zip(EDGES, EDGES[1:]), pieces):
            pts=chebyshev(low,min(high,11.25 if mode=='tanh' else 14.75),200)
            err=max(abs((slope*t+offset+mp.fsum(c*(t-centre)**k for k,c in enumerate(co)))/bracket(t)-1) for t in pts)
            print(mode,low,high,centre,slope,offset,'err 2^%.2f'%float(mp.log(err,2)), ['%.3g'%c for c in co])


if __name__ == "__main__":
    main()
