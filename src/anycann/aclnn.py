"""The two-phase interface in Python: aclnnXxxGetWorkspaceSize checks and plans, aclnnXxx runs.

For every operator with a two-phase interface this module has both functions, parameters in the order of the C
prototype. Tensors are arrays or descriptors of `create_tensor`, None is a null pointer, a list is an aclIntArray.

Arrays on a CUDA device run there, in the order of a CUDA stream: tensors, workspace and stream must be of one device.

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

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anycann import cuda, dtypes, ops
from anycann.errors import AclnnError, told
from anycann.executor import Executor, given_address, phase_one, phase_two
from anycann.plans import aligned_bytes
from anycann.streams import Event, Stream
from anycann.tensor import Tensor, contiguous_strides, memory_of

__all__ = ["Event", "Executor", "Stream", "create_tensor", "empty_workspace"]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the operators' functions, made below


def _counts(values: Sequence[int], name: str, api: str, low: int | None) -> tuple[int, ...]:
    try:
        numbers = tuple(operator.index(value) for value in values)
    except TypeError:
        raise TypeError(f"{name} of {api} must be a sequence of ints; got {told(values)}") from None
    least = -(2**63) if low is None else low
    if any(not least <= number < 2**63 for number in numbers):
        raise AclnnError(161002, api, f"{name} must hold 64-bit integers of at least {least}; got {numbers}. Change it.")
    return numbers


def create_tensor(
    view_dims: Sequence[int],
    dtype: Any,
    strides: Sequence[int] | None = None,
    offset: int = 0,
    format: str | int = "ND",
    storage_dims: Sequence[int] | None = None,
    data: Any = None,
    device: Any = "cpu",
) -> Tensor:
    """Describe a view of memory, as aclCreateTensor does; counts are elements.

    dtype: a name ("float16", "ACL_BF16"), a NumPy dtype or an aclDataType value. strides: None means contiguous.
    storage_dims: the shape of the memory behind the view; None means what `data` holds, or the view itself.
    data: an array, whose memory is used as it lies (it must hold the storage), an address, or None for an address set later.
    device: where an address lies, "cpu", "cuda" or "cuda:N"; an array knows it.
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
        raise AclnnError(161002, api, f"format must be one of {', '.join(dtypes.FORMATS)}; got {told(format)}. Use 'ND'.")
    storage = None if storage_dims is None else _counts(storage_dims, "storage_dims", api, 0)
    (first,) = _counts((offset,), "offset", api, None)
    if data is None or isinstance(data, (int, np.integer)):
        whole = shape if storage is None else storage
        address = given_address(data, "data", api)
        return Tensor(address, kind, shape, steps, first, whole, number, device=cuda.name_of(device)).settled()
    array = memory_of(data, "data", api)
    low, high = array.bytes_touched()
    room = (high - low) // kind.itemsize
    storage = (room,) if storage is None else storage
    if math.prod(storage) > room:
        raise AclnnError(
            561103,
            api,
            f"data must hold the {math.prod(storage)} {kind} elements of storage_dims {storage}; got {room}. Pass a larger array.",
        )
    owner = array.owner if array.owner is data else (data, array.owner)
    return Tensor(low, kind, shape, steps, first, storage, number, array.writable, owner, array.device).settled()


def _dtype(value: Any, api: str) -> dtypes.DType:
    found: dtypes.DType | None
    if isinstance(value, str):
        try:
            return dtypes.by_name(value)
        except KeyError:
            found = None
    elif isinstance(value, (int, np.integer)):
        found = dtypes.by_acl(int(value))
    elif value is None:  # which NumPy takes for float64
        found = None
    else:
        try:
            found = dtypes.by_numpy(np.dtype(value))
        except TypeError:
            found = dtypes.DTYPES.get(str(value).removeprefix("torch."))
    if found is None:
        raise AclnnError(
            161002, api, f"dtype must be one of {', '.join(dtypes.DTYPES)}, or its aclDataType value; got {told(value)}. Change it."
        )
    return found


def empty_workspace(size: int, device: Any = "cpu") -> Any:
    """Uninitialised memory for phase 2, a NumPy array or a torch tensor of bytes; size 0 gives an empty one.

    device: where the tensors of the call are, "cpu", "cuda" or "cuda:N".
    """
    try:
        count = operator.index(size)
    except TypeError:
        said = f"{told(size)} of type {type(size).__name__}"
        raise TypeError(f"size of empty_workspace must be an int; got {said}. Pass what GetWorkspaceSize has returned.") from None
    if count < 0:
        raise ValueError(f"the size of a workspace must not be negative; got {count}")
    place = cuda.name_of(device)
    return aligned_bytes(count) if place == "cpu" else cuda.empty(count, place)[0]


for _operator in ops.OPERATORS:
    if _operator.spec.two_phase:
        for _function in (phase_one(_operator), phase_two(_operator.spec)):
            _function.__module__ = __name__
            globals()[_function.__name__] = _function
            __all__ += [_function.__name__]
