"""The GPU benchmark's course, judged on a stand-in for the device: the CPU with its clock."""

import dataclasses
import json
import time

import numpy as np
import pytest
import torch

import anycann
from anycann.bench import gpu, machine, plot, run
from anycann.bench.race import Rules, WrongResult
from anycann.bench.run import Job, Settings
from anycann.runtime import operator_of
from anycann.spec import Workload


class Host(gpu.Device):
    def __init__(self):
        self.name, self.found = "cpu", {}
        self.source, self.copy = torch.ones(1 << 16, dtype=torch.uint8), torch.ones(1 << 16, dtype=torch.uint8)

    def seconds(self, call):
        begin = time.perf_counter()
        call()
        return time.perf_counter() - begin


TINY = {
    "gelu_backward_v2": Workload("tiny", {"gradOutput": (9, 40), "self": (9, 40)}),
    "smooth_l1_loss_backward": Workload("tiny", {"gradOut": (1,), "self": (9, 40), "target": (9, 40)}, {"reduction": 1, "beta": 1.0}),
    "layer_norm_grad_beta": Workload("tiny", {"resForGamma": (40, 24), "inputDy": (40, 24)}),
    "moe_token_permute_grad": Workload("tiny", {"permutedOutputGrad": (32, 24), "sortedIndices": (32,)}, {"numTopk": 4}),
    "nsa_compress_grad": Workload(
        "tiny",
        {"outputGrad": (7, 2, 16), "input": (128, 2, 16), "weight": (32, 2)},
        {"compressBlockSize": 32, "compressStride": 16},
    ),
}


def job(name):
    return Job(operator_of(vars(anycann)[name]), TINY[name], "bfloat16")


def test_a_report_and_its_picture(tmp_path):
    settings = Settings(Rules(3, 1.0, ("torch",)), overhead=False)
    report = run.report([job(name) for name in TINY], settings, measure=Host().measure, described=machine.describe)
    assert report["right"]
    found = json.loads(json.dumps(report))
    assert [result["operator"] for result in found["results"]] == [*TINY]
    for result in found["results"]:
        into = next(line for line in result["lines"] if not line["allocates"])
        assert result["ceiling"]["name"] == "copy"
        assert "ceiling" in {each["kind"] for each in into["comparisons"]}
        assert any(each["library"] == "torch" and each["state"] == "ok" for each in result["contenders"]), result["contenders"]
    if plot.available():
        plot.draw(found, str(tmp_path / "bench.png"))
        assert (tmp_path / "bench.png").stat().st_size > 1000


def test_other_bits_than_the_cpus_have_no_speed(monkeypatch):
    problem = gpu.prepare(*_parts(job("gelu_backward_v2")))
    placed = gpu._placed

    def spoiled(problem, device):
        made = placed(problem, device)
        next(iter(made.inputs.values())).view(torch.uint8).view(-1)[0] ^= 1
        return made

    monkeypatch.setattr(gpu, "_placed", spoiled)
    with pytest.raises(WrongResult, match="1 of 360 elements of gradInput differ from the CPU's"):
        gpu.race(problem, Host(), Rules(3, 1.0, ()))


def _parts(chosen):
    return chosen.operator, chosen.workload, chosen.dtype


@pytest.mark.parametrize("name", TINY)
def test_targets(name):
    problem = gpu.prepare(*_parts(job(name)))
    assert gpu.target(problem).ratio.gate == 1.0
    large = dataclasses.replace(problem, outs=tuple(np.broadcast_to(out.reshape(-1)[:1], (1 << 25,)) for out in problem.outs))
    assert gpu.target(large).share is not None
    assert gpu.target(large).operator == name
