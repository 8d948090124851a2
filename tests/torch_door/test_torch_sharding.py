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
    command = [sys.executable, str(PROGRAM)]
    said = [(tmp_path / f"said {rank}").open("w+") for rank in range(processes)]
    started = [
        subprocess.Popen(
            [*command, str(rank), str(processes), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=said[rank],
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
        for file in said:
            file.close()
    assert [one.returncode for one in started] == [0] * processes, (tmp_path / "said 0").read_text()
    assert printed[1:] == [""] * (processes - 1)
    assert int(printed[0].removesuffix(" calls\n")) >= calls, printed[0]
