"""The example that trains: it learns, it is the model of plain torch within the bounds it states, and it resumes to the same bits."""

import importlib.util
import re
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import anycann

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "examples" / "train_transformer.py"
NUMBER = r"(\d\.\d+(?:e-\d+)?)"


@pytest.fixture
def example() -> Any:
    spec = importlib.util.spec_from_file_location("train_transformer", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    threads = torch.get_num_threads(), anycann.get_num_threads()
    torch.set_num_threads(1)
    anycann.set_num_threads(1)
    with torch.random.fork_rng():
        yield module
    torch.set_num_threads(threads[0])
    anycann.set_num_threads(threads[1])


def start(*words: object) -> "subprocess.Popen[str]":
    command = [sys.executable, str(PROGRAM), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def printed(process: "subprocess.Popen[str]") -> str:
    try:
        output, errors = process.communicate(timeout=300)
    finally:
        process.kill()
    assert (process.returncode, errors) == (0, "")
    return "".join(line for line in output.splitlines(keepends=True) if not line.startswith("[Gloo]"))  # torch 2.8 prints these


def test_it_learns_what_plain_torch_learns_step_for_step() -> None:
    *steps, last = printed(start("--compare")).splitlines()
    pattern = rf"step +(\d+)  loss {NUMBER}  plain {NUMBER}  parameters differ by {NUMBER}"
    found = [[float(number) for number in re.fullmatch(pattern, line).groups()] for line in steps]
    assert [step for step, *_ in found] == list(range(1, 41))
    assert found[0][1] > 2.5
    assert all(loss < 1 for _, loss, *_ in found[-10:])
    assert all(abs(loss - plain) <= 2e-6 * plain + 1e-6 and apart <= 1e-4 for _, loss, plain, apart in found)  # losses have six decimals
    numbers = re.fullmatch(rf"losses differ by {NUMBER}, bound 2e-06; parameters by {NUMBER}, bound 1e-04", last)
    assert numbers is not None
    assert 0 < float(numbers[1]) <= 2e-6
    assert 0 < float(numbers[2]) == max(apart for *_, apart in found)


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("gelu", lambda x: F.gelu(x, approximate="tanh")),
        ("layer_norm", lambda *args: F.layer_norm(*args, eps=2e-5)),
        ("moe_token_unpermute", lambda permuted, rows, probs: permuted[rows].unflatten(0, probs.shape).mean(1)),
    ],
)
def test_another_formula_is_beyond_the_bounds(example: Any, name: str, other: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example.PLAIN, name, other)
    with pytest.raises(SystemExit, match="differ by more than the bounds"):
        example.compare(Namespace(steps=2, processes=1), 0)


def test_it_learns_by_the_compressed_windows(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the same batches, tokens that see no window are told apart worse."""
    seen, visible = example.Training(plain=False), example.visible
    with_windows = [seen.advance() for _ in range(40)]
    assert not torch.equal(seen.model.blocks[0].value_weight, torch.full((32, 2), 1 / 32))
    monkeypatch.setattr(example, "visible", lambda ends: visible(ends) & (torch.arange(visible(ends).shape[1]) == 0))
    blind = example.Training(plain=False)
    without = [blind.advance() for _ in range(40)]
    assert sum(with_windows[-10:]) < 0.85 * sum(without[-10:])


@pytest.mark.parametrize("processes", [1, 2])
def test_resuming_gives_the_bits_of_one_run(example: Any, processes: int, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.pt", tmp_path / "parts.pt"
    words = "--processes", processes, "--checkpoint"
    both = [start(*words, whole, "--steps", 20), start(*words, parts, "--steps", 10)]
    straight, _ = (printed(one) for one in both)
    halfway = torch.load(parts)
    resumed = printed(start(*words, parts, "--steps", 20, "--resume"))
    assert (halfway["step"], resumed.splitlines()[0]) == (10, "step  20  loss 0.9")
    assert straight.splitlines()[-1].removeprefix(str(whole)) == resumed.splitlines()[-1].removeprefix(str(parts))
    one, other = torch.load(whole), torch.load(parts)
    assert one["step"] == other["step"] == 20
    for name, tensor in one["model"].items():
        assert torch.equal(tensor, other["model"][name])
        assert not torch.equal(tensor, halfway["model"][name])
    for number, state in one["optimizer"]["state"].items():
        assert all(torch.equal(value, other["optimizer"]["state"][number][name]) for name, value in state.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts.pt", "whole.pt"]
    alone = example.Training(plain=False)
    for _ in range(10):
        alone.advance()
    for name, parameter in alone.model.named_parameters():  # each of two processes takes half of the sequences: rounding differs
        assert (parameter - halfway["model"][name]).abs().max() <= 1e-4 * parameter.abs().max()


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--resume"], "--resume needs --checkpoint"), (["--compare", "--checkpoint", "x"], "--compare keeps no checkpoint")],
)
def test_options_that_do_not_go_together(
    example: Any, words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [PROGRAM.name, *words])
    with pytest.raises(SystemExit, match="2"):
        example.main()
    assert message in capsys.readouterr().err
