"""DTensor: every operator on tensors that are sharded over a mesh of processes. Importing this module registers the rules.

Along each axis of the mesh the choice of `placements` is taken that moves the fewest bytes; inputs are redistributed to it, every
rank calls the operator on its part, and the results are DTensors of the choice's placements.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard

from anycann.bind import broadcast
from anycann.torch.library import ENTRIES, LIBRARY, Entry
from anycann.torch.losses import part_of_gradient, part_of_loss
from anycann.torch.placements import Choice, choices

__all__: list[str] = []


def _cost(tensor: DTensor, now: Placement, wanted: Placement) -> float:
    """Elements that move: a gather brings all, a sum twice as many; to cut what is whole costs little, and is not done without need."""
    if now == wanted:
        return 0
    if isinstance(wanted, Partial):
        return math.inf
    if isinstance(now, Replicate):
        return tensor.numel() / 1000
    return tensor.numel() * (2 if isinstance(now, Partial) and isinstance(wanted, Replicate) else 1)


def _chosen(entry: Entry, values: dict[str, Any], mesh: DeviceMesh) -> list[Choice]:
    """The choice for each axis of the mesh."""
    found: list[Choice] = []
    options = choices(entry, values, mesh.size())
    for axis in range(mesh.ndim):

        def cost(choice: Choice, axis: int = axis) -> float:
            return sum(_cost(values[name], values[name].placements[axis], wanted) for name, wanted in choice.inputs.items())

        found.append(min((option for option in options if _goes_with(option, found)), key=cost))
    return found


def _goes_with(option: Choice, others: Sequence[Choice]) -> bool:
    """A call on a part of a sum is one whichever way it is divided further; what a rank must adjust is one thing at a time."""
    return not option.adjust or all(other.adjust in ("", option.adjust) for other in others)


def _offset(size: int, placements: Sequence[Placement], mesh: DeviceMesh, axis: int) -> tuple[int, int]:
    """Where this rank's part of a sharded axis begins, and its size."""
    start = 0
    for mesh_axis, placement in enumerate(placements):
        if placement == Shard(axis):
            step = -(-size // mesh.size(mesh_axis))
            first = min(step * mesh.get_local_rank(mesh_axis), size)
            start, size = start + first, min(step, size - first)
    return start, size


def _computed(entry: Entry, whole: dict[str, Any], local: dict[str, Any], chosen: list[Choice], mesh: DeviceMesh) -> Any:
    """The results of this rank's part."""
    adjust = {choice.adjust for choice in chosen}
    if "mean" in adjust and whole["reduction"] == 1:
        count = math.prod(broadcast([tuple(whole[name].shape) for name in ("self", "target")]) or ())
        return part_of_loss(local, count) if entry.name == "smooth_l1_loss" else part_of_gradient(local, count)
    if "rows" in adjust:
        name = next(name for name in entry.tensors if name in ("permuted_output_grad", "permuted_tokens"))
        start, _ = _offset(whole[name].shape[0], [choice.inputs[name] for choice in chosen], mesh, 0)
        local = {**local, "sorted_indices": local["sorted_indices"] - start}  # rows of other ranks are dropped tokens here
    if "tokens" in adjust:
        start, size = _offset(whole["input"].shape[0], [choice.inputs["input"] for choice in chosen], mesh, 0)
        lengths = [end - start for end in whole["act_seq_len"] or () if start < end <= start + size]
        local = {**local, "act_seq_len": lengths or [size]}
    return entry.call(local)


def _part(tensor: DTensor, wanted: Sequence[Placement], mesh: DeviceMesh) -> Any:
    """This rank's part of a tensor so placed. Terms of a sum stay terms: along the other axes each moves as a whole tensor does.

    Below autograd redistribute of torch 2.6 refuses what requires grad, and placements with terms, whether they change or not.
    """
    now, wanted = list(tensor.placements), list(wanted)
    for axis, placement in enumerate(wanted):
        if placement.is_partial():
            now[axis] = wanted[axis] = Replicate()
    local = tensor.to_local().detach()
    if now == wanted:
        return local
    return (
        DTensor.from_local(local, mesh, now, run_check=False, shape=tensor.shape, stride=tensor.stride())
        .redistribute(mesh, wanted)
        .to_local()
    )


def _rule(entry: Entry) -> Callable[..., Any]:
    def rule(cls: Any, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> Any:
        values = entry.named(args, kwargs or {})
        tensors = {name: values[name] for name in entry.tensors if values[name] is not None}
        plain = [name for name, tensor in tensors.items() if not isinstance(tensor, DTensor)]
        meshes = {tensor.device_mesh for tensor in tensors.values() if isinstance(tensor, DTensor)}
        if plain or len(meshes) > 1:
            raise RuntimeError(
                f"torch.ops.anycann.{entry.name}: all tensors must be DTensors of one mesh; got {', '.join(plain) or 'several meshes'}. "
                "Use torch.distributed.tensor.distribute_tensor or DTensor.from_local."
            )
        (mesh,) = meshes
        chosen = _chosen(entry, values, mesh)
        local = dict(values)
        with torch.no_grad():
            for name, tensor in tensors.items():
                local[name] = _part(tensor, [choice.inputs[name] for choice in chosen], mesh)
        found = _computed(entry, values, local, chosen, mesh)
        whole = entry.shapes(**{name: _empty(value) for name, value in values.items()})
        if not isinstance(whole, tuple):
            return _assembled(found, whole, [choice.outputs[0] for choice in chosen], mesh)
        places = range(len(whole))
        return tuple([_assembled(found[i], whole[i], [choice.outputs[i] for choice in chosen], mesh) for i in places])

    return rule


def _empty(value: Any) -> Any:
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta") if isinstance(value, DTensor) else value


def _assembled(part: Any, whole: Any, placements: Sequence[Placement], mesh: DeviceMesh) -> Any:
    if whole is None:
        return None
    return DTensor.from_local(part, mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride())


for _name, _entry in ENTRIES.items():
    torch.library.register_torch_dispatch(f"anycann::{_name}", DTensor, _rule(_entry), lib=LIBRARY)
