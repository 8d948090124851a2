"""One of several processes that call every operator on DTensors; `test_torch_sharding` starts them. Prints what went wrong, if anything."""

import itertools
import math
import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode

import anycann
import anycann.torch.sharding
from anycann.torch.library import ENTRIES
from anycann.torch.placements import LINEAR, choices

op = torch.ops.anycann
NSA: dict[str, Any] = {"compress_block_size": 32, "compress_stride": 16}


def calls(*dtypes: torch.dtype) -> Iterator[tuple[str, dict[str, Any]]]:
    """Calls with axes that can and that cannot be divided evenly by 2 and 4."""
    randn = torch.randn
    for dtype in dtypes:
        yield "gelu_v2", {"x": randn(5, 8).to(dtype)}
        yield "gelu_backward_v2", {"grad_output": randn(3, 1, 8).to(dtype), "self": randn(6, 8)}
        for reduction, rows in ((0, 1), (1, 1), (1, 4), (2, 4)):
            losses = {"self": randn(4, 6).to(dtype), "target": randn(rows, 6), "reduction": reduction}
            yield "smooth_l1_loss", losses
            yield "smooth_l1_loss_backward", {"grad_out": randn(4, 6) if reduction == 0 else randn(1), **losses}
        x, weight, bias = randn(4, 6, 2, 8).to(dtype), randn(2, 8), randn(2, 8)
        of_layer = {"input": x, "normalized_shape": (2, 8), "weight": weight.to(dtype), "bias": bias.to(dtype)}
        yield "layer_norm", of_layer
        _, mean, rstd = op.layer_norm(*of_layer.values())
        yield "layer_norm_backward", {"grad_out": randn(4, 6, 2, 8).to(dtype), "mean": mean, "rstd": rstd, **of_layer}
        yield "layer_norm_backward", {"grad_out": x, "mean": mean, "rstd": rstd, **of_layer, "output_mask": [True, False, True]}
        rows_of = {"input_dy": randn(4, 6, 8).to(dtype), "input_x": randn(4, 6, 8).to(dtype), "input_gamma": randn(8).to(dtype)}
        yield "layer_norm_grad", {**rows_of, "input_variance": torch.rand(4, 6).to(dtype), "input_mean": randn(4, 6).to(dtype)}
        yield "layer_norm_grad_beta", {"res_for_gamma": randn(4, 6, 8).to(dtype), "input_dy": randn(4, 6, 8).to(dtype)}
        indices = torch.randperm(16).int()
        dropping = torch.where(torch.rand(16) < 0.2, indices + 20, indices)
        yield "moe_token_permute", {"tokens": randn(8, 6).to(dtype), "indices": torch.randint(0, 5, (8, 2)), "num_out_tokens": 13}
        yield "moe_token_permute_grad", {"permuted_output_grad": randn(18, 6).to(dtype), "sorted_indices": dropping, "num_topk": 2}
        yield "moe_token_unpermute", {"permuted_tokens": randn(16, 6).to(dtype), "sorted_indices": dropping, "probs": randn(8, 2)}
        yield "moe_token_unpermute", {"permuted_tokens": randn(16, 6).to(dtype), "sorted_indices": indices}
        of_tokens = {"unpermuted_tokens_grad": randn(8, 6).to(dtype), "sorted_indices": indices, "probs": randn(8, 2).to(dtype)}
        yield "moe_token_unpermute_grad", {"permute_tokens": randn(16, 6).to(dtype), **of_tokens}
        tokens, heads = randn(256, 4, 64).to(dtype), randn(32, 4).to(dtype)
        for lengths in ([64, 128, 192, 256], [16, 96, 256]):
            yield "nsa_compress", {"input": tokens, "weight": heads, "act_seq_len": lengths, **NSA}
            grad = randn(op.nsa_compress(tokens, heads, lengths, **NSA).shape).to(dtype)
            yield "nsa_compress_grad", {"output_grad": grad, "input": tokens, "weight": heads, "act_seq_len": lengths, **NSA}


def laid(tensor: torch.Tensor, placements: list[Placement], mesh: DeviceMesh) -> DTensor:
    """A DTensor of this value; terms of a sum are equal parts."""
    plain = [Replicate() if placement.is_partial() else placement for placement in placements]
    terms = math.prod(mesh.size(axis) for axis, placement in enumerate(placements) if placement.is_partial())
    local = distribute_tensor(tensor / terms if terms > 1 else tensor, mesh, plain).to_local()
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=tensor.shape, stride=tensor.stride())


def complaint(name: str, values: dict[str, Any], placements: dict[str, list[Placement]], mesh: DeviceMesh, still: bool) -> str | None:
    """What is wrong with a call on tensors so placed; None if it gives what one process gives."""
    entry = ENTRIES[name]
    expected = entry.call({**entry.defaults, **values})
    given = {key: laid(value, placements[key], mesh) if isinstance(value, torch.Tensor) else value for key, value in values.items()}
    with CommDebugMode() as traffic:
        found = entry.call({**entry.defaults, **given})
    where = f"{name} {[tuple(v.shape) for v in values.values() if isinstance(v, torch.Tensor)]} {placements} on {mesh.shape}"
    if still and traffic.get_total_counts():
        return f"{where}: {traffic.get_comm_counts()} though every rank had its part"
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for result, value in pairs:
        if value is None or result is None:
            if value is not result:
                return f"{where}: None on one side only"
            continue
        whole = result.full_tensor()
        exact = not any(placement.is_partial() for placement in (*result.placements, *itertools.chain(*placements.values())))
        summed = 2e-5 if value.dtype == torch.float32 else 0.06
        scale = float(value.float().abs().max()) if value.numel() else 0
        good = whole.dtype == value.dtype and whole.shape == value.shape
        good = good and (torch.equal(whole, value) if exact else torch.allclose(whole.float(), value.float(), rtol=0, atol=summed * scale))
        if not good:
            return f"{where}: {result.placements} gave\n{whole}\nnot\n{value}"
    return None


def where_nothing_moves(mesh: DeviceMesh, *dtypes: torch.dtype) -> Iterator[str | None]:
    """Every choice, on a mesh of one axis."""
    for name, values in calls(*dtypes):
        entry = ENTRIES[name]
        for choice in choices(entry, {**entry.defaults, **values}, mesh.size()):
            for axis in range(mesh.ndim):
                placements = {
                    key: [placement if axis == other else Replicate() for other in range(mesh.ndim)]
                    for key, placement in choice.inputs.items()
                }
                yield complaint(name, values, placements, mesh, still=True)


def anywhere(mesh: DeviceMesh, generator: random.Random, times: int) -> Iterator[str | None]:
    """Placements at random."""
    for name, values in calls(torch.float32):
        tensors = {key: value for key, value in values.items() if isinstance(value, torch.Tensor)}
        for _ in range(times):
            placements = {}
            for key, tensor in tensors.items():
                kinds: list[Placement] = [Replicate(), *(Shard(dim) for dim in range(tensor.dim()))]
                kinds += [Partial()] if LINEAR.get(name) == key else []
                placements[key] = [generator.choice(kinds) for _ in range(mesh.ndim)]
            yield complaint(name, values, placements, mesh, still=False)


def gradients(mesh: DeviceMesh) -> Iterator[str | None]:
    """A model whose rows, then whose heads, are sharded: the gradients of its parameters are those of one process."""
    x = torch.randn(8, 4, 16)
    weight, bias = torch.randn(16, requires_grad=True), torch.randn(16, requires_grad=True)

    def loss(x: Any, weight: Any, bias: Any) -> Any:
        hidden = anycann.torch.gelu(anycann.torch.layer_norm(x, (16,), weight, bias))
        return anycann.torch.smooth_l1_loss(hidden, x)

    expected = torch.autograd.grad(loss(x, weight, bias), (weight, bias))
    whole = [Replicate()] * mesh.ndim
    sharded = [distribute_tensor(one.detach(), mesh, whole).requires_grad_() for one in (weight, bias)]
    found = torch.autograd.grad(loss(distribute_tensor(x, mesh, [Shard(axis) for axis in range(mesh.ndim)]), *sharded), sharded)
    for one, other in zip(found, expected, strict=True):
        near = torch.allclose(one.full_tensor(), other, rtol=0, atol=1e-6 * float(other.abs().max()))
        yield None if near else f"gradients on {mesh.shape}: {one.full_tensor()} not {other}"


def main() -> None:
    rank, world, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    anycann.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    torch.manual_seed(0)
    line, generator = init_device_mesh("cpu", (world,)), random.Random(0)
    if world == 2:
        runs = [where_nothing_moves(line, torch.float32, torch.bfloat16), anywhere(line, generator, 2), gradients(line)]
    else:
        plane = init_device_mesh("cpu", (2, world // 2))
        runs = [where_nothing_moves(line, torch.float32), anywhere(plane, generator, 2), gradients(plane)]
    count = 0
    for found in itertools.chain(*runs):
        count += 1
        if found and rank == 0:
            print(found)
    try:
        op.gelu_backward_v2(distribute_tensor(torch.ones(4), line, [Replicate()]), torch.ones(4))
        print("a call with a plain tensor was accepted")
    except RuntimeError as error:
        if "all tensors must be DTensors of one mesh; got self" not in str(error):
            print(error)
    if rank == 0:
        print(f"{count} calls")
    dist.barrier()
    if torch.__version__ < (2, 7):  # whose gloo may wait for ever for who has left
        sys.stdout.flush()
        os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
