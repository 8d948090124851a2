"""The C interface of the device from Python: calls by name, refusals, tensors in device memory, and work that waits."""

import contextlib
import ctypes
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import anycann
from anycann import device, dtypes, ops
from anycann.device.backing import BACKING

C = SimpleNamespace(**device.CALLS)
TWO_PHASE = {operator.spec.name: device.two_phase(operator) for operator in ops.OPERATORS if operator.spec.two_phase}
SPECS = {operator.spec.name: operator.spec for operator in ops.OPERATORS if operator.spec.two_phase}
LIMIT = 30  # seconds after which a test that waits has failed
ND = 2
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3


def refused(code: int, call: Callable[[], object], *words: str) -> str:
    """The call must be refused with this code, in a message that has these words; the text."""
    with pytest.raises(anycann.AclnnError) as caught:
        call()
    text = str(caught.value)
    assert caught.value.status == code, text
    for word in (*words, str(code)):
        assert word in text, text
    came = r"; got |null pointer|it has none|initialised|unfinished|its run gave|be recorded and reached"
    assert re.search(came, text), f"{text}: says not what came"
    assert re.search(r"\. \w.* \[ACL", text), f"{text}: says not how to mend it"
    assert caught.value.api in {*device.CALLS, *TWO_PHASE, *(f"{name}GetWorkspaceSize" for name in TWO_PHASE)}, text
    return text


def address(array: "np.ndarray[Any, Any]") -> int:
    return array.ctypes.data


def malloc(size: int) -> int:
    found: int = C.aclrtMalloc(size, 0)
    return found


def upload(array: "np.ndarray[Any, Any]") -> int:
    """New device memory with the bytes of an array, at least one."""
    array = np.ascontiguousarray(array)
    place = malloc(max(array.nbytes, 1))
    C.aclrtMemcpy(place, max(array.nbytes, 1), address(array), array.nbytes, TO_DEVICE)
    return place


def download(place: int, like: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """What lies in device memory, as an array like another."""
    result = np.empty_like(like)
    C.aclrtMemcpy(address(result), result.nbytes, place, result.nbytes, TO_HOST)
    return result


def write_raw(place: int, value: int, size: int) -> None:
    """Set bytes of the device without a look at what was allocated."""
    BACKING.at_once(lambda: BACKING.fill(place, value, size, lambda _: True))


def read_raw(place: int, size: int) -> bytes:
    """Bytes of the device without a look at what was allocated."""
    result = ctypes.create_string_buffer(size)
    BACKING.at_once(lambda: BACKING.move(ctypes.addressof(result), place, size, lambda where: True if where == place else None))
    return result.raw


def tensor(
    shape: Sequence[int],
    data: int,
    dtype: str = "float32",
    strides: Sequence[int] | None = None,
    offset: int = 0,
    storage: Sequence[int] | None = None,
) -> int:
    """aclCreateTensor with the usual arguments."""
    steps = None if strides is None else tuple(strides)
    kind = dtypes.DTYPES[dtype].acl
    found: int = C.aclCreateTensor(tuple(shape), kind, steps, offset, ND, tuple(shape if storage is None else storage), data)
    return found


@dataclass
class Gelu:
    """aclnnGeluBackwardV2 on arrays in device memory: what most rules of the two phases are tried on."""

    shape: tuple[int, ...] = (5,)
    dtype: "np.dtype[Any]" = field(default_factory=lambda: np.dtype(np.float32))
    seed: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        self.grad, self.x = (rng.normal(size=self.shape).astype(self.dtype) for _ in range(2))
        self.out = np.full(self.shape, np.nan, self.dtype)
        self.places = [upload(array) for array in (self.grad, self.x, self.out)]
        self.tensors = [tensor(self.shape, place, self.dtype.name) for place in self.places]

    @property
    def expected(self) -> "np.ndarray[Any, Any]":
        found: np.ndarray[Any, Any] = anycann.gelu_backward_v2(self.grad, self.x)
        return found

    def phase_one(self, /, **replaced: int) -> tuple[int, int]:
        values = dict(zip(("gradOutput", "self", "gradInput"), self.tensors, strict=True)) | replaced
        first = TWO_PHASE["aclnnGeluBackwardV2"][0]
        return first(values["gradOutput"], values["self"], "none", values["gradInput"])

    def phase_two(self, executor: int, stream: int = 0, workspace: int = 0, size: int = 0) -> None:
        TWO_PHASE["aclnnGeluBackwardV2"][1](workspace, size, executor, stream)

    def result(self) -> "np.ndarray[Any, Any]":
        return download(self.places[2], self.out)

    def free(self) -> None:
        for handle in self.tensors:
            C.aclDestroyTensor(handle)
        for place in self.places:
            C.aclrtFree(place)


_GATES: "list[Gate]" = []


class Gate:
    """Work in a stream that waits until it is let through."""

    def __init__(self, stream: int, status: int = 0) -> None:
        self.open, self.entered = threading.Event(), threading.Event()

        def wait(_: object) -> int:
            self.entered.set()
            return status if self.open.wait(LIMIT) else 1

        self._job = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(wait)
        _GATES.append(self)  # the stream calls it after the test may have dropped it
        C.anycann_stream_enqueue(stream, ctypes.cast(self._job, ctypes.c_void_p).value, 0)


@contextlib.contextmanager
def stream() -> Iterator[int]:
    handle = C.aclrtCreateStream()
    yield handle
    C.aclrtDestroyStream(handle)


def in_thread(function: Callable[[], Any]) -> Any:
    """What a function returns, or raises, in a thread of its own."""
    result: list[Any] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.append(function())
        except BaseException as error:  # raised again below
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(LIMIT)
    assert not thread.is_alive(), "a call hangs"
    if errors:
        raise errors[0]
    return result[0]


def opens_after(gate: Gate, call: Callable[[], object]) -> None:
    """The call must wait for the gate, and end once it is open."""
    done = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            C.aclrtSetDevice(0)
            call()
        except BaseException as error:  # raised again below
            errors.append(error)
        done.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert gate.entered.wait(LIMIT)
    assert not done.wait(0.05), "the call did not wait for the work"
    gate.open.set()
    assert done.wait(LIMIT)
    thread.join(LIMIT)
    if errors:
        raise errors[0]
