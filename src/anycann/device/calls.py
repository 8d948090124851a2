"""The functions of the C interface by name."""

from collections.abc import Callable
from typing import Any, TypeVar

from anycann.errors import AclnnError

__all__ = ["CALLS", "call", "need"]

CALLS: dict[str, Callable[..., Any]] = {}
F = TypeVar("F", bound=Callable[..., Any])


def call(function: F) -> F:
    """Make a function the one behind the C function of the same name."""
    CALLS[function.__name__] = function
    return function


def need(address: int, name: str, api: str, code: int = 100000) -> None:
    """Refuse a null pointer."""
    if not address:
        raise AclnnError(code, api, f"{name} must not be a null pointer. Pass the address of a valid object.")
