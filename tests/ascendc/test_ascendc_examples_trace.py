"""The examples print what their .out files say; a trace has the timeline of every pipe."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from ascendc_paths import EXAMPLES, ROOT

from anycann import ascendc


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example(script):
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == script.with_suffix(".out").read_text()


def test_trace(tmp_path):
    module = ascendc.build(EXAMPLES / "add.cpp", tiling={"share": "uint32_t", "tile": "uint32_t"})
    x = np.zeros(2048, np.float32)
    summary = module.add[2](x, x.copy(), x.copy(), {"share": 1024, "tile": 256}, trace=tmp_path / "add.json")
    trace = json.loads((tmp_path / "add.json").read_text())
    events = trace["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {"S scalar", "V vector", "MTE2 GM to UB", "MTE3 UB to GM", "queues", "flags"}
    spans = [(names[e["pid"], e["tid"]], e["name"], e["args"]["bytes"], e["args"]["at"]) for e in events if e["ph"] == "X"]
    line = (EXAMPLES / "add.cpp").read_text().split("AscendC::DataCopy(x,")[0].count("\n") + 1
    assert spans.count(("MTE2 GM to UB", "DataCopy", 1024, f"add.cpp:{line}")) == 8
    assert sum(1 for track, name, *_ in spans if (track, name) == ("V vector", "Add")) == 8
    marks = [e["name"] for e in events if e["ph"] == "i"]
    assert {name: marks.count(name) for name in ("AllocTensor", "EnQue", "DeQue", "FreeTensor")} == dict.fromkeys(
        ("AllocTensor", "EnQue", "DeQue", "FreeTensor"), 24
    )
    by_pipe: dict[tuple[int, int], float] = {}
    for event in (e for e in events if e["ph"] == "X"):  # a pipe does one thing at a time
        key = event["pid"], event["tid"]
        assert event["ts"] >= by_pipe.get(key, 0) - 1e-9
        by_pipe[key] = event["ts"] + event["dur"]
    assert (summary.ub_peak, summary.ub_limit) == (6 * 1024, 188160)
    assert (summary.gm_read, summary.gm_written) == (2 * 2048 * 4 + 2 * 8, 2048 * 4)
    assert list(summary.queues.values()) == [1, 1, 1]
    assert "Unified Buffer  6144 of 188160 bytes at most (3.3 %)" in str(summary)


def test_double_buffering_shows_in_the_timeline(tmp_path):
    """The second copy begins before the first sum ends: that is what the second buffer is for."""
    module = ascendc.build(EXAMPLES / "add.cpp", tiling={"share": "uint32_t", "tile": "uint32_t"})
    x = np.zeros(16384, np.float32)
    module.add[1](x, x.copy(), x.copy(), {"share": 16384, "tile": 4096}, trace=tmp_path / "t.json")
    spans = [e for e in json.loads((tmp_path / "t.json").read_text())["traceEvents"] if e["ph"] == "X"]
    copies, sums = [e for e in spans if e["tid"] == 2], [e for e in spans if e["name"] == "Add"]
    assert copies[2]["ts"] < sums[0]["ts"] + sums[0]["dur"]


def test_a_trace_needs_the_checked_build(tmp_path):
    module = ascendc.build(EXAMPLES / "add.cpp", tiling={"share": "uint32_t", "tile": "uint32_t"}, check=False)
    x = np.zeros(256, np.float32)
    with pytest.raises(ValueError, match="built with check=True"):
        module.add[1](x, x.copy(), x.copy(), {"share": 256, "tile": 256}, trace=tmp_path / "t.json")


def test_the_page_shows_what_its_launch_says(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "ascendc.md").read_text()
    program, report = (re.search(rf"```{kind}\n(.*?)```", page, re.DOTALL)[1] for kind in ("python", "text"))
    copy = tmp_path / "examples" / "ascendc" / "add.cpp"
    copy.parent.mkdir(parents=True)
    text = (EXAMPLES / "add.cpp").read_text()
    monkeypatch.chdir(tmp_path)
    copy.write_text(text)
    names: dict[str, object] = {}
    exec(program, names)
    assert (names["z"] == names["x"] + 1).all()
    copy.write_text(text.replace("        yQueue_.FreeTensor(y);\n", ""))
    with pytest.raises(ascendc.KernelError) as caught:
        exec(program, {})
    assert str(caught.value) == report
