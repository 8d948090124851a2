"""What is behind device memory, streams and operators: the CPU, or a CUDA device where ANYCANN_DEVICE names one.

Everything that the calls check is the same for both. With TRITON_INTERPRET=1 a CUDA device is Triton's interpreter, over memory and
threads of the CPU.
"""

import ctypes
import importlib.util
import os
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

from anycann import cuda, cuda_streams
from anycann.device.arena import Arena, CudaMemory, PinnedMemory, Source, capacity
from anycann.device.switches import is_on
from anycann.errors import AclnnError
from anycann.executor import planned
from anycann.plans import Plan
from anycann.products import Product
from anycann.runtime import Operator
from anycann.streams import Stream

__all__ = ["BACKING", "Cpu", "Cuda", "Interpreter", "chosen"]

MANY = 16  # times the capacity: addresses for device memory, most of them in one range
INVALID, INVALID_IN_PHASE_ONE, NO_SUCH_DEVICE, UNSUPPORTED, NO_KERNEL = 100000, 161002, 107001, 207000, 561003


class Cpu:
    """Memory of the process, and streams that are threads."""

    device = "cpu"  # of the tensors
    memory: Source
    host: Source

    def __init__(self) -> None:
        self.memory, self.host = Arena(MANY * capacity()), Arena()

    def need(self, api: str) -> None:
        """Refuse a device that cannot be used."""

    def need_cores(self, api: str) -> None:
        """Refuse work of simulated cores, which reads and writes memory of the CPU."""

    def stream(self) -> Stream:
        """A new stream."""
        return Stream()

    def default(self) -> cuda_streams.Lane | None:
        """The default stream; None where its work is that of the caller's thread."""
        return None

    def at_once(self, task: Callable[[], None]) -> None:
        """Run a task of the default stream, to its end."""
        task()

    def move(self, to: int, source: int, size: int, on_device: Callable[[int], object]) -> None:
        """Copy bytes, in the order of the stream whose task this is; they may overlap."""
        ctypes.memmove(to, source, size)

    def fill(self, to: int, value: int, size: int, on_device: Callable[[int], object]) -> None:
        """Set bytes, in the order of the stream whose task this is."""
        ctypes.memset(to, value, size)

    def plan(self, operator: Operator, api: str, args: Sequence[Any], product: Product) -> Plan:
        """Check the arguments of phase 1 and plan the call."""
        return planned(operator, api, args, product)


class _Gpu(Cpu):
    """What holds for GPU kernels wherever they run. `asked` is what ANYCANN_DEVICE says."""

    def __init__(self, asked: str) -> None:
        super().__init__()
        self.asked = asked
        self._usable = False

    def need(self, api: str) -> None:
        if not self._usable:
            self._look(api)
            self._usable = True

    def _look(self, api: str) -> None:
        """Refuse what is missing."""
        if is_on("ANYCANN_CHECK"):
            mend = "Unset ANYCANN_DEVICE to check the program"
            self._refuse(UNSUPPORTED, "be cpu in the check mode, which watches memory of the CPU", "", mend, api)
        if importlib.util.find_spec("triton") is None:
            self._absent("Triton is not installed: pip install 'anycann[gpu]'", UNSUPPORTED, api)

    def _refuse(self, status: int, rule: str, why: str, mend: str, api: str) -> None:
        raise AclnnError(status, api, f"ANYCANN_DEVICE must {rule}; got {self.asked!r}{why}. {mend}.")

    def _absent(self, why: str, status: int, api: str) -> None:
        self._refuse(status, "name a device that can be used", f", and {why}", "Without the variable, programs run on the CPU", api)

    def plan(self, operator: Operator, api: str, args: Sequence[Any], product: Product) -> Plan:
        self.need(api)
        try:
            return planned(operator, api, args, product, backend="gpu")
        except NotImplementedError as error:
            rule = f"{operator.spec.name} must have a kernel for CUDA devices; got ANYCANN_DEVICE={self.asked} and none in this version"
            raise AclnnError(NO_KERNEL, api, f"{rule}. Unset the variable to run it on the CPU.") from error


class Interpreter(_Gpu):
    """GPU kernels in Triton's interpreter, which runs one at a time."""

    def __init__(self, asked: str) -> None:
        super().__init__(asked)
        self._lock = threading.Lock()

    def plan(self, operator: Operator, api: str, args: Sequence[Any], product: Product) -> Plan:
        plan = super().plan(operator, api, args, product)
        launch = plan.launch
        if launch is not None:

            def alone(addresses: Sequence[int], workspace: int) -> None:
                with self._lock:
                    launch(addresses, workspace)

            plan.launch = alone
        return plan


class Cuda(_Gpu):
    """Memory of torch's allocator on a CUDA device, host memory that is page-locked, and CUDA streams."""

    def __init__(self, asked: str) -> None:
        super().__init__(asked)
        self.device = "cuda:0" if asked == "cuda" else asked
        self.memory, self.host = CudaMemory(self.device), PinnedMemory(self.device)
        self._default: cuda_streams.Lane | None = None

    def _look(self, api: str) -> None:
        super()._look(api)
        why = cuda.unreachable()
        if why is not None:
            self._absent(why, UNSUPPORTED, api)
        count = cuda.count()
        if int(self.device.partition(":")[2]) >= count:
            self._absent(f"this machine has {count}, numbered from 0", NO_SUCH_DEVICE, api)

    def need_cores(self, api: str) -> None:
        self._refuse(UNSUPPORTED, "be cpu for Ascend C kernels, which run on simulated cores", "", "Unset it for this program", api)

    def stream(self) -> Stream:
        return Stream(self.device)

    def default(self) -> cuda_streams.Lane:
        if self._default is None:
            self.need("the default stream")
            self._default = cuda_streams.Lane(self.device, default=True)
        return self._default

    def at_once(self, task: Callable[[], None]) -> None:
        self.default().at_once(task)

    def move(self, to: int, source: int, size: int, on_device: Callable[[int], object]) -> None:
        cuda.copy(to, source, size, (self._where(to, on_device), self._where(source, on_device)))

    def fill(self, to: int, value: int, size: int, on_device: Callable[[int], object]) -> None:
        cuda.fill(to, value, size, self._where(to, on_device))

    def _where(self, address: int, on_device: Callable[[int], object]) -> str:
        return "cpu" if on_device(address) is None else self.device


class _Nothing(_Gpu):
    """What ANYCANN_DEVICE names is no device."""

    def need(self, api: str) -> None:
        status = INVALID_IN_PHASE_ONE if api.startswith("aclnn") else INVALID
        self._refuse(status, "be cpu, cuda or cuda:N", "", "Set one of these, or none for the CPU", api)


def chosen(asked: str, interpreted: bool) -> Cpu:
    """The backing for a value of ANYCANN_DEVICE."""
    if asked in ("", "cpu"):
        return Cpu()
    if not re.fullmatch(r"cuda(:\d{1,4})?", asked):
        return _Nothing(asked)
    return Interpreter(asked) if interpreted else Cuda(asked)


BACKING = chosen(os.environ.get("ANYCANN_DEVICE", "").strip(), os.environ.get("TRITON_INTERPRET") == "1")
