"""Tensor: where elements lie in memory, and how they lie there. Made from arrays of any library, without copying."""

import ctypes
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from anycann import buffers, cuda, dtypes
from anycann.axes import MOST_ELEMENTS, same, surely
from anycann.dtypes import DType
from anycann.errors import AclnnError, Single

__all__ = [
    "ABSENT",
    "Tensor",
    "address_of",
    "contiguous_strides",
    "from_array",
    "is_plain",
    "maker_like",
    "memory_of",
    "new_like",
    "out_of_storage",
    "sketch",
    "strides_like",
    "torch_kinds",
]

ND = dtypes.FORMATS["ND"]

_word_at = ctypes.c_void_p.from_address
_DATA = object.__basicsize__  # NumPy keeps the data pointer right behind the object's head; its C macros rely on that too


_NUMBERED = 1 << 14  # descriptions whose numbers are known; after them all get new ones
_forms: dict[tuple[object, ...], int] = {}
_following = itertools.count()
_put = object.__setattr__


def _numbered(description: tuple[object, ...], number: int) -> int:
    """The number of a description, from now on this one. Numbers are compared faster than descriptions, and never used twice."""
    if len(_forms) >= _NUMBERED:
        _forms.clear()
    return _forms.setdefault(description, number)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(Single):
    """Element (i0, i1, …) lies at address + (offset + i0*strides[0] + i1*strides[1] + …) * itemsize; counts are elements."""

    address: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0
    storage: tuple[int, ...] | None = None  # None: the owner is an array, which vouches for its memory
    format: int = ND
    writable: bool = True
    owner: object = field(default=None, repr=False)  # kept alive as long as the tensor
    device: str = "cpu"  # or torch's name of a GPU, "cuda:0"
    memory: tuple[int, int] | None = None  # first and past-the-last byte of the memory it must lie in, where that has to be checked
    lead: int = field(init=False, repr=False)  # the bytes before element (0, 0, …)
    start: int = field(init=False, repr=False)  # the address of element (0, 0, …)
    form: int = field(init=False, repr=False)  # a number for how it lies; the same for all that lie so, each inside its storage

    def __getattr__(self, name: str) -> int:
        """`lead`, `start` and `form`, made when they are asked for first: many tensors are never asked."""
        if name == "form":
            return self._formed()
        if name in ("lead", "start"):
            lead, start = self._placed()
            return lead if name == "lead" else start
        raise AttributeError(f"a Tensor has no {name}")

    def _placed(self) -> tuple[int, int]:
        lead = self.offset * self.dtype.itemsize
        start = self.address + lead
        _put(self, "lead", lead)
        _put(self, "start", start)
        return lead, start

    def _formed(self) -> int:
        place = None if self.memory is None else (self.memory, self.start)
        said = self.dtype, self.shape, self.strides, self.format, self.writable, self.device, self.offset, self.storage, place
        known = _forms.get(said)
        if known is None:
            known = _numbered(said, _numbered(said if out_of_storage(self) else said[:6], next(_following)))
        _put(self, "form", known)
        return known

    def settled(self) -> "Tensor":
        """The tensor itself, with what phase 1 asks of a descriptor made now."""
        self._placed()
        self._formed()
        return self

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def span(self) -> tuple[int, int]:
        """Lowest and highest reachable element, counted from element (0, 0, …); (0, -1) when empty."""
        low = high = 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            if size == 0:
                return 0, -1
            reach = (size - 1) * stride
            if reach < 0:
                low += reach
            else:
                high += reach
        return low, high

    def byte_strides(self) -> tuple[int, ...]:
        """The strides in bytes, 0 where no element has a neighbour: what is said of those means nothing, and may be any number."""
        size, empty = self.dtype.itemsize, 0 in self.shape
        return tuple([0 if count == 1 or empty else stride * size for count, stride in zip(self.shape, self.strides, strict=True)])

    def at(self, start: int) -> "Tensor":
        """The same layout with element (0, 0, …) at an address."""
        return Tensor(start, self.dtype, self.shape, self.strides)

    def bytes_spanned(self) -> tuple[int, int]:
        """The first byte of the elements and the one past their last byte, counted from element (0, 0, …)."""
        low, high = self.span()
        return low * self.dtype.itemsize, (high + 1) * self.dtype.itemsize

    def bytes_touched(self) -> tuple[int, int]:
        """First byte address of the elements and the one past their last byte."""
        low, high = self.bytes_spanned()
        return self.start + low, self.start + high


ABSENT = Tensor(0, dtypes.DTYPES["bool"], (0,), (1,))  # stands where no tensor was passed: without elements, at address 0


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    steps = [1]
    for size in reversed(shape[1:]):
        steps.append(steps[-1] * ((size or 1) if type(size) is int else size))
    return tuple(reversed(steps[: len(shape)]))


def strides_like(shape: tuple[int, ...], tensors: Iterable[Tensor]) -> tuple[int, ...]:
    """Strides of a new tensor without gaps, whose axes lie in the order in which those of the tensors of its shape do.

    Contiguous where these lie in several orders, or backwards, or where there are none. One that repeats its elements has no say.
    """
    usual, given = contiguous_strides(shape), [tensor.strides for tensor in tensors if same(tensor.shape, shape)]
    if all(same(strides, usual) for strides in given):
        return usual
    axes = [axis for axis, count in enumerate(shape) if not surely(count == 1)]
    orders = {tuple(axes)} if any(surely(count == 0) for count in shape) else set()
    for strides in given:
        if same(strides, usual) or any(surely(strides[axis] < 0) for axis in axes):
            return usual
        if not any(surely(strides[axis] == 0) for axis in axes):
            orders.add(tuple(sorted(axes, key=lambda axis: -strides[axis])))
    if len(orders) != 1 or tuple(axes) in orders:
        return usual
    steps, step = list(usual), 1
    for axis in reversed(orders.pop()):
        steps[axis] = step
        step *= shape[axis]
    return tuple(steps)


def out_of_storage(tensor: Tensor) -> str | None:
    """Why a view does not lie inside its storage, in words; None if it does."""
    numel = tensor.numel
    if not isinstance(numel, int) or numel == 0:  # of sizes that a graph does not know nothing is asked
        return None
    low, high = tensor.span()
    low, high = low + tensor.offset, high + tensor.offset
    if numel > MOST_ELEMENTS or low < -MOST_ELEMENTS or high > MOST_ELEMENTS:
        return f"{numel} elements, from {low} to {high}: beyond the {MOST_ELEMENTS} that are counted"
    if tensor.memory is not None:
        first, last = tensor.bytes_touched()
        if not tensor.memory[0] <= first <= last <= tensor.memory[1]:
            there = f"{tensor.memory[1] - tensor.memory[0]} bytes from {tensor.memory[0]:#x}" if any(tensor.memory) else "none there"
            return f"bytes {first:#x} to {last:#x} (shape {tensor.shape}, offset {tensor.offset}); live device memory: {there}"
    if tensor.storage is None:
        return None
    room = math.prod(tensor.storage)
    if low >= 0 and high < room:
        return None
    return f"elements {low} to {high} of a storage of {room} (shape {tensor.shape}, strides {tensor.strides}, offset {tensor.offset})"


def _is_masked(array: "np.ndarray[Any, Any]") -> bool:
    """Whether it is a masked array: none is there before their module is, which is not imported here, where a fork may come between."""
    module = sys.modules.get("numpy.ma")
    kind = None if module is None else vars(module).get("MaskedArray")
    return kind is not None and isinstance(array, kind)


def _from_numpy(array: "np.ndarray[Any, Any]", name: str, api: str, owner: object = None) -> Tensor:
    if _is_masked(array):
        raise TypeError(f"{name} is a masked array, whose mask an operator would ignore: pass {name}.filled(value)")
    dtype = dtypes.by_numpy(array.dtype) or dtypes.unknown(str(array.dtype), array.dtype.itemsize)
    size, shape, steps = dtype.itemsize, array.shape, array.strides
    strides = tuple([step // size if count > 1 else 1 for step, count in zip(steps, shape, strict=True)])
    if any(step % size for step, count in zip(steps, shape, strict=True) if count > 1):
        mend = "Pass np.ascontiguousarray(...)."
        raise AclnnError(161002, api, f"{name} must have byte strides that are multiples of {size}; got {steps}. {mend}")
    return Tensor(address_of(array), dtype, shape, strides, writable=array.flags.writeable, owner=array if owner is None else owner)


def _operator_in_torch(api: str) -> str:
    """What records gradients and is traced in the place of a plain function; other callers have no such name."""
    return f"torch.ops.{api}" if api.startswith("anycann.") else "torch.ops.anycann.NAME"


def _from_torch(torch: Any, tensor: Any, name: str, api: str) -> Tensor:
    if tensor.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(
            f"{name} requires grad, and anycann's plain functions record no gradients: import anycann.torch and call the operator as "
            f"{_operator_in_torch(api)}, pass {name}.detach(), or call under torch.no_grad()"
        )
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_conj() or tensor.is_neg():
        raise TypeError(
            f"{name} must be a strided torch tensor, not sparse, quantized, or lazily conjugated or negated; got {tensor.layout}"
        )
    if not (tensor.is_cpu or tensor.is_cuda):
        mend = f"call {_operator_in_torch(api)}, which infers shapes" if tensor.is_meta else f"pass {name}.cpu()"
        raise RuntimeError(f"{name} is on device {tensor.device}, and anycann runs on CPUs and CUDA devices: {mend}")
    if not is_plain(tensor):
        raise TypeError(
            f"{name} is no plain torch tensor ({type(tensor).__name__}), or PyTorch is tracing: anycann's plain functions only see "
            "memory, not what fake tensors, vmap, make_fx, DTensor and the like make of it. Import anycann.torch and call the operator "
            f"as {_operator_in_torch(api)}"
        )
    name_of_dtype = str(tensor.dtype).removeprefix("torch.")
    dtype = dtypes.DTYPES.get(name_of_dtype) or dtypes.unknown(name_of_dtype, tensor.element_size())
    return Tensor(tensor.data_ptr(), dtype, tuple(tensor.shape), tensor.stride(), owner=tensor, device=str(tensor.device))


def from_array(array: object, name: str, api: str = "anycann") -> Tensor:
    """Describe the memory of a NumPy array, torch tensor, DLPack exporter or array-interface object; `name` and `api` are for messages.

    Nothing is copied. TypeError for anything else, and for arrays whose plain memory is not their value.
    """
    if isinstance(array, np.ndarray):
        return _from_numpy(array, name, api)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _from_torch(torch, array, name, api)
    if hasattr(array, "__dlpack__"):
        from anycann import dlpack

        found = dlpack.read(array, name)
        strides = found.strides or contiguous_strides(found.shape)
        return Tensor(found.address, found.dtype, found.shape, strides, writable=found.writable, owner=found.owner, device=found.device)
    if hasattr(array, "__array_interface__"):
        view = np.asarray(array)
        if isinstance(array, np.generic):  # the view is a copy
            view.flags.writeable = False
        return _from_numpy(view, name, api, owner=(array, view))
    if hasattr(array, "__cuda_array_interface__"):
        tensor = cuda.described(array, name)
        return _from_torch(sys.modules["torch"], tensor, name, api)
    raise TypeError(
        f"{api}: {name} must be an array (NumPy, torch, or one with __dlpack__, __array_interface__ or __cuda_array_interface__); "
        f"got {type(array).__name__}"
        + (": wrap it in numpy.asarray(..., dtype=...)" if isinstance(array, (list, tuple, int, float, bool)) else "")
    )


def memory_of(array: Any, name: str, api: str) -> Tensor:
    """Describe the memory of an array that is used as mere bytes, whatever its elements are, but references to Python objects."""
    numbers = np.asarray(array) if hasattr(array, "__array_interface__") else None
    if numbers is not None and numbers.dtype.hasobject:
        rule = f"{name} must be memory of numbers; got {numbers.dtype}, references to Python objects. Pass an array of bytes."
        raise AclnnError(161002, api, rule)
    return from_array(array, name, api)


def new_like(
    array: object, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: str = "cpu"
) -> tuple[Any, Callable[[Any], object]]:
    """A new array, NumPy's or torch's, for a caller who passed `array`, and what makes it the caller's kind once it is filled.

    `device` is where arrays are that are neither NumPy's nor torch's; these are contiguous.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if not array.is_cpu:
            return torch.empty_strided(shape, strides, dtype=getattr(torch, dtype.name), device=array.device), _itself
        return _new_torch(torch, shape, strides, dtype), _itself
    if device != "cpu":
        torch = cuda.need("the first array", device)
        tensor = torch.empty(shape, dtype=getattr(torch, dtype.name), device=device)
        namespace = array.__array_namespace__() if hasattr(array, "__array_namespace__") else None
        return tensor, _itself if namespace is None else namespace.from_dlpack
    if isinstance(array, np.ndarray) or not hasattr(array, "__array_namespace__"):
        return _maker(shape, strides, dtype)(), _itself
    namespace, made = array.__array_namespace__(), buffers.empty(shape, dtypes.to_numpy(dtype))

    def hand_over(filled: Any) -> object:
        from anycann import dlpack

        return namespace.from_dlpack(dlpack.Exporter(address_of(filled), dtype, shape, filled))

    return made, hand_over


def maker_like(array: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Callable[[], Any]:
    """What makes arrays as `new_like` does, for a NumPy array or torch tensor."""
    if isinstance(array, np.ndarray):
        return _maker(shape, strides, dtype)
    torch = sys.modules["torch"]
    if array.is_cpu and math.prod(shape) * dtype.itemsize < buffers.POOLED_FROM:
        return functools.partial(array.new_empty(0, dtype=getattr(torch, dtype.name)).new_empty_strided, shape, strides)
    like = array.new_empty(0)
    return lambda: new_like(like, shape, strides, dtype)[0]


def _maker(shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> "Callable[[], np.ndarray[Any, Any]]":
    """What makes NumPy arrays with these strides, which leave no gaps."""
    kind = dtypes.to_numpy(dtype)
    if strides == contiguous_strides(shape):
        small = math.prod(shape) * kind.itemsize < buffers.POOLED_FROM
        return functools.partial(np.empty if small else buffers.empty, shape, kind)
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    lain, axes = tuple([shape[axis] for axis in order]), tuple([order.index(axis) for axis in range(len(shape))])
    return lambda: buffers.empty(lain, kind).transpose(axes)


def _new_torch(torch: Any, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Any:
    kind = getattr(torch, dtype.name)
    if math.prod(shape) * dtype.itemsize < buffers.POOLED_FROM:
        return torch.empty_strided(shape, strides, dtype=kind, device="cpu")
    made = torch.from_numpy(buffers.empty(shape, np.dtype(f"i{dtype.itemsize}"))).view(kind)
    return made if strides == contiguous_strides(shape) else made.as_strided(shape, strides)


def _itself(made: Any) -> object:
    return made


def address_of(array: Any) -> int:
    """The address of the first element of a NumPy array or torch tensor."""
    if isinstance(array, np.ndarray):
        return _word_at(id(array) + _DATA).value or 0
    address: int = array.data_ptr()
    return address


def sketch(value: Any) -> tuple[Any, int] | None:
    """What a plan may depend on of an array, and its address; None for kinds that `from_array` must look at."""
    kind = type(value)
    if kind is np.ndarray:
        return (value.dtype, value.shape, value.strides, value.flags.writeable), _word_at(id(value) + _DATA).value or 0
    if kind is Tensor:
        return value.form, value.start
    if kind in torch_kinds() and not value.requires_grad and is_plain(value):
        if value.is_cpu:
            return (value.dtype, value.shape, value.stride()), value.data_ptr()
        return (value.dtype, value.shape, value.stride(), value.device), value.data_ptr()
    return None


@functools.cache
def _unusual_keys() -> int:
    """torch's dispatch keys of all but plain tensors, as bits: sparse and quantized ones, fake ones, those that a transform wraps, …"""
    keys = sys.modules["torch"]._C.DispatchKey
    usual = 0
    for device in ("CPU", "CUDA"):
        for name in (device, f"Autograd{device}", f"Autocast{device}", "ADInplaceOrView"):
            usual |= sys.modules["torch"]._C.DispatchKeySet(getattr(keys, name)).raw_repr()
    return ~usual


def is_plain(tensor: Any) -> bool:
    """Whether the value of a torch tensor is what memory holds, on a CPU or a CUDA device, and nothing traces what becomes of it."""
    inside = sys.modules["torch"]._C
    if inside._dispatch_keys(tensor).raw_repr() & _unusual_keys():
        return False
    tracing = inside._TorchDispatchModeKey
    return not inside._len_torch_dispatch_stack() or not any(
        inside._get_dispatch_mode(key) for key in (tracing.FAKE, tracing.FUNCTIONAL, tracing.PROXY)
    )


def torch_kinds() -> tuple[type, ...]:
    """The types of torch's own tensors; none where torch is not imported."""
    torch = sys.modules.get("torch")
    return () if torch is None else (torch.Tensor, torch.nn.Parameter)
