"""A C++ program with many threads and streams: the same bits as one call after the other, and every thread reads its own errors."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from anycann import cabi

PROGRAM = Path(__file__).parent / "threads.cpp"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("threads") / "threads"
    flags = ["-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    done = subprocess.run(["g++", *flags, PROGRAM, *cabi.cflags(), *cabi.libs(), "-o", made], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return made


def run(program: Path, *words: object, **environment: str) -> dict[str, str]:
    """The figures that the program prints."""
    done = subprocess.run(
        [program, *map(str, words)], capture_output=True, text=True, check=False, timeout=600, env=dict(os.environ) | environment
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return dict(re.findall(r"^([a-z ]+): (\S+)", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("threads", ["1", "4"])
def test_64_threads_with_1000_calls_each_over_32_streams(program: Path, threads: str) -> None:
    figures = run(program, "threads", 1000, ANYCANN_NUM_THREADS=threads)
    assert {name: figures[name] for name in ("calls", "different", "wrong texts")} == {
        "calls": "64000",
        "different": "0",
        "wrong texts": "0",
    }


def test_the_program_that_measures_a_call_runs(program: Path) -> None:
    figures = run(program, "cost", 200)
    assert float(figures["first"]) > 0
    assert 0 < float(figures["call"]) < 1e5
