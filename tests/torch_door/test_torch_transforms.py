"""torch.vmap against a loop, torch.compile and torch.export against eager runs, autocast, deterministic algorithms, memory formats."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch_samples import HAVE, baseline

import anycann.torch as door
from anycann import AclnnError
from anycann.torch.library import ENTRIES
from contract_facts import Fact

op = torch.ops.anycann
by_operator = pytest.mark.parametrize("fact", HAVE, ids=lambda fact: fact.function)
SIZES: dict[str, Any] = {"compress_block_size": 32, "compress_stride": 16}


def alike(found: Any, expected: Any) -> None:
    """The same bits."""
    pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
    for one, other in pairs:
        assert (one is None) == (other is None)
        if other is not None:
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@by_operator
def test_vmap_is_a_loop(fact: Fact) -> None:
    """Every choice of batched tensors, along the first and the last axis; the members have different values."""
    for kind in fact.floats:
        args, kwargs = baseline(fact, kind).positional()
        tensors = [place for place, value in enumerate(args) if isinstance(value, Tensor)]
        for chosen in range(1, 2 ** len(tensors)):
            batched = {place for bit, place in enumerate(tensors) if chosen >> bit & 1}
            _assert_vmap_is_a_loop(functools.partial(ENTRIES[fact.function].op, **kwargs), args, batched, chosen % 2 - 1)


def _assert_vmap_is_a_loop(operator: Callable[..., Any], args: tuple[Any, ...], batched: set[int], axis: int) -> None:
    members = [[_member(value, seed) if place in batched else value for place, value in enumerate(args)] for seed in range(3)]
    stacked = [torch.stack([each[place] for each in members], axis) if place in batched else args[place] for place in range(len(args))]
    found = torch.vmap(operator, tuple(axis if place in batched else None for place in range(len(args))))(*stacked)
    each = [operator(*member) for member in members]
    if isinstance(each[0], tuple):
        alike(found, tuple(None if results[0] is None else torch.stack(results) for results in zip(*each, strict=True)))
    else:
        alike(found, torch.stack(each))


def _member(value: Tensor, seed: int) -> Tensor:
    return value.roll(seed, 0) if value.dim() else value + seed


def test_vmap_of_the_largest_rank_and_of_means() -> None:
    g, x = torch.randn(2, *[1] * 7, 3), torch.randn(2, *[1] * 7, 3)
    alike(torch.vmap(op.gelu_backward_v2)(g, x), torch.stack([op.gelu_backward_v2(*pair) for pair in zip(g, x, strict=True)]))
    for dtype in (torch.float16, torch.float32):
        a, b = torch.randn(4, 5, 7).to(dtype), torch.randn(7).to(dtype)
        for reduction in (0, 1, 2):
            gradient = functools.partial(op.smooth_l1_loss_backward, torch.ones(1, dtype=dtype), reduction=reduction, beta=0.7)
            alike(torch.vmap(lambda x, f=gradient, b=b: f(x, b))(a), torch.stack([gradient(x, b) for x in a]))


NO_MEMBERS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "gelu_v2": (door.gelu, (torch.empty(0, 3),)),
    "smooth_l1_loss": (lambda x: door.smooth_l1_loss(x, torch.zeros(3)), (torch.empty(0, 3),)),
    "layer_norm": (lambda x, w: op.layer_norm(x, (3,), w), (torch.empty(0, 2, 3), torch.empty(0, 3))),
    "layer_norm_backward": (
        lambda x: op.layer_norm_backward(x, x, (3,), torch.ones(2, 1), torch.ones(2, 1), None, None, [True, True, True]),
        (torch.empty(0, 2, 3),),
    ),
    "layer_norm_grad_beta": (lambda x: op.layer_norm_grad_beta(x, x), (torch.empty(0, 2, 3),)),
    "moe_token_permute": (lambda x: op.moe_token_permute(x, torch.tensor([0, 1])), (torch.empty(0, 2, 3),)),
    "moe_token_unpermute": (op.moe_token_unpermute, (torch.empty(0, 4, 3), torch.empty(0, 4).int(), torch.empty(0, 2, 2))),
    "nsa_compress": (lambda x: door.nsa_compress(x, torch.ones(16, 2), 16, 16), (torch.empty(0, 32, 2, 16),)),
}


@pytest.mark.parametrize("name", NO_MEMBERS)
def test_vmap_over_no_members(name: str) -> None:
    function, tensors = NO_MEMBERS[name]
    wanted = function(*[tensor.new_zeros(tensor.shape[1:]) for tensor in tensors])
    found = torch.vmap(function)(*tensors)
    for result, one in zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]:
        assert (result.shape, result.dtype) == ((0, *one.shape), one.dtype)


def test_gradients_of_no_members_are_zero() -> None:
    x, w = torch.empty(0, 2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
    torch.vmap(lambda a: door.layer_norm(a * w, (3,), w))(x).sum().backward()
    assert (x.grad is not None and x.grad.shape, w.grad is not None and w.grad.tolist()) == (x.shape, [0, 0, 0])
    each = torch.vmap(torch.func.grad(lambda w, a: door.layer_norm(a, (3,), w).sum()), (None, 0))
    assert each(w.detach(), x.detach()).shape == (0, 3)


@pytest.fixture(params=["aot_eager", "inductor"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """What compiles; nothing is taken from inductor's cache, which does not know our schemas."""
    torch.compiler.reset()
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield request.param


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("defaults", [False, True])
@by_operator
def test_compiled_calls_give_the_same_bits(fact: Fact, defaults: bool, backend: str) -> None:
    one = baseline(fact, fact.floats[0])
    args, kwargs = one.positional()
    if defaults:
        given = dict(zip(one.entry.positional, args, strict=False)) | kwargs
        given |= {name: value for name, value in one.entry.defaults.items() if value is not None and not isinstance(value, Tensor)}
        args = tuple([given.pop(name) for name in one.entry.positional])
        kwargs = given
    operator = one.entry.op
    expected = operator(*args, **kwargs)
    compiled = torch.compile(lambda *values: operator(*values, **kwargs), fullgraph=True, backend=backend, dynamic=True)
    alike(compiled(*args), expected)


class Block(torch.nn.Module):
    """Every module of this door, in one graph."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.activation, self.compress, self.loss = (
            door.LayerNorm(16),
            door.GELU("tanh"),
            door.NsaCompress(2),
            door.SmoothL1Loss(),
        )

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return self.loss(self.compress(self.activation(self.norm(x))), target)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_model_compiles_with_its_gradients(backend: str) -> None:
    torch.manual_seed(0)
    block, x, target = Block(), torch.randn(64, 2, 16), torch.zeros(3, 2, 16)
    expected = torch.autograd.grad(block(x, target), tuple(block.parameters()))
    compiled = torch.compile(block, fullgraph=True, backend=backend)
    alike(torch.autograd.grad(compiled(x, target), tuple(block.parameters())), expected)


def test_a_model_is_exported() -> None:
    block, x, target = Block().eval(), torch.randn(64, 2, 16), torch.zeros(3, 2, 16)
    exported = torch.export.export(block, (x, target))
    names = {str(node.target) for node in exported.graph.nodes}
    assert {f"anycann.{name}.default" for name in ("layer_norm", "gelu_v2", "nsa_compress", "smooth_l1_loss")} <= names
    alike(exported.module()(x, target), block(x, target))


def _two_in_turn(x: Tensor) -> tuple[Tensor, ...]:
    first, second = torch.empty_like(x), torch.empty_like(x)
    return op.gelu_v2.out(x, 1, out=first), op.gelu_v2.out(x, 0, out=second), first, second


def _another_is_returned(x: Tensor) -> tuple[Tensor, ...]:
    op.gelu_v2.out(x, 1, out=x)
    return (x[0] + 1,)


def _part_of_another(x: Tensor) -> tuple[Tensor, ...]:
    return op.gelu_v2(x[2:], 1, out=x[:2]), x * 2


def _several(x: Tensor) -> tuple[Tensor, ...]:
    gamma, beta = x.new_zeros(6), x.new_zeros(6)
    found = op.layer_norm_grad_beta.out(x, x, pd_gamma=gamma, pd_beta=beta)
    return found[0] + beta, gamma


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("function", [_two_in_turn, _another_is_returned, _part_of_another, _several])
def test_compiled_out_variants_write_what_the_eager_ones_do(function: Callable[[Tensor], tuple[Tensor, ...]], backend: str) -> None:
    for inference in (False, True):
        torch.compiler.reset()
        compiled = torch.compile(function, fullgraph=True, backend=backend)
        with torch.inference_mode(inference):
            one = torch.randn(4, 6)
            other = one.clone()
            alike(compiled(one), function(other))
            alike(one, other)
    one = torch.randn(4, 6)
    exported = torch.export.export(Function(function), (one,)).run_decompositions()
    other = one.clone()
    alike(exported.module()(one), function(other))
    alike(one, other)


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def test_an_out_tensor_of_another_shape_is_refused_in_a_graph_too() -> None:
    def wrong(x: Tensor) -> Tensor:
        found: Tensor = op.gelu_v2(x[:1], 0, out=torch.empty_like(x))
        return found

    with pytest.raises(AclnnError, match=r"out must have shape \(1, 3\)"):
        wrong(torch.ones(2, 3))
    for backend in ("aot_eager", "inductor"):
        with pytest.raises(Exception, match=r"out must have shape \(1, 3\)"):
            torch.compile(wrong, fullgraph=True, backend=backend)(torch.ones(2, 3))
    with pytest.raises(Exception, match=r"out must have shape \(1, 3\)"):
        torch.func.functionalize(wrong)(torch.ones(2, 3))


def test_a_graph_of_any_number_of_rows_is_compiled_once() -> None:
    count = CompileCounter()
    compiled = torch.compile(
        lambda g, x: op.gelu_backward_v2(g, x) + op.layer_norm_grad_beta(g, x)[0], fullgraph=True, backend=count, dynamic=True
    )
    for rows in (3, 5, 9):
        g, x = torch.randn(rows, 4), torch.randn(rows, 4)
        alike(compiled(g, x), op.gelu_backward_v2(g, x) + op.layer_norm_grad_beta(g, x)[0])
    assert count.frame_count == 1


def test_the_compression_of_any_number_of_tokens_is_one_graph() -> None:
    counter, compress = CompileCounter(), functools.partial(door.nsa_compress, compress_block_size=32, compress_stride=16)
    compiled = torch.compile(compress, fullgraph=True, backend=counter, dynamic=True)
    w = torch.randn(32, 2)
    for tokens in (64, 65, 80, 97):
        x = torch.randn(tokens, 2, 16)
        alike(compiled(x, w), op.nsa_compress(x, w, [tokens], compress_block_size=32, compress_stride=16))
    assert counter.frame_count == 1
    module = door.NsaCompress(2)
    tokens = torch.export.Dim("tokens", min=48, max=4096)  # torch asks whether there is one window
    exported = torch.export.export(module, (torch.randn(96, 2, 16),), dynamic_shapes={"input": {0: tokens}})
    for count in (48, 130):
        x = torch.randn(count, 2, 16)
        alike(exported.module()(x), module(x))


DATA_DEPENDENT: dict[str, Callable[[Tensor], Any]] = {
    "gelu": lambda x: door.gelu(x, "tanh"),
    "gelu_backward_v2": lambda x: op.gelu_backward_v2(x, x),
    "smooth_l1_loss": lambda x: (door.smooth_l1_loss(x, x + 1), op.smooth_l1_loss(x, x * 2, 0)),
    "smooth_l1_loss_backward": lambda x: op.smooth_l1_loss_backward(x, x, x + 1, 0, 1.0),
    "layer_norm": lambda x: op.layer_norm(x, (16,)),
}


@pytest.mark.parametrize("name", DATA_DEPENDENT)
def test_operators_are_exported_for_sizes_that_data_decide(name: str) -> None:
    module = Function(lambda x, chosen: DATA_DEPENDENT[name](x[chosen]))
    x, chosen = torch.randn(8, 16), torch.arange(8) % 3 > 0
    exported = torch.export.export(module, (x, chosen)).module()
    for which in (chosen, ~chosen, chosen | True):
        alike(exported(x, which), module(x, which))


TRAINED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gelu": lambda x, t: door.gelu(x).sum(),
    "gelu of layer_norm": lambda x, t: door.gelu(op.layer_norm(x, (4,))[0]).sum(),
    "mean": lambda x, t: door.smooth_l1_loss(x, t),
    "sum": lambda x, t: op.smooth_l1_loss(x, t, 2),
    "none": lambda x, t: (op.smooth_l1_loss(x, t, 0) * t).sum(),
    "a row": lambda x, t: op.gelu_backward_v2(x, t[0].detach()).sum(),
    "a number": lambda x, t: op.gelu_backward_v2(x, t[0, 0].detach()).sum(),
    "transposed": lambda x, t: door.gelu(x.t()).sum(),
    "columns": lambda x, t: door.gelu(x[:, :2]).square().sum(),
    "heads": lambda x, t: door.gelu(x.view(-1, 2, 2).transpose(0, 1)).square().sum(),
}


@pytest.mark.skipif(torch.__version__ < (2, 8), reason="torch 2.6 and 2.7 ask whether there is one row")
@pytest.mark.parametrize("name", TRAINED)
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_elementwise_operators_train_on_sizes_that_data_decide(name: str) -> None:
    torch._dynamo.reset()  # which compiles one function a few times at most
    train = TRAINED[name]
    compiled = torch.compile(lambda x, t, chosen: train(x[chosen], t[chosen]), fullgraph=True, backend="aot_eager")
    x, t, chosen = torch.randn(8, 4), torch.randn(8, 4), torch.arange(8) % 3 > 0
    for which in (chosen, ~chosen, chosen | True):
        leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
        loss, expected = compiled(leaf, t, which), train(other[which], t[which])
        loss.backward()
        expected.backward()
        alike((loss.detach(), leaf.grad), (expected.detach(), other.grad))


BROADCASTING: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "gelu_backward_v2": (op.gelu_backward_v2, ((64, 4), (4,))),
    "smooth_l1_loss": (lambda x, t: op.smooth_l1_loss(x, t, 0), ((64, 4), (4,))),
    "smooth_l1_loss_backward": (lambda g, x, t: op.smooth_l1_loss_backward(g, x, t, 1, 1.0), ((), (64, 4), (4,))),
    "vmap": (lambda x, t: torch.vmap(lambda row: op.gelu_backward_v2(row, t))(x), ((64, 4), (4,))),
}


@pytest.mark.parametrize("name", BROADCASTING)
def test_no_number_of_rows_is_special_where_operands_broadcast(name: str) -> None:
    function, shapes = BROADCASTING[name]
    values = [torch.randn(shape) for shape in shapes]
    sizes = tuple({0: torch.export.Dim("n", min=2)} if len(shape) == 2 else {} for shape in shapes)
    exported = torch.export.export(Function(function), tuple(values), dynamic_shapes=(sizes,)).module()
    counter = CompileCounter()
    compiled = torch.compile(function, fullgraph=True, backend=counter, dynamic=True)
    for rows in (64, 4, 2, 7):
        values = [torch.randn(rows, 4) if len(shape) == 2 else torch.randn(shape) for shape in shapes]
        alike(exported(*values), function(*values))
        alike(compiled(*values), function(*values))
    assert counter.frame_count == 1


def test_sizes_that_happen_to_be_one_broadcast() -> None:
    torch._dynamo.reset()
    of_heads = torch.compile(lambda x, y: op.smooth_l1_loss(x.view(-1, 4), y, 0, 1.0), backend="aot_eager", dynamic=True)
    some = torch.compile(lambda x, y, n: op.gelu_backward_v2(x[:n], y), backend="aot_eager", dynamic=True)
    y = torch.randn(5, 4)
    for rows in (5, 1, 5):
        x = torch.randn(rows, 4)
        alike(of_heads(x.reshape(-1), y), op.smooth_l1_loss(x, y, 0, 1.0))
        alike(some(x, y, rows), op.gelu_backward_v2(x, y))


@pytest.mark.skipif(torch.__version__ < (2, 8), reason="torch 2.6 and 2.7 ask for the number of windows of nsa_compress when they export")
def test_routing_and_compression_are_exported_for_sizes_that_data_decide_within_what_is_checked() -> None:
    def route(x: Tensor, chosen: Tensor) -> Any:
        x = x[chosen]
        torch._check(x.shape[0] >= 16)
        rows, places = door.moe_token_permute(x[:, 0], torch.cat([x[:, 0, :2], x[:, 0, 2:3]], 1).int())
        return door.moe_token_unpermute(rows * 2, places, x[:, 0, :3]), door.nsa_compress(x, torch.ones(16, 1), 16, 16)

    x, chosen = torch.randn(64, 1, 16), torch.arange(64) % 3 > 0
    exported = torch.export.export(Function(route), (x, chosen)).module()
    for which in (chosen, ~chosen, chosen | True):
        alike(exported(x, which), route(x, which))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_functions_are_traced_by_torch_jit() -> None:
    x, w = torch.randn(64, 2, 16), torch.randn(32, 2)
    traced = torch.jit.trace(lambda x, w: door.nsa_compress(door.gelu(x), w, 32, 16), (x, w))
    other = torch.randn(96, 2, 16)
    alike(traced(other, w), door.nsa_compress(door.gelu(other), w, 32, 16))


def test_a_refusal_in_a_compiled_function_is_that_of_the_eager_one() -> None:
    def wrong(x: Tensor) -> Tensor:
        return op.moe_token_permute_grad(x, torch.zeros(5, dtype=torch.int32), 2)

    with pytest.raises(AclnnError, match="sorted_indices must hold num_topk entries"):
        wrong(torch.ones(2, 3))
    with pytest.raises(Exception, match="sorted_indices must hold num_topk entries"):
        torch.compile(wrong, fullgraph=True, backend="eager")(torch.ones(2, 3))


def test_a_name_that_is_not_allowed_is_named_where_one_graph_is_asked_for() -> None:
    expected = r"approximate must be 0 \('none'\), 1 \('tanh'\); got 'tan'"
    quoted = "Observed exception" if torch.__version__ < (2, 9) else expected  # older ones do not say which
    for fullgraph, kind, text in ((False, AclnnError, expected), (True, Exception, quoted)):
        torch.compiler.reset()
        with pytest.raises(kind, match=text):
            torch.compile(lambda x: door.gelu(x, "tan"), fullgraph=fullgraph, backend="eager")(torch.ones(3))


AUTOCAST: dict[str, tuple[Callable[..., Any], torch.dtype]] = {
    "smooth_l1_loss": (lambda x: door.smooth_l1_loss(x, torch.zeros(64, 1, 16)), torch.float32),
    "smooth_l1_loss_backward": (lambda x: op.smooth_l1_loss_backward(torch.ones(1).bfloat16(), x, torch.zeros(16)), torch.float32),
    "layer_norm": (lambda x: door.layer_norm(x, (16,), torch.ones(16), torch.zeros(16).bfloat16()), torch.float32),
    "nsa_compress": (lambda x: door.nsa_compress(x, torch.ones(32, 1), 32, 16), torch.bfloat16),
    "gelu_v2": (door.gelu, torch.float16),
}


@pytest.mark.parametrize("name", AUTOCAST)
def test_autocast(name: str) -> None:
    function, dtype = AUTOCAST[name]
    x = torch.randn(64, 1, 16, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = function(x.half())
    assert found.dtype == dtype
    found.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32


def test_results_do_not_depend_on_the_deterministic_flag() -> None:
    def everything() -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        grad, indices = torch.randn(40, 8, requires_grad=True), torch.randint(-1, 42, (60,), dtype=torch.int32)
        found = op.moe_token_permute_grad(grad, indices, 3)
        found.square().sum().backward()
        assert grad.grad is not None
        return found.detach(), grad.grad, *op.nsa_compress_grad(torch.randn(3, 2, 16), torch.randn(64, 2, 16), torch.randn(32, 2), **SIZES)

    expected = everything()
    torch.use_deterministic_algorithms(True)
    try:
        alike(everything(), expected)
    finally:
        torch.use_deterministic_algorithms(False)


def test_lazily_negated_and_zero_tensors() -> None:
    x = torch.randn(4)
    negated = torch._neg_view(x)
    alike(op.gelu_backward_v2(torch.ones(4), negated), op.gelu_backward_v2(torch.ones(4), -x))
    alike(op.gelu_backward_v2(torch._efficientzerotensor(4), x), torch.zeros(4))


def test_a_parameter_without_gradient_and_inference_mode() -> None:
    x = torch.nn.Parameter(torch.randn(4), requires_grad=False)
    expected = op.gelu_backward_v2(torch.ones(4), x.detach())
    alike(op.gelu_backward_v2(torch.ones(4), x), expected)
    with torch.inference_mode():
        out = torch.empty(4)
        alike(op.gelu_backward_v2(torch.ones(4), x, out=out), expected)
        assert out.is_inference()


def test_other_devices_are_refused_by_torch() -> None:
    with pytest.raises(NotImplementedError, match="anycann::gelu_backward_v2"):
        op.gelu_backward_v2(torch.ones(2).to_sparse(), torch.ones(2).to_sparse())
