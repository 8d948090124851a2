"""Derivatives, first and second: against numerical ones in float64; an error that says so where there is none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor
from torch._dynamo import compiled_autograd
from torch.autograd import forward_ad

import anycann.torch as door
from anycann.errors import AclnnError
from anycann.torch.gradients import RULES
from anycann.torch.library import ENTRIES

op = torch.ops.anycann
INDICES = torch.tensor([4, 0, 3, 9, 1, 3, -1, 2], dtype=torch.int32)  # two dropped, one twice
PERMUTATION = torch.tensor([4, 0, 3, 7, 1, 5, 6, 2], dtype=torch.int32)
EXPERTS = torch.tensor([[1, 0], [2, 1], [0, 2], [1, 2]], dtype=torch.int32)
SIZES: dict[str, Any] = {"compress_block_size": 16, "compress_stride": 16}


@dataclass(frozen=True)
class Case:
    """A function of float32 tensors of these shapes. Operators that are linear in each tensor have exact differences of any step."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    linear: bool = False


CASES = {
    "gelu_v2": Case(lambda x: op.gelu_v2(x, 0), ((3, 5),)),
    "gelu_v2 tanh": Case(lambda x: op.gelu_v2(x, 1), ((3, 5),)),
    "gelu_backward_v2": Case(lambda g: op.gelu_backward_v2(g, torch.linspace(-2, 2, 15).reshape(3, 5)), ((3, 1),), True),
    "smooth_l1_loss none": Case(lambda x, y: op.smooth_l1_loss(x, y, 0, 5.0), ((3, 4), (4,))),
    "smooth_l1_loss mean": Case(lambda x, y: op.smooth_l1_loss(x, y, 1, 5.0), ((3, 4), (3, 1))),
    "smooth_l1_loss sum": Case(lambda x, y: op.smooth_l1_loss(x, y, 2, 0.01), ((3, 4), (3, 4))),
    "smooth_l1_loss_backward": Case(
        lambda g: op.smooth_l1_loss_backward(g, torch.arange(12.0).reshape(3, 4) - 5, torch.zeros(4), 1, 2.0), ((1,),), True
    ),
    "layer_norm": Case(lambda x, w, b: op.layer_norm(x, (2, 4), w, b)[0], ((3, 2, 4), (2, 4), (2, 4))),
    "layer_norm without weight": Case(lambda x: op.layer_norm(x, (4,))[0], ((3, 4),)),
    "layer_norm_backward": Case(
        lambda g, x, w: op.layer_norm_backward(g, x, (4,), *op.layer_norm(x.detach(), (4,))[1:], w), ((3, 4), (3, 4), (4,))
    ),
    "layer_norm_grad_beta": Case(op.layer_norm_grad_beta, ((3, 2, 4), (3, 2, 4)), True),
    "moe_token_permute": Case(lambda x: op.moe_token_permute(x, EXPERTS, 7)[0], ((4, 3),), True),
    "moe_token_permute_grad": Case(lambda g: op.moe_token_permute_grad(g, INDICES, 2), ((5, 3),), True),
    "moe_token_unpermute": Case(lambda x, p: op.moe_token_unpermute(x, PERMUTATION, p), ((8, 3), (4, 2)), True),
    "moe_token_unpermute without probs": Case(lambda x: op.moe_token_unpermute(x, PERMUTATION), ((8, 3),), True),
    "moe_token_unpermute_grad": Case(lambda x, g, p: op.moe_token_unpermute_grad(x, g, PERMUTATION, p), ((8, 3), (4, 3), (4, 2)), True),
    "moe_token_unpermute_grad without probs": Case(lambda g: op.moe_token_unpermute_grad(None, g, PERMUTATION)[0], ((8, 3),), True),
    "nsa_compress": Case(lambda x, w: op.nsa_compress(x, w, [32, 48], **SIZES), ((48, 1, 16), (16, 1)), True),
    "nsa_compress_grad": Case(lambda g, x, w: op.nsa_compress_grad(g, x, w, [16, 32], **SIZES), ((2, 1, 16), (32, 1, 16), (16, 1)), True),
}
HAVE = {name: case for name, case in CASES.items() if name.split()[0] in ENTRIES}
by_case = pytest.mark.parametrize("name", HAVE)


def doubles(case: Case, seed: int = 0) -> list[Tensor]:
    """Inputs in float64 that float32 can hold."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).double().requires_grad_() for shape in case.shapes]


def in_double(case: Case) -> Callable[..., Any]:
    """The function from float64 to float64, computing in float32 as it does."""

    def wrapped(*tensors: Tensor) -> Any:
        found = case.function(*[tensor.float() for tensor in tensors])
        return tuple(result.double() for result in found) if isinstance(found, tuple) else found.double()

    return wrapped


@by_case
def test_gradcheck(name: str) -> None:
    """Central differences of float32 results: the step leaves 1e-7 / step of rounding, and step ** 2 of curvature where there is any."""
    case = HAVE[name]
    step, tolerance = (0.25, 1e-5) if case.linear else (1e-2, 1e-3)
    assert torch.autograd.gradcheck(in_double(case), doubles(case), eps=step, atol=tolerance, rtol=tolerance)


@by_case
def test_gradgradcheck(name: str) -> None:
    """As above; a smaller step where third derivatives are larger than second ones were. The gradients of the results are drawn, too."""
    torch.manual_seed(0)
    case = HAVE[name]
    step, tolerance = (0.25, 1e-5) if case.linear else (3e-3, 1e-3)
    assert torch.autograd.gradgradcheck(in_double(case), doubles(case), eps=step, atol=tolerance, rtol=tolerance)


def test_every_operator_with_a_derivative_is_among_the_cases() -> None:
    assert set(RULES) & set(ENTRIES) == {name.split()[0] for name in HAVE}


def test_a_derivative_that_is_not_offered_is_an_error_that_says_so() -> None:
    assert set(ENTRIES) - set(RULES) == {"layer_norm_grad"}
    g, x, rows = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True), torch.rand(3, 1)
    with pytest.raises(NotImplementedError, match=r"torch.ops.anycann.layer_norm_grad has no derivative"):
        op.layer_norm_grad(g, x, rows[:, 0], rows[:, 0], torch.ones(4))[0].sum().backward()
    with pytest.raises(NotImplementedError, match="the statistics of layer_norm_backward are those of its input"):
        op.layer_norm_backward(g, x, (4,), rows.clone().requires_grad_(), rows)[0].sum().backward()


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_second_derivatives_of_gelu_are_right_at_all_sizes(approximate: str) -> None:
    x = torch.cat([torch.linspace(-30, 30, 241), torch.tensor([0.0, 1e-30, 2**0.5, 1e10, 3e38, torch.inf, -torch.inf])]).requires_grad_()
    (first,) = torch.autograd.grad(door.gelu(x, approximate=approximate).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    with mpmath.workdps(60):
        half, k, c = mpmath.mpf(1) / 2, mpmath.sqrt(2 / mpmath.pi), mpmath.mpf("0.044715")
        functions = {"none": lambda v: v * mpmath.ncdf(v), "tanh": lambda v: half * v * (1 + mpmath.tanh(k * (v + c * v**3)))}
        exact = [float(mpmath.diff(functions[approximate], float(v), 2)) if abs(v) < 31 else 0.0 for v in x.detach()]
    expected = torch.tensor(exact, dtype=torch.float64)
    assert torch.all((second.double() - expected).abs() <= 2.0**-24 * expected.abs() + 2.0**-149)
    assert x.grad is None
    assert op.gelu_backward_v2(torch.ones(1), torch.tensor([torch.nan], requires_grad=True)).sum().isnan()


def test_second_derivatives_of_smooth_l1() -> None:
    x = torch.tensor([0.5, -0.5, 1.0, -3.0, torch.nan, torch.inf], requires_grad=True)
    for reduction, count in ((0, 1), (1, 6)):
        (first,) = torch.autograd.grad(op.smooth_l1_loss(x, torch.zeros(6), reduction, 1.0).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first, x, torch.ones(6))
        torch.testing.assert_close(second, torch.tensor([1, 1, 0, 0, torch.nan, 0]) / count, rtol=0, atol=0, equal_nan=True)
    assert torch.autograd.functional.hessian(lambda y: op.smooth_l1_loss(y, torch.zeros(3), 2, 0.0), torch.ones(3)).eq(0).all()


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_second_derivatives_of_smooth_l1_where_the_gradient_is_wider(reduction: int) -> None:
    """The mean is that of the elements of self and target, however many the result has."""
    gradient, target = torch.linspace(-1, 2, 12).view(4, 3), torch.zeros(3)
    x = torch.tensor([0.5, -0.25, 3.0], requires_grad=True)
    expected = gradient.sum(0) * torch.tensor([1, 1, 0]) / 2.0 / (3 if reduction == 1 else 1)  # of the slope x / beta
    for leaf, sign in ((x, 1), (target.requires_grad_(), -1)):
        result = op.smooth_l1_loss_backward(gradient, x, target, reduction, 2.0)
        (second,) = torch.autograd.grad(result.sum(), leaf)
        torch.testing.assert_close(second, sign * expected, rtol=1e-6, atol=1e-6)


def normalised(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Layer normalisation over two axes, of torch's simplest operators."""
    away = x - x.mean((-2, -1), keepdim=True)
    return away * (away.square().mean((-2, -1), keepdim=True) + 1e-5) ** -0.5 * w + b


def test_second_and_third_derivatives_of_layer_norm() -> None:
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(shape, generator=generator).requires_grad_() for shape in ((3, 2, 4), (2, 4), (2, 4))]
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    found: list[list[Tensor]] = []
    for function, given in ((lambda x, w, b: door.layer_norm(x, (2, 4), w, b), tensors), (normalised, exact)):
        value, kept = function(*given).tanh(), []
        for _ in range(3):
            weights = torch.randn(value.shape, generator=torch.Generator().manual_seed(2)).to(value.dtype)
            gradients = torch.autograd.grad((value * weights).sum(), given, create_graph=True)
            value = torch.cat([gradient.flatten() for gradient in gradients])
            kept.append(value)
        found.append(kept)
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(here.double(), there, rtol=0, atol=1e-6 * float(there.detach().abs().max()))  # some roundings to float32


def test_second_derivatives_of_layer_norm_of_one_row_without_weight_and_in_16_bits() -> None:
    x = torch.randn(8, generator=torch.Generator().manual_seed(3))
    exact = torch.autograd.functional.hessian(lambda y: (normalised(y[None], torch.tensor(1), torch.tensor(0))[0] ** 3).sum(), x.double())
    found = torch.autograd.functional.hessian(lambda y: (door.layer_norm(y, (8,)) ** 3).sum(), x)
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    y = x.bfloat16().requires_grad_()
    (first,) = torch.autograd.grad(door.layer_norm(y, (8,)).sum(), y, create_graph=True)
    assert torch.autograd.grad(first.sum(), y)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_gradients_have_the_dtype_and_shape_of_their_tensors(dtype: torch.dtype) -> None:
    g, y = torch.randn(4, 1, 3, dtype=dtype, requires_grad=True), torch.randn(2, 3)
    op.gelu_backward_v2(g, y).sum().backward()
    assert g.grad is not None
    assert (g.grad.dtype, g.grad.shape) == (dtype, g.shape)
    expected = op.gelu_backward_v2(torch.ones(4, 2, 3), y).sum(1, keepdim=True)
    assert torch.equal(g.grad, expected.to(dtype))


def test_out_variants_refuse_to_record() -> None:
    x = torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="with out= records no gradients"):
        op.gelu_backward_v2(torch.ones(3), x, out=torch.empty(3))
    with torch.no_grad():
        assert torch.equal(op.gelu_backward_v2(torch.ones(3), x, out=torch.empty(3)), op.gelu_backward_v2(torch.ones(3), x))


def test_functorch_transforms() -> None:
    x, w = torch.randn(3, 48, 1, 16), torch.randn(16, 1)

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return op.nsa_compress_grad(torch.ones(3, 1, 16), x, w, **SIZES)[1].square().sum()

    alone = torch.stack([torch.autograd.grad(loss(one.requires_grad_(), w), one)[0] for one in x.detach().clone()])
    torch.testing.assert_close(torch.vmap(torch.func.grad(loss), (0, None))(x, w), alone)
    jacobian = torch.func.jacrev(lambda g: op.moe_token_permute_grad(g, INDICES, 2))(torch.randn(5, 3))
    assert jacobian.shape == (4, 3, 5, 3)
    assert torch.equal(jacobian.sum((0, 1, 3)), torch.tensor([3.0, 3.0, 3.0, 6.0, 3.0]))


def permuted(x: Tensor) -> Tensor:
    found: Tensor = op.moe_token_permute(x, torch.tensor([2, 0, 1]))[0]
    return found


def cubes(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: function(x).pow(3).sum()


def test_levels_of_torch_func_record_for_each_other() -> None:
    x, grad = torch.tensor([[1.0], [2.0], [3.0]]), torch.func.grad
    twice = grad(lambda y: grad(cubes(permuted))(y).sum())
    assert twice(x).flatten().tolist() == [6, 12, 18]
    assert grad(lambda y: torch.func.vjp(cubes(permuted), y)[1](torch.tensor(1.0))[0].sum())(x).flatten().tolist() == [6, 12, 18]
    given = x.clone().requires_grad_()
    assert torch.autograd.grad(grad(cubes(permuted))(given).sum(), given)[0].flatten().tolist() == [6, 12, 18]
    expected = torch.func.jacrev(torch.func.jacrev(cubes(lambda y: y)))(x)
    assert torch.equal(torch.func.jacrev(torch.func.jacrev(cubes(permuted)))(x), expected)
    third = grad(lambda y: twice(y).sum())(x)
    assert third.flatten().tolist() == [6, 6, 6]
    x, w = torch.randn(16, 1, 16), torch.randn(16, 1)
    jacobians = [
        torch.func.jacrev(torch.func.jacrev(lambda x, w, f=f: f(x, w).pow(2).sum(), 0), 1)(x, w)
        for f in (lambda x, w: door.nsa_compress(x, w, 16, 16), lambda x, w: (x * w[:, :, None]).sum(0, keepdim=True))
    ]
    torch.testing.assert_close(*jacobians, rtol=1e-4, atol=1e-4)


def test_parameters_from_outside_of_torch_func_get_their_gradients() -> None:
    x, found = torch.randn(4, 6), []
    for layer_norm in (door.layer_norm, torch.nn.functional.layer_norm):
        w = torch.ones(6, requires_grad=True)
        _, value = torch.func.grad_and_value(lambda a, w=w, norm=layer_norm: norm(a, (6,), w).pow(2).sum())(x)
        each = torch.vmap(torch.func.grad_and_value(lambda a, w=w, norm=layer_norm: norm(a, (6,), w).pow(2).sum()))(x)[1]
        found.append(torch.autograd.grad(value + each.sum() + w.sum(), w)[0])
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-5)


def test_torch_func_keeps_what_the_caller_switched_off() -> None:
    x, w = torch.randn(4, 6), torch.ones(6, requires_grad=True)
    with torch.no_grad():
        gradient, value = torch.func.grad_and_value(lambda a: door.layer_norm(a, (6,), w).pow(3).sum())(x)
    assert (gradient.requires_grad, value.requires_grad) == (False, False)
    assert gradient.abs().max() > 0

    def unseen(a: Tensor) -> Tensor:
        with torch.no_grad():
            hidden = door.gelu(a)
        return hidden.sum() + a.sum()

    assert torch.equal(torch.func.grad(unseen)(x), torch.ones(4, 6))
    assert torch.equal(torch.func.grad(lambda a: torch.func.grad(unseen)(a).sum() + a.sum())(x), torch.ones(4, 6))


plain = torch.nn.functional
SECOND: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "gelu": (lambda x: door.gelu(x).sum(), lambda x: plain.gelu(x).sum()),
    "smooth_l1_loss": (lambda x: door.smooth_l1_loss(x, torch.zeros(3)), lambda x: plain.smooth_l1_loss(x, torch.zeros(3).double())),
    "layer_norm": (lambda x: door.layer_norm(x, (3,)).pow(3).sum(), lambda x: plain.layer_norm(x, (3,)).pow(3).sum()),
}


@pytest.mark.parametrize("name", SECOND)
def test_second_derivatives_by_torch_func(name: str) -> None:
    here, there = SECOND[name]
    x = torch.randn(3, generator=torch.Generator().manual_seed(4))
    exact = torch.func.jacrev(torch.func.grad(there))(x.double())
    found = torch.func.jacrev(torch.func.grad(here))(x)
    torch.testing.assert_close(found.double(), exact, rtol=1e-6, atol=1e-6 * float(exact.abs().max()))
    rows = torch.func.vmap(torch.func.grad(lambda y: torch.func.grad(here)(y).sum()))(torch.stack([x, x]))
    torch.testing.assert_close(rows.double(), torch.stack([exact.sum(0)] * 2), rtol=1e-6, atol=1e-6 * float(exact.abs().max()))


def dual(function: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    """The tangent of a function, without torch.func."""

    def tangent(x: Tensor) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent

    return tangent


def into_out(x: Tensor) -> Tensor:
    found: Tensor = op.gelu_v2(x, 0, out=torch.empty_like(x))
    return found


FORWARD: dict[str, tuple[str, Callable[[Tensor], Any]]] = {
    "jvp": ("gelu_v2", lambda x: torch.func.jvp(lambda a: a + door.gelu(a), (x,), (x,))),
    "jacfwd": ("layer_norm", torch.func.jacfwd(lambda x: door.layer_norm(x, (3,)))),
    "hessian": ("gelu_v2", torch.func.hessian(lambda x: door.gelu(x).sum())),
    "jvp of jvp": ("gelu_v2", lambda x: torch.func.jvp(lambda a: torch.func.jvp(lambda b: b * door.gelu(a), (x,), (x,))[1], (x,), (x,))),
    "linearize": ("gelu_v2", lambda x: torch.func.linearize(door.gelu, x)),
    "dual": ("moe_token_permute", dual(lambda x: op.moe_token_permute(x[:, None], torch.tensor([1, 0, 2]))[0])),
    "dual that requires grad": ("smooth_l1_loss", dual(lambda x: door.smooth_l1_loss(torch.zeros(3), x.clone().requires_grad_()))),
    "dual, no_grad": ("gelu_v2", torch.no_grad()(dual(door.gelu))),
    "dual, given by name": ("gelu_v2", dual(lambda x: op.gelu_v2(x=x, approximate=0))),
    "dual, out": ("gelu_v2", dual(into_out)),
    "jvp, compiled": ("gelu_v2", torch.compile(lambda x: torch.func.jvp(door.gelu, (x,), (x,)), backend="aot_eager")),
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forward_mode_derivatives_are_errors_that_say_so(name: str) -> None:
    operator, function = FORWARD[name]
    with pytest.raises(Exception, match=rf"torch.ops.anycann.{operator}(.out)? has no forward-mode derivative"):
        function(torch.randn(3))


def test_tensors_without_tangents_compute_beside_forward_mode_derivatives() -> None:
    x, w = torch.randn(3), torch.randn(3, requires_grad=True)
    value, tangent = torch.func.jvp(lambda a: a * door.gelu(x) + into_out(x), (x,), (torch.ones(3),))
    assert torch.equal(tangent, door.gelu(x))
    assert torch.equal(value, x * door.gelu(x) + door.gelu(x))
    with forward_ad.dual_level():
        loss = (forward_ad.unpack_dual(forward_ad.make_dual(x, x)).primal * door.gelu(w)).sum()
        assert torch.equal(torch.autograd.grad(loss, w)[0], op.gelu_backward_v2(x, w.detach()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_backward_pass_is_compiled() -> None:
    torch._dynamo.reset()
    for rows, beta in ((3, 1.0), (3, 0.1), (4, 0.1), (5, 2.0)):
        x, y = torch.randn(rows, 6, requires_grad=True), torch.randn(rows, 6)
        expected = torch.autograd.grad(door.smooth_l1_loss(door.layer_norm(door.gelu(x), (6,)), y, "mean", beta), x)[0]
        loss = door.smooth_l1_loss(door.layer_norm(door.gelu(x), (6,)), y, "mean", beta)
        with compiled_autograd._enable(torch.compile(backend="eager")):
            loss.backward()
        assert x.grad is not None
        assert torch.equal(x.grad, expected)
    g, rows = torch.ones(3, 4, requires_grad=True), torch.ones(3, 1)
    loss = op.layer_norm_backward(g, g, (4,), rows, rows.clone().requires_grad_())[0].sum()
    with compiled_autograd._enable(torch.compile(backend="eager")), pytest.raises(Exception, match="the statistics of layer_norm_backward"):
        loss.backward()


def test_nodes_of_a_graph_bear_the_names_of_their_operators() -> None:
    x = torch.randn(3, requires_grad=True)
    assert [type(door.gelu(x).grad_fn).__name__, type(door.smooth_l1_loss(x, x).grad_fn).__name__] == [
        "GeluV2Backward",
        "SmoothL1LossBackward",
    ]


def test_a_permutation_of_too_many_copies_has_no_gradient_and_says_so() -> None:
    x, experts = torch.ones(2, 4, requires_grad=True), torch.arange(1026).reshape(2, 513)
    rows = op.moe_token_permute(x, experts)[0]
    assert rows.shape == (1026, 4)
    with pytest.raises(AclnnError, match=r"^anycann\.moe_token_permute: indices must have at most 512 columns .* got 513\. Pass"):
        rows.sum().backward()
    op.moe_token_permute(x, experts[:, :512])[0].sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.full((2, 4), 512.0))
