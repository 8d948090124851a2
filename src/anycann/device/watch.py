"""The check mode: what a program does wrong although its calls succeed, or although a device would not notice.

It is on when ANYCANN_CHECK=1 is set as `anycann.device` is imported. ANYCANN_CHECK_MAP=0 leaves device addresses readable, for
programs whose own code runs as the device's. ANYCANN_CHECK_JSON names a file for the findings, one JSON object a line;
ANYCANN_CHECK_MARK, which `anycann run` sets, one that is there afterwards if there are any.
"""

import atexit
import os
import time
from typing import Any

from anycann.device import devices, operators, queues, tensors
from anycann.device.contexts import CONTEXTS
from anycann.device.handles import Table
from anycann.device.memory import DEVICE, HOST
from anycann.device.watch_copies import Copies
from anycann.device.watch_operators import Operators
from anycann.device.watch_sites import Site

__all__ = ["Watch", "finish", "start"]

PATIENCE = 5.0  # seconds that the end waits for queued work
EXAMPLES = 4  # places named for objects that were left


class Watch(Copies, Operators):
    """What the device is told to report, and what is left at the end."""

    def finish(self) -> int:
        """Report what is left, once; the number of all findings, those of forked processes among them."""
        with self._lock:
            if self.ended or os.getpid() != self._process:
                return self.report.count
            self.ended = True
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not all(stream.query() for stream in list(queues.STREAMS.living.values())):
            time.sleep(0.01)
        for record in self.ledger:
            self.too_wide(record)
        self._left_memory()
        self._left_objects()
        self.report.summary()
        self.report.count = self.ledger.table.findings = self.report.of_all.value
        return self.report.count

    def _left_memory(self) -> None:
        for record in self.ledger:
            what = f"{record.block.size} bytes of device memory were not freed."
            self.find("leak", record.api, what, "Call aclrtFree.", record=record, site=NOWHERE)
        for block in HOST.blocks():
            self.find("leak", "aclrtMallocHost", f"{block.size} bytes of host memory were not freed.", "Call aclrtFreeHost.", site=NOWHERE)

    def _left_objects(self) -> None:
        members = {handle for table in (tensors.TENSOR_LISTS, tensors.SCALAR_LISTS) for value in table.living.values() for handle in value}
        unused = [handle for handle in operators.EXECUTORS.living if handle not in self.ran]
        for handle in unused:
            executor = operators.EXECUTORS.living[handle]
            what = f"phase 1 of {executor.name} made an executor that was never used: the operator did not run."
            site = self.sites.get(handle) or NOWHERE
            self.find("executor never used", f"{executor.name}GetWorkspaceSize", what, f"Call {executor.name}.", site=site)
        passing = [handle for handle, executor in operators.EXECUTORS.living.items() if not executor.repeatable]  # phase 2 ends them
        kept = members.union(unused, passing, (context.handle for context in devices.default_contexts()))
        for table, mend in _ENDS:
            left = [handle for handle in table.living if handle not in kept]
            if left:
                self._left(table, left, mend)

    def _left(self, table: Table[Any], left: list[int], mend: str) -> None:
        places = list(dict.fromkeys(str(site) for site in map(self.sites.get, left) if site is not None))
        shown = "; ".join(places[:EXAMPLES]) + ("; ..." if len(places) > EXAMPLES else "")
        said = f"1 object of the kind {table.kind} was" if len(left) == 1 else f"{len(left)} objects of the kind {table.kind} were"
        what = f"{said} not destroyed."
        self.find("leak", table.kind, what + (f" Made at {shown}." if shown else ""), f"Call {mend}.", site=NOWHERE)


NOWHERE = Site("")
_ENDS: tuple[tuple[Table[Any], str], ...] = (
    (tensors.TENSORS, "aclDestroyTensor"),
    (tensors.TENSOR_LISTS, "aclDestroyTensorList, which destroys its members too"),
    (tensors.SCALARS, "aclDestroyScalar"),
    (tensors.SCALAR_LISTS, "aclDestroyScalarList, which destroys its members too"),
    (tensors.INT_ARRAYS, "aclDestroyIntArray"),
    (tensors.FLOAT_ARRAYS, "aclDestroyFloatArray"),
    (tensors.BOOL_ARRAYS, "aclDestroyBoolArray"),
    (tensors.BUFFERS, "aclDestroyDataBuffer"),
    (operators.EXECUTORS, "aclDestroyAclOpExecutor for executors that were made repeatable"),
    (queues.EVENTS, "aclrtDestroyEvent"),
    (queues.STREAMS, "aclrtDestroyStream"),
    (CONTEXTS, "aclrtDestroyContext"),
)


def start(reserving: bool | None = None, path: str | None = None) -> Watch:
    """Turn the check mode on, for the rest of the process. Without arguments the environment says what they are."""
    if DEVICE.watch is not None:
        return DEVICE.watch
    if DEVICE.blocks():
        raise RuntimeError("the check mode must be turned on before device memory is allocated")
    chosen = os.environ.get("ANYCANN_CHECK_MAP") != "0" if reserving is None else reserving
    file = path or os.environ.get("ANYCANN_CHECK_JSON")
    watch = Watch(chosen, os.path.abspath(file) if file else None, os.environ.get("ANYCANN_CHECK_MARK"))
    DEVICE.watch, DEVICE.shifted, Table.watch = watch, chosen, watch
    atexit.register(finish)
    return watch


def finish() -> int:
    """Report what is left over and the number of findings, once; 0 while the check mode is off. The C library calls it at exit."""
    return 0 if DEVICE.watch is None else DEVICE.watch.finish()
