"""The C interface's device with ANYCANN_DEVICE=cuda, on a fake: what goes into which stream, and what has to wait.

That its calls answer what they answer on the CPU, the tests of tests/device say, which run on the fake too (test_backings.py).
"""

import ctypes
import time
from collections.abc import Iterator

import device_calls
import fake_cuda
import numpy as np
import pytest
from device_calls import ON_DEVICE, TO_DEVICE, TO_HOST, C, Gelu, address, malloc, refused, stream, upload

import anycann
from anycann import device, ops
from anycann.device import backing, memory, queues

KIND = {0: "cpu to cpu", TO_DEVICE: "cpu to cuda", TO_HOST: "cuda to cpu", ON_DEVICE: "cuda to cuda"}


@pytest.fixture(autouse=True)
def _device() -> Iterator[None]:
    C.aclrtSetDevice(0)
    before = device.living()
    fake_cuda.log.clear()
    yield
    assert device.living() == before
    assert not any(one.work for one in fake_cuda.Stream.all)
    C.aclrtResetDeviceForce(0)


def queued(handle: int) -> list[str]:
    """What was put into a stream."""
    real = queues.STREAMS.living[handle].on_cuda if handle else fake_cuda.DEFAULT
    return [what for what, number, *_ in fake_cuda.log if number == real.cuda_stream]


def test_device_memory_is_the_allocators() -> None:
    before = dict(fake_cuda.allocator.living)
    place = malloc(100)
    assert fake_cuda.allocator.living.keys() - before.keys() == {place}
    assert fake_cuda.allocator.living[place] >= 100 + 60
    assert C.aclrtGetMemInfo(1)[1] == fake_cuda.CAPACITY
    refused(207001, lambda: C.aclrtMalloc(fake_cuda.CAPACITY - 64, 0), "size")
    C.aclrtFree(place)
    assert fake_cuda.allocator.living == before


@pytest.mark.parametrize("kind", [TO_DEVICE, TO_HOST, ON_DEVICE])
def test_copies_of_all_kinds_are_the_streams(kind: int) -> None:
    data, result = np.arange(100, dtype=np.uint8), np.zeros(100, np.uint8)
    first, second = upload(data), upload(result)
    to, source = {TO_DEVICE: (second, address(data)), TO_HOST: (address(result), first), ON_DEVICE: (second, first)}[kind]
    fake_cuda.log.clear()
    with stream() as queue:
        C.aclrtMemcpyAsync(to, 100, source, 100, kind, queue)
        assert queued(queue) == [KIND[kind]]
        assert C.aclrtStreamQuery(queue) == 1
        C.aclrtSynchronizeStream(queue)
    assert (result if kind == TO_HOST else device_calls.download(second, result)).tolist() == data.tolist()
    fake_cuda.log.clear()
    C.aclrtMemcpy(to, 100, source, 100, kind)
    assert queued(0) == [KIND[kind], "synchronize"]
    for place in (first, second):
        C.aclrtFree(place)


def test_copies_within_the_host_take_their_place() -> None:
    data, between, result = np.arange(9, dtype=np.uint8), C.aclrtMallocHost(9), np.zeros(9, np.uint8)
    place = upload(data)
    with stream() as queue:
        C.aclrtMemcpyAsync(between, 9, place, 9, TO_HOST, queue)
        C.aclrtMemcpyAsync(address(result), 9, between, 9, 0, queue)
        C.aclrtMemsetAsync(between, 9, 0, 9, queue)
        C.aclrtSynchronizeStream(queue)
    assert result.tolist() == data.tolist()
    assert ctypes.string_at(between, 9) == bytes(9)
    C.aclrtFree(place)
    C.aclrtFreeHost(between)


def test_copies_that_overlap() -> None:
    data = np.arange(100, dtype=np.uint8)
    place = upload(data)
    C.aclrtMemcpy(place + 10, 80, place, 80, ON_DEVICE)
    assert device_calls.download(place, data).tolist() == [*range(10), *range(80), *range(90, 100)]
    C.aclrtFree(place)


def test_freeing_waits_for_all_streams() -> None:
    place = malloc(1000)
    with stream() as queue:
        C.aclrtMemsetAsync(place, 1000, 1, 1000, queue)
        C.aclrtFree(place)  # the fake's allocator objects to what is in use
        assert C.aclrtStreamQuery(queue) == 0


def test_both_phases_are_the_streams() -> None:
    call = Gelu(shape=(70,))
    expected = call.expected
    with stream() as queue:
        _, executor = call.phase_one()
        fake_cuda.log.clear()
        call.phase_two(executor, queue)
        assert queued(queue) == ["kernel"]
        assert queued(0) == []
        C.aclrtSynchronizeStream(queue)
    assert np.array_equal(call.result(), expected)
    _, executor = call.phase_one()
    fake_cuda.log.clear()
    call.phase_two(executor)
    assert queued(0) == ["kernel", "synchronize"], "work of the default stream is done when the call returns"
    call.free()


def test_events_are_cudas() -> None:
    start, end = C.aclrtCreateEvent(), C.aclrtCreateEvent()
    place = malloc(64)
    with stream() as first, stream() as second:
        C.aclrtRecordEvent(start, 0)
        C.aclrtMemsetAsync(place, 64, 5, 64, first)
        time.sleep(0.01)
        C.aclrtRecordEvent(end, first)
        assert C.aclrtQueryEventStatus(end) == 0
        refused(507000, lambda: C.aclrtEventElapsedTime(start, end), "reached")
        C.aclrtStreamWaitEvent(second, end)
        C.aclrtSynchronizeStream(second)
        assert C.aclrtQueryEventStatus(end) == 1
        assert 10 <= C.aclrtEventElapsedTime(start, end) < 10000
        assert "wait_event" in queued(second)
        C.aclrtRecordEvent(end, second)
        C.aclrtStreamWaitEvent(0, end)
        assert C.aclrtQueryEventStatus(end) == 1
        C.aclrtResetEvent(end, second)
        assert C.aclrtQueryEventStatus(end) == 0
    for event in (start, end):
        C.aclrtDestroyEvent(event)
    C.aclrtFree(place)


def test_a_stream_that_is_late() -> None:
    with stream() as queue:
        real = queues.STREAMS.living[queue].on_cuda

        def busy() -> None:
            real.put("busy", busy)

        busy()
        refused(507046, lambda: C.aclrtSynchronizeStreamWithTimeout(queue, 20), "20 ms")
        real.work.clear()
        C.aclrtSynchronizeStreamWithTimeout(queue, 20)


def test_simulated_cores_are_refused() -> None:
    ran = []
    job = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda _: ran.append(1) or 0)
    place = malloc(8)
    with stream() as queue:
        C.anycann_stream_enqueue(queue, ctypes.cast(job, ctypes.c_void_p).value, 0)
        with pytest.raises(anycann.AclnnError, match=r"ANYCANN_DEVICE must be cpu for Ascend C kernels.*got 'cuda'") as caught:
            C.aclrtSynchronizeStream(queue)
        assert caught.value.status == 207000
    with pytest.raises(anycann.AclnnError, match="Ascend C kernels"):
        C.anycann_device_block(place)
    assert "Ascend C kernels" in str(C.aclGetRecentErrMsg())
    assert not ran
    C.aclrtFree(place)


def test_a_missing_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Gelu()
    monkeypatch.setattr("anycann.runtime.Operator.has_kernels", lambda self, backend: False)
    for operator in ops.OPERATORS:
        monkeypatch.setattr(operator, "_modules", {})
    monkeypatch.setattr("anycann.runtime.Operator.known", lambda self, key: None)
    refused(561003, call.phase_one, "aclnnGeluBackwardV2", "kernel for CUDA devices", "ANYCANN_DEVICE=cuda")
    call.free()


def test_host_memory_is_page_locked() -> None:
    place = C.aclrtMallocHost(100)
    assert place in memory.HOST.source._owners
    C.aclrtFreeHost(place)
    assert place not in memory.HOST.source._owners


def test_a_number_that_is_no_devices() -> None:
    other = backing.chosen("cuda:7", interpreted=False)
    for api in ("aclInit", "aclrtSetDevice"):
        refused(107001, lambda api=api: other.need(api), "got 'cuda:7', and this machine has 1, numbered from 0")
    assert backing.chosen("cuda:7", interpreted=True).need("aclInit") is None
    assert type(backing.chosen("cpu", interpreted=True)) is backing.Cpu
