"""Executors: what phase 1 of an operator prepares and phase 2 runs. The doors to the two phases are made from this."""

import inspect
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from anycann import cuda_streams, products
from anycann.bind import bind
from anycann.describe import docstring
from anycann.errors import AclnnError, Single, told
from anycann.floats import in_usual_floats
from anycann.keys import OtherKindError, sketches
from anycann.locks import shared
from anycann.plans import Plan
from anycann.products import Product
from anycann.runtime import Operator
from anycann.spec import Attr, OpSpec
from anycann.streams import Stream
from anycann.tensor import Tensor, address_of, from_array, memory_of

__all__ = ["Executor", "given_address", "need_same", "need_workspace", "phase_one", "phase_two", "planned", "prepare"]

Locate = Callable[[Plan, Sequence[int]], Sequence[int]]


def given_address(value: Any, name: str, api: str) -> int:
    """An address given as a number, None for null."""
    address = 0 if value is None else operator.index(value)
    if not 0 <= address < 2**64:
        raise AclnnError(161002, api, f"{name} must be an address, from 0 to 2**64 - 1; got {told(address)}. Pass an address or an array.")
    return address


class Executor(Single):
    """What phase 1 prepared: good for one phase 2, or for any number after `set_repeatable`."""

    __slots__ = ("_addresses", "_keep", "_leads", "_moved", "_plan", "_repeatable", "_state", "name")

    def __init__(self, name: str, plan: Plan, addresses: Sequence[int], keep: Sequence[Any], leads: Sequence[int] | None = None) -> None:
        self.name, self._plan, self._addresses, self._keep = name, plan, addresses, keep
        self._leads = leads  # the bytes before first elements; None: those of the arguments of phase 1, which `keep` is
        self._moved: dict[int, Any] = {}  # what keeps the addresses alive that were set later
        self._state, self._repeatable = "ready", False

    @property
    def repeatable(self) -> bool:
        """Whether more than one phase 2 is allowed."""
        return self._repeatable

    @property
    def workspace_size(self) -> int:
        """Bytes that phase 2 needs."""
        return self._plan.workspace_size

    @property
    def device(self) -> str:
        """Where the tensors are, and the workspace must be: "cpu" or "cuda:N"."""
        return self._plan.device

    def set_repeatable(self) -> None:
        """Allow more than one phase 2; to be called before the first. AclnnError 161002 afterwards."""
        with shared:
            self._need_alive("set_repeatable")
            self._repeatable = True

    def destroy(self) -> None:
        """Release what the executor holds; it cannot be used afterwards."""
        with shared:
            self._need_alive("destroy")
            self._state, self._keep, self._moved = "destroyed", (), {}

    def set_input_address(self, index: int, data: Any) -> None:
        """Use other memory for input number `index` (counting tensors only), laid out as before: an array or an address."""
        self._set_address("set_input_address", index, data, output=False)

    def set_output_address(self, index: int, data: Any) -> None:
        """Use other memory for output number `index`, laid out as before: a writable array or an address."""
        self._set_address("set_output_address", index, data, output=True)

    def set_address(self, index: int, data: Any) -> None:
        """Use other memory for tensor number `index`, inputs and outputs counted together."""
        self._set_address("set_address", index, data, output=None)

    def _set_address(self, api: str, index: int, data: Any, output: bool | None) -> None:
        places = [place for place, param in enumerate(self._plan.spec.tensors) if output is None or param.output == output]
        kind = "tensors" if output is None else "outputs" if output else "inputs"
        self._need_alive(api)
        if not 0 <= index < len(places):
            mend = f"{self.name} has {len(places)} {kind}; count from 0."
            raise AclnnError(161002, api, f"index must be from 0 to {len(places) - 1}; got {told(index)}. {mend}")
        place = places[index]
        param = self._plan.spec.tensors[place]
        if self._plan.absent and self._plan.absent[place] and not (param.output and param.needed):
            rule = "must be a tensor that phase 1 was given; got an address for a null pointer"
            raise AclnnError(161002, api, f"{param.name} {rule}. Make a new executor with the tensor.")
        address = self._address_of(place, data, api)
        with shared:
            self._need_alive(api)  # it may have been used meanwhile
            moved = list(self._addresses)
            moved[place] = address
            self._addresses, self._moved = moved, self._moved | {place: data}

    def _before(self, api: str) -> Sequence[int]:
        """The bytes before the first elements of the tensors, of an executor that can be used."""
        with shared:
            self._need_alive(api)
            if self._leads is None:
                given = [self._keep[place] for place in self._plan.spec.tensor_places]
                self._leads = [value.lead if type(value) is Tensor else 0 for value in given]
            return self._leads

    def _address_of(self, place: int, data: Any, api: str) -> int:
        """The address of the first element in other memory."""
        param, lead = self._plan.spec.tensors[place], self._before(api)[place]
        name = param.name
        if data is None or isinstance(data, (int, np.integer)):
            return given_address(data, name, api) + lead
        array = _array_on(self.device, data, name, api)
        low, high = array.bytes_touched()
        first, last = self._plan.spans[place]
        offset = max(lead, -first)  # memory of an array that lies backwards begins before its first element
        if last > first and offset + last > high - low:
            rule = (
                f"must be memory of at least {offset + last} bytes, as the planned view touches bytes {offset + first} to {offset + last}"
            )
            raise AclnnError(561103, api, f"{name} {rule}; got {high - low}. Pass a larger array.")
        if param.output and not array.writable:
            raise AclnnError(161002, api, f"{name} must be writable; got read-only memory. Pass a writable array.")
        return low + offset

    def _need_alive(self, api: str) -> None:
        if self._state != "ready":
            mend = (
                "Call set_repeatable right after phase 1 to run it more than once."
                if self._state == "used"
                else "Make a new one with phase 1."
            )
            raise AclnnError(161002, api, f"executor of {self.name} must be one that was not {self._state}; got one that was. {mend}")

    def take(self, api: str, locate: Locate | None = None) -> tuple[Plan, Sequence[int], tuple[Sequence[Any], dict[int, Any]]]:
        """The plan, the addresses for one run, and what keeps them valid: arguments, and what was set later.

        Marks an executor that is not repeatable as used. `locate` may refuse the addresses, or give others at which the same bytes lie.
        """
        with shared:
            leads = self._before(api)
            plan, keep, addresses = self._plan, (self._keep, self._moved), self._addresses
        for place, (address, lead) in enumerate(zip(addresses, leads, strict=True)):
            if address == lead and plan.layouts[place].numel:
                mend = "Give the tensor its data, or set the address of the executor."
                raise AclnnError(161001, api, f"{plan.spec.tensors[place].name} must have an address; got a null pointer. {mend}")
        if plan.outputs_meet(addresses):
            raise AclnnError(161002, api, "outputs must have memory of their own; got addresses that overlap. Set other addresses.")
        if locate is not None:
            addresses = locate(plan, addresses)
        if not self._repeatable:
            with shared:
                self._need_alive(api)  # another thread may have been faster
                self._state, self._keep, self._moved = "used", (), {}
        return plan, addresses, keep


def _array_on(device: str, value: Any, name: str, api: str) -> Tensor:
    """The memory of an array, which must be on the device of the executor."""
    array = memory_of(value, name, api)
    if array.device != device:
        mend = f"Move it with .to('{device}')."
        raise AclnnError(161002, api, f"{name} must be on {device}, where the planned tensors are; got memory on {array.device}. {mend}")
    return array


def prepare(op: Operator, api: str, args: tuple[Any, ...], product: Product) -> tuple[Plan, Sequence[int], Sequence[Any]]:
    """What phase 1 does with arrays among its arguments: the plan, the addresses of the tensors and what keeps them alive."""
    values, outs = args[: op.inputs], args[op.inputs :]
    for last in op.recent(api, values):
        found = last.recognise(values, outs, product)
        if found is not None:
            return last.plan, found[0], args
    described = sketches(op.is_attr, values, outs, product)
    plan = None if described is None else op.known((api, described[0]))
    if described is not None and plan is not None and not plan.outputs_meet(described[1]):
        op.remember(api, values, plan.recognition(op.is_attr, values, outs, product))
        return plan, described[1], args
    plan, tensors = _planned(op, api, args, product, None)
    if described is not None:
        op.keep((api, described[0]), plan)
    return plan, [tensor.start for tensor in tensors], (*args, *tensors)


def planned(op: Operator, api: str, args: Sequence[Any], product: Product, backend: str | None = None) -> Plan:
    """Check the arguments of phase 1 against the contract and plan the call."""
    return _planned(op, api, args, product, backend)[0]


@in_usual_floats
def _planned(op: Operator, api: str, args: Sequence[Any], product: Product, backend: str | None) -> tuple[Plan, Sequence[Tensor]]:
    tensors: dict[str, Tensor | None] = {}
    attrs: dict[str, Any] = {}
    for param, value in zip(op.spec.params, args, strict=True):
        if isinstance(param, Attr):
            attrs[param.name] = param.convert(value, param.name)
        else:
            tensors[param.name] = value if value is None or isinstance(value, Tensor) else from_array(value, param.name, api)
    call = bind(op.spec, tensors, attrs, api=api, product=product)
    return op.plan(call, backend), call.tensors


def phase_one(op: Operator) -> Callable[..., tuple[int, Executor]]:
    """The function aclnnXxxGetWorkspaceSize of an operator."""
    spec = op.spec
    api = f"{spec.name}GetWorkspaceSize"
    order = tuple(param.name for param in spec.params)
    signature = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in order]
        + [inspect.Parameter("product", inspect.Parameter.KEYWORD_ONLY, default=None)]
    )

    def get_workspace_size(*args: Any, product: str | None = None, **named: Any) -> tuple[int, Executor]:
        if named or len(args) != len(order):
            try:
                args = signature.bind(*args, **named).args
            except TypeError as error:
                raise TypeError(f"{api}: {error}") from None
        chosen = products.current() if product is None else products.find(product)
        try:
            key, addresses = op.described(chosen, *args)
        except OtherKindError:
            plan, places, keep = prepare(op, api, args, chosen)
            return plan.workspace_size, Executor(spec.name, plan, places, keep)
        known = op.known(key)
        if known is None or known.outputs_meet(addresses):
            known = planned(op, api, args, chosen)
            op.keep(key, known)
        return known.workspace_size, Executor(spec.name, known, addresses, args)

    return _named(get_workspace_size, api, signature, f"Phase 1 of {spec.name}: (workspace size in bytes, executor).\n\n{docstring(spec)}")


def phase_two(spec: OpSpec) -> Callable[..., None]:
    """The function aclnnXxx of an operator."""
    api = spec.name

    def run(workspace: Any, workspace_size: int, executor: Executor, stream: Any = None) -> None:
        _need_one(executor, api)
        address = _workspace(workspace, workspace_size, executor, api)
        queue = _queue(stream, executor.device, api)
        plan, addresses, keep = executor.take(api)

        def task(keep: Any = (keep, workspace)) -> None:
            plan.run(addresses, address)

        if plan.device != "cpu":
            cuda_streams.launch(queue, task, _owners(*keep, workspace))
        elif queue is None:
            task()
        else:
            queue.submit(task)

    doc = f"""Phase 2 of {api}: run the executor with workspace_size bytes of workspace, on a stream.

    On the CPU: a Stream, or None, which returns when the work is done. On a CUDA device: a Stream of it, a torch.cuda.Stream, or the
    handle of a CUDA stream as an int; the work also comes after what is queued on torch's current stream. None is that stream.
    """
    return _named(run, api, inspect.signature(run), doc)


def _queue(stream: Any, device: str, api: str) -> Any:
    """The stream that is meant: a Stream or None for the CPU, torch's for a CUDA device."""
    if isinstance(stream, Stream):
        there, queue = stream.device, stream if device == "cpu" else stream.on_cuda
    elif device == "cpu":
        there, queue = device, stream
        if stream is not None:
            raise TypeError(f"stream of {api} must be a Stream or None; got {type(stream).__name__}")
    else:
        queue = cuda_streams.stream_of(stream, device, api)
        there = str(queue.device)
    if there != device:
        mend = f"Pass a stream of {device}."
        raise AclnnError(161002, api, f"stream must be one of {device}, where the tensors are; got one of {there}. {mend}")
    return queue


def _owners(keep: Sequence[Any], moved: dict[int, Any], workspace: Any) -> Iterable[object]:
    """The arrays, of whatever library, whose memory a run uses."""
    found: dict[int, object] = {}
    for value in (*keep, *moved.values(), workspace):
        if isinstance(value, Tensor):
            if value.owner is not None:
                found[id(value.owner)] = value.owner
        elif hasattr(value, "__dlpack__") or hasattr(value, "__cuda_array_interface__"):
            found[id(value)] = value
    return found.values()


def _need_one(executor: object, api: str) -> None:
    if executor is None:
        raise AclnnError(161001, api, "executor must be the one that phase 1 made; got a null pointer (None). Pass it.")
    if not isinstance(executor, Executor):
        raise TypeError(f"executor of {api} must be an Executor; got {type(executor).__name__}")
    need_same(executor, api)


def need_same(executor: Executor, api: str) -> None:
    """Refuse an executor of another operator."""
    if executor.name != api:
        raise AclnnError(161002, api, f"executor must be one of {api}; got one of {executor.name}. Pass the executor of this operator.")


def need_workspace(address: int, size: int, needed: int, api: str) -> None:
    """Refuse a workspace that is missing or too small."""
    if needed and address == 0:
        raise AclnnError(161001, api, f"workspace must be {needed} bytes of memory; got a null pointer. Use memory of {needed} bytes.")
    if size < needed:
        raise AclnnError(161002, api, f"workspaceSize must be at least the {needed} bytes that phase 1 gave; got {size}. Pass that size.")


def _workspace(workspace: Any, size: int, executor: Executor, api: str) -> int:
    """The address of a workspace that is large enough, and where the tensors are."""
    needed = executor.workspace_size
    if workspace is None or isinstance(workspace, (int, np.integer)):
        address = given_address(workspace, "workspace", api)
        need_workspace(address, size, needed, api)
        return address
    need_workspace(-1, size, needed, api)
    if type(workspace) is np.ndarray and workspace.nbytes >= needed and executor.device == "cpu" and not workspace.dtype.hasobject:
        flags = workspace.flags
        if flags.c_contiguous and flags.writeable:
            return address_of(workspace)
    array = _array_on(executor.device, workspace, "workspace", api)
    low, high = array.bytes_touched()
    if high - low < needed or not array.writable:
        what = "writable memory" if high - low >= needed else f"at least {needed} bytes"
        call = f"empty_workspace({needed})" if executor.device == "cpu" else f"empty_workspace({needed}, '{executor.device}')"
        raise AclnnError(161002, api, f"workspace must be {what}; got {high - low} bytes of dtype {array.dtype}. Use {call}.")
    return low


def _named(function: Callable[..., Any], name: str, signature: inspect.Signature, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    vars(function)["__signature__"] = signature
    return function
