"""smooth_l1_loss_backward on the GPU: the bits of the CPU."""

import numpy as np
import pytest
from kernels import compare, poisoned
from operands import DTYPES, LAYOUTS, Watched, lay, normal, with_special_values

from anycann import smooth_l1_loss_backward

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


@every_dtype
@pytest.mark.parametrize("size", [1, 63, 1025, 5120])
def test_sizes_and_reductions(dtype, size):
    kind = DTYPES[dtype]
    x, target = (with_special_values(normal((size,), kind, seed), seed) for seed in (1, 2))
    for reduction in (0, 1, 2):
        grad = normal((size,) if reduction == 0 else (1,), kind, 3)
        compare(smooth_l1_loss_backward, (grad, x, target, reduction, 0.7), [Watched((size,), kind)], reduction)


@every_dtype
@pytest.mark.parametrize("beta", [0.0, 1e-45, 1e-30, 0.25, 0.3, 1.0, 3e38, float("inf")])
def test_beta(dtype, beta):
    kind = DTYPES[dtype]
    x, target = (with_special_values(normal((300,), kind, seed), seed) for seed in (1, 2))
    target[:50] = x[:50]
    compare(smooth_l1_loss_backward, (normal((300,), kind), x, target, 0, beta), [poisoned((300,), kind)])


@every_dtype
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(dtype, layout):
    kind = DTYPES[dtype]
    grad, x, target = (lay(normal((3, 5, 40), kind, seed), kept) for seed, kept in enumerate((layout, "padded", layout)))
    compare(smooth_l1_loss_backward, (grad, x, target, 0, 0.5), [Watched((3, 5, 40), kind, layout)])


@every_dtype
def test_one_gradient_and_broadcast_operands(dtype):
    kind = DTYPES[dtype]
    for shapes in (((), (7, 5, 40), (7, 1, 40)), ((1,), (7, 40), (1, 40)), ((7, 1), (7, 40), (40,))):
        grad, x, target = (normal(shape, kind, seed) for seed, shape in enumerate(shapes))
        for reduction in (0, 1, 2):
            compare(smooth_l1_loss_backward, (grad, x, target, reduction, 0.7), [poisoned(np.broadcast_shapes(*shapes), kind)], shapes)
