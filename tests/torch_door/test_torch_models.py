"""What models use: functions, modules, the names of torch_npu; torch's own operators as a second opinion; torch stays optional."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anycann.torch as door
from anycann import AclnnError

op = torch.ops.anycann


def run(program: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=300, check=False)


def test_without_torch_the_door_says_what_to_install() -> None:
    program = """
    import sys, importlib.util
    real = importlib.util.find_spec
    importlib.util.find_spec = lambda name, package=None: None if name == "torch" else real(name, package)
    import anycann, numpy as np
    print(anycann.gelu_backward_v2(np.ones(1, np.float32), np.zeros(1, np.float32)))
    try:
        import anycann.torch
    except ImportError as error:
        print(error)
    """
    found = run(program)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout == "[0.5]\nanycann.torch needs PyTorch 2.6 or later, which is not installed: pip install 'anycann[torch]'\n"


def test_importing_the_door_does_not_load_the_compilers_or_the_sharding() -> None:
    program = """
    import sys, torch
    before = set(sys.modules)
    import anycann.torch
    print(*sorted({"numba", "torch._dynamo", "torch._inductor", "torch.distributed.tensor"} & (set(sys.modules) - before)))
    """
    found = run(program)
    assert (found.returncode, found.stdout, found.stderr) == (0, "\n", "")


MODULES: dict[str, tuple[torch.nn.Module, torch.nn.Module, tuple[Tensor, ...]]] = {
    "GELU": (door.GELU(), torch.nn.GELU(), (torch.linspace(-4, 4, 24).reshape(2, 3, 4),)),
    "GELU tanh": (door.GELU("tanh"), torch.nn.GELU("tanh"), (torch.linspace(-4, 4, 24).reshape(2, 3, 4),)),
    "LayerNorm": (door.LayerNorm((3, 4)), torch.nn.LayerNorm((3, 4)), (torch.linspace(-4, 4, 24).reshape(2, 3, 4).sin(),)),
    "SmoothL1Loss": (
        door.SmoothL1Loss(reduction="sum", beta=0.5),
        torch.nn.SmoothL1Loss(reduction="sum", beta=0.5),
        (torch.linspace(-1, 1, 12), torch.zeros(12)),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_are_those_of_torch(name: str) -> None:
    ours, theirs, inputs = MODULES[name]
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    given = [one.clone().requires_grad_() for one in inputs]
    found, expected = ours(*given), theirs(*given)
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-6)
    wanted = [given[0], *ours.parameters()], [given[0], *theirs.parameters()]
    gradients = [torch.autograd.grad(result.square().sum(), tensors) for result, tensors in zip((found, expected), wanted, strict=True)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_the_compression_starts_as_a_mean() -> None:
    x = torch.randn(64, 2, 16)
    module = door.NsaCompress(2, 32, 16)
    torch.testing.assert_close(module(x), torch.stack([x[start : start + 32].mean(0) for start in (0, 16, 32)]), rtol=1e-5, atol=1e-6)
    assert repr(module) == "NsaCompress(2, compress_block_size=32, compress_stride=16)"
    assert module(x, [20, 64]).shape == (1, 2, 16)


def test_permuting_and_back_is_the_identity() -> None:
    tokens = torch.randn(6, 4, requires_grad=True)
    experts = torch.tensor([[2, 0], [1, 2], [0, 1], [2, 1], [0, 2], [1, 0]], dtype=torch.int32)
    permuted, rows = door.moe_token_permute(tokens, experts)
    assert torch.equal(permuted[rows.view(6, 2).long()], tokens[:, None].expand(6, 2, 4))
    back = door.moe_token_unpermute(permuted, rows, torch.full((6, 2), 0.5))
    assert torch.equal(back, tokens)
    back.backward(torch.ones_like(back))
    assert torch.equal(tokens.grad, torch.ones(6, 4))


def test_a_name_that_is_no_value_is_refused() -> None:
    with pytest.raises(AclnnError, match=r"approximate must be 0 \('none'\), 1 \('tanh'\); got 'erf'") as refused:
        door.gelu(torch.ones(2), "erf")
    assert refused.value.status == 161002
    with pytest.raises(AclnnError, match="reduction must be"):
        door.smooth_l1_loss(torch.ones(2), torch.ones(2), "avg")


def test_the_names_of_torch_npu() -> None:
    program = """
    import torch, anycann.torch
    shim = anycann.torch.install_torch_npu_shim()
    import torch_npu
    assert torch_npu is shim is anycann.torch.install_torch_npu_shim()
    import importlib.util, sys
    assert importlib.reload(torch_npu) is shim
    assert importlib.util.find_spec("torch_npu") is not None
    del sys.modules["torch_npu"]
    import torch_npu
    assert torch_npu.npu_gelu is shim.npu_gelu
    assert torch_npu is anycann.torch.install_torch_npu_shim()
    x = torch.randn(4, 16, requires_grad=True)
    gradient = torch_npu.npu_gelu_backward(torch.ones(4, 16), x.detach(), approximate="tanh")
    assert torch.equal(torch.autograd.grad(torch_npu.npu_gelu(x, approximate="tanh").sum(), x)[0], gradient)
    experts = torch.tensor([[1, 0], [0, 1], [1, 0], [0, 1]])
    permuted, rows = torch_npu.npu_moe_token_permute(x.detach(), experts, num_out_tokens=8)
    assert torch.equal(torch_npu.npu_moe_token_unpermute(permuted, rows, probs=torch.full((4, 2), 0.5)), x.detach())
    back = torch_npu.npu_moe_token_permute_grad_v2(permuted, rows, 4, torch.bfloat16, 2)
    assert torch.equal(back, (2 * x.detach()).bfloat16())
    try:
        torch_npu.npu_moe_token_permute_grad_v2(permuted, rows, 5, torch.float32, 2)
    except anycann.AclnnError as error:
        print(error)
    tokens, weight = torch.randn(48, 2, 16), torch.randn(32, 2)
    compressed = torch_npu.npu_nsa_compress(tokens, weight, 32, 16, actual_seq_len=[48])
    grads = torch_npu.npu_nsa_compress_grad(torch.ones_like(compressed), tokens, weight, 32, 16, actual_seq_len=[48])
    assert [tuple(one.shape) for one in (compressed, *grads)] == [(2, 2, 16), (48, 2, 16), (32, 2)]
    """
    found = run(program)
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.startswith(
        "torch_npu.npu_moe_token_permute_grad_v2: sorted_indices must have tokens_size_0 * num_topK = 10 entries; got 8."
    )


def test_an_installed_torch_npu_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", torch.nn)
    with pytest.raises(RuntimeError, match="torch_npu is installed here"):
        door.install_torch_npu_shim()


SECOND_OPINION: dict[str, tuple[Callable[..., Any], Callable[..., Any], float]] = {
    "gelu": (door.gelu, F.gelu, 1e-6),
    "gelu tanh": (lambda x: door.gelu(x, "tanh"), lambda x: F.gelu(x, approximate="tanh"), 1e-6),
    "gelu_backward": (lambda x: op.gelu_backward_v2(x.cos(), x), lambda x: torch.ops.aten.gelu_backward(x.cos(), x), 2e-6),
    "smooth_l1_loss": (lambda x: door.smooth_l1_loss(x, x.sin(), beta=0.3), lambda x: F.smooth_l1_loss(x, x.sin(), beta=0.3), 1e-6),
    "smooth_l1_loss_backward": (
        lambda x: op.smooth_l1_loss_backward(torch.ones(()), x, x.sin(), 1, 0.3),
        lambda x: torch.ops.aten.smooth_l1_loss_backward(torch.ones(()), x, x.sin(), 1, 0.3),
        1e-6,
    ),
    "layer_norm": (lambda x: door.layer_norm((37 * x).sin(), (16,)), lambda x: F.layer_norm((37 * x).sin(), (16,)), 2e-6),
}


@pytest.mark.parametrize("name", SECOND_OPINION)
def test_torch_is_of_the_same_opinion(name: str) -> None:
    """Where both are sure; `docs/torch.md` shows where torch's own answers are off."""
    ours, theirs, tolerance = SECOND_OPINION[name]
    x = torch.linspace(-4, 4, 512).reshape(32, 16)
    torch.testing.assert_close(ours(x), theirs(x), rtol=tolerance, atol=tolerance)


def test_the_program_of_the_page_runs() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "torch.md").read_text(encoding="utf-8")
    program = page.split("```python\n")[1].split("```")[0]
    assert run(program).stderr == ""
