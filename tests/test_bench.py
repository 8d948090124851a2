"""The benchmark: what it checks, refuses, compares and reports. Nothing here asks for a speed."""

import ctypes
import dataclasses
import importlib
import json
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

import anycann
from anycann import ops
from anycann.bench import overhead, peers, plot, problems, run, targets, timing
from anycann.bench.ceilings import Ceilings, Mix
from anycann.bench.race import Rules
from anycann.bench.targets import Steps
from anycann.cli.app import app
from anycann.runtime import Operator
from anycann.spec import Workload

OPERATORS = {operator.spec.python: operator for operator in ops.OPERATORS}
TINY = {  # no size is a whole number of vectors where the contract allows it
    "gelu_backward_v2": Workload("tiny", {"gradOutput": (9, 37), "self": (9, 37)}, {"approximate": "tanh"}),
    "gelu_v2": Workload("tiny", {"x": (9, 37)}, {"approximate": 1}),
    "smooth_l1_loss": Workload("tiny", {"self": (9, 37), "target": (9, 37)}, {"reduction": 0, "beta": 0.5}),
    "smooth_l1_loss_backward": Workload("tiny", {"gradOut": (1,), "self": (9, 37), "target": (9, 37)}, {"reduction": 1, "beta": 0.5}),
    "layer_norm": Workload("tiny", {"input": (40, 37), "weightOptional": (37,), "biasOptional": (37,)}, {"normalizedShape": (37,)}),
    "layer_norm_backward": Workload(
        "tiny",
        {"gradOut": (40, 37), "input": (40, 37), "mean": (40, 1), "rstd": (40, 1), "weightOptional": (37,)},
        {"normalizedShape": (37,)},
    ),
    "layer_norm_grad": Workload(
        "tiny", {"inputDy": (40, 37), "inputX": (40, 37), "inputVariance": (40,), "inputMean": (40,), "inputGamma": (37,)}
    ),
    "layer_norm_grad_beta": Workload("tiny", {"resForGamma": (40, 37), "inputDy": (40, 37)}),
    "moe_token_permute_grad": Workload("tiny", {"permutedOutputGrad": (24, 256), "sortedIndices": (24,)}, {"numTopk": 3}),
    "moe_token_permute": Workload("tiny", {"tokens": (12, 256), "indices": (12, 2)}),
    "moe_token_unpermute": Workload("tiny", {"permutedTokens": (24, 256), "sortedIndices": (24,), "probsOptional": (8, 3)}),
    "moe_token_unpermute_grad": Workload(
        "tiny",
        {"permuteTokensOptional": (24, 256), "unpermutedTokensGrad": (8, 256), "sortedIndices": (24,), "probsOptional": (8, 3)},
    ),
    "nsa_compress": Workload(
        "tiny",
        {"input": (64, 2, 16), "weight": (32, 2)},
        {"actSeqLenOptional": (64,), "compressBlockSize": 32, "compressStride": 16},
    ),
    "nsa_compress_grad": Workload(
        "tiny", {"outputGrad": (3, 2, 16), "input": (64, 2, 16), "weight": (32, 2)}, {"compressBlockSize": 32, "compressStride": 16}
    ),
}
SETTINGS = run.Settings(Rules(3, 0.1, ("torch", "numpy")), (1, 2), buffer_bytes=1 << 20, cache_bytes=0, overhead=False)


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(timing, "SETTLE", 1e-4)


def tiny_job(name, dtype="bfloat16"):
    return run.Job(OPERATORS[name], TINY[name], dtype)


def wrong_kernel(monkeypatch, name, spoil):
    """Make an operator's kernel end with spoil(address of the first output)."""
    kernels = importlib.import_module(f"anycann.ops.{name}.cpu")
    real = kernels.plan

    def plan(call):
        size, launch = real(call)
        first = len(call.spec.inputs)

        def spoiled(addresses, workspace):
            launch(addresses, workspace)
            spoil(addresses[first])

        return size, spoiled

    monkeypatch.setattr(kernels, "plan", plan)
    monkeypatch.setattr(OPERATORS[name], "_known", {})
    monkeypatch.setattr(OPERATORS[name], "_recent", {})
    monkeypatch.setattr(OPERATORS[name], "_latest", None)


def flip_a_bit(address):
    ctypes.c_uint8.from_address(address + 1).value ^= 4


@pytest.fixture(scope="module")
def small_report():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "SETTLE", 1e-4)
        return run.report([tiny_job(name) for name in TINY], SETTINGS)


def test_report_is_json_with_all_that_it_promises(small_report):
    report = json.loads(json.dumps(small_report))
    assert report["format"] == run.FORMAT
    assert report["right"] is True
    assert report["missing"] == []
    assert report["machine"]["cores"] >= 1
    assert report["machine"]["processor"]
    assert report["versions"]["numpy"] == np.__version__
    assert report["settings"]["threads"] == [1, 2]
    assert [(each["operator"], each["threads"]) for each in report["results"]] == [(name, n) for name in TINY for n in (1, 2)]
    for result in report["results"]:
        assert result["wrong"] is None
        assert [contender["library"] for contender in result["contenders"]][:2] == ["anycann", "anycann"]
        assert {"torch", "numpy"} <= {contender["library"] for contender in result["contenders"]}
        for contender in result["contenders"]:
            assert contender["state"] == "ok", contender
            assert contender["seconds"]["q1"] <= contender["seconds"]["median"] <= contender["seconds"]["q3"]
            assert len(contender["samples"]) == contender["seconds"]["samples"] == 3
            assert all(math.isfinite(output["MERE"]) for output in contender["error"])
        assert all(output["MERE"] < 2**-8 and output["max_ulp"] <= 0.51 for output in result["contenders"][0]["error"])
        assert [line["allocates"] for line in result["lines"]] == [False, True]
    names = {(each["name"], each["threads"]) for each in report["ceilings"]}
    assert names == {(name, n) for name in ("copy", "triad", "read", "two-stream read", "random rows") for n in (1, 2)}


def test_lines_compare_round_by_round(small_report):
    for result in small_report["results"]:
        ours = result["contenders"][0]["samples"]
        best = next(each for each in result["lines"][0]["comparisons"] if each["kind"] == "best peer")
        theirs = next(each["samples"] for each in result["contenders"] if each["name"] == best["name"])
        assert best["value"]["median"] == pytest.approx(np.median(np.divide(theirs, ours)))
        share = next(each for each in result["lines"][0]["comparisons"] if each["kind"] == "ceiling")
        scale = (result["bytes_read"] + result["bytes_written"]) / result["ceiling"]["bytes"]
        assert share["value"]["median"] == pytest.approx(np.median(scale * np.divide(result["ceiling"]["samples"], ours)))


def test_best_peer_is_the_fastest_that_is_comparable(small_report):
    for result in small_report["results"]:
        for line in result["lines"]:
            fair = [each for each in result["contenders"][2:] if each["allocates"] or not line["allocates"]]
            fastest = min(fair, key=lambda each: each["seconds"]["median"])
            assert line["comparisons"][0]["name"] == fastest["name"]


def test_each_problem_is_held_against_the_nearest_ceiling(small_report):
    found = {result["operator"]: result["ceiling"] for result in small_report["results"]}
    assert {name: ceiling["name"] for name, ceiling in found.items()} == {
        "gelu_backward_v2": "triad",
        "gelu_v2": "copy",
        "smooth_l1_loss": "triad",
        "smooth_l1_loss_backward": "triad",
        "layer_norm_grad_beta": "two-stream read",
        "layer_norm": "copy",
        "layer_norm_backward": "triad",
        "layer_norm_grad": "copy",
        "moe_token_permute": "copy",
        "moe_token_permute_grad": "random rows",
        "moe_token_unpermute": "random rows",
        "moe_token_unpermute_grad": "random rows",
        "nsa_compress": "read",
        "nsa_compress_grad": "copy",
    }
    assert (found["moe_token_permute_grad"]["reads"], found["moe_token_permute_grad"]["row_bytes"]) == (3, 512)


def test_bytes_count_each_input_and_output_once(small_report):
    result = next(each for each in small_report["results"] if each["operator"] == "smooth_l1_loss_backward")
    assert (result["bytes_read"], result["bytes_written"]) == (2 * (1 + 2 * 9 * 37), 2 * 9 * 37)


@pytest.mark.parametrize("name", TINY)
def test_wrong_kernel_has_no_speed(monkeypatch, name):
    wrong_kernel(monkeypatch, name, flip_a_bit)
    report = run.report([tiny_job(name)], dataclasses.replace(SETTINGS, threads=(1,)))
    (result,) = report["results"]
    assert report["right"] is False
    assert "break the promised bound" in result["wrong"] or "are not the promised bits" in result["wrong"]
    assert not {"contenders", "lines"} & result.keys()


def test_wrong_kernel_fails_the_command(monkeypatch, tmp_path):
    wrong_kernel(monkeypatch, "smooth_l1_loss_backward", flip_a_bit)
    monkeypatch.setattr(run, "Ceilings", lambda repeat, size: Ceilings(repeat, 1 << 20))
    arguments = ["bench", "smooth_l1_loss_backward", "--workload", "small", "--dtype", "float32", "--threads", "1", "--peers", "none"]
    result = CliRunner().invoke(app, [*arguments, "--quick", "--json", str(tmp_path / "r.json"), "--plot", str(tmp_path / "r.png")])
    assert result.exit_code == 1, result.output
    told = " ".join(result.output.split())
    assert "WRONG: anycann, out=: " in told
    assert "of gradInput are not the promised bits: small f32, threads 1" in told
    assert "GB/s" not in told.split("What the memory")[0]
    assert json.loads((tmp_path / "r.json").read_text())["right"] is False
    assert not (tmp_path / "r.png").exists()


def test_unwritten_elements_and_other_bits_are_wrong():
    problem = problems.prepare(OPERATORS["layer_norm_grad_beta"], TINY["layer_norm_grad_beta"], "float32")
    problem.ours(allocate=False)
    assert problem.judge(problem.outs, promised=True).fault == ""
    part = dataclasses.replace(problem.parts[0], where=tuple((slice(0, 20),) for _ in problem.outs))
    part = dataclasses.replace(part, values=tuple(values[:20] for values in part.values))
    some = dataclasses.replace(
        problem, parts=(part,), magnitudes=(dataclasses.replace(part, values=tuple(v[:20] for v in problem.magnitudes[0].values)),)
    )
    problem.outs[1][30:].view(np.uint8).fill(problems.POISON)
    assert some.judge(problem.outs, promised=True).fault == "elements of the output were not written"
    assert "break the promised bound" in problem.judge(problem.outs, promised=True).fault
    short = (problem.outs[0][1:], problem.outs[1])
    assert "instead of" in problem.judge(short, promised=False).fault


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("reduction", [1, 2])
def test_the_promise_of_a_mean_or_sum_is_its_bits(reduction, dtype):
    shapes = {"self": (90, 37), "target": (90, 37)}
    workload = Workload("tiny", shapes, {"reduction": reduction, "beta": 0.7})
    problem = problems.prepare(OPERATORS["smooth_l1_loss"], workload, dtype)
    problem.poison()
    assert "elements" in problem.judge(problem.outs, promised=True).fault
    problem.ours(allocate=False)
    assert problem.judge(problem.outs, promised=True).fault == ""
    (out,) = problem.outs
    out.view(f"u{out.itemsize}")[...] ^= 1
    assert "1 of 1 elements of result are not the promised bits" in problem.judge(problem.outs, promised=True).fault


def test_peer_that_computes_something_else_is_not_timed(monkeypatch):
    def other(problem, libraries):
        noise = np.random.default_rng(0).standard_normal(problem.outs[0].shape).astype(problem.outs[0].dtype)
        return [peers.Peer("numpy", "noise", True, lambda: noise), peers.Peer("numpy", "huge", True, lambda: noise, needs=1 << 40)]

    monkeypatch.setattr(peers, "of", other)
    report = run.report([tiny_job("gelu_backward_v2")], dataclasses.replace(SETTINGS, threads=(1,)))
    noise, huge = report["results"][0]["contenders"][2:]
    assert noise["state"].startswith("wrong: not the same function")
    assert huge["state"] == "skipped: needs about 1024.0 GiB of temporaries"
    assert noise["seconds"] is None
    assert [each["kind"] for each in report["results"][0]["lines"][0]["comparisons"]] == ["ceiling"]


def test_compiler_that_fails_is_reported(monkeypatch):
    import torch

    def broken(*_, **__):
        def call(*_):
            raise RuntimeError("no compiler here\nand a long story")

        return call

    monkeypatch.setattr(torch, "compile", broken)
    rules = dataclasses.replace(SETTINGS.rules, libraries=("compile",))
    report = run.report([tiny_job("gelu_backward_v2")], dataclasses.replace(SETTINGS, rules=rules, threads=(1,)))
    states = {each["name"]: each["state"] for each in report["results"][0]["contenders"] if each["library"] == "compile"}
    assert set(states) == {"compiled gelu_backward", "compiled gelu_backward, out="}
    assert set(states.values()) == {"failed: RuntimeError: no compiler here"}


def test_missing_peers_are_named(monkeypatch):
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    rules = dataclasses.replace(SETTINGS.rules, libraries=tuple(peers.LIBRARIES))
    report = run.report([tiny_job("gelu_backward_v2")], dataclasses.replace(SETTINGS, rules=rules, threads=(1,)))
    assert report["missing"] == ["torch", "compile"]
    assert [each["library"] for each in report["results"][0]["contenders"]] == ["anycann", "anycann", "numpy"]


@pytest.mark.parametrize("name", ["copy", "triad", "read", "two-stream read"])
def test_ceilings_do_the_work_they_are_named_for(name):
    ceilings = Ceilings(3, 1 << 18)
    rng = np.random.default_rng(1)
    a, b, out = (buffer.view(np.float32) for buffer in ceilings.buffers)
    a[:], b[:] = rng.integers(0, 9, a.size), rng.integers(0, 9, b.size)
    ceiling = ceilings.stream(name, anycann.get_num_threads())
    out[:] = -1
    ceiling.run()
    if name == "copy":
        assert np.array_equal(out, a)
    elif name == "triad":
        assert np.array_equal(out, a + 3 * b)
    else:
        lanes = (a if name == "read" else a + b).reshape(-1, 16).astype(np.float64).sum(0)
        starts = np.flatnonzero((out.reshape(-1, 16) != -1).all(1))  # each piece leaves the sums of its lanes at its start
        first = a.reshape(-1, 16)[starts].sum(0)
        assert np.array_equal(out.reshape(-1, 16)[starts].sum(0), lanes + 4 * first)
    streams = {"copy": 2, "triad": 3, "read": 1, "two-stream read": 2}[name]
    assert ceiling.bytes == streams << 18


def test_random_rows_are_all_gathered_once():
    ceilings = Ceilings(3, 1 << 18)
    a, _, out = (buffer.view(np.float32) for buffer in ceilings.buffers)
    ceiling = ceilings.nearest(Mix(4, 1, 1024), anycann.get_num_threads())
    rows = np.arange(256)
    a.reshape(256, 256)[:] = rows[:, None]
    out[:] = -1
    ceiling.run()
    sums = out.reshape(256, 256)[:64]
    assert np.array_equal(sums, np.broadcast_to(sums[:, :1], sums.shape))
    assert sums[:, 0].sum() == rows.sum()
    assert (out.reshape(256, 256)[64:] == -1).all()
    assert ceiling.bytes == 64 * 5 * 1024


def test_turns_and_spreads():
    order = []
    seconds = timing.round_robin([lambda: order.append(0), lambda: order.append(1)], [4, 2], [1e-9, 1e-9])
    assert [sorted(each) for each in seconds] == [[0, 1, 2, 3], [1, 3]]
    assert timing.spread([4.0, 1.0, 2.0, 3.0, 5.0]) == (3.0, 2.0, 4.0, 5)
    assert timing.ratios({0: 2.0, 1: 9.0, 2: 6.0}, {0: 1.0, 2: 2.0}) == (2.5, 2.25, 2.75, 2)
    with pytest.raises(ValueError, match="no samples"):
        timing.spread([])


def test_a_first_call_that_compiles_foretells_nothing(monkeypatch):
    clock = 0.0
    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock))

    def takes(*seconds):
        left = list(seconds)

        def call():
            nonlocal clock
            clock += left.pop(0)

        found = timing.foretold(call)
        return pytest.approx(found), left

    assert takes(5.0, 0.25, 1.0) == (0.25, [1.0])
    assert takes(5.0, 6.0) == (5.0, [])
    assert takes(0.0625, 0.25) == (0.0625, [0.25])


def test_targets_name_what_exists():
    for line in targets.TARGETS:
        spec = OPERATORS[line.operator].spec
        assert set(line.where) <= {attr.name for attr in spec.attrs}
        assert set(line.dtypes) <= set(spec.outputs[0].dtypes)
        assert targets.target(line.operator, line.dtypes[0], {k: v[0] for k, v in line.where.items()}, targets.LARGE) is line
    assert set(targets.DTYPES) == set(OPERATORS)
    assert targets.target("moe_token_permute_grad", "bfloat16", {"numTopk": 1}, targets.LARGE).ratio == targets.NEVER_SLOWER
    assert targets.target("gelu_backward_v2", "float32", {"approximate": "none"}, targets.LARGE - 1).ratio == targets.NEVER_SLOWER


def test_quick_leaves_out_large_results():
    """The result of a permutation has K times the elements of its input."""
    operator = OPERATORS["moe_token_permute"]
    quick, all_of_them = ({job.workload.name for job in run.jobs([operator], None, None, quick)} for quick in (True, False))
    assert all_of_them - quick == {"deepseek"}
    assert {job.workload.name for job in run.jobs([operator], "deepseek", None, True)} == {"deepseek"}


def test_verdicts():
    steps = Steps(1.3, 1.8, 2.0)
    assert [targets.verdict(value, steps) for value in (1.29, 1.3, 1.8, 2.5)] == ["missed", "gate", "goal", "stretch"]
    assert targets.adapted(steps, avx512=True) is steps
    narrow = targets.adapted(Steps(1.05, 1.25, 1.5), avx512=False)
    assert narrow == (0.9375, 0.9375, 1.125)
    assert targets.verdict(math.nan, steps) == "missed"


@pytest.mark.parametrize("name", TINY)
def test_costs_of_a_small_call(name):
    measured = overhead.costs(OPERATORS[name], "bfloat16", 3, 2, torch_too=True)
    expected = set(targets.LIMITS_US) if OPERATORS[name].spec.two_phase else {"Python, NumPy out=", "Python, torch out=", "core"}
    assert {cost.what for cost in measured} == expected
    assert all(cost.as_json()["seconds"]["median"] > 0 for cost in measured)
    beside = [cost.beside for cost in measured if cost.what == "Python, torch out="]
    assert beside == [
        {
            "gelu_backward_v2": "gelu_backward, out=",
            "gelu_v2": "gelu, out=",
            "smooth_l1_loss": "smooth_l1_loss, out=",
            "smooth_l1_loss_backward": "smooth_l1_loss_backward, out=",
            "layer_norm": "native_layer_norm",
            "layer_norm_backward": "native_layer_norm_backward",
            "layer_norm_grad": "",
            "layer_norm_grad_beta": "native_layer_norm_backward",
            "moe_token_permute_grad": "embedding_bag",
            "moe_token_permute": "",
            "moe_token_unpermute": "embedding_bag",
            "moe_token_unpermute_grad": "",
            "nsa_compress": "",
            "nsa_compress_grad": "",
        }[name]
    ]


def test_first_phase_one_is_measured_without_a_kept_plan(monkeypatch):
    planned = []
    real = Operator.plan
    monkeypatch.setattr(Operator, "plan", lambda self, call, *rest: planned.append(1) or real(self, call, *rest))
    problem = problems.prepare(OPERATORS["gelu_backward_v2"], overhead.SMALLEST["gelu_backward_v2"], "float32")
    first, moved, repeated = (call for _, call in overhead._phase_one(problem))
    planned.clear()
    for _ in range(3):
        first()
    assert len(planned) == 3
    for _ in range(3):
        moved()  # in a place of its own each time, but the first time as the first of all
        repeated()
    assert len(planned) == 3


def test_command(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "Ceilings", lambda repeat, size: Ceilings(repeat, 1 << 20))
    monkeypatch.setattr(
        OPERATORS["gelu_backward_v2"],
        "spec",
        dataclasses.replace(OPERATORS["gelu_backward_v2"].spec, workloads=(TINY["gelu_backward_v2"],)),
    )
    arguments = [
        "bench",
        "gelu_backward_v2",
        "--threads",
        "1",
        "--repeat",
        "3",
        "--quick",
        "--peers",
        "numpy",
        "--json",
        str(tmp_path / "r.json"),
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "NumPy" in result.output
    assert re.search(r"3 measurements in \d+\.\d minutes, 0 wrong", result.output)
    report = json.loads((tmp_path / "r.json").read_text())
    assert [each["dtype"] for each in report["results"]] == ["float16", "bfloat16", "float32"]
    assert {cost["what"] for cost in report["overhead"]} == set(targets.LIMITS_US) - {"Python, torch out="}


def test_picture(small_report, tmp_path):
    pytest.importorskip("matplotlib")
    plot.draw(small_report, str(tmp_path / "r.png"))
    assert (tmp_path / "r.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    with pytest.raises(ValueError, match="no result to draw"):
        plot.draw({"results": []}, str(tmp_path / "none.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "torsh"], "--peers torsh: must be some of torch, compile, numpy, or none"),
        (["--peers", "liger"], "--peers liger: must be some of torch, compile, numpy, or none"),
        (["--device", "cuda", "--peers", "numpy"], "--peers numpy: must be some of torch, compile, liger, quack, te, or none"),
        (["--workload", "huge"], "nothing to measure: workloads are small, mean"),
        (["--dtype", "int8"], "nothing to measure"),
    ],
)
def test_wrong_arguments(arguments, message):
    result = CliRunner().invoke(app, ["bench", "smooth_l1_loss_backward", *arguments])
    assert result.exit_code == 2
    assert message in result.output + result.stderr
