"""Arrays of every kind and layout through the Python functions: read where they lie, results of the first array's kind, out= honoured."""

import ctypes
import functools
import gc
import itertools
import random
import re
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import anycann
from anycann import aclnn
from anycann.backends import cpu_blocks
from anycann.runtime import operator_of
from anycann.tensor import from_array
from contract_calls import TWO_PHASE, Sample, numpy_dtype, same_bits, sample
from contract_facts import (
    FACTS,
    GELU,
    GELU_V2,
    LAYER_NORM,
    LAYER_NORM_BACKWARD,
    LAYER_NORM_FORWARD,
    LAYER_NORM_GRAD,
    MOE,
    NSA,
    NSA_FORWARD,
    PERMUTE,
    SERIES,
    SMOOTH_L1,
    SMOOTH_L1_LOSS,
    UNPERMUTE,
    UNPERMUTE_GRAD,
    Fact,
)

NORMS = (LAYER_NORM_FORWARD, LAYER_NORM_BACKWARD, LAYER_NORM_GRAD)
by_operator = pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.api)
by_dtype = pytest.mark.parametrize("kind", ["float16", "bfloat16", "float32"])


def listed(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def passed(results: list[Any]) -> Any:
    """Results as out= takes them."""
    return results[0] if len(results) == 1 else tuple(results)


# layouts


def spread(array: Any) -> Any:
    """Every axis in steps of two."""
    room = np.zeros([2 * size for size in array.shape], array.dtype)
    view = room[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


def reversed_axes(array: Any) -> Any:
    backwards = (slice(None, None, -1),) * array.ndim
    return array[backwards].copy()[backwards]


def shifted(array: Any, begin: int = 0) -> Any:
    """So many bytes behind a line; else one element, at an address that is a multiple of the item size and of nothing more."""
    room = np.zeros(array.nbytes + 128, np.uint8)
    start = -room.__array_interface__["data"][0] % 64 + (begin or array.itemsize)
    view = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


def of_a_record(array: Any) -> Any:
    """A field of a structured array: the last axis does not step by one element."""
    room = np.zeros(array.shape, np.dtype([("a", array.dtype), ("b", array.dtype), ("c", array.dtype)]))
    room["b"] = array
    return room["b"]


def column_major(array: Any) -> Any:
    return np.asfortranarray(array)


def read_only(array: Any) -> Any:
    copy = array.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: tuple[Callable[[Any], Any], ...] = (spread, reversed_axes, shifted, of_a_record, column_major, read_only)


@by_operator
@by_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_are_read_where_they_lie(fact: Fact, kind: str, layout: Callable[[Any], Any]) -> None:
    call = sample(fact, kind)
    changed = {name: layout(array) for name, array in call.inputs.items()}
    assert any(array.strides != call.inputs[name].strides for name, array in changed.items()) or layout in (
        shifted,
        read_only,
        column_major,
    )
    before = {name: array.tobytes() for name, array in changed.items()}
    assert all(map(same_bits, call.results(**changed), call.results()))
    assert before == {name: array.tobytes() for name, array in changed.items()}


@by_operator
@by_dtype
@pytest.mark.parametrize("layout", [spread, reversed_axes, shifted, of_a_record, column_major])
def test_outputs_are_written_where_they_lie(fact: Fact, kind: str, layout: Callable[[Any], Any]) -> None:
    call = sample(fact, kind)
    expected = call.results()
    outs = [layout(output) for output in call.outputs()]
    results = listed(call.python(out=passed(outs)))
    assert all(result is out for result, out in zip(results, outs, strict=True))
    assert all(map(same_bits, (np.ascontiguousarray(out) for out in outs), expected))


@by_operator
def test_nothing_is_written_between_the_elements_of_an_output(fact: Fact) -> None:
    call = sample(fact)
    rooms = [np.full([3 * size + 2 for size in output.shape], 7, output.dtype) for output in call.outputs()]
    inside = [tuple(slice(1, 1 + 3 * size, 3) for size in output.shape) for output in call.outputs()]
    call.python(out=passed([room[where] for room, where in zip(rooms, inside, strict=True)]))
    for room, where, result in zip(rooms, inside, call.results(), strict=True):
        assert same_bits(np.ascontiguousarray(room[where]), result)
        room[where] = 7
        assert np.all(room == 7)


@by_operator
@by_dtype
def test_broadcast_views_are_inputs_like_any_other(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    views = {name: np.broadcast_to(array[:1], array.shape) for name, array in call.inputs.items()}
    assert any(0 in view.strides for view in views.values())
    assert all(map(same_bits, call.results(**views), call.results(**{name: view.copy() for name, view in views.items()})))


@pytest.mark.parametrize("fact", [GELU, SMOOTH_L1], ids=lambda fact: fact.api)
@pytest.mark.parametrize("bare", [np.ndarray, torch.Tensor])
def test_arrays_without_dimensions_stay_arrays(fact: Fact, bare: type) -> None:
    call = sample(fact, "float32", a=1, b=1, c=1)
    scalars: dict[str, Any] = {name: array.reshape(()) for name, array in call.inputs.items()}
    if bare is torch.Tensor:
        scalars = {name: torch.from_numpy(array.copy()) for name, array in scalars.items()}
    [result] = call.results(**scalars)
    assert type(result) is bare
    assert tuple(result.shape) == ()
    assert float(result) == float(call.results()[0].item())


EMPTIES: tuple[tuple[Fact, dict[str, Any]], ...] = (
    (GELU, {"a": 0}),
    (GELU, {"c": 0}),
    (SMOOTH_L1, {"b": 0}),
    (LAYER_NORM, {"H": 0}),
    (LAYER_NORM, {"B": 0}),
    (LAYER_NORM, {"S": 0}),
    (MOE, {"T": 0}),
    (MOE, {"H": 0}),
    (MOE, {"R": 0}),
    (MOE, {"T": 0, "R": 0, "H": 0}),
    (NSA, {"T": 0}),
    (NSA, {"T": 31}),
    (NSA_FORWARD, {"T": 0, "ends": [0]}),
    (NSA_FORWARD, {"T": 31, "ends": [31]}),
    *((fact, {axis: 0}) for fact in (UNPERMUTE, UNPERMUTE_GRAD) for axis in "THR"),
)


@pytest.mark.parametrize(("fact", "sizes"), EMPTIES, ids=[f"{fact.api}-{sizes}" for fact, sizes in EMPTIES])
@by_dtype
def test_empty_arrays(fact: Fact, sizes: dict[str, Any], kind: str) -> None:
    call = sample(fact, kind, **sizes)
    for results in (call.results(), listed(call.python(out=passed(call.outputs())))):
        assert [result.shape for result in results] == [call.shapes[name] for name in fact.outputs]
        assert all(result.dtype == numpy_dtype(kind) for result in results)
        assert not any(np.float32(result).any() for result in results), "sums of nothing are 0"


@by_operator
def test_memory_that_no_kernel_reads_is_refused(fact: Fact) -> None:
    call = sample(fact, "float32")
    name = next(iter(call.inputs))
    for array in (call.inputs[name].astype(">f4"), call.inputs[name].astype("c8"), call.inputs[name].astype(object)):
        with pytest.raises(anycann.AclnnError, match=rf"{fact.python[name]} must have dtype .* got ") as refused:
            call.python(**{name: array})
        assert refused.value.status == 161002
    odd = np.zeros(call.inputs[name].nbytes + 1, np.uint8)[1:].view(np.float32).reshape(call.inputs[name].shape)
    odd[...] = call.inputs[name]
    assert all(map(same_bits, call.results(**{name: odd}), call.results()))
    packed = np.zeros(call.inputs[name].shape, np.dtype([("a", "u1"), ("b", "f4")]))["b"]
    with pytest.raises(anycann.AclnnError, match="strides") as refused:
        call.python(**{name: packed})
    assert refused.value.status == 161002


@by_operator
def test_subclasses_that_mean_something_else_are_not_misread(fact: Fact) -> None:
    call = sample(fact)
    name = next(iter(call.inputs))
    with pytest.raises(TypeError, match="mask"):
        call.python(**{name: np.ma.masked_array(call.inputs[name], mask=True)})
    with pytest.raises(TypeError, match=fact.python[name]):
        call.python(**{name: call.inputs[name].tolist()})
    plain = call.inputs[name].view(type("Named", (np.ndarray,), {}))
    assert all(map(same_bits, call.results(**{name: plain}), call.results()))


# results


@by_operator
@by_dtype
def test_results_are_new_contiguous_writable_arrays(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    results, again = call.results(), call.results()
    for name, result, other in zip(fact.outputs, results, again, strict=True):
        assert type(result) is np.ndarray
        assert (result.shape, result.dtype) == (call.shapes[name], numpy_dtype(fact.fixed.get(name, kind)))
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert not any(np.shares_memory(result, array) for array in (*call.inputs.values(), other))
    assert isinstance(call.python(), tuple) == (len(fact.outputs) > 1)


@by_operator
def test_out_of_none_in_a_tuple_makes_only_that_result(fact: Fact) -> None:
    call = sample(fact)
    if len(fact.outputs) == 1:
        return
    expected = call.results()
    for place in range(len(fact.outputs)):
        outs: list[Any] = [None] * len(fact.outputs)
        outs[place] = call.outputs()[place]
        for _ in range(2):
            results = listed(call.python(out=tuple(outs)))
            assert results[place] is outs[place]
            assert all(map(same_bits, results, expected))
    for wrong in (call.outputs()[0], (call.outputs()[0],), (*call.outputs(), None), 5, "out", {}):
        with pytest.raises(TypeError, match="out"):
            call.python(out=wrong)


@by_operator
def test_results_are_not_given_away_twice(fact: Fact) -> None:
    """Memory of results is recycled when the last view of it is gone, and never before."""
    sizes: dict[str, dict[str, Any]] = {
        GELU.api: {"a": 1024, "b": 32, "c": 64},
        GELU_V2.api: {"a": 1024, "b": 32, "c": 64},
        SMOOTH_L1_LOSS.api: {"a": 1024, "b": 32, "c": 64},
        SMOOTH_L1.api: {"a": 1024, "b": 32, "c": 64},
        LAYER_NORM.api: {"B": 2, "S": 1, "H": 1 << 19},
        MOE.api: {"T": 1024, "K": 2, "H": 1024, "R": 2048},
        NSA.api: {"T": 8192, "N": 8, "D": 64},
        NSA_FORWARD.api: {"T": 16384, "N": 9, "D": 64, "ends": [16384]},
        PERMUTE.api: {"N": 1024, "K": 2, "H": 512},
        UNPERMUTE.api: {"T": 1024, "K": 2, "H": 1024, "R": 2048},
        UNPERMUTE_GRAD.api: {"T": 512, "K": 2, "H": 1024, "R": 1024},
        **{norm.api: {"B": 8, "S": 8, "H": 1 << 14} for norm in NORMS},
    }
    calls = [sample(fact, "float16", seed, **sizes[fact.api]) for seed in range(2)]
    first, second = (call.results() for call in calls)
    assert max(result.nbytes for result in first) >= 1 << 20
    kept, views = [result.copy() for result in first], [result.reshape(-1)[5:50] for result in first]
    torches = [torch.from_numpy(result.view(np.int16)) for result in second]
    copies = [result.copy() for result in second]
    del first, second
    gc.collect()
    for _ in range(3):
        calls[1].results()
        calls[0].results()
    assert all(map(same_bits, (view.copy() for view in views), (copy.reshape(-1)[5:50] for copy in kept)))
    assert all(same_bits(held.numpy(), copy.view(np.int16)) for held, copy in zip(torches, copies, strict=True))
    anycann.release_buffers()
    assert all(map(same_bits, (view.copy() for view in views), (copy.reshape(-1)[5:50] for copy in kept)))


# out= that overlaps inputs


def overlapping(call: Sample, place: int, shift: int) -> tuple[Any, Any, Any]:
    """An input and the first output of a call in one block of memory, `shift` elements apart."""
    name, output = call.fact.inputs[place], call.fact.outputs[0]
    array, shape = call.inputs[name], call.shapes[output]
    count, wanted = array.size, int(np.prod(shape))
    room = np.zeros(count + wanted + 2 * abs(shift), numpy_dtype(call.kind))
    start = max(0, -shift)
    overlapped = room[start : start + count].reshape(array.shape)
    overlapped[...] = array
    return overlapped, room[start + shift : start + shift + wanted].reshape(shape), room


@by_operator
@by_dtype
def test_an_output_may_overlap_an_input_as_if_that_were_copied_first(fact: Fact, kind: str) -> None:
    call = sample(fact, kind, seed=3)
    expected = call.results()
    for place, name in enumerate(fact.inputs):
        if name in fact.fixed:
            continue
        for shift in (0, 1, -1, 3, -3, 7):
            overlapped, out, _ = overlapping(call, place, shift)
            assert np.shares_memory(overlapped, out) == (-out.size < shift < overlapped.size)
            for repeat in range(2):
                overlapped[...] = call.inputs[name]
                results = listed(call.python(out=passed([out, *call.outputs()[1:]]), **{name: overlapped}))
                assert results[0] is out
                assert all(map(same_bits, (np.ascontiguousarray(result) for result in results), expected)), (name, shift, repeat)


@pytest.mark.parametrize("fact", [GELU, SMOOTH_L1], ids=lambda fact: fact.api)
@by_dtype
def test_elementwise_operators_work_in_place(fact: Fact, kind: str) -> None:
    call = elementwise(fact, kind, (7, 33))
    arrays, expected = call.inputs, call.results()
    for name in fact.inputs:
        for layout in (np.array, np.asfortranarray, spread, reversed_axes):
            own = layout(arrays[name])
            assert call.python(out=own, **{name: own}) is own
            assert same_bits(np.ascontiguousarray(own), expected[0])
    everywhere = arrays[fact.inputs[0]].copy()
    together = call.results(**dict.fromkeys(fact.inputs, everywhere.copy()))
    call.python(out=everywhere, **dict.fromkeys(fact.inputs, everywhere))
    assert same_bits(everywhere, together[0])


@pytest.mark.parametrize("fact", [GELU, SMOOTH_L1], ids=lambda fact: fact.api)
def test_in_place_through_another_order_of_the_elements(fact: Fact) -> None:
    call = elementwise(fact, "float32", (6, 6))
    arrays, [expected] = call.inputs, call.results()
    for name in fact.inputs:
        for view in (lambda array: array.T, lambda array: array[::-1], lambda array: array[:, ::-1]):
            own = view(arrays[name]).copy()
            call.python(out=own, **{name: view(own)})
            assert same_bits(own, expected)


@by_operator
def test_interleaved_memory_is_not_an_overlap(fact: Fact) -> None:
    call = sample(fact)
    name, expected = fact.inputs[0], call.results()
    out_shape, array = call.shapes[fact.outputs[0]], call.inputs[fact.inputs[0]]
    room = np.zeros(2 * max(array.size, int(np.prod(out_shape))), array.dtype)
    inside = room[0 : 2 * array.size : 2].reshape(array.shape)
    between = room[1 : 1 + 2 * int(np.prod(out_shape)) : 2].reshape(out_shape)
    inside[...] = array
    assert not np.shares_memory(inside, between)
    results = listed(call.python(out=passed([between, *call.outputs()[1:]]), **{name: inside}))
    assert all(map(same_bits, (np.ascontiguousarray(result) for result in results), expected))
    assert same_bits(np.ascontiguousarray(inside), array)


BIG: dict[str, dict[str, Any]] = {
    LAYER_NORM.api: {"B": 64, "S": 64, "H": 256},
    MOE.api: {"T": 1024, "K": 2, "H": 512, "R": 2048},
    NSA.api: {"T": 2048, "N": 4, "D": 128},
    NSA_FORWARD.api: {"T": 2048, "N": 4, "D": 128, "ends": [2048]},
    PERMUTE.api: {"N": 512, "K": 2, "H": 512},
    UNPERMUTE.api: {"T": 512, "K": 2, "H": 512, "R": 1024},
    UNPERMUTE_GRAD.api: {"T": 512, "K": 2, "H": 512, "R": 1024},
    **{norm.api: {"B": 32, "S": 32, "H": 1024} for norm in NORMS},
}


@by_operator
@by_dtype
@pytest.mark.parametrize("large", [False, True])
def test_memory_may_begin_at_any_byte(fact: Fact, kind: str, large: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_blocks, "STREAM", 0 if large else 1 << 40)  # whether results leave past the caches
    wide = {key: 200 for key in ("H", "D", "c") if key in fact.sizes} if fact is not NSA and fact is not NSA_FORWARD else {"D": 208}
    call = sample(fact, kind, **wide)
    operator_of(getattr(anycann, fact.function)).forget()
    try:
        expected = call.results()
        for begin in (1, 2, 3, 5, 63):
            rooms = [np.full(out.nbytes + 192, 0xA5, np.uint8) for out in expected]
            starts = [-room.__array_interface__["data"][0] % 64 + begin for room in rooms]
            outs = [
                room[start : start + out.nbytes].view(out.dtype).reshape(out.shape)
                for room, start, out in zip(rooms, starts, expected, strict=True)
            ]
            moved = {name: shifted(array, begin) for name, array in call.inputs.items()}
            call.python(out=passed(outs), **moved)
            for room, start, out, want in zip(rooms, starts, outs, expected, strict=True):
                assert same_bits(out.copy(), want), begin
                assert (room[:start] == 0xA5).all()
                assert (room[start + out.nbytes :] == 0xA5).all()
    finally:
        operator_of(getattr(anycann, fact.function)).forget()


def elementwise(fact: Fact, kind: str, shape: tuple[int, ...], seed: int = 0) -> Sample:
    """A call on inputs and output of one shape."""
    rng = np.random.default_rng(seed)
    arrays = {name: rng.normal(size=shape).astype(numpy_dtype(kind)) for name in fact.inputs}
    return Sample(fact, kind, arrays, fact.attributes(fact.sizes), dict.fromkeys(fact.tensors, shape))


@by_operator
@by_dtype
@pytest.mark.parametrize("how", ["spread", "broadcast", "mixed"])
def test_inputs_are_not_copied(fact: Fact, kind: str, how: str) -> None:
    call = sample(fact, kind, **BIG[fact.api]) if fact.api in BIG else elementwise(fact, kind, (256, 1024))
    if how == "broadcast":
        changed = {name: np.broadcast_to(array[:1], array.shape) for name, array in call.inputs.items()}
    else:
        changed = {name: spread(array) for name, array in call.inputs.items()}
    if how == "mixed" and fact.any_castable:
        changed[fact.inputs[0]] = spread(call.inputs[fact.inputs[0]].astype(np.float32))
    outs = call.outputs()
    warm = listed(call.python(out=passed(outs), **changed))  # compiles, and gives the pool its blocks
    tracemalloc.start()
    try:
        call.python(out=passed(outs), **changed)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        call.python(out=passed(outs), **changed)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    largest = max(array.size * array.itemsize for array in call.inputs.values())
    assert largest > 200_000
    workspace = 0 if fact.api not in (LAYER_NORM.api, LAYER_NORM_BACKWARD.api, NSA.api) else largest // 4
    assert peak < 50_000 + workspace, (peak, largest)
    assert all(result is out for result, out in zip(warm, outs, strict=True))


# torch

TORCH = {"int32": torch.int32, "float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}


def to_torch(array: Any) -> torch.Tensor:
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def from_torch(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.contiguous().numpy()


@by_operator
@by_dtype
def test_torch_tensors_give_torch_results_with_the_same_bits(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    tensors = {name: to_torch(array) for name, array in call.inputs.items()}
    for _ in range(2):
        results = call.results(**tensors)
        for result, expected in zip(results, call.results(), strict=True):
            assert type(result) is torch.Tensor
            assert result.dtype is TORCH[expected.dtype.name]
            assert result.device.type == "cpu"
            assert not result.requires_grad
            assert result.is_contiguous()
            assert same_bits(from_torch(result), expected)


@by_operator
@by_dtype
def test_strided_torch_tensors_and_torch_outputs(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)

    def columns(array: Any) -> torch.Tensor:
        tensor = to_torch(array)
        return tensor.permute(*reversed(range(tensor.ndim))).contiguous().permute(*reversed(range(tensor.ndim)))

    def steps(array: Any) -> torch.Tensor:
        return torch.stack([to_torch(array), to_torch(array)], dim=-1)[..., 0]

    for layout in (columns, steps):
        outs = [layout(output) for output in call.outputs()]
        results = listed(call.python(out=passed(outs), **{name: layout(array) for name, array in call.inputs.items()}))
        assert all(result is out for result, out in zip(results, outs, strict=True))
        assert all(same_bits(from_torch(result), expected) for result, expected in zip(results, call.results(), strict=True))


@by_operator
def test_expanded_torch_tensors_are_read_without_a_copy(fact: Fact) -> None:
    call = sample(fact, "float16")
    tensors = {name: to_torch(array[:1]).expand(array.shape) for name, array in call.inputs.items()}
    plain = {name: np.broadcast_to(array[:1], array.shape).copy() for name, array in call.inputs.items()}
    results = call.results(**tensors)
    assert all(same_bits(from_torch(result), expected) for result, expected in zip(results, call.results(**plain), strict=True))
    with pytest.raises(anycann.AclnnError, match="got") as refused:
        call.python(out=passed([to_torch(output)[:1].expand(output.shape) for output in call.outputs()]))
    assert refused.value.status == 161002


@by_operator
def test_a_torch_tensor_that_requires_grad_is_refused_with_a_way_out(fact: Fact) -> None:
    call = sample(fact, "float32")
    name = fact.inputs[0]
    for _ in range(2):
        tensors = {other: to_torch(array) for other, array in call.inputs.items()}
        call.python(**tensors)
        for wanting in (tensors[name].clone().requires_grad_(), torch.nn.Parameter(tensors[name].clone())):
            with pytest.raises((RuntimeError, TypeError, ValueError), match=r"import anycann\.torch and call .* torch\.ops") as refused:
                call.python(**(tensors | {name: wanting}))
            assert fact.python[name] in str(refused.value)
            with torch.no_grad():
                results = call.results(**(tensors | {name: wanting}))
            assert all(same_bits(from_torch(result), expected) for result, expected in zip(results, call.results(), strict=True))
            with torch.inference_mode():
                results = call.results(**(tensors | {name: wanting}))
            assert not any(result.requires_grad for result in results)
            detached = call.results(**(tensors | {name: wanting.detach()}))
            assert all(same_bits(from_torch(result), expected) for result, expected in zip(detached, call.results(), strict=True))
    outs = [to_torch(output).requires_grad_(output.dtype.kind not in "iu") for output in call.outputs()]
    with pytest.raises((RuntimeError, TypeError, ValueError), match=r"anycann\.torch"):
        call.python(out=passed(outs))


@by_operator
def test_torch_tensors_whose_memory_is_not_their_value_are_refused(fact: Fact) -> None:
    call = sample(fact, "float32")
    name = fact.inputs[0]
    tensor = to_torch(call.inputs[name])
    call.python(**{other: to_torch(array) for other, array in call.inputs.items()})
    negated = torch.complex(torch.zeros_like(tensor), tensor).conj().imag
    assert negated.is_neg()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        odd = [negated, tensor.to_sparse(), tensor.reshape(-1, tensor.shape[-1]).to_sparse_csr()]
    for value in odd:
        with pytest.raises(TypeError, match=fact.python[name]):
            call.python(**{name: value})
    with pytest.raises(RuntimeError, match=rf"{fact.python[name]} is on device meta.*: call torch\.ops\.anycann\.{fact.function},"):
        call.python(**{name: tensor.to("meta")})


def test_a_scalar_of_numpy_is_no_output_as_it_is_a_copy() -> None:
    losses, x = np.zeros(3, np.float32), np.ones(4, np.float32)
    for _ in range(3):
        with pytest.raises(anycann.AclnnError, match="must be writable") as refused:
            anycann.smooth_l1_loss(x, x, out=losses[1])
        assert refused.value.status == 161002
        with pytest.raises(anycann.AclnnError, match="must be writable"):
            aclnn.aclnnSmoothL1LossGetWorkspaceSize(x, x, 1, 1.0, losses[1])
    anycann.smooth_l1_loss(x, x + 2, out=losses[1, ...])
    assert losses.tolist() == [0, 1.5, 0]


@by_operator
def test_torch_knows_that_an_output_was_written(fact: Fact) -> None:
    """A tensor that a backward pass still needs is not overwritten in silence."""
    call = sample(fact, "float32")
    tensors = {other: to_torch(array) for other, array in call.inputs.items()}
    for _ in range(3):
        outs = [to_torch(output) for output in call.outputs()]
        versions = [out._version for out in outs]
        call.python(**tensors, out=passed(outs))
        assert all(out._version > version for out, version in zip(outs, versions, strict=True))
        with torch.inference_mode():
            call.python(**tensors, out=passed([to_torch(output) for output in call.outputs()]))


def _fake(tensor: Any) -> Any:
    with FakeTensorMode() as mode:
        return mode.from_tensor(tensor)


@by_operator
def test_torch_tensors_that_have_no_memory_of_their_own_are_refused(fact: Fact) -> None:
    """Their addresses are null or those of other tensors: these calls ended the process once."""
    call = sample(fact, "float32")
    name = fact.inputs[0]
    tensors = {other: to_torch(array) for other, array in call.inputs.items()}

    said = rf"{fact.python[name]} (is no plain torch tensor|requires grad).*torch\.ops\.anycann\.{fact.function}\b"

    def inside(value: Any) -> Any:
        with pytest.raises((RuntimeError, TypeError), match=said):
            call.python(**(tensors | {name: value}))
        return tensors[name].sum()

    for _ in range(3):
        call.python(**tensors)
        inside(_fake(tensors[name]))
        inside(torch._efficientzerotensor(tensors[name].shape))
        torch.func.vmap(lambda value: (inside(value), value)[1])(tensors[name][None])
        torch.func.functionalize(inside)(tensors[name])
        torch.func.grad(inside)(tensors[name])
        with pytest.raises((RuntimeError, TypeError), match=r"out.*is no plain torch tensor"):
            call.python(**tensors, out=passed([_fake(to_torch(output)) for output in call.outputs()]))


@by_operator
def test_while_torch_traces_plain_functions_refuse_to_run_unseen(fact: Fact) -> None:
    call = sample(fact, "float32")
    tensors = {other: to_torch(array) for other, array in call.inputs.items()}
    first = tensors[fact.inputs[0]]

    def refused(outs: Any, _: Any) -> Any:
        with pytest.raises(TypeError, match=r"PyTorch is tracing"):
            call.python(**tensors, out=outs)
        return first * 2

    for made in (True, True, False):
        outs = None if made else passed([to_torch(output) for output in call.outputs()])
        call.python(**tensors, out=outs)
        make_fx(functools.partial(refused, outs), tracing_mode="real")(first)
        with FakeTensorMode(allow_non_fake_inputs=True):
            refused(outs, first)
        with FlopCounterMode(display=False):  # sees less than it might, but does no harm
            results = listed(call.python(**tensors, out=outs))
        assert all(same_bits(from_torch(result), expected) for result, expected in zip(results, call.results(), strict=True))


@by_operator
def test_results_are_on_the_cpu_whatever_device_torch_uses_by_default(fact: Fact) -> None:
    call = sample(fact, "float32")
    tensors = {other: to_torch(array) for other, array in call.inputs.items()}
    with torch.device("meta"):
        for _ in range(3):
            results = listed(call.python(**tensors))
            assert all(same_bits(from_torch(result), expected) for result, expected in zip(results, call.results(), strict=True))


def test_torch_compile_names_the_operator_that_belongs_into_a_graph() -> None:
    said = r"anycann\.gelu_v2 only sees memory.*torch\.ops\.anycann\.gelu_v2" if torch.__version__ >= (2, 8) else "function gelu_v2"
    with pytest.raises(torch._dynamo.exc.Unsupported, match=said):
        torch.compile(lambda x: anycann.gelu_v2(x * 2) + 1, backend="eager", fullgraph=True)(torch.linspace(-3, 3, 64))


@by_operator
def test_torch_dtypes_that_no_operator_takes_are_refused_by_name(fact: Fact) -> None:
    call = sample(fact, "float32")
    name = fact.inputs[0]
    shape = call.inputs[name].shape
    for kind in (
        torch.float64,
        torch.complex64,
        torch.complex32,
        torch.int8,
        torch.uint16,
        torch.float8_e5m2,
        torch.float8_e4m3fn,
        torch.bool,
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = torch.zeros(shape, dtype=kind)
        with pytest.raises(anycann.AclnnError, match=str(kind).removeprefix("torch.")) as refused:
            call.python(**{name: value})
        assert refused.value.status == 161002


@by_operator
def test_the_first_array_decides_the_kind_of_the_results(fact: Fact) -> None:
    call = sample(fact, "bfloat16")
    for first, others in itertools.permutations((torch.Tensor, np.ndarray, "dlpack"), 2):
        mixed = {}
        for i, (name, array) in enumerate(call.inputs.items()):
            kind = others if i else first
            mixed[name] = to_torch(array) if kind is torch.Tensor else Exporter(array) if kind == "dlpack" else array
        for result, expected in zip(call.results(**mixed), call.results(), strict=True):
            assert type(result) is (torch.Tensor if first is torch.Tensor else np.ndarray)
            assert same_bits(from_torch(result) if first is torch.Tensor else result, expected)


@by_operator
def test_outputs_of_another_kind_than_the_inputs(fact: Fact) -> None:
    call = sample(fact, "bfloat16")
    outs = [to_torch(output) for output in call.outputs()]
    results = listed(call.python(out=passed(outs)))
    assert all(result is out for result, out in zip(results, outs, strict=True))
    assert all(same_bits(from_torch(out), expected) for out, expected in zip(outs, call.results(), strict=True))


# DLPack and the array interface


class Data(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p), ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class Unversioned(ctypes.Structure):
    _fields_ = (("tensor", Data), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", Data),
    )  # fmt: skip


CODES = {"i": 0, "u": 1, "f": 2, "V": 4, "c": 5, "b": 6}
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.argtypes, new_capsule.restype = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p), ctypes.py_object


class Exporter:
    """An array library of its own that shares memory through DLPack and through nothing else."""

    def __init__(self, array: Any, version: int = 1, read_only: bool = False, device: int = 1, offset: int = 0, steps: bool = True) -> None:
        self.array, self.version, self.read_only, self.device = array, version, read_only, device
        self.offset, self.steps = offset, steps
        self.kept: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def fill(self, data: Data) -> None:
        array = self.array
        numbers = ctypes.c_int64 * array.ndim
        shape, strides = numbers(*array.shape), numbers(*(step // array.itemsize for step in array.strides))
        self.kept += [shape, strides]
        data.data = array.__array_interface__["data"][0] - self.offset
        data.device_type, data.ndim, data.byte_offset = self.device, array.ndim, self.offset
        data.code, data.bits, data.lanes = CODES[array.dtype.kind], 8 * array.itemsize, 1
        data.shape = ctypes.addressof(shape)
        data.strides = ctypes.addressof(strides) if self.steps else None

    def __dlpack__(self, **asked: Any) -> Any:
        if self.version == 0 and asked:
            raise TypeError("an exporter from before version 1 takes no max_version")
        made: Any = Versioned(1, 0) if self.version and asked.get("max_version") else Unversioned()
        if isinstance(made, Versioned):
            made.flags = int(self.read_only)
        self.fill(made.tensor)
        self.kept.append(made)
        return new_capsule(ctypes.addressof(made), b"dltensor_versioned" if isinstance(made, Versioned) else b"dltensor", None)


@by_operator
@by_dtype
@pytest.mark.parametrize("version", [0, 1])
def test_dlpack_exporters_are_inputs(fact: Fact, kind: str, version: int) -> None:
    call = sample(fact, kind)
    for layout in (np.array, spread, reversed_axes, column_major):
        offered = {name: Exporter(layout(array), version, offset=8 * i) for i, (name, array) in enumerate(call.inputs.items())}
        for result, expected in zip(call.results(**offered), call.results(), strict=True):
            assert type(result) is np.ndarray
            assert same_bits(result, expected)
    bare = {name: Exporter(array, version, steps=False) for name, array in call.inputs.items()}
    assert all(map(same_bits, call.results(**bare), call.results()))


@by_operator
@by_dtype
@pytest.mark.parametrize("version", [0, 1])
def test_dlpack_exporters_are_outputs(fact: Fact, kind: str, version: int) -> None:
    call = sample(fact, kind)
    outs = [Exporter(spread(output), version) for output in call.outputs()]
    results = listed(call.python(out=passed(outs)))
    assert all(result is out for result, out in zip(results, outs, strict=True))
    assert all(same_bits(np.ascontiguousarray(out.array), expected) for out, expected in zip(outs, call.results(), strict=True))


@by_operator
def test_a_read_only_export_is_an_input_and_no_output(fact: Fact) -> None:
    call = sample(fact)
    locked = {name: Exporter(array, read_only=True) for name, array in call.inputs.items()}
    assert all(map(same_bits, call.results(**locked), call.results()))
    outputs = call.outputs()
    with pytest.raises(anycann.AclnnError, match="read-only") as refused:
        call.python(out=passed([Exporter(output, read_only=True) for output in outputs]))
    assert refused.value.status == 161002
    assert all(map(same_bits, outputs, call.outputs()))


@by_operator
def test_an_export_from_another_device_is_refused(fact: Fact) -> None:
    call = sample(fact)
    name = fact.inputs[0]
    with pytest.raises((RuntimeError, TypeError, ValueError), match=fact.python[name]):
        call.python(**{name: Exporter(call.inputs[name], device=2)})


class Broken:
    """What is no exporter, whatever it says."""

    def __init__(self, capsule: Any, device: Any = (1, 0)) -> None:
        self.capsule, self.device = capsule, device

    def __dlpack_device__(self) -> Any:
        return self.device

    def __dlpack__(self, **asked: Any) -> Any:
        return self.capsule()


def test_exporters_that_do_not_work_are_refused_by_name() -> None:
    def fails() -> None:
        raise BufferError("in use")

    used = np.zeros(2, np.float32).__dlpack__()
    torch.from_dlpack(used)
    wrong = (
        (Broken(fails), "{} must give its memory by __dlpack__; got BufferError: in use. Pass"),
        (Broken(lambda: 3), "{} must give its memory by __dlpack__, as a capsule that is not used yet; got 3. Pass"),
        (Broken(lambda: used), "{} must give its memory by __dlpack__, as a capsule that is not used yet; got <capsule object"),
        (Broken(fails, (1,)), "{} must give its device by __dlpack_device__, as two ints; got ValueError: not enough values"),
        (Broken(fails, None), "{} must give its device by __dlpack_device__, as two ints; got TypeError: "),
    )
    x = np.zeros(2, np.float32)
    for broken, message in wrong:
        for name, call in {
            "x": lambda broken=broken: anycann.gelu_v2(broken),
            "out": lambda broken=broken: anycann.gelu_v2(x, out=broken),
            "data": lambda broken=broken: aclnn.create_tensor((2,), "float32", data=broken),
        }.items():
            with pytest.raises(TypeError, match=f"^{re.escape(message.format(name))}"):
                call()


@by_operator
def test_an_export_of_another_dtype_is_refused(fact: Fact) -> None:
    call = sample(fact)
    name = fact.inputs[0]
    for kind in ("f8", "i1", "u2", "c8", "?"):
        with pytest.raises(anycann.AclnnError, match="must have dtype") as refused:
            call.python(**{name: Exporter(np.zeros(call.inputs[name].shape, kind))})
        assert refused.value.status == 161002


class Strict:
    """An array of a namespace that makes arrays with from_dlpack."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **asked: Any) -> Any:
        return Exporter(self.array).__dlpack__(**asked) if not hasattr(self, "exporter") else self.exporter.__dlpack__(**asked)

    def __array_namespace__(self, **_: Any) -> Any:
        return Namespace


class Namespace:
    @staticmethod
    def from_dlpack(offered: Any) -> Strict:
        """As libraries do: take the capsule over, which here torch does."""
        tensor = torch.from_dlpack(offered)
        made = Strict(from_torch(tensor))
        vars(made)["tensor"] = tensor
        return made


def strict(array: Any) -> Strict:
    made = Strict(array)
    vars(made)["exporter"] = Exporter(array)
    return made


@by_operator
@by_dtype
def test_a_namespace_makes_its_own_results(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    for _ in range(2):
        results = call.results(**{name: strict(array) for name, array in call.inputs.items()})
        gc.collect()
        for result, expected in zip(results, call.results(), strict=True):
            assert type(result) is Strict
            assert same_bits(result.array, expected)


def test_exported_results_are_freed_with_their_consumer() -> None:
    call = sample(GELU, "float32", a=512, b=64, c=64)
    tracemalloc.start()
    try:
        for _ in range(3):
            call.results(**{name: strict(array) for name, array in call.inputs.items()})
        gc.collect()
        anycann.release_buffers()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(5):
            call.results(**{name: strict(array) for name, array in call.inputs.items()})
        gc.collect()
        anycann.release_buffers()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert left < 4 * 512 * 64 * 64


class Interface:
    """An object that only tells where its memory is."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self.array.__array_interface__)


def test_numpy_scalars_keep_the_memory_that_is_read() -> None:
    tensors = [from_array(np.float32(value), "x") for value in range(1000)]
    assert [ctypes.c_float.from_address(tensor.start).value for tensor in tensors] == list(range(1000))


@by_operator
@pytest.mark.parametrize("kind", ["float16", "float32"])
def test_objects_with_an_array_interface(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    offered = {name: Interface(spread(array)) for name, array in call.inputs.items()}
    for result, expected in zip(call.results(**offered), call.results(), strict=True):
        assert type(result) is np.ndarray
        assert same_bits(result, expected)
    outs = [Interface(spread(output)) for output in call.outputs()]
    results = listed(call.python(out=passed(outs)))
    assert all(result is out for result, out in zip(results, outs, strict=True))
    assert all(same_bits(np.ascontiguousarray(out.array), expected) for out, expected in zip(outs, call.results(), strict=True))


UNUSUAL: dict[str, dict[str, Any]] = {
    GELU.api: {"a": 5, "b": 7, "c": 11},
    GELU_V2.api: {"a": 5, "b": 7, "c": 11},
    SMOOTH_L1_LOSS.api: {"a": 5, "b": 7, "c": 11},
    SMOOTH_L1.api: {"a": 5, "b": 7, "c": 11},
    LAYER_NORM.api: {"B": 5, "S": 7, "H": 11},
    MOE.api: {"T": 11, "K": 3, "H": 7, "R": 31},
    NSA.api: {"T": 112, "N": 3},
    NSA_FORWARD.api: {"T": 112, "N": 3, "ends": [112]},
    PERMUTE.api: {"N": 11, "K": 3, "H": 7},
    UNPERMUTE.api: {"T": 11, "K": 3, "H": 7, "R": 31},
    UNPERMUTE_GRAD.api: {"T": 11, "K": 3, "H": 7, "R": 31},
    **{norm.api: {"B": 5, "S": 7, "H": 11} for norm in NORMS},
}


@by_operator
@by_dtype
def test_nothing_of_a_call_is_kept(fact: Fact, kind: str) -> None:
    """What is remembered of a call, so that the next one like it is quick, holds none of its arrays."""
    call = sample(fact, kind, **UNUSUAL[fact.api])
    for repeat in range(4):
        views = {name: array[...] for name, array in call.inputs.items()}
        outs = [output[...] for output in call.outputs()]
        alive = [weakref.ref(array) for array in (*views.values(), *outs)]
        call.python(out=passed(outs), **views)
        results = call.results(**views)
        alive += [weakref.ref(result) for result in results]
        del views, outs, results
        gc.collect()
        assert not [reference for reference in alive if reference() is not None], f"call {repeat}"


@by_operator
def test_calls_from_many_threads_do_not_mix(fact: Fact) -> None:
    import threading

    calls = [sample(fact, seed=seed) for seed in range(8)]
    expected = [call.results() for call in calls]
    wrong: list[int] = []
    barrier = threading.Barrier(len(calls))

    def work(i: int) -> None:
        barrier.wait()
        for _ in range(30):
            if not all(map(same_bits, calls[i].results(), expected[i])):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@by_operator
def test_the_product_of_one_call_does_not_stay_in_force(fact: Fact) -> None:
    from anycann import products

    before = products.current()
    sample(fact).python()
    getattr(anycann, fact.function)(**sample(fact).named(), product=next(iter(fact.products)))
    assert products.current() is before


@by_operator
def test_any_order_of_calls_gives_the_same_answers(fact: Fact) -> None:
    """Calls that look alike, good and bad, one after the other: what is remembered of one never decides another."""
    good: list[Callable[[], Any]] = []
    bad: list[tuple[Callable[[], Any], int]] = []
    others = next(other for other in SERIES if other.name not in fact.products)

    def variant(call: Sample, **changed: Any) -> Callable[[], Any]:
        return lambda: call.results(**changed)

    for kind, seed in itertools.product(("float16", "float32", "bfloat16"), range(2)):
        call = sample(fact, kind, seed)
        good += [variant(call), variant(call, **{name: spread(array) for name, array in call.inputs.items()})]
        good += [variant(call, **{name: read_only(array) for name, array in call.inputs.items()})]
        good += [variant(sample(fact, kind, seed, **UNUSUAL[fact.api]))]
        good += [lambda call=call: listed(call.python(out=passed([spread(output) for output in call.outputs()])))]
        good += [lambda call=call: listed(call.python(out=passed(call.outputs())))]
        shared, out, _ = overlapping(call, 0, 1)

        def overlapped(call: Sample = call, shared: Any = shared, out: Any = out) -> Any:
            shared[...] = call.inputs[fact.inputs[0]]
            return listed(call.python(out=passed([out, *call.outputs()[1:]]), **{fact.inputs[0]: shared}))

        good += [overlapped]
        first = call.inputs[fact.inputs[0]]
        locked = [read_only(output) for output in call.outputs()]
        integers = first.view(np.int16 if first.itemsize == 2 else np.int32)
        for wrong in (first.astype(np.float64), integers, first[(..., *(None,) * 9)]):
            bad += [(lambda call=call, wrong=wrong: call.python(**{fact.inputs[0]: wrong}), 161002)]
        bad += [(lambda call=call, locked=locked: call.python(out=passed(locked)), 161002)]
        elsewhere = 161002 if kind == "bfloat16" and not others.bf16 else 561003
        bad += [(lambda call=call: getattr(anycann, fact.function)(**call.named(), product=others.name), elsewhere)]
        bad += [(lambda call=call: call.python(**{fact.inputs[0]: None}), 161001)]
    expected = [[np.ascontiguousarray(result) for result in one()] for one in good]
    choose, refusals = random.Random(fact.api), 0
    for _ in range(60):
        which = choose.randrange(len(good))
        for _ in range(choose.choice((1, 2, 4))):  # the third call in a row takes the shortest way
            results = [np.ascontiguousarray(result) for result in good[which]()]
            assert all(map(same_bits, results, expected[which])), which
            if choose.random() < 0.5:
                call_it, code = choose.choice(bad)
                with pytest.raises(anycann.AclnnError) as refused:
                    call_it()
                assert refused.value.status == code
                refusals += 1
    assert refusals


@pytest.mark.parametrize("fact", TWO_PHASE, ids=lambda fact: fact.api)
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_torch_tensors_and_exporters_go_through_both_phases(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    expected = call.results()
    for _ in range(2):
        tensors = {name: to_torch(array) for name, array in call.inputs.items()}
        outs = [to_torch(output) for output in call.outputs()]
        call.two_phase(outs, **tensors)
        assert all(same_bits(from_torch(out), result) for out, result in zip(outs, expected, strict=True))
        described = {
            name: aclnn.create_tensor(tuple(tensor.shape), tensor.dtype, tensor.stride(), data=tensor) for name, tensor in tensors.items()
        }
        outs = [to_torch(output) for output in call.outputs()]
        call.two_phase([aclnn.create_tensor(tuple(out.shape), out.dtype, data=out) for out in outs], **described)
        assert all(same_bits(from_torch(out), result) for out, result in zip(outs, expected, strict=True))
        exported = [Exporter(output) for output in call.outputs()]
        call.two_phase(exported, **{name: Exporter(array) for name, array in call.inputs.items()})
        assert all(map(same_bits, (out.array for out in exported), expected))


@pytest.mark.parametrize("fact", [GELU, SMOOTH_L1], ids=lambda fact: fact.api)
def test_a_result_that_no_memory_holds_is_an_error_and_no_crash(fact: Fact) -> None:
    one = np.ones((1, 1), np.float32)
    tall, wide = np.broadcast_to(one, (2**31, 1)), np.broadcast_to(one, (1, 2**33))
    inputs: dict[str, Any] = dict.fromkeys(fact.inputs, tall) | {fact.inputs[1]: wide}
    call = sample(fact, "float32")
    with pytest.raises((MemoryError, ValueError)):
        call.python(**inputs)
    with pytest.raises(anycann.AclnnError) as refused:
        call.python(out=np.zeros((2, 2), np.float32), **inputs)
    assert refused.value.status == 161002


def test_large_results_begin_at_a_cache_line_and_use_memory_again() -> None:
    anycann.release_buffers()
    x = np.zeros((1024, 1024), np.float32)
    first = anycann.gelu_backward_v2(x, x)
    place = first.__array_interface__["data"][0]
    assert place % 64 == 0
    part = first[5:]
    del first
    second = anycann.gelu_backward_v2(x + 1, x)
    assert second.__array_interface__["data"][0] != place
    assert not part.any()
    del part
    assert anycann.gelu_backward_v2(x, x).__array_interface__["data"][0] == place
    anycann.release_buffers()
