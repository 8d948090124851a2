"""A C++ program, built with sanitizers, that plays random sequences of calls against the headers and libraries."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from anycann import cabi
from anycann.errors import CODES

DRIVER = Path(__file__).parent / "fuzz_driver.cpp"
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
# Leaks are looked for in our registries: Python keeps memory to the end. Freed memory is kept apart for a while, which counts as growth.
OPTIONS = "detect_leaks=0:quarantine_size_mb=1:malloc_context_size=2"
GROWTH = 8192  # KiB after the first third, of plans that are kept by description


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("fuzz") / "driver"
    flags = ["-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZERS]
    done = subprocess.run(
        ["g++", *flags, DRIVER, *cabi.cflags(), *cabi.libs(), "-ldl", "-o", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return program


@pytest.mark.parametrize(("first", "count"), [(0, 10_000), pytest.param(10_000, 100_000, marks=pytest.mark.slow)])
def test_random_sequences_of_calls(driver: Path, first: int, count: int) -> None:
    words = [str(driver), str(first), str(count), *map(str, CODES)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=dict(os.environ) | {"ASAN_OPTIONS": OPTIONS})
    print(done.stdout)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-3000:] + done.stderr[-10_000:]
    figures = dict(re.findall(r"^([a-z ]+\d*): (-?\d+)", done.stdout, re.MULTILINE))
    assert int(figures["sequences"]) == count
    assert int(figures["left"]) == 0, "objects live that were destroyed"
    assert int(figures["growth"]) < GROWTH
    met = {int(name.split()[1]) for name in figures if name.startswith("status")}
    assert {0, 100000, 107000, 107002, 107017, 161001, 161002, 207001, 361001, 561103} <= met, "the sequences do not reach everything"
