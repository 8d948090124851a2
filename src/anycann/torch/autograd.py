"""How a torch operator records gradients: one autograd function for each operator, made from a rule, and a short way past it.

The dispatcher hands an autograd kernel the set of what is left to do for a call. Where that is only the CPU kernel, and no gradient is
recorded, the autograd kernel computes at once: a second trip through the dispatcher would cost as much as a small call.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch._C import DispatchKey, DispatchKeySet
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad
from torch.autograd.forward_ad import _set_fwd_grad_enabled
from torch.autograd.function import _SingleLevelFunction

from anycann.torch.library import LIBRARY, Entry, any_requires_grad

__all__ = ["Rule", "register"]


_unpack_dual: Any = forward_ad.unpack_dual
number_of = DispatchKeySet.raw_repr
_ONLY_CPU = (DispatchKeySet(DispatchKey.CPU) | DispatchKeySet(DispatchKey.AutogradCPU)).raw_repr()

Given = Mapping[str, Any]
Backward = Callable[[Given, tuple[Tensor, ...], Callable[[str], bool]], Mapping[str, Tensor | None]]


@dataclass(frozen=True)
class Rule:
    """What is kept for the backward pass, and the backward pass.

    `saves` names inputs, and outputs as "output 1". `backward` gets them and the attributes by their names, the gradients of the
    outputs, and whether an input needs its gradient; it gives gradients by the names of inputs, of a shape that may still be
    broadcast. `refuses` names inputs whose derivative does not exist here, and says what to do instead.
    """

    saves: tuple[str, ...] = ()
    backward: Backward = lambda given, grads, needs: {}
    refuses: Mapping[str, str] = field(default_factory=dict)
    constant: tuple[int, ...] = ()  # outputs through which no gradient flows


class _Level(_SingleLevelFunction):
    """One level of recording: under torch.func the dispatcher runs it once for each level.

    A forward pass is run with recording off. It switches recording on again for the levels below; where the caller had switched it off,
    torch.func does so again.
    """

    _compiled_autograd_key = staticmethod(torch.autograd.Function._compiled_autograd_key)  # that of all functions, for any level


class _Refused(_Level):
    """The identity, whose derivative is an error."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, message: str) -> Tensor:
        ctx.message = message
        ctx.set_materialize_grads(False)
        with torch.enable_grad(), _set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(ctx.message)


def _as_input(gradient: Tensor | None, like: tuple[torch.Size, torch.dtype]) -> Tensor | None:
    """Summed over the axes that broadcasting added, in the dtype of the input."""
    if gradient is None:
        return None
    shape, dtype = like
    summed = gradient if gradient.shape == shape else gradient.sum_to_size(shape)
    return summed.to(dtype)


def _function(entry: Entry, rule: Rule) -> Any:
    names, positional = tuple(entry.parameters), len(entry.positional)

    class Recorded(_Level):
        @staticmethod
        def forward(ctx: Any, keys: DispatchKeySet, *inputs: Any) -> Any:
            named = dict(zip(names[positional:], inputs[positional:], strict=True))
            with torch.enable_grad(), _set_fwd_grad_enabled(True):
                output = _below(entry.op, keys, inputs[:positional], named)
            outputs = output if isinstance(output, tuple) else (output,)
            values = dict(zip(names, inputs, strict=True)) | {f"output {i}": made for i, made in enumerate(outputs)}
            ctx.save_for_backward(*[values[name] for name in rule.saves])
            ctx.attributes = {name: values[name] for name in names if name not in entry.tensors}
            ctx.likes = {name: (values[name].shape, values[name].dtype) for name in entry.tensors if values[name] is not None}
            ctx.mark_non_differentiable(*[outputs[place] for place in rule.constant if outputs[place] is not None])
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            needed = dict(zip(names, ctx.needs_input_grad[1:], strict=True))
            given = ctx.attributes | dict(zip(rule.saves, ctx.saved_tensors, strict=True))
            found = rule.backward(given, grads, lambda name: needed[name])  # compiled autograd of torch 2.6 has no bound __getitem__
            return None, *[_as_input(found.get(name), ctx.likes[name]) if needed[name] else None for name in names]

    node = "".join(word.capitalize() for word in entry.name.split("_"))  # torch appends "Backward"
    return type(node, (Recorded,), {})


def register(entry: Entry, rule: Rule) -> None:
    """Register the autograd kernels of both overloads."""
    compute, compute_out, recorded = entry.function, entry.kernel_out, _function(entry, rule)

    def kernel(keys: Any, *args: Any, **named: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents(entry.name, *args)
        if any_requires_grad(*args):
            if torch.is_grad_enabled():
                with enable_single_level_autograd_function():
                    return recorded.apply(keys, *_refusing(entry, rule, args, named))
        elif number_of(keys) == _ONLY_CPU:
            return compute(*args, **named)
        return _below(entry.op, keys, args, named)

    def kernel_out(keys: Any, *args: Any, **named: Any) -> Any:
        if forward_ad._current_level >= 0:
            _refuse_tangents(f"{entry.name}.out", *args, *named.values())
        if any_requires_grad(*args, **named):
            if torch.is_grad_enabled():
                raise RuntimeError(
                    f"torch.ops.anycann.{entry.name} with out= records no gradients, but one of its tensors requires grad: "
                    "leave out= away, or call it under torch.no_grad()"
                )
        elif number_of(keys) == _ONLY_CPU:
            return compute_out(*args, **named)
        return _below(entry.out, keys, args, named)

    LIBRARY.impl(entry.name, kernel, "Autograd", with_keyset=True)
    LIBRARY.impl(f"{entry.name}.out", kernel_out, "Autograd", with_keyset=True)


def _refuse_tangents(name: str, *values: Any) -> None:
    """Forward-mode derivatives are not offered: without this they would be zero in silence."""
    if any(isinstance(value, Tensor) and _unpack_dual(value).tangent is not None for value in values):
        raise NotImplementedError(
            f"torch.ops.anycann.{name} has no forward-mode derivative: use reverse mode (backward, torch.func.grad, vjp or jacrev), or "
            "torch's own operator"
        )


def _refusing(entry: Entry, rule: Rule, args: tuple[Any, ...], named: Mapping[str, Any]) -> list[Any]:
    """The arguments in the order of the schema; those without a derivative have one that is an error."""
    refused: Any = _Refused
    values = entry.named(args, named)
    for name, message in rule.refuses.items():
        if values[name] is not None and values[name].requires_grad:
            values[name] = refused.apply(values[name], message)
    return [values[name] for name in entry.parameters]


def _below(op: Any, keys: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keys & torch._C._after_autograd_keyset, *args, **named)
