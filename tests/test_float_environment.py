"""Threads that round and flush as they like: results keep their bits, and threads their ways."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import ctypes, hashlib, sys
import numpy as np
import torch
import anycann
from contract_calls import sample
from contract_facts import FACTS, GELU, GELU_V2, SMOOTH_L1

way, warm = sys.argv[1], sys.argv[2] == "warm"
libm, upwards = ctypes.CDLL("libm.so.6"), 0x800


def choose():
    torch.set_flush_denormal(way == "flush")
    libm.fesetround(upwards if way == "up" else 0)


def small(array):
    # many are subnormal, or their products are
    least = {"float16": 2.0**-20, "bfloat16": 2.0**-126, "float32": 2.0**-126}
    return array if array.dtype.kind in "iu" else (array.astype(np.float64) * least[array.dtype.name]).astype(array.dtype)


calls = [sample(fact, kind) for fact in FACTS for kind in ("float16", "bfloat16", "float32")]
calls += [sample(fact, "float32", a=512, b=8, c=128) for fact in (GELU, GELU_V2, SMOOTH_L1)]  # which threads share
inputs = [{name: change(array) for name, array in call.inputs.items()} for call in calls for change in (small, np.array)]
calls = [call for call in calls for _ in range(2)]
digest = hashlib.sha256()
for threads in (1, 2):
    anycann.set_num_threads(threads)
    if warm:
        for call, given in zip(calls, inputs, strict=True):
            call.results(**given)
    choose()
    for call, given in zip(calls, inputs, strict=True):
        for result in call.results(**given) + call.results(**given):
            digest.update(result.tobytes())
    kept = bool(np.float32(1e-39) * np.float32(1) == 0), libm.fegetround()
    assert kept == (way == "flush", upwards if way == "up" else 0), kept
    torch.set_flush_denormal(False)
    libm.fesetround(0)
print(digest.hexdigest())
"""


def digest(way: str, warm: str) -> str:
    command = [sys.executable, "-c", PROGRAM, way, warm]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="sets the environment as x86-64 Linux has it")
def test_results_do_not_depend_on_how_a_thread_rounds_and_flushes() -> None:
    expected = digest("usual", "cold")
    assert digest("flush", "cold") == expected
    assert digest("up", "warm") == expected
