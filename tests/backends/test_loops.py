"""Loops in any order and in parts: every element of all operands at once, each one time."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anycann.backends.loops import TILE, Loops, loops, parts
from anycann.tensor import from_array


def tensors(*arrays):
    return [from_array(array, f"x{i}") for i, array in enumerate(arrays)]


def reached(nest, starts):
    """The elements of each operand, counted from its first, in the order of the loops."""
    grids = np.indices(nest.sizes).reshape(len(nest.sizes), -1)
    return np.stack([start + np.array(steps) @ grids for start, steps in zip(starts, nest.strides, strict=True)], -1)


def elements(given_, shape):
    """The same by NumPy."""
    strides = []
    for tensor in given_:
        own = [0 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)]
        strides.append([0] * (len(shape) - len(own)) + own)
    return np.stack([np.array(steps) @ np.indices(shape).reshape(len(shape), -1) for steps in strides], -1)


def in_order(rows):
    return rows[np.lexsort(rows.T[::-1])]


def test_operands_that_lie_alike_are_one_loop():
    a, b = np.zeros((8, 6, 4), np.float32).transpose(2, 0, 1), np.zeros((8, 6, 4), np.float32).transpose(2, 0, 1)
    assert loops(tensors(a, b), a.shape, free=True) == Loops((192,), ((1,), (1,)))
    assert loops(tensors(a, b), a.shape) == Loops((4, 48), ((1, 4), (1, 4)))


def test_channels_last_is_one_loop():
    image = np.zeros((2, 5, 7, 3), np.float16).transpose(0, 3, 1, 2)
    assert loops(tensors(image, image), image.shape, free=True).sizes == (210,)


def test_nothing_to_loop_over():
    scalar, empty = np.zeros((), np.float32), np.zeros((3, 0, 5), np.float32)
    assert loops(tensors(scalar, scalar), ()) == Loops((1,), ((0,), (0,)))
    assert np.prod([np.prod(part.loops.sizes) for part in parts(tensors(empty, empty), empty.shape)]) == 0


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_transposed_operands_go_by_tiles(dtype):
    tall = 512 // np.dtype(dtype).itemsize
    x, out = np.zeros((1000, 700), dtype).T, np.zeros((700, 1000), dtype)
    found = parts(tensors(x, out), out.shape)
    assert [part.tile for part in found] == [(tall, 128), (tall, 1000 % 128), (700 % tall, 128), (700 % tall, 1000 % 128)]
    assert all(part.across == (True, False) for part in found)
    assert tall * 128 * np.dtype(dtype).itemsize <= TILE


def test_operands_in_one_line_are_not_transposed():
    x, out = np.zeros((300, 16), np.float32).T, np.zeros((16, 300), np.float32)
    assert [part.tile for part in parts(tensors(x, out), out.shape)] == [(16, 128), (16, 44)]
    pixels, planes = np.zeros((640, 480, 3), np.float16).transpose(2, 0, 1), np.zeros((3, 640, 480), np.float16)
    assert [part.tile for part in parts(tensors(pixels, planes), planes.shape)] == [(0, 0)]


@settings(max_examples=200, deadline=None)
@given(
    shape=st.lists(st.sampled_from([1, 2, 3, 31, 32, 64, 150, 257]), min_size=1, max_size=4).filter(lambda shape: np.prod(shape) < 1e5),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float16, np.float32]),
)
def test_parts_reach_every_element_once(shape, seed, dtype):
    generator = np.random.default_rng(seed)

    def operand(broadcast):
        order = generator.permutation(len(shape))
        sizes = [1 if broadcast and generator.random() < 0.3 else size for size in shape]
        array = np.zeros([sizes[axis] for axis in order], dtype).transpose(np.argsort(order))
        return array[tuple(slice(None, None, generator.choice([1, -1])) for _ in shape)]

    given_ = tensors(operand(True), operand(True), operand(False))
    want = in_order(elements(given_, shape))
    found = [reached(part.loops, part.starts) for part in parts(given_, shape)]
    np.testing.assert_array_equal(in_order(np.concatenate(found)), want)
    for part in parts(given_, shape):
        assert part.tile == (0, 0) or part.tile == part.loops.sizes[-2:]
        for steps, across in zip(part.loops.strides, part.across, strict=True):
            assert not across or steps[-2] == 1


def test_all_orders_of_three_axes():
    shape = (70, 40, 130)
    for first, second in itertools.product(itertools.permutations(range(3)), repeat=2):
        arrays = [np.zeros([shape[axis] for axis in order], np.float16).transpose(np.argsort(order)) for order in (first, second)]
        given_ = tensors(*arrays)
        found = np.concatenate([reached(part.loops, part.starts) for part in parts(given_, shape)])
        np.testing.assert_array_equal(in_order(found), in_order(elements(given_, shape)))
        if first == second:
            assert [part.loops.sizes for part in parts(given_, shape)] == [(70 * 40 * 130,)]
