"""The two phases by handle: what phase 1 captures, what phase 2 asks, how long executors live, and where tensors must lie."""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from device_calls import (
    SPECS,
    TWO_PHASE,
    C,
    Gate,
    Gelu,
    address,
    download,
    in_thread,
    malloc,
    read_raw,
    refused,
    stream,
    tensor,
    upload,
    write_raw,
)

import anycann
from anycann import device, products
from contract_calls import TWO_PHASE as FACTS
from contract_calls import numpy_dtype, same_bits, sample
from contract_facts import Fact

by_operator = pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.api)
POISON = 0xA5


@pytest.fixture
def call() -> Iterator[Gelu]:
    made = Gelu()
    yield made
    made.free()


class Operator:
    """An operator's valid call in device memory; outputs lie between guards of poison."""

    GUARD = 64

    def __init__(self, fact: Fact, kind: str = "float16", seed: int = 0) -> None:
        self.sample = sample(fact, kind, seed)
        self.name, self.inputs, self.outputs, self.arrays = fact.api, [], [], []
        values: dict[str, int] = {}
        for name, array in self.sample.inputs.items():
            place = upload(array)
            self.inputs.append((place, tensor(array.shape, place, array.dtype.name)))
            values[name] = self.inputs[-1][1]
        for name in fact.outputs:
            shape, dtype = self.sample.shapes[name], fact.fixed.get(name, kind)
            size = int(np.prod(shape)) * numpy_dtype(dtype).itemsize
            place = malloc(size + 2 * self.GUARD)
            C.aclrtMemset(place, size + 2 * self.GUARD, POISON, size + 2 * self.GUARD)
            self.outputs.append((place, tensor(shape, place + self.GUARD, dtype), np.empty(shape, numpy_dtype(dtype))))
            values[name] = self.outputs[-1][1]
        self.arguments = [values[param.name] if param.name in values else self.attribute(param) for param in SPECS[fact.api].params]

    def attribute(self, param: Any) -> Any:
        """As it comes from C."""
        value = self.sample.attributes.get(param.name)
        makers = {"IntArray": C.aclCreateIntArray, "BoolArray": C.aclCreateBoolArray}
        for kind, make in makers.items():
            if kind in param.ctype:
                self.arrays.append((kind, 0 if value is None else make(tuple(value))))
                return self.arrays[-1][1]
        return value

    def phase_one(self) -> tuple[int, int]:
        return TWO_PHASE[self.name][0](*self.arguments)

    def run(self, queue: int = 0) -> None:
        """Both phases, with a workspace of exactly the size that is needed."""
        size, executor = self.phase_one()
        workspace = malloc(size) if size else 0
        TWO_PHASE[self.name][1](workspace, size, executor, queue)
        if queue:
            C.aclrtSynchronizeStream(queue)
        if workspace:
            C.aclrtFree(workspace)

    def results(self) -> list["np.ndarray[Any, Any]"]:
        """What the outputs hold; nothing around them may have changed."""
        found = []
        for place, _, like in self.outputs:
            whole = download(place, np.empty(like.nbytes + 2 * self.GUARD, np.uint8))
            assert (whole[: self.GUARD] == POISON).all(), "written in front of an output"
            assert (whole[self.GUARD + like.nbytes :] == POISON).all(), "written behind an output"
            found.append(whole[self.GUARD : self.GUARD + like.nbytes].view(like.dtype).reshape(like.shape))
        return found

    def free(self, already: int = 0) -> None:
        """Destroy everything; one place may be freed already."""
        for kind, handle in self.arrays:
            device.CALLS[f"aclDestroy{kind}"](handle)
        for place, handle, *_ in (*self.inputs, *self.outputs):
            C.aclDestroyTensor(handle)
            if place != already:
                C.aclrtFree(place)


@by_operator
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_operators_compute_what_the_python_functions_compute(fact: Fact, kind: str) -> None:
    made = Operator(fact, kind)
    size, executor = made.phase_one()
    assert all((result.view(np.uint8) == POISON).all() for result in made.results()), "phase 1 wrote"
    C.aclDestroyAclOpExecutor(executor)
    made.run()
    assert all(map(same_bits, made.results(), made.sample.results()))
    with stream() as queue:
        made.run(queue)
    assert all(map(same_bits, made.results(), made.sample.results()))
    assert size >= 0
    made.free()


@by_operator
def test_everything_may_be_destroyed_after_stage_two_and_before_the_synchronise(fact: Fact) -> None:
    made = Operator(fact)
    with stream() as queue:
        gate = Gate(queue)
        size, executor = made.phase_one()
        workspace = malloc(size) if size else 0
        for kind, handle in made.arrays:
            device.CALLS[f"aclDestroy{kind}"](handle)
        for _, handle, *_ in (*made.inputs, *made.outputs):
            C.aclDestroyTensor(handle)  # phase 1 captures descriptors
        TWO_PHASE[fact.api][1](workspace, size, executor, queue)
        refused(161002, lambda: C.aclDestroyAclOpExecutor(executor), "used up")
        gate.open.set()
        C.aclrtSynchronizeStream(queue)
    assert all(map(same_bits, made.results(), made.sample.results()))
    for place, *_ in (*made.inputs, *made.outputs):
        C.aclrtFree(place)
    if workspace:
        C.aclrtFree(workspace)


@by_operator
def test_the_workspace_must_be_device_memory_of_the_size_that_phase_one_gave(fact: Fact) -> None:
    made = Operator(fact)
    size, executor = made.phase_one()
    run = TWO_PHASE[fact.api][1]
    if size:
        workspace, small, host = malloc(size), malloc(size - 1), np.empty(size, np.uint8)
        refused(161001, lambda: run(0, size, executor, 0), "workspace", str(size), "null")
        refused(161002, lambda: run(workspace, size - 1, executor, 0), "workspaceSize", f"the {size} bytes", f"got {size - 1}")
        refused(161002, lambda: run(workspace, 0, executor, 0), "workspaceSize")
        for place in (small, workspace + 1, address(host), 1, 2**64 - 1):
            refused(361001, lambda p=place: run(p, size, executor, 0), "workspace")
        refused(361001, lambda: run(small, size, executor, 0), "workspace", f"got {size - 1} to its end. Allocate {size} bytes.")
        C.aclrtFree(small)
        refused(361001, lambda: run(small, size, executor, 0), "workspace", "was freed")
        assert all((result.view(np.uint8) == POISON).all() for result in made.results()), "a refused call wrote"
        run(workspace, 2**64 - 1, executor, 0)  # what was refused did not use the executor up; the size may be greater
        C.aclrtFree(workspace)
    else:
        run(12345, 2**64 - 1, executor, 0)  # nothing is needed: what is passed is not looked at
    assert all(map(same_bits, made.results(), made.sample.results()))
    made.free()


@by_operator
def test_tensors_must_lie_in_live_device_memory_in_phase_one(fact: Fact) -> None:
    made = Operator(fact)
    before = device.living()
    for place, handle, *_ in (*made.inputs, *made.outputs):
        data = C.aclGetRawTensorAddr(handle)
        block = device.block_at(place)
        assert block is not None
        name = next(param.name for param, value in zip(SPECS[fact.api].params, made.arguments, strict=True) if value == handle)
        host = np.zeros(block.size, np.uint8)
        for wrong in (block.end - 1, block.end, address(host), 8, 2**64 - 8, block.address - 1):
            C.aclSetRawTensorAddr(handle, wrong)
            refused(561103, made.phase_one, name, "got", "device memory")
        C.aclSetRawTensorAddr(handle, data)
    assert device.living() == before
    assert all((result.view(np.uint8) == POISON).all() for result in made.results()), "a refused call wrote"
    made.run()
    made.free()


@by_operator
def test_memory_that_is_freed_between_the_phases_is_361001(fact: Fact) -> None:
    made = Operator(fact)
    for which in range(len(made.inputs) + len(made.outputs)):
        size, executor = made.phase_one()
        workspace = malloc(size) if size else 0
        place, handle, *_ = (*made.inputs, *made.outputs)[which]
        C.aclrtFree(place)
        name = next(param.name for param, value in zip(SPECS[fact.api].params, made.arguments, strict=True) if value == handle)
        for _ in range(2):
            refused(361001, lambda w=workspace, s=size, e=executor: TWO_PHASE[fact.api][1](w, s, e, 0), name, "was freed")
        refused(561103, made.phase_one, name, "device memory")
        C.aclDestroyAclOpExecutor(executor)
        if workspace:
            C.aclrtFree(workspace)
        made.free(already=place)
        made = Operator(fact)
    made.free()


def test_memory_that_came_back_at_the_same_place_is_memory(call: Gelu) -> None:
    _, executor = call.phase_one()
    other = malloc(999)
    C.aclrtFree(other)  # the state of the memory has changed, the tensors still lie in it
    call.phase_two(executor)
    assert same_bits(call.result(), call.expected)


def test_null_data_is_accepted_in_phase_one_and_161001_in_phase_two(call: Gelu) -> None:
    for which, name in enumerate(("gradOutput", "self", "gradInput")):
        C.aclSetRawTensorAddr(call.tensors[which], 0)
        _, executor = call.phase_one()
        refused(161001, lambda e=executor: call.phase_two(e), name, "null", "address")
        (C.aclSetInputTensorAddr if which < 2 else C.aclSetOutputTensorAddr)(executor, which % 2, call.tensors[which], call.places[which])
        call.phase_two(executor)
        assert same_bits(call.result(), call.expected)
        C.aclSetRawTensorAddr(call.tensors[which], call.places[which])


def test_an_executor_is_good_for_one_run(call: Gelu) -> None:
    _, executor = call.phase_one()
    call.phase_two(executor)
    refused(161002, lambda: call.phase_two(executor), "executor", "used up")
    refused(161002, lambda: C.aclSetAclOpExecutorRepeatable(executor), "executor", "used up")
    refused(161002, lambda: C.aclSetTensorAddr(executor, 0, call.tensors[0], call.places[0]), "executor")


def test_one_of_many_threads_runs_an_executor(call: Gelu) -> None:
    for _ in range(20):
        _, executor = call.phase_one()

        def run(executor: int = executor) -> int:
            try:
                call.phase_two(executor)
            except anycann.AclnnError as error:
                return error.status
            return 0

        results = in_threads(4, run)
        assert sorted(results) == [0, 161002, 161002, 161002]


def in_threads(count: int, function: Any) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(lambda _: function(), range(count)))


def test_repeatable_executors_run_until_they_are_destroyed(call: Gelu) -> None:
    _, executor = call.phase_one()
    C.aclSetAclOpExecutorRepeatable(executor)
    C.aclSetAclOpExecutorRepeatable(executor)
    for _ in range(3):
        C.aclrtMemset(call.places[2], 20, POISON, 20)
        call.phase_two(executor)
        assert same_bits(call.result(), call.expected)
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtMemset(call.places[2], 20, POISON, 20)
        call.phase_two(executor, queue)
        C.aclDestroyAclOpExecutor(executor)  # the queued run has what it needs
        gate.open.set()
        C.aclrtSynchronizeStream(queue)
    assert same_bits(call.result(), call.expected)
    for again in (lambda: call.phase_two(executor), lambda: C.aclDestroyAclOpExecutor(executor)):
        refused(161002, again, "executor", "destroyed")


def test_addresses_change_between_runs_of_a_repeatable_executor(call: Gelu) -> None:
    other = Gelu(seed=1)
    _, executor = call.phase_one()
    C.aclSetAclOpExecutorRepeatable(executor)
    call.phase_two(executor)
    C.aclSetInputTensorAddr(executor, 0, call.tensors[0], other.places[0])
    C.aclSetInputTensorAddr(executor, 1, call.tensors[1], other.places[1])
    C.aclSetOutputTensorAddr(executor, 0, call.tensors[2], other.places[2])
    call.phase_two(executor)
    assert same_bits(call.result(), call.expected)
    assert same_bits(other.result(), other.expected)
    for index, place in enumerate(call.places):
        C.aclSetTensorAddr(executor, index, call.tensors[index], place)
    C.aclrtMemset(call.places[2], 20, POISON, 20)
    call.phase_two(executor)
    assert same_bits(call.result(), call.expected)
    C.aclSetTensorAddr(executor, 0, call.tensors[0], 0)
    refused(161001, lambda: call.phase_two(executor), "gradOutput", "null")
    for wrong in (call.places[0] + 4, 8, address(call.grad), 2**64 - 1):
        C.aclSetTensorAddr(executor, 0, call.tensors[0], wrong)
        refused(361001, lambda: call.phase_two(executor), "gradOutput")
    C.aclSetTensorAddr(executor, 0, call.tensors[0], other.places[0])
    other.free()
    refused(361001, lambda: call.phase_two(executor), "gradOutput", "was freed")
    C.aclDestroyAclOpExecutor(executor)


SETTERS = {"Input": 2, "Output": 1, "": 3}


@pytest.mark.parametrize("old", ["acl", "Acl"])
@pytest.mark.parametrize("kind", SETTERS)
def test_the_codes_of_the_address_setters(call: Gelu, kind: str, old: str) -> None:
    setter, count = device.CALLS[f"{old}Set{kind}TensorAddr"], SETTERS[kind]
    _, executor = call.phase_one()
    for index in (count, count + 1, 2**64 - 1):
        refused(
            161002, lambda i=index: setter(executor, i, call.tensors[0], call.places[0]), "index", f"from 0 to {count - 1}", f"got {index}"
        )
    refused(561103, lambda: setter(0, 0, call.tensors[0], call.places[0]), "executor", "null")
    refused(561103, lambda: setter(executor, 0, 0, call.places[0]), "tensor", "null")
    refused(561103, lambda: C.aclSetAclOpExecutorRepeatable(0), "executor", "null")
    C.aclDestroyAclOpExecutor(executor)


def test_a_tensor_that_phase_one_did_not_get_has_no_address() -> None:
    rows, index, out = upload(np.ones((2, 3), np.float32)), upload(np.array([1, 0], np.int32)), malloc(24)
    handles = [tensor((2, 3), rows), tensor((2,), index, "int32"), tensor((2, 3), out)]
    first, second = TWO_PHASE["aclnnMoeTokenUnpermute"]
    size, executor = first(handles[0], handles[1], 0, False, 0, handles[2])
    for setter in (C.aclSetInputTensorAddr, C.aclSetTensorAddr):
        said = ("probsOptional must be a tensor that phase 1 was given; got an address for a null pointer", "Make a new executor")
        refused(161002, lambda s=setter: s(executor, 2, handles[0], rows), *said)
    C.aclSetInputTensorAddr(executor, 1, handles[1], index)
    workspace = malloc(size) if size else 0
    second(workspace, size, executor, 0)
    for handle in handles:
        C.aclDestroyTensor(handle)
    for place in filter(None, (rows, index, out, workspace)):
        C.aclrtFree(place)


def test_refusals_write_nothing_and_make_no_executor(call: Gelu) -> None:
    wrong = [tensor((6,), call.places[2]), tensor((5,), call.places[2], "int32"), tensor((5,), call.places[2], strides=(0,), storage=(5,))]
    before = device.living()
    for handle, code in zip(wrong, (161002, 161002, 161002), strict=True):
        refused(code, lambda h=handle: call.phase_one(gradInput=h), "gradInput")
    assert device.living() == before
    assert np.isnan(call.result()).all()
    for handle in wrong:
        C.aclDestroyTensor(handle)


def test_views_must_stay_inside_their_storage(call: Gelu) -> None:
    for shape, strides, offset, storage in (
        ((5,), (2,), 0, (8,)),
        ((5,), None, 1, (5,)),
        ((5,), None, -1, (5,)),
        ((5,), (-1,), 3, (5,)),
        ((5,), (2**61,), 0, (5,)),
        ((5,), None, 0, (4,)),
    ):
        handle = tensor(shape, call.places[1], strides=strides, offset=offset, storage=storage)
        refused(561103, lambda h=handle: call.phase_one(self=h), "self", "got")
        C.aclDestroyTensor(handle)


def test_strides_offsets_and_negative_steps(call: Gelu) -> None:
    whole = np.arange(-8, 8, dtype=np.float32)
    place = upload(whole)
    for strides, offset, expected in (
        ((2,), 1, whole[1:11:2]),
        ((-1,), 4, whole[4::-1]),
        ((0,), 3, whole[[3] * 5]),
        ((-3,), 15, whole[15:0:-3]),
    ):
        handle = tensor((5,), place, strides=strides, offset=offset, storage=(16,))
        _, executor = call.phase_one(self=handle)
        C.aclDestroyTensor(handle)
        call.phase_two(executor)
        assert same_bits(call.result(), anycann.gelu_backward_v2(call.grad, np.ascontiguousarray(expected)))
    C.aclrtFree(place)


@pytest.mark.parametrize("step", [2**62, 2**63 - 1, -(2**63)])
def test_strides_of_dimensions_without_neighbours_mean_nothing(step: int) -> None:
    """Also where it is to be known whether tensors share elements."""
    data = np.arange(12, dtype=np.float32)
    for shape, strides, gap in (((1, 8), (step, 1), 4), ((8, 1), (1, step), 3), ((1, 4, 1), (step, 2, step), 1), ((0, 8), (step, step), 2)):
        place = upload(data)
        x, out = (tensor(shape, place + 4 * first, strides=strides, storage=(8,)) for first in (0, gap))
        _, executor = TWO_PHASE["aclnnGeluV2"][0](x, 0, out)
        TWO_PHASE["aclnnGeluV2"][1](0, 0, executor, 0)
        count = shape[0] * shape[1]
        every = data[: count * 2 : 2] if count == 4 else data[:count]
        result = download(place, data)[gap:]
        assert same_bits(result[: count * 2 : 2] if count == 4 else result[:count], anycann.gelu_v2(every))
        for handle in (x, out):
            C.aclDestroyTensor(handle)
        C.aclrtFree(place)


def test_an_offset_counts_from_an_address_that_need_not_be_in_the_block(call: Gelu) -> None:
    """Only the bytes that are reached must be live."""
    handle = tensor((5,), call.places[1] - 400, offset=100, storage=(105,))
    _, executor = call.phase_one(self=handle)
    call.phase_two(executor)
    assert same_bits(call.result(), call.expected)
    C.aclDestroyTensor(handle)


def test_exact_overlap_of_output_and_input_and_partial_overlap() -> None:
    whole = np.linspace(-2, 2, 12, dtype=np.float32)
    grad = np.full(10, 1.5, np.float32)
    for shift in range(3):
        place, other = upload(whole), upload(grad)
        handles = [tensor((10,), other), tensor((10,), place), tensor((10,), place, offset=shift, storage=(12,))]
        _, executor = TWO_PHASE["aclnnGeluBackwardV2"][0](handles[0], handles[1], "tanh", handles[2])
        TWO_PHASE["aclnnGeluBackwardV2"][1](0, 0, executor, 0)
        assert same_bits(download(place, whole)[shift : shift + 10], anycann.gelu_backward_v2(grad, whole[:10], "tanh"))
        for handle in handles:
            C.aclDestroyTensor(handle)
        C.aclrtFree(place)
        C.aclrtFree(other)


def test_empty_tensors_need_no_memory() -> None:
    handles = [tensor((3, 0), data) for data in (0, 77, 2**64 - 4)]
    size, executor = TWO_PHASE["aclnnGeluBackwardV2"][0](handles[0], handles[1], "none", handles[2])
    assert size == 0
    TWO_PHASE["aclnnGeluBackwardV2"][1](0, 0, executor, 0)
    for handle in handles:
        C.aclDestroyTensor(handle)


def test_rank_zero_is_one_element() -> None:
    places = [upload(np.float32([value])) for value in (2, 0.5, np.nan)]
    handles = [tensor((), place) for place in places]
    _, executor = TWO_PHASE["aclnnGeluBackwardV2"][0](handles[0], handles[1], "none", handles[2])
    TWO_PHASE["aclnnGeluBackwardV2"][1](0, 0, executor, 0)
    assert same_bits(download(places[2], np.empty(1, np.float32))[0], anycann.gelu_backward_v2(np.float32([2]), np.float32([0.5]))[0])
    for handle, place in zip(handles, places, strict=True):
        C.aclDestroyTensor(handle)
        C.aclrtFree(place)


def test_the_product_in_force_decides(call: Gelu, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Gelu(dtype=numpy_dtype("bfloat16"))
    executors = [made.phase_one()[1]]
    monkeypatch.setattr(products, "_chosen", (products.find("Ascend910A"), "Ascend910A"))
    refused(161002, made.phase_one, "bfloat16")
    monkeypatch.undo()
    executors.append(made.phase_one()[1])
    for executor in executors:
        C.aclDestroyAclOpExecutor(executor)
    made.free()


def test_runs_on_streams_keep_their_order(call: Gelu) -> None:
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtMemcpyAsync(call.places[1], 20, address(call.grad), 20, 1, queue)  # self = gradOutput, later
        call.phase_two(call.phase_one()[1], queue)
        assert np.isnan(call.result()).all()
        gate.open.set()
        C.aclrtSynchronizeStream(queue)
    assert same_bits(call.result(), anycann.gelu_backward_v2(call.grad, call.grad))


def test_spare_bytes_of_outputs_stay() -> None:
    """Programs read whole host vectors back: the bytes behind numel * itemsize are theirs."""
    for count in (1, 5, 31, 33, 1000):
        made = Gelu((count,))
        block = device.block_at(made.places[2])
        assert block is not None
        room = -(-block.size // 32) * 32 + 32
        write_raw(block.address + block.shift, POISON, room)
        made.phase_two(made.phase_one()[1])
        behind = read_raw(block.address + block.shift + 4 * count, room - 4 * count)
        assert behind == bytes([POISON]) * len(behind)
        assert same_bits(made.result(), made.expected)
        made.free()


def test_many_descriptions_and_many_calls(call: Gelu) -> None:
    """Plans are kept by description, not by handle or address."""
    for shape, strides in itertools.product(((5,), (5, 1), (1, 5)), (None, "given")):
        steps = None if strides is None else tuple(1 for _ in shape) if len(shape) == 1 else ((1, 1) if shape[0] == 5 else (5, 1))
        handles = [tensor(shape, place, strides=steps) for place in call.places]
        for _ in range(2):
            _, executor = TWO_PHASE["aclnnGeluBackwardV2"][0](handles[0], handles[1], "none", handles[2])
            call.phase_two(executor)
            assert same_bits(call.result(), call.expected)
        for handle in handles:
            C.aclDestroyTensor(handle)


def test_phase_two_needs_no_device_in_its_thread(call: Gelu) -> None:
    _, executor = call.phase_one()
    in_thread(lambda: call.phase_two(executor))
    assert same_bits(call.result(), call.expected)
