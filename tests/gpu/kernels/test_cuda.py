"""CUDA tensors through the public functions: devices, streams, graphs, memory, other libraries' arrays. Needs a GPU."""

import numpy as np
import pytest
import torch
from kernels import DEVICE

import anycann
from anycann import aclnn

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


def tensors(*shapes, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def calls(dtype=torch.bfloat16):
    """Functions of tensors on any device, and their tensors."""
    grad, x, target = tensors((65, 130), (65, 130), (65, 130), dtype=dtype)
    yield lambda g, x: anycann.gelu_backward_v2(g, x, "tanh"), (grad, x)
    yield lambda x: anycann.gelu_v2(x, "none"), (x,)
    yield lambda g, x, t: anycann.smooth_l1_loss_backward(g, x, t, "mean", 0.5), (grad[0, :1], x, target)
    yield anycann.layer_norm_grad_beta, (x, grad)
    yield lambda x, w: anycann.layer_norm(x, (130,), w), (x, grad[0])
    yield lambda g, x, m: anycann.layer_norm_backward(g, x, (130,), m, m.abs()), (grad, x, target[:, :1])
    yield lambda g, x, m: anycann.layer_norm_grad(g, x, m.abs(), m, g[0]), (grad, x, target[:, 0])
    yield lambda g, i: anycann.moe_token_permute_grad(g, i, 5), (grad, torch.randperm(65, generator=torch.Generator()).int())
    yield lambda x, t: anycann.smooth_l1_loss(x, t, "mean", 0.5), (x, target)
    experts = torch.randint(0, 9, (65, 40), generator=torch.Generator().manual_seed(2))
    yield anycann.moe_token_permute, (x, experts)
    yield lambda g, i, p: anycann.moe_token_unpermute_grad(g, g, i, p), (grad, experts[:, 0].int(), target[:, :1])
    yield lambda g, i, p: anycann.moe_token_unpermute(g, i, p), (grad, experts[:, 0].int(), target[:, :1])
    dy, x, weight = tensors((127, 2, 64), (2048, 2, 64), (32, 2), dtype=dtype)
    yield lambda g, x, w: anycann.nsa_compress_grad(g, x, w, compress_block_size=32, compress_stride=16), (dy, x, weight)
    yield lambda x, w: anycann.nsa_compress(x, w, [2048], compress_block_size=32, compress_stride=16), (x, weight)


def flat(result):
    return [tensor.cpu().reshape(-1).view(torch.uint8) for tensor in (result if isinstance(result, tuple) else (result,))]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(flat(a), flat(b), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_results_are_on_the_device_and_have_the_bits_of_the_cpu(dtype):
    for function, arrays in calls(dtype):
        results = function(*[array.to(DEVICE) for array in arrays])
        for _ in range(3):  # checked, planned, recognised
            assert same(results, function(*arrays))
            assert all(result.device == torch.device(DEVICE) for result in (results if isinstance(results, tuple) else (results,)))
            results = function(*[array.to(DEVICE) for array in arrays])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hundred_runs_have_the_same_bits(dtype):
    for function, arrays in calls(dtype):
        moved = [array.to(DEVICE) for array in arrays]
        first = function(*moved)
        assert all(same(function(*moved), first) for _ in range(99))


def test_strided_and_unaligned_tensors():
    grad, x = tensors((40, 131), (131, 40))
    for views in ((grad[:, 1:], x.T[:, 1:]), (grad.expand(3, 40, 131), x.T.expand(3, 40, 131)), (grad[::2, ::3], x.T[::2, ::3])):
        moved = [grad.to(DEVICE)[:, 1:], x.to(DEVICE).T[:, 1:]] if views[0].shape[-1] == 130 else [view.to(DEVICE) for view in views]
        assert same(anycann.gelu_backward_v2(*moved), anycann.gelu_backward_v2(*views))


def test_overlapping_memory_is_as_if_copied_first():
    (buffer,) = tensors((2000,))
    (grad,) = tensors((1900,), seed=1)
    expected = anycann.gelu_backward_v2(grad, buffer[:1900].clone())
    there = buffer.to(DEVICE)
    anycann.gelu_backward_v2(grad.to(DEVICE), there[:1900], out=there[64:1964])
    assert same(there[64:1964], expected)
    there = buffer.to(DEVICE)[:1900]
    anycann.gelu_backward_v2(grad.to(DEVICE), there, out=there)
    assert same(there, expected)


def test_mixed_devices_are_refused():
    grad, x = tensors((8,), (8,))
    with pytest.raises(anycann.AclnnError, match=r"grad_output on cuda:0, self on cpu") as refused:
        anycann.gelu_backward_v2(grad.to(DEVICE), x)
    assert refused.value.status == 161002
    with pytest.raises(anycann.AclnnError, match="out on cpu"):
        anycann.gelu_backward_v2(grad.to(DEVICE), x.to(DEVICE), out=torch.empty(8))


def phases(grad, x, out, stream=None):
    """aclnnGeluBackwardV2 on CUDA tensors; nothing waits."""
    size, executor = aclnn.aclnnGeluBackwardV2GetWorkspaceSize(grad, x, "tanh", out)
    aclnn.aclnnGeluBackwardV2(aclnn.empty_workspace(size, DEVICE), size, executor, stream)


def streams():
    """Every way to name a stream, and what waits for it."""
    yield None, torch.cuda.synchronize
    own = aclnn.Stream(device="cuda")
    yield own, own.synchronize
    other = torch.cuda.Stream()
    yield other, other.synchronize
    handle = torch.cuda.Stream()
    yield handle.cuda_stream, handle.synchronize


def test_two_phases_on_streams():
    grad, x = tensors((65, 130), (65, 130))
    expected, moved = anycann.gelu_backward_v2(grad, x, "tanh"), [grad.to(DEVICE), x.to(DEVICE)]
    for stream, synchronize in streams():
        for _ in range(3):  # checked, planned, recognised
            late, out = torch.zeros_like(moved[1]), torch.zeros_like(moved[1])
            torch.cuda._sleep(20_000_000)
            late.copy_(moved[1])  # behind the sleep: the other stream must wait for it
            phases(moved[0], late, out, stream)
            del late  # its memory may be used again only when the work is done
            torch.full((65, 130), 7.0, device=DEVICE)
            synchronize()
            assert same(out, expected)


def test_two_phases_with_a_workspace_and_addresses():
    grad, x, weight = tensors((127, 2, 64), (2048, 2, 64), (32, 2), dtype=torch.bfloat16)
    expected = anycann.nsa_compress_grad(grad, x, weight, [2048], compress_block_size=32, compress_stride=16)
    moved = [tensor.to(DEVICE) for tensor in (grad, x, weight)]
    outs = [torch.empty_like(tensor, device=DEVICE) for tensor in expected]
    views = [aclnn.create_tensor(t.shape, "bfloat16", data=t.data_ptr(), device=DEVICE) for t in (*moved, *outs)]
    size, executor = aclnn.aclnnNsaCompressGradGetWorkspaceSize(*views[:3], [2048], 32, 16, 0, "TND", *views[3:])
    with pytest.raises(anycann.AclnnError, match="workspace must be on cuda:0"):
        aclnn.aclnnNsaCompressGrad(aclnn.empty_workspace(size), size, executor)
    stream = aclnn.Stream(device=DEVICE)
    aclnn.aclnnNsaCompressGrad(aclnn.empty_workspace(size, DEVICE), size, executor, stream)
    stream.synchronize(60_000)
    assert same(tuple(outs), expected)


def test_two_phases_refuse_other_devices():
    grad = tensors((8,))[0]
    there = grad.to(DEVICE)
    with pytest.raises(anycann.AclnnError, match=r"self on cpu") as refused:
        aclnn.aclnnGeluBackwardV2GetWorkspaceSize(there, grad, "none", there.clone())
    assert refused.value.status == 161002
    _, executor = aclnn.aclnnGeluBackwardV2GetWorkspaceSize(there, there, "none", there.clone())
    with pytest.raises(anycann.AclnnError, match="got one of cpu"):
        aclnn.aclnnGeluBackwardV2(None, 0, executor, aclnn.Stream())


def test_two_phases_in_a_graph():
    grad, x = (tensor.to(DEVICE) for tensor in tensors((65, 130), (65, 130)))
    out = torch.empty_like(x)
    phases(grad, x, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        phases(grad, x, out)
    x.mul_(-0.5)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert same(out, anycann.gelu_backward_v2(grad, x, "tanh"))


def test_events_of_the_device():
    first, second, start, end = aclnn.Stream("cuda"), aclnn.Stream("cuda"), aclnn.Event(), aclnn.Event()
    start.record(first)
    first.submit(lambda: torch.cuda._sleep(50_000_000))
    end.record(first)
    second.wait_event(end)
    assert not second.query()
    with pytest.raises(anycann.AclnnError, match="after 1 ms"):
        second.synchronize(1)
    second.synchronize(60_000)
    assert end.reached
    assert 5 < start.elapsed_ms(end) < 5000


def test_the_current_stream_is_used():
    for function, arrays in calls():
        moved = [array.to(DEVICE) for array in arrays]
        expected = function(*moved)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            late = [torch.zeros_like(tensor) for tensor in moved]
            torch.cuda._sleep(20_000_000)
            for tensor, value in zip(late, moved, strict=True):
                tensor.copy_(value)
            results = function(*late)
        stream.synchronize()
        assert same(results, expected)


def test_a_graph_replays():
    for function, arrays in calls():
        moved = [array.to(DEVICE) for array in arrays]
        function(*moved)
        function(*moved)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = function(*moved)
        floats = [tensor for tensor in moved if tensor.is_floating_point()]
        for tensor in floats:
            tensor.mul_(-0.5)
        graph.replay()
        torch.cuda.synchronize()
        assert same(results, function(*moved))


def test_runs_are_identical():
    for function, arrays in calls():
        moved = [array.to(DEVICE) for array in arrays]
        first = flat(function(*moved))
        for _ in range(20):
            assert all(torch.equal(a, b) for a, b in zip(first, flat(function(*moved)), strict=True))


class Exported:
    """A CUDA array of another library, by one of the two protocols."""

    def __init__(self, tensor, protocol):
        self.tensor = tensor
        if protocol == "interface":
            self.__cuda_array_interface__ = tensor.__cuda_array_interface__
        else:
            self.__dlpack__, self.__dlpack_device__ = tensor.__dlpack__, tensor.__dlpack_device__


@pytest.mark.parametrize("protocol", ["interface", "dlpack"])
def test_arrays_of_other_libraries(protocol):
    grad, x = tensors((7, 33), (7, 33))
    result = anycann.gelu_backward_v2(Exported(grad.to(DEVICE), protocol), Exported(x.to(DEVICE), protocol))
    assert same(result, anycann.gelu_backward_v2(grad, x))
    out = torch.empty(7, 33, device=DEVICE)
    anycann.gelu_backward_v2(Exported(grad.to(DEVICE), protocol), Exported(x.to(DEVICE), protocol), out=Exported(out, protocol))
    assert same(out, result)


def test_empty_tensors():
    empty = torch.empty(0, 5, device=DEVICE)
    assert anycann.gelu_backward_v2(empty, empty).shape == (0, 5)
    gamma, beta = anycann.layer_norm_grad_beta(empty, empty)
    assert gamma.tolist() == beta.tolist() == [0.0] * 5


def test_autograd_and_compile():
    import anycann.torch

    (x,) = tensors((64, 64))
    moved = x.to(DEVICE).requires_grad_()
    grad = torch.ones_like(moved)
    result = torch.ops.anycann.gelu_backward_v2(grad, moved.detach(), "tanh")
    assert same(result, anycann.gelu_backward_v2(grad.cpu(), x, "tanh"))
    assert same(torch.compile(lambda g, x: torch.ops.anycann.gelu_backward_v2(g, x, "tanh"))(grad, moved.detach()), result)


def test_large_indices():
    if torch.cuda.mem_get_info()[0] < 20 << 30:
        pytest.skip("needs 20 GiB")
    size = (1 << 31) + 5000
    x = torch.zeros(size, dtype=torch.bfloat16, device=DEVICE)
    x[-3:] = torch.tensor([1.0, -1.0, 30.0])
    grad = torch.ones(1, dtype=torch.bfloat16, device=DEVICE)
    out = anycann.gelu_backward_v2(grad, x)
    assert float(out[0]) == 0.5
    assert bool((out[:-3] == 0.5).all())
    assert same(out[-3:], anycann.gelu_backward_v2(grad.cpu(), x[-3:].cpu()))


def test_numpy_arrays_stay_on_the_cpu():
    assert isinstance(anycann.gelu_backward_v2(np.ones(4, np.float32), np.ones(4, np.float32)), np.ndarray)
