"""Refusals, for every operator, product series and door: what the contract forbids gets its code, and nothing is written.

The calls are made from `contract_facts`, never from the specifications of the package. A `Draft` is the operator's valid
call with edits; a `Fault` is an edit that one pass of the checks must refuse. No test here names an operator but the last ones,
which fix the full text of some messages.
"""

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import anycann
from contract_calls import POISON, Call, Draft, Layout, contiguous, home, numpy_dtype
from contract_facts import (
    ACL_DTYPES,
    FACTS,
    FORMATS,
    GELU,
    LAYER_NORM,
    MOE,
    NOT_IN_NUMPY,
    NSA,
    NSA_FORWARD,
    PASS_CODES,
    SERIES,
    SMOOTH_L1,
    STATUS_NAMES,
    Fact,
    Series,
    castable,
)


@dataclass(frozen=True)
class Fault:
    """One thing wrong with a call: which pass refuses it, naming which parameter, and what of the call the edit touches."""

    stage: str
    label: str
    blames: tuple[str, ...]
    touches: frozenset[tuple[str, str]]
    edit: Callable[[Draft], object]
    doors: tuple[str, ...] = ("python", "aclnn")


def fault(stage: str, label: str, blames: Any, touches: Any, edit: Callable[[Draft], object], doors: Any = ("python", "aclnn")) -> Fault:
    return Fault(stage, label, tuple(blames), frozenset(touches), edit, tuple(doors))


def nulls(fact: Fact, series: Series) -> Iterator[Fault]:
    everything = ("dtype", "shape", "layout", "format", "value", "read_only")
    for name in (*(tensor for tensor in fact.tensors if tensor not in fact.optional), *fact.strings):
        doors = ("aclnn",) if name in fact.outputs else ("python", "aclnn")
        touches = [(name, what) for what in everything] + [(mask, "value") for mask, _ in [fact.masks.get(name, ("", 0))]]
        yield fault("null", f"{name} null", [name], touches, lambda draft, name=name: draft.null.add(name), doors)


def dtypes(fact: Fact, series: Series) -> Iterator[Fault]:
    for name, kind, door in itertools.product(fact.tensors, ACL_DTYPES, ("python", "aclnn")):
        if kind not in fact.listed(name, series, door) and not (door == "python" and kind in NOT_IN_NUMPY):
            edit = lambda draft, name=name, kind=kind: draft.dtypes.update({name: kind})  # noqa: E731
            yield fault("dtype", f"{name} {kind}", [name], [(name, "dtype")], edit, [door])
    for name, called in itertools.product(fact.tensors, FORMATS):
        if called != "ND":
            edit = lambda draft, name=name, called=called: draft.formats.update({name: called})  # noqa: E731
            yield fault("dtype", f"{name} format {called}", [name], [(name, "format")], edit, ["aclnn"])


def dtype_calls(fact: Fact, series: Series, door: str) -> Iterator[tuple[dict[str, str], bool]]:
    """Combinations of listed dtypes of the floating tensors, and whether they belong together: of many that do not, a sample."""
    names = [name for name in fact.tensors if name not in fact.fixed]
    choices = [fact.listed(name, series, door) for name in names]
    share = min(1.0, MOST_DTYPES / math.prod(map(len, choices)))
    choose = random.Random(f"{fact.api} {series.name} {door}")
    for kinds in itertools.product(*choices):
        given = dict(zip(names, kinds, strict=True))
        full = fact.fixed | given
        result = fact.result_dtype({name: full[name] for name in fact.inputs})
        together = (
            result is not None
            and all(result[name] in fact.listed(name, series, door) for name in fact.outputs)
            and all(castable(result[name], full[name]) if fact.any_castable else result[name] == full[name] for name in fact.outputs)
        )
        if together or choose.random() < share:
            yield given, together


MOST_DTYPES = 400  # combinations of dtypes that do not belong together


def promotions(fact: Fact, series: Series) -> Iterator[Fault]:
    for door in ("python", "aclnn"):
        for given, together in dtype_calls(fact, series, door):
            if not together:
                touches = [(name, "dtype") for name, kind in given.items() if kind != "float16"]
                edit = lambda draft, given=given: draft.dtypes.update(given)  # noqa: E731
                yield fault("promotion", " ".join(given.values()), given, touches, edit, [door])


def ranks(fact: Fact, series: Series) -> Iterator[Fault]:
    for name, rank in itertools.product(fact.tensors, (*range(11), 20, 32)):
        if rank not in fact.ranks[name]:
            edit = lambda draft, name=name, rank=rank: draft.shapes.update({name: (1,) * rank})  # noqa: E731
            yield fault("rank", f"{name} rank {rank}", [name], [(name, "shape")], edit)


def shapes(fact: Fact, series: Series) -> Iterator[Fault]:
    values, base = fact.attributes(fact.sizes), fact.shapes(fact.sizes)
    for name, shape in base.items():
        changed = {
            (*shape[:axis], size, *shape[axis + 1 :]) for axis in range(len(shape)) for size in (0, shape[axis] - 1, shape[axis] + 1)
        }
        changed |= {(2,) * rank for rank in fact.ranks[name]} | {(1, *shape), shape[1:], (*shape, 1), tuple(reversed(shape))}
        for other in sorted(changed):
            if len(other) in fact.ranks[name] and not fact.fits({**base, name: other}, values):
                blames = [name] if name in fact.outputs else fact.parameters
                edit = lambda draft, name=name, other=other: draft.shapes.update({name: other})  # noqa: E731
                yield fault("shape", f"{name} {other}", blames, [(name, "shape")], edit)


def storages(fact: Fact, series: Series) -> Iterator[Fault]:
    def layouts(shape: tuple[int, ...]) -> Iterator[tuple[str, Layout]]:
        count, last = math.prod(shape), max(axis for axis, size in enumerate(shape) if size > 1)

        def with_stride(stride: int, offset: int = 0) -> Layout:
            return lambda shape: {
                "strides": (*contiguous(shape)[:last], stride, *contiguous(shape)[last + 1 :]),
                "offset": offset,
                "storage": (math.prod(shape),),
            }

        yield "one element short", lambda shape: {"storage": (math.prod(shape) - 1,)}
        yield "no storage", lambda shape: {"storage": (0,)}
        yield "offset 1", lambda shape: {"offset": 1, "storage": shape}
        yield "offset -1", lambda shape: {"offset": -1, "storage": shape}
        yield "offset 2**63 - 1", lambda shape: {"offset": 2**63 - 1, "storage": shape}
        yield "offset -2**63", lambda shape: {"offset": -(2**63), "storage": shape}
        yield "backwards from 0", with_stride(-1)
        yield "backwards past 0", with_stride(-1, shape[last] - 2)
        yield "wide steps", with_stride(count)
        yield "steps of 2**62", with_stride(2**62)
        yield "steps of -2**62", with_stride(-(2**62), 1)
        yield "steps of 2**63 - 1", with_stride(2**63 - 1)

    if "aclnn" in fact.doors:
        for name, shape in fact.shapes(fact.sizes).items():
            for label, layout in layouts(shape):
                edit = lambda draft, name=name, layout=layout: draft.layouts.update({name: layout})  # noqa: E731
                yield fault("storage", f"{name} {label}", [name], [(name, "layout"), (name, "shape")], edit, ["aclnn"])


def aliases(fact: Fact, series: Series) -> Iterator[Fault]:
    for name in fact.outputs:
        shape = fact.shapes(fact.sizes)[name]
        steps = [(*contiguous(shape)[:axis], 0, *contiguous(shape)[axis + 1 :]) for axis, size in enumerate(shape) if size > 1]
        several = sum(size > 1 for size in shape) > 1
        steps += [(0,) * len(shape)] + ([(1,) * len(shape), (shape[-1] - 1, 1) * (len(shape) == 2)] if several else [])
        for strides in filter(None, steps):
            edit = lambda draft, name=name, strides=strides: draft.layouts.update({name: lambda shape: {"strides": strides}})  # noqa: E731
            yield fault("alias", f"{name} strides {strides}", [name], [(name, "layout"), (name, "shape")], edit)
            here = lambda shape, strides=strides: {"strides": strides, "storage": (math.prod(shape),)}  # noqa: E731
            edit = lambda draft, name=name, here=here: draft.layouts.update({name: here})  # noqa: E731
            yield fault("alias", f"{name} descriptor strides {strides}", [name], [(name, "layout"), (name, "shape")], edit, ["aclnn"])
        touches = [(name, "read_only"), (name, "shape")]
        yield fault("alias", f"{name} read-only", [name], touches, lambda draft, name=name: draft.read_only.add(name))


def attributes(fact: Fact, series: Series) -> Iterator[Fault]:
    for name, values in fact.bad.items():
        for bad in values:
            edit = lambda draft, name=name, bad=bad: draft.attributes.update({name: bad.value})  # noqa: E731
            yield fault(bad.stage, f"{name} {bad.value!r}", [name], [(name, "value")], edit, bad.doors)


def sizes(fact: Fact, series: Series) -> Iterator[Fault]:
    """Sizes that fit together and are refused all the same."""
    for stage, changed, blames, doors in REFUSED_SIZES.get(fact.api, ()):
        before, after = fact.shapes(fact.sizes), fact.shapes({**fact.sizes, **changed})
        touches = [(name, "value") for name in fact.attributes(fact.sizes)]
        touches += [(name, what) for name in before if before[name] != after[name] for what in ("shape", "layout")]
        yield fault(stage, f"{changed}", blames, touches, lambda draft, changed=changed: draft.sizes.update(changed), doors)


BOTH, STRICT = ("python", "aclnn"), ("aclnn",)
EMPTY = ("outputGrad", "input", "weight", "inputGradOut", "weightGradOut")
WIDTH = ("outputGrad", "input", "inputGradOut")
BLOCK, STRIDE = "compressBlockSize", "compressStride"
REFUSED_SIZES: dict[str, tuple[tuple[str, dict[str, Any], tuple[str, ...], tuple[str, ...]], ...]] = {
    NSA.api: (
        *(("tiling", {"W": block}, (BLOCK,), BOTH) for block in (17, 24, 31, 33, 40)),
        *(("tiling", {"W": 48, "s": stride}, (STRIDE,), BOTH) for stride in (1, 8, 15, 17, 24)),
        *(("tiling", {"D": width}, WIDTH, BOTH) for width in (1, 8, 15, 17, 24)),
        *(("tiling", {"W": 16, "s": stride}, (BLOCK, STRIDE), BOTH) for stride in (32, 48)),
        *(("tiling", {"W": width, "s": width}, (BLOCK, STRIDE), STRICT) for width in (16, 32)),
        *(("empty", {axis: 0}, EMPTY, BOTH) for axis in ("N", "D")),
        ("empty", {"T": 0}, EMPTY, STRICT),
        ("empty", {"T": 31}, EMPTY, STRICT),
        ("empty", {"ends": [31, 31, 60, 80]}, EMPTY, STRICT),
    ),
    NSA_FORWARD.api: (
        *(("tiling", {"W": block}, (BLOCK,), BOTH) for block in (17, 24, 31, 33, 40)),
        *(("tiling", {"W": 48, "s": stride}, (STRIDE,), BOTH) for stride in (1, 8, 15, 17, 24)),
        *(("tiling", {"D": width}, ("input", "output"), BOTH) for width in (1, 8, 15, 17, 24)),
        *(("tiling", {"W": 16, "s": stride}, (BLOCK, STRIDE), BOTH) for stride in (32, 48)),
        *(("empty", {axis: 0}, ("input", "weight", "output"), BOTH) for axis in ("N", "D")),
        ("empty", {"T": 0, "ends": [0]}, ("input", "output"), STRICT),
        ("empty", {"T": 31, "ends": [31]}, ("output",), STRICT),
        ("empty", {"ends": [31, 31, 60, 80]}, ("output",), STRICT),
    ),
}

KINDS = {
    "null": nulls,
    "dtype": dtypes,
    "promotion": promotions,
    "rank": ranks,
    "shape": shapes,
    "storage": storages,
    "alias": aliases,
    "attribute": attributes,
    "size": sizes,
}


def faults(fact: Fact, series: Series) -> list[Fault]:
    return [one for kind in KINDS.values() for one in kind(fact, series)]


def complaint(draft: Draft, door: str, series: Series, code: int, blames: tuple[str, ...] | None) -> str | None:
    """What is wrong with the way in which a call is refused; None if all is as the contract says."""
    call = Call(draft, door)
    try:
        call.make(series)
    except anycann.AclnnError as error:
        text = str(error)
        if error.status != code:
            return f"expected {code}: {text}"
        if error.name != STATUS_NAMES[code] or not text.endswith(f"[{STATUS_NAMES[code]} {code}]"):
            return f"the code's name is {STATUS_NAMES[code]}: {text}"
        if error.api != call.api() or not text.startswith(f"{call.api()}: "):
            return f"the call was {call.api()}: {text}"
        if blames is not None and not any(text.startswith(f"{call.api()}: {call.spelled(name)} ") for name in blames):
            return f"expected a word on {' or '.join(map(call.spelled, blames))}: {text}"
        if blames is not None and " got " not in text:
            return f"does not say what it got: {text}"
        return None if call.untouched() else f"wrote to an output: {text}"
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RuntimeError, MemoryError) as error:
        return f"expected AclnnError {code}; raised {type(error).__name__}: {error}"
    return f"expected {code}; accepted"


def edited(fact: Fact, *edits: Fault) -> Draft:
    draft = Draft(fact)
    for one in edits:
        one.edit(draft)
    return draft


def report(complaints: list[str]) -> str:
    return f"{len(complaints)} calls were not refused as documented:\n" + "\n".join(complaints[:12])


by_operator = pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.api)
by_series = pytest.mark.parametrize("series", SERIES, ids=lambda series: series.name.replace(" ", "_"))


@by_operator
@by_series
@pytest.mark.parametrize("kind", KINDS)
def test_each_single_fault_is_refused_with_its_code(fact: Fact, series: Series, kind: str) -> None:
    wrong = [
        f"{door} {one.label}: {text}"
        for one in KINDS[kind](fact, series)
        for door in fact.doors
        if door in one.doors and (text := complaint(edited(fact, one), door, series, PASS_CODES[one.stage], one.blames))
    ]
    assert not wrong, report(wrong)


@by_operator
def test_there_are_hundreds_of_faults_of_every_kind_that_the_operator_can_have(fact: Fact) -> None:
    series = SERIES[0]
    counts = {name: len([one for one in kind(fact, series) if set(one.doors) & set(fact.doors)]) for name, kind in KINDS.items()}
    assert sum(counts.values()) >= (200 if "aclnn" in fact.doors else 100), counts
    lacking = {name for name, count in counts.items() if not count}
    assert lacking <= {"promotion", "attribute", "size", "storage"}, counts


@by_operator
@by_series
def test_of_two_faults_the_earlier_pass_gives_the_code(fact: Fact, series: Series) -> None:
    order = {stage: place for place, stage in enumerate(fact.passes)}
    choose = random.Random(f"{fact.api} {series.name}")
    found = faults(fact, series)
    chosen = []
    for stage in fact.passes:
        of_stage = [one for one in found if one.stage == stage]
        chosen += choose.sample(of_stage, min(len(of_stage), 7))
    wrong, pairs = [], 0
    for first, second in itertools.permutations(chosen, 2):
        if order[first.stage] >= order[second.stage] or first.touches & second.touches:
            continue
        for door in fact.doors:
            if door in first.doors and door in second.doors:
                pairs += 1
                text = complaint(edited(fact, second, first), door, series, PASS_CODES[first.stage], first.blames)
                wrong += [f"{door} {first.label} and {second.label}: {text}"] if text else []
    assert not wrong, report(wrong)
    assert pairs >= (100 if "aclnn" in fact.doors else 40)


@by_operator
@by_series
def test_the_operator_exists_on_exactly_its_products(fact: Fact, series: Series) -> None:
    for door in fact.doors:
        if series.name in fact.products:
            call = Call(Draft(fact), door)
            call.make(series)
            assert door == "aclnn" or not call.untouched()
        else:
            text = complaint(Draft(fact), door, series, 561003, None)
            assert text is None
            with pytest.raises(anycann.AclnnError) as refused:
                Call(Draft(fact), door).make(series)
            assert series.name in str(refused.value)
            assert all(name in str(refused.value) for name in fact.products)
            assert "set_product" in str(refused.value)


@by_operator
@by_series
def test_every_listed_combination_of_dtypes_is_accepted(fact: Fact, series: Series) -> None:
    if series.name not in fact.products:
        return
    for door in fact.doors:
        accepted = [given for given, together in dtype_calls(fact, series, door) if together]
        assert accepted
        for given in accepted:
            Call(Draft(fact, dtypes=given), door).make(series)
            if door == "python" and not (fact.any_castable and len({*given.values()}) > 1):
                results = Call(Draft(fact, dtypes=given, omitted=True), door).make(series)
                for name, result in zip(fact.outputs, results if isinstance(results, tuple) else (results,), strict=True):
                    assert (result.dtype, result.shape) == (numpy_dtype((fact.fixed | given)[name]), Draft(fact).shape(name))


@by_operator
def test_every_allowed_attribute_value_is_accepted(fact: Fact) -> None:
    series = home(fact)
    for door, (name, values) in itertools.product(fact.doors, fact.good.items()):
        for value in values:
            Call(Draft(fact, attributes={name: value}), door).make(series)


@by_operator
def test_an_optional_tensor_may_be_null(fact: Fact) -> None:
    series = home(fact)
    for door, count in itertools.product(fact.doors, range(1, len(fact.optional) + 1)):
        for names in itertools.combinations(fact.optional, count):
            call = Call(Draft(fact, null=set(names)), door)
            call.make(series)
            assert door == "aclnn" or not call.untouched()


@by_operator
def test_an_output_that_is_not_chosen_may_be_anything_and_is_left_alone(fact: Fact) -> None:
    series = home(fact)
    for door, (output, (mask, place)) in itertools.product(fact.doors, fact.masks.items()):
        for chosen in itertools.product((False, True), repeat=len(fact.masks)):
            if chosen[place]:
                continue
            for changed in ({"null": {output}}, {"dtypes": {output: "int8"}}, {"shapes": {output: (1, 2)}}, {"read_only": {output}}):
                call = Call(Draft(fact, attributes={mask: chosen}, **changed), door)
                result = call.make(series)
                assert output not in call.buffers or np.all(call.buffers[output] == POISON)
                assert door == "aclnn" or [value is not None for value in result] == [*chosen]


@by_operator
def test_every_documented_rank_is_accepted(fact: Fact) -> None:
    series = home(fact)
    for name, allowed in fact.ranks.items():
        for rank in allowed:
            if rank < len(Draft(fact).shape(name)) or len(allowed) == 1:
                continue
            larger = {other: shape for other in fact.tensors if len(shape := Draft(fact).shape(other)) > 1}
            changed = {other: (1,) * (rank - len(shape)) + shape for other, shape in larger.items()}
            if not fact.fits(fact.shapes(fact.sizes) | changed, Draft(fact).values()):
                more = rank - len(Draft(fact).shape(name))
                changed = {other: (1,) * min(more, 8 - max(map(len, larger.values()))) + shape for other, shape in larger.items()}
            for door in fact.doors:
                Call(Draft(fact, shapes=changed), door).make(series)
    if all(0 in allowed for allowed in fact.ranks.values()) and fact.fits(dict.fromkeys(fact.tensors, ()), Draft(fact).values()):
        for door in fact.doors:
            Call(Draft(fact, shapes=dict.fromkeys(fact.tensors, ())), door).make(series)


@by_operator
def test_outputs_must_not_share_memory(fact: Fact) -> None:
    if len(fact.outputs) == 1:
        return
    series = home(fact)
    same = Draft(fact).shape(fact.outputs[0]) == Draft(fact).shape(fact.outputs[1])
    draft = Draft(fact, shared=True) if same else None
    for door in fact.doors if draft else ():
        assert complaint(draft, door, series, 161002, fact.outputs) is None


@by_operator
@pytest.mark.parametrize("value", [[[1.0, 2.0]], (1.0, 2.0), 1.0, True, "x", b"x", {}, object(), range(3), Ellipsis, lambda: None])
def test_a_tensor_that_is_no_array_is_a_type_error(fact: Fact, value: Any) -> None:
    series = home(fact)
    for door, name in itertools.product(fact.doors, fact.tensors):
        call = Call(Draft(fact), door)
        call.arguments[name] = value
        with pytest.raises(TypeError, match=call.spelled(name).replace("[", r"\[").replace("(", r"\(").replace(")", r"\)")):
            call.make(series)
        assert call.untouched()


WRONG_TYPES: dict[str, tuple[Any, ...]] = {
    "approximate": (0, 1.0, ["none"], True),
    "aclnnGeluV2.approximate": (1.0, [0], 1j, None),
    "reduction": (1.0, [1], 1j, None),
    "beta": ("1", None, [1.0], 1j, "nan"),
    "numTopk": (2.0, "2", None, [2], 1j),
    "paddedModeOptional": ("False", None, 0.0, []),
    "paddedMode": ("False", None, 0.0, []),
    "numOutTokens": (2.0, "2", None, [2], 1j),
    "restoreShapeOptional": (80, 80.0, [80.0], "80", [None], [[80]]),
    "actSeqLenOptional": (80, 80.0, [80.0], "80", [None], [[80]]),
    "compressBlockSize": (32.0, "32", None, [32]),
    "compressStride": (16.0, "16", None, [16]),
    "actSeqLenType": (0.0, "0", None),
    "layoutOptional": (0, ["TND"], True),
    "normalizedShape": (5, 5.0, "5", [5.0], [None], [[5]]),
    "outputMask": (True, 1, "TTT", [None] * 3, [0.5] * 3, [[True]] * 3),
    "eps": ("1", None, [1.0], 1j, "nan"),
    "epsilon": ("1", None, [1.0], 1j, "nan"),
}


@by_operator
def test_an_attribute_of_a_wrong_python_type_is_a_type_error(fact: Fact) -> None:
    series = home(fact)
    for door, name in itertools.product(fact.doors, fact.attributes(fact.sizes)):
        for value in WRONG_TYPES.get(f"{fact.api}.{name}") or WRONG_TYPES[name]:
            call = Call(Draft(fact), door)
            call.arguments[name] = value
            with pytest.raises(TypeError, match=call.spelled(name)):
                call.make(series)
            assert call.untouched()


@by_operator
def test_names_of_values_are_for_the_python_function_only(fact: Fact) -> None:
    if "reduction" not in fact.parameters:
        return
    series = home(fact)
    for value in ("none", "mean", "sum"):
        Call(Draft(fact, attributes={"reduction": value}, omitted=True), "python").make(series)
        with pytest.raises(TypeError, match="reduction"):
            Call(Draft(fact, attributes={"reduction": value}), "aclnn").make(series)


@by_operator
@pytest.mark.parametrize("missing", ["input", "product"])
def test_a_doubly_wrong_call_of_wrong_python_type_still_writes_nothing(fact: Fact, missing: str) -> None:
    series = SERIES[0]
    for door in fact.doors:
        call = Call(Draft(fact), door)
        if missing == "input":
            call.arguments[fact.inputs[0]] = None
            call.arguments[(fact.inputs + fact.outputs)[1]] = "text"
            expected: type[Exception] = TypeError
        else:
            call.arguments[fact.inputs[0]] = None
            expected = anycann.AclnnError
        with pytest.raises(expected):
            call.make(series)
        assert call.untouched()


@by_operator
def test_the_product_in_force_decides_where_none_is_given(fact: Fact, monkeypatch: pytest.MonkeyPatch) -> None:
    from anycann import products

    for series in SERIES:
        monkeypatch.setattr(products, "_chosen", None)
        anycann.set_product(series.socs[0] if series.socs else series.name)
        call = Call(Draft(fact, omitted=True), "python")
        named = {fact.python[name]: value for name, value in call.arguments.items() if name not in fact.outputs}
        if series.name in fact.products:
            getattr(anycann, fact.function)(**named)
        else:
            with pytest.raises(anycann.AclnnError) as refused:
                getattr(anycann, fact.function)(**named)
            assert refused.value.status == 561003


@by_operator
@pytest.mark.parametrize("name", ["Ascend999", "", "910B1", "Atlas"])
def test_an_unknown_product_is_an_error_that_lists_the_known_ones(fact: Fact, name: str) -> None:
    for door in fact.doors:
        call = Call(Draft(fact), door)
        with pytest.raises(ValueError, match="Ascend910B1") as refused:
            call.make(SERIES[0]._replace(name=name))
        assert not isinstance(refused.value, anycann.AclnnError)
        assert all(series.name in str(refused.value) for series in SERIES)
        assert call.untouched()


@by_operator
def test_messages_to_python_users_spell_all_parameters_as_in_python(fact: Fact) -> None:
    series = home(fact)
    foreign = [name for name in fact.parameters if name not in fact.outputs and fact.python[name] != name]
    wrong = set()
    for one in faults(fact, series):
        if "python" in one.doors:
            with pytest.raises(anycann.AclnnError) as refused:
                Call(edited(fact, one), "python").make(series)
            wrong |= {str(refused.value) for name in foreign if re.search(rf"\b{name}\b", refused.value.message)}
    assert not wrong, report(sorted(wrong))


# Full texts

INVALID, NULL = "[ACLNN_ERR_PARAM_INVALID 161002]", "[ACLNN_ERR_PARAM_NULLPTR 161001]"
GELU_1, GELU_PYTHON = "aclnnGeluBackwardV2GetWorkspaceSize", "anycann.gelu_backward_v2"
NSA_1, NSA_PYTHON = "aclnnNsaCompressGradGetWorkspaceSize", "anycann.nsa_compress_grad"
MOE_1, MOE_PYTHON = "aclnnMoeTokenPermuteGradGetWorkspaceSize", "anycann.moe_token_permute_grad"
CHANGE = f"Change this value. {INVALID}"
TEXTS: tuple[tuple[Draft, str, str], ...] = (
    (Draft(GELU, null={"self"}), "aclnn", f"{GELU_1}: self must be a tensor; got a null pointer (None). Pass the tensor. {NULL}"),
    (
        Draft(GELU, null={"approximate"}),
        "python",
        f"{GELU_PYTHON}: approximate must be 'none' or 'tanh'; got a null pointer (None). Pass one of these strings. {NULL}",
    ),
    (
        Draft(GELU, dtypes={"self": "float64"}),
        "python",
        f"{GELU_PYTHON}: self must have dtype float16 or bfloat16 or float32 on Atlas A2 training; got float64. Convert self. {INVALID}",
    ),
    (
        Draft(GELU, dtypes={"self": "float32"}),
        "aclnn",
        f"{GELU_1}: gradInput must have dtype float32, the promotion of gradOutput (float16), self (float32); got float16. "
        f"Use float32. {INVALID}",
    ),
    (
        Draft(GELU, formats={"self": "NCHW"}),
        "aclnn",
        f"{GELU_1}: self must have format ND; got NCHW. Create the tensor with ACL_FORMAT_ND. {INVALID}",
    ),
    (
        Draft(GELU, shapes={"self": (5, 3)}),
        "python",
        f"{GELU_PYTHON}: out must have shape (4, 5, 3), the broadcast of grad_output (4, 1, 3) and self (5, 3); got (4, 2, 3). "
        f"Pass an output of shape (4, 5, 3). {INVALID}",
    ),
    (
        Draft(GELU, shapes={"self": (3, 4)}),
        "aclnn",
        f"{GELU_1}: gradOutput must broadcast with self (3, 4); got (4, 1, 3). "
        f"Right-aligned dimensions must be equal, or one of them 1, and all together 2**60 elements at most. {INVALID}",
    ),
    (
        Draft(GELU, layouts={"self": lambda shape: {"offset": 1, "storage": shape}}),
        "aclnn",
        f"{GELU_1}: self must lie inside its storage; got elements 1 to 6 of a storage of 6 (shape (2, 3), strides (3, 1), offset 1). "
        "Check strides, offset and storage shape. [ACLNN_ERR_INNER_NULLPTR 561103]",
    ),
    (
        Draft(GELU, layouts={"gradInput": lambda shape: {"strides": (0, 3, 1)}}),
        "python",
        f"{GELU_PYTHON}: out must give each element its own memory; got shape (4, 2, 3) with strides (0, 3, 1). "
        f"Pass a contiguous output. {INVALID}",
    ),
    (
        Draft(SMOOTH_L1, attributes={"beta": math.nan}),
        "aclnn",
        f"aclnnSmoothL1LossBackwardGetWorkspaceSize: beta must be at least 0 and not NaN; got nan. {CHANGE}",
    ),
    (
        Draft(SMOOTH_L1, attributes={"reduction": "avg"}),
        "python",
        f"anycann.smooth_l1_loss_backward: reduction must be 0 ('none'), 1 ('mean'), 2 ('sum'); got 'avg'. {CHANGE}",
    ),
    (
        Draft(LAYER_NORM, shapes={"pdBeta": (4,)}),
        "python",
        "anycann.layer_norm_grad_beta: out[1] (pd_beta) must have shape (5,), [H]: H = 5 (from res_for_gamma); got (4,). "
        f"Pass an output of shape (5,). {INVALID}",
    ),
    (
        Draft(MOE, attributes={"numTopk": 513}),
        "python",
        f"{MOE_PYTHON}: num_topk must be from 1 to 512; got 513. {CHANGE}",
    ),
    (
        Draft(MOE, shapes={"sortedIndices": (7,)}),
        "aclnn",
        f"{MOE_1}: sortedIndices must hold numTopk entries for every row of out: expected L % K == 0; got L = 7, K = 2. "
        f"Pass a multiple of numTopk entries. {INVALID}",
    ),
    (
        Draft(NSA, sizes={"W": 24}),
        "aclnn",
        f"{NSA_1}: compressBlockSize must be a multiple of 16: expected W % 16 == 0; got W = 24. Change these sizes. "
        "[ACLNN_ERR_INNER_TILING_ERROR 561002]",
    ),
    (
        Draft(NSA, shapes={"outputGrad": (5, 2, 16)}),
        "aclnn",
        f"{NSA_1}: outputGrad must have shape [C, N, D] with C = 4 (windows of all sequences), N = 2 (from outputGrad), "
        f"D = 16 (from outputGrad); got (5, 2, 16). Make its C 4. {INVALID}",
    ),
    (
        Draft(NSA, attributes={"actSeqLenOptional": [0, 79]}),
        "aclnn",
        f"{NSA_1}: actSeqLenOptional must end with the number of tokens; got actSeqLen = (0, 79), T = 80. "
        f"The last running sum is T, the first size of input. {INVALID}",
    ),
    (
        Draft(NSA, attributes={"actSeqLenType": 1}),
        "python",
        f"{NSA_PYTHON}: act_seq_len_type must be 0; got 1. {CHANGE}",
    ),
    (
        Draft(NSA, attributes={"compressBlockSize": 2**63}),
        "python",
        f"{NSA_PYTHON}: compress_block_size must be at least 1 and below 2**63; got 9223372036854775808. {CHANGE}",
    ),
    (
        Draft(NSA, attributes={"compressStride": 10**5000}),
        "python",
        f"{NSA_PYTHON}: compress_stride must be at least 1 and below 2**63; got an integer of 16610 bits. {CHANGE}",
    ),
    (
        Draft(NSA, attributes={"actSeqLenOptional": [-(10**5000), 80]}),
        "python",
        f"{NSA_PYTHON}: act_seq_len must be 64-bit integers, or null; got a list with an integer of 16610 bits. {CHANGE}",
    ),
    (
        Draft(MOE, attributes={"numTopk": 10**5000}),
        "aclnn",
        f"{MOE_1}: numTopk must be from 1 to 512; got an integer of 16610 bits. {CHANGE}",
    ),
)


@pytest.mark.parametrize(("draft", "door", "text"), TEXTS, ids=range(len(TEXTS)))
def test_messages_in_full(draft: Draft, door: str, text: str) -> None:
    with pytest.raises(anycann.AclnnError) as refused:
        Call(draft, door).make(home(draft.fact))
    assert str(refused.value) == text


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.api)
@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**5000, -(10**5000)], ids=["2**63", "-2**63 - 1", "large", "small"])
def test_integers_that_the_interface_does_not_have_are_refused(fact: Fact, number: int) -> None:
    values, tried = Draft(fact).values(), 0
    for name, value in values.items():
        wrong = number if type(value) is int else [number, *value] if isinstance(value, (list, tuple)) and type(value[0]) is int else None
        if wrong is not None:
            tried += 1
            for door in fact.doors:
                call = Call(Draft(fact, attributes={name: wrong}), door)
                with pytest.raises(anycann.AclnnError) as refused:
                    call.make(home(fact))
                assert refused.value.status // 1000 in (161, 561)
                assert call.spelled(name) in str(refused.value)
    assert tried == sum(type(value) is int or isinstance(value, (list, tuple)) for value in values.values() if value != [True] * 3)


def test_a_message_about_bfloat16_on_a_product_that_lacks_it() -> None:
    inference = next(series for series in SERIES if series.name == "Atlas inference")
    with pytest.raises(anycann.AclnnError) as refused:
        Call(Draft(GELU, dtypes={"self": "bfloat16"}), "aclnn").make(inference)
    assert str(refused.value) == (
        f"{GELU_1}: self must have dtype float16 or float32 on Atlas inference; got bfloat16. "
        f"This product has no bfloat16: choose another with set_product, or convert self. {INVALID}"
    )


@pytest.mark.parametrize("name", ["smooth_l1_loss", "smooth_l1_loss_backward"])
def test_a_named_value_of_a_wrong_kind_gets_the_list_of_names(name: str) -> None:
    arrays = [np.zeros(2, np.float32)] * (3 if name.endswith("backward") else 2)
    for wrong in (None, 1.5):
        message = f"reduction must be 0 ('none'), 1 ('mean'), 2 ('sum'); got {wrong!r} of type {type(wrong).__name__}"
        with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
            getattr(anycann, name)(*arrays, reduction=wrong)
