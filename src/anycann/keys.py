"""Keys: all of a call that its plan depends on, as something that can be looked up."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from anycann.products import Product
from anycann.spec import Attr, OpSpec
from anycann.tensor import Tensor, sketch

__all__ = ["SEQUENCES", "SIMPLE", "Describer", "OtherKindError", "describer", "sketches"]

SIMPLE: frozenset[type] = frozenset((int, float, bool, str, type(None)))
SEQUENCES = (tuple, list)
_LASTING = (*SIMPLE, np.generic)
_USUAL = frozenset((kind,) * length for kind in (int, bool) for length in range(9))  # kinds of the items of most lists
_NULL: tuple[tuple[Any, ...], int] = ((), 0)
Describer = Callable[..., tuple[Hashable, list[int]]]


def sketches(
    is_attr: Sequence[bool], values: Sequence[Any], outs: Sequence[Any], product: Product
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """A key that says all of a call that its plan depends on, and the addresses of its tensors (0 where none was passed).

    None where a value is of a kind that only the full path understands.
    """
    key: list[Any] = [product]
    addresses: list[Any] = []
    for attr, value in zip(is_attr, values, strict=True):
        if attr:
            kind = type(value)
            if kind not in SIMPLE and not _lasting(value):
                return None
            if isinstance(value, SEQUENCES):
                key.append(tuple([type(item) for item in value]))
                value = tuple(value)
            key += (kind, value)
        else:
            known = _NULL if value is None else sketch(value)
            if known is None:
                return None
            key.append(known[0])
            addresses.append(known[1])
    for value in outs:
        known = _NULL if value is None else sketch(value)
        if known is None:
            return None
        key.append(known[0])
        addresses.append(known[1])
    return tuple(key), addresses


def _lasting(value: Any) -> bool:
    """Whether an attribute that is equal later is the same then; arrays, and what reads them, change in place."""
    if isinstance(value, SEQUENCES):
        return all(isinstance(item, _LASTING) for item in value)
    return isinstance(value, _LASTING)


class OtherKindError(Exception):
    """An argument of phase 1 that is no descriptor, or a list of other things than numbers."""


def _other(value: object) -> None:
    raise OtherKindError


def _listed(value: Any) -> tuple[Any, ...]:
    """A list of numbers as something that nobody changes, with the kinds of its items."""
    kinds = tuple(map(type, value)) if type(value) in SEQUENCES else (object,)
    if kinds not in _USUAL and not SIMPLE.issuperset(kinds):
        raise OtherKindError
    return *value, kinds


def describer(spec: OpSpec) -> Describer:
    """A function of the product and the arguments of phase 1: a key made of the forms of descriptors, and their addresses.

    OtherKindError unless the tensors are descriptors. Written for each operator, as it takes half as long as loops over the arguments.
    """
    names = [f"_{place}" for place in range(len(spec.params))]
    key, addresses = ["product.key"], []
    for name, param in zip(names, spec.params, strict=True):
        if isinstance(param, Attr):
            key += [f"type({name})", f"{name} if type({name}) in simple else listed({name})"]
        else:
            key.append(f"{name}.form if type({name}) is Tensor else {name} if {name} is None else other({name})")
            addresses.append(f"{name}.start if {name} else 0")
    known = {"Tensor": Tensor, "simple": SIMPLE, "listed": _listed, "other": _other}
    describe: Describer
    describe = eval(f"lambda product, {', '.join(names)}: (({', '.join(key)}), [{', '.join(addresses)}])", known)
    return describe
