"""CUDA devices by way of torch, which is imported only where such a device is asked for: their memory, and arrays of others."""

import importlib.util
from typing import Any

from anycann.buffers import memory

__all__ = [
    "available",
    "copy",
    "count",
    "current_stream",
    "described",
    "empty",
    "fill",
    "give",
    "memory_of",
    "name_of",
    "need",
    "pinned",
    "snapshot",
    "take",
    "unreachable",
]

_LEGACY_DEFAULT = 1  # DLPack's number of CUDA's default stream, whose handle is 0
_reached: Any = None  # torch, once it has found a device


def unreachable() -> str | None:
    """Why there is no CUDA device to use, in words; None if there is one."""
    if importlib.util.find_spec("torch") is None:
        return "torch, by way of which anycann reaches CUDA devices, is not installed: pip install 'anycann[gpu]'"
    import torch

    return None if torch.cuda.is_available() else f"torch {torch.__version__} finds no CUDA device: install a build of torch for CUDA"


def need(name: str, device: str) -> Any:
    """The torch module, where it can reach the device that an array is on."""
    global _reached
    if _reached is None:
        why = unreachable()
        if why is not None:
            raise RuntimeError(f"{name} is on {device}, and {why}, or keep {name} on the CPU")
        import torch

        _reached = torch
    return _reached


def available() -> bool:
    """Whether there is a device that torch can reach."""
    return unreachable() is None


def name_of(device: object) -> str:
    """The name of a device, "cpu" or "cuda:N", from what torch takes for one; "cuda" is the current one."""
    text = str(device)
    kind, _, number = text.partition(":")
    if text == "cpu" or (kind == "cuda" and number.isdecimal()):
        return text
    if text != "cuda":
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:N'; got {device!r}")
    return f"cuda:{need('device', text).cuda.current_device()}"


def current_stream(name: str, index: int) -> int:
    """The stream on which kernels will run, as DLPack numbers it: a producer makes its data ready for it."""
    stream: int = need(name, f"cuda:{index}").cuda.current_stream(index).cuda_stream
    return stream or _LEGACY_DEFAULT


def described(array: Any, name: str) -> Any:
    """A torch tensor over the memory of an object with `__cuda_array_interface__`, ready for the current stream."""
    torch = need(name, "a CUDA device")
    tensor = torch.as_tensor(array)
    stream = array.__cuda_array_interface__.get("stream")
    if stream is not None:
        made_on = torch.cuda.ExternalStream(0 if stream == _LEGACY_DEFAULT else stream, tensor.device)
        torch.cuda.current_stream(tensor.device).wait_stream(made_on)
    return tensor


class _Memory:
    """Bytes at an address, for torch."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {"version": 3, "shape": (size,), "typestr": "|u1", "data": (address, False), "strides": None}


def empty(size: int, device: str) -> tuple[object, int]:
    """Uninitialised memory of torch's allocator, whose reuse follows the order of the current stream: its owner and its address."""
    torch = need("workspace", device)
    owner = torch.empty(size, dtype=torch.uint8, device=device)
    return owner, owner.data_ptr()


def _bytes(address: int, size: int, device: str) -> Any:
    """A torch tensor over the bytes at an address of a device; "cpu" for memory of the host."""
    torch = need("memory", device)
    if device != "cpu":
        return torch.as_tensor(_Memory(address, size), device=device)
    return torch.from_numpy(memory(address, (size,), "|u1", writable=True))


def snapshot(address: int, size: int, device: str) -> tuple[object, int]:
    """A copy of the bytes at an address, made on the current stream: its owner and its address."""
    owner = _bytes(address, size, device).clone()
    return owner, owner.data_ptr()


def copy(to: int, source: int, size: int, devices: tuple[str, str]) -> None:
    """Put a copy of bytes between these devices, "cpu" for the host, into the current stream; the bytes may overlap.

    Until the stream has come there, the memory must stay, and that of the host as it is. A copy within the host waits for the stream.
    """
    if devices == ("cpu", "cpu"):
        need("memory", "a CUDA device").cuda.current_stream().synchronize()
    target, origin = _bytes(to, size, devices[0]), _bytes(source, size, devices[1])
    overlap = devices[0] == devices[1] and abs(to - source) < size
    target.copy_(origin.clone() if overlap else origin, non_blocking=True)


def take(size: int, device: str) -> int | None:
    """The address of memory of torch's allocator, in the order of the default stream; None where there is not enough."""
    torch = need("memory", device)
    try:
        address: int = torch.cuda.caching_allocator_alloc(size, device, torch.cuda.default_stream(device))
    except torch.OutOfMemoryError:
        return None
    return address


def give(address: int) -> None:
    """Take back what `take` gave."""
    need("memory", "a CUDA device").cuda.caching_allocator_delete(address)


def memory_of(device: str) -> tuple[int, int]:
    """Bytes that nobody uses, those that torch's allocator keeps included, and bytes that a device has."""
    torch = need("memory", device)
    free, total = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device), total


def pinned(size: int, device: str) -> tuple[object, int] | None:
    """Page-locked memory of the host: its owner and its address; None where there is not enough."""
    torch = need("memory", device)
    try:
        owner = torch.empty(size, dtype=torch.uint8, pin_memory=True, device="cpu")
    except RuntimeError:  # torch has no name for it
        return None
    return owner, owner.data_ptr()


def count() -> int:
    """How many devices there are."""
    found: int = need("the device", "cuda").cuda.device_count()
    return found


def fill(to: int, value: int, size: int, device: str) -> None:
    """Set bytes, in the order of the current stream; those of the host, "cpu", are waited for."""
    if device == "cpu":
        need("memory", "a CUDA device").cuda.current_stream().synchronize()
    _bytes(to, size, device).fill_(value)
