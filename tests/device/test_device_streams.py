"""Streams, events, contexts and devices: waiting, order, timeouts, errors of queued work, and who has a device."""

import ctypes
import threading
import time
from collections.abc import Callable

import pytest
from device_calls import LIMIT, C, Gate, in_thread, malloc, opens_after, refused, stream

import anycann
from anycann import device, products


def test_a_second_init_and_a_second_finalize() -> None:
    C.aclInit(None)
    refused(100002, lambda: C.aclInit(None), "initialised already", "aclFinalize")
    C.aclFinalize()
    refused(100037, C.aclFinalize, "not initialised")
    refused(100037, C.aclFinalizeReference, "not initialised")
    C.aclInit("")
    refused(100002, lambda: C.aclInit(None))
    assert C.aclFinalizeReference() == 1
    assert C.aclFinalizeReference() == 0
    refused(100037, C.aclFinalizeReference)
    C.aclInit(None)
    C.aclFinalize()
    C.aclnnInit(None)
    C.aclnnInit(None)
    C.aclnnFinalize()
    C.aclnnFinalize()


def test_a_configuration_must_be_a_file() -> None:
    refused(100000, lambda: C.aclInit("/no/such/file.json"), "configPath", "/no/such/file.json")
    C.aclInit(__file__)
    C.aclFinalize()


def test_runtime_calls_need_no_init() -> None:
    refused(100037, C.aclFinalize)
    C.aclrtFree(malloc(8))
    with stream() as queue:
        C.aclrtSynchronizeStream(queue)


@pytest.mark.parametrize("number", [-1, 1, 7, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("function", ["aclrtSetDevice", "aclrtResetDevice", "aclrtResetDeviceForce", "aclrtCreateContext"])
def test_device_numbers(function: str, number: int) -> None:
    before = device.living()
    refused(107001, lambda: device.CALLS[function](number), "deviceId", "from 0 to 0", f"got {number}")
    assert device.living() == before


def test_what_the_device_says_of_itself() -> None:
    assert C.aclrtGetDevice() == 0
    assert C.aclrtGetDeviceCount() == 1
    assert C.aclrtGetRunMode() == 1
    assert len(C.aclrtGetVersion()) == 3
    assert C.aclrtGetSocName() == products.soc_name() == "Ascend910B1"


def test_a_device_is_reset_as_often_as_it_was_set() -> None:
    C.aclrtResetDeviceForce(0)
    for reset in (C.aclrtResetDevice, C.aclrtResetDeviceForce):
        refused(507007, lambda r=reset: r(0), "deviceId", "aclrtSetDevice")
    refused(107002, C.aclrtGetDevice)
    C.aclrtSetDevice(0)
    C.aclrtSetDevice(0)
    C.aclrtResetDevice(0)
    assert C.aclrtGetDevice() == 0
    C.aclrtResetDevice(0)
    refused(107002, C.aclrtGetDevice, "context")
    refused(507007, lambda: C.aclrtResetDevice(0))
    C.aclrtSetDevice(0)
    C.aclrtSetDevice(0)
    C.aclrtResetDeviceForce(0)
    refused(107002, lambda: C.aclrtMalloc(8, 0), "context")


def test_every_thread_has_its_own_context() -> None:
    assert in_thread(lambda: refused(107002, C.aclrtGetDevice))
    own = C.aclrtGetCurrentContext()

    def use() -> int:
        C.aclrtSetCurrentContext(own)
        C.aclrtFree(malloc(8))
        return C.aclrtGetCurrentContext()

    assert in_thread(use) == own


def test_contexts_are_made_current_and_can_be_destroyed() -> None:
    default = C.aclrtGetCurrentContext()
    made = C.aclrtCreateContext(0)
    assert C.aclrtGetCurrentContext() == made != default
    C.aclrtSetCurrentContext(default)
    C.aclrtDestroyContext(made)
    assert C.aclrtGetCurrentContext() == default
    other = C.aclrtCreateContext(0)
    C.aclrtDestroyContext(other)
    refused(107002, C.aclrtCreateStream, "context")
    refused(107017, lambda: C.aclrtSetCurrentContext(other), "context", "destroyed")
    refused(107000, lambda: C.aclrtDestroyContext(default), "context", "aclrtResetDevice")
    C.aclrtSetDevice(0)
    assert C.aclrtGetCurrentContext() == default


@pytest.mark.parametrize("destroy", ["aclrtDestroyStream", "aclrtDestroyStreamForce"])
def test_destroying_a_stream_waits_for_its_work(destroy: str) -> None:
    queue = C.aclrtCreateStreamWithConfig(0, 3)
    gate = Gate(queue)
    opens_after(gate, lambda: device.CALLS[destroy](queue))
    refused(107017, lambda: C.aclrtSynchronizeStream(queue), "stream", "destroyed")


WAITING: dict[str, Callable[[], object]] = {
    "aclrtResetDevice": lambda: C.aclrtResetDevice(0),
    "aclrtResetDeviceForce": lambda: C.aclrtResetDeviceForce(0),
    "aclFinalize": lambda: C.aclFinalize(),
    "aclrtSynchronizeDevice": lambda: C.aclrtSynchronizeDevice(),
}


@pytest.mark.parametrize("name", WAITING)
def test_what_ends_a_device_waits_for_queued_work(name: str) -> None:
    C.aclInit(None)
    queue = C.aclrtCreateStream()
    opens_after(Gate(queue), WAITING[name])
    C.aclrtSetDevice(0)
    C.aclrtDestroyStream(queue)
    if name != "aclFinalize":
        C.aclFinalize()


@pytest.mark.parametrize("timeout", [0, -2, -1000, -(2**31)])
def test_timeouts_that_are_none(timeout: int) -> None:
    with stream() as queue:
        for handle in (queue, 0):
            refused(107000, lambda h=handle: C.aclrtSynchronizeStreamWithTimeout(h, timeout), "timeout", "-1", f"got {timeout}")


def test_a_timeout_that_expires() -> None:
    with stream() as queue:
        gate = Gate(queue)
        before = time.monotonic()
        refused(507046, lambda: C.aclrtSynchronizeStreamWithTimeout(queue, 50), "stream", "50 ms")
        assert 0.04 < time.monotonic() - before < LIMIT
        gate.open.set()
        C.aclrtSynchronizeStreamWithTimeout(queue, 1000 * LIMIT)
        C.aclrtSynchronizeStreamWithTimeout(queue, -1)
        C.aclrtSynchronizeStreamWithTimeout(0, 1)


def test_the_state_of_a_stream() -> None:
    with stream() as queue:
        assert C.aclrtStreamQuery(queue) == C.aclrtStreamQuery(0) == 0
        gate = Gate(queue)
        assert C.aclrtStreamQuery(queue) == 1
        gate.open.set()
        C.aclrtSynchronizeStream(queue)
        assert C.aclrtStreamQuery(queue) == 0


def test_the_state_of_an_event() -> None:
    event = C.aclrtCreateEvent()
    assert C.aclrtQueryEventStatus(event) == 0
    C.aclrtSynchronizeEvent(event)  # never recorded: nothing to wait for
    C.aclrtRecordEvent(event, 0)
    assert C.aclrtQueryEventStatus(event) == 1
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtRecordEvent(event, queue)
        assert C.aclrtQueryEventStatus(event) == 0
        opens_after(gate, lambda: C.aclrtSynchronizeEvent(event))
        assert C.aclrtQueryEventStatus(event) == 1
        C.aclrtResetEvent(event, queue)
        C.aclrtSynchronizeStream(queue)
        assert C.aclrtQueryEventStatus(event) == 0
    C.aclrtDestroyEvent(event)


def test_time_between_events() -> None:
    first, last = C.aclrtCreateEvent(), C.aclrtCreateEventWithFlag(1)
    for pair in ((first, last), (last, first), (first, first)):
        refused(507000, lambda p=pair: C.aclrtEventElapsedTime(*p), "recorded")
    C.aclrtRecordEvent(first, 0)
    refused(507000, lambda: C.aclrtEventElapsedTime(first, last), "recorded")
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtRecordEvent(last, queue)
        refused(507000, lambda: C.aclrtEventElapsedTime(first, last), "reached")
        time.sleep(0.02)
        gate.open.set()
        C.aclrtSynchronizeStream(queue)
    assert 20 <= C.aclrtEventElapsedTime(first, last) < 1000 * LIMIT
    assert C.aclrtEventElapsedTime(last, first) == -C.aclrtEventElapsedTime(first, last)
    for name, pair in (("start", (0, last)), ("end", (first, 0))):
        refused(100000, lambda p=pair: C.aclrtEventElapsedTime(*p), name, "null")
    for event in (first, last):
        C.aclrtDestroyEvent(event)


def test_a_stream_waits_for_an_event_of_another() -> None:
    event = C.aclrtCreateEvent()
    with stream() as first, stream() as second:
        gate = Gate(first)
        C.aclrtRecordEvent(event, first)
        C.aclrtStreamWaitEvent(second, event)
        C.aclrtDestroyEvent(event)  # the waiting stream has what it needs
        refused(507046, lambda: C.aclrtSynchronizeStreamWithTimeout(second, 30))
        gate.open.set()
        C.aclrtSynchronizeStream(second)


def test_the_default_stream_waits_for_an_event() -> None:
    event = C.aclrtCreateEvent()
    with stream() as queue:
        gate = Gate(queue)
        C.aclrtRecordEvent(event, queue)
        opens_after(gate, lambda: C.aclrtStreamWaitEvent(0, event))
    C.aclrtDestroyEvent(event)


def test_work_that_fails_is_told_by_the_next_synchronise_once() -> None:
    with stream() as queue, stream() as other:
        Gate(queue, status=7).open.set()
        text = refused(507000, lambda: C.aclrtSynchronizeStream(queue), "7")
        assert text.startswith("aclrtSynchronizeStream: ")
        C.aclrtSynchronizeStream(queue)
        Gate(queue, status=1).open.set()
        late = Gate(other)
        threading.Timer(0.05, late.open.set).start()
        refused(507000, C.aclrtSynchronizeDevice, "aclrtSynchronizeDevice")
        assert C.aclrtStreamQuery(other) == 0, "the other stream was not waited for"
        C.aclrtSynchronizeDevice()
        C.aclrtSynchronizeStream(queue)
        Gate(queue, status=1).open.set()  # nobody asks: lost with the stream


def test_work_on_the_default_stream_is_done_and_fails_when_the_call_returns() -> None:
    job = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: 3)
    with pytest.raises(anycann.AclnnError, match="3") as caught:
        C.anycann_stream_enqueue(0, ctypes.cast(job, ctypes.c_void_p).value, 0)
    assert caught.value.status == 507000


def test_destroyed_streams_leave_no_thread() -> None:
    before = threading.active_count()
    for _ in range(50):
        with stream() as queue:
            gate = Gate(queue)
            gate.open.set()
    until = time.monotonic() + LIMIT
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.005)
    assert threading.active_count() <= before


def test_streams_that_are_not_used_have_no_thread() -> None:
    before = threading.active_count()
    queues = [C.aclrtCreateStream() for _ in range(20)]
    for queue in queues:
        C.aclrtSynchronizeStream(queue)
    assert threading.active_count() == before
    for queue in queues:
        C.aclrtDestroyStream(queue)


def test_handles_made_by_many_threads_at_once_are_different() -> None:
    made: list[list[int]] = [[] for _ in range(16)]

    def make(into: list[int]) -> None:
        C.aclrtSetDevice(0)
        for _ in range(200):
            event = C.aclrtCreateEvent()
            into.append(event)
            C.aclrtRecordEvent(event, 0)
            C.aclrtDestroyEvent(event)

    threads = [threading.Thread(target=make, args=(into,)) for into in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert len({handle for into in made for handle in into}) == 16 * 200
