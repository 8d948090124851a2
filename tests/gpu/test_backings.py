"""The C interface and the two phases with CUDA behind them: on a GPU where there is one, else on a fake and in Triton's interpreter."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from anycann import ops

ROOT = Path(__file__).resolve().parents[2]
HERE, DEVICE, EXAMPLES = ROOT / "tests" / "gpu", ROOT / "tests" / "device", ROOT / "examples"
compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
REAL = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
SETTINGS = {"ANYCANN_DEVICE": "cuda"} | ({} if REAL else {"TRITON_INTERPRET": "1"})
PATHS = os.pathsep.join([str(HERE), str(DEVICE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
RULES = [DEVICE / f"test_device_{name}.py" for name in ("memory", "streams", "phases")]
PROGRAMS = ["gelu_backward_v2", "moe_token_permute_grad", "nsa_compress_grad", "repeatable_executor", "pyacl_copy", "ctypes_gelu"]
if any(operator.spec.python == "smooth_l1_loss" and operator.has_kernels("gpu") for operator in ops.OPERATORS):
    PROGRAMS.append("smooth_l1_loss_backward")
if REAL:
    PROGRAMS.append("two_streams")  # many elements for an interpreter

without_gpu = pytest.mark.skipif(REAL, reason="the same is tried on the GPU")
with_compiler = pytest.mark.skipif(importlib.util.find_spec("cffi") is None or compiler is None, reason="needs cffi and a C++ compiler")


def run(*words: object, **more: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "ANYCANN_EXPLAIN")}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment | more, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def passes(*paths: object, **more: str) -> str:
    found = run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *paths, **more)
    assert " passed" in found
    return found


@without_gpu
def test_the_two_phases_on_a_fake() -> None:
    passes("-p", "fake_cuda", HERE / "two_phases_on_a_fake.py", PYTHONPATH=PATHS)


@without_gpu
def test_the_device_on_a_fake() -> None:
    passes("-p", "fake_cuda", HERE / "device_on_a_fake.py", ANYCANN_DEVICE="cuda", PYTHONPATH=PATHS)


@without_gpu
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_the_rules_of_the_device_on_a_fake(path: Path) -> None:
    passes("-p", "fake_cuda", path, ANYCANN_DEVICE="cuda", PYTHONPATH=PATHS)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_the_rules_of_the_device(path: Path) -> None:
    passes(path, **SETTINGS)


@with_compiler
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    (program,) = (path for path in EXAMPLES.glob(f"{name}.*") if path.suffix in (".cpp", ".py"))
    expected = (EXAMPLES / "expected" / f"{name}.txt").read_text(encoding="utf-8")
    assert run("-m", "anycann.cli", "run", program, **SETTINGS) == expected


@with_compiler
def test_the_kernels_are_those_of_gpus() -> None:
    program = EXAMPLES / "ctypes_gelu.py"
    code = (
        "import runpy, sys; from anycann import cabi; "
        f"runpy.run_path({str(program)!r}, run_name='__main__'); "
        "print(sorted(name for name in sys.modules if name.startswith('anycann.ops.gelu_backward_v2.') and name[-3:] in ('cpu', 'gpu')))"
    )
    library = run("-c", "from anycann import cabi; print(cabi.home() / 'lib64')").strip()
    found = run("-c", code, **SETTINGS, LD_LIBRARY_PATH=library)
    assert found.splitlines()[-1] == "['anycann.ops.gelu_backward_v2.gpu']"
