"""Operators on DTensors, in 2 and 4 processes over gloo: `sharded_calls` compares them with one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("sharded_calls.py")


@pytest.mark.parametrize(("processes", "calls"), [(2, 200), (4, 140)])
def test_sharded_calls_give_what_one_process_gives(processes: int, calls: int, tmp_path: Path) -> None:
    """On a line of 2, a line of 4 and a plane of 2 x 2; nothing is sent where every rank has its part."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    environment["PYTHONWARNINGS"] = "ignore:DTensor random operators may not have complete support:UserWarning"  # in torch 2.6
    command = [sys.executable, str(PROGRAM)]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(processes), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if rank == 0 else subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        for rank in range(processes)
    ]
    try:
        printed = [one.communicate(timeout=600)[0] for one in started]
    finally:
        for one in started:
            one.kill()
    assert [one.returncode for one in started] == [0] * processes, printed[0]
    lines = [line for line in printed[0].splitlines() if not line.startswith(("[rank0]", "[Gloo]"))]  # gloo of torch 2.8 prints
    assert len(lines) == 1, printed[0]
    assert int(lines[0].removesuffix(" calls")) >= calls
