"""What one call costs beside the computation: problems of 64 elements or so, microseconds."""

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from anycann import aclnn, ops, products
from anycann.bench import peers
from anycann.bench.peers import Peer
from anycann.bench.problems import Problem, prepare
from anycann.bench.targets import LIMITS_US
from anycann.bench.timing import Spread, per_call
from anycann.bind import bind
from anycann.check import samples
from anycann.plans import aligned_bytes
from anycann.runtime import KEPT_PLANS, Operator
from anycann.spec import Workload
from anycann.tensor import Tensor, address_of, from_array

__all__ = ["SMALLEST", "Cost", "costs", "public_call"]

WITH_TORCH = "Python, torch out="
_GELU = {"gradOutput": (64,), "self": (64,)}
_WINDOW = {"compressBlockSize": 32, "compressStride": 16}
SMALLEST = {
    "gelu_backward_v2": Workload("64", _GELU),
    "gelu_v2": Workload("64", {"x": (64,)}),
    "smooth_l1_loss": Workload("64", {"self": (64,), "target": (64,)}, {"reduction": 0}),
    "smooth_l1_loss_backward": Workload("64", {"gradOut": (1,), "self": (64,), "target": (64,)}),
    "layer_norm": Workload("4x16", {"input": (4, 16), "weightOptional": (16,), "biasOptional": (16,)}, {"normalizedShape": (16,)}),
    "layer_norm_backward": Workload(
        "4x16",
        {"gradOut": (4, 16), "input": (4, 16), "mean": (4, 1), "rstd": (4, 1), "weightOptional": (16,)},
        {"normalizedShape": (16,)},
    ),
    "layer_norm_grad": Workload(
        "4x16", {"inputDy": (4, 16), "inputX": (4, 16), "inputVariance": (4,), "inputMean": (4,), "inputGamma": (16,)}
    ),
    "layer_norm_grad_beta": Workload("4x16", {"resForGamma": (4, 16), "inputDy": (4, 16)}),
    "moe_token_permute_grad": Workload("8x8, K=2", {"permutedOutputGrad": (8, 8), "sortedIndices": (8,)}, {"numTopk": 2}),
    "moe_token_permute": Workload("4x8, K=2", {"tokens": (4, 8), "indices": (4, 2)}),
    "moe_token_unpermute": Workload("8x8, K=2", {"permutedTokens": (8, 8), "sortedIndices": (8,), "probsOptional": (4, 2)}),
    "moe_token_unpermute_grad": Workload(
        "8x8, K=2",
        {"permuteTokensOptional": (8, 8), "unpermutedTokensGrad": (4, 8), "sortedIndices": (8,), "probsOptional": (4, 2)},
    ),
    "nsa_compress": Workload("32x1x16", {"input": (32, 1, 16), "weight": (32, 1)}, {**_WINDOW, "actSeqLenOptional": (32,)}),
    "nsa_compress_grad": Workload("32x1x16", {"outputGrad": (1, 1, 16), "input": (32, 1, 16), "weight": (32, 1)}, _WINDOW),
}


@dataclass(frozen=True)
class Cost:
    """Seconds of a call: what was called, and torch's own call that it is compared with, if there is one."""

    operator: str
    problem: str
    dtype: str
    what: str
    seconds: Spread
    beside: str = ""
    beside_seconds: Spread | None = None

    @property
    def limit_us(self) -> float | None:
        """Microseconds that the call may take; with torch's arrays, above torch's own call, if there is one."""
        return None if self.what == WITH_TORCH and self.beside_seconds is None else LIMITS_US[self.what]

    @property
    def verdict(self) -> str | None:
        """ "ok" or "above"."""
        own = 0.0 if self.beside_seconds is None else self.beside_seconds.median
        return None if self.limit_us is None else "ok" if (self.seconds.median - own) * 1e6 <= self.limit_us else "above"

    def as_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if not isinstance(value, Spread)}
        beside = None if self.beside_seconds is None else self.beside_seconds._asdict()
        judged = {"limit_us": self.limit_us, "verdict": self.verdict}
        return {**fields, "seconds": self.seconds._asdict(), "beside_seconds": beside, **judged}


def _tensors(problem: Problem) -> dict[str, "np.ndarray[Any, Any]"]:
    """Inputs and outputs by name."""
    return {**problem.inputs, **dict(zip((param.name for param in problem.operator.spec.outputs), problem.outs, strict=True))}


def _core(problem: Problem) -> Callable[[], None]:
    """The plan of a call, run on addresses: no arrays, no checks."""
    operator = problem.operator
    tensors: dict[str, Tensor | None] = {name: from_array(array, name) for name, array in _tensors(problem).items()}
    call = bind(operator.spec, tensors, problem.attrs, api=operator.api, product=products.current(), superset=True)
    plan = operator.plan(call)
    addresses, workspace = [tensor.start for tensor in call.tensors], aligned_bytes(plan.workspace_size)
    place = address_of(workspace)
    return lambda workspace=workspace: plan.run(addresses, place)  # type: ignore[misc]


def _descriptor(array: "np.ndarray[Any, Any]", place: int, extra: int = 0, gap: int = 0) -> Tensor:
    """A descriptor like an array, whose storage is `extra` elements larger, or whose elements have gaps between them.

    Each place has addresses of its own, at which nothing is: phase 1 looks at no memory.
    """
    room, strides = array.size * (gap + 1) + extra, [step // array.itemsize * (gap + 1) for step in array.strides]
    tensor: Tensor = aclnn.create_tensor(array.shape, array.dtype, strides, storage_dims=(room,), data=(place + 1) << 32)
    return tensor


def public_call(operator: Operator, values: Sequence[Any], function: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A call of the public function, or another of its signature, with inputs and attributes in prototype order; it still takes `out`."""
    signature = inspect.signature(vars(ops)[operator.spec.python]).parameters
    given = [param.python for param in operator.spec.params if param not in operator.spec.outputs]
    named = dict(zip(given, values, strict=True))
    positional = [named[name] for name, param in signature.items() if name in named and param.kind is not param.KEYWORD_ONLY]
    rest = {name: named[name] for name, param in signature.items() if name in named and param.kind is param.KEYWORD_ONLY}
    return functools.partial(function or vars(ops)[operator.spec.python], *positional, **rest)


def _phase_one(problem: Problem) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Phase 1 on tensors that lie as none did before, on such as lie elsewhere than those before, and on a description seen before."""
    spec = problem.operator.spec
    function = getattr(aclnn, f"{spec.name}GetWorkspaceSize")
    values = {**_tensors(problem), **problem.attrs}

    def arguments(**changes: int) -> list[Any]:
        given = [values.get(param.name) for param in spec.params]
        return [_descriptor(value, i, **changes) if isinstance(value, np.ndarray) else value for i, value in enumerate(given)]

    first = itertools.cycle([arguments(gap=count) for count in range(2 * KEPT_PLANS)])  # forgotten before they come again
    moved = itertools.cycle([arguments(extra=count) for count in range(2 * KEPT_PLANS)])
    same = arguments()
    yield "phase 1, first", lambda: function(*next(first))
    yield "phase 1, moved", lambda: function(*next(moved))
    yield "phase 1, repeated", lambda: function(*same)


def costs(operator: Operator, dtype: str, repeat: int, loops: int, torch_too: bool) -> list[Cost]:
    """All costs of an operator, on the threads there are."""
    spec = operator.spec
    problem = prepare(operator, SMALLEST[spec.python], dtype)
    values, outs = problem.values, problem.outs if len(problem.outs) > 1 else problem.outs[0]
    function = public_call(operator, values)
    calls: list[tuple[str, Callable[[], Any]]] = [("Python, NumPy out=", lambda: function(out=outs))]
    calls.append(("core", _core(problem)))
    calls += _phase_one(problem) if spec.two_phase else []
    own = None
    if torch_too:
        calls.append((WITH_TORCH, _with_torch(problem)))
        own = _own_call(problem)
    measured = per_call([call for _, call in calls] + ([own.call] if own else []), repeat, loops)
    beside = measured[-1] if own else None
    return [
        Cost(spec.python, problem.workload.name, dtype, what, seconds)
        if own is None or what != WITH_TORCH
        else Cost(spec.python, problem.workload.name, dtype, what, seconds, own.name, beside)
        for (what, _), seconds in zip(calls, measured, strict=False)
    ]


def _own_call(problem: Problem) -> Peer | None:
    """The single call of torch that computes the problem, if there is one; into given outputs where it can."""
    return next((peer for peer in peers.of(problem, ("torch",)) if peer.single), None)


def _with_torch(problem: Problem) -> Callable[[], Any]:
    from anycann.bench.peers.with_torch import as_torch

    tensors = {name: as_torch(array) for name, array in problem.inputs.items()}
    values = samples.arguments(problem.operator.spec, tensors, problem.attrs)
    outs = tuple(as_torch(out) for out in problem.outs)
    given = outs if len(outs) > 1 else outs[0]
    function = public_call(problem.operator, values)
    return lambda: function(out=given)
