"""torch.vmap: where the batch goes when an operator is called for every member of one.

Element-wise operators broadcast over it. Others compute columns, heads or rows that know nothing of each other: there the batch is folded
into that axis. What is left is called once for each member.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from anycann.bind import broadcast
from anycann.spec import MAX_RANK
from anycann.torch.library import ENTRIES, LIBRARY, Entry
from anycann.torch.losses import part_of_gradient

__all__ = ["register"]


@dataclass
class Batch:
    """A call on a batch: its values by name, with the batch as the first axis of the tensors named in `batched`."""

    entry: Entry
    size: int
    values: dict[str, Any]
    batched: set[str]

    def logical_shape(self, name: str) -> torch.Size:
        shape: torch.Size = self.values[name].shape
        return shape[1:] if name in self.batched else shape


@dataclass(frozen=True)
class Fold:
    """Inputs that may be batched and the axis that takes up the batch, and that axis in each output; None: it has no batch."""

    inputs: dict[str, int]
    outputs: tuple[int | None, ...]


FOLDS = {
    "layer_norm_grad_beta": Fold({"res_for_gamma": -1, "input_dy": -1}, (0, 0)),
    "moe_token_permute": Fold({"tokens": 1}, (1, None)),
    "moe_token_permute_grad": Fold({"permuted_output_grad": 1}, (1,)),
    "moe_token_unpermute": Fold({"permuted_tokens": 1}, (1,)),
    "nsa_compress": Fold({"input": 1, "weight": 1}, (1,)),
    "nsa_compress_grad": Fold({"output_grad": 1, "input": 1, "weight": 1}, (1, 1)),
}
ELEMENTWISE = {
    "gelu_v2": ("x",),
    "gelu_backward_v2": ("grad_output", "self"),
    "smooth_l1_loss": ("self", "target"),
    "smooth_l1_loss_backward": ("grad_out", "self", "target"),
}
LEADING = {"layer_norm": "input"}  # rows are independent, and the batch is one more axis of rows


def _broadcast(batch: Batch, names: tuple[str, ...]) -> Tensor | None:
    """All operands with the batch in front of equally many axes; None if that is more than an operator takes."""
    rank = max(len(batch.logical_shape(name)) for name in names)
    if rank >= MAX_RANK:
        return None
    values = dict(batch.values)
    for name in batch.batched:
        tensor = values[name]
        values[name] = tensor.reshape(batch.size, *[1] * (rank + 1 - tensor.dim()), *tensor.shape[1:])
    reduction = values.get("reduction", 0)
    if not reduction:
        result: Tensor = batch.entry.call(values)
        return result
    if batch.entry.name != "smooth_l1_loss_backward":
        return None
    shape = broadcast([tuple(batch.logical_shape(name)) for name in ("self", "target")]) or ()
    return part_of_gradient(values, math.prod(shape))


def _fold(batch: Batch, rule: Fold) -> tuple[Any, Any]:
    values = dict(batch.values)
    for name, axis in rule.inputs.items():
        tensor = values[name] if name in batch.batched else values[name].expand(batch.size, *values[name].shape)
        place = axis % (tensor.dim() - 1)
        values[name] = tensor.movedim(0, place).flatten(place, place + 1)
    found = batch.entry.call(values)
    results = found if isinstance(found, tuple) else (found,)
    unfolded = tuple(
        [
            result if axis is None else result.unflatten(axis, (batch.size, result.shape[axis] // batch.size))
            for result, axis in zip(results, rule.outputs, strict=True)
        ]
    )
    return (unfolded, rule.outputs) if isinstance(found, tuple) else (unfolded[0], rule.outputs[0])


def _each(batch: Batch) -> tuple[Any, Any]:
    """One call for each member; where there are none, the results of a sum of none, without it."""
    members: list[dict[str, Any]] = [{name: batch.values[name][member] for name in batch.batched} for member in range(batch.size)]
    nothing = [] if members else [{name: batch.values[name].sum(0, dtype=batch.values[name].dtype) for name in batch.batched}]
    found = [batch.entry.call({**batch.values, **member}) for member in members + nothing]
    if isinstance(found[0], tuple):
        stacked = tuple([None if results[0] is None else torch.stack(results)[: batch.size] for results in zip(*found, strict=True)])
        return stacked, tuple([None if result is None else 0 for result in stacked])
    return torch.stack(found)[: batch.size], 0


def _run(batch: Batch) -> tuple[Any, Any]:
    name = batch.entry.name
    if name in ELEMENTWISE:
        result = _broadcast(batch, ELEMENTWISE[name])
        if result is not None:
            return result, 0
    elif name in FOLDS and batch.size and batch.batched <= set(FOLDS[name].inputs):
        return _fold(batch, FOLDS[name])
    elif batch.batched == {LEADING.get(name)} and batch.values[LEADING[name]].dim() <= MAX_RANK:
        results = batch.entry.call(batch.values)
        return results, (0,) * len(results)
    return _each(batch)


def _rule(entry: Entry) -> Callable[..., tuple[Any, Any]]:
    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        values = entry.named(args, kwargs)
        dims = {name: dim for name, dim in zip(entry.positional, in_dims, strict=False) if name in entry.tensors and dim is not None}
        values |= {name: values[name].movedim(dim, 0) for name, dim in dims.items()}
        return _run(Batch(entry, info.batch_size, values, set(dims)))

    return rule


def register() -> None:
    """Register the rules of all operators."""
    for name, entry in ENTRIES.items():
        torch.library.register_vmap(f"anycann::{name}", _rule(entry), lib=LIBRARY)
