"""A CUDA device that is none, in place of torch.cuda: memory that the host cannot touch, and streams that are late.

Work of a stream runs when it is waited for, one piece at each `query`, and not before what it waits for in other streams; until then
the memory of the device cannot be read. Memory that is given back while work is queued is an error. Kernels run in Triton's
interpreter. As a pytest plugin (`-p fake_cuda`) it is installed for the whole process.
"""

import contextlib
import ctypes
import itertools
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

CAPACITY = 1 << 28
POISON = 0xFE
DEVICE = torch.device("cuda:0")
_libc = ctypes.CDLL(None)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]

_lock = threading.RLock()
_area = mmap.mmap(-1, CAPACITY)
_low = ctypes.addressof(ctypes.c_char.from_buffer(_area))
_state = threading.local()
_handles = itertools.count(0x5000, 16)
log: list[tuple[Any, ...]] = []  # (what, stream's handle, …) of everything that was queued


@contextlib.contextmanager
def on_the_device() -> Iterator[None]:
    """As work of the device, which may touch its memory."""
    with _lock:
        _libc.mprotect(_low, CAPACITY, mmap.PROT_READ | mmap.PROT_WRITE)
        try:
            yield
        finally:
            _libc.mprotect(_low, CAPACITY, mmap.PROT_NONE if hasattr(mmap, "PROT_NONE") else 0)


class Allocator:
    """Blocks of the device."""

    def __init__(self) -> None:
        self.next = _low
        self.living: dict[int, int] = {}
        self.free: dict[int, list[int]] = {}

    def alloc(self, size: int, device: Any = None, stream: Any = None) -> int:
        assert torch.device(device) == DEVICE
        length = -(-size // 512) * 512
        with on_the_device():
            kept = self.free.get(length)
            if not kept and self.next + length > _low + CAPACITY:
                raise torch.OutOfMemoryError("CUDA out of memory")
            address = kept.pop() if kept else self.next
            self.next += 0 if address < self.next else length
            ctypes.memset(address, POISON, length)
            self.living[address] = length
        return address

    def delete(self, mem_ptr: int) -> None:
        with _lock:
            end = mem_ptr + self.living.pop(mem_ptr)
            used = [place for stream in Stream.all for _, places in stream.work for place in places if mem_ptr <= place < end]
            assert not used, "memory is given back before the work is done"
            self.free.setdefault(end - mem_ptr, []).append(mem_ptr)


allocator = Allocator()


class Stream:
    """torch.cuda.Stream."""

    all: "list[Stream]" = []

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        self.device = torch.device(DEVICE if device is None else device)
        self.cuda_stream = kwargs.get("handle", next(_handles))
        self.work: deque[tuple[Callable[[], None], tuple[int, ...]]] = deque()  # and the addresses that it uses
        Stream.all.append(self)

    def __eq__(self, o: object) -> bool:
        return isinstance(o, Stream) and o.cuda_stream == self.cuda_stream

    def __hash__(self) -> int:
        return hash(self.cuda_stream)

    def put(self, what: str, task: Callable[[], None], *places: int) -> None:
        with _lock:
            log.append((what, self.cuda_stream, *places))
            self.work.append((task, places))

    def step(self) -> None:
        with _lock:
            if self.work:
                self.work.popleft()[0]()

    def query(self) -> bool:
        with _lock:
            done = not self.work
            self.step()
            return done

    def synchronize(self) -> None:
        with _lock:
            log.append(("synchronize", self.cuda_stream))
            while self.work:
                self.step()

    def wait_event(self, event: "Event") -> None:
        place = event.place
        assert place is not None, "an event that was never recorded"
        self.put("wait_event", place.reach)

    def wait_stream(self, stream: "Stream") -> None:
        event = Event()
        event.record(stream)
        self.wait_event(event)


class ExternalStream(Stream):
    """torch.cuda.ExternalStream."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> Any:
        return next((one for one in Stream.all if one.cuda_stream == stream_ptr), None) or super().__new__(cls)

    def __init__(self, stream_ptr: int, device: Any = None, **kwargs: Any) -> None:
        super().__init__(device, handle=stream_ptr)


class Place:
    """One record of an event."""

    def __init__(self, stream: Stream) -> None:
        self.stream, self.time = stream, 0.0

    def pass_(self) -> None:
        self.time = time.perf_counter()

    def reach(self) -> None:
        while not self.time:
            self.stream.step()


class Event:
    """torch.cuda.Event."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False) -> None:
        self.timing = enable_timing
        self.place: Place | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.place = place = Place(stream or current_stream())
        place.stream.put("record", place.pass_)

    def query(self) -> bool:
        with _lock:
            done = self.place is None or bool(self.place.time)
            if not done and self.place is not None:
                self.place.stream.step()
            return done

    def synchronize(self) -> None:
        with _lock:
            if self.place is not None:
                self.place.reach()

    def elapsed_time(self, end_event: "Event") -> float:
        first, last = self.place, end_event.place
        assert all((self.timing, end_event.timing, first, first.time, last, last.time))
        return (last.time - first.time) * 1e3


DEFAULT = Stream(handle=0)


def default_stream(device: Any = None) -> Stream:
    return DEFAULT


def current_stream(device: Any = None) -> Stream:
    found: Stream = getattr(_state, "stream", DEFAULT)
    return found


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    before, _state.stream = current_stream(), stream
    try:
        yield
    finally:
        _state.stream = before


class Tensor(torch.Tensor):
    """A torch tensor on the device."""

    address: int
    owned: bool

    @staticmethod
    def at(address: int, shape: Any, dtype: torch.dtype = torch.uint8, owned: bool = False) -> "Tensor":
        made: Tensor = torch.Tensor._make_wrapper_subclass(Tensor, shape, dtype=dtype, device=DEVICE)
        made.address, made.owned = address, owned
        return made

    @classmethod
    def of(cls, array: Any) -> "Tensor":
        """A tensor that holds an array."""
        host = _REAL["tensor"](np.ascontiguousarray(array))
        made = cls.at(allocator.alloc(max(host.nbytes, 1), DEVICE), tuple(host.shape), host.dtype, owned=True)
        with on_the_device():
            ctypes.memmove(made.address, host.data_ptr(), host.nbytes)
        return made

    def data_ptr(self) -> int:
        return self.address

    def read(self) -> torch.Tensor:
        """What the device has computed by now."""
        result = torch.empty(tuple(self.shape), dtype=self.dtype)
        with on_the_device():
            ctypes.memmove(result.data_ptr(), self.address, result.nbytes)
        return result

    def record_stream(self, stream: Any) -> None:
        log.append(("record_stream", stream.cuda_stream, self.address))

    def fill_(self, value: Any) -> "Tensor":
        address, size = self.address, self.nbytes
        current_stream().put("fill", lambda: _set(address, value, size), address)
        return self

    def clone(self) -> "Tensor":
        made = Tensor.at(allocator.alloc(self.nbytes, DEVICE), tuple(self.shape), self.dtype)
        _queue_copy(made, self)
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_:
            assert kwargs == {"non_blocking": True}
            return _queue_copy(*args)
        return super().__torch_function__(func, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError(f"{func} of a tensor on no device")


def _set(address: int, value: int, size: int) -> None:
    with on_the_device():
        ctypes.memset(address, value, size)


def _queue_copy(to: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    sides, size = (to.data_ptr(), source.data_ptr()), to.nbytes
    kinds = (to.device.type, source.device.type)
    assert kinds[0] != kinds[1] or abs(sides[0] - sides[1]) >= size, "a copy within the device that overlaps"

    def run() -> None:
        with on_the_device():
            ctypes.memmove(*sides, size)

    current_stream().put(" to ".join(reversed(kinds)), run, *sides)
    return to


def _on_device(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cuda"


def _as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    if isinstance(data, torch.Tensor) or not hasattr(data, "__cuda_array_interface__"):
        return _REAL["as_tensor"](data, dtype=dtype, device=device)
    found = data.__cuda_array_interface__
    return Tensor.at(found["data"][0], found["shape"], getattr(torch, np.dtype(found["typestr"]).name))


def _empty(*size: Any, device: Any = None, dtype: Any = None, pin_memory: bool = False) -> Any:
    if not _on_device(device):
        return _REAL["empty"](*size, dtype=dtype)
    shape = size[0] if isinstance(size[0], tuple) else size
    return Tensor.at(allocator.alloc(max(int(np.prod(shape)) * dtype.itemsize, 1), DEVICE), shape, dtype, owned=True)


def _tensor(data: Any, *, dtype: Any = None, device: Any = None) -> Any:
    return Tensor.of(data) if _on_device(device) else _REAL["tensor"](data, dtype=dtype)


def _launch(start: Any, addresses: Any) -> None:
    """A kernel's launch on the current stream."""

    def run() -> None:
        with on_the_device():
            start._interpret(addresses)

    current_stream().put("kernel", run, *addresses)


CUDA: dict[str, Any] = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "current_stream": current_stream,
    "default_stream": default_stream,
    "stream": stream,
    "Stream": Stream,
    "ExternalStream": ExternalStream,
    "Event": Event,
    "is_current_stream_capturing": lambda: False,
    "caching_allocator_alloc": allocator.alloc,
    "caching_allocator_delete": allocator.delete,
    "mem_get_info": lambda device=None: (CAPACITY - sum(allocator.living.values()), CAPACITY),
    "get_device_properties": lambda device=None: SimpleNamespace(multi_processor_count=4, total_memory=CAPACITY),
    "memory_reserved": lambda device=None: 0,
    "memory_allocated": lambda device=None: 0,
}
TORCH: dict[str, Any] = {"as_tensor": _as_tensor, "empty": _empty, "tensor": _tensor}
_REAL = {name: getattr(torch, name) for name in TORCH}
REAL_CUDA = {name: getattr(torch.cuda, name) for name in CUDA}


def install() -> None:
    """Put the device in place, for the rest of the process; kernels in the interpreter, and anycann none the wiser."""
    from anycann.device import backing

    assert isinstance(backing.BACKING, backing.Cuda) or os.environ.get("ANYCANN_DEVICE", "cpu") == "cpu"
    os.environ["TRITON_INTERPRET"] = "1"
    _libc.mprotect(_low, CAPACITY, 0)
    for name, value in CUDA.items():
        setattr(torch.cuda, name, value)
    for name, value in TORCH.items():
        setattr(torch, name, value)
    from anycann import tensor, torch_match
    from anycann.backends import gpu

    gpu.Start._launch = _launch
    plain = tensor.is_plain
    for module in (tensor, torch_match):
        module.is_plain = lambda one: isinstance(one, Tensor) or plain(one)  # one of the device's is a subclass here


def pytest_configure() -> None:
    """As a plugin."""
    install()
