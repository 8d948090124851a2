"""How the tensors of an operator may lie along one axis of a device mesh, so that every rank computes its part alone.

A choice says of each input and output whether it is sharded along one of its axes, whole on every rank, or a term of a sum.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from anycann.bind import broadcast
from anycann.ops.windows import windows
from anycann.torch.library import Entry

__all__ = ["Choice", "choices"]

Values = Mapping[str, Any]
WHOLE, SUM = None, "sum"


@dataclass(frozen=True)
class Choice:
    """Placements along one axis of the mesh; `adjust` names what a rank must change in a call on its part."""

    inputs: Mapping[str, Placement]
    outputs: tuple[Placement, ...]
    adjust: str = ""


@dataclass(frozen=True)
class Split:
    """Axes of inputs that are divided together, and what that makes of the outputs: an axis, WHOLE or SUM.

    `fits` says whether a call can be divided into so many parts.
    """

    inputs: Mapping[str, int]
    outputs: tuple[int | str | None, ...]
    fits: Callable[[Values, int], bool] = lambda values, parts: True
    adjust: str = ""


def _multiples(name: str, axis: int, of: int) -> Callable[[Values, int], bool]:
    return lambda values, parts: values[name].shape[axis] % (of * parts) == 0


def _whole_tokens(values: Values, parts: int) -> bool:
    """Whether parts of sorted_indices hold all copies of their tokens."""
    probs = values.get("probs")
    copies = values.get("num_topk") or (1 if probs is None else probs.shape[1])
    return copies > 0 and values["sorted_indices"].shape[0] % (copies * parts) == 0


def _whole_sequences(values: Values, parts: int) -> bool:
    """Whether equal parts of the tokens are whole sequences, with equally many windows."""
    tokens, ends = values["input"].shape[0], {0, *(values["act_seq_len"] or ())}
    step = tokens // parts
    bounds = [step * part for part in range(parts + 1)]
    if tokens % parts or not ends.issuperset(bounds[:-1]):
        return False
    sizes = values["compress_block_size"], values["compress_stride"]
    counts = {
        windows(tuple(end - low for end in sorted(ends | {tokens}) if low < end <= high), step, *sizes) for low, high in pairwise(bounds)
    }
    return len(counts) == 1


_SIXTEENTHS = _multiples("input", 2, 16)
_HEADS = _multiples("input", 1, 1)
SPLITS: dict[str, tuple[Split, ...]] = {
    "layer_norm_grad_beta": (Split({"res_for_gamma": -1, "input_dy": -1}, (0, 0)),),
    "moe_token_permute": (Split({"tokens": 1}, (1, WHOLE)),),
    "moe_token_permute_grad": (
        Split({"permuted_output_grad": 1}, (1,)),
        Split({"sorted_indices": 0}, (0,), _whole_tokens),
        Split({"permuted_output_grad": 0}, (SUM,), adjust="rows"),
    ),
    "moe_token_unpermute": (
        Split({"permuted_tokens": 1}, (1,)),
        Split({"sorted_indices": 0, "probs": 0}, (0,), _whole_tokens),
        Split({"permuted_tokens": 0}, (SUM,), adjust="rows"),
    ),
    "moe_token_unpermute_grad": (Split({"permute_tokens": 1, "unpermuted_tokens_grad": 1}, (1, SUM)),),
    "nsa_compress": (
        Split({"input": 1, "weight": 1}, (1,), _HEADS),
        Split({"input": 2}, (2,), _SIXTEENTHS),
        Split({"input": 0}, (0,), _whole_sequences, adjust="tokens"),
    ),
    "nsa_compress_grad": (
        Split({"output_grad": 1, "input": 1, "weight": 1}, (1, 1), _HEADS),
        Split({"output_grad": 2, "input": 2}, (2, SUM), _SIXTEENTHS),
        Split({"output_grad": 0, "input": 0}, (0, SUM), _whole_sequences, adjust="tokens"),
    ),
}
LINEAR = {  # the input whose terms of a sum make terms of the sum of every output
    "gelu_backward_v2": "grad_output",
    "smooth_l1_loss_backward": "grad_out",
    "layer_norm_backward": "grad_out",
    "layer_norm_grad_beta": "input_dy",
    "moe_token_permute_grad": "permuted_output_grad",
    "moe_token_unpermute": "permuted_tokens",
    "moe_token_unpermute_grad": "unpermuted_tokens_grad",
    "nsa_compress": "input",
    "nsa_compress_grad": "output_grad",
}
ELEMENTWISE = ("gelu_v2", "gelu_backward_v2", "smooth_l1_loss", "smooth_l1_loss_backward")
LOSSES = ("smooth_l1_loss", "smooth_l1_loss_backward")
ROWS = {"layer_norm": "input", "layer_norm_backward": "input", "layer_norm_grad": "input_x", "layer_norm_grad_beta": "input_dy"}


def choices(entry: Entry, values: Values, parts: int) -> list[Choice]:
    """All choices for a call with tensors of these whole shapes, where an axis may be divided into `parts`."""
    whole: dict[str, Placement] = {name: Replicate() for name in entry.tensors if values[name] is not None}
    found = [Choice(whole, (Replicate(),) * len(entry.outputs))]
    found += _elements(entry, values, whole) if entry.name in ELEMENTWISE else []
    found += _rows(entry, values, whole) if entry.name in ROWS else []
    for split in SPLITS.get(entry.name, ()):
        if split.fits(values, parts):
            sharded = {name: Shard(axis % values[name].dim()) for name, axis in split.inputs.items() if name in whole}
            found.append(Choice({**whole, **sharded}, tuple([_placement(output) for output in split.outputs]), split.adjust))
    if entry.name in LINEAR:
        found.append(Choice({**whole, LINEAR[entry.name]: Partial()}, (Partial(),) * len(entry.outputs)))
    return found


def _placement(output: int | str | None) -> Placement:
    if isinstance(output, int):
        return Shard(output)
    return Replicate() if output is WHOLE else Partial()


def _elements(entry: Entry, values: Values, whole: dict[str, Placement]) -> Iterator[Choice]:
    """An axis of the result divides the tensors that have its whole size there; a reduced loss is a sum over the parts."""
    shape = broadcast([tuple(values[name].shape) for name in whole]) or ()
    reduced = entry.name == "smooth_l1_loss" and values["reduction"] != 0
    for back, size in enumerate(reversed(shape), 1):
        tall = [name for name in whole if values[name].dim() >= back and values[name].shape[-back] == size > 1]
        if tall:
            sharded = {name: Shard(values[name].dim() - back) for name in tall}
            output = Partial() if reduced else Shard(len(shape) - back)
            yield Choice({**whole, **sharded}, (output,), "mean" if entry.name in LOSSES else "")


def _rows(entry: Entry, values: Values, whole: dict[str, Placement]) -> Iterator[Choice]:
    """An axis before those that are normalised divides everything that has rows; gradients of weight and bias are sums over rows."""

    def placement(param: Any, axis: int) -> Placement | None:
        return Shard(axis) if {"*M", "*D"} & set(param.axes) else None

    for axis in range(values[ROWS[entry.name]].dim() - len(values.get("normalized_shape") or (1,))):
        inputs = {name: placement(entry.given[name], axis) or Replicate() for name in whole}
        yield Choice(inputs, tuple([placement(param, axis) or Partial() for param in entry.spec.outputs]))
