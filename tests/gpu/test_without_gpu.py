"""What is said where there is no CUDA device, and that nothing is imported for one before it is asked for."""

import subprocess
import sys

import numpy as np
import pytest
import torch

import anycann

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")


class Elsewhere:
    """Memory of a GPU that this process cannot reach."""

    def __init__(self, protocol: str) -> None:
        if protocol == "interface":
            self.__cuda_array_interface__ = {"version": 3, "shape": (4,), "typestr": "<f4", "data": (1 << 40, False), "strides": None}
        else:
            self.__dlpack_device__ = lambda: (2, 1)
            self.__dlpack__ = lambda **_: None


@without_gpu
@pytest.mark.parametrize(("protocol", "place"), [("interface", "a CUDA device"), ("dlpack", "cuda:1")])
def test_arrays_of_a_gpu_that_torch_does_not_find(protocol: str, place: str) -> None:
    with pytest.raises(RuntimeError, match=f"grad_output is on {place}, and torch .* finds no CUDA device"):
        anycann.gelu_backward_v2(Elsewhere(protocol), np.ones(4, np.float32))


def test_other_devices_are_named() -> None:
    with pytest.raises(RuntimeError, match=r"self is on device meta, and anycann runs on CPUs and CUDA devices: pass self\.cpu\(\)"):
        anycann.gelu_backward_v2(torch.ones(4), torch.ones(4, device="meta"))


def test_nothing_of_the_gpu_is_imported_for_the_cpu() -> None:
    code = (
        "import sys, numpy, anycann; anycann.gelu_backward_v2(numpy.ones(4, 'f'), numpy.ones(4, 'f')); "
        "print([name for name in ('triton', 'torch', 'anycann.backends.gpu') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@without_gpu
@pytest.mark.parametrize(("device", "message"), [("cuda", "needs a CUDA device"), ("tpu", "must be cpu, cuda or cuda:N")])
def test_a_benchmark_on_a_device_that_is_not_there(device: str, message: str) -> None:
    command = [sys.executable, "-m", "anycann.cli", "bench", "gelu_backward_v2", "--quick", "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr
