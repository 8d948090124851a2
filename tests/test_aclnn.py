"""The two-phase interface: what phase 1 captures, what phase 2 asks, how long executors live, and when results are there."""

import copy
import gc
import inspect
import math
import pickle
import re
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anycann
from anycann import aclnn, ops
from contract_calls import TWO_PHASE, home, numpy_dtype, same_bits, sample
from contract_facts import ACL_DTYPES, ACL_NAMES, FACTS, FORMATS, GELU, ITEMSIZE, MOE, NOT_IN_NUMPY, NSA, SMOOTH_L1, Fact

by_operator = pytest.mark.parametrize("fact", TWO_PHASE, ids=lambda fact: fact.api)
NEEDED = 1000  # bytes of workspace that the kernel of `recorder` asks for


def test_the_text_of_a_descriptor_does_not_show_its_elements() -> None:
    assert "5.5" not in repr(aclnn.create_tensor((1,), "float32", data=np.array([5.5], np.float32)))


def test_missing_arguments_are_named_with_the_function() -> None:
    with pytest.raises(TypeError, match=r"^aclnnGeluV2GetWorkspaceSize: missing a required argument: 'y'$"):
        aclnn.aclnnGeluV2GetWorkspaceSize(np.zeros(3, np.float32), 0)


def refused(code: int, call: Callable[[], object], *words: str) -> None:
    """The call must be refused with this code, in a message that has these words and says what came."""
    with pytest.raises(anycann.AclnnError) as caught:
        call()
    assert caught.value.status == code, caught.value
    for word in (*words, "got", str(code)):
        assert word in str(caught.value), caught.value


class Recorder:
    """A kernel that writes nothing, notes what it is called with and may wait."""

    def __init__(self) -> None:
        self.runs: list[tuple[list[int], int]] = []
        self.gate = threading.Event()
        self.gate.set()
        self.planned = 0

    def plan(self, call: Any) -> tuple[int, Callable[[Sequence[int], int], None]]:
        self.planned += 1
        return NEEDED, self.launch

    def launch(self, addresses: Sequence[int], workspace: int) -> None:
        assert self.gate.wait(30)
        self.runs.append((list(addresses), workspace))


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorder]:
    """In place of every operator's kernels: one that needs workspace."""
    kernel = Recorder()
    for operator in ops.OPERATORS:
        module = types.ModuleType(f"{operator.package}.cpu")
        vars(module)["plan"] = kernel.plan
        monkeypatch.setattr(operator, "_modules", {"cpu": module})
        monkeypatch.setattr(operator, "_known", {})
        monkeypatch.setattr(operator, "_recent", {})
        monkeypatch.setattr(operator, "_latest", None)
    yield kernel
    kernel.gate.set()


def address(array: Any) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


@by_operator
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_both_phases_compute_what_the_python_function_computes(fact: Fact, kind: str) -> None:
    call = sample(fact, kind)
    outputs = call.outputs()
    size, executor = call.phase_one(outputs)
    assert isinstance(size, int)
    assert size >= 0
    assert executor.workspace_size == size
    assert all(map(same_bits, outputs, call.outputs())), "phase 1 wrote"
    call.phase_two(size, executor)
    assert all(map(same_bits, outputs, call.results()))
    assert all(np.isfinite(np.float32(output)).all() for output in outputs)


@by_operator
def test_phase_one_takes_the_parameters_of_the_prototype_by_position_and_by_name(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    values = {**call.inputs, **call.attributes, **dict(zip(fact.outputs, call.outputs(), strict=True))}
    function = getattr(aclnn, f"{fact.api}GetWorkspaceSize")
    assert [name for name in inspect.signature(function).parameters if name != "product"] == list(fact.parameters)
    assert function(**values, product=home(fact).name)[0] >= NEEDED
    in_order = [values[name] for name in fact.parameters]
    for wrong in (in_order[:-1], [*in_order, None], []):
        with pytest.raises(TypeError):
            function(*wrong)
    with pytest.raises(TypeError):
        function(*in_order, **{fact.parameters[0]: None})
    with pytest.raises(TypeError):
        function(*in_order[:-1], no_such_parameter=1)


@by_operator
def test_an_executor_is_needed_and_must_be_one_of_this_operator(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    workspace = aclnn.empty_workspace(size)
    run = getattr(aclnn, fact.api)
    refused(161001, lambda: run(workspace, size, None, None), "executor")
    for foreign in (0, 1234, "executor", object(), recorder):
        with pytest.raises(TypeError, match="executor"):
            run(workspace, size, foreign, None)
    other = next(other for other in TWO_PHASE if other is not fact)
    refused(161002, lambda: getattr(aclnn, other.api)(workspace, size, executor, None), "executor", fact.api)
    with pytest.raises(TypeError, match="stream"):
        run(workspace, size, executor, object())
    assert not recorder.runs


@by_operator
def test_the_workspace_must_be_there_and_large_enough(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    assert size >= NEEDED
    run, workspace = getattr(aclnn, fact.api), aclnn.empty_workspace(size)
    locked = aclnn.empty_workspace(size)
    locked.flags.writeable = False
    refused(161001, lambda: run(None, size, executor, None), "workspace", str(size))
    refused(161001, lambda: run(0, size, executor, None), "workspace")
    refused(161001, lambda: run(None, 0, executor, None), "workspace")
    refused(161002, lambda: run(workspace, size - 1, executor, None), "workspaceSize", str(size))
    refused(161002, lambda: run(workspace, 0, executor, None), "workspaceSize")
    refused(161002, lambda: run(workspace, -1, executor, None), "workspaceSize")
    refused(161002, lambda: run(workspace[1:], size, executor, None), "workspace", str(size - 1))
    refused(161002, lambda: run(locked, size, executor, None), "workspace")
    with pytest.raises(TypeError, match="workspace"):
        run("memory", size, executor, None)
    assert not recorder.runs
    run(workspace, size, executor, None)  # what was refused did not use the executor up
    assert len(recorder.runs) == 1


class Exporter:
    """Memory behind the array interface."""

    def __init__(self, array: Any) -> None:
        self.array, self.__array_interface__ = array, array.__array_interface__


@by_operator
def test_arrays_of_python_objects_are_no_memory(fact: Fact, recorder: Recorder) -> None:
    """Numbers written over references would end the process when these are dropped."""
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    for kind in (object, [("a", np.int64), ("b", object)]):
        objects = np.empty(size, kind)
        for held in (objects, Exporter(objects)):
            refused(161002, lambda held=held: call.phase_two(size, executor, workspace=held), "workspace", "Python objects")
            refused(161002, lambda held=held: executor.set_output_address(0, held), fact.outputs[0], "Python objects")
            refused(161002, lambda held=held: aclnn.create_tensor((2,), "float16", data=held), "data", "Python objects")
    assert not recorder.runs
    call.phase_two(size, executor, workspace=np.empty(size, [("a", np.int64), ("b", np.float32)]))
    assert len(recorder.runs) == 1


@by_operator
@pytest.mark.parametrize("shift", [0, 1, 63])
def test_the_kernel_gets_aligned_workspace_inside_what_was_passed(fact: Fact, recorder: Recorder, shift: int) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    room = aclnn.empty_workspace(size + 64)
    part = room[shift : shift + size]
    call.phase_two(size, executor, workspace=part)
    [(_, start)] = recorder.runs
    assert start % 64 == 0
    assert address(part) <= start <= start + NEEDED <= address(part) + size


@by_operator
def test_more_workspace_than_needed_is_fine_and_so_is_an_address(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    executor.set_repeatable()
    room = np.zeros(size + 500, np.uint8)
    run = getattr(aclnn, fact.api)
    run(room, size + 500, executor, None)
    run(room.view("u4") if room.size % 4 == 0 else room, size, executor, None)
    run(address(room), size, executor, None)
    run(np.int64(address(room)), np.int64(size), executor, None)
    assert len(recorder.runs) == 4


@by_operator
def test_an_executor_runs_once(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    call.phase_two(size, executor)
    refused(161002, lambda: call.phase_two(size, executor), "executor", "set_repeatable")
    refused(161002, executor.set_repeatable, "executor")
    refused(161002, lambda: executor.set_input_address(0, 0), "executor")
    assert len(recorder.runs) == 1


@by_operator
def test_a_repeatable_executor_runs_until_it_is_destroyed(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    executor.set_repeatable()
    for _ in range(5):
        call.phase_two(size, executor)
    assert len(recorder.runs) == 5
    assert all(run[0] == recorder.runs[0][0] for run in recorder.runs)
    executor.destroy()
    refused(161002, lambda: call.phase_two(size, executor), "executor", "destroyed")
    refused(161002, executor.destroy, "executor")
    refused(161002, lambda: executor.set_output_address(0, 0), "executor")
    assert len(recorder.runs) == 5


@by_operator
def test_an_executor_that_never_runs_can_be_destroyed(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    size, executor = call.phase_one(call.outputs())
    executor.destroy()
    refused(161002, lambda: call.phase_two(size, executor), "executor")
    assert not recorder.runs


@by_operator
def test_concurrent_second_phases_of_one_executor_run_once(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    for _ in range(20):
        recorder.runs.clear()
        size, executor = call.phase_one(call.outputs())
        barrier, codes = threading.Barrier(4), []

        def attempt(size: int = size, executor: Any = executor, barrier: Any = barrier, codes: Any = codes) -> None:
            barrier.wait()
            try:
                call.phase_two(size, executor)
                codes.append(0)
            except anycann.AclnnError as error:
                codes.append(error.status)

        threads = [threading.Thread(target=attempt) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(codes) == [0, 161002, 161002, 161002]
        assert len(recorder.runs) == 1


@by_operator
def test_addresses_can_be_changed_between_runs(fact: Fact) -> None:
    first, second = sample(fact, seed=1), sample(fact, seed=2)
    outputs, others = first.outputs(), first.outputs()
    size, executor = first.phase_one(outputs)
    executor.set_repeatable()
    first.phase_two(size, executor)
    for i, name in enumerate(fact.inputs):
        executor.set_input_address(i, second.inputs[name] if i % 2 else address(second.inputs[name]))
    for i, output in enumerate(others):
        executor.set_output_address(i, np.int64(address(output)) if i % 2 else output)
    kept = [output.copy() for output in outputs]
    first.phase_two(size, executor)
    assert all(map(same_bits, outputs, kept))
    assert all(map(same_bits, kept, first.results()))
    assert all(map(same_bits, others, second.results()))
    executor.destroy()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=lambda copied: copied.__name__)
def test_handles_are_not_copied(copied: Any) -> None:
    """What a copy holds would be the addresses of memory that others own."""
    call = sample(FACTS[0])
    _, executor = call.phase_one(call.outputs())
    descriptor = aclnn.create_tensor((3,), "float32", data=np.zeros(3, np.float32))
    for handle in (executor, descriptor, aclnn.Stream(), aclnn.Event()):
        with pytest.raises(TypeError, match=f"{type(handle).__name__} cannot be copied or pickled"):
            copied(handle)


@by_operator
def test_arrays_that_lie_backwards_can_be_changed_between_runs(fact: Fact) -> None:
    def backwards(array: Any) -> Any:
        every = (slice(None, None, -1),) * array.ndim
        return array[every].copy()[every]

    first, second = sample(fact, seed=1), sample(fact, seed=2)
    outputs, others = ([backwards(output) for output in first.outputs()] for _ in range(2))
    size, executor = first.phase_one(outputs, **{name: backwards(array) for name, array in first.inputs.items()})
    executor.set_repeatable()
    first.phase_two(size, executor)
    for i, name in enumerate(fact.inputs):
        executor.set_input_address(i, backwards(second.inputs[name]))
    for i, output in enumerate(others):
        executor.set_output_address(i, output)
    first.phase_two(size, executor)
    assert all(map(same_bits, map(np.ascontiguousarray, outputs), first.results()))
    assert all(map(same_bits, map(np.ascontiguousarray, others), second.results()))
    for i, name in enumerate(fact.inputs):
        refused(561103, lambda i=i, name=name: executor.set_input_address(i, second.inputs[name].reshape(-1)[1:]), name)


@by_operator
def test_addresses_are_those_of_element_zero_of_the_storage(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    offset = 7
    described = {}
    for name in fact.tensors:
        shape, kind = call.shapes[name], fact.fixed.get(name, "float16")
        room = np.zeros(math.prod(shape) + offset, numpy_dtype(kind))
        described[name] = aclnn.create_tensor(shape, kind, None, offset, "ND", room.shape, room)
    size, executor = call.phase_one([described[name] for name in fact.outputs], **{name: described[name] for name in fact.inputs})
    executor.set_repeatable()
    call.phase_two(size, executor)
    moved = [np.zeros(math.prod(call.shapes[name]) + offset, numpy_dtype(fact.fixed.get(name, "float16"))) for name in fact.tensors]
    for i in range(len(fact.inputs)):
        executor.set_input_address(i, moved[i])
    for i in range(len(fact.outputs)):
        executor.set_output_address(i, moved[len(fact.inputs) + i])
    call.phase_two(size, executor)
    before, after = (run[0] for run in recorder.runs)
    assert before == [described[name].address + offset * described[name].dtype.itemsize for name in fact.tensors]
    assert after == [address(array) + offset * array.itemsize for array in moved]
    for i, array in enumerate(moved[: len(fact.inputs)]):
        refused(561103, lambda i=i, array=array: executor.set_input_address(i, array[1:]), fact.inputs[i])
    for i, array in enumerate(moved[len(fact.inputs) :]):
        refused(561103, lambda i=i, array=array: executor.set_output_address(i, array[1:]), fact.outputs[i])
    call.phase_two(size, executor)
    assert recorder.runs[2][0] == after, "a refused address was set"


@by_operator
def test_the_index_of_an_address_is_checked(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    _, executor = call.phase_one(call.outputs())
    for index in (-1, len(fact.inputs), 2**63, -(2**63) - 1):
        refused(161002, lambda index=index: executor.set_input_address(index, 64), "index")
    for index in (-1, len(fact.outputs), 2**63):
        refused(161002, lambda index=index: executor.set_output_address(index, 64), "index")
    refused(161002, lambda: executor.set_input_address(10**5000, 64), "index", "an integer of 16610 bits")
    refused(161002, lambda: executor.set_input_address(0, 10**5000), fact.inputs[0], "an integer of 16610 bits")
    for index in ("0", None, 0.0):
        with pytest.raises(TypeError):
            executor.set_input_address(index, 64)
    with pytest.raises(TypeError):
        executor.set_input_address(0, "memory")


@by_operator
def test_an_output_address_must_be_writable(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    outputs = call.outputs()
    _, executor = call.phase_one(outputs)
    locked = outputs[0].copy()
    locked.flags.writeable = False
    refused(161002, lambda: executor.set_output_address(0, locked), fact.outputs[0])
    locked_input = call.inputs[fact.inputs[0]].copy()
    locked_input.flags.writeable = False
    executor.set_input_address(0, locked_input)


@by_operator
@pytest.mark.parametrize("null", [None, 0])
def test_null_data_is_accepted_in_phase_one_and_refused_in_phase_two(fact: Fact, recorder: Recorder, null: Any) -> None:
    call = sample(fact)
    empty = {name: aclnn.create_tensor(call.shapes[name], fact.fixed.get(name, "float16"), data=null) for name in fact.tensors}
    size, executor = call.phase_one([empty[name] for name in fact.outputs], **{name: empty[name] for name in fact.inputs})
    outputs = call.outputs()
    refused(161001, lambda: call.phase_two(size, executor), fact.inputs[0])
    for i, name in enumerate(fact.inputs):
        executor.set_input_address(i, call.inputs[name])
    refused(161001, lambda: call.phase_two(size, executor), fact.outputs[0])
    for i, output in enumerate(outputs):
        executor.set_output_address(i, output)
    assert not recorder.runs
    call.phase_two(size, executor)
    assert recorder.runs[0][0] == [address(array) for array in (*call.inputs.values(), *outputs)]


@by_operator
@pytest.mark.parametrize("null", [None, 0])
def test_an_address_can_be_set_to_null_and_is_refused_in_phase_two(fact: Fact, recorder: Recorder, null: Any) -> None:
    call = sample(fact)
    outputs = call.outputs()
    size, executor = call.phase_one(outputs)
    for setter, name, array in (
        (executor.set_input_address, fact.inputs[0], call.inputs[fact.inputs[0]]),
        (executor.set_output_address, fact.outputs[0], outputs[0]),
    ):
        setter(0, null)
        refused(161001, lambda: call.phase_two(size, executor), name)
        setter(0, array)
    assert not recorder.runs
    call.phase_two(size, executor)
    assert len(recorder.runs) == 1


@by_operator
def test_an_address_must_be_one(fact: Fact, recorder: Recorder) -> None:
    call = sample(fact)
    _, executor = call.phase_one(call.outputs())
    for wrong in (-1, 2**64, 2**70):
        refused(161002, lambda wrong=wrong: executor.set_input_address(0, wrong), fact.inputs[0])
        refused(161002, lambda wrong=wrong: aclnn.create_tensor((2,), "float16", data=wrong), "data")


@by_operator
def test_tensors_may_be_destroyed_between_the_phases(fact: Fact) -> None:
    call = sample(fact)
    expected, outputs = call.results(), call.outputs()
    views = [output[...] for output in outputs]
    described = {
        name: aclnn.create_tensor(array.shape, array.dtype, data=array.copy()) for name, array in call.inputs.items()
    }  # the copies live in the descriptors alone
    size, executor = call.phase_one(views, **described)
    alive = [weakref.ref(view) for view in views]
    del views, described
    gc.collect()
    np.random.default_rng(0).normal(size=100_000)  # memory that was given back would be used again
    call.phase_two(size, executor)
    assert all(map(same_bits, outputs, expected))
    gc.collect()
    assert not any(reference() is not None for reference in alive), "a finished executor keeps tensors alive"


@by_operator
def test_changing_a_list_after_phase_one_changes_nothing(fact: Fact) -> None:
    if "actSeqLenOptional" not in fact.parameters:
        return
    call = sample(fact, T=96, ends=[48, 96])
    expected, outputs = call.results(), call.outputs()
    size, executor = call.phase_one(outputs)
    call.attributes["actSeqLenOptional"][0] = 96
    call.phase_two(size, executor)
    assert all(map(same_bits, outputs, expected))


def flipped(array: Any) -> tuple[Any, dict[str, Any]]:
    """A descriptor's arguments for the same values stored backwards, with gaps and an offset."""
    array = np.asarray(array)
    room = np.zeros(2 * array.size + 5, array.dtype)
    room[3 : 3 + 2 * array.size : 2] = array.ravel()[::-1]
    strides = [-2 * math.prod(array.shape[axis + 1 :]) for axis in range(array.ndim)]
    return room, {"strides": strides, "offset": 3 + 2 * (array.size - 1), "storage_dims": room.shape, "data": room}


@by_operator
def test_descriptors_with_offsets_and_negative_strides(fact: Fact) -> None:
    call = sample(fact)
    expected = call.results()
    described = {name: aclnn.create_tensor(array.shape, array.dtype, **flipped(array)[1]) for name, array in call.inputs.items()}
    made = [flipped(np.zeros(output.shape, output.dtype)) for output in call.outputs()]
    rooms = [room for room, _ in made]
    for room in rooms:
        room.view(np.uint8)[:] = 0xA5
    call.two_phase(
        [aclnn.create_tensor(result.shape, result.dtype, **how) for result, (_, how) in zip(expected, made, strict=True)], **described
    )
    for result, room in zip(expected, rooms, strict=True):
        inside = slice(3, 3 + 2 * result.size, 2)
        assert same_bits(room[inside][::-1].reshape(result.shape).copy(), result)
        outside = np.ones(room.size, bool)
        outside[inside] = False
        assert np.all(room[outside].view(np.uint8) == 0xA5), "wrote between the elements of an output"


@by_operator
def test_inputs_may_have_stride_zero(fact: Fact) -> None:
    call = sample(fact)
    flat = {name: array.ravel()[:1] for name, array in call.inputs.items()}
    expected = call.results(**{name: np.full(call.shapes[name], one[0], one.dtype) for name, one in flat.items()})
    described = {}
    for name, one in flat.items():
        strides = [0] * len(call.shapes[name])
        described[name] = aclnn.create_tensor(call.shapes[name], one.dtype, strides, storage_dims=(1,), data=one)
    outputs = call.outputs()
    call.two_phase(outputs, **described)
    assert all(map(same_bits, outputs, expected))


@by_operator
def test_tensors_of_rank_zero_are_one_element(fact: Fact) -> None:
    if not all(0 in ranks for ranks in fact.ranks.values()) or "normalizedShape" in fact.parameters:
        return
    call = sample(fact, "float32", a=1, b=1, c=1)
    results = call.outputs()
    outputs = [aclnn.create_tensor((), "float32", data=output) for output in results]
    call.two_phase(outputs, **{name: aclnn.create_tensor((), "float32", data=array) for name, array in call.inputs.items()})
    assert [result.ravel().tolist() for result in results] == [result.ravel().tolist() for result in call.results()]


@by_operator
def test_a_storage_may_be_larger_than_the_view_and_of_other_rank(fact: Fact) -> None:
    call = sample(fact)
    outputs = call.outputs()
    described = {}
    for name, array in call.inputs.items():
        room = np.concatenate([array.ravel(), array.ravel()])
        described[name] = aclnn.create_tensor(array.shape, array.dtype, None, 0, "ND", (2, array.size), room)
    call.two_phase(outputs, **described)
    assert all(map(same_bits, outputs, call.results()))


@by_operator
def test_results_are_there_after_synchronize_and_phase_two_does_not_wait(fact: Fact, recorder: Recorder) -> None:
    call, stream = sample(fact), aclnn.Stream()
    recorder.gate.clear()
    size, executor = call.phase_one(call.outputs())
    call.phase_two(size, executor, stream)
    assert not stream.query()
    assert not recorder.runs
    recorder.gate.set()
    stream.synchronize(30_000)
    assert stream.query()
    assert len(recorder.runs) == 1


@by_operator
def test_results_of_streams_are_those_of_the_default_stream(fact: Fact) -> None:
    streams = [aclnn.Stream() for _ in range(3)]
    calls = [sample(fact, seed=seed) for seed in range(6)]
    outputs = [call.outputs() for call in calls]
    for i, (call, results) in enumerate(zip(calls, outputs, strict=True)):
        call.two_phase(results, streams[i % 3])
    for stream in streams:
        stream.synchronize()
    for call, results in zip(calls, outputs, strict=True):
        assert all(map(same_bits, results, call.results()))


@by_operator
def test_everything_of_a_call_may_be_dropped_while_it_waits_in_a_stream(fact: Fact) -> None:
    call, stream, gate = sample(fact), aclnn.Stream(), threading.Event()
    expected, outputs = call.results(), call.outputs()
    stream.submit(lambda: gate.wait(30) and None)
    copies = {name: array.copy() for name, array in call.inputs.items()}
    size, executor = call.phase_one(outputs, **copies)
    workspace = aclnn.empty_workspace(size) if size else None
    call.phase_two(size, executor, stream, workspace)
    del copies, executor, workspace
    gc.collect()
    np.random.default_rng(0).normal(size=100_000)
    gate.set()
    stream.synchronize(30_000)
    assert all(map(same_bits, outputs, expected))


@by_operator
def test_an_address_that_is_changed_while_a_run_waits_does_not_change_that_run(fact: Fact, recorder: Recorder) -> None:
    call, stream = sample(fact), aclnn.Stream()
    recorder.gate.clear()
    outputs, other = call.outputs(), call.outputs()
    size, executor = call.phase_one(outputs)
    executor.set_repeatable()
    call.phase_two(size, executor, stream)
    executor.set_output_address(0, other[0])
    call.phase_two(size, executor, stream)
    executor.destroy()
    recorder.gate.set()
    stream.synchronize(30_000)
    places = [run[0][len(fact.inputs)] for run in recorder.runs]
    assert places == [address(outputs[0]), address(other[0])]


def empty_sizes(fact: Fact) -> dict[str, Any]:
    return {GELU.api: {"a": 0}, SMOOTH_L1.api: {"c": 0}, MOE.api: {"T": 0}}.get(fact.api, {})


@by_operator
def test_empty_outputs_need_no_workspace_and_compute_nothing(fact: Fact, recorder: Recorder) -> None:
    changed = empty_sizes(fact)
    if not changed:
        return
    call = sample(fact, **changed)
    outputs = call.outputs()
    assert all(output.size == 0 for output in outputs)
    size, executor = call.phase_one(outputs)
    assert size == 0
    getattr(aclnn, fact.api)(None, 0, executor, None)
    described = {name: aclnn.create_tensor(array.shape, array.dtype, data=None) for name, array in call.inputs.items() if array.size == 0}
    empty = [aclnn.create_tensor(output.shape, output.dtype, data=None) for output in outputs]
    size, executor = call.phase_one(empty, **described)
    assert size == 0
    getattr(aclnn, fact.api)(None, 0, executor, None)
    assert not recorder.runs
    assert not recorder.planned


def test_an_empty_input_with_a_non_empty_output_gives_the_value_of_the_formula() -> None:
    call = sample(MOE, "float32", R=0)
    call.inputs["sortedIndices"][:] = [0, 1, -1, 5, 0, 2**31 - 1]
    outputs = call.outputs()
    call.two_phase(outputs)
    assert outputs[0].shape == (3, 5)
    assert not outputs[0].any()


STRICT: tuple[tuple[Fact, str, dict[str, Any], int], ...] = (
    (NSA, "float32", {}, 161002),
    (NSA, "float16", {"W": 32, "s": 32}, 561002),
    (NSA, "bfloat16", {"W": 16, "s": 16}, 561002),
    (NSA, "float16", {"T": 31}, 161002),
    (NSA, "float16", {"ends": [20, 40, 60, 80]}, 161002),
)


@pytest.mark.parametrize(("fact", "kind", "sizes", "code"), STRICT)
def test_what_only_the_python_function_offers_is_refused_here(fact: Fact, kind: str, sizes: dict[str, Any], code: int) -> None:
    call = sample(fact, kind, **sizes)
    accepted = call.results()
    assert [result.shape for result in accepted] == [call.shapes[name] for name in fact.outputs]
    assert all(np.isfinite(np.float32(result)).all() for result in accepted)
    for _ in range(2):  # also after the Python function made a plan of the very same call
        outputs = call.outputs()
        refused(code, lambda outputs=outputs: call.phase_one(outputs))
        call.python(out=tuple(outputs))
        assert all(map(same_bits, outputs, accepted))


def test_gradients_of_sequences_that_are_all_too_short_are_zero() -> None:
    for sizes in ({"T": 31}, {"ends": [20, 40, 60, 80]}):
        call = sample(NSA, "float16", **sizes)
        assert not any(np.float32(result).any() for result in call.results())


@pytest.mark.parametrize("value", [0.1, np.float64(0.1), np.float32(0.1), np.float16(0.1), 1, True, np.int8(2), 10**400])
def test_beta_becomes_the_nearest_float32(value: Any) -> None:
    call = sample(SMOOTH_L1, "float32")
    nearest = math.inf if isinstance(value, int) and value > 2 else float(np.float32(float(value)))
    by_value, by_nearest = call.outputs(), call.outputs()
    call.two_phase(by_value, beta=value)
    call.two_phase(by_nearest, beta=nearest)
    assert all(map(same_bits, by_value, by_nearest))


def test_attributes_convert_from_numpy_and_bytes() -> None:
    call = sample(MOE)
    call.two_phase(call.outputs(), numTopk=np.int64(2), paddedModeOptional=np.False_)
    call.two_phase(call.outputs(), numTopk=np.uint8(2), paddedModeOptional=np.int64(0))
    call = sample(GELU)
    by_text, by_bytes = call.outputs(), call.outputs()
    call.two_phase(by_text, approximate="tanh")
    call.two_phase(by_bytes, approximate=b"tanh")
    assert all(map(same_bits, by_text, by_bytes))
    call = sample(NSA)
    plain, converted = call.outputs(), call.outputs()
    call.two_phase(plain)
    call.two_phase(converted, actSeqLenOptional=np.array([0, 80]), layoutOptional=None, compressBlockSize=np.int32(32))
    assert all(map(same_bits, plain, converted))


REPEATED: tuple[tuple[Fact, str, Any, Any], ...] = (
    (NSA, "actSeqLenOptional", [80], [80.0]),
    (NSA, "actSeqLenOptional", (0, 80), (0, 80.0)),
    (NSA, "actSeqLenOptional", [80], ["80"]),
    (NSA, "compressStride", 16, 16.0),
    (MOE, "numTopk", 2, 2.0),
    (MOE, "paddedModeOptional", False, 0.0),
    (MOE, "paddedModeOptional", 0, None),
    (SMOOTH_L1, "reduction", 1, 1.0),
)


@pytest.mark.parametrize(("fact", "name", "good", "bad"), REPEATED)
@pytest.mark.parametrize("door", ["python", "aclnn"])
def test_a_repeated_call_is_checked_like_the_first(fact: Fact, name: str, good: Any, bad: Any, door: str) -> None:
    call = sample(fact)

    def make(value: Any) -> object:
        return call.python(**{name: value}) if door == "python" else call.phase_one(call.outputs(), **{name: value})

    for _ in range(3):
        make(good)
        with pytest.raises(TypeError, match=name if door == "aclnn" else fact.python[name]):
            make(bad)


@by_operator
def test_plans_of_repeated_calls_do_not_confuse_layouts_products_and_memory(fact: Fact) -> None:
    for seed in range(3):
        call = sample(fact, seed=seed)
        expected = call.results()
        for _ in range(2):
            outputs = call.outputs()
            call.two_phase(outputs)
            assert all(map(same_bits, outputs, expected))
            locked = call.outputs()
            locked[0].flags.writeable = False
            refused(161002, lambda locked=locked, call=call: call.phase_one(locked), fact.outputs[0])
            backwards = [output[::-1] for output in call.outputs()]
            call.two_phase(backwards)
            assert all(map(same_bits, backwards, expected))
            columns = {name: np.asfortranarray(array) for name, array in call.inputs.items()}
            call.two_phase(outputs, **columns)
            assert all(map(same_bits, outputs, expected))


# create_tensor


@pytest.mark.parametrize("name", ACL_DTYPES)
def test_create_tensor_knows_a_dtype_by_all_its_names(name: str) -> None:
    spellings: list[Any] = [name, ACL_DTYPES[name], np.int64(ACL_DTYPES[name]), ACL_NAMES[name], f"ACL_{ACL_NAMES[name]}"]
    spellings += [] if name in NOT_IN_NUMPY else [numpy_dtype(name), numpy_dtype(name).type]
    for spelling in spellings:
        tensor = aclnn.create_tensor((2, 3), spelling)
        assert (tensor.dtype.name, tensor.dtype.acl, tensor.dtype.itemsize) == (name, ACL_DTYPES[name], ITEMSIZE[name])


@pytest.mark.parametrize(
    "wrong", ["float17", "ACL_", "", -1, 5, 13, 34, 37, 99, 2**40, "datetime64[s]", np.dtype("S3"), np.dtype(">f4"), object, None]
)
def test_create_tensor_refuses_other_dtypes(wrong: Any) -> None:
    refused(161002, lambda: aclnn.create_tensor((2,), wrong), "dtype")


@pytest.mark.parametrize(("name", "number"), FORMATS.items())
def test_create_tensor_knows_a_format_by_name_and_number(name: str, number: int) -> None:
    assert aclnn.create_tensor((1,), "float32", format=name).format == number
    assert aclnn.create_tensor((1,), "float32", format=number).format == number


@pytest.mark.parametrize("wrong", ["nd", "NDC", "", -2, 5, 1000, None])
def test_create_tensor_refuses_other_formats(wrong: Any) -> None:
    refused(161002, lambda: aclnn.create_tensor((1,), "float32", format=wrong), "format")


def test_create_tensor_checks_what_describes_the_view() -> None:
    data = np.zeros(6, np.float32)
    refused(161002, lambda: aclnn.create_tensor((2, -3), "float32"), "view_dims")
    refused(161002, lambda: aclnn.create_tensor((2, 3), "float32", storage_dims=(-6,)), "storage_dims")
    refused(561103, lambda: aclnn.create_tensor((2, 3), "float32", strides=(1,)), "strides")
    refused(561103, lambda: aclnn.create_tensor((2, 3), "float32", strides=(3, 1, 1)), "strides")
    refused(561103, lambda: aclnn.create_tensor((2, 3), "float32", storage_dims=(7,), data=data), "data")
    for wrong in (2**63, 2**64 + 2, 2**200):
        refused(161002, lambda wrong=wrong: aclnn.create_tensor((wrong,), "float32"), "view_dims")
        refused(161002, lambda wrong=wrong: aclnn.create_tensor((2,), "float32", storage_dims=(wrong,)), "storage_dims")
        refused(161002, lambda wrong=wrong: aclnn.create_tensor((2,), "float32", strides=(wrong,)), "strides")
        refused(161002, lambda wrong=wrong: aclnn.create_tensor((2,), "float32", offset=wrong), "offset")
    for wrong in (None, 2, "23", (2.0, 3), [None]):
        with pytest.raises(TypeError, match="view_dims"):
            aclnn.create_tensor(wrong, "float32")
    for wrong in (1.0, "0", None, [0]):
        with pytest.raises(TypeError, match="offset"):
            aclnn.create_tensor((2,), "float32", offset=wrong)
    for wrong in (1.5, "memory", [1.0, 2.0]):
        with pytest.raises(TypeError, match="data"):
            aclnn.create_tensor((2,), "float32", data=wrong)


def test_create_tensor_reads_an_array_as_it_lies() -> None:
    data = np.arange(12, dtype=np.float32)
    whole = aclnn.create_tensor((3, 4), "float32", data=data)
    assert (whole.address, whole.shape, whole.strides, whole.offset) == (address(data), (3, 4), (4, 1), 0)
    assert math.prod(whole.storage) == 12
    other = aclnn.create_tensor((2,), "float64", data=data)
    assert math.prod(other.storage) == 6
    number = aclnn.create_tensor((2,), "float32", data=np.int64(address(data)))
    assert (number.address, number.storage) == (address(data), (2,))
    locked = data.copy()
    locked.flags.writeable = False
    assert not aclnn.create_tensor((3,), "float32", data=locked).writable
    assert aclnn.create_tensor((3,), ml_dtypes.bfloat16, data=data).dtype.name == "bfloat16"


def test_create_tensor_keeps_its_array_alive() -> None:
    data = np.ones(4, np.float32)
    alive = weakref.ref(data)
    tensor = aclnn.create_tensor((4,), "float32", data=data)
    del data
    gc.collect()
    assert alive() is not None
    del tensor
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("size", [0, 1, 63, 64, 4096, 10_000_001])
def test_empty_workspace_has_the_size_asked_for_and_is_aligned(size: int) -> None:
    workspace = aclnn.empty_workspace(size)
    assert (workspace.nbytes, workspace.dtype, workspace.flags.writeable) == (size, np.dtype(np.uint8), True)
    assert size == 0 or address(workspace) % 64 == 0


def test_empty_workspace_refuses_what_is_no_size() -> None:
    with pytest.raises(ValueError, match="-1"):
        aclnn.empty_workspace(-1)
    for wrong in (None, 1.5, "16"):
        said = f"size of empty_workspace must be an int; got {wrong!r} of type {type(wrong).__name__}. Pass what GetWorkspaceSize"
        with pytest.raises(TypeError, match=f"^{re.escape(said)}"):
            aclnn.empty_workspace(wrong)


@by_operator
def test_an_overlapped_input_counts_as_copied_first(fact: Fact, recorder: Recorder) -> None:
    """Element-wise operators may write over their input exactly; every other overlap needs a copy of the input."""
    call = sample(fact)
    name, output = fact.inputs[0], fact.outputs[0]
    room = np.zeros(4 * (call.inputs[name].size + math.prod(call.shapes[output])), call.inputs[name].dtype)
    count = call.inputs[name].size
    overlapped = room[1 : 1 + count].reshape(call.inputs[name].shape)
    results = [room[: math.prod(call.shapes[output])].reshape(call.shapes[output]), *call.outputs()[1:]]
    size, executor = call.phase_one(results, **{name: overlapped})
    call.phase_two(size, executor)
    [(addresses, _)] = recorder.runs
    assert not address(room) <= addresses[0] < address(room) + room.nbytes, "the input was not copied"
    assert addresses[len(fact.inputs)] == address(room)


@by_operator
def test_outputs_may_lie_between_each_other_but_not_in_each_other(fact: Fact, recorder: Recorder) -> None:
    if len(fact.outputs) < 2 or set(fact.outputs) & set(fact.fixed):
        return
    call = sample(fact)
    others = call.outputs()[2:]
    room = np.zeros(2 * max(math.prod(call.shapes[name]) for name in fact.outputs), np.float16)

    def between(start: int, name: str) -> Any:
        shape = call.shapes[name]
        strides = [2 * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return aclnn.create_tensor(shape, "float16", strides, start, storage_dims=room.shape, data=room)

    size, executor = call.phase_one([between(0, fact.outputs[0]), between(1, fact.outputs[1]), *others])
    executor.set_output_address(0, room)
    executor.set_output_address(1, room)
    call.phase_two(size, executor)
    assert recorder.runs[0][0][len(fact.inputs) :][:2] == [address(room), address(room) + 2]
    refused(161002, lambda: call.phase_one([*(between(0, name) for name in fact.outputs[:2]), *others]), fact.outputs[1])
    size, executor = call.phase_one(call.outputs())
    executor.set_output_address(0, room)
    executor.set_output_address(1, room)
    refused(161002, lambda: call.phase_two(size, executor), "outputs")
    executor.set_output_address(1, room[room.size // 2 :])
    call.phase_two(size, executor)
    assert len(recorder.runs) == 2


ONE, MANY = np.ones(4, np.float32), aclnn.create_tensor((2**62,), "float32")
HUGE: dict[str, tuple[int, str, Callable[[], Any]]] = {  # descriptors need no memory in phase 1
    "elements": (161002, "gradOutput", lambda: gelu(aclnn.create_tensor((2**62,), "float32", (0,), 0, "ND", (4,), ONE), MANY)),
    "a stride": (561103, "gradOutput", lambda: gelu(aclnn.create_tensor((2,), "float32", (2**63 - 1,), 0, "ND", (2**63 - 1, 2)), ONE[:2])),
    "an offset": (561103, "gradOutput", lambda: gelu(aclnn.create_tensor((2,), "float32", (1,), 2**62, "ND", (2**63 - 1,)), ONE[:2])),
    "a mean": (161002, "self", lambda: mean(*2 * [aclnn.create_tensor((2**40, 2**40), "float32", (0, 0), 0, "ND", (4,), ONE)])),
    "a broadcast": (
        161002,
        "self",
        lambda: mean(*[aclnn.create_tensor(shape, "float32", (0, 0), 0, "ND", (4,), ONE) for shape in ((2**40, 1), (1, 2**40))]),
    ),
    "an output that may share memory": (
        161002,
        "gradInput",
        lambda: gelu(*[aclnn.create_tensor((2**20, 2**20), "float32", (2**30, 2**30 + 2**11), 0, "ND", (2**60,)) for _ in range(2)]),
    ),
}


def gelu(x: Any, out: Any) -> Any:
    return aclnn.aclnnGeluBackwardV2GetWorkspaceSize(x, x, "none", out)


def mean(x: Any, target: Any) -> Any:
    return aclnn.aclnnSmoothL1LossGetWorkspaceSize(x, target, 1, 1.0, np.zeros((), np.float32))


@pytest.mark.parametrize("name", HUGE)
def test_sizes_that_no_memory_has_are_refused(name: str) -> None:
    code, said, call = HUGE[name]
    refused(code, call, said)


def test_every_two_phase_operator_is_here_and_no_other() -> None:
    names = {name for name in dir(aclnn) if name.startswith("aclnn")}
    assert names == {name for fact in TWO_PHASE for name in (fact.api, f"{fact.api}GetWorkspaceSize")}
    assert not any(fact.api.startswith("aclnn") for fact in FACTS if fact not in TWO_PHASE)
    assert names <= set(aclnn.__all__)
