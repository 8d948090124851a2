"""Helpers of the operator tests serve here, too."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "ops"))


@pytest.fixture
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether to take the time: the interpreter is slow."""
    return torch.cuda.is_available() or bool(request.config.getoption("--slow"))


@pytest.fixture
def points(thorough: bool) -> int:
    """How many float32 inputs a test walks."""
    return 10_000_000 if thorough else 100_000


@pytest.fixture
def repeats(thorough: bool) -> int:
    """How often the same is computed."""
    return 100 if thorough else 10
