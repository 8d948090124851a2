"""smooth_l1_loss on the GPU: the bits of the CPU, in the written order of the sums."""

import numpy as np
import pytest
from kernels import compare, poisoned, run
from operands import DTYPES, LAYOUTS, Watched, lay, normal, raw, with_special_values

from anycann import smooth_l1_loss

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_dtype
@pytest.mark.parametrize("size", [1, 63, 1025, 9000])
def test_sizes_and_reductions(dtype, size):
    kind = DTYPES[dtype]
    x, target = normal((size,), kind, 1), normal((size,), kind, 2)
    compare(smooth_l1_loss, (x, target, 0, 0.7), [Watched((size,), kind)])
    for reduction in (1, 2):
        compare(smooth_l1_loss, (x, target, reduction, 0.7), [Watched((), kind)], reduction)


def test_several_groups_of_partial_sums():
    x, target = normal((5 * 65536 + 7,), np.float32, 1), normal((1,), np.float32, 2)
    compare(smooth_l1_loss, (x, target, 2, 0.7), [Watched((), np.float32)])


@every_dtype
@pytest.mark.parametrize("beta", [0.0, 1e-45, 1e-30, 0.25, 0.3, 1.0, 3e38, float("inf")])
def test_beta(dtype, beta):
    kind = DTYPES[dtype]
    plain = [normal((300,), kind, seed) for seed in (1, 2)]
    x, target = (with_special_values(array, seed) for seed, array in enumerate(plain))
    target[:50] = x[:50]
    compare(smooth_l1_loss, (x, target, 0, beta), [poisoned((300,), kind)])
    for operands in (plain, (x, target)):
        compare(smooth_l1_loss, (*operands, 2, beta), [poisoned((1,), kind)], operands is plain)


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    kind = DTYPES[dtype]
    x, target = lay(normal((3, 11, 40), kind, 1), layout), lay(normal((3, 11, 40), kind, 2), "padded")
    compare(smooth_l1_loss, (x, target, 0, 0.5), [Watched((3, 11, 40), kind, layout)])
    if dtype == "bfloat16":
        compare(smooth_l1_loss, (x, target, 1, 0.5), [Watched((1,), kind, layout)])


def test_broadcast_operands():
    for shapes in (((7, 5, 40), (7, 1, 40)), ((7, 40), ()), ((7, 1), (40,)), ((), (1, 1))):
        x, target = (normal(shape, np.float32, seed) for seed, shape in enumerate(shapes))
        compare(smooth_l1_loss, (x, target, 0, 0.7), [poisoned(np.broadcast_shapes(*shapes), np.float32)], shapes)
        for reduction in (1, 2):
            compare(smooth_l1_loss, (x, target, reduction, 0.7), [poisoned((), np.float32)], shapes)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_several_dtypes(reduction):
    x, target = normal((1100,), np.float32, 1), normal((1100,), DTYPES["bfloat16"], 2)
    got, expected = (poisoned((1100,) if reduction == 0 else (1,), np.float16) for _ in range(2))
    run(smooth_l1_loss, (x, target, reduction, 0.7), [got])
    smooth_l1_loss(x, target, reduction, 0.7, out=expected)
    assert raw(got) == raw(expected)


@every_dtype
def test_nothing(dtype):
    empty = np.zeros((3, 0), DTYPES[dtype])
    for reduction in (1, 2):
        compare(smooth_l1_loss, (empty, empty, reduction, 1.0), [Watched((), DTYPES[dtype])])


@pytest.mark.parametrize(
    ("large", "small", "rounded_up"),
    [(0, range(1024, 40 * 1024, 1024), False), (39 * 1024, range(0, 39 * 1024, 1024), True), (0, (1, 3), True), (0, (1, 2), False)],
    ids=["large partial sum first", "large partial sum last", "lanes that are added before", "lanes that are not"],
)
def test_the_order_of_sums(large, small, rounded_up):
    """2^24 + 1 lies between two float32: it is rounded up if small numbers, of which one has no effect, were added to each other first."""
    x = np.zeros(40 * 1024, np.float32)
    x[large], x[large + 64], x[list(small)] = 2.0**24, 1.0, 1.5 * 2.0**-30
    got = poisoned((1,), np.float32)
    compare(smooth_l1_loss, (x, np.zeros(1, np.float32), 2, 0.0), [got])
    assert got == [2.0**24 + 2 * rounded_up]
