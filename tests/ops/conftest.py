"""Operator tests run on poisoned workspaces."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from operands import POISON

from anycann import buffers

GUARD = 256


@pytest.fixture(autouse=True)
def poisoned_workspaces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What operators ask for is full of a pattern, and what lies around it must stay that way."""
    given: list[tuple[Any, int]] = []
    empty = buffers.empty

    def poisoned(shape: tuple[int, ...], dtype: Any) -> Any:
        if dtype != np.uint8:
            return empty(shape, dtype)
        (size,) = shape
        room = np.full(size + 2 * GUARD, POISON, np.uint8)
        given.append((room, size))
        return room[GUARD : GUARD + size]

    monkeypatch.setattr(buffers, "empty", poisoned)
    yield
    for room, size in given:
        assert (room[:GUARD] == POISON).all(), "memory before a workspace was written"
        assert (room[GUARD + size :] == POISON).all(), "memory behind a workspace was written"
