"""Rows that lie side by side in memory: the bits of rows that are one run each, whatever is copied at a time, in little memory."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anycann
from anycann import dtypes
from anycann.backends import cpu_across
from anycann.backends.cpu_across import columns_at_once, rows_across
from anycann.runtime import operator_of
from anycann.tensor import Tensor, from_array

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
TOKENS, COPIES, WIDTH = 300, 2, 75  # more tokens than a block, and rows that no vector and no line divides


def numbers(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def lying(array: Any, order: tuple[int, ...], padding: int) -> Any:
    """The same numbers with the axes in an order, the first of it outermost, and so much between runs of the last."""
    turned = array.transpose(order)
    room = np.zeros((*turned.shape[:-1], turned.shape[-1] + padding), array.dtype)
    room[..., : turned.shape[-1]] = turned
    return room[..., : turned.shape[-1]].transpose(np.argsort(order))


def across(matrix: Any, padding: int, step: int) -> Any:
    """The same numbers, column after column, forwards or backwards."""
    return lying(matrix[:, ::step], (1, 0), padding)[:, ::step]


def bits(results: Any) -> list[bytes]:
    return [result.tobytes() for result in (results if isinstance(results, tuple) else (results,))]


@pytest.fixture(params=[1 << 22, 50_000, 25_000, 4_000, 900, 100], ids=lambda held: f"{held} bytes")
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """All columns at a time; lines, vectors, or single columns; none."""
    monkeypatch.setattr(cpu_across, "_HELD", request.param)
    operators = [
        operator_of(function) for function in (anycann.moe_token_permute, anycann.moe_token_permute_grad, anycann.moe_token_unpermute)
    ]
    for operator in operators:
        operator.forget()
    yield request.param
    for operator in operators:
        operator.forget()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
def test_index_operators_give_the_bits_of_contiguous_rows(held: int, dtype: str, threads: int) -> None:
    kind, rng = DTYPES[dtype], np.random.default_rng(held)
    tokens, copies, probs = (
        numbers((TOKENS, WIDTH), kind, 1),
        numbers((TOKENS * COPIES, WIDTH), kind, 2),
        numbers((TOKENS, COPIES), kind, 3),
    )
    indices, experts = rng.permutation(TOKENS * COPIES).astype(np.int32), rng.integers(0, 8, (TOKENS, COPIES))
    indices[::7] = -1
    before = anycann.get_num_threads()
    anycann.set_num_threads(threads)
    try:
        for padding, step in itertools.product((0, 5), (1, -1)):
            lay = partial(across, padding=padding, step=step)
            out = np.full((TOKENS, 2 * WIDTH), np.nan, kind)[:, 1 : 1 + WIDTH]
            assert rows_across(from_array(lay(tokens), "tokens"))
            assert bits(anycann.moe_token_permute(lay(tokens), experts)) == bits(anycann.moe_token_permute(tokens, experts))
            want = bits(anycann.moe_token_permute_grad(copies, indices, COPIES))
            assert bits(anycann.moe_token_permute_grad(lay(copies), indices, COPIES)) == want
            assert bits(anycann.moe_token_permute_grad(lay(copies), indices, COPIES, out=out)) == want
            assert bits(anycann.moe_token_unpermute(lay(copies), indices, probs)) == bits(
                anycann.moe_token_unpermute(copies, indices, probs)
            )
    finally:
        anycann.set_num_threads(before)


def compress(x: Any, weight: Any, _: Any, ends: Any, stride: int) -> Any:
    return anycann.nsa_compress(x, weight, ends, compress_block_size=len(weight), compress_stride=stride)


def compress_grad(x: Any, weight: Any, grad: Any, ends: Any, stride: int) -> Any:
    return anycann.nsa_compress_grad(grad, x, weight, ends, compress_block_size=len(weight), compress_stride=stride)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("call", [compress, compress_grad])
@pytest.mark.parametrize("heads", [1, 3, 16, 40])
def test_compression_gives_the_bits_of_contiguous_rows(call: Callable[..., Any], dtype: str, heads: int) -> None:
    kind = DTYPES[dtype]
    for width, block, stride, lengths in ((48, 48, 16, (70, 20, 130)), (144, 64, 48, (200,))):
        windows = sum((length - block) // stride + 1 for length in lengths if length >= block)
        x, weight = numbers((sum(lengths), heads, width), kind, 1), numbers((block, heads), kind, 2)
        rest = weight, numbers((windows, heads, width), kind, 3), list(np.cumsum(lengths)), stride
        want = bits(call(x, *rest))
        for order, padding in itertools.product(((2, 0, 1), (1, 2, 0), (2, 1, 0)), (0, 3)):
            laid = lying(x, order, padding)
            assert heads == 1 or rows_across(from_array(laid, "input"))
            assert bits(call(laid, *rest)) == want, (order, padding)


@pytest.mark.parametrize("rows", [2, 31, 4096, 65_536, 1 << 20, 1 << 24])
@pytest.mark.parametrize("width", [1, 40, 7168])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_held_is_little(rows: int, width: int, dtype: str) -> None:
    kind = dtypes.by_name(dtype)
    columns, largest = columns_at_once(Tensor(0, kind, (rows, width), (1, 1000 + rows))), max(1 << 22, rows * width * kind.itemsize // 100)
    assert columns * rows * kind.itemsize <= largest
    assert columns > 0 or rows * kind.itemsize > largest
    assert columns_at_once(Tensor(0, kind, (rows, width), (width, 1))) == 0
    assert columns < width + 32
