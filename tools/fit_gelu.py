"""Fit the constants of float32 GELU, of its derivative and of the exponentials of both, and print one of the modules that hold them.

    python tools/fit_gelu.py forward > src/anycann/ops/gelu_v2/coefficients.py
    python tools/fit_gelu.py backward > src/anycann/ops/gelu_backward_v2/coefficients.py
    python tools/fit_gelu.py exponentials > src/anycann/backends/cpu_exp_coefficients.py

The schemes are explained in derivative.py, d(-t) = -g(t) and d(t) = 1 + g(t) with g(t) = exp(-a(t)) B(t), and in value.py, y(-t) = -t q(t)
and y(t) = t - t q(t) with t q(t) = exp(-a(t)) B(t). Near 0, g and q themselves are fitted on 16 intervals; further out, B on eight and
the exponential on one. Fits are weighted least squares (for the relative error) on Chebyshev points with 50 digits, so that every
machine prints the same numbers; coefficients are rounded to float32 one by one, lowest first, and the others are fitted again each
time. The errors of the finished float32 evaluations are measured by tests/ops/test_gelu_numerics.py and test_gelu_v2_numerics.py.
"""

import itertools
import sys
import textwrap
from collections.abc import Callable

import numpy as np
from mpmath import mp, mpf

mp.dps = 50

Function = Callable[[mpf], mpf]

NEAR_END, NEAR_DEGREE = mpf(5), {"NONE": 6, "TANH": 7}  # interval i: around i / 15 of the end
VALUE_END, VALUE_DEGREE = mpf(4), 6
FAR_EDGES = (8, 10, 12, 14, 16, 4, 5, 6, 7, 8)  # bits(t) >> 21, the quarters of the octaves, modulo 8; [16, 4] is left out
FAR_DEGREE, EXP_DEGREE = 5, 4
VALUE_LINE = mpf("0.391")  # of B of the value itself, which lies between 0.384 and 0.397

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


def q_none(t: mpf) -> mpf:
    return mp.erfc(t / mp.sqrt(2)) / 2


def q_tanh(t: mpf) -> mpf:
    return 1 / (1 + mp.exp(K1 * (t + CUBIC * t**3)))


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


def near_centre(g: Function, root: mpf | None, low: mpf, high: mpf) -> float:
    """Where to expand g: at 0, at its root, else a little off the middle, to where |g| is smaller, at a float32 whose g almost is one."""
    if low < 0:
        return 0.0
    if root is not None and low < root < high:
        return single(root)
    share = mpf("0.6") if abs(g(high)) < abs(g(low)) else mpf("0.4")
    start = np.float32(float(low + share * (high - low)))
    candidates = [float(start + k * np.spacing(start)) for k in range(-64, 64)]
    return min(candidates, key=lambda t: abs(single(g(mpf(t))) / g(mpf(t)) - 1))


def fit_near(g: Function, end: mpf, degree: int, root: mpf | None) -> list[tuple[float, ...]]:
    """Rows (centres, constants, linear terms, …) of g(t) = polynomial(t - centre)."""
    pieces, step = [], end / 15
    for i in range(16):
        low, high = (i - mpf(0.5)) * step, min((i + mpf(0.5)) * step, end)
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


def fit_far_value() -> list[tuple[float, ...]]:
    """Rows (centres, constants, linear terms, …) of B(t) = t Mills ratio(t) / sqrt(2 pi) = VALUE_LINE + polynomial(t - centre)."""
    pieces = []
    for low, high in itertools.pairwise(FAR_EDGES):
        if low < high:
            centre = (low + high) / 2
            points = chebyshev(mpf(low), mpf(high))
            values = [x * q_none(x) * mp.exp(x * x / 2) for x in points]
            rest = [value - single(VALUE_LINE) for value in values]
            pieces.append((centre, *fit([x - centre for x in points], rest, [1 / value for value in values], FAR_DEGREE)))
    return list(zip(*pieces, strict=True))


def fit_exponential(base: mpf, reach: mpf) -> tuple[float, list[float]]:
    """base^r = 1 + r (linear + r polynomial(r)) for |r| <= reach."""
    linear = single(mp.ln(base))
    points = chebyshev(-reach, reach)
    rest = [(base**r - 1 - linear * r) / r**2 for r in points]
    return linear, fit(points, rest, [r**2 / base**r for r in points], EXP_DEGREE)


def cubic() -> dict[str, object]:
    """Of the exponent of tanh: exp(-a) = 2^-(t (k1 + k3 t^2))."""
    k1, k3 = K1 / mp.ln(2), K1 * CUBIC / mp.ln(2)
    k1_high, k3_high = grid(k1, 2.0**-17), single(k3)
    return {"K1_HIGH": k1_high, "K1_LOW": single(k1 - k1_high), "K3_HIGH": k3_high, "K3_LOW": single(k3 - k3_high)}


def exponentials() -> dict[str, object]:
    """The names and values of cpu_exp_coefficients.py, in order."""
    ln2_high = grid(mp.ln(2), 2.0**-21)  # the multiples that occur are exact
    ln2, exp2 = fit_exponential(mpf(2), mpf("0.5001"))
    return {
        "LOG2_E": single(1 / mp.ln(2)),
        "LN2_HIGH": ln2_high,
        "LN2_LOW": single(mp.ln(2) - ln2_high),
        "EXP": tuple(fit_exponential(mp.e, mpf("0.3467"))[1]),
        "LN2": ln2,
        "EXP2": tuple(exp2),
    }


def backward() -> dict[str, object]:
    """The names and values of the derivative's coefficients.py, in order."""
    found: dict[str, object] = {"NEAR_END": float(NEAR_END), **cubic()}
    for mode, g, bracket in (("NONE", g_none, bracket_none), ("TANH", g_tanh, bracket_tanh)):
        found[f"{mode}_NEAR_CENTRES"], *near = fit_near(g, NEAR_END, NEAR_DEGREE[mode], mp.findroot(g, 0.75))
        found[f"{mode}_NEAR"] = tuple(near)
        found[f"{mode}_FAR_CENTRES"], offsets, slopes, *far = fit_far(bracket)
        found[f"{mode}_FAR_LINES"] = (offsets, slopes)
        found[f"{mode}_FAR"] = tuple(far)
    return found


def forward() -> dict[str, object]:
    """The names and values of the value's coefficients.py, in order."""
    found: dict[str, object] = {"NEAR_END": float(VALUE_END), **cubic()}
    for mode, q in (("NONE", q_none), ("TANH", q_tanh)):
        found[f"{mode}_NEAR_CENTRES"], *near = fit_near(q, VALUE_END, VALUE_DEGREE, None)
        found[f"{mode}_NEAR"] = tuple(near)
    found["NONE_FAR_CENTRES"], *far = fit_far_value()
    found["NONE_FAR_LINE"], found["NONE_FAR"] = single(VALUE_LINE), tuple(far)
    return found


MODULES = {
    "forward": (forward, "value.py, fitted by tools/fit_gelu.py"),
    "backward": (backward, "derivative.py, fitted by tools/fit_gelu.py"),
    "exponentials": (exponentials, "cpu_exp.py; a test compares them with what the program that fits them prints"),
}


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in MODULES:
        sys.exit(f"usage: python tools/fit_gelu.py {'|'.join(MODULES)}")
    constants, what = MODULES[sys.argv[1]]
    print(f'"""Constants of {what}."""\n\n# fmt: off')
    for name, value in constants().items():
        print(textwrap.fill(f"{name} = {value!r}", 138, subsequent_indent="    "))


if __name__ == "__main__":
    main()
