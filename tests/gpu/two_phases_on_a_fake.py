"""The two-phase interface on CUDA tensors: devices, streams, workspaces, who keeps memory. `pytest -p fake_cuda` runs it without a GPU.

test_cuda.py tries on a GPU what a fake cannot know.
"""

import gc
import inspect
import weakref
from collections.abc import Callable
from typing import Any

import fake_cuda
import numpy as np
import pytest
import torch

import anycann
from anycann import aclnn, cuda

GELU = (aclnn.aclnnGeluBackwardV2GetWorkspaceSize, aclnn.aclnnGeluBackwardV2)
DATA = np.linspace(-3, 3, 40, dtype=np.float32)
EXPECTED = anycann.gelu_backward_v2(DATA[::-1], DATA)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    fake_cuda.DEFAULT.synchronize()
    fake_cuda.log.clear()


def refused(code: int, call: Callable[[], object], *words: str) -> None:
    with pytest.raises(anycann.AclnnError) as caught:
        call()
    assert caught.value.status == code, caught.value
    assert all(word in str(caught.value) for word in (*words, "got")), caught.value


def tensors() -> list[Any]:
    return [fake_cuda.Tensor.of(array) for array in (DATA[::-1], DATA, np.full_like(DATA, np.nan))]


def planned(grad: Any, x: Any, out: Any) -> Any:
    size, executor = GELU[0](grad, x, "none", out)
    assert (size, executor.device) == (0, "cuda:0")
    return executor


def queued(*streams: Any) -> list[str]:
    return [what for what, stream, *_ in fake_cuda.log if stream in [one.cuda_stream for one in streams]]


def test_the_fake_has_the_signatures_of_torch() -> None:
    for name in ("caching_allocator_alloc", "caching_allocator_delete", "mem_get_info", "current_stream", "default_stream"):
        real = inspect.signature(fake_cuda.REAL_CUDA[name]).parameters
        assert list(inspect.signature(fake_cuda.CUDA[name]).parameters) == list(real), name
    for name in ("Stream", "Event"):
        real_class, made = fake_cuda.REAL_CUDA[name], fake_cuda.CUDA[name]
        for method in [one for one in vars(made) if one in vars(real_class) and not one.startswith("__")]:
            given = list(inspect.signature(vars(made)[method]).parameters)
            assert given == list(inspect.signature(vars(real_class)[method]).parameters), method
    assert list(inspect.signature(fake_cuda.ExternalStream).parameters)[:2] == ["stream_ptr", "device"]


def test_no_stream_is_the_current_one() -> None:
    arrays = tensors()
    GELU[1](None, 0, planned(*arrays))
    assert queued(fake_cuda.DEFAULT) == ["kernel"] + ["record_stream"] * 3
    assert np.isnan(arrays[2].read().numpy()).all(), "the call waited for the device"
    torch.cuda.current_stream().synchronize()
    assert np.array_equal(arrays[2].read().numpy(), EXPECTED)


@pytest.mark.parametrize("kind", ["anycann", "torch", "handle"])
def test_a_stream_comes_after_the_current_one(kind: str) -> None:
    own = aclnn.Stream(device="cuda")
    there = own.on_cuda if kind == "anycann" else torch.cuda.Stream("cuda:0")
    given = {"anycann": own, "torch": there, "handle": there.cuda_stream}[kind]
    arrays = tensors()
    arrays[1].fill_(0)
    GELU[1](None, 0, planned(*arrays), given)
    assert queued(there) == ["wait_event", "kernel"] + ["record_stream"] * 3
    own.synchronize() if kind == "anycann" else there.synchronize()
    assert np.array_equal(arrays[2].read().numpy(), DATA[::-1] * 0.5)


def test_the_device_of_a_stream() -> None:
    assert aclnn.Stream().device == "cpu"
    assert aclnn.Stream().on_cuda is None
    assert aclnn.Stream("cuda").device == aclnn.Stream(torch.device("cuda:0")).device == "cuda:0"
    for wrong in ("gpu", "cuda:x", "cuda0", None, 0):
        with pytest.raises(ValueError, match="device must be"):
            aclnn.Stream(wrong)


def test_streams_of_another_device_are_refused() -> None:
    arrays = tensors()
    executor = planned(*arrays)
    refused(161002, lambda: GELU[1](None, 0, executor, aclnn.Stream()), "stream", "cuda:0", "got one of cpu")
    other = torch.cuda.Stream("cuda:1")
    refused(161002, lambda: GELU[1](None, 0, executor, other), "stream", "got one of cuda:1")
    for wrong in ("0", object(), 1.5):
        with pytest.raises(TypeError, match="stream of aclnnGeluBackwardV2 must be"):
            GELU[1](None, 0, executor, wrong)
    assert not fake_cuda.log
    GELU[1](None, 0, executor)  # what was refused did not use it up
    out = np.empty_like(DATA)
    _, executor = GELU[0](DATA, DATA, "none", out)
    refused(161002, lambda: GELU[1](None, 0, executor, aclnn.Stream("cuda")), "stream", "got one of cuda:0")
    for wrong in (5, torch.cuda.Stream()):
        with pytest.raises(TypeError, match="stream"):
            GELU[1](None, 0, executor, wrong)


def test_tensors_on_several_devices_are_refused() -> None:
    grad, x, out = tensors()
    refused(161002, lambda: GELU[0](grad, DATA, "none", out), "one device", "self on cpu", "gradOutput on cuda:0")
    refused(161002, lambda: GELU[0](grad, x, "none", np.empty_like(DATA)), "gradInput on cpu")
    executor = planned(grad, x, out)
    executor.set_repeatable()
    refused(161002, lambda: executor.set_input_address(1, DATA), "self", "cuda:0", "on cpu", ".to('cuda:0')")
    refused(161002, lambda: executor.set_output_address(0, torch.empty(40)), "gradInput", "on cpu")
    other = fake_cuda.Tensor.of(DATA * 2)
    executor.set_input_address(1, other)
    executor.set_address(0, grad.data_ptr())
    GELU[1](None, 0, executor)
    torch.cuda.current_stream().synchronize()
    assert np.array_equal(out.read().numpy(), anycann.gelu_backward_v2(DATA[::-1], DATA * 2))


def nsa() -> tuple[list[Any], list[Any], Any]:
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=shape).astype(np.float16) for shape in ((3, 1, 16), (64, 1, 16), (32, 1))]
    expected = anycann.nsa_compress_grad(*arrays, [64], compress_block_size=32, compress_stride=16)
    moved = [fake_cuda.Tensor.of(array) for array in (*arrays, *map(np.zeros_like, expected))]
    size, executor = aclnn.aclnnNsaCompressGradGetWorkspaceSize(*moved[:3], [64], 32, 16, 0, "TND", *moved[3:])
    assert size > 0
    return moved, list(expected), executor


def test_the_workspace_is_on_the_device() -> None:
    moved, expected, executor = nsa()
    size, run = executor.workspace_size, aclnn.aclnnNsaCompressGrad
    refused(161002, lambda: run(aclnn.empty_workspace(size), size, executor), "workspace", "cuda:0", "on cpu")
    small = aclnn.empty_workspace(size - 1, "cuda")
    refused(161002, lambda: run(small, size, executor), "workspace", f"empty_workspace({size}, 'cuda:0')")
    room = aclnn.empty_workspace(size, "cuda:0")
    assert room.device == fake_cuda.DEVICE
    stream = aclnn.Stream("cuda")
    run(room, size, executor, stream)
    assert ("record_stream", stream.on_cuda.cuda_stream, room.data_ptr()) in fake_cuda.log
    stream.synchronize()
    assert all(np.array_equal(tensor.read().numpy(), array) for tensor, array in zip(moved[3:], expected, strict=True))


def test_addresses_of_the_device() -> None:
    grad, x, out = tensors()
    made = [aclnn.create_tensor((40,), "float32", data=tensor.data_ptr(), device="cuda") for tensor in (grad, x)]
    view = aclnn.create_tensor((40,), "float32", data=out)
    assert [tensor.device for tensor in (*made, view)] == ["cuda:0"] * 3
    refused(161002, lambda: GELU[0](made[0], aclnn.create_tensor((40,), "float32", data=x.data_ptr()), "none", view), "self on cpu")
    GELU[1](0, 0, planned(*made, view))
    assert queued(fake_cuda.DEFAULT) == ["kernel", "record_stream"]
    torch.cuda.current_stream().synchronize()
    assert np.array_equal(out.read().numpy(), EXPECTED)


class Foreign:
    """An array of another library."""

    def __init__(self, tensor: Any) -> None:
        where = (tensor.data_ptr(), False)
        self.__cuda_array_interface__ = {"version": 3, "shape": (40,), "typestr": "<f4", "data": where, "strides": None, "stream": 1}


def test_memory_of_other_libraries_outlives_the_work() -> None:
    grad, x, out = tensors()
    foreign = Foreign(x)
    alive = weakref.ref(foreign)
    stream = aclnn.Stream("cuda")
    GELU[1](None, 0, planned(grad, foreign, out), stream)
    del foreign
    gc.collect()
    assert alive() is not None
    stream.synchronize()
    assert np.array_equal(out.read().numpy(), EXPECTED)
    GELU[1](None, 0, planned(grad, x, out))  # later calls let go
    gc.collect()
    assert alive() is None


def test_a_stream_has_its_order_and_its_errors() -> None:
    stream, seen = aclnn.Stream("cuda"), []

    def fail() -> None:
        raise RuntimeError("no such kernel")

    stream.submit(lambda: seen.append(torch.cuda.current_stream()))
    stream.run_or_submit(fail)
    assert seen == [stream.on_cuda]
    with pytest.raises(RuntimeError, match="no such kernel"):
        stream.synchronize()
    stream.synchronize()
    assert torch.cuda.current_stream() == fake_cuda.DEFAULT


def test_waiting_with_and_without_a_limit() -> None:
    stream, event = aclnn.Stream("cuda"), aclnn.Event()

    def never() -> None:
        stream.on_cuda.put("busy", never)

    never()
    event.record(stream)
    never()
    assert not stream.query()
    with pytest.raises(anycann.AclnnError, match="20 ms") as caught:
        stream.synchronize(20)
    assert caught.value.status == 507046
    event.synchronize(1000)
    assert event.query()
    stream.on_cuda.work.clear()
    stream.synchronize(20)
    assert stream.query()


def test_events_are_those_of_cuda() -> None:
    first, second = aclnn.Stream("cuda"), aclnn.Stream("cuda")
    start, end = aclnn.Event(), aclnn.Event()
    start.record(first)
    out = fake_cuda.Tensor.of(np.zeros(1000, np.uint8))
    first.submit(lambda: out.fill_(7))
    end.record(first)
    second.wait_event(aclnn.Event())  # never recorded: nothing to wait for
    second.wait_event(end)
    assert (start.query(), end.reached) == (False, False)
    second.synchronize()
    assert (out.read() == 7).all(), "the second stream did not wait for the first"
    assert end.elapsed_ms(start) == -start.elapsed_ms(end) < 0
    end.reset(first)
    assert end.query()
    assert not end.reached
    on_cpu = aclnn.Event()
    on_cpu.record(aclnn.Stream())
    on_cpu.synchronize()
    with pytest.raises(anycann.AclnnError, match="one clock") as caught:
        start.elapsed_ms(on_cpu)
    assert caught.value.status == 107006


def test_streams_of_the_cpu_and_of_the_device_wait_for_each_other() -> None:
    on_cpu, on_device, event, seen = aclnn.Stream(), aclnn.Stream("cuda"), aclnn.Event(), []
    out = fake_cuda.Tensor.of(np.zeros(8, np.uint8))
    on_device.submit(lambda: out.fill_(3))
    event.record(on_device)
    on_cpu.wait_event(event)
    on_cpu.submit(lambda: seen.append(out.read().tolist()))
    on_cpu.synchronize()
    assert seen == [[3] * 8]
    on_cpu.submit(lambda: seen.append("cpu"))
    event.record(on_cpu)
    on_device.wait_event(event)
    assert seen[-1] == "cpu"


def test_the_names_of_devices() -> None:
    assert [cuda.name_of(device) for device in ("cpu", "cuda", "cuda:3", torch.device("cpu"))] == ["cpu", "cuda:0", "cuda:3", "cpu"]
