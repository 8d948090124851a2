"""The two-phase interface in Python: aclnnXxxGetWorkspaceSize checks and plans, aclnnXxx runs.

For every operator with a two-phase interface this module has both functions, parameters in the order of the C
prototype. Tensors are arrays or descriptors of `create_tensor`, None is a null pointer, a list is an aclIntArray.

>>> import numpy as np
>>> from anycann import aclnn
>>> x, grad, result = np.zeros(4, np.float32), np.ones(4, np.float32), np.empty(4, np.float32)
>>> size, executor = aclnn.aclnnGeluBackwardV2GetWorkspaceSize(grad, x, "tanh", result)
>>> stream = aclnn.Stream()
>>> aclnn.aclnnGeluBackwardV2(aclnn.empty_workspace(size), size, executor, stream)
>>> stream.synchronize()
>>> result.tolist()
[0.5, 0.5, 0.5, 0.5]
"""

import inspect
import math
import operator
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anycann import dtypes, ops, products
from anycann.bind import bind
from anycann.describe import docstring
from anycann.errors import AclnnError
from anycann.runtime import Operator, Plan, aligned_bytes, sketches
from anycann.spec import Attr, OpSpec
from anycann.streams import Event, Stream
from anycann.tensor import Tensor, contiguous_strides, from_array

__all__ = ["Event", "Executor", "Stream", "create_tensor", "empty_workspace"]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the operators' functions, made below


def _counts(values: Sequence[int], name: str, api: str, low: int | None) -> tuple[int, ...]:
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        raise TypeError(f"{name} of {api} must be a sequence of ints; got {values!r}") from None
    least = -(2**63) if low is None else low
    if any(not least <= number < 2**63 for number in numbers):
        raise AclnnError(161002, api, f"{name} must hold 64-bit integers of at least {least}; got {numbers}. Change it.")
    return numbers


def _address(value: Any, name: str, api: str) -> int:
    """An address given as a number, None for null."""
    address = 0 if value is None else operator.index(value)
    if not 0 <= address < 2**64:
        raise AclnnError(161002, api, f"{name} must be an address, from 0 to 2**64 - 1; got {address}. Pass an address or an array.")
    return address


def create_tensor(
    view_dims: Sequence[int],
    dtype: Any,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    format: str | int = "ND",
    storage_dims: Sequence[int] | None = None,
    data: Any = None,
) -> Tensor:
    """Describe a view of memory, as aclCreateTensor does; counts are elements.

    dtype: a name ("float16", "ACL_BF16"), a NumPy dtype or an aclDataType value. strides: None means contiguous.
    storage_dims: the shape of the memory behind the view; None means what `data` holds, or the view itself.
    data: an array, whose memory is used as it lies (it must hold the storage), an address, or None for an address set later.
    Raises AclnnError 161002 for a dtype, format or size that does not exist, 561103 for a storage larger than the array.
    A view that reaches outside its storage is refused by the call that uses it.
    """
    api = "create_tensor"
    shape = _counts(view_dims, "view_dims", api, 0)
    kind = _dtype(dtype, api)
    steps = contiguous_strides(shape) if strides is None else _counts(strides, "strides", api, None)
    if len(steps) != len(shape):
        raise AclnnError(
            561103, api, f"strides must have one entry for each of the {len(shape)} view_dims; got {len(steps)}. Add or remove some."
        )
    number = dtypes.FORMATS.get(format) if isinstance(format, str) else format
    if number is None or number not in dtypes.FORMATS.values():
        raise AclnnError(161002, api, f"format must be one of {', '.join(dtypes.FORMATS)}; got {format!r}. Use 'ND'.")
    storage = None if storage_dims is None else _counts(storage_dims, "storage_dims", api, 0)
    (first,) = _counts((offset,), "offset", api, None)
    if data is None or isinstance(data, (int, np.integer)):
        return Tensor(_address(data, "data", api), kind, shape, steps, first, shape if storage is None else storage, number)
    array = from_array(data, "data", api)
    low, high = array.bytes_touched()
    room = (high - low) // kind.itemsize
    storage = (room,) if storage is None else storage
    if math.prod(storage) > room:
        raise AclnnError(
            561103,
            api,
            f"data must hold the {math.prod(storage)} {kind} elements of storage_dims {storage}; got {room}. Pass a larger array.",
        )
    return Tensor(low, kind, shape, steps, first, storage, number, array.writable, array.owner)


def _dtype(value: Any, api: str) -> dtypes.DType:
    found: dtypes.DType | None
    if isinstance(value, str):
        try:
            return dtypes.by_name(value)
        except KeyError:
            found = None
    elif isinstance(value, (int, np.integer)):
        found = dtypes.by_acl(int(value))
    else:
        try:
            found = dtypes.by_numpy(np.dtype(value))
        except TypeError:
            found = dtypes.DTYPES.get(str(value).removeprefix("torch."))
    if found is None:
        raise AclnnError(161002, api, f"dtype must be one of {', '.join(dtypes.DTYPES)}, or its aclDataType value; got {value!r}.")
    return found


def empty_workspace(size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Uninitialised memory for phase 2; size 0 gives an empty array."""
    if size < 0:
        raise ValueError(f"the size of a workspace must not be negative; got {size}")
    return aligned_bytes(size)


class Executor:
    """What phase 1 prepared: good for one phase 2, or for any number after `set_repeatable`."""

    __slots__ = ("_addresses", "_keep", "_lock", "_moved", "_plan", "_repeatable", "_state", "name")

    def __init__(self, name: str, plan: Plan, addresses: Sequence[int], keep: Sequence[Any]) -> None:
        self.name, self._plan, self._addresses, self._keep = name, plan, addresses, keep
        self._moved: dict[int, Any] = {}  # what keeps the addresses alive that were set later
        self._state, self._repeatable = "ready", False
        self._lock = threading.Lock()

    @property
    def workspace_size(self) -> int:
        """Bytes that phase 2 needs."""
        return self._plan.workspace_size

    def set_repeatable(self) -> None:
        """Allow more than one phase 2; to be called before the first. AclnnError 161002 afterwards."""
        with self._lock:
            self._need_alive("set_repeatable")
            self._repeatable = True

    def destroy(self) -> None:
        """Release what the executor holds; it cannot be used afterwards."""
        with self._lock:
            self._need_alive("destroy")
            self._state, self._keep, self._moved = "destroyed", (), {}

    def set_input_address(self, index: int, data: Any) -> None:
        """Use other memory for input number `index` (counting tensors only), laid out as before: an array or an address."""
        self._set_address("set_input_address", index, data, output=False)

    def set_output_address(self, index: int, data: Any) -> None:
        """Use other memory for output number `index`, laid out as before: a writable array or an address."""
        self._set_address("set_output_address", index, data, output=True)

    def _set_address(self, api: str, index: int, data: Any, output: bool) -> None:
        places = [place for place, param in enumerate(self._plan.spec.tensors) if param.output == output]
        kind = "outputs" if output else "inputs"
        with self._lock:
            self._need_alive(api)
            if not 0 <= index < len(places):
                mend = f"{self.name} has {len(places)} {kind}; count from 0."
                raise AclnnError(161002, api, f"index must be from 0 to {len(places) - 1}; got {index}. {mend}")
            place = places[index]
            moved = list(self._addresses)
            moved[place] = self._address_of(place, data, api, output) + self._plan.offsets[place]
            self._addresses, self._moved = moved, self._moved | {place: data}

    def _address_of(self, place: int, data: Any, api: str, output: bool) -> int:
        name = self._plan.spec.tensors[place].name
        if data is None or isinstance(data, (int, np.integer)):
            return _address(data, name, api)
        array = from_array(data, name, api)
        low, high = array.bytes_touched()
        first, last = self._plan.layouts[place].bytes_touched()
        offset = self._plan.offsets[place]
        if last > first and (offset + first < 0 or offset + last > high - low):
            rule = (
                f"must be memory of at least {offset + last} bytes, as the planned view touches bytes {offset + first} to {offset + last}"
            )
            raise AclnnError(561103, api, f"{name} {rule}; got {high - low}. Pass a larger array.")
        if output and not array.writable:
            raise AclnnError(161002, api, f"{name} must be writable; got read-only memory. Pass a writable array.")
        return low

    def _need_alive(self, api: str) -> None:
        if self._state != "ready":
            mend = (
                "Call set_repeatable right after phase 1 to run it more than once."
                if self._state == "used"
                else "Make a new one with phase 1."
            )
            raise AclnnError(161002, api, f"executor of {self.name} must be one that was not {self._state}; got one that was. {mend}")

    def take(self, api: str) -> tuple[Plan, Sequence[int], object]:
        """The plan, the addresses for one run, and what keeps them valid; marks an executor that is not repeatable as used."""
        with self._lock:
            self._need_alive(api)
            plan, keep = self._plan, (self._keep, self._moved)
            for place, (address, offset) in enumerate(zip(self._addresses, plan.offsets, strict=True)):
                if address == offset and plan.layouts[place].numel:
                    mend = "Give the tensor its data, or set the address of the executor."
                    raise AclnnError(161001, api, f"{plan.spec.tensors[place].name} must have an address; got a null pointer. {mend}")
            if plan.outputs_meet(self._addresses):
                raise AclnnError(161002, api, "outputs must have memory of their own; got addresses that overlap. Set other addresses.")
            if not self._repeatable:
                self._state, self._keep, self._moved = "used", (), {}
            return plan, self._addresses, keep


def _as_tensor(value: Any, name: str, api: str) -> Tensor | None:
    return value if value is None or isinstance(value, Tensor) else from_array(value, name, api)


def _phase_one(op: Operator) -> Callable[..., tuple[int, Executor]]:
    spec = op.spec
    api = f"{spec.name}GetWorkspaceSize"
    order = tuple(param.name for param in spec.params)
    outputs_from = len(order) - len(spec.outputs)
    signature = inspect.Signature(
        [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in order]
        + [inspect.Parameter("product", inspect.Parameter.KEYWORD_ONLY, default=None)]
    )

    def get_workspace_size(*args: Any, product: str | None = None, **named: Any) -> tuple[int, Executor]:
        if named or len(args) != len(order):
            args = signature.bind(*args, **named).args
        chosen = products.current() if product is None else products.find(product)
        values, outs = args[:outputs_from], args[outputs_from:]
        last = op.latest.get(api)
        if last is not None:
            found = last.recognise(values, outs, chosen)
            if found is not None:
                return last.plan.workspace_size, Executor(spec.name, last.plan, found[0], args)
        described = sketches(op.is_attr, values, outs, chosen)
        plan = None if described is None else op.known((api, described[0]))
        if described is not None and plan is not None and not plan.outputs_meet(described[1]):
            op.latest[api] = plan.recognition(op.is_attr, values, outs, chosen)
            return plan.workspace_size, Executor(spec.name, plan, described[1], args)
        tensors: dict[str, Tensor | None] = {}
        attrs: dict[str, Any] = {}
        for param, value in zip(spec.params, args, strict=True):
            if isinstance(param, Attr):
                attrs[param.name] = param.convert(value, param.name)
            else:
                tensors[param.name] = _as_tensor(value, param.name, api)
        call = bind(spec, tensors, attrs, api=api, product=chosen)
        plan = op.plan(call)
        if described is not None:
            op.keep((api, described[0]), plan)
        return plan.workspace_size, Executor(spec.name, plan, [tensor.start for tensor in call.tensors], call.tensors)

    return _named(get_workspace_size, api, signature, f"Phase 1 of {spec.name}: (workspace size in bytes, executor).\n\n{docstring(spec)}")


def _phase_two(spec: OpSpec) -> Callable[..., None]:
    api = spec.name

    def run(workspace: Any, workspace_size: int, executor: Executor, stream: Stream | None = None) -> None:
        if executor is None:
            raise AclnnError(161001, api, "executor must be the one that phase 1 made; got a null pointer (None). Pass it.")
        if not isinstance(executor, Executor):
            raise TypeError(f"executor of {api} must be an Executor; got {type(executor).__name__}")
        if executor.name != api:
            raise AclnnError(161002, api, f"executor must be one of {api}; got one of {executor.name}. Pass the executor of this operator.")
        address = _workspace(workspace, workspace_size, executor.workspace_size, api)
        plan, addresses, keep = executor.take(api)

        def task(keep: Any = (keep, workspace)) -> None:
            plan.run(addresses, address)

        if stream is None:
            task()
        elif isinstance(stream, Stream):
            stream.submit(task)
        else:
            raise TypeError(f"stream of {api} must be a Stream or None; got {type(stream).__name__}")

    doc = f"Phase 2 of {api}: run the executor with workspace_size bytes of workspace, on a stream (None: at once)."
    return _named(run, api, inspect.signature(run), doc)


def _workspace(workspace: Any, size: int, needed: int, api: str) -> int:
    """The address of a workspace that is large enough."""
    if workspace is None or isinstance(workspace, (int, np.integer)):
        workspace = _address(workspace, "workspace", api)
    if needed and isinstance(workspace, int) and workspace == 0:
        raise AclnnError(161001, api, f"workspace must be {needed} bytes of memory; got a null pointer. Use empty_workspace({needed}).")
    if size < needed:
        raise AclnnError(161002, api, f"workspaceSize must be at least the {needed} bytes that phase 1 gave; got {size}. Pass that size.")
    if isinstance(workspace, int):
        return workspace
    array = from_array(workspace, "workspace", api)
    low, high = array.bytes_touched()
    if high - low < needed or not array.writable:
        what = "writable memory" if high - low >= needed else f"at least {needed} bytes"
        raise AclnnError(
            161002, api, f"workspace must be {what}; got {high - low} bytes of dtype {array.dtype}. Use empty_workspace({needed})."
        )
    return low


def _named(function: Callable[..., Any], name: str, signature: inspect.Signature, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    function.__doc__ = doc
    vars(function)["__signature__"] = signature
    return function


for _operator in ops.OPERATORS:
    if _operator.spec.two_phase:
        for _function in (_phase_one(_operator), _phase_two(_operator.spec)):
            globals()[_function.__name__] = _function
            __all__ += [_function.__name__]
