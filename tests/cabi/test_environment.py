"""C++ programs with traps, with another rounding and with small numbers flushed to zero: the same bits, and the program's settings stay."""

import subprocess
from pathlib import Path

import pytest

from anycann import cabi

PROGRAM = Path(__file__).parent / "environment.cpp"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("environment") / "environment"
    flags = ["-std=c++17", "-O1", "-frounding-math", "-Wall", "-Wextra", "-Werror", "-pthread"]
    done = subprocess.run(["g++", *flags, PROGRAM, *cabi.cflags(), *cabi.libs(), "-o", made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return made


@pytest.mark.parametrize("how", ["traps", "upward", "flushing"])
def test_the_environment_of_a_program_is_not_that_of_the_operators(program: Path, how: str) -> None:
    words = ("as it is", how)
    found = [subprocess.run([program, word], capture_output=True, text=True, check=False, timeout=300) for word in words]
    assert [(done.returncode, done.stderr) for done in found] == [(0, ""), (0, "")]
    assert found[0].stdout == found[1].stdout
    assert found[0].stdout.startswith("00105564 ")
