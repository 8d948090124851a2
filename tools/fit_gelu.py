"""Fit the constants of the float32 GELU derivative and print them as src/anycann/ops/gelu_backward_v2/coefficients.py.

    python tools/fit_gelu.py > src/anycann/ops/gelu_backward_v2/coefficients.py

The scheme is explained in derivative.py: d(-t) = -g(t) and d(t) = 1 + g(t) with g(t) = exp(-a(t)) B(t). Near 0, g itself is fitted on
16 intervals; further out, B on eight and the exponential on one. Fits are weighted least squares (for the relative error) on Chebyshev
points with 50 digits, so that every machine prints the same numbers; coefficients are rounded to float32 one by one, lowest first, and
the others are fitted again each time. The error of the finished float32 evaluation is measured by tests/ops/test_gelu_numerics.py.
"""

import itertools
import textwrap
from collections.abc import Callable

import numpy as np
from mpmath import mp, mpf

mp.dps = 50

Function = Callable[[mpf], mpf]

NEAR_STEP, NEAR_END = mpf(1) / 3, mpf(5)  # interval i: around i / 3
NEAR_DEGREE = {"NONE": 6, "TANH": 7}
FAR_EDGES = (8, 10, 12, 14, 16, 4, 5, 6, 7, 8)  # bits(t) >> 21, the quarters of the octaves, modulo 8; [16, 4] is left out
FAR_DEGREE, EXP_DEGREE = 5, 4

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


def g_none(t: mpf) -> mpf:
    return mp.exp(-t * t / 2) * bracket_none(t)


def g_tanh(t: mpf) -> mpf:
    return mp.exp(-K1 * (t + CUBIC * t**3)) * bracket_tanh(t)


def chebyshev(low: mpf, high: mpf, count: int = 40) -> list[mpf]:
    return [(low + high) / 2 + (high - low) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * count)) for k in range(count)]


def fit(points: list[mpf], values: list[mpf], weights: list[mpf], degree: int, fixed: tuple[float, ...] = ()) -> list[float]:
    """Float32 coefficients, lowest first, of the polynomial of weighted least squares; the fixed ones are given."""
    coefficients = list(fixed)
    for done in range(len(fixed), degree + 1):
        rows = [[w * x**k for k in range(done, degree + 1)] for x, w in zip(points, weights, strict=True)]
        known = [mp.fsum(c * x**k for k, c in enumerate(coefficients)) for x in points]
        right = [w * (y - p) for w, y, p in zip(weights, values, known, strict=True)]
        coefficients.append(single(mp.lu_solve(mp.matrix(rows), mp.matrix(right))[0]))
    return coefficients


def near_centre(g: Function, root: mpf, low: mpf, high: mpf) -> float:
    """Where to expand g: at 0, at its root, else a little off the middle, to where |g| is smaller, at a float32 whose g almost is one."""
    if low < 0:
        return 0.0
    if low < root < high:
        return single(root)
    share = mpf("0.6") if abs(g(high)) < abs(g(low)) else mpf("0.4")
    start = np.float32(float(low + share * (high - low)))
    candidates = [float(start + k * np.spacing(start)) for k in range(-64, 64)]
    return min(candidates, key=lambda t: abs(single(g(mpf(t))) / g(mpf(t)) - 1))


def fit_near(g: Function, degree: int) -> list[tuple[float, ...]]:
    """Rows (centres, constants, linear terms, …) of g(t) = polynomial(t - centre)."""
    root, pieces = mp.findroot(g, 0.75), []
    for i in range(16):
        low, high = (i - mpf(0.5)) * NEAR_STEP, min((i + mpf(0.5)) * NEAR_STEP, NEAR_END)
        centre = near_centre(g, root, low, high)
        points = [t - centre for t in chebyshev(max(low, mpf(0)), high)]
        values = [g(x + centre) for x in points]
        pieces.append((centre, *fit(points, values, [1 / abs(v) for v in values], degree, (single(g(mpf(centre))),))))
    return list(zip(*pieces, strict=True))


def fit_far(bracket: Function) -> list[tuple[float, ...]]:
    """Rows (centres, offsets, slopes, constants, linear terms, …) of B(t) = (slope t + offset) + polynomial(t - centre).

    Slopes are powers of two and offsets multiples of the last place of slope t, so that the line is exact in float32.
    """
    pieces = []
    for low, high in itertools.pairwise(FAR_EDGES):
        if low < high:
            centre = (low + high) / 2
            slope = 2.0 ** float(mp.nint(mp.log(mp.diff(bracket, centre), 2)))
            offset = grid(bracket(mpf(centre)) - slope * centre, slope * 2.0 ** (np.floor(np.log2(low)) - 22))
            points = [t - centre for t in chebyshev(mpf(low), mpf(high))]
            rest = [bracket(x + centre) - (slope * (x + centre) + offset) for x in points]
            weights = [1 / bracket(x + centre) for x in points]
            pieces.append((centre, offset, slope, *fit(points, rest, weights, FAR_DEGREE)))
    return list(zip(*pieces, strict=True))


def fit_exponential(base: mpf, reach: mpf) -> tuple[float, list[float]]:
    """base^r = 1 + r (linear + r polynomial(r)) for |r| <= reach."""
    linear = single(mp.ln(base))
    points = chebyshev(-reach, reach)
    rest = [(base**r - 1 - linear * r) / r**2 for r in points]
    return linear, fit(points, rest, [r**2 / base**r for r in points], EXP_DEGREE)


def constants() -> dict[str, object]:
    """The names and values of the module, in order."""
    ln2_high = grid(mp.ln(2), 2.0**-21)  # the multiples that occur are exact
    k1, k3 = K1 / mp.ln(2), K1 * CUBIC / mp.ln(2)  # tanh: exp(-a) = 2^-(t (k1 + k3 t^2))
    k1_high, k3_high = grid(k1, 2.0**-17), single(k3)
    ln2, exp2 = fit_exponential(mpf(2), mpf("0.5001"))
    found: dict[str, object] = {
        "NEAR_END": float(NEAR_END),
        "LOG2_E": single(1 / mp.ln(2)),
        "LN2_HIGH": ln2_high,
        "LN2_LOW": single(mp.ln(2) - ln2_high),
        "EXP": tuple(fit_exponential(mp.e, mpf("0.3467"))[1]),
        "K1_HIGH": k1_high,
        "K1_LOW": single(k1 - k1_high),
        "K3_HIGH": k3_high,
        "K3_LOW": single(k3 - k3_high),
        "LN2": ln2,
        "EXP2": tuple(exp2),
    }
    for mode, g, bracket in (("NONE", g_none, bracket_none), ("TANH", g_tanh, bracket_tanh)):
        found[f"{mode}_NEAR_CENTRES"], *near = fit_near(g, NEAR_DEGREE[mode])
        found[f"{mode}_NEAR"] = tuple(near)
        found[f"{mode}_FAR_CENTRES"], offsets, slopes, *far = fit_far(bracket)
        found[f"{mode}_FAR_LINES"] = (offsets, slopes)
        found[f"{mode}_FAR"] = tuple(far)
    return found


def main() -> None:
    print('"""Constants of derivative.py, fitted by tools/fit_gelu.py."""\n\n# fmt: off')
    for name, value in constants().items():
        print(textwrap.fill(f"{name} = {value!r}", 138, subsequent_indent="    "))


if __name__ == "__main__":
    main()
