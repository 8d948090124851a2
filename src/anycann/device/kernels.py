"""What the simulated cores of Ascend C ask of the device: a place in a stream, and the memory behind an address."""

import ctypes

from anycann.device.backing import BACKING
from anycann.device.calls import call
from anycann.device.memory import DEVICE, GRAIN
from anycann.device.messages import remember
from anycann.device.queues import enqueue, stream_of
from anycann.errors import AclnnError

__all__: list[str] = []

_Job = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


@call
def anycann_stream_enqueue(stream: int, job: int, context: int) -> None:
    queue = stream_of(stream, "anycann_stream_enqueue")

    def run() -> None:
        BACKING.need_cores("kernel launch")
        if DEVICE.watch is not None:
            DEVICE.watch.handed_out(None)
        status = _Job(job)(context)
        if status:
            raise AclnnError(507000, "kernel launch", f"the kernel must end without mistakes; its run gave {status}. See its report.")

    enqueue(queue, run, small=False)


@call
def anycann_need_cores() -> None:
    """Refuse a launch by the cores, which follows at once."""
    try:
        BACKING.need_cores("kernel launch")
    except AclnnError as error:
        remember(error)
        raise


@call
def anycann_device_block(address: int) -> tuple[int, int]:
    """The block of an address, with the bytes to which its length is rounded up: kernels copy whole units of 32 bytes."""
    anycann_need_cores()
    block = DEVICE.find(address)
    if block is None:
        raise AclnnError(107000, "anycann_device_block", f"address must be device memory; got {DEVICE.describe(address)}. Pass another.")
    if DEVICE.watch is not None:
        DEVICE.watch.handed_out(block)
    return block.address, -(-block.size // GRAIN) * GRAIN
