"""The accuracy tools: standards on examples worked out by hand, golden values in parts, samples, and that wrong results fail."""

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anycann import ops, products
from anycann.check import golden, report, samples, standards
from anycann.check.standards import Figures, Tally
from anycann.runtime import Operator

BF16 = ml_dtypes.bfloat16
OPERATORS = {operator.spec.python: operator for operator in ops.OPERATORS}
DTYPES = {"float16": np.float16, "bfloat16": BF16, "float32": np.float32}


def figures(actual: Any, gold: Any, dtype: str = "float16") -> Figures:
    tally = Tally(dtype)
    tally.add(np.asarray(actual, DTYPES[dtype]), np.asarray(gold, np.float64))
    return tally.figures()


def judged(standard: str, actual: Any, gold: Any, dtype: str = "float16") -> str:
    gold = np.asarray(gold, np.float64)
    return standards.verdict(standard, figures(actual, gold, dtype), figures(standards.round_to(gold, dtype), gold, dtype))


# ULP and rounding


@pytest.mark.parametrize(
    ("value", "dtype", "exponent"),
    [
        (1.0, "float16", -10),
        (-1.999, "float16", -10),
        (0.999, "float16", -11),
        (0.0, "float16", -24),
        (1e-9, "float16", -24),
        (2**-14, "float16", -24),
        (2**-13, "float16", -23),
        (65504.0, "float16", 5),
        (1e9, "float16", 5),
        (1.0, "bfloat16", -7),
        (1e-45, "bfloat16", -133),
        (1.0, "float32", -23),
        (0.0, "float32", -149),
        (2**-126, "float32", -149),
        (3e38, "float32", 104),
    ],
)
def test_ulp_is_the_distance_of_neighbours_in_the_binade(value: float, dtype: str, exponent: int) -> None:
    assert standards.ulp(np.array([value]), dtype)[0] == 2.0**exponent


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rounding_is_half_to_even_for_every_pair_of_neighbours(dtype: str) -> None:
    last = {"float16": 0x7BFF, "bfloat16": 0x7F7F}[dtype]
    bits = np.arange(last + 1, dtype=np.uint16)
    values = bits.view(DTYPES[dtype]).astype(np.float64)
    middle = (values[:-1] + values[1:]) / 2
    even = np.where(bits[:-1] % 2 == 0, bits[:-1], bits[1:])
    assert np.array_equal(standards.round_to(middle, dtype).view(np.uint16), even)
    assert np.array_equal(standards.round_to(np.nextafter(middle, 0), dtype).view(np.uint16), bits[:-1])
    assert np.array_equal(standards.round_to(-np.nextafter(middle, np.inf), dtype).view(np.uint16), bits[1:] | 0x8000)


def test_rounding_to_float32_is_numpys() -> None:
    values = np.random.default_rng(1).standard_normal(10_000) * 10.0 ** np.random.default_rng(2).integers(-46, 39, 10_000)
    with np.errstate(over="ignore"):
        assert np.array_equal(standards.round_to(values, "float32"), values.astype(np.float32))


def test_rounding_keeps_specials_and_overflows_where_the_format_does() -> None:
    values = np.array([np.nan, np.inf, -np.inf, 65519.999, 65520.0, -0.0, -1e-9])
    rounded = standards.round_to(values, "float16")
    assert np.array_equal(rounded, np.array([np.nan, np.inf, -np.inf, 65504.0, np.inf, 0.0, 0.0], np.float16), equal_nan=True)
    assert np.signbit(rounded[-2:]).all()


# S1 and S2, by hand


def test_s1_is_met_below_the_mean_threshold_and_missed_above_it() -> None:
    half = figures([1 + 2**-10, 1.0], [1.0, 1.0])
    assert half.mere == pytest.approx(2**-11, rel=1e-6)
    assert half.mare == pytest.approx(2**-10, rel=1e-6)
    assert half.max_ulp == 1.0
    assert standards.single_benchmark(half)
    assert not standards.single_benchmark(figures([1 + 2**-9, 1.0], [1.0 - 1e-6, 1.0]))


def test_s1_has_a_limit_for_the_worst_element() -> None:
    gold = np.ones(1000)
    good, bad = gold.copy(), gold.copy()
    good[0], bad[0] = 1 + 9 * 2**-10, 1 + 11 * 2**-10
    assert standards.single_benchmark(figures(good, gold))
    assert not standards.single_benchmark(figures(bad, gold))


def test_relative_errors_have_the_small_constant_in_the_denominator() -> None:
    assert figures([2**-20], [0.0]).mare == pytest.approx(2**-20 / 1e-7)


def test_s2_allows_one_element_in_a_hundred_outside_its_tolerance() -> None:
    gold = np.ones(100)
    one, two = gold.copy(), gold.copy()
    one[0] = two[0] = two[1] = 1.0625  # |a - g| = 0.0625 is above 2^-9 + 2^-9 and below the limit 0.1
    assert figures(one, gold).ok_share == 0.99
    assert standards.mixed_tolerance(figures(one, gold))
    assert not standards.mixed_tolerance(figures(two, gold))


def test_s2_bounds_every_element_by_the_limit_or_32_ulp() -> None:
    gold = np.full(200, 2048.0)  # ULP 2 in float16
    near, far = gold.copy(), gold.copy()
    near[0], far[0] = 2048 + 64, 2048 + 66
    assert figures(near, gold).max_ulp == 32.0
    assert standards.mixed_tolerance(figures(near, gold))
    assert figures(far, gold).beyond == 1
    assert not standards.mixed_tolerance(figures(far, gold))


@pytest.mark.parametrize(("dtype", "threshold"), [("float16", 2**-10), ("bfloat16", 2**-7), ("float32", 2**-13)])
def test_thresholds_of_s1(dtype: str, threshold: float) -> None:
    below, above = figures([1.0], [1 - threshold * 0.99], dtype), figures([1.0], [1 - threshold * 1.01], dtype)
    assert standards.single_benchmark(below)
    assert not standards.single_benchmark(above)


@pytest.mark.parametrize(
    ("dtype", "rtol", "atol", "limit"), [("float16", 2**-9, 2**-9, 0.1), ("bfloat16", 2**-6, 2**-6, 1.0), ("float32", 2**-10, 2**-16, 0.01)]
)
def test_thresholds_of_s2(dtype: str, rtol: float, atol: float, limit: float) -> None:
    edge = (1 - atol) / (1 + rtol)  # here 1 - g = atol + rtol * g
    assert figures([1.0], [edge * 1.0001], dtype).ok_share == 1.0
    assert figures([1.0], [edge * 0.9999], dtype).ok_share == 0.0
    assert figures([1.0], [1 - limit * 0.999], dtype).beyond == 0
    assert figures([1.0], [1 - limit * 1.001], dtype).beyond == 1


# NaN and infinity


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_golden_without_finite_values_passes_nothing(special: float) -> None:
    for standard in standards.STANDARDS:
        assert judged(standard, np.full(8, special), np.full(8, special)) == "fail"
    assert not standards.single_benchmark(figures([], []))


@pytest.mark.parametrize(
    ("actual", "gold"),
    [
        (1.0, np.nan),
        (np.inf, np.nan),
        (np.nan, np.inf),
        (-np.inf, np.inf),
        (65504.0, np.inf),
        (np.nan, 1.0),
        (np.inf, 1.0),
        (-np.inf, 65504.0),
    ],
)
def test_a_special_in_the_wrong_place_fails(actual: float, gold: float) -> None:
    golds, actuals = np.ones(1000), np.ones(1000)
    golds[7], actuals[7] = gold, actual
    for standard in standards.STANDARDS:
        assert judged(standard, actuals, golds) == "fail"


def test_specials_in_their_places_neither_help_nor_hurt() -> None:
    gold = [np.nan, np.inf, -np.inf, 1.0, 2.0]
    right = figures(gold, gold)
    assert (right.elements, right.compared, right.specials_wrong, right.mare) == (5, 2, 0, 0.0)
    assert judged("S1", gold, gold) == judged("S2", gold, gold) == "pass"
    assert judged("S1", [np.nan, np.inf, -np.inf, 1.0, 2.5], gold) == "fail"


# Attainable?


def test_what_correct_rounding_misses_is_not_attainable() -> None:
    gold = np.array([1.4 * 2**-24])  # rounds to 2^-24: RE is 0.13
    assert judged("S1", standards.round_to(gold, "float16"), gold) == "not attainable"
    assert judged("S1", [2 * 2**-24], gold) == "not attainable"  # the other neighbour
    assert judged("S1", [3 * 2**-24], gold) == "fail"
    assert judged("S1", [0.0], gold) == "fail"
    assert judged("S2", standards.round_to(gold, "float16"), gold) == "pass"


def test_an_overflow_that_correct_rounding_makes_too_is_not_attainable() -> None:
    gold = np.array([1.0, 65520.0, -1e9])
    right = figures([1.0, np.inf, -np.inf], gold)
    assert (right.overflows, right.max_ulp, right.beyond, right.mare) == (2, 0.0, 2, math.inf)
    for standard in standards.STANDARDS:
        assert judged(standard, [1.0, np.inf, -np.inf], gold) == "not attainable"
        assert judged(standard, [1.0, np.inf, np.inf], gold) == "fail"
        assert judged(standard, [1.0, np.inf, np.nan], gold) == "fail"
        assert judged(standard, [1.0, np.inf, -65504.0], gold) == "fail"
        assert judged(standard, [1.0, np.inf], [1.0, 65519.0]) == "fail"
    assert judged("S2", [1.0] * 999 + [np.inf], [1.0] * 999 + [1e9]) == "not attainable"


def test_a_miss_that_correct_rounding_avoids_fails() -> None:
    gold = np.linspace(1, 2, 100)
    assert judged("S1", standards.round_to(gold, "float16") + np.float16(2**-8), gold) == "fail"


# S3 and S4


def test_a_sum_that_cancels_is_excused_by_its_promise_and_by_nothing_more() -> None:
    gold, terms = np.full(1000, 1e-6), np.full(1000, 10.0)
    for error, promise, expected in ((5e-7, 1e-7, "not attainable"), (2e-6, 1e-7, "fail"), (5e-7, 0.0, "fail")):
        actual = (gold + error).astype(np.float32)
        ours, rounded = Tally("float32"), Tally("float32")
        ours.add(actual, gold, terms)
        rounded.add(standards.round_to(gold, "float32"), gold)
        assert standards.verdict("S1", ours.figures(), rounded.figures(), promise) == expected


def test_without_sums_of_terms_no_promise_excuses() -> None:
    gold = np.full(1000, 1e-6)
    ours, rounded = Tally("float32"), Tally("float32")
    ours.add((gold + 5e-7).astype(np.float32), gold)
    rounded.add(standards.round_to(gold, "float32"), gold)
    assert standards.verdict("S1", ours.figures(), rounded.figures(), 1.0) == "fail"


def test_s3_compares_with_a_second_implementation() -> None:
    gold = np.array([1.0, 2.0, 2**-20])
    ours = figures([1 + 2**-10, 2.0, 2**-20], gold)
    other = figures([1 + 2**-9, 2.0, 2**-20], gold)
    ratios = standards.dual_benchmark(ours, other)
    assert ratios[:3] == pytest.approx((0.5, 0.5, 0.5))
    assert ratios.passed
    worse = standards.dual_benchmark(other, ours, "L1")
    assert worse[:3] == pytest.approx((2.0, 2.0, 2.0))
    assert not worse.passed
    assert standards.dual_benchmark(other, ours, "L0").passed
    assert not standards.dual_benchmark(ours, figures(gold, gold)).passed


def test_s3_counts_errors_on_small_values() -> None:
    gold = np.full(4, 2**-13)
    ours = figures([2**-13 + 2**-15] * 3 + [2**-13], gold)
    assert (ours.small_errors, ours.large_mare) == (3, pytest.approx(math.nan, nan_ok=True))
    assert not standards.dual_benchmark(ours, figures(gold, gold)).passed
    assert standards.dual_benchmark(ours, replace(ours, small_errors=2)).passed


def test_s4_asks_for_direction_and_then_for_size() -> None:
    gold = np.array([1.0, 2.0, 3.0])
    assert standards.pre_check(figures(gold, gold)) == "pass"
    assert standards.pre_check(figures(gold * 1.5, gold)) == "undecided"
    assert figures(gold * 1.5, gold).shares == (0.0, 0.0, 0.0)
    assert figures([1.0, 2.0, 3.0 * (1 + 2**-8)], gold).shares == pytest.approx((1.0, 2 / 3, 2 / 3))
    assert standards.pre_check(figures(-gold, gold)) == "fail"
    assert standards.pre_check(figures([np.nan, 2.0, 3.0], gold)) == "fail"
    assert standards.pre_check(figures(np.zeros(3), np.zeros(3))) == "pass"
    assert standards.pre_check(figures(np.ones(3), np.zeros(3))) == "fail"


# Tallies


def test_a_tally_of_parts_is_that_of_the_whole() -> None:
    rng = np.random.default_rng(3)
    gold = rng.standard_normal(1000) * 10.0 ** rng.integers(-8, 4, 1000)
    gold[::97] = np.nan
    actual = (gold * (1 + rng.uniform(-1e-3, 1e-3, 1000))).astype(np.float16)
    whole, parts = Tally("float16"), Tally("float16")
    whole.add(actual, gold)
    for start in range(0, 1000, 90):
        parts.add(actual[start : start + 90], gold[start : start + 90])
    for one, other in zip(vars(whole.figures()).values(), vars(parts.figures()).values(), strict=True):
        assert one == pytest.approx(other, rel=1e-12) if isinstance(one, float) else one == other


def test_a_tally_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match=r"shape \(3,\) do not match golden values of shape \(4,\)"):
        Tally("float32").add(np.zeros(3, np.float32), np.zeros(4))


# Samples


def test_samples_depend_on_the_seed_and_nothing_else() -> None:
    spec = OPERATORS["moe_token_permute_grad"].spec
    first, again, other = (samples.inputs(spec, spec.workloads[0], "bfloat16", seed) for seed in (0, 0, 1))
    for name in first:
        assert np.array_equal(first[name], again[name])
        assert not np.array_equal(first[name], other[name])
    indices = first["sortedIndices"]
    assert indices.dtype == np.int32
    assert np.array_equal(np.sort(indices), np.arange(indices.size))
    wide = samples.inputs(spec, spec.workloads[0], "float32")["permutedOutputGrad"]
    assert np.array_equal(first["permutedOutputGrad"], wide.astype(BF16))
    assert abs(float(wide.mean())) < 0.01
    assert float(wide.std()) == pytest.approx(1, abs=0.01)


def test_l0_mixes_uniform_and_normal_tensors() -> None:
    spec = OPERATORS["gelu_backward_v2"].spec
    drawn = [array for seed in range(40) for array in samples.inputs(spec, spec.workloads[0], "float32", seed, "L0").values()]
    uniform = [array for array in drawn if float(np.abs(array).max()) <= 5]
    assert 20 <= len(uniform) <= 60
    assert all(float(np.abs(array.mean())) < 0.1 for array in uniform)
    assert all(0.9 < float(array.std()) < 26 and abs(float(array.mean())) < 101 for array in drawn)


# Golden values


@pytest.mark.parametrize("name", OPERATORS)
def test_golden_values_in_parts_are_those_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = OPERATORS[name]
    for workload in report.cases(operator.spec):
        cut = replace(workload, shapes=SHAPES[name])
        tensors, attrs = samples.inputs(operator.spec, cut, "float32"), samples.attributes(operator.spec, cut)
        whole = next(golden.parts(operator, tensors, attrs)).values
        monkeypatch.setattr(golden, "PART_ELEMENTS", 300)
        splits = whole[0].size > 1 and name not in UNSPLIT  # a mean or sum is not split
        assert (len(list(golden.parts(operator, tensors, attrs))) > 2) == splits
        for one, other in zip(whole, golden.golden(operator, tensors, attrs, [value.shape for value in whole]), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-15)
        monkeypatch.undo()


# their outputs have no axis in common along which slices are independent
UNSPLIT = ("layer_norm_backward",)
UNSLICED = {("moe_token_permute", 1)}  # outputs without the axis along which the others are split
SHAPES: dict[str, dict[str, tuple[int, ...]]] = {
    "gelu_backward_v2": {"gradOutput": (40,), "self": (30, 40)},
    "smooth_l1_loss_backward": {"gradOut": (1,), "self": (30, 40), "target": (30, 1)},
    "gelu_v2": {"x": (30, 40)},
    "smooth_l1_loss": {"self": (30, 40), "target": (30, 1)},
    "layer_norm": {"input": (30, 1024), "weightOptional": (1024,)},
    "layer_norm_backward": {"gradOut": (4, 1024), "input": (4, 1024), "mean": (4, 1), "rstd": (4, 1)},
    "layer_norm_grad": {"inputDy": (30, 40), "inputX": (30, 40), "inputVariance": (30,), "inputMean": (30,), "inputGamma": (40,)},
    "layer_norm_grad_beta": {"resForGamma": (5, 20, 11), "inputDy": (5, 20, 11)},
    "moe_token_permute_grad": {"permutedOutputGrad": (36, 50), "sortedIndices": (36,)},
    "moe_token_permute": {"tokens": (36, 50), "indices": (36, 2)},
    "moe_token_unpermute": {"permutedTokens": (36, 50), "sortedIndices": (36,), "probsOptional": (18, 2)},
    "moe_token_unpermute_grad": {
        "permuteTokensOptional": (36, 50),
        "unpermutedTokensGrad": (18, 50),
        "sortedIndices": (36,),
        "probsOptional": (18, 2),
    },
    "nsa_compress": {"input": (2048, 7, 16), "weight": (32, 7)},
    "nsa_compress_grad": {"outputGrad": (3, 7, 16), "input": (64, 7, 16), "weight": (32, 7)},
}


@pytest.mark.parametrize("name", OPERATORS)
def test_a_sample_of_golden_values_belongs_where_it_says(name: str) -> None:
    operator = OPERATORS[name]
    workload = next((one for one in operator.spec.workloads if one.attrs.get("reduction") == 0), operator.spec.workloads[0])
    cut = replace(workload, shapes=SHAPES[name])
    tensors, attrs = samples.inputs(operator.spec, cut, "float32"), samples.attributes(operator.spec, cut)
    whole = next(golden.parts(operator, tensors, attrs)).values
    if name in UNSPLIT:
        return
    parts = list(golden.parts(operator, tensors, attrs, sample=350, seed=5))
    for i, gold in enumerate(whole):
        taken = [part.values[i].size for part in parts]
        if (name, i) in UNSLICED:
            assert taken == [gold.size] * len(parts)
        else:
            assert 0 < sum(taken) < gold.size
        for part in parts:
            np.testing.assert_allclose(part.values[i], gold[part.where[i]], rtol=1e-15)


@pytest.mark.parametrize("indices", [[1, 0, 3, 3], [1, 0, 3, 4], [1, 0, -1, 2]], ids=["twice", "beyond", "negative"])
def test_tokens_that_name_no_row_of_their_own_are_evaluated_together(indices: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    operator = OPERATORS["moe_token_unpermute_grad"]
    random = np.random.default_rng(1)
    arrays = random.standard_normal((4, 30)), random.standard_normal((2, 30)), np.array(indices, np.int32), random.standard_normal((2, 2))
    tensors = dict(zip((param.name for param in operator.spec.inputs), arrays, strict=True))
    monkeypatch.setattr(golden, "PART_ELEMENTS", 60)
    (part,) = golden.parts(operator, tensors, {"paddedMode": False, "restoreShapeOptional": None})
    for value, expected in zip(part.values, operator.reference()(*arrays), strict=True):
        assert np.array_equal(value, expected)


def double(name: str, compute: Callable[..., Any], reference: Callable[..., Any] | None = None) -> Operator:
    """An operator with the contract of a real one that computes something else."""

    class Double(Operator):
        def call(self, *values: Any, out: Any = None, product: str | None = None) -> Any:
            result = compute(*values)
            if out is None:
                return result
            for target, value in zip(
                out if isinstance(out, tuple) else (out,), result if isinstance(result, tuple) else (result,), strict=True
            ):
                target[...] = value
            return out

        def reference(self) -> Callable[..., Any]:
            return reference or super().reference()

    return Double(OPERATORS[name].spec, OPERATORS[name].package)


def test_a_reference_whose_slices_depend_on_each_other_is_evaluated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def softmax(grad: Any, x: Any, approximate: str) -> Any:
        return np.exp(x) / np.exp(x).sum()

    operator = double("gelu_backward_v2", softmax, softmax)
    tensors = {"gradOutput": np.ones((20, 30)), "self": np.random.default_rng(0).standard_normal((20, 30))}
    monkeypatch.setattr(golden, "PART_ELEMENTS", 60)
    (part,) = golden.parts(operator, tensors, {"approximate": "none"})
    assert np.array_equal(part.values[0], softmax(None, tensors["self"], "none"))


def test_slices_of_zeros_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = OPERATORS["smooth_l1_loss_backward"]
    prediction = np.random.default_rng(0).standard_normal((20, 30))
    target = prediction.copy()
    target[2:] = 0
    tensors = {"gradOut": np.ones(1), "self": prediction, "target": target}
    attrs = {"reduction": 1, "beta": 1.0}
    monkeypatch.setattr(golden, "PART_ELEMENTS", 60)
    values = golden.golden(operator, tensors, attrs, [(20, 30)])[0]
    np.testing.assert_allclose(values, operator.reference()(*tensors.values(), *attrs.values()), rtol=1e-15)


# Checking


def moe(grad: Any, indices: Any, top_k: int, padded: bool) -> Any:
    rows = grad.astype(np.float32)[indices].reshape(-1, top_k, grad.shape[1])
    return sum(rows[:, k] for k in range(1, top_k)) + rows[:, 0]


def moe_case(compute: Callable[..., Any], dtype: str = "bfloat16") -> report.Case:
    operator = double("moe_token_permute_grad", lambda *values: compute(*values).astype(values[0].dtype))
    return report.check(operator, operator.spec.workloads[0], dtype, products.find("Ascend910B1"))


def changed(change: Callable[[Any], None]) -> Callable[..., Any]:
    def compute(*values: Any) -> Any:
        result = moe(*values)
        change(result)
        return result

    return compute


def negate_one(result: Any) -> None:
    place = np.unravel_index(np.abs(result).argmax(), result.shape)
    result[place] = -result[place]


def put_nan(result: Any) -> None:
    result[3, 5] = np.nan


def put_infinity(result: Any) -> None:
    result[3, 5] = np.inf


def swap_rows(result: Any) -> None:
    result[[0, 1]] = result[[1, 0]]


def shift_all(result: Any) -> None:
    result *= 1.02


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_right_results_pass(dtype: str) -> None:
    case = moe_case(moe, dtype)
    assert case.passed
    assert {case.outputs[0].verdict(standard) for standard in standards.STANDARDS} <= {"pass", "not attainable"}
    assert case.outputs[0].ours.elements == case.outputs[0].ours.compared == 512 * 512


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("change", [negate_one, put_nan, put_infinity, swap_rows])
def test_corrupted_results_fail(change: Callable[[Any], None], dtype: str) -> None:
    case = moe_case(changed(change), dtype)
    assert not case.passed
    assert case.outputs[0].verdict("S1") == "fail"
    if change is not swap_rows:
        assert case.outputs[0].verdict("S2") == "fail"


def test_a_wrong_scale_fails() -> None:
    assert moe_case(changed(shift_all)).outputs[0].verdict("S1") == "fail"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sums_kept_in_16_bits_fail_both_standards(dtype: str) -> None:
    def narrow(normalised: Any, dy: Any) -> tuple[Any, Any]:
        totals = [np.zeros(dy.shape[1], dy.dtype) for _ in range(2)]
        for xhat, row in zip(normalised, dy, strict=True):
            totals[0] += row * xhat
            totals[1] += row
        return totals[0], totals[1]

    operator = double("layer_norm_grad_beta", narrow)
    case = report.check(operator, operator.spec.workloads[0], dtype, products.find("Ascend910B1"))
    assert [output.verdict(standard) for output in case.outputs for standard in ("S1", "S2")] == ["fail"] * 4


def test_bits_that_change_from_run_to_run_fail() -> None:
    directions = itertools.cycle([np.float32(np.inf), np.float32(-np.inf)])

    def unsteady(*values: Any) -> Any:
        result = moe(*values)
        result[0, 0] = np.nextafter(result[0, 0], next(directions))
        return result

    case = moe_case(unsteady, "float32")
    assert {case.outputs[0].verdict(standard) for standard in standards.STANDARDS} == {"pass"}
    assert not case.same_bits
    assert not case.passed


def test_an_element_that_is_not_written_fails() -> None:
    class Forgetful(Operator):
        def call(self, *values: Any, out: Any = None, product: str | None = None) -> Any:
            result = moe(*values)
            if out is not None:
                out[:, 1:] = result[:, 1:]
            return result

    operator = Forgetful(OPERATORS["moe_token_permute_grad"].spec, OPERATORS["moe_token_permute_grad"].package)
    case = report.check(operator, operator.spec.workloads[0], "float32", products.find("Ascend910B1"))
    assert not case.same_bits
    assert not case.passed


def test_index_tensors_are_observed() -> None:
    spec = OPERATORS["moe_token_permute_grad"].spec
    tensors = {"permutedOutputGrad": np.zeros((4, 2)), "sortedIndices": np.array([0, 1, 1, 3, 4, -1], np.int32)}
    (seen,) = report.observe(spec, tensors)
    assert (seen.parameter, seen.rows, seen.out_of_range) == ("sortedIndices", 4, 2)
    assert str(seen) == "2 entries of sortedIndices outside [0, 4)"
    floats = np.arange(1, 7, dtype=np.float32).view(np.int32)
    assert report.observe(spec, {**tensors, "sortedIndices": floats})[0].out_of_range == 6
    assert report.observe(OPERATORS["gelu_backward_v2"].spec, {"gradOutput": np.zeros(3), "self": np.zeros(3)}) == ()


def test_small_workloads_are_checked_in_every_variant_and_large_ones_on_demand() -> None:
    spec = OPERATORS["smooth_l1_loss_backward"].spec
    small = report.cases(spec)
    assert [case.name for case in small] == ["small none", "small mean", "small sum"]
    assert [case.attrs["reduction"] for case in small] == [0, 1, 2]
    assert [case.name for case in report.cases(spec, every=True)][3:] == ["mean", "none", "mean-large"]
    for operator in ops.OPERATORS:
        assert all(report.elements(case) <= report.DEFAULT_ELEMENTS for case in report.cases(operator.spec))
        assert report.cases(operator.spec)


def test_a_case_as_json_holds_what_was_judged() -> None:
    data = json.loads(json.dumps(moe_case(moe).as_json()))
    assert data["operator"] == "aclnnMoeTokenPermuteGrad"
    assert data["shapes"] == {"permutedOutputGrad": [1024, 512], "sortedIndices": [1024]}
    assert data["attrs"] == {"numTopk": 2, "paddedModeOptional": False}
    assert data["observations"] == [{"parameter": "sortedIndices", "rows": 1024, "out_of_range": 0}]
    assert data["passed"] is True
    (output,) = data["outputs"]
    assert (output["name"], output["S1"], output["S2"]) == ("out", "pass", "pass")
    assert output["ours"]["mere"] == output["rounded_golden"]["mere"] > 0
