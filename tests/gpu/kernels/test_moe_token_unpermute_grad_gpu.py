"""moe_token_unpermute_grad on the GPU: the bits of the CPU, whichever of several indices for a row decides."""

import numpy as np
import pytest
from kernels import DEVICE, compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values
from triton.runtime.interpreter import interpreter_builder

from anycann import moe_token_unpermute_grad
from anycann.ops.moe_token_unpermute_grad import gpu

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def gradients(rows, grad, indices, probs=None, layout="plain", what=""):
    shape = (len(indices) if rows is None else len(rows), grad.shape[1])
    of_probs = None if probs is None else Watched(probs.shape, probs.dtype, layout)
    compare(moe_token_unpermute_grad, (rows, grad, indices, probs, False, None), [Watched(shape, grad.dtype, layout), of_probs], what)


@pytest.mark.parametrize(("dtype", "of_probs"), [*zip(DTYPES, DTYPES, strict=True), ("bfloat16", "float32"), ("float32", "float16")])
@pytest.mark.parametrize("k", [1, 2, 17])
def test_weights(dtype, of_probs, k):
    kind, tokens = DTYPES[dtype], 3
    indices = rng(k).permutation(tokens * k).astype(np.int32)
    rows, grad = normal((tokens * k, 70), kind), normal((tokens, 70), kind, 1)
    gradients(rows, grad, indices, normal((tokens, k), DTYPES[of_probs], 2))


@every_dtype
@pytest.mark.parametrize("width", [0, 1, 63, 256, 1025, 8200])
def test_widths(dtype, width):
    kind = DTYPES[dtype]
    rows, grad = normal((4, width), kind), normal((2, width), kind, 1)
    gradients(rows, grad, np.array([3, 0, 2, 1], np.int32), normal((2, 2), kind, 2))
    if width < 8200:
        gradients(None, normal((4, width), kind), np.array([3, 0, 2, 1], np.int32))


@every_dtype
def test_rows_without_an_index_indices_without_a_row_and_special_values(dtype):
    kind = DTYPES[dtype]
    rows, grad = (with_special_values(normal((count, 40), kind), count) for count in (7, 4))
    indices = np.array([0, 7, -1, 4, 2**31 - 1, -(2**31), 4, 6, 3, 3, 0, 1], np.int32)
    probs = np.array([[0, 1, 1], [0.5, np.nan, 1], [0.0, -0.0, np.nan], [np.inf, -1e-3, 0]], kind)
    gradients(rows, grad, indices, probs)
    gradients(rows, grad, np.array([5, 9, 5, -3], np.int32))
    gradients(None, grad, np.array([2, 2, -3, 4], np.int32))


@every_dtype
def test_sums_of_negative_zeros(dtype):
    zeros, grad = np.zeros((3, 40), DTYPES[dtype]), np.full((3, 40), -1.0, DTYPES[dtype])
    gradients(zeros, grad, np.array([2, 7, 0], np.int32), np.ones((3, 1), np.float32))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    rows, grad = lay(normal((12, 33), np.float16), layout), lay(normal((6, 33), np.float16, 1), layout)
    probs, indices = lay(normal((6, 2), np.float32, 2), layout), lay(rng(1).permutation(12).astype(np.int32), "strided")
    gradients(rows, grad, indices, probs, layout)
    gradients(None, lay(normal((12, 33), np.float16), layout), indices, None, layout)


@pytest.fixture(params=["forwards", "backwards"])
def order(request, monkeypatch):
    """The order in which the interpreter runs programs: of two that write the same, each comes last once."""
    if DEVICE == "cpu" and request.param == "backwards":
        turn = interpreter_builder.set_grid_idx
        monkeypatch.setattr(interpreter_builder, "set_grid_idx", lambda x, y, z: turn(interpreter_builder.grid_dim[0] - 1 - x, y, z))


@pytest.mark.parametrize("slices", [1, 4, 64])
@pytest.mark.parametrize("names", [1, 30])
@pytest.mark.usefixtures("order")
def test_the_last_index_decides(monkeypatch, slices, names):
    """Slices of 8 indices and of more: rows are named several times in a slice, in several, or in none."""
    monkeypatch.setattr(gpu, "_SLICE", 8)
    monkeypatch.setattr(gpu, "_SLICES", slices)
    indices = rng(names).integers(-1, names, 67).astype(np.int32)
    rows, grad = np.zeros((150, 1), np.float32), np.arange(1, 68, dtype=np.float32)[:, None]
    gradients(rows, grad, indices, np.ones((67, 1), np.float32) if names == 30 else None)


def test_nothing_known_is_needed_of_the_workspace(monkeypatch):
    """Whatever it holds, and be it indices."""
    monkeypatch.setattr(gpu, "_SLICE", 8)
    indices, grad = np.array([3, 1, 1] * 8, np.int32), np.arange(1, 25, dtype=np.float32)[:, None]
    for byte in (0, 1, 2):
        monkeypatch.setattr("kernels.POISON", byte)
        gradients(np.zeros((5, 1), np.float32), grad, indices, what=byte)


def test_no_rows_and_no_indices():
    gradients(np.zeros((0, 9), np.float32), normal((2, 9), np.float32), np.array([0, 1, 2, 3], np.int32), np.ones((2, 2), np.float32))
    gradients(np.zeros((3, 9), np.float32), np.zeros((0, 9), np.float32), np.zeros(0, np.int32), np.ones((0, 2), np.float32))
    gradients(np.zeros((3, 9), np.float32), np.zeros((0, 9), np.float32), np.zeros(0, np.int32))
