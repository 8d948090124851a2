"""Results of element-wise operators lie in memory as their inputs do; those of all others are contiguous."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import anycann
from anycann import buffers, dtypes
from anycann.tensor import Tensor, contiguous_strides, strides_like

RNG = np.random.default_rng(5)
SHAPE = (4, 6, 5, 8)
LARGE = (4, 64, 64, 40)  # from the pool
KINDS: dict[str, Callable[[tuple[int, ...]], np.ndarray]] = {
    "contiguous": lambda shape: values(shape),
    "column-major": lambda shape: np.asfortranarray(values(shape)),
    "channels last": lambda shape: ordered(shape, (0, 2, 3, 1)),
    "a slice of channels last": lambda shape: ordered((*shape[:-1], 2 * shape[-1]), (0, 2, 3, 1))[..., ::2],
    "backwards": lambda shape: ordered(shape, (0, 2, 3, 1))[::-1],
    "repeated": lambda shape: np.broadcast_to(values(shape[-1:]), shape),
}
ORDERS = {"column-major": (3, 2, 1, 0), "channels last": (0, 2, 3, 1), "a slice of channels last": (0, 2, 3, 1)}


def values(shape: tuple[int, ...]) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ordered(shape: tuple[int, ...], order: tuple[int, ...]) -> np.ndarray:
    """Values whose axes lie in this order, the farthest apart first."""
    return np.ascontiguousarray(values(shape).transpose(order)).transpose(np.argsort(order))


def strides_of(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Bytes."""
    return np.empty([shape[axis] for axis in order], np.float32).transpose(np.argsort(order)).strides


@pytest.fixture(params=[False, True], ids=["fresh pages", "pool"])
def shape(request: pytest.FixtureRequest) -> tuple[int, ...]:
    assert np.prod(LARGE) * 4 >= buffers.POOLED_FROM > np.prod(SHAPE) * 4
    return LARGE if request.param else SHAPE


def plain(call: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """The result for contiguous inputs, by which others are judged."""
    return call(*[np.ascontiguousarray(array) for array in arrays])


def gelu(x: Any) -> Any:
    return anycann.gelu_v2(x, "tanh")


def loss(x: Any, y: Any) -> Any:
    return anycann.smooth_l1_loss(x, y, "none")


@pytest.mark.parametrize("kind", KINDS)
def test_one_input(kind: str, shape: tuple[int, ...]) -> None:
    x = KINDS[kind](shape)
    expected = strides_of(shape, ORDERS.get(kind, (0, 1, 2, 3)))
    for _ in range(3):  # planned, known, recognised
        result = gelu(x)
        assert result.strides == expected
    np.testing.assert_array_equal(result, plain(gelu, x))


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_two_inputs(first: str, second: str) -> None:
    x, y = KINDS[first](SHAPE), KINDS[second](SHAPE)
    told = {ORDERS.get(kind, (0, 1, 2, 3)) for kind in (first, second) if kind != "repeated"}
    result = loss(x, y)
    assert result.strides == strides_of(SHAPE, told.pop() if len(told) == 1 else (0, 1, 2, 3))
    np.testing.assert_array_equal(result, plain(loss, x, y))


def test_an_input_that_is_broadcast_has_no_say() -> None:
    x, row, scalar = KINDS["channels last"](SHAPE), np.asfortranarray(values(SHAPE[1:])), values(())
    assert loss(x, row).strides == x.strides
    assert anycann.smooth_l1_loss_backward(scalar, x, x + 1).strides == x.strides


def test_other_operators_give_contiguous_results() -> None:
    x = np.asfortranarray(values((6, 8)))
    result, mean, rstd = anycann.layer_norm(x, (8,))
    assert result.flags.c_contiguous
    assert mean.flags.c_contiguous
    assert rstd.flags.c_contiguous
    assert anycann.smooth_l1_loss(x, x + 1, "sum").shape == ()


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((), (), ()),
        ((2, 3), (1, 2), (1, 2)),
        ((2, 3), (5, 100), (1, 2)),
        ((2, 3), (3, 3), (3, 1)),
        ((2, 1, 3), (1, 77, 2), (1, 3, 2)),
        ((0, 3), (1, 0), (3, 1)),
        ((2, 0, 3), (1, 2, 2), (3, 3, 1)),
        ((1, 1), (9, 9), (1, 1)),
    ],
)
def test_strides_like(shape: tuple[int, ...], strides: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert strides_like(shape, [Tensor(0, dtypes.DTYPES["float32"], shape, strides)]) == expected
    assert strides_like(shape, []) == contiguous_strides(shape)
