"""Kernels compiled for CPUs with fewer instructions give the same bits."""

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from operands import DTYPES, lay, normal, raw, rng

import anycann


def digest():
    """What the operators give for a few calls, in one number."""
    half, brain, full = (DTYPES[name] for name in ("float16", "bfloat16", "float32"))
    indices = rng().integers(-2, 40, 36).astype(np.int32)
    grad, x, weight = normal((5, 3, 80), brain, 1), normal((150, 3, 80), brain, 2), normal((48, 3), brain, 3)
    results = (
        anycann.gelu_backward_v2(normal((7, 333), brain, 1), normal((7, 333), brain, 2), "tanh"),
        anycann.gelu_backward_v2(normal((333,), half, 1), lay(normal((7, 333), full, 2, 4), "transposed"), "none"),
        anycann.gelu_v2(lay(normal((7, 333), full, 2, 4), "transposed"), "tanh"),
        anycann.gelu_v2(normal((7, 333), brain, 2), "none"),
        anycann.smooth_l1_loss(normal((5, 437), half, 2), normal((5, 1), full, 3), "none", 0.7),
        anycann.smooth_l1_loss(normal((5, 437), brain, 2), normal((5, 437), brain, 3), "mean", 0.5),
        anycann.smooth_l1_loss_backward(normal((1,), half, 1), normal((5, 437), half, 2), normal((5, 1), half, 3), "mean", 0.7),
        anycann.smooth_l1_loss_backward(normal((1,), half, 1), normal((5, 437), brain, 2), normal((5, 1), full, 3), "none", 0.5),
        *anycann.layer_norm_grad_beta(normal((1100, 70), half, 1), normal((1100, 70), half, 2)),
        *anycann.layer_norm_grad_beta(normal((1100, 300), brain, 1), normal((1100, 300), brain, 2)),
        *anycann.layer_norm_grad_beta(normal((21, 2085), full, 1), normal((21, 2085), full, 2)),
        anycann.moe_token_permute_grad(normal((38, 300), brain), indices, 3),
        anycann.moe_token_permute_grad(lay(normal((38, 300), half), "transposed"), indices, 4),
        *anycann.nsa_compress_grad(grad, x, weight, (70, 150), compress_block_size=48, compress_stride=16),
    )
    return hashlib.sha256(b"".join(raw(array) for array in results)).hexdigest()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="compiles for older x86-64 CPUs")
@pytest.mark.parametrize(("cpu", "features"), [("haswell", "+avx2,+fma,+f16c"), ("x86-64", "")])
def test_older_cpus(cpu, features):
    environment = {**os.environ, "NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    program = "from test_other_targets import digest; print(digest())"
    run = subprocess.run(
        [sys.executable, "-c", program], cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == digest()
