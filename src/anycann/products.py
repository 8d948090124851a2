"""The product series whose contract is in force: what they are called, what they support, and which one is chosen."""

import os
from typing import NamedTuple

from anycann.errors import SettingError

__all__ = ["PRODUCTS", "Product", "current", "find", "set_product", "soc_name"]


class Product(NamedTuple):
    """A product series. `socs` are SoC names that mean it, `prefixes` beginnings of such names."""

    key: str
    series: str
    architecture: int
    bf16: bool
    socs: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()


TRAINING = Product(
    "TRAINING",
    "Atlas training",
    1001,
    False,
    ("Ascend910A", "Ascend910B", "Ascend910ProA", "Ascend910ProB", "Ascend910PremiumA"),
)
INFERENCE = Product("INFERENCE", "Atlas inference", 2002, False, ("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"))
A2_TRAINING = Product(
    "A2_TRAINING", "Atlas A2 training", 2201, True, ("Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4")
)
A2_INFERENCE = Product("A2_INFERENCE", "Atlas 800I A2 inference", 2201, True)
A2_BOX = Product("A2_BOX", "A200I A2 Box", 2201, True)
A3 = Product("A3", "Atlas A3 training / inference", 2201, True, (), ("Ascend910_93",))
A2_EDGE = Product("A2_EDGE", "Atlas 200I/500 A2 inference", 3002, True, ("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4"))
ASCEND_950 = Product("ASCEND_950", "Ascend 950PR / 950DT", 3510, True, (), ("Ascend950PR_", "Ascend950DT_"))

PRODUCTS: tuple[Product, ...] = (TRAINING, INFERENCE, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, A2_EDGE, ASCEND_950)
DEFAULT_SOC = "Ascend910B1"

_SHORT = {
    "Ascend950PR": ASCEND_950,
    "Ascend950DT": ASCEND_950,
    "Ascend950": ASCEND_950,
}
_chosen: tuple[Product, str] | None = None


def _plain(name: str) -> str:
    return "".join(name.split()).casefold()


_EXACT: dict[str, Product] = {_plain(name): product for product in PRODUCTS for name in (product.key, product.series, *product.socs)}
_EXACT |= {_plain(name): product for name, product in _SHORT.items()}


def find(name: str) -> Product:
    """The product of a SoC name ("Ascend910B1") or of a series name ("Atlas A2 training", "A2_TRAINING"); ValueError lists them all."""
    if not isinstance(name, str):
        raise TypeError(f"a product is chosen by name; got {type(name).__name__}")
    plain = _plain(name)
    if plain in _EXACT:
        return _EXACT[plain]
    for product in PRODUCTS:
        if any(plain.startswith(_plain(prefix)) for prefix in product.prefixes):
            return product
    known = "\n".join(
        f"  {product.key} ({product.series}): {', '.join((*product.socs, *(p + '*' for p in product.prefixes))) or 'by series name only'}"
        for product in PRODUCTS
    )
    raise ValueError(f"no product is called {name!r}. Known names:\n{known}")


def set_product(name: str) -> None:
    """Put the contract of one product in force for the whole process: a SoC name or a series name."""
    global _chosen
    _chosen = (find(name), name)


def _in_force() -> tuple[Product, str]:
    global _chosen
    if _chosen is None:
        name = os.environ.get("ANYCANN_PRODUCT") or DEFAULT_SOC
        try:
            _chosen = (find(name), name)
        except ValueError as error:
            raise SettingError(f"ANYCANN_PRODUCT: {error}") from None
    return _chosen


def current() -> Product:
    """The product in force: `set_product`, else the variable ANYCANN_PRODUCT, else Atlas A2 training (Ascend910B1)."""
    return _chosen[0] if _chosen is not None else _in_force()[0]


def soc_name() -> str:
    """The SoC name of the product in force: the one that was chosen, or the first of a series chosen by its name."""
    product, name = _in_force()
    plain = _plain(name)
    for soc in (*product.socs, *_SHORT):
        if _plain(soc) == plain:
            return soc
    for prefix in product.prefixes:
        if plain.startswith(_plain(prefix)):
            return prefix + "".join(name.split())[len(prefix) :]
    return next(iter(product.socs), product.key)
