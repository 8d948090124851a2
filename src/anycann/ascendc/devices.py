"""What a simulated core has, by product: its Unified Buffer, its event ids, how many cores there are."""

from typing import NamedTuple

from anycann import products

__all__ = ["Device", "device"]

_KB = 1024


class Device(NamedTuple):
    """The sizes that kernels meet. `reserved` bytes at the top of the Unified Buffer belong to the system."""

    architecture: int
    ub_bytes: int
    reserved: int
    event_ids: int
    cores: int

    @property
    def ub_limit(self) -> int:
        """Bytes of Unified Buffer that a kernel may use."""
        return self.ub_bytes - self.reserved


_DEVICES = {
    row.architecture: row
    for row in (
        Device(2201, 192 * _KB, 8 * _KB + 256, 8, 48),
        Device(2002, 256 * _KB, 8 * _KB, 8, 8),
        Device(1001, 256 * _KB, 8 * _KB, 4, 32),
        Device(3002, 248 * _KB, 0, 8, 1),
        Device(3510, 248 * _KB, 0, 8, 64),
    )
}


def device(product: str | None = None) -> Device:
    """The device of a product name ("Ascend910B1", "Atlas A2 training"); of the product in force when None."""
    chosen = products.current() if product is None else products.find(product)
    return _DEVICES[chosen.architecture]
