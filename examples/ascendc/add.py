"""Eight blocks add two vectors; then the same kernel with a tile that is too short, to see a report."""

from pathlib import Path

import numpy as np

from anycann import ascendc

module = ascendc.build(Path(__file__).with_name("add.cpp"), tiling={"share": "uint32_t", "tile": "uint32_t"})
x = np.arange(8192, dtype=np.float32)
y = np.full(8192, 0.5, dtype=np.float32)
z = np.empty_like(x)

summary = module.add[8](x, y, z, {"share": 1024, "tile": 256})
print(z[:3], z[-1], bool((z == x + y).all()))
print(summary)

try:
    module.add[8](x, y, z, {"share": 1024, "tile": 300})
except ascendc.KernelError as error:
    print(error.reports[0].rule, "in line", error.reports[0].line)
    print(error.reports[0].what)
