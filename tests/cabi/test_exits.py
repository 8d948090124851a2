"""C++ programs that end, in whatever way, while operators are queued: the work is done, and the exit status is theirs."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from anycann import cabi

PROGRAM = Path(__file__).parent / "exits.cpp"
WAYS = {"main": 0, "another": 0, "many": 0, "bytes": 0, "thread": 3, "child": 5, "ended": 0, "at once": 4}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("exits") / "exits"
    flags = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]
    done = subprocess.run(["g++", *flags, PROGRAM, *cabi.cflags(), *cabi.libs(), "-o", made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return made


def run(program: Path, how: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    settings = dict(os.environ) | environment
    return subprocess.run([program, how], capture_output=True, text=True, check=False, timeout=300, env=settings)


@pytest.mark.parametrize(("how", "status"), WAYS.items())
def test_a_program_may_end_while_operators_are_queued(program: Path, how: str, status: int) -> None:
    for _ in range(3):
        done = run(program, how)
        assert (done.returncode, done.stderr, done.stdout) == (status, "", "0\n" if how == "bytes" else "")


@pytest.mark.parametrize(("how", "status"), [("main", 1), ("another", 1), ("many", 1), ("thread", 3), ("ended", 1)])
def test_what_the_check_mode_found_is_said(program: Path, how: str, status: int) -> None:
    done = run(program, how, ANYCANN_CHECK="1")
    assert done.returncode == status
    assert done.stderr.count("anycann check: leak\n") == 4, done.stderr
    assert "of device memory were not freed" in done.stderr
    assert done.stderr.endswith(" findings\n")


@pytest.mark.parametrize("check", ["", "1"])
def test_signals_do_what_the_program_left_them_to_do(program: Path, check: str) -> None:
    assert run(program, "interrupt", ANYCANN_CHECK=check).returncode == -signal.SIGINT
    done = run(program, "handler", ANYCANN_CHECK=check)
    assert (done.returncode, done.stdout) == (int(bool(check)), "handled\n")  # what is left is found
