"""Random sequences of calls with valid, destroyed, foreign, mixed-up and random handles and addresses, and with absurd sizes.

Whatever is called: no crash, a documented status, a text for every refusal, right results in between, and nothing left at the end.
"""

import inspect
from typing import Any, ClassVar

import numpy as np
import pytest
from fuzz_doors import NO_STATUS, OPERATORS, Door, direct, through_c
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

import anycann
from anycann import device
from anycann.errors import CODES
from anycann.spec import Attr

ARENA, GUARD = 512, 64  # host memory of the program, with guards around the part that copies may write
COUNT = 5  # elements of the calls that must succeed
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
MAKERS = {
    "aclrtCreateStream": "stream",
    "aclrtCreateStreamWithConfig": "stream",
    "aclrtCreateEvent": "event",
    "aclrtCreateEventWithFlag": "event",
    "aclrtCreateContext": "context",
    "aclCreateTensor": "aclTensor",
    "aclCreateScalar": "aclScalar",
    "aclCreateIntArray": "aclIntArray",
    "aclCreateFloatArray": "aclFloatArray",
    "aclCreateBoolArray": "aclBoolArray",
    "aclCreateTensorList": "aclTensorList",
    "aclCreateScalarList": "aclScalarList",
    "aclCreateDataBuffer": "aclDataBuffer",
    "aclrtMalloc": "device memory",
    "aclrtMallocAlign32": "device memory",
    "aclrtMallocHost": "host memory",
}
DESTROYERS = {
    "stream": "aclrtDestroyStream",
    "event": "aclrtDestroyEvent",
    "context": "aclrtDestroyContext",
    "aclTensorList": "aclDestroyTensorList",
    "aclScalarList": "aclDestroyScalarList",
    "aclTensor": "aclDestroyTensor",
    "aclScalar": "aclDestroyScalar",
    "aclIntArray": "aclDestroyIntArray",
    "aclFloatArray": "aclDestroyFloatArray",
    "aclBoolArray": "aclDestroyBoolArray",
    "aclDataBuffer": "aclDestroyDataBuffer",
    "aclOpExecutor": "aclDestroyAclOpExecutor",
    "device memory": "aclrtFree",
    "host memory": "aclrtFreeHost",
}
ABSURD = [2**31 - 1, 2**31, 2**45, 2**62, 2**63 - 1, 2**63, 2**64 - 32, 2**64 - 1]
JUNK = [1, 7, 8, 4095, 0xAC_0000_0000_0008, 0xAC_0000_0000_0010, 2**47, 2**63, 2**64 - 4096, 2**64 - 1]
sizes = st.one_of(st.integers(0, 70), st.sampled_from([0, 1, 20, 32, 64, *ABSURD]))
dims = st.one_of(st.none(), st.lists(st.one_of(st.integers(0, 6), st.sampled_from([-1, 2**31, 2**62])), max_size=9).map(tuple))
int64s = st.one_of(st.integers(-6, 6), st.sampled_from([-(2**63), 2**63 - 1]))
small = st.one_of(st.integers(-1, 40), st.sampled_from([-(2**31), 2**31 - 1]))
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("destMax", "count", "maxCount", "index"), sizes),
    "size": st.one_of(st.integers(0, 70), st.sampled_from([2**45, 2**63, 2**64 - 40, 2**64 - 1])),
    **dict.fromkeys(("priority", "flag"), st.integers(0, 2**32 - 1)),
    **dict.fromkeys(("dataType", "format"), small),
    **dict.fromkeys(("viewDims", "storageDims"), dims),
    "deviceId": st.sampled_from([0, 0, 0, 0, 1, -1, 2**31 - 1]),
    "timeout": st.sampled_from([-1, -1, 1, 50, 0, -2]),
    "configPath": st.sampled_from([None, None, "", "/no/such/file"]),
    "offset": int64s,
    "policy": st.integers(-1, 7),
    "attr": st.integers(-1, 3),
    "kind": st.sampled_from([0, 1, 2, 3, 4, 5, 0, 1, 2, 3, -1, 6]),
    "job": st.just(0),
}
LEFT_OUT = {"anycann_stream_enqueue", "anycann_device_block"}  # the first calls any address

NAMES = sorted(name for name in device.CALLS if name not in LEFT_OUT)
OF_MEMORY = [name for name in NAMES if name.startswith(("aclrtMem", "aclrtFree", "aclSetRaw"))]
OF_EXECUTORS = [name for name in NAMES if "Executor" in name or "TensorAddr" in name]


def kind_of(function: str, parameter: str) -> str | None:
    """What kind of handle a parameter takes; None for other values."""
    if parameter == "array":
        return next(kind for kind in sorted(DESTROYERS, key=len, reverse=True) if kind.removeprefix("acl") in function)
    return KINDS.get(parameter)


class Machine(RuleBasedStateMachine):
    """A program that does everything wrong, and from time to time something right."""

    make: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.door: Door = type(self).make()
        self.made: dict[str, list[int]] = {kind: [] for kind in DESTROYERS}  # living and destroyed
        self.arena = np.full(ARENA + 2 * GUARD, 0xC3, np.uint8)
        self.host = self.arena.ctypes.data + GUARD
        self.before = device.living()
        self.call("aclrtSetDevice", (0,))

    def call(self, name: str, args: tuple[Any, ...]) -> tuple[int, tuple[Any, ...]]:
        """Any call at all: what it answers must be documented."""
        status, outputs = self.door(name, args)
        if status == NO_STATUS:
            assert self.door("aclGetRecentErrMsg", ())[1], f"{name}{args} was refused without a text"
            status = 100000
        assert status in CODES, f"{name}{args} gave {status}"
        assert status not in (507000, 561000) or name in ("aclrtEventElapsedTime",), f"{name}{args} found a fault of ours"
        if name in MAKERS:
            self.made[MAKERS[name]].append(outputs[0] if status == 0 else 0)  # as many on every run, wherever memory lies
        return status, outputs

    # what calls are given

    def handle(self, data: Any, kind: str) -> int:
        right = self.made[kind]
        everything = [handle for handles in self.made.values() for handle in handles]
        pools: list[Any] = [st.sampled_from(JUNK), st.just(0)]
        pools += [st.sampled_from(right)] * 6 if right else []
        pools += [st.sampled_from(everything)] if everything else []
        return int(data.draw(st.one_of(*pools)))

    def address(self, data: Any, written: bool) -> int:
        """Host memory of the program, device memory, none. What is no device memory may be the allocator's, and is not written to."""
        blocks = self.made["device memory"] + self.made["host memory"]
        pools: list[Any] = [st.integers(0, ARENA - 1).map(lambda i: self.host + i), st.sampled_from(JUNK), st.just(0)]
        pools += [st.builds(int.__add__, st.sampled_from(blocks), st.sampled_from([0, 0, 0, 1, 20, 64, -1]))] * 3 if blocks else []
        found = int(data.draw(st.one_of(*pools)))
        ours = self.host <= found < self.host + ARENA or found in (0, *JUNK) or device.block_at(found) is not None
        return found if ours or not written else 8

    def strides(self, data: Any, shape: tuple[int, ...] | None) -> Any:
        return data.draw(st.one_of(st.none(), st.tuples(*[int64s for _ in shape or ()])))

    def value(self, data: Any, function: str, parameter: str, before: dict[str, Any]) -> Any:
        kind = kind_of(function, parameter)
        if kind is not None:
            return self.handle(data, kind)
        if parameter in PLAIN:
            return data.draw(PLAIN[parameter])
        if parameter == "stride":
            return self.strides(data, before["viewDims"])
        if parameter in ("dst", "src", "tensorData", "addr", "data", "address"):
            return self.address(data, written=parameter == "dst")
        return self.content(data, function)

    def content(self, data: Any, function: str) -> Any:
        """The parameter `value`, which is something else in every function."""
        if function in ("aclrtMemset", "aclrtMemsetAsync"):
            return data.draw(small)
        if function == "aclCreateScalar":
            return data.draw(st.sampled_from([0, self.host, self.host + 16]))
        if function in ("aclFloat16ToFloat", "aclFloatToFloat16"):
            return data.draw(st.integers(0, 2**16 - 1) if function == "aclFloat16ToFloat" else st.floats(width=32))
        member = {"aclCreateTensorList": "aclTensor", "aclCreateScalarList": "aclScalar"}.get(function)
        if member:
            return data.draw(st.one_of(st.none(), st.just(tuple(self.handle(data, member) for _ in range(data.draw(st.integers(0, 3)))))))
        item = {"aclCreateIntArray": int64s, "aclCreateFloatArray": st.floats(width=32), "aclCreateBoolArray": st.booleans()}[function]
        return data.draw(st.one_of(st.none(), st.lists(item, max_size=4).map(tuple)))

    # what a program does

    @rule(data=st.data(), name=st.one_of(st.sampled_from(NAMES), st.sampled_from(OF_MEMORY), st.sampled_from(OF_EXECUTORS)))
    def any_function(self, data: Any, name: str) -> None:
        given: dict[str, Any] = {}
        for parameter in inspect.signature(device.CALLS[name]).parameters:
            given[parameter] = self.value(data, name, parameter, given)
        if name.startswith("aclrtMemcpy") and given["src"] != given["dst"]:
            room = self.host + ARENA - given["dst"]
            if 0 <= room <= ARENA:
                given["count"] = min(given["count"], room)  # a copy that is allowed to write what it likes stays in the arena
        self.call(name, tuple(given.values()))

    @rule(data=st.data(), make=st.sampled_from(sorted(MAKERS)))
    def make_something(self, data: Any, make: str) -> None:
        self.any_function(data, make)

    @rule(size=st.integers(1, 70))
    def memory(self, size: int) -> None:
        self.call("aclrtSetDevice", (0,))
        assert self.call("aclrtMalloc", (size, 0))[0] == 0

    @rule(data=st.data(), operator=st.one_of(st.just(OPERATORS[0]), st.sampled_from(OPERATORS)))
    def phase_one(self, data: Any, operator: Any) -> None:
        args = []
        for param in operator.spec.params:
            if not isinstance(param, Attr):
                args.append(self.handle(data, "aclTensor"))
            elif "Array" in param.ctype:
                args.append(self.handle(data, param.ctype.split()[-2]))
            else:
                kinds = {"bool": st.booleans(), "int64_t": st.one_of(st.integers(-1, 40), int64s)}
                texts = st.sampled_from([None, "none", "tanh", "TND", "", "x" * 100])
                args.append(data.draw(texts if "char" in param.ctype else kinds.get(param.ctype, st.floats(width=32))))
        status, outputs = self.call(f"{operator.spec.name}GetWorkspaceSize", tuple(args))
        self.made["aclOpExecutor"].append(outputs[1] if status == 0 else 0)

    @rule(data=st.data(), operator=st.one_of(st.just(OPERATORS[0]), st.sampled_from(OPERATORS)))
    def phase_two(self, data: Any, operator: Any) -> None:
        size = data.draw(sizes)
        self.call(operator.spec.name, (self.address(data, True), size, self.handle(data, "aclOpExecutor"), self.handle(data, "stream")))

    @rule(data=st.data(), repeatable=st.booleans())
    def similar_tensors(self, data: Any, repeatable: bool) -> None:
        """Tensors that fit each other, and an executor of them."""
        self.call("aclrtSetDevice", (0,))
        tensors = []
        for _ in range(3):
            place = self.call("aclrtMalloc", (4 * COUNT, 0))[1][0]
            tensors.append(self.call("aclCreateTensor", ((COUNT,), 0, None, 0, 2, (COUNT,), place))[1][0])
        _, outputs = self.call("aclnnGeluBackwardV2GetWorkspaceSize", (*tensors[:2], "none", tensors[2]))
        self.made["aclOpExecutor"].append(outputs[1])
        if repeatable:
            self.call("aclSetAclOpExecutorRepeatable", (outputs[1],))

    @rule(seed=st.integers(0, 5), on_stream=st.booleans())
    def right_results(self, seed: int, on_stream: bool) -> None:
        """In between, a program that does everything right gets right results."""
        rng = np.random.default_rng(seed)
        grad, x = (rng.normal(size=COUNT).astype(np.float32) for _ in range(2))
        out = np.empty_like(x)
        assert self.call("aclrtSetDevice", (0,))[0] == 0
        places = [self.call("aclrtMalloc", (20, 0))[1][0] for _ in range(3)]
        queue = self.call("aclrtCreateStream", ())[1][0] if on_stream else 0
        tensors = []
        for place, array in zip(places, (grad, x, out), strict=True):
            assert self.call("aclrtMemcpyAsync", (place, 20, array.ctypes.data, 20, 1, queue))[0] == 0
            tensors.append(self.call("aclCreateTensor", ((COUNT,), 0, None, 0, 2, (COUNT,), place))[1][0])
        status, outputs = self.call("aclnnGeluBackwardV2GetWorkspaceSize", (*tensors[:2], "tanh", tensors[2]))
        assert (status, outputs[0]) == (0, 0)
        assert self.call("aclnnGeluBackwardV2", (0, 0, outputs[1], queue))[0] == 0
        assert self.call("aclnnGeluBackwardV2", (0, 0, outputs[1], queue))[0] == 161002
        for handle in tensors:
            assert self.call("aclDestroyTensor", (handle,))[0] == 0
        assert self.call("aclrtSynchronizeStream", (queue,))[0] == 0
        assert self.call("aclrtMemcpy", (out.ctypes.data, 20, places[2], 20, 2))[0] == 0
        assert np.array_equal(out, anycann.gelu_backward_v2(grad, x, "tanh"))
        for place in places:
            assert self.call("aclrtFree", (place,))[0] == 0
        if on_stream:
            assert self.call("aclrtDestroyStream", (queue,))[0] == 0

    def teardown(self) -> None:
        self.call("aclrtSetDevice", (0,))
        for kind, name in DESTROYERS.items():
            for handle in self.made[kind]:
                self.call(name, (handle,))
        self.call("aclrtResetDeviceForce", (0,))
        self.call("aclFinalize", ())
        self.call("aclGetRecentErrMsg", ())
        assert device.living() == self.before, "something is left"
        assert (self.arena[:GUARD] == 0xC3).all(), "written in front of the program's memory"
        assert (self.arena[-GUARD:] == 0xC3).all(), "written behind the program's memory"


@pytest.mark.parametrize("examples", [25, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [direct, through_c], ids=["python", "c"])
def test_no_sequence_of_calls_breaks_the_device(make: Any, examples: int) -> None:
    door = make()
    machine = type("Program", (Machine,), {"make": staticmethod(lambda: door)})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    common = settings(deadline=None, derandomize=True, database=None, suppress_health_check=checks)
    options = settings(common, max_examples=examples, stateful_step_count=40)
    run_state_machine_as_test(machine, settings=options)


GETTERS = ("aclGetViewShape", "aclGetStorageShape", "aclGetViewStrides", "aclGetViewOffset", "aclGetFormat", "aclGetDataType")
SAME: list[tuple[str, tuple[Any, ...]]] = [
    ("aclrtMalloc", (0, 0)),
    ("aclrtFree", (12345,)),
    ("aclFloat16ToFloat", (0x7C00,)),
    ("aclDataTypeSize", (27,)),
    ("aclGetIntArraySize", (0,)),
    ("aclrtGetVersion", ()),
    ("aclrtGetMemInfo", (5,)),
    ("aclrtDestroyStream", (0,)),
    ("aclrtResetDevice", (0,)),
]


def test_both_doors_answer_alike() -> None:
    """The refusals of a row of calls, and what getters give, are the same through C."""
    rows: list[list[Any]] = []
    for door in (direct(), through_c()):
        said: list[Any] = [door("aclrtSetDevice", (0,))]
        tensor = door("aclCreateTensor", ((2, 3), 27, (7, -2), 5, 2, (4, 5), 4096))[1][0]
        said += [door(name, (tensor,)) for name in GETTERS]
        said += [door("aclDestroyTensor", (tensor,)), door("aclGetViewShape", (tensor,))[0]]
        said += [door(*row) for row in SAME]
        text = door("aclGetRecentErrMsg", ())[1][0]
        said.append([line.split(";")[0] for line in (text if isinstance(text, str) else text.decode()).split("\n")])
        rows.append(said)
    assert rows[0] == rows[1]
