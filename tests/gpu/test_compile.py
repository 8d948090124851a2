"""What Triton makes of the kernels for GPUs that need not be there: 16-byte loads, nothing contracted, no atomics, and no spills.

The one exception to the last: up to 32 bytes in the NSA gradient, in float32 and on GPUs before Hopper.
"""

import functools
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anycann.ops.gelu_backward_v2 import coefficients as backward
from anycann.ops.gelu_v2 import coefficients as forward

SCRIPT = Path(__file__).parent / "compile_kernels.py"
ELEMENTS = 8  # float32 of an operand for each thread of the element-wise kernels
LINES = 16  # float32 of a tile of rows for each thread
ROWS = {  # bytes of a row that a thread adds at once by fused operations in float64, and fused operations for each number of a result
    "layer_norm 128": (8 * 16, 1),
    "layer_norm 4096": (32 * 4, 1),
    "layer_norm_grad 128": (4 * 16, 2),
    "layer_norm_grad 4096": (32 * 4, 2),
    "layer_norm_backward 128": (4 * 16, 2),
    "layer_norm_backward 4096": (32 * 4, 2),
}

pytestmark = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is for Linux")
compiled_for = pytest.mark.parametrize(
    ("capability", "dtype"),
    [(90, "bfloat16"), (90, "float32")]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in ((90, "float16"), (80, "bfloat16"), (80, "float32"))],
)


@functools.cache
def compiled(capability: int, dtype: str) -> dict[str, dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, SCRIPT, str(capability), dtype], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)[dtype]
    return found


@compiled_for
def test_no_spills_no_atomics(capability: int, dtype: str) -> None:
    for title, kernels in compiled(capability, dtype).items():
        for name, kernel in kernels.items():
            crowded = title.startswith("nsa_compress_grad") and (capability, dtype) != (90, "bfloat16") and name == "_chunks"
            assert kernel["stack"] <= (32 if crowded else 0), (title, name, kernel)
            assert kernel["atomics"] == 0, (title, name, kernel)


def written(title: str) -> int:
    """The fused operations that the float32 formulas have for each element."""
    fitted, mode = (backward if title.startswith("gelu_backward") else forward), title.split()[1]
    near = 1 + len(fitted.NONE_NEAR if mode == "none" else fitted.TANH_NEAR) - 1 + 1  # interval, polynomial, end
    exponential = (1 if mode == "none" else 5) + 1 + 2 + 4 + 1  # exponent in two floats, n, r, polynomial, e
    if fitted is forward and mode == "tanh":
        return near + exponential + 1 + 2 + 1
    return near + exponential + (1 if fitted is backward else 0) + len(fitted.NONE_FAR) - 1 + 1 + 1  # line, polynomial, sum, end


@compiled_for
def test_nothing_is_contracted(capability: int, dtype: str) -> None:
    for title, kernels in compiled(capability, dtype).items():
        for name, kernel in kernels.items():
            assert kernel["contractible"] == 0, (title, name, kernel)
            assert kernel["approximate"] == [], (title, name, kernel)
            in_rows, in_line = ROWS[title] if name in ("_rows", "_gradients") else (0, 0)
            if dtype == "float32":  # lines are float64
                fused, double = ELEMENTS * written(title) if title.startswith("gelu") else 0, in_rows // 4 + in_line * LINES
            else:
                fused, double = in_line * 2 * LINES, in_rows // 2
            assert kernel["fma"] == fused, (title, name, kernel)
            assert kernel["double fma"] == double, (title, name, kernel)
            if not fused and not in_rows and not title.startswith("smooth_l1"):  # a division is made of them
                assert kernel["sass"]["FFMA"] == 0, (title, name, kernel)


@compiled_for
def test_what_is_contiguous_is_read_and_written_16_bytes_at_a_time(capability: int, dtype: str) -> None:
    found = compiled(capability, dtype)
    for title in ("gelu_backward_v2 none", "gelu_backward_v2 tanh", "smooth_l1_loss_backward"):
        (kernel,) = found[title].values()
        assert kernel["vector loads"] == 4, (title, kernel)
        assert kernel["vector stores"] == kernel["stores"] == 2, (title, kernel)
    assert found["smooth_l1_loss_backward"]["_smooth_l1"]["loads"] == 5, "gradOut of one element is loaded once"
    partials = found["layer_norm_grad_beta"]["_partials"]
    assert partials["vector loads"] == partials["loads"] == 32
    for width, singles in ((128, 0), (4096, 32)):
        kernel = found[f"layer_norm {width}"]["_rows"]
        assert kernel["vector stores"] == kernel["stores"] - 2 == 4, "all but mean and rstd"
        assert kernel["vector loads"] >= 4 + (0 if singles else 8), "a tile of rows, and short rows before"
        assert kernel["loads"] - kernel["vector loads"] <= singles + 4, "of long rows 4 bytes at once; the first element, weight and bias"
        kernel = found[f"layer_norm_grad {width}"]["_gradients"]
        assert kernel["vector stores"] == kernel["stores"] == 8, kernel
        kernel = found[f"layer_norm_backward {width}"]["_gradients"]
        assert kernel["stores"] - kernel["vector stores"] <= 2, "all but column sums"
        assert kernel["vector loads"] >= 2 * 4 + (0 if singles else 2 * 4), "two tiles of rows, and short rows before"
    for k in (2, 8):
        assert found[f"moe_token_unpermute {k}"]["_add_rows"]["vector loads"] == k
        kernel = found[f"moe_token_permute_grad {k}"]["_add_rows"]
        assert kernel["vector loads"] == k, kernel
        assert kernel["loads"] == 2 * k, "an index for each row"
        assert kernel["vector stores"] == kernel["stores"] == 1, kernel
        kernel = found[f"moe_token_permute {k}"]["_copy_rows"]
        assert kernel["vector loads"] == 1, "a row, once"
        assert kernel["vector stores"] == kernel["stores"] - 1 == k, "all but the places"
    (kernel,) = found["smooth_l1_loss 0"].values()
    assert kernel["vector loads"] == kernel["loads"] == 4, kernel
    assert kernel["vector stores"] == kernel["stores"] == 2, kernel
    kernel = found["smooth_l1_loss 1"]["_partials"]
    assert kernel["vector loads"] == kernel["loads"] == 8, kernel
    for width in (2048, 7168):
        kernel = found[f"moe_token_unpermute_grad {width}"]["_copies"]
        assert kernel["vector loads"] == 16, "8 columns of each run, of two operands"
        assert kernel["stores"] - 1 == kernel["vector stores"] >= 8, "all but those of a weight's gradient"
    kernel = found["moe_token_unpermute_grad alone"]["_copies"]
    assert kernel["vector loads"] == 8, kernel
    assert kernel["vector stores"] == kernel["stores"] >= 8, kernel
    for mode in ("none", "tanh"):
        (kernel,) = found[f"gelu_v2 {mode}"].values()
        assert kernel["vector loads"] == kernel["vector stores"] == kernel["stores"] == 2, kernel
    for width in (128, 192):
        (kernel,) = found[f"nsa_compress {width}"].values()
        assert (kernel["vector loads"], kernel["vector stores"]) == (16, 1), "a run of 16 tokens at a time"
        kernel, parts = found[f"nsa_compress_grad {width}"]["_chunks"], width // 16
        assert kernel["vector stores"] == parts, kernel
        assert kernel["loads"] - kernel["vector loads"] <= 12, "all but tables and weights"
