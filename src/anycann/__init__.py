"""anycann runs Ascend CANN's aclnn operators on the machine at hand.

The operators are functions on NumPy arrays, torch tensors and whatever speaks DLPack; `anycann.aclnn` is the two-phase
interface. Importing this package is light: kernels are compiled, and Numba imported, at the first call of an operator.
"""

import importlib as _importlib
import typing as _typing

from anycann.backends.threads import get_num_threads as get_num_threads
from anycann.backends.threads import set_num_threads as set_num_threads
from anycann.buffers import release_buffers as release_buffers
from anycann.errors import AclnnError as AclnnError
from anycann.ops import *  # noqa: F403  (the operators' functions)
from anycann.products import set_product as set_product

del OPERATORS  # noqa: F821  (stays in anycann.ops)
__version__ = "0.1.0"

if _typing.TYPE_CHECKING:
    from anycann import acl as acl
    from anycann import aclnn as aclnn
    from anycann import ascendc as ascendc
else:

    def __getattr__(name: str) -> object:
        """The doors that need no other library are there without an import of their own, which happens at their first use."""
        if name in ("acl", "aclnn", "ascendc"):
            return _importlib.import_module(f"anycann.{name}")
        raise AttributeError(f"module 'anycann' has no attribute {name!r}")
