"""Results keep the memory format of what they are made of, as those of PyTorch's own element-wise operators do.

torch's smooth_l1_loss_backward does not; what its addition does is expected of all.
"""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import anycann.torch as door

OPS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {  # and torch's own
    "gelu_v2": (lambda x, y: torch.ops.anycann.gelu_v2(x, 0), lambda x, y: torch.nn.functional.gelu(x)),
    "gelu_backward_v2": (
        lambda x, y: torch.ops.anycann.gelu_backward_v2(x, y, "tanh"),
        lambda x, y: torch.ops.aten.gelu_backward(x, y, approximate="tanh"),
    ),
    "smooth_l1_loss": (
        lambda x, y: torch.ops.anycann.smooth_l1_loss(x, y, 0),
        lambda x, y: torch.nn.functional.smooth_l1_loss(x, y, reduction="none"),
    ),
    "smooth_l1_loss_backward": (
        lambda x, y: torch.ops.anycann.smooth_l1_loss_backward(x, y, y + 1, 2, 1.0),
        lambda x, y: torch.ops.aten.smooth_l1_loss_backward(x, y, y + 1, 2, 1.0),
    ),
}
SHAPES = {"small": (2, 3, 4, 5), "one channel": (2, 1, 4, 5), "large": (4, 64, 64, 40), "empty": (2, 3, 0, 5)}
FORMATS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last),
    "transposed": lambda x: x.transpose(0, 3).contiguous().transpose(0, 3),
    "sliced": lambda x: torch.cat([x, x], 3).to(memory_format=torch.channels_last)[..., : x.shape[3]],
}


def operands(shape: tuple[int, ...], form: str) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(3)
    x, y = (FORMATS[form](torch.randn(shape, generator=generator)) for _ in range(2))
    return x, y


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("size", SHAPES)
@pytest.mark.parametrize("name", OPS)
def test_results_lie_as_those_of_torch(name: str, size: str, form: str) -> None:
    ours, theirs = OPS[name]
    x, y = operands(SHAPES[size], form)
    expected, sums = theirs(x, y), x + y
    for _ in range(3):
        result = ours(x, y)
        moving = [axis for axis, count in enumerate(x.shape) if count != 1]
        if x.numel():
            assert [result.stride(axis) for axis in moving] == [sums.stride(axis) for axis in moving]
        assert result.is_contiguous(memory_format=torch.channels_last) == sums.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(result, expected)
    with FakeTensorMode() as mode:
        fake = ours(mode.from_tensor(x), mode.from_tensor(y))
    assert fake.stride() == result.stride()


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_convolutions_stay_channels_last() -> None:
    torch.compiler.reset()
    torch.manual_seed(0)
    first, second = torch.nn.Conv2d(3, 8, 3), torch.nn.Conv2d(8, 4, 3)
    model = torch.nn.Sequential(first, door.GELU(), second).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 16, 16).to(memory_format=torch.channels_last)
    with torch.no_grad(), torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        expected = model(x)
        assert torch.ops.anycann.gelu_v2(first(x), 0).is_contiguous(memory_format=torch.channels_last)
        compiled = torch.compile(model, fullgraph=True)
        for rows in (2, 3, 5):
            given = torch.randn(rows, 3, 16, 16).to(memory_format=torch.channels_last)
            torch.testing.assert_close(compiled(given), model(given))
    assert expected.is_contiguous(memory_format=torch.channels_last)
