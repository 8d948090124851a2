"""A call that is recognised as a recent one again does what it does when it comes first: the same bits, or the same refusal."""

from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anycann
from anycann import aclnn
from anycann.runtime import RECENT, RECENT_SHAPES, Operator, operator_of

try:
    import torch
except ImportError:
    torch = None

ROWS, WIDTH = 6, 20


class Sizes(tuple[int, ...]):
    """A tuple that may mean anything."""


class Subclass(np.ndarray[Any, Any]):
    """An array that may mean anything."""


def operator(function: Callable[..., Any]) -> Operator:
    found = operator_of(function)
    assert found is not None
    return found


def outcome(call: Callable[[], Any]) -> Any:
    """The bits of the results, or the refusal."""
    try:
        results = call()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error), str(error)
    return [(type(each).__name__, str(each.dtype), tuple(each.shape), bits(each)) for each in results]


def bits(array: Any) -> bytes:
    return (array.detach().numpy() if torch is not None and isinstance(array, torch.Tensor) else np.asarray(array)).tobytes()


def same_as_first(function: Callable[..., Any], usual: Callable[[], Any], other: Callable[[], Any], api: str | None = None) -> None:
    """After three usual calls, the other does what it does with no calls before it. `api`: what is called, if not the function itself."""
    known = operator(function)
    known.forget()
    expected = outcome(other)
    for _ in range(3):
        first = outcome(usual)
        assert isinstance(first, list), first
    assert known._known if api else known._recent  # descriptors are known by a key
    assert outcome(other) == expected
    assert outcome(usual) == first


def data(seed: int = 0) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return tuple(random.standard_normal((ROWS, WIDTH)).astype(np.float32) for _ in range(2))


X, DY = data()


def sums(x: Any, dy: Any, out: Any = None) -> Any:
    return anycann.layer_norm_grad_beta(x, dy, out=out)


def outs(n: int = WIDTH) -> tuple[Any, Any]:
    return np.zeros(n, np.float32), np.zeros(n, np.float32)


def locked() -> tuple[Any, Any]:
    first, second = outs()
    second.flags.writeable = False
    return first, second


def overlapping() -> tuple[Any, Any]:
    both = np.zeros(2 * WIDTH, np.float32)
    return both[:WIDTH], both[WIDTH - 1 : -1]


OTHERS: dict[str, Callable[[], Any]] = {
    "a list": lambda: sums(X.tolist(), DY, outs()),
    "none": lambda: sums(None, DY, outs()),
    "a subclass": lambda: sums(X.view(Subclass), DY, outs()),
    "another dtype": lambda: sums(X.astype(np.float16), DY.astype(np.float16), tuple(each.astype(np.float16) for each in outs())),
    "two dtypes": lambda: sums(X.astype(ml_dtypes.bfloat16), DY, outs()),
    "another shape": lambda: sums(X[1:], DY[1:], outs()),
    "another rank": lambda: sums(X[None], DY[None], outs()),
    "other strides": lambda: sums(np.asfortranarray(X), DY, outs()),
    "backwards": lambda: sums(X[::-1], DY, outs()),
    "a locked output": lambda: sums(X, DY, locked()),
    "outputs that overlap": lambda: sums(X, DY, overlapping()),
    "an output in an input": lambda: (lambda x: sums(x, DY, (x[0], outs()[1])))(X.copy()),
    "no output": lambda: sums(X, DY),
    "one output": lambda: sums(X, DY, outs()[:1]),
    "outputs of another length": lambda: sums(X, DY, outs(WIDTH + 1)),
    "half the outputs": lambda: sums(X, DY, (outs()[0], None)),
    "scalars": lambda: sums(np.float32(1), np.float32(2), outs()),
}


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("made", [False, True])
def test_numpy_arrays(name: str, made: bool) -> None:
    same_as_first(anycann.layer_norm_grad_beta, lambda: sums(X, DY, None if made else outs()), OTHERS[name])


def test_calls_of_several_kinds_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dtypes, shapes, strides, with and without outputs and weights: after two rounds none of them is looked up by a key."""
    known, small = operator(anycann.layer_norm), X[:2].copy()
    kinds: list[Callable[[], Any]] = [
        lambda: norm(),
        lambda: norm(weight=DY[0]),
        lambda: norm(eps=1e-6),
        lambda: anycann.layer_norm(X, (WIDTH,), out=(np.empty_like(X), *np.empty((2, ROWS, 1), np.float32))),
        lambda: anycann.layer_norm(small, (WIDTH,)),
        lambda: anycann.layer_norm(X.astype(np.float16), (WIDTH,)),
        lambda: anycann.layer_norm(X[:, ::-1], (WIDTH,)),
    ]
    known.forget()
    expected = [outcome(kind) for kind in kinds]
    assert all(isinstance(results, list) for results in expected), expected
    assert [outcome(kind) for kind in kinds] == expected
    assert sum(map(len, known._recent.values())) == len(kinds) < RECENT
    monkeypatch.setattr("anycann.runtime.sketches", None)
    for kind, results in 3 * [*zip(kinds, expected, strict=True)]:
        assert outcome(kind) == results


def test_more_kinds_of_calls_than_are_recognised() -> None:
    known, row = operator(anycann.gelu_v2), np.linspace(-3, 3, 2 * RECENT_SHAPES, dtype=np.float32)
    whole = anycann.gelu_v2(row)
    known.forget()
    for _ in range(3):
        for size in range(1, row.size):
            assert np.array_equal(anycann.gelu_v2(row[:size]), whole[:size])
    assert len(known._recent) == RECENT_SHAPES
    assert {len(each) for each in known._recent.values()} == {1}
    for _ in range(3):
        for offset in range(1, RECENT + 3):  # one shape, other strides
            assert np.array_equal(anycann.gelu_v2(row[: 9 * offset : offset]), whole[: 9 * offset : offset])
    assert len(known._recent) == RECENT_SHAPES
    assert len(known._recent[known.api, (9,), row.dtype]) == RECENT


def norm(shape: Any = (WIDTH,), weight: Any = None, eps: Any = 1e-5) -> Any:
    return anycann.layer_norm(X, shape, weight, eps=eps)


def norm_into(shape: Any = (WIDTH,), weight: Any = None, eps: Any = 1e-5) -> Any:
    return anycann.layer_norm(X, shape, weight, eps=eps, out=(np.zeros_like(X), *np.zeros((2, ROWS, 1), np.float32)))


OTHER_ATTRIBUTES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "equal": lambda norm: norm((int("20"),), eps=float("1e-5")),
    "a list": lambda norm: norm([WIDTH]),
    "another shape": lambda norm: norm(X.shape),
    "no shape": lambda norm: norm(()),
    "a float in the shape": lambda norm: norm((20.0,)),
    "NumPy's integer": lambda norm: norm((np.int64(WIDTH),)),
    "an array as shape": lambda norm: norm(np.array([WIDTH])),
    "arrays in the shape": lambda norm: norm((np.array([WIDTH, WIDTH]),)),
    "a number as shape": lambda norm: norm(WIDTH),
    "none as shape": lambda norm: norm(None),
    "an array that was not there": lambda norm: norm(weight=DY[0]),
    "another number": lambda norm: norm(eps=1e-6),
    "an integer": lambda norm: norm(eps=1),
    "NumPy's number": lambda norm: norm(eps=np.float64(1e-5)),
    "an array as number": lambda norm: norm(eps=np.array([1e-5, 1e-5])),
    "a truth value": lambda norm: norm(eps=True),
    "a longer list": lambda norm: norm([ROWS, WIDTH]),
    "a subclass of tuple": lambda norm: norm(Sizes((WIDTH,))),
    "no number": lambda norm: norm(eps=float("nan")),
}


@pytest.mark.parametrize("name", OTHER_ATTRIBUTES)
@pytest.mark.parametrize("shape", [(WIDTH,), [WIDTH]], ids=["a tuple", "a list"])
@pytest.mark.parametrize("call", [norm, norm_into])
def test_attributes(name: str, shape: Any, call: Callable[..., Any]) -> None:
    same_as_first(anycann.layer_norm, lambda: call(shape), lambda: OTHER_ATTRIBUTES[name](call))


@pytest.mark.parametrize("call", [norm, norm_into])
def test_attributes_whose_objects_come_and_go(call: Callable[..., Any]) -> None:
    """A number, or a number in a list, may lie where another one lay; a list may hold others than before."""
    expected = {places: outcome(partial(call, eps=10.0**-places)) for places in range(2, 8)}
    shape = [0]
    refused = outcome(lambda: call(shape))
    assert isinstance(refused, tuple)
    for _ in range(5):
        for places, results in expected.items():
            for size in (WIDTH, 0):
                shape[0] = size
                assert outcome(partial(call, shape, eps=float(f"1e-{places}"))) == (results if size else refused)


class Changing:
    """A number that changes in place, as a tensor does."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


TOKENS, WEIGHT = np.ones((64, 1, 16), np.float32), np.ones((32, 1), np.float32)
CHANGING: dict[str, tuple[Callable[[Any], Any], int, int]] = {
    "a number": (lambda beta: anycann.smooth_l1_loss(X, DY, "mean", beta), 1, 4),
    "a count": (lambda k: anycann.moe_token_permute_grad(X[:4], np.arange(4, dtype=np.int32), k), 1, 2),
    "a list": (lambda length: anycann.nsa_compress(TOKENS, WEIGHT, [length, 64], compress_block_size=32, compress_stride=16), 0, 40),
    "both phases": (lambda beta: _loss_in_two_phases(beta), 1, 4),
}


def _loss_in_two_phases(beta: Any) -> Any:
    out = np.zeros((), np.float32)
    size, executor = aclnn.aclnnSmoothL1LossGetWorkspaceSize(X, DY, 1, beta, out)
    aclnn.aclnnSmoothL1Loss(aclnn.empty_workspace(size), size, executor)
    return out


@pytest.mark.parametrize("name", CHANGING)
def test_attributes_that_change_in_place(name: str) -> None:
    """Their objects are the same, and equal to what they were."""
    call, first, then = CHANGING[name]
    tensor = None if torch is None else torch.tensor(0)
    for kind in (Changing(0), np.array(0), tensor):
        for _ in range(3):
            for value in (first, then):
                if kind is None:
                    continue
                if isinstance(kind, Changing):
                    kind.value = value
                else:
                    kind[...] = value
                assert call(kind).tobytes() == call(value).tobytes()
                assert call(kind).shape == call(value).shape


def test_a_shape_that_can_be_read_once_is_read_at_every_call() -> None:
    sizes = iter([WIDTH])
    norm(sizes)
    with pytest.raises(anycann.AclnnError):
        norm(sizes)


def described(array: Any, **changes: Any) -> Any:
    return aclnn.create_tensor(**{"view_dims": array.shape, "dtype": array.dtype, "data": array} | changes)


def gelu(x: Any, dy: Any, mode: str = "none", made: Any = None, view: Any = None) -> Any:
    """Both phases on descriptors, into an array that is returned, or into a view of it."""
    made = np.zeros((ROWS, WIDTH), np.float32) if made is None else made
    size, executor = aclnn.aclnnGeluBackwardV2GetWorkspaceSize(dy, x, mode, described(made) if view is None else view)
    aclnn.aclnnGeluBackwardV2(None, size, executor)
    return (made,)


LONG = np.concatenate([DY, X])
OTHER_DESCRIPTORS: dict[str, Callable[[], Any]] = {
    "elsewhere": lambda: gelu(described(X.copy()), described(DY.copy())),
    "exchanged": lambda: gelu(described(DY), described(X)),
    "an attribute": lambda: gelu(described(X), described(DY), "tanh"),
    "another dtype": lambda: gelu(described(X.astype(np.float16)), described(DY)),
    "another offset": lambda: gelu(described(LONG, view_dims=X.shape, offset=X.size), described(DY)),
    "another offset, and other memory for it": lambda: in_other_memory(),
    "other strides": lambda: gelu(described(X, strides=(1, ROWS)), described(DY)),
    "another storage": lambda: gelu(described(LONG, view_dims=X.shape, storage_dims=(2 * X.size,)), described(DY)),
    "a storage that is too small": lambda: gelu(described(X, storage_dims=(X.size - 1,)), described(DY)),
    "an array among descriptors": lambda: gelu(X, described(DY)),
    "a format": lambda: gelu(described(X, format="NCHW"), described(DY)),
    "no address": lambda: gelu(described(X, data=None), described(DY)),
    "null": lambda: gelu(None, described(DY)),
    "an output that is an input": lambda: (lambda x: gelu(described(x), described(DY), made=x))(X.copy()),
    "an output inside an input": lambda: inside(np.concatenate([X.reshape(-1), np.zeros(7, np.float32)])),
}


def in_other_memory() -> Any:
    """The address of an executor's input is that of its storage, which the offset is added to."""
    made = np.zeros((ROWS, WIDTH), np.float32)
    x = described(LONG, view_dims=X.shape, offset=X.size)
    size, executor = aclnn.aclnnGeluBackwardV2GetWorkspaceSize(described(DY), x, "none", described(made))
    executor.set_input_address(1, np.concatenate([X, DY + 1]))
    aclnn.aclnnGeluBackwardV2(None, size, executor)
    return made, anycann.gelu_backward_v2(DY, DY + 1)


def inside(both: Any) -> Any:
    """The output begins seven elements after the input."""
    x, view = (described(both, view_dims=X.shape, offset=offset) for offset in (0, 7))
    return gelu(x, described(DY), made=both, view=view)


@pytest.mark.parametrize("name", OTHER_DESCRIPTORS)
def test_descriptors(name: str) -> None:
    def usual() -> Any:
        return gelu(described(X), described(DY))

    same_as_first(anycann.gelu_backward_v2, usual, OTHER_DESCRIPTORS[name], "aclnnGeluBackwardV2GetWorkspaceSize")


def test_an_offset_is_that_of_the_call_though_the_plan_is_shared() -> None:
    operator(anycann.gelu_backward_v2).forget()
    gelu(described(X), described(DY))
    made, expected = in_other_memory()
    np.testing.assert_array_equal(made, expected)


def norm_phases(shape: Any, eps: Any = 1e-5, weight: Any = None) -> Any:
    """Both phases of a layer norm on descriptors, some of them null pointers."""
    made = np.zeros((ROWS, WIDTH), np.float32)
    arguments = described(X), shape, weight and described(DY[0]), None, eps, described(made), None, None
    size, executor = aclnn.aclnnLayerNormGetWorkspaceSize(*arguments)
    aclnn.aclnnLayerNorm(aclnn.empty_workspace(size), size, executor)
    return (made,)


OTHER_DESCRIBED_ATTRIBUTES: dict[str, Callable[[], Any]] = {
    "a tuple": lambda: norm_phases((WIDTH,)),
    "a float": lambda: norm_phases([float(WIDTH)]),
    "an array": lambda: norm_phases(np.array([WIDTH])),
    "an item of NumPy": lambda: norm_phases([np.int64(WIDTH)]),
    "a list in a list": lambda: norm_phases([[WIDTH]]),
    "a number": lambda: norm_phases(WIDTH),
    "null": lambda: norm_phases(None),
    "another length": lambda: norm_phases([WIDTH - 1]),
    "an integer": lambda: norm_phases([WIDTH], 1),
    "a truth value": lambda: norm_phases([WIDTH], True),
    "text": lambda: norm_phases([WIDTH], "1e-5"),
    "a weight": lambda: norm_phases([WIDTH], weight=True),
}


@pytest.mark.parametrize("name", OTHER_DESCRIBED_ATTRIBUTES)
@pytest.mark.parametrize("eps", [1e-5, 1.0])
def test_attributes_of_descriptions(name: str, eps: float) -> None:
    same_as_first(anycann.layer_norm, lambda: norm_phases([WIDTH], eps), OTHER_DESCRIBED_ATTRIBUTES[name], "aclnnLayerNormGetWorkspaceSize")


def test_a_signal_handler_may_call_while_a_call_uses_the_workspace_of_its_thread() -> None:
    known = operator(anycann.layer_norm_grad_beta)
    expected = outcome(lambda: sums(X, DY))
    plan = next(plan for plan in known._known.values() if plan.workspace_size)
    seen: list[int] = []

    def launch(addresses: Any, workspace: int) -> None:
        seen.append(workspace)
        if len(seen) == 1:
            plan.lend_workspace(launch, addresses)

    plan.lend_workspace(launch, [])
    plan.lend_workspace(launch, [])
    assert seen[0] != seen[1]
    assert seen[2] in seen[:2]
    assert outcome(lambda: sums(X, DY)) == expected


@pytest.fixture
def tensors() -> tuple[Any, Any]:
    if torch is None:
        pytest.skip("torch is not installed")
    return torch.from_numpy(X.copy()), torch.from_numpy(DY.copy())


def negated(tensor: Any) -> Any:
    """The same layout and a bit that says: negative."""
    return torch.view_as_complex(torch.stack([tensor, tensor], -1)).conj().imag


def with_imaginary(tensor: Any) -> Any:
    return torch.view_as_complex(torch.stack([tensor, tensor], -1)).imag


TENSOR_OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda x, dy: sums(None, dy),
    "an array": lambda x, dy: sums(x.numpy(), dy),
    "another dtype": lambda x, dy: sums(x.half(), dy.half()),
    "another shape": lambda x, dy: sums(x[1:], dy[1:]),
    "other strides": lambda x, dy: sums(x.t().contiguous().t(), dy),
    "a gradient": lambda x, dy: sums(x.clone().requires_grad_(), dy),
    "a parameter": lambda x, dy: sums(torch.nn.Parameter(x, requires_grad=False), dy),
    "a parameter with a gradient": lambda x, dy: sums(torch.nn.Parameter(x), dy),
    "a sparse tensor": lambda x, dy: sums(x.to_sparse(), dy),
    "a meta tensor": lambda x, dy: sums(x.to("meta"), dy),
    "outputs that overlap": lambda x, dy: sums(x, dy, (lambda both: (both[:WIDTH], both[WIDTH - 1 : -1]))(torch.zeros(2 * WIDTH))),
    "an output in an input": lambda x, dy: (lambda y: sums(y, dy, (y[0], torch.zeros(WIDTH))))(x.clone()),
    "given outputs": lambda x, dy: sums(x, dy, (torch.zeros(WIDTH), torch.zeros(WIDTH))),
    "arrays as outputs": lambda x, dy: sums(x, dy, outs()),
}


@pytest.mark.parametrize("name", TENSOR_OTHERS)
@pytest.mark.parametrize("made", [False, True])
@pytest.mark.parametrize("guards", [False, True])
def test_torch_tensors(name: str, made: bool, guards: bool, tensors: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if not guards:
        monkeypatch.setattr("anycann.torch_match._guard", lambda given: None)
    usual = (lambda: sums(*tensors)) if made else (lambda: sums(*tensors, (torch.zeros(WIDTH), torch.zeros(WIDTH))))
    same_as_first(anycann.layer_norm_grad_beta, usual, lambda: TENSOR_OTHERS[name](*tensors))


@pytest.mark.parametrize("guards", [False, True])
def test_a_negative_view(guards: bool, tensors: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if not guards:
        monkeypatch.setattr("anycann.torch_match._guard", lambda given: None)
    x, dy = tensors
    assert with_imaginary(x).stride() == negated(x).stride()
    same_as_first(anycann.layer_norm_grad_beta, lambda: sums(with_imaginary(x), dy), lambda: sums(negated(x), dy))


def test_torch_states_are_recognised_one_by_one(tensors: tuple[Any, Any]) -> None:
    known = operator(anycann.layer_norm_grad_beta)
    known.forget()
    expected = outcome(lambda: sums(*tensors))
    for _ in range(3):
        assert outcome(lambda: sums(*tensors)) == expected
    last = dict(known._recent)
    with torch.inference_mode():
        for _ in range(3):
            assert outcome(lambda: sums(*tensors)) == expected
    assert outcome(lambda: sums(*tensors)) == expected
    assert known._recent == last
