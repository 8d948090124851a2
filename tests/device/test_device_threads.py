"""Many threads and streams at once: the same bits as one call after the other, and every thread reads its own errors."""

import threading

import numpy as np
import pytest
from device_calls import LIMIT, TWO_PHASE, C, download, malloc, tensor, upload

import anycann
from anycann import device

THREADS, STREAMS, COUNT = 64, 32, 64
INPUTS = 8


@pytest.mark.parametrize("calls", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_many_threads_over_many_streams_compute_the_same_bits(calls: int) -> None:
    """64 threads over 32 streams; tensors are destroyed before the synchronise."""
    first, second = TWO_PHASE["aclnnGeluBackwardV2"]
    rng = np.random.default_rng(3)
    grad = rng.normal(size=(THREADS, INPUTS, COUNT)).astype(np.float32)
    x = rng.normal(size=(THREADS, INPUTS, COUNT)).astype(np.float32)
    expected = anycann.gelu_backward_v2(grad, x)
    place_grad, place_x = upload(grad), upload(x)
    place_out = malloc(THREADS * calls * COUNT * 4)
    C.aclrtMemset(place_out, THREADS * calls * COUNT * 4, 0xFF, THREADS * calls * COUNT * 4)
    streams = [C.aclrtCreateStream() for _ in range(STREAMS)]
    failures: list[str] = []
    start = threading.Barrier(THREADS)

    def run(number: int) -> None:
        C.aclrtSetDevice(0)
        start.wait(LIMIT)
        for i in range(calls):
            row = (number * INPUTS + i % INPUTS) * COUNT * 4
            handles = [tensor((COUNT,), place_grad + row), tensor((COUNT,), place_x + row)]
            handles.append(tensor((COUNT,), place_out + (number * calls + i) * COUNT * 4))
            size, executor = first(handles[0], handles[1], "none", handles[2])
            second(0, size, executor, streams[(number + i) % STREAMS])
            for handle in handles:
                C.aclDestroyTensor(handle)
            if i % 20 == 0:
                try:
                    C.aclrtMalloc(8, 1000 + number)
                except anycann.AclnnError as error:
                    device.remember(error)
                text = C.aclGetRecentErrMsg()
                if f"got {1000 + number}." not in text or "\n" in text:
                    failures.append(text)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10 * LIMIT)
        assert not thread.is_alive()
    for queue in streams:
        C.aclrtSynchronizeStream(queue)
        C.aclrtDestroyStream(queue)
    found = download(place_out, np.empty((THREADS, calls, COUNT), np.float32))
    for place in (place_grad, place_x, place_out):
        C.aclrtFree(place)
    assert not failures
    assert np.array_equal(found.view(np.uint32), expected[:, np.arange(calls) % INPUTS].view(np.uint32))


def test_memory_comes_and_goes_while_others_compute() -> None:
    """Allocations and frees of other threads change where memory is looked for."""
    first, second = TWO_PHASE["aclnnGeluBackwardV2"]
    data = np.linspace(-3, 3, COUNT, dtype=np.float32)
    expected = anycann.gelu_backward_v2(data, data)
    failures: list[object] = []

    def compute() -> None:
        C.aclrtSetDevice(0)
        places = [upload(data) for _ in range(3)]
        handles = [tensor((COUNT,), place) for place in places]
        queue = C.aclrtCreateStream()
        for _ in range(100):
            size, executor = first(handles[0], handles[1], "none", handles[2])
            second(0, size, executor, queue)
            C.aclrtSynchronizeStream(queue)
            if not np.array_equal(download(places[2], data), expected):
                failures.append("wrong")
        C.aclrtDestroyStream(queue)
        for handle, place in zip(handles, places, strict=True):
            C.aclDestroyTensor(handle)
            C.aclrtFree(place)

    def churn() -> None:
        C.aclrtSetDevice(0)
        for i in range(500):
            C.aclrtFree(malloc(1 + i % 97))

    threads = [threading.Thread(target=target) for target in [compute] * 6 + [churn] * 6]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
    assert not failures
