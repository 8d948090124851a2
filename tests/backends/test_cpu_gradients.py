"""Gradients of rows: what short rows keep changes no bit of what they give."""

import importlib
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anycann
from anycann.backends.cpu_gradients import keeps
from anycann.backends.cpu_simd import BF16, F16, F32


def test_rows_are_kept_as_far_as_the_room_goes() -> None:
    assert [keeps(F32, width) for width in (1, 1024, 1025)] == [True, True, None]
    assert [keeps(tag, width) for tag in (F16, BF16) for width in (1, 2048, 2049)] == [True, True, None] * 2


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("width", [1, 40, 128, 1024])
@pytest.mark.parametrize("step", [1, 2])
def test_kept_rows_have_the_bits_of_rows_that_are_not(dtype: Any, width: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(width)
    dy, x = (rng.normal(3, 2, (7, step * width)).astype(dtype)[:, ::step] for _ in range(2))
    weight, means = rng.normal(size=width).astype(dtype), rng.normal(3, 1, (7, 1)).astype(np.float32)
    roots = rng.uniform(0.5, 2, (7, 1)).astype(np.float32)

    def gradients(rows: int) -> "list[np.ndarray[Any, Any]]":
        """Of the first rows; for another number of them another plan is made."""
        d, v, mean, root = dy[:rows], x[:rows], means[:rows], roots[:rows]
        backward = anycann.layer_norm_backward(d, v, (width,), mean, root, weight, weight)[0]
        parameters = [part.astype(dtype) for part in (root[:, 0], mean[:, 0], weight)]
        return [each[:5] for each in (backward, *anycann.layer_norm_grad(d, v, *parameters))]

    kept = gradients(5)
    for name in ("layer_norm_backward", "layer_norm_grad"):
        monkeypatch.setattr(importlib.import_module(f"anycann.ops.{name}.cpu"), "keeps", lambda tag, width: None)
    for one, other in zip(kept, gradients(6), strict=True):
        assert one.tobytes() == other.tobytes()
