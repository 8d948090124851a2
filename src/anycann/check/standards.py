"""The four acceptance standards used for Ascend operators, and the figures they judge.

Per element a is the result, g the golden value in float64, RE = |a - g| / (|g| + 1e-7), MERE and MARE its mean and maximum.
All figures are over elements whose golden value is finite. Where it is NaN or infinite the result must be the same NaN or
infinity; that is asked in addition, and nothing passes without finite elements.

S1 single benchmark: MERE < T and MARE < 10 T.
S2 mixed tolerance: |a - g| <= atol + rtol |g| for 99 % of the elements, and for each |a - g| <= limit or <= 32 ULP(g).
S3 dual benchmark: ratios of our errors to those of a second implementation.
S4 pre-check: cosine similarity, then the maximum error; what it leaves undecided, shares of RE decide.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anycann import dtypes

__all__ = [
    "LEVELS",
    "SHARES",
    "THRESHOLDS",
    "Figures",
    "Ratios",
    "Tally",
    "dual_benchmark",
    "mixed_tolerance",
    "pre_check",
    "round_to",
    "single_benchmark",
    "ulp",
    "verdict",
]

Floats = NDArray[np.float64]


class Thresholds(NamedTuple):
    """What the standards ask of one output dtype."""

    single: float  # S1: T
    rtol: float  # S2
    atol: float
    limit: float
    small: float  # S3: golden values below it are small
    small_error: float  # S3: errors above it count on small values


THRESHOLDS: dict[str, Thresholds] = {
    "float16": Thresholds(2**-10, 2**-9, 2**-9, 0.1, 2**-11, 2**-16),
    "bfloat16": Thresholds(2**-7, 2**-6, 2**-6, 1.0, 2**-8, 2**-16),
    "float32": Thresholds(2**-13, 2**-10, 2**-16, 0.01, 2**-14, 2**-30),
    "int32": Thresholds(2**-62, 0, 0, 0, 0, 0),  # whatever is not equal is wrong
}
LEVELS = {"L0": (10.0, 2.0, 2.0), "L1": (5.0, 1.5, 1.5), "L2": (2.0, 1.2, 1.2)}  # S3: largest ratios of MARE, MERE, RMSE
SHARES = (1e-2, 1e-3, 1e-4)  # S4
OK_SHARE = 0.99  # S2
MAX_ULP = 32  # S2


def ulp(golden: Floats, dtype: str) -> Floats:
    """The distance of neighbouring values of a dtype in the binade of each finite golden value, subnormals included."""
    if dtype == "int32":
        return np.ones_like(golden)
    info = ml_dtypes.finfo(dtypes.to_numpy(dtypes.by_name(dtype)))
    exponent = np.frexp(golden)[1] - 1
    exponent = np.where(golden == 0, info.minexp, np.clip(exponent, info.minexp, info.maxexp - 1))
    spacing: Floats = np.ldexp(1.0, exponent - info.nmant)
    return spacing


def round_to(golden: Floats, dtype: str) -> NDArray[Any]:
    """Golden values rounded once, half to even, to a dtype. (NumPy and ml_dtypes may go through float32 and round twice.)"""
    spacing = ulp(np.where(np.isfinite(golden), golden, 0.0), dtype)
    with np.errstate(over="ignore"):
        return (np.rint(golden / spacing) * spacing).astype(dtypes.to_numpy(dtypes.by_name(dtype)))


@dataclass(frozen=True)
class Figures:
    """Measured figures of one result against its golden values."""

    dtype: str
    elements: int
    compared: int  # elements with a finite golden value
    specials_wrong: int  # NaN or infinity in the golden that the result does not have
    overflows: int  # finite golden values that correct rounding makes infinite, as the result is: errors, but not in max_ulp
    mere: float
    mare: float
    rmse: float
    max_abs: float
    max_ulp: float
    ok_share: float  # elements within S2's tolerance
    beyond: int  # elements beyond both S2's limit and 32 ULP
    cosine: float
    shares: tuple[float, ...]  # elements with RE below 1 %, 0.1 %, 0.01 %
    large_mare: float  # S3: over elements that are not small
    large_mere: float
    large_rmse: float
    small_errors: int  # S3: errors on small elements
    sum_error: float | None  # largest error, less half a ULP, over the sum of |terms|; None where that sum was not given

    @property
    def comparable(self) -> bool:
        """Whether there is something to judge, and NaN and infinity are where they must be."""
        return self.compared > 0 and self.specials_wrong == 0


def _mean(total: float, count: int) -> float:
    return total / count if count else math.nan


class _Errors:
    """Running maximum, sum and sum of squares of the errors of some elements."""

    def __init__(self) -> None:
        self.count, self.largest, self.relative, self.squares = 0, 0.0, 0.0, 0.0

    def add(self, error: Floats, relative: Floats) -> None:
        if error.size:
            self.count += error.size
            self.largest = max(self.largest, float(relative.max()))
            self.relative += float(relative.sum())
            self.squares += float(np.square(error).sum())

    def mare_mere_rmse(self) -> tuple[float, float, float]:
        largest = self.largest if self.count else math.nan
        return largest, _mean(self.relative, self.count), math.sqrt(_mean(self.squares, self.count)) if self.count else math.nan


class Tally:
    """Figures gathered part by part, so that neither results nor golden values need be in memory whole."""

    def __init__(self, dtype: str) -> None:
        self.dtype, self.limits = dtype, THRESHOLDS[dtype]
        self.elements = self.specials_wrong = self.overflows = self.ok = self.beyond = self.small_errors = 0
        self.max_abs = self.max_ulp = 0.0
        self.sum_error: float | None = None
        self.all, self.large = _Errors(), _Errors()
        self.below = [0] * len(SHARES)
        self.products = np.zeros(3)  # sums of a g, a a, g g

    def add(self, actual: NDArray[Any], golden: Floats, terms: Floats | None = None) -> None:
        """Compare results of the tally's dtype with golden values of the same shape; `terms` are the sums of |terms| behind them."""
        if actual.shape != golden.shape:
            raise ValueError(f"results of shape {actual.shape} do not match golden values of shape {golden.shape}")
        a, g = actual.astype(np.float64).ravel(), golden.ravel()
        self.elements += g.size
        finite = np.isfinite(g)
        if not finite.all():
            special_a, special_g = a[~finite], g[~finite]
            self.specials_wrong += int(np.sum(~((special_a == special_g) | (np.isnan(special_a) & np.isnan(special_g)))))
            a, g = a[finite], g[finite]
        if g.size:
            self._add_finite(a, g)
        if terms is not None and g.size:
            self._add_sums(a, g, terms.ravel()[finite])

    def _add_sums(self, a: Floats, g: Floats, terms: Floats) -> None:
        error = np.maximum(np.abs(a - g) - ulp(g, self.dtype) / 2, 0)
        share = np.divide(error, terms, out=np.where(error > 0, np.inf, 0.0), where=terms > 0)
        self.sum_error = max(float(share.max()), self.sum_error or 0.0)

    def _add_finite(self, a: Floats, g: Floats) -> None:
        limits, size = self.limits, np.abs(g)
        with np.errstate(invalid="ignore"):
            error = np.abs(a - g)
            self.products += (a @ g, a @ a, g @ g)
        error[~np.isfinite(a)] = np.inf
        relative, steps = error / (size + 1e-7), error / ulp(g, self.dtype)
        self.all.add(error, relative)
        self.max_abs = max(self.max_abs, float(error.max()))
        overflow = np.isinf(a)
        overflow[overflow] = a[overflow] == round_to(g[overflow], self.dtype)
        self.overflows += int(np.sum(overflow))
        self.max_ulp = max(self.max_ulp, float(steps.max(where=~overflow, initial=0.0)))
        self.ok += int(np.sum(error <= limits.atol + limits.rtol * size))
        self.beyond += int(np.sum((error > limits.limit) & (steps > MAX_ULP)))
        self.below = [count + int(np.sum(relative < share)) for count, share in zip(self.below, SHARES, strict=True)]
        large = size >= limits.small
        self.large.add(error[large], relative[large])
        self.small_errors += int(np.sum(error[~large] > limits.small_error))

    def _cosine(self) -> float:
        dot, a, g = (float(value) for value in self.products)
        if a == 0 and g == 0:
            return 1.0
        return dot / math.sqrt(a * g) if a * g > 0 else 0.0 if a * g == 0 else math.nan

    def figures(self) -> Figures:
        """What has been measured so far."""
        count = self.all.count
        mare, mere, rmse = self.all.mare_mere_rmse()
        return Figures(
            self.dtype,
            self.elements,
            count,
            self.specials_wrong,
            self.overflows,
            mere,
            mare,
            rmse,
            self.max_abs,
            self.max_ulp,
            _mean(self.ok, count),
            self.beyond,
            self._cosine(),
            tuple(_mean(number, count) for number in self.below),
            *self.large.mare_mere_rmse(),
            self.small_errors,
            self.sum_error,
        )


def single_benchmark(figures: Figures) -> bool:
    """S1."""
    threshold = THRESHOLDS[figures.dtype].single
    return figures.comparable and figures.mere < threshold and figures.mare < 10 * threshold


def mixed_tolerance(figures: Figures) -> bool:
    """S2."""
    return figures.comparable and figures.ok_share >= OK_SHARE and figures.beyond == 0


STANDARDS = {"S1": single_benchmark, "S2": mixed_tolerance}


def verdict(standard: str, ours: Figures, rounded: Figures, sum_promise: float = 0.0) -> str:
    """ "pass", "fail", or "not attainable": missed, but a result could not be asked to do better.

    That is so in two cases, both with NaN and infinity in place. The correctly rounded golden values (`rounded`) miss the standard
    too, and every element is within less than one ULP of its golden value, that is one of its two neighbours, or infinite where
    correct rounding overflows. Or the contract prescribes a float32 sum, terms cancel, and every element keeps the error that is
    promised for that sum (`sum_promise`, over the sum of |terms|).
    """
    passes = STANDARDS[standard]
    if passes(ours):
        return "pass"
    neighbours = not passes(rounded) and ours.max_ulp < 1
    promised = ours.sum_error is not None and ours.sum_error <= sum_promise
    excused = ours.comparable and (neighbours or promised)
    return "not attainable" if excused else "fail"


class Ratios(NamedTuple):
    """S3: our errors over another implementation's, and the counts of errors on small values."""

    mare: float
    mere: float
    rmse: float
    small_errors: int
    other_small_errors: int
    passed: bool


def _ratio(ours: float, other: float) -> float:
    if math.isnan(ours) and math.isnan(other):  # no elements that are not small
        return 1.0
    return ours / other if other else 1.0 if ours == 0 else math.inf


def dual_benchmark(ours: Figures, other: Figures, level: str = "L0") -> Ratios:
    """S3 of one case, against figures of a second implementation on the same inputs.

    The standard's repetition after a failure (1,000 new seeds and a bootstrap of the medians) is the caller's.
    """
    ratios = (
        _ratio(ours.large_mare, other.large_mare),
        _ratio(ours.large_mere, other.large_mere),
        _ratio(ours.large_rmse, other.large_rmse),
    )
    small = ours.small_errors <= 2 * max(other.small_errors, 1)
    passed = ours.comparable and small and all(ratio <= most for ratio, most in zip(ratios, LEVELS[level], strict=True))
    return Ratios(*ratios, ours.small_errors, other.small_errors, passed)


def pre_check(figures: Figures) -> str:
    """S4: "pass", "fail", or "undecided", where the shares of RE in the figures decide."""
    if not (figures.comparable and figures.cosine > 0.99):
        return "fail"
    return "pass" if figures.max_abs < 1e-3 else "undecided"
