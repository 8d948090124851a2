"""CUDA devices by way of torch, which is imported only where arrays on such a device are passed: streams, memory, arrays of others."""

import importlib.util
from typing import Any

__all__ = ["available", "current_stream", "described", "empty", "need", "snapshot"]

_LEGACY_DEFAULT = 1  # DLPack's number of CUDA's default stream, whose handle is 0


def need(name: str, device: str) -> Any:
    """The torch module, where it can reach the device that an array is on."""
    if importlib.util.find_spec("torch") is None:
        raise RuntimeError(
            f"{name} is on {device}, which anycann reaches by way of torch, and torch is not installed: pip install 'anycann[gpu]'"
        )
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError(
            f"{name} is on {device}, and torch {torch.__version__} finds no CUDA device: install a build of torch for CUDA, "
            f"or copy {name} to the CPU"
        )
    return torch


def available() -> bool:
    """Whether there is a device that torch can reach."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


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


def snapshot(address: int, size: int, device: str) -> tuple[object, int]:
    """A copy of the bytes at an address, made on the current stream: its owner and its address."""
    torch = need("memory", device)
    owner = torch.as_tensor(_Memory(address, size), device=device).clone()
    return owner, owner.data_ptr()
