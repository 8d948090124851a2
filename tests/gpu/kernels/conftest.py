"""Helpers of the operator tests serve here, too."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "ops"))


@pytest.fixture
def points(request: pytest.FixtureRequest) -> int:
    """How many float32 inputs a test walks: the interpreter is slow."""
    return 10_000_000 if torch.cuda.is_available() or request.config.getoption("--slow") else 100_000


@pytest.fixture
def repeats(request: pytest.FixtureRequest) -> int:
    """How often the same is computed."""
    return 100 if torch.cuda.is_available() or request.config.getoption("--slow") else 10
