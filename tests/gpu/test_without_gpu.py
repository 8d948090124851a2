"""What is said where there is no CUDA device, and that nothing is imported for one before it is asked for."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import anycann
from anycann import aclnn
from anycann.tensor import _from_torch

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
    there = "self is on device {}, and anycann runs on CPUs and CUDA devices: "
    with pytest.raises(RuntimeError, match=there.format("meta") + r"call torch\.ops\.anycann\.gelu_backward_v2, which infers shapes"):
        anycann.gelu_backward_v2(torch.ones(4), torch.ones(4, device="meta"))
    apple = SimpleNamespace(device="mps:0", layout=torch.strided, is_conj=lambda: False, is_neg=lambda: False)
    vars(apple).update(dict.fromkeys(("requires_grad", "is_quantized", "is_cpu", "is_cuda", "is_meta"), False))
    with pytest.raises(RuntimeError, match=there.format("mps:0") + r"pass self\.cpu\(\)"):
        _from_torch(torch, apple, "self", "anycann.gelu_backward_v2")


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


@without_gpu
def test_streams_and_workspaces_of_a_gpu() -> None:
    for make in (lambda: aclnn.Stream(device="cuda"), lambda: aclnn.Stream("cuda:1"), lambda: aclnn.empty_workspace(8, "cuda:0")):
        with pytest.raises(RuntimeError, match=r"is on cuda\S*, and torch .* finds no CUDA device: install a build of torch for CUDA"):
            make()
    grad = Elsewhere("interface")
    with pytest.raises(RuntimeError, match="gradOutput is on a CUDA device, and torch"):
        aclnn.aclnnGeluBackwardV2GetWorkspaceSize(grad, grad, "none", grad)


PROGRAM = """
import sys
sys.modules |= dict.fromkeys(sys.argv[1:])  # packages that are not there
from anycann import acl, device, ops
print(acl.init(), acl.rt.set_device(0), acl.rt.get_device_count()[1], acl.rt.create_context(0)[1], acl.rt.malloc(8, 0)[1], end=" ")
operator = next(one for one in ops.OPERATORS if one.spec.python == "gelu_backward_v2")
handles = [device.CALLS["aclCreateTensor"]((4,), 0, None, 0, 2, (4,), 0) for _ in range(3)]
try:
    device.two_phase(operator)[0](handles[0], handles[1], "none", handles[2])
    print(0)
except ValueError as error:
    print(error.status)
print(sorted(name for name in ("torch", "triton") if sys.modules.get(name)))
print((acl.get_recent_err_msg() or "nothing").splitlines()[-1])
"""
ABSENT = "ANYCANN_DEVICE must name a device that can be used; got 'cuda', and "


def started(*missing: str, **settings: str) -> list[str]:
    """What a program gets: statuses, the packages that were imported, the first text."""
    command = [sys.executable, "-c", PROGRAM, *missing]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | settings
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@without_gpu
@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ((), "torch 2"),
        (("torch",), "torch, by way of which anycann reaches CUDA devices, is not installed: pip install 'anycann[gpu]'"),
        (("triton",), "Triton is not installed: pip install 'anycann[gpu]'"),
    ],
    ids=["no GPU", "no torch", "no Triton"],
)
def test_programs_that_ask_for_what_is_not_there(missing: tuple[str, ...], why: str) -> None:
    statuses, _, text = started(*missing, ANYCANN_DEVICE="cuda")
    assert statuses == "207000 207000 207000 207000 107002 207000"
    assert text.startswith(f"aclInit: {ABSENT}{why}")
    assert text.endswith("Without the variable, programs run on the CPU. [ACL_ERROR_RT_FEATURE_NOT_SUPPORT 207000]")


def test_the_interpreter_needs_triton_too() -> None:
    statuses, _, text = started("triton", ANYCANN_DEVICE="cuda", TRITON_INTERPRET="1")
    assert statuses == "207000 207000 207000 207000 107002 207000"
    assert f"{ABSENT}Triton is not installed" in text


@pytest.mark.parametrize("name", ["gpu", "cuda0", "cuda:", "cuda:-1", "CUDA", "npu:0"])
def test_devices_that_there_are_not(name: str) -> None:
    statuses, _, text = started(ANYCANN_DEVICE=name)
    assert statuses == "100000 100000 100000 100000 107002 161002"  # of phase 1 as for every variable
    assert text == f"aclInit: ANYCANN_DEVICE must be cpu, cuda or cuda:N; got {name!r}. Set one of these, or none for the CPU. " + (
        "[ACL_ERROR_INVALID_PARAM 100000]"
    )


def test_the_check_mode_is_the_cpus() -> None:
    for more in ({}, {"TRITON_INTERPRET": "1"}):
        statuses, imported, text = started(ANYCANN_DEVICE="cuda", ANYCANN_CHECK="1", **more)
        assert (statuses, imported) == ("207000 207000 207000 207000 107002 207000", "[]")
        assert "ANYCANN_DEVICE must be cpu in the check mode, which watches memory of the CPU; got 'cuda'. Unset" in text


@pytest.mark.parametrize("name", ["", "cpu"])
def test_the_cpu_needs_neither(name: str) -> None:
    statuses, imported, text = started("torch", "triton", ANYCANN_DEVICE=name)
    assert (statuses, imported, text) == ("0 0 0 0 0 0", "[]", "nothing")


def kernels() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function that Triton compiles."""
    for path in sorted(Path(anycann.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(isinstance(mark, ast.Name) and mark.id == "jit" for mark in node.decorator_list):
                yield f"{path.parent.name}/{path.name}", node


def test_kernels_avoid_what_only_some_versions_of_triton_understand() -> None:
    """A constant -0.0, of which 3.7 makes 0.0, and targets within targets of an assignment, at which it fails."""
    found = list(kernels())
    assert len(found) > 50
    for path, kernel in found:
        for node in ast.walk(kernel):
            where = f"{path}: {ast.unparse(node)}" if isinstance(node, (ast.UnaryOp, ast.Assign)) else ""
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
                assert node.operand.value != 0, where
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                assert not any(isinstance(target, ast.Tuple) for target in node.targets[0].elts), where
