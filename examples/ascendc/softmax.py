"""Softmax of 10 rows on four blocks, with the timeline written to softmax_trace.json (open it in Perfetto)."""

import sys
from pathlib import Path

import numpy as np

from anycann import ascendc

module = ascendc.build(Path(__file__).with_name("softmax.cpp"), tiling={"rows": "uint32_t", "width": "uint32_t"})
x = np.random.default_rng(7).standard_normal((10, 136)).astype(np.float32)
y = np.empty_like(x)

trace = sys.argv[1] if len(sys.argv) > 1 else None
summary = module.softmax[4](x, y, {"rows": 10, "width": 136}, trace=trace)
wide = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
exact = wide / wide.sum(axis=1, keepdims=True)
print("rows sum to", np.round(y.sum(axis=1), 5))
print("relative error below 1e-6:", bool((abs(y - exact) / exact).max() < 1e-6))
print(summary)
