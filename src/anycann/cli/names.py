"""Operators and products by the names that users type."""

import difflib
from importlib.util import find_spec

from anycann import ops, products
from anycann.backends.threads import get_num_threads
from anycann.buffers import pool_limit
from anycann.cli.output import Wrong
from anycann.errors import SettingError
from anycann.products import Product
from anycann.runtime import Operator
from anycann.spec import OpSpec

__all__ = ["doors", "find_operator", "product_label", "product_of", "require_kernels"]

# name shown, package that it needs, whether it needs a two-phase interface
_DOORS = (("Python", "numpy", False), ("aclnn", "numpy", True), ("C", "cffi", True), ("torch", "torch", False))


def _plain(name: str) -> str:
    return name.casefold().removeprefix("anycann.").replace("_", "").replace("-", "").removeprefix("aclnn")


def find_operator(name: str) -> Operator:
    """The operator of an official or a Python name, in any case and with or without underscores."""
    known = {_plain(operator.spec.name): operator for operator in ops.OPERATORS}
    wanted = _plain(name)
    if wanted in known:
        return known[wanted]
    close = [key for key in known if wanted and wanted in key]
    close = close or difflib.get_close_matches(wanted, known, 1, cutoff=0.9) or difflib.get_close_matches(wanted, known, cutoff=0.5)
    if close:
        raise Wrong(f"no operator is called {name!r}; did you mean {' or '.join(known[key].spec.python for key in close)}?")
    raise Wrong(f"no operator is called {name!r}; there are {', '.join(operator.spec.python for operator in ops.OPERATORS)}")


def product_of(name: str | None) -> Product:
    """The product of a name, or the one in force. `Wrong` also for other settings in the environment that calls would refuse."""
    try:
        get_num_threads()
        pool_limit()
        return products.current() if name is None else products.find(name)
    except ValueError as error:
        raise Wrong(str(error)) from None


def require_kernels() -> None:
    """`Wrong` if kernels cannot be compiled as the environment is."""
    from anycann.backends.cpu import require_compiler

    try:
        require_compiler()
    except SettingError as error:
        raise Wrong(str(error)) from None


def product_label(product: Product) -> str:
    """A series in few letters."""
    return product.key.lower().replace("_", "-")


def doors(spec: OpSpec) -> list[str]:
    """The ways to call an operator that are installed."""
    return [label for label, package, two_phase in _DOORS if (spec.two_phase or not two_phase) and find_spec(package) is not None]
