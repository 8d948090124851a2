"""The device as C programs and pyACL see it: memory, contexts, streams, tensors and executors behind handles that are never trusted.

`CALLS` has the functions of the C interface by name. They take its inputs in C order (addresses and handles as ints, 0 for null;
arrays as tuples) and return its outputs in that order. A refusal is an AclnnError; `remember` keeps its text for the thread.
"""

from anycann.device import devices, kernels, queues, tensors, transfers
from anycann.device.calls import CALLS
from anycann.device.inventory import living
from anycann.device.memory import block_at
from anycann.device.messages import fault, recent, remember
from anycann.device.operators import two_phase
from anycann.device.switches import is_on

__all__ = [
    "CALLS",
    "block_at",
    "devices",
    "fault",
    "kernels",
    "living",
    "queues",
    "recent",
    "remember",
    "tensors",
    "transfers",
    "two_phase",
]

if is_on("ANYCANN_CHECK"):
    from anycann.device import watch

    watch.start()
