"""torch: the operators it comes with, into given outputs and allocating, autograd, and formulations for torch.compile.

Everything that a training step would have at hand already (inverse indices, recorded graphs, zeroed unused operands) is made before
the timing. Tensors share the memory of the problem's arrays.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from anycann.bench.peers import Peer
from anycann.bench.problems import Problem

__all__ = ["as_numpy", "as_torch", "compiled", "eager"]

_ATEN: Any = torch.ops.aten
_REDUCTIONS = "none", "mean", "sum"


class Formulation(NamedTuple):
    """A function of tensors that can run as it is, or compiled."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[Any, ...]
    eager: bool = True
    compiled: bool = True
    single: bool = False


def as_torch(array: Any) -> Any:
    """The same memory as a tensor; a tensor as it is."""
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def as_numpy(tensor: Any, like: "np.dtype[Any]") -> NDArray[Any]:
    """The same memory as an array; `like` is the dtype expected, of which NumPy itself may know nothing."""
    tensor = tensor.detach()
    if tensor.dtype == torch.bfloat16 and like.name == "bfloat16":
        array: NDArray[Any] = tensor.view(torch.int16).numpy().view(like)
        return array
    return np.asarray(tensor.float().numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy())


class _Case:
    """A problem as torch sees it."""

    def __init__(self, problem: Problem) -> None:
        self.attrs = problem.attrs
        self.inputs = tuple(as_torch(array) for array in problem.inputs.values())
        self.outs = tuple(as_torch(array) for array in problem.outs)


def _gelu(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    grad, x = case.inputs
    mode = case.attrs["approximate"]

    def into() -> Any:
        return _ATEN.gelu_backward.grad_input(grad, x, approximate=mode, grad_input=case.outs[0])

    plain = Formulation("gelu_backward", lambda g, x: _ATEN.gelu_backward(g, x, approximate=mode), (grad, x), single=True)
    return [plain], [Peer("torch", "gelu_backward, out=", False, into, True)]


def _smooth_l1(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    grad, self, target = case.inputs
    reduction, beta = case.attrs["reduction"], case.attrs["beta"]
    norm = 1 / self.numel() if reduction == 1 else 1.0

    def into() -> Any:
        return _ATEN.smooth_l1_loss_backward.grad_input(grad, self, target, reduction, beta, grad_input=case.outs[0])

    def backward(grad: Any, self: Any, target: Any) -> Any:
        return _ATEN.smooth_l1_loss_backward(grad, self, target, reduction, beta)

    def formula(grad: Any, self: Any, target: Any) -> Any:
        x = self.float() - target.float()
        return (torch.where(x.abs() < beta, x / beta, x.sign()) * grad.float() * norm).to(self.dtype)

    plain = Formulation("smooth_l1_loss_backward", backward, case.inputs, single=True)
    return [plain, Formulation("formula", formula, case.inputs, eager=False)], [
        Peer("torch", "smooth_l1_loss_backward, out=", False, into, True)
    ]


def _gelu_value(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    (x,) = case.inputs
    mode = ("none", "tanh")[case.attrs["approximate"]]

    def into() -> Any:
        return _ATEN.gelu.out(x, approximate=mode, out=case.outs[0])

    plain = Formulation("gelu", lambda x: torch.nn.functional.gelu(x, approximate=mode), (x,), single=True)
    return [plain], [Peer("torch", "gelu, out=", False, into, True)]


def _loss(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    reduction, beta = case.attrs["reduction"], case.attrs["beta"]

    def into() -> Any:
        return _ATEN.smooth_l1_loss.out(*case.inputs, reduction, beta, out=case.outs[0])

    def loss(self: Any, target: Any) -> Any:
        return torch.nn.functional.smooth_l1_loss(self, target, reduction=_REDUCTIONS[reduction], beta=beta)

    plain = Formulation("smooth_l1_loss", loss, case.inputs, single=True)
    return [plain], [Peer("torch", "smooth_l1_loss, out=", False, into, True)] if reduction == 0 else []  # else torch resizes what is given


def _layer_norm(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    normalised, dy = (tensor.reshape(-1, tensor.shape[-1]) for tensor in case.inputs)
    rows, width = dy.shape
    mean, rstd = torch.zeros(rows, 1, dtype=dy.dtype), torch.ones(rows, 1, dtype=dy.dtype)
    weight, bias = torch.ones(width, dtype=dy.dtype), torch.zeros(width, dtype=dy.dtype)
    mask = [False, True, True]  # with it the operator's own out= cannot be used: it wants no tensor where it asks for one

    def backward(normalised: Any, dy: Any) -> Any:
        return _ATEN.native_layer_norm_backward(dy, normalised, [width], mean, rstd, weight, bias, mask)[1:]

    def sums(normalised: Any, dy: Any) -> Any:
        return (dy * normalised).sum(0), dy.sum(0)

    def sums_into() -> Any:
        return torch.sum(dy * normalised, 0, out=case.outs[0]), torch.sum(dy, 0, out=case.outs[1])

    plain = Formulation("native_layer_norm_backward", backward, (normalised, dy), single=True)
    return [plain, Formulation("sum", sums, (normalised, dy))], [Peer("torch", "sum, out=", False, sums_into)]


def _norm(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    shape, eps = list(case.attrs["normalizedShape"]), case.attrs["eps"]

    def forward(x: Any, weight: Any, bias: Any) -> Any:
        out, mean, rstd = _ATEN.native_layer_norm(x, shape, weight, bias, eps)
        return out, mean.float(), rstd.float()

    return [Formulation("native_layer_norm", forward, case.inputs, single=True)], []


def _norm_backward(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    shape, mask = list(case.attrs["normalizedShape"]), list(case.attrs["outputMask"])

    def backward(dy: Any, x: Any, mean: Any, rstd: Any, weight: Any, bias: Any = None) -> Any:
        return _ATEN.native_layer_norm_backward(dy, x, shape, mean, rstd, weight, weight if bias is None else bias, mask)

    return [Formulation("native_layer_norm_backward", backward, case.inputs, single=True)], []


def _norm_grad(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    epsilon = case.attrs["epsilon"]

    def formula(dy: Any, x: Any, variance: Any, mean: Any, gamma: Any) -> Any:
        a, c = dy.float() * gamma.float(), x.float() - mean.float()[..., None]
        r = (variance.float() + epsilon).rsqrt()[..., None]
        gradient = (a - a.mean(-1, keepdim=True) - c * r * r * (a * c).mean(-1, keepdim=True)) * r
        return gradient.to(dy.dtype), (c * r).to(dy.dtype)

    return [Formulation("formula", formula, case.inputs)], []


def _permute(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    grad, places = case.inputs
    (out,) = case.outs
    many, width = case.attrs["numTopk"], grad.shape[1]
    listed = places.view(-1, many)
    token_of_row = torch.empty_like(places)
    token_of_row[places.long()] = torch.arange(len(places), dtype=places.dtype) // many
    tokens = torch.zeros(out.shape, dtype=out.dtype).requires_grad_()
    permuted = tokens.index_select(0, token_of_row)

    def bags(grad: Any, listed: Any) -> Any:
        return torch.nn.functional.embedding_bag(listed, grad, mode="sum")

    def gather(grad: Any, places: Any) -> Any:
        return grad.index_select(0, places).view(-1, many, width).sum(1)

    def add_into() -> Any:
        return out.zero_().index_add_(0, token_of_row, grad)

    def autograd() -> Any:
        return torch.autograd.grad(permuted, tokens, grad, retain_graph=True)

    formulations = [
        Formulation("embedding_bag", bags, (grad, listed), compiled=False, single=True),
        Formulation("index_select + sum", gather, (grad, places)),
    ]
    peers = [Peer("torch", "index_add_", False, add_into), Peer("torch", "autograd of index_select", True, autograd)]
    if many == 1:
        peers.append(Peer("torch", "index_select, out=", False, lambda: torch.index_select(grad, 0, places, out=out)))
    return formulations, peers


def _forward_permute(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    def sort(tokens: Any, experts: Any) -> Any:
        order = torch.argsort(experts.view(-1), stable=True)
        return tokens.index_select(0, order // experts.shape[1]), torch.argsort(order).to(torch.int32)

    return [Formulation("argsort + index_select", sort, case.inputs)], []


def _unpermute(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    rows, places, *weights = case.inputs
    (out,) = case.outs
    if not weights:
        return [], [Peer("torch", "index_select, out=", False, lambda: torch.index_select(rows, 0, places, out=out))]
    (probs,) = weights
    listed, width = places.view(probs.shape), rows.shape[1]

    def bags(rows: Any, listed: Any, probs: Any) -> Any:
        return torch.nn.functional.embedding_bag(listed, rows, mode="sum", per_sample_weights=probs)

    def gather(rows: Any, places: Any, probs: Any) -> Any:
        return (rows.index_select(0, places).view(*probs.shape, width) * probs.unsqueeze(-1)).sum(1)

    return [
        Formulation("embedding_bag", bags, (rows, listed, probs), compiled=False, single=True),
        Formulation("index_select + sum", gather, (rows, places, probs)),
    ], []


def _unpermute_grad(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    rows, grad, places, probs = case.inputs

    def copies(rows: Any, grad: Any, places: Any, probs: Any) -> Any:
        spread = grad.repeat_interleave(probs.shape[1], 0)
        rows_grad = torch.zeros_like(rows).index_copy(0, places, spread * probs.view(-1, 1))
        return rows_grad, (spread * rows.index_select(0, places)).sum(1).view(probs.shape)

    return [Formulation("index_copy + index_select", copies, (rows, grad, places.long(), probs))], []


def _compress(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    x, weight = case.inputs
    block, stride = case.attrs["compressBlockSize"], case.attrs["compressStride"]
    terms, (heads, width) = block // stride, x.shape[1:]

    def unfold(x: Any, weight: Any) -> Any:
        return torch.einsum("cndw,wn->cnd", x.unfold(0, block, stride), weight)

    def broadcast(x: Any, weight: Any) -> Any:
        """Window c is over the token blocks c, c + 1, …: one broadcast product for each."""
        blocks, spread = x.view(-1, stride, heads, width), weight.view(terms, stride, heads, 1)
        count = len(blocks) - terms + 1
        return sum((blocks[k : k + count] * spread[k]).sum(1) for k in range(terms))

    found = [Formulation("unfold + einsum", unfold, (x, weight))]
    whole = block % stride == 0 and len(x) % stride == 0
    return [*found, Formulation(f"{terms}-term broadcast", broadcast, (x, weight))] if whole else found, []


def _nsa(case: _Case) -> tuple[list[Formulation], list[Peer]]:
    dy, x, weight = case.inputs
    block, stride = case.attrs["compressBlockSize"], case.attrs["compressStride"]
    terms, count = block // stride, len(dy)
    recorded, weighted = x.detach().requires_grad_(), weight.detach().requires_grad_()
    windows = recorded.unfold(0, block, stride)
    compressed = torch.einsum("cndw,wn->cnd", windows, weighted)

    def broadcast(dy: Any, x: Any, weight: Any) -> Any:
        """Token block b is under the windows b, b - 1, …: one broadcast product for each."""
        heads, width = x.shape[1:]
        spread, blocks = weight.view(terms, 1, stride, heads, 1), x.view(-1, stride, heads, width)
        pad = torch.nn.functional.pad
        input_grad = sum(pad(dy, (0, 0, 0, 0, k, terms - 1 - k)).unsqueeze(1) * spread[k] for k in range(terms))
        products = [(dy.unsqueeze(1) * blocks[k : k + count]).sum((0, 3)) for k in range(terms)]
        return input_grad.view(x.shape), torch.cat(products)

    def autograd() -> Any:
        return torch.autograd.grad(compressed, (recorded, weighted), dy, retain_graph=True)

    peers = [Peer("torch", "autograd of unfold + einsum", True, autograd)]
    whole = block % stride == 0 and len(x) == (count + terms - 1) * stride
    return [Formulation(f"{terms}-term broadcast", broadcast, (dy, x, weight))] if whole else [], peers


_CASES = {
    "gelu_backward_v2": _gelu,
    "gelu_v2": _gelu_value,
    "smooth_l1_loss": _loss,
    "smooth_l1_loss_backward": _smooth_l1,
    "layer_norm": _norm,
    "layer_norm_backward": _norm_backward,
    "layer_norm_grad": _norm_grad,
    "layer_norm_grad_beta": _layer_norm,
    "moe_token_permute_grad": _permute,
    "moe_token_permute": _forward_permute,
    "moe_token_unpermute": _unpermute,
    "moe_token_unpermute_grad": _unpermute_grad,
    "nsa_compress": _compress,
    "nsa_compress_grad": _nsa,
}


def eager(problem: Problem) -> list[Peer]:
    """torch without compilation."""
    formulations, peers = _CASES[problem.operator.spec.python](_Case(problem))
    plain = [
        Peer("torch", chosen.name, True, lambda chosen=chosen: chosen.function(*chosen.tensors), chosen.single)  # type: ignore[misc]
        for chosen in formulations
        if chosen.eager
    ]
    return peers + plain


def compiled(problem: Problem) -> list[Peer]:
    """torch.compile for the number of threads that torch has now; nothing is compiled before the first call."""
    case = _Case(problem)
    formulations, _ = _CASES[problem.operator.spec.python](case)
    torch.compiler.reset()
    return [peer for chosen in formulations if chosen.compiled for peer in _compiled(chosen, case.outs)]


def _compiled(chosen: Formulation, outs: tuple[Any, ...]) -> Iterator[Peer]:
    def into(*tensors: Any) -> Any:
        results = chosen.function(*tensors[len(outs) :])
        for out, result in zip(tensors, results if isinstance(results, tuple) else (results,), strict=False):
            out.copy_(result)
        return tensors[: len(outs)]

    options: Any = {"fx_graph_cache": False}  # code for the threads there are now, whatever an earlier run left behind
    plain, filling = (torch.compile(function, dynamic=False, options=options) for function in (chosen.function, into))
    yield Peer("compile", f"compiled {chosen.name}", True, lambda: plain(*chosen.tensors))
    yield Peer("compile", f"compiled {chosen.name}, out=", False, lambda: filling(*outs, *chosen.tensors))
