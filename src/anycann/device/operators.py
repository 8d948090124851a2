"""Both phases of the operators by handle, and the calls on executors."""

from collections.abc import Callable, Sequence
from typing import Any

from anycann import products
from anycann.device.backing import BACKING
from anycann.device.calls import CALLS, call, need
from anycann.device.handles import Table
from anycann.device.memory import DEVICE, need_device
from anycann.device.queues import enqueue, stream_of
from anycann.device.tensors import ARRAYS, TENSORS, DeviceTensor
from anycann.errors import AclnnError
from anycann.executor import Executor, need_same, need_workspace
from anycann.plans import Plan
from anycann.runtime import Operator
from anycann.spec import Attr
from anycann.spec import Tensor as Param

__all__ = ["EXECUTORS", "DeviceExecutor", "two_phase"]

SMALL = 1 << 16  # bytes that are computed in less time than another thread needs to wake
NULL, INNER_NULL, RUNTIME_ERROR = 161001, 561103, 361001


class DeviceExecutor(Executor):
    """An executor over device memory; `checked` is the state of the memory in which its tensors were last found."""

    __slots__ = ("checked", "handle")

    def __init__(self, name: str, plan: Plan, addresses: Sequence[int], leads: Sequence[int], checked: int) -> None:
        super().__init__(name, plan, addresses, (), leads)
        self.checked = checked
        self.handle = EXECUTORS.add(self)

    def locate(self, plan: Plan, addresses: Sequence[int]) -> Sequence[int]:
        """Where the bytes of the tensors lie; AclnnError 361001 unless they are in live device memory."""
        if self.checked == DEVICE.generation or plan.launch is None:
            return addresses
        found = list(addresses)
        for place, (layout, address) in enumerate(zip(plan.layouts, addresses, strict=True)):
            if layout.numel:
                low, high = layout.bytes_touched()
                name = plan.spec.tensors[place].name
                found[place] = need_device(address + low, high - low, name, self.name, RUNTIME_ERROR) - low
        return found


EXECUTORS: Table[DeviceExecutor] = Table("aclOpExecutor", 161002)


def two_phase(operator: Operator) -> tuple[Callable[..., tuple[int, int]], Callable[[int, int, int, int], None]]:
    """The two functions of an operator: handles, numbers and strings in prototype order, to workspace size and executor; and the run."""
    spec = operator.spec
    planning = f"{spec.name}GetWorkspaceSize"
    finders = tuple([_finder(param, planning) for param in spec.params])

    def phase_one(*values: Any) -> tuple[int, int]:
        generation, product = DEVICE.generation, products.current()
        found = [value if find is None else find(value) for find, value in zip(finders, values, strict=True)]
        if DEVICE.watch is not None:
            DEVICE.watch.planning(planning, spec, found)
        key: list[Any] = [planning, product]
        addresses, leads, inside = [], [], True
        for value in found:
            if type(value) is DeviceTensor:
                key.append(value.form)
                addresses.append(value.start)
                leads.append(value.lead)
                inside = inside and (value.checked == generation or value.in_memory())
            else:
                key.append(value)
        if None in found:
            tensors = [value for value, param in zip(found, spec.params, strict=True) if isinstance(param, Param)]
            addresses, leads = ([getattr(value, what, 0) for value in tensors] for what in ("start", "lead"))
        known = tuple(key)
        plan = operator.known(known) if inside else None
        if plan is None or plan.outputs_meet(addresses):
            args = [value.for_phase_one() if isinstance(value, DeviceTensor) else value for value in found]
            plan = BACKING.plan(operator, planning, args, product)
            if inside:
                operator.keep(known, plan)
        return plan.workspace_size, DeviceExecutor(spec.name, plan, addresses, leads, -1 if DEVICE.shifted else generation).handle

    def phase_two(workspace: int, size: int, executor: int, stream: int) -> None:
        need(executor, "executor", spec.name, NULL)
        found = EXECUTORS.find(executor, "executor", spec.name)
        need_same(found, spec.name)
        if DEVICE.watch is not None:
            DEVICE.watch.called(executor)
        queue = stream_of(stream, spec.name)
        needed = found.workspace_size
        need_workspace(workspace, size, needed, spec.name)
        place = need_device(workspace, needed, "workspace", spec.name, RUNTIME_ERROR) if needed else 0
        plan, addresses, _ = found.take(spec.name, found.locate)
        if not found.repeatable:
            EXECUTORS.living.pop(executor, None)
        run = plan.run if DEVICE.watch is None else DEVICE.watch.runner(plan, executor)
        enqueue(queue, lambda: run(addresses, place), small=plan.bytes <= SMALL)

    return phase_one, phase_two


def _finder(param: Param | Attr, api: str) -> Callable[[int], Any] | None:
    """What finds the object of a handle, None for a null one; None for attributes that are taken as they are."""
    table: Table[Any] | None = TENSORS if isinstance(param, Param) else next((t for kind, t in ARRAYS.items() if kind in param.ctype), None)
    if table is None:
        return None
    living = table.living

    def find(handle: int) -> Any:
        found = living.get(handle)
        return found if found is not None or not handle else table.find(handle, param.name, api)

    return find


def _executor(executor: int, api: str) -> DeviceExecutor:
    need(executor, "executor", api, INNER_NULL)
    return EXECUTORS.find(executor, "executor", api)


@call
def aclSetAclOpExecutorRepeatable(executor: int) -> None:
    _executor(executor, "aclSetAclOpExecutorRepeatable").set_repeatable()


@call
def aclDestroyAclOpExecutor(executor: int) -> None:
    if executor:
        EXECUTORS.remove(executor, "executor", "aclDestroyAclOpExecutor").destroy()


def _set_address(executor: int, index: int, tensor: int, addr: int, api: str, setter: Callable[..., None]) -> None:
    found = _executor(executor, api)
    need(tensor, "tensor", api, INNER_NULL)
    TENSORS.find(tensor, "tensor", api)
    found.checked = -1
    try:
        setter(found, index, addr)
    except AclnnError as error:
        raise AclnnError(error.status, api, error.message) from None


@call
def aclSetInputTensorAddr(executor: int, index: int, tensor: int, addr: int) -> None:
    _set_address(executor, index, tensor, addr, "aclSetInputTensorAddr", DeviceExecutor.set_input_address)


@call
def aclSetOutputTensorAddr(executor: int, index: int, tensor: int, addr: int) -> None:
    _set_address(executor, index, tensor, addr, "aclSetOutputTensorAddr", DeviceExecutor.set_output_address)


@call
def aclSetTensorAddr(executor: int, index: int, tensor: int, addr: int) -> None:
    _set_address(executor, index, tensor, addr, "aclSetTensorAddr", DeviceExecutor.set_address)


for _setter in (aclSetInputTensorAddr, aclSetOutputTensorAddr, aclSetTensorAddr):
    CALLS[f"A{_setter.__name__[1:]}"] = _setter  # an older spelling
