"""Compile every kernel for a GPU that need not be there, and say what came out as JSON: `python compile_kernels.py 90`.

Triton asks its driver only which GPU to compile for, so a stand-in is enough; ptxas comes with Triton.
"""

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

import anycann as ac
from anycann.bind import bind
from anycann.runtime import operator_of
from anycann.spec import Attr
from anycann.tensor import from_array

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
KINDS = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
WANTED = ("LDG", "STG", "FFMA", "LDL", "STL")


class Driver:
    """Knows which GPU to compile for, and nothing else."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: Any = None) -> int:
        return 0


def problems(kind: Any) -> Iterator[tuple[str, Any, Sequence[Any], Sequence[Any]]]:
    """Name, function, arguments and outputs: contiguous operands of whole blocks."""

    def z(*shape: int) -> Any:
        return np.zeros(shape, kind)

    for mode in ("none", "tanh"):
        yield f"gelu_backward_v2 {mode}", ac.gelu_backward_v2, (z(4096), z(4096), mode), (z(4096),)
    yield "smooth_l1_loss_backward", ac.smooth_l1_loss_backward, (z(1), z(4096), z(4096), 1, 0.7), (z(4096),)
    for reduction in (0, 1):
        yield f"smooth_l1_loss {reduction}", ac.smooth_l1_loss, (z(16384), z(16384), reduction, 0.7), (z(*[16384][reduction:]),)
    yield "layer_norm_grad_beta", ac.layer_norm_grad_beta, (z(2048, 1024), z(2048, 1024)), (z(1024), z(1024))
    for width in (128, 4096):
        rows, row = z(2048, width), z(width)
        ones, outs = np.zeros((2048, 1), np.float32), (np.zeros((2048, 1), np.float32), np.zeros((2048, 1), np.float32))
        yield f"layer_norm {width}", ac.layer_norm, (rows, (width,), row, row, 1e-5), (z(2048, width), *outs)
        arrays = rows, rows, ones[:, 0], ones[:, 0], row, 1e-5
        yield f"layer_norm_grad {width}", ac.layer_norm_grad, arrays, (z(2048, width), z(2048, width))
        arrays = rows, rows, (width,), ones, ones, row, None, (True, True, True)
        yield f"layer_norm_backward {width}", ac.layer_norm_backward, arrays, (z(2048, width), z(width), z(width))
    for k in (2, 8):
        indices = np.zeros(64, np.int32)
        yield f"moe_token_permute_grad {k}", ac.moe_token_permute_grad, (z(64, 4096), indices, k, False), (z(64 // k, 4096),)
        weights = np.zeros((64 // k, k), kind)
        yield f"moe_token_unpermute {k}", ac.moe_token_unpermute, (z(64, 4096), indices, weights, False, None), (z(64 // k, 4096),)
        experts, copies = np.zeros((8192 // k, k), np.int64 if k == 2 else np.int32), (z(8192, 4096), np.zeros(8192, np.int32))
        yield f"moe_token_permute {k}", ac.moe_token_permute, (z(8192 // k, 4096), experts, 0, False), copies
    for width, rows in ((2048, 32768), (7168, 1024)):
        arrays = z(rows, width), z(rows // 8, width), np.zeros(rows, np.int32), z(rows // 8, 8)
        outs = z(rows, width), z(rows // 8, 8)
        yield f"moe_token_unpermute_grad {width}", ac.moe_token_unpermute_grad, (*arrays, False, None), outs
    arrays = None, z(8192, 4096), np.zeros(8192, np.int32), None
    yield "moe_token_unpermute_grad alone", ac.moe_token_unpermute_grad, (*arrays, False, None), (z(8192, 4096), None)
    for mode in ("none", "tanh"):
        yield f"gelu_v2 {mode}", ac.gelu_v2, (z(4096), mode), (z(4096),)
    for width in (128, 192):
        yield f"nsa_compress {width}", ac.nsa_compress, (z(2048, 4, width), z(32, 4), None, "TND", 32, 16, 0), (z(127, 4, width),)
        arrays = z(127, 4, width), z(2048, 4, width), z(32, 4)
        yield f"nsa_compress_grad {width}", ac.nsa_compress_grad, (*arrays, None, 32, 16, 0, "TND"), (z(2048, 4, width), z(32, 4))


def disassembled(cubin: bytes) -> tuple[str, str]:
    """What cuobjdump says of the resources and of the code."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        said = [
            subprocess.run([TOOLS / "cuobjdump", option, path], capture_output=True, text=True, check=True).stdout
            for option in ("-res-usage", "-sass")
        ]
    return said[0], said[1]


def described(compiled: Any) -> dict[str, Any]:
    """What is worth knowing of a compiled kernel."""
    ptx = compiled.asm["ptx"]
    usage, sass = disassembled(compiled.asm["cubin"])
    stack, registers = re.search(r"STACK:(\d+)", usage), re.search(r"REG:(\d+)", usage)
    return {
        "stack": int(stack[1]) if stack else None,
        "registers": int(registers[1]) if registers else None,
        "shared": compiled.metadata.shared,
        "loads": len(re.findall(r"ld\.global", ptx)),
        "vector loads": len(re.findall(r"ld\.global\S*v4\S*", ptx)),
        "stores": len(re.findall(r"st\.global", ptx)),
        "vector stores": len(re.findall(r"st\.global\S*v4\S*", ptx)),
        "fma": len(re.findall(r"fma\.rn\.f32", ptx)),
        "double fma": len(re.findall(r"fma\.rn\.f64", ptx)),
        "contractible": len(re.findall(r"\b(?:mul|add|sub)\.f(?:32|64)", ptx)),  # ptxas must leave .rn as it is
        "approximate": re.findall(r"\b[a-z0-9.]+\.(?:approx|full|ftz)\b\S*", ptx),  # quotients, roots, or subnormal numbers as zero
        "atomics": len(re.findall(r"\b(?:atom|red)\.", ptx)),
        "sass": {name: len(re.findall(rf"\b{name}\b", sass)) for name in WANTED},
    }


def kernels(function: Any, values: Sequence[Any], outs: Sequence[Any]) -> dict[str, Any]:
    """The compiled kernels of a call, by their names."""
    from anycann.backends import gpu

    found: dict[str, Any] = {}

    def call(start: Any, *addresses: int) -> None:
        found[start.kernel.fn.__name__] = described(start.compile(addresses))

    gpu.Start.__call__ = call
    operator = operator_of(function)
    assert operator is not None
    spec = operator.spec
    given = [param for param in spec.params if isinstance(param, Attr) or not param.output]
    attrs = {p.name: p.convert(v, p.python, friendly=True) for p, v in zip(given, values, strict=True) if isinstance(p, Attr)}
    arrays = [*(value for param, value in zip(given, values, strict=True) if not isinstance(param, Attr)), *outs]
    pairs = zip(spec.tensors, arrays, strict=True)
    tensors = {param.name: None if array is None else from_array(array, param.name) for param, array in pairs}
    call_ = bind(spec, tensors, attrs, api="test", superset=True)
    plan = operator.plan(call_, backend="gpu")
    plan.run([(place + 1) << 34 for place in range(len(arrays))], 1 << 40)
    return found


def main(capability: int, names: Sequence[str]) -> None:
    driver.set_active(Driver(capability))
    found = {name: {title: kernels(*rest) for title, *rest in problems(KINDS[name])} for name in names}
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:] or [*KINDS])
