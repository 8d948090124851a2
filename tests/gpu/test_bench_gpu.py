"""The GPU benchmark's course, judged on a stand-in for the device: the CPU with its clock."""

import dataclasses
import itertools
import json
import sys
import time
import types

import numpy as np
import pytest
import torch

import anycann
from anycann.bench import gpu, machine, plot, run, targets
from anycann.bench.race import Rules, WrongResult
from anycann.bench.run import Job, Settings
from anycann.bench.targets import Steps
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
    "layer_norm": Workload(
        "tiny", {"input": (40, 24), "weightOptional": (24,), "biasOptional": (24,)}, {"normalizedShape": (24,), "eps": 1e-5}
    ),
    "layer_norm_backward": Workload(
        "tiny",
        {"gradOut": (40, 24), "input": (40, 24), "mean": (40, 1), "rstd": (40, 1), "weightOptional": (24,)},
        {"normalizedShape": (24,)},
    ),
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


def _module(monkeypatch, name, **functions):
    """A library that is not installed, of which only these functions are there."""
    parts = name.split(".")
    for end in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:end]), types.ModuleType(parts[end - 1]))
    vars(sys.modules[name]).update(functions)


def _forward(x, weight, bias, eps):
    out, mean, rstd = torch.native_layer_norm(x, weight.shape, weight.to(x.dtype), bias.to(x.dtype), eps)
    return out, mean.float().view(-1), rstd.float().view(-1)


def _backward(dy, x, weight, mean, rstd):
    assert mean.dtype == rstd.dtype == torch.float32
    assert mean.shape == rstd.shape == x.shape[:1]
    operands = dy.float(), x.float(), weight.shape, mean[:, None], rstd[:, None], weight.float(), weight.float(), [True] * 3
    return tuple(made.to(x.dtype) for made in torch.ops.aten.native_layer_norm_backward(*operands))


def _liger(monkeypatch):
    def forward(X, W, B, eps):
        out, mean, rstd = _forward(X, W, B, eps)
        return out, X, mean, rstd, 1024, 4

    def backward(dY, X, W, B, Mean, RSTD, needs_dw=None, needs_db=None):
        return _backward(dY, X, W, Mean, RSTD)

    _module(monkeypatch, "liger_kernel.ops.layer_norm", layer_norm_forward=forward, layer_norm_backward=backward)


def _quack(monkeypatch):
    def forward(x, weight, bias=None, eps=1e-6, return_rstd=False, return_mean=False):
        assert weight.dtype == bias.dtype == torch.float32
        assert return_rstd
        assert return_mean
        out, mean, rstd = _forward(x, weight, bias, eps)
        return out, rstd, mean

    def backward(x, weight, dout, rstd, mean, has_bias=True):
        return _backward(dout, x, weight, mean, rstd)

    _module(monkeypatch, "quack.rmsnorm", layernorm_fwd=forward, layernorm_bwd=backward)


def _te(monkeypatch):
    def permute(inp, routing_map, map_type="mask"):
        assert map_type == "index"
        order = torch.argsort(routing_map.view(-1), stable=True)
        return inp.index_select(0, order // routing_map.shape[1]), order

    _module(monkeypatch, "transformer_engine.pytorch", moe_permute=permute)


NORMS = [name for name in TINY if name.startswith("layer_norm")]


@pytest.mark.parametrize(
    ("library", "name"), [*itertools.product(("liger", "quack"), NORMS), ("te", "moe_token_permute_grad")], ids=lambda part: part
)
def test_libraries_are_called_as_they_are_documented(monkeypatch, library, name):
    {"liger": _liger, "quack": _quack, "te": _te}[library](monkeypatch)
    found = gpu.race(gpu.prepare(*_parts(job(name))), Host(), Rules(3, 1.0, (library,)))
    assert [(peer.library, peer.state) for peer in found.others] == [(library, "ok")]
    apart = dataclasses.replace(targets.target(name, "bfloat16", {}, 1), against={library: targets.NEVER_SLOWER})
    monkeypatch.setattr(gpu, "target", lambda problem: apart)
    kinds = [each["kind"] for each in gpu.lines(found)[0].comparisons()]
    assert kinds == [f"best of {library}", "ceiling"]


def _parts(chosen):
    return chosen.operator, chosen.workload, chosen.dtype


@pytest.mark.parametrize("name", TINY)
def test_targets(name):
    problem = gpu.prepare(*_parts(job(name)))
    assert gpu.target(problem).ratio.gate == 1.0
    large = dataclasses.replace(problem, outs=tuple(np.broadcast_to(out.reshape(-1)[:1], (1 << 25,)) for out in problem.outs))
    assert gpu.target(large).share is not None
    assert gpu.target(large).operator == name


@pytest.mark.parametrize(("columns", "asked"), [(128, 3.0), (2048, 3.0), (4096, 1.0)])
def test_sums_of_narrow_rows_are_held_against_three_times_the_speed_of_liger(columns, asked):
    problem = gpu.prepare(*_parts(job("layer_norm_grad_beta")))
    wide = dataclasses.replace(problem, outs=(np.empty(columns), np.empty(columns), np.empty(targets.LARGE, np.uint8)))
    assert gpu.target(wide).against == {"liger": Steps(asked), "quack": Steps(0.97)}
