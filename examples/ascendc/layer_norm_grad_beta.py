"""LayerNormGradBeta in half and float, with the smallest and the largest temporary buffer."""

from pathlib import Path

import numpy as np

from anycann import ascendc

SHAPE = (1, 8, 8)
module = ascendc.build(
    Path(__file__).with_name("layer_norm_grad_beta.cpp"),
    tiling={"layerNormGradBetaTiling": "LayerNormGradBetaTiling"},
    templates={"layer_norm_grad_beta": ["half, false, false", "float, true, true"]},
)
for instance, dtype, shape in (("float, true, true", np.float32, SHAPE), ("half, false, false", np.float16, (1, 4, 16))):
    values = np.arange(64, dtype=dtype).reshape(shape)
    largest, smallest = ascendc.layer_norm_grad_beta_max_min_tmp_size(shape, values.itemsize)
    for size in (smallest, largest):
        pd_gamma, pd_beta = (np.empty(shape[-1], dtype) for _ in range(2))
        tiling = ascendc.layer_norm_grad_beta_tiling(shape, values.dtype.name, size)
        module[f"layer_norm_grad_beta<{instance}>"][1](pd_gamma, pd_beta, values, values, {"layerNormGradBetaTiling": tiling})
        print(f"{dtype.__name__}, {size} bytes: pdGamma {pd_gamma.tolist()}, pdBeta {pd_beta.tolist()}")
