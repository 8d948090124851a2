"""Handles of every kind to every function and parameter that takes one: read from the functions, not listed here."""

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from device_calls import SPECS, TWO_PHASE, C, Gelu, address, malloc, refused, stream, tensor

from anycann import device, ops
from anycann.device.operators import EXECUTORS
from anycann.spec import Attr

ROOM = np.zeros(64, np.uint8)  # host memory
KINDS = {
    "stream": "stream",
    "event": "event",
    "start": "event",
    "end": "event",
    "context": "context",
    "tensor": "aclTensor",
    "scalar": "aclScalar",
    "tensorList": "aclTensorList",
    "scalarList": "aclScalarList",
    "dataBuffer": "aclDataBuffer",
    "executor": "aclOpExecutor",
    "devPtr": "device memory",
    "hostPtr": "host memory",
}
PLAIN: dict[str, Any] = {
    "priority": 0,
    "flag": 0,
    "timeout": 1000,
    "configPath": None,
    "deviceId": 0,
    "job": 0,
    "address": 0,
    "viewDims": (2,),
    "dataType": 0,
    "stride": None,
    "offset": 0,
    "format": 2,
    "storageDims": (2,),
    "tensorData": 0,
    "addr": 0,
    "value": 0,
    "data": address(ROOM),
    "size": 8,
    "policy": 0,
    "attr": 1,
    "dst": address(ROOM),
    "src": address(ROOM) + 32,
    "destMax": 32,
    "count": 0,
    "maxCount": 0,
    "kind": 0,
    "index": 0,
}
CODES = {
    **dict.fromkeys(("stream", "event", "context"), 107017),
    **dict.fromkeys(("device memory", "host memory"), 107000),
    **dict.fromkeys(("aclTensor", "aclScalar", "aclIntArray", "aclFloatArray", "aclBoolArray"), 161002),
    **dict.fromkeys(("aclTensorList", "aclScalarList", "aclOpExecutor"), 161002),
    "aclDataBuffer": 100000,
}
NULLS = {"stream": None, "event": 100000, "context": 100000, "aclDataBuffer": 100000, "device memory": 100000, "host memory": 100000}


def kind_of(function: str, parameter: str) -> str | None:
    """What kind of handle a parameter takes; None for other values."""
    if parameter == "array":
        return next(kind for kind in sorted(CODES, key=len, reverse=True) if kind.removeprefix("acl") in function)
    if function == "anycann_stream_enqueue" and parameter == "context":
        return None  # what the job is called with
    return KINDS.get(parameter)


def parameters(function: str) -> list[str]:
    return list(inspect.signature(device.CALLS[function]).parameters)


TAKEN = [(name, one) for name in device.CALLS for one in parameters(name) if kind_of(name, one)]
every_parameter = pytest.mark.parametrize(("function", "parameter"), TAKEN, ids=lambda value: value)


def test_every_parameter_is_a_handle_or_known_as_plain() -> None:
    unknown = {(name, one) for name in device.CALLS for one in parameters(name)} - set(TAKEN)
    assert {one for _, one in unknown} - {"context"} <= set(PLAIN)
    assert {kind_of(*one) for one in TAKEN} == set(device.living())
    assert len(TAKEN) >= 60


class Zoo:
    """One living and one destroyed object of every kind."""

    def __init__(self) -> None:
        self.call = Gelu()
        self.living, self.dead = self.make(), self.make()
        self.end(self.dead)
        C.aclrtSetDevice(0)

    def make(self) -> dict[str, int]:
        size, executor = self.call.phase_one()
        assert size == 0
        made = {
            "stream": C.aclrtCreateStream(),
            "event": C.aclrtCreateEvent(),
            "context": C.aclrtCreateContext(0),
            "aclTensor": tensor((2,), 0),
            "aclScalar": C.aclCreateScalar(address(ROOM), 0),
            "aclIntArray": C.aclCreateIntArray((1, 2)),
            "aclFloatArray": C.aclCreateFloatArray((1.0,)),
            "aclBoolArray": C.aclCreateBoolArray((True,)),
            "aclTensorList": C.aclCreateTensorList((tensor((1,), 0),)),
            "aclScalarList": C.aclCreateScalarList((C.aclCreateScalar(address(ROOM), 0),)),
            "aclDataBuffer": C.aclCreateDataBuffer(0, 0),
            "aclOpExecutor": executor,
            "device memory": malloc(40),
            "host memory": C.aclrtMallocHost(40),
        }
        C.aclrtRecordEvent(made["event"], 0)
        return made

    @staticmethod
    def end(made: dict[str, int]) -> None:
        for kind, handle in made.items():
            DESTROY[kind](handle)

    def close(self) -> None:
        self.end(self.living)
        C.aclrtSetDevice(0)
        self.call.free()


DESTROY: dict[str, Callable[[int], None]] = {
    "stream": C.aclrtDestroyStream,
    "event": C.aclrtDestroyEvent,
    "context": C.aclrtDestroyContext,
    "aclTensor": C.aclDestroyTensor,
    "aclScalar": C.aclDestroyScalar,
    "aclIntArray": C.aclDestroyIntArray,
    "aclFloatArray": C.aclDestroyFloatArray,
    "aclBoolArray": C.aclDestroyBoolArray,
    "aclTensorList": C.aclDestroyTensorList,
    "aclScalarList": C.aclDestroyScalarList,
    "aclDataBuffer": C.aclDestroyDataBuffer,
    "aclOpExecutor": C.aclDestroyAclOpExecutor,
    "device memory": C.aclrtFree,
    "host memory": C.aclrtFreeHost,
}


@pytest.fixture
def zoo() -> Iterator[Zoo]:
    made = Zoo()
    yield made
    made.close()


def arguments(function: str, zoo: Zoo, **replaced: int) -> list[Any]:
    """A call that would succeed, with replacements."""
    kinds = {one: kind_of(function, one) for one in parameters(function)}
    return [replaced[one] if one in replaced else zoo.living[kind] if kind else PLAIN.get(one, 0) for one, kind in kinds.items()]


def strangers(kind: str, zoo: Zoo) -> dict[str, int]:
    """Handles that are not living objects of a kind, by what they are."""
    others = {f"a living {other}": handle for other, handle in zoo.living.items() if other != kind}
    right = zoo.living[kind]
    odd = {"past the end" if "memory" in kind else "inside": right + (40 if "memory" in kind else 8), "before": right - 1}
    numbers = {
        "1": 1,
        "7": 7,
        "an address of Python": id(zoo),
        "the highest address": 2**64 - 1,
        "a later handle": zoo.living["event"] + 2**40,
    }
    return {"destroyed": zoo.dead[kind], "host memory of the program": address(ROOM)} | others | odd | numbers


@every_parameter
def test_what_is_no_living_object_of_the_kind_is_refused(function: str, parameter: str, zoo: Zoo) -> None:
    kind = kind_of(function, parameter)
    assert kind is not None
    before = device.living()
    for what, handle in strangers(kind, zoo).items():
        if kind == "device memory" and "Memset" in function and what == "a living host memory":
            continue  # host memory of aclrtMallocHost may be set too
        text = refused(CODES[kind], lambda h=handle: device.CALLS[function](*arguments(function, zoo, **{parameter: h})), parameter, "got")
        assert f"{handle:#x}" in text, what
    assert device.living() == before, "a refused call made or destroyed something"


@every_parameter
def test_null_handles(function: str, parameter: str, zoo: Zoo) -> None:
    kind = kind_of(function, parameter)
    assert kind is not None

    def made() -> Any:
        return device.CALLS[function](*arguments(function, zoo, **{parameter: 0}))

    destroys = function.startswith("aclDestroy") and kind != "aclDataBuffer"
    setter = "TensorAddr" in function and "Raw" not in function
    code = NULLS.get(kind, 561103 if setter or kind == "aclOpExecutor" else 161001)
    if function in ("aclrtDestroyStream", "aclrtDestroyStreamForce"):
        code = 100000
    if destroys or code is None:
        if function != "anycann_stream_enqueue":
            made()
    else:
        refused(code, made, parameter, "null")


@pytest.mark.parametrize("kind", DESTROY)
def test_destroyed_twice(kind: str, zoo: Zoo) -> None:
    refused(CODES[kind], lambda: DESTROY[kind](zoo.dead[kind]), "freed" if "memory" in kind else "destroyed")


def test_handles_are_never_used_twice(zoo: Zoo) -> None:
    seen = set()
    for _ in range(100):
        event = C.aclrtCreateEvent()
        C.aclrtDestroyEvent(event)
        assert event not in seen
        seen.add(event)
    assert len(set(zoo.living.values())) == len(zoo.living)


def given(name: str, **replaced: int) -> list[Any]:
    """Arguments of phase 1: null handles and some attributes, where nothing is replaced."""
    plain = {"char *": "none"}
    found = []
    for param in SPECS[name].params:
        handle = not isinstance(param, Attr) or "Array" in param.ctype
        found.append(replaced.get(param.name, 0 if handle else plain.get(param.ctype, 1)))
    return found


HANDLES = [
    (name, param.name, "aclTensor" if not isinstance(param, Attr) else param.ctype.split()[-2])
    for name, spec in SPECS.items()
    for param in spec.params
    if not isinstance(param, Attr) or "Array" in param.ctype
]


@pytest.mark.parametrize(("name", "parameter", "kind"), HANDLES)
def test_phase_one_refuses_what_is_no_living_object_of_the_kind(name: str, parameter: str, kind: str, zoo: Zoo) -> None:
    before = device.living()
    for handle in strangers(kind, zoo).values():
        refused(161002, lambda h=handle: TWO_PHASE[name][0](*given(name, **{parameter: h})), parameter, kind, f"{handle:#x}", "got")
    assert device.living() == before


@pytest.mark.parametrize("name", TWO_PHASE)
def test_phase_one_refuses_null_tensors_in_the_order_of_the_prototype(name: str) -> None:
    needed = [param.name for param in SPECS[name].tensors if not param.optional and not param.needed]
    sizes = C.aclCreateIntArray((2,))
    arrays = {one: sizes for api, one, kind in HANDLES if api == name and kind == "aclIntArray"}
    tensors = {one: tensor((2, 2), 0) for one in needed}
    for i, one in enumerate(needed):
        earlier = {other: tensors[other] for other in needed[:i]} | arrays
        refused(161001, lambda earlier=earlier: TWO_PHASE[name][0](*given(name, **earlier)), one, "null")
    for handle in tensors.values():
        C.aclDestroyTensor(handle)
    C.aclDestroyIntArray(sizes)


@pytest.mark.parametrize("name", TWO_PHASE)
def test_phase_two_refuses_executors_and_streams_that_are_none(name: str, zoo: Zoo) -> None:
    run = TWO_PHASE[name][1]
    refused(161001, lambda: run(0, 0, 0, 0), "executor", "null")
    for handle in strangers("aclOpExecutor", zoo).values():
        refused(161002, lambda h=handle: run(0, 0, h, 0), "executor", f"{handle:#x}")
    executor = zoo.living["aclOpExecutor"]
    if name != "aclnnGeluBackwardV2":
        refused(161002, lambda: run(0, 0, executor, 0), "executor", "aclnnGeluBackwardV2", name)
        return
    for handle in strangers("stream", zoo).values():
        refused(107017, lambda h=handle: run(0, 0, executor, h), "stream", f"{handle:#x}")
    run(0, 0, executor, 0)  # what was refused did not use it up
    assert np.array_equal(zoo.call.result(), zoo.call.expected)
    refused(161002, lambda: run(0, 0, executor, 0), "executor", "used up")
    zoo.living["aclOpExecutor"] = zoo.call.phase_one()[1]


def test_lists_take_living_members_and_own_them() -> None:
    event = C.aclrtCreateEvent()
    members = [tensor((1,), 0), tensor((2,), 0)]
    refused(161002, lambda: C.aclCreateTensorList((members[0], event)), "value[1]", "event")
    refused(161002, lambda: C.aclCreateScalarList((members[0],)), "value[0]", "aclTensor")
    refused(161001, lambda: C.aclCreateTensorList(None), "value")
    both = C.aclCreateTensorList((members[0], 0, members[1]))
    assert C.aclGetTensorListSize(both) == 3
    C.aclDestroyTensorList(both)
    for member in members:
        refused(161002, lambda m=member: C.aclGetViewShape(m), "destroyed")
    C.aclrtDestroyEvent(event)


def test_a_member_that_was_destroyed_first_does_no_harm() -> None:
    member = tensor((1,), 0)
    made = C.aclCreateTensorList((member,))
    C.aclDestroyTensor(member)
    C.aclDestroyTensorList(made)


def test_an_executor_that_is_not_run_can_be_destroyed(zoo: Zoo) -> None:
    _, executor = zoo.call.phase_one()
    living = len(EXECUTORS.living)
    C.aclDestroyAclOpExecutor(executor)
    assert len(EXECUTORS.living) == living - 1
    with stream() as queue:
        refused(161002, lambda: zoo.call.phase_two(executor, queue), "executor", "destroyed")


def test_all_operators_with_two_phases_are_tried() -> None:
    assert set(TWO_PHASE) == {operator.spec.name for operator in ops.OPERATORS if operator.spec.two_phase}
    assert len(HANDLES) >= 15
