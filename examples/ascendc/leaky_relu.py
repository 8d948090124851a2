"""A length that no tile divides: 1000 halves over three blocks in tiles of 128."""

from pathlib import Path

import numpy as np

from anycann import ascendc

module = ascendc.build(Path(__file__).with_name("leaky_relu.cpp"), tiling={"total": "uint32_t", "tile": "uint32_t", "slope": "float"})
x = np.linspace(-8, 8, 1000).astype(np.float16)
y = np.empty_like(x)

module.leaky_relu[3](x, y, {"total": x.size, "tile": 128, "slope": 0.25})
print(y[[0, 1, 998, 999]])
print(bool((y == np.where(x < 0, x * np.float16(0.25), x)).all()))
