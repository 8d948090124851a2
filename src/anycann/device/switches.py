"""Variables of the environment that turn something on."""

import os

__all__ = ["is_on"]


def is_on(name: str) -> bool:
    """Whether a variable turns on what it is for: it is set, and neither empty nor 0."""
    return os.environ.get(name, "") not in ("", "0")
