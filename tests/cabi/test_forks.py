"""C++ programs that fork while other threads are in the library: the children can use it."""

import os
import subprocess
from pathlib import Path

import pytest

from anycann import cabi

PROGRAM = Path(__file__).parent / "forks.cpp"


@pytest.mark.parametrize("check", ["", "1"])
def test_children_of_a_fork_can_call(tmp_path: Path, check: str) -> None:
    program = tmp_path / "forks"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", *cabi.cflags()]
    done = subprocess.run(["g++", *flags, PROGRAM, *cabi.libs(), "-o", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    settings = dict(os.environ) | {"ANYCANN_CHECK": check}
    done = subprocess.run([program, "20"], capture_output=True, text=True, check=False, timeout=600, env=settings)
    assert (done.returncode, done.stdout) == (0, "20\n")
    assert done.stderr == ("anycann check: 0 findings\n" if check else "")
