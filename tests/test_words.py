"""The words of a contract, on contracts made up for them: which calls they accept, what shapes and dtypes results have, what is absent."""

from typing import Any

import pytest

import anycann
from anycann import describe, dtypes
from anycann.bind import Call, bind
from anycann.products import A2_TRAINING
from anycann.spec import Bools, Broadcast, Double, Int, IntArray, Let, OpSpec, Promote, Rule, Same, Tensor, When
from anycann.tensor import Tensor as Described
from anycann.tensor import contiguous_strides

KINDS = ("float16", "float32")


def contract(*params: Any, rules: Any = ()) -> OpSpec:
    return OpSpec("aclnnMadeUp", "s.", "y = x", tuple(params), (A2_TRAINING,), {}, "here", "", tuple(rules))


def described(shape: tuple[int, ...], dtype: str = "float32", address: int = 64) -> Described:
    return Described(address, dtypes.by_name(dtype), shape, contiguous_strides(shape))


def call(spec: OpSpec, attrs: dict[str, Any] | None = None, strict: bool = False, **shapes: Any) -> Call:
    """Bind tensors of these shapes, or (shape, dtype); outputs are made unless the call is strict."""
    tensors: dict[str, Described | None] = dict.fromkeys(param.name for param in spec.tensors)
    for place, (name, given) in enumerate(shapes.items()):
        shape, dtype = given if given and isinstance(given[-1], str) else (given, "float32")
        tensors[name] = described(shape, dtype, (place + 1) << 20)

    def allocate(param: Tensor, shape: tuple[int, ...], strides: tuple[int, ...], dtype: dtypes.DType) -> Described:
        return described(shape, dtype.name, (len(shapes) + spec.tensors.index(param) + 1) << 20)

    converted = {attr.name: attr.convert((attrs or {}).get(attr.name), attr.name) for attr in spec.attrs}
    return bind(spec, tensors, converted, api="made_up", product=A2_TRAINING, superset=not strict, allocate=None if strict else allocate)


def refused(code: int, text: str, *args: Any, **named: Any) -> None:
    with pytest.raises(anycann.AclnnError, match=text) as error:
        call(*args, **named)
    assert error.value.status == code


def test_the_rank_chooses_among_patterns_and_axes_that_are_left_out_are_one() -> None:
    spec = contract(Tensor("x", ("N K", "N"), KINDS), Tensor("y", "L", KINDS, output=True), rules=[Let("L", "N * K", "N * K")])
    assert call(spec, x=(3, 4))["y"].shape == (12,)
    assert call(spec, x=(3,))["y"].shape == (3,)
    refused(161002, r"x must have 2 dimensions \[N, K\] or 1 dimension \[N\]; got 3", spec, x=(3, 4, 5))
    assert (161002, "x has 2 dimensions or 1 dimension") in describe.checks(spec)
    assert "input [N, K] or [N];" in describe.parameter(spec, spec.params[0])


def test_axes_that_only_an_absent_tensor_has_are_one() -> None:
    spec = contract(Tensor("x", "R H", KINDS), Tensor("p", "T K", KINDS, optional=True), Tensor("y", "K H", KINDS, output=True))
    assert call(spec, x=(6, 5), p=(3, 2))["y"].shape == (2, 5)
    bound = call(spec, x=(6, 5))
    assert (bound["y"].shape, bound.axes["T"], bound.get("p")) == ((1, 5), 1, None)
    with pytest.raises(KeyError, match="absent"):
        bound["p"]


def test_a_condition_chooses_the_shape_of_an_output() -> None:
    shape = When("mode == 0", Broadcast(("x", "z")), ("", "1"))
    spec = contract(Tensor("x", "*A", KINDS), Tensor("z", "*B", KINDS), Int("mode", low=0, high=1), Tensor("y", shape, KINDS, output=True))
    assert call(spec, {"mode": 0}, x=(3, 1), z=(4,))["y"].shape == (3, 4)
    assert call(spec, {"mode": 1}, x=(3, 1), z=(4,))["y"].shape == ()
    for accepted in ((), (1,)):
        assert call(spec, {"mode": 1}, True, x=(3, 1), z=(4,), y=accepted)["y"].shape == accepted
    refused(161002, r"y must have shape \(\), \[\] or \(1,\), \[1\]; got \(3, 4\)", spec, {"mode": 1}, True, x=(3, 1), z=(4,), y=(3, 4))
    refused(161002, "mode must be from 0 to 1; got 2", spec, {"mode": 2}, x=(3,), z=(3,))


def test_needed_follows_attributes_and_tensors_that_are_there() -> None:
    spec = contract(
        Tensor("x", "N", KINDS),
        Tensor("p", "N", KINDS, optional=True),
        Tensor("q", "N", KINDS, needed="p"),
        Bools("mask", size=1),
        Tensor("y", "N", KINDS, output=True, needed="p and mask[0]"),
    )
    assert call(spec, {"mask": [True]}, x=(3,)).get("y") is None
    assert call(spec, {"mask": [True]}, x=(3,), p=(3,), q=(3,))["y"].shape == (3,)
    assert call(spec, {"mask": [False]}, True, x=(3,), p=(3,), q=(3,), y=(99,)).get("y") is None
    refused(161001, "q must be a tensor, because of p; got a null pointer", spec, {"mask": [True]}, x=(3,), p=(3,))
    refused(161001, "y must be a tensor, because of p and mask", spec, {"mask": [True]}, True, x=(3,), p=(3,), q=(3,))
    refused(161001, "mask must be a list of 1 bools; got a null pointer", spec, {}, x=(3,))
    refused(161002, r"mask must be a list of 1 bools; got \(True, False\)", spec, {"mask": [True, False]}, x=(3,))
    assert (161001, "q must not be null where p") in describe.checks(spec)


def test_dtypes_that_follow_what_is_there() -> None:
    like = Same("x", also=("float32",))
    spec = contract(
        Tensor("x", "N", KINDS),
        Tensor("w", "N", (*KINDS, "bfloat16"), dtype=like, optional=True),
        Tensor("b", "N", KINDS, dtype=Same("w", otherwise=like), optional=True),
        Tensor("y", "N", KINDS, dtype=Promote(("x", "w")), output=True),
    )
    half, full = ((3,), "float16"), ((3,), "float32")
    assert call(spec, x=half)["y"].dtype.name == "float16"
    assert call(spec, x=half, w=full)["y"].dtype.name == "float32"
    assert call(spec, x=half, b=full).get("b") is not None
    refused(161002, r"w must have dtype float32, that of x \(float32\); got float16", spec, x=full, w=half)
    refused(161002, r"w must have dtype float16, that of x \(float16\), or float32; got bfloat16", spec, x=half, w=((3,), "bfloat16"))
    refused(161002, r"b must have dtype float32, that of w \(float32\); got float16", spec, x=half, w=full, b=half)


def test_arrays_of_integers_and_their_nulls() -> None:
    def spec(**words: Any) -> OpSpec:
        return contract(Tensor("x", "*M *N", KINDS), IntArray("n", **words), Tensor("y", "*M", KINDS, output=True), rules=[
            Let("*N", "n", "{n}"), Rule("len(M) > 0", "must have rows", "x"),
        ])  # fmt: skip

    strict = spec(null_code=161001, low=0, least=1)
    assert call(strict, {"n": [4, 5]}, x=(3, 4, 5))["y"].shape == (3,)
    refused(161001, "n must be 1 or more 64-bit integers of at least 0; got a null pointer", strict, {}, x=(3,))
    refused(161002, r"n must be 1 or more .*; got \(\)", strict, {"n": []}, x=(3,))
    refused(161002, r"x must have shape \[\*M, \*N\] with \*N = \(4, 5\) \(n\); got \(5,\)", strict, {"n": [4, 5]}, x=(5,))
    refused(161002, r"x must have rows", strict, {"n": [3, 4, 5]}, x=(3, 4, 5))
    refused(161002, "null", spec(null_code=161002), {}, x=(3,))


def test_doubles_keep_all_their_bits() -> None:
    double = Double("eps", default=0.1)
    assert double.convert(0.1, "eps") == 0.1
    assert double.convert(10**400, "eps") == float("inf")
    assert double.violation(float("nan")) == "any number but NaN"
    with pytest.raises(TypeError, match="eps must be a number"):
        double.convert("0.1", "eps")
