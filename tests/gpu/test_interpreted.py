"""The kernels' tests in Triton's interpreter: it must be chosen before triton is imported, so they have processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

KERNELS = Path(__file__).parent / "kernels"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the tests run on the GPU")
@pytest.mark.parametrize("path", sorted(KERNELS.glob("test_*.py")), ids=lambda path: path.stem)
def test_in_the_interpreter(path: Path, request: pytest.FixtureRequest) -> None:
    if os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("this process is the interpreter's")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", str(path)]
    command += ["--slow"] if request.config.getoption("--slow") else []
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
