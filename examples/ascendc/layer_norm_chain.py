"""The three layer-norm functions in one kernel, against the formulas in float64."""

from pathlib import Path

import numpy as np

from anycann import ascendc

SHAPE, EPSILON = (2, 8, 64), 1e-5
module = ascendc.build(
    Path(__file__).with_name("layer_norm_chain.cpp"),
    tiling={"norm": "LayerNormTiling", "grad": "LayerNormGradTiling", "gradBeta": "LayerNormGradBetaTiling"},
    templates={"layer_norm_chain": ["float"]},
)
rng = np.random.default_rng(3)
x, dy = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
gamma, beta = (rng.standard_normal(64).astype(np.float32) for _ in range(2))
y, pd_x = np.empty_like(x), np.empty_like(x)
pd_gamma, pd_beta = np.empty_like(gamma), np.empty_like(beta)
tiling = {
    "norm": ascendc.layer_norm_tiling(SHAPE, "float32", 16384),
    "grad": ascendc.layer_norm_grad_tiling(SHAPE, "float32", 16384),
    "gradBeta": ascendc.layer_norm_grad_beta_tiling(SHAPE, "float32", 4096),
}
print(module["layer_norm_chain<float>"][1](x, gamma, beta, dy, y, pd_x, pd_gamma, pd_beta, EPSILON, tiling))

wide, grad = x.astype(np.float64), dy.astype(np.float64)
normalised = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + EPSILON)
inner = grad * gamma
exact_x = (inner - inner.mean(-1, keepdims=True) - normalised * (inner * normalised).mean(-1, keepdims=True)) / np.sqrt(
    wide.var(-1, keepdims=True) + EPSILON
)
for name, ours, exact in (
    ("y", y, normalised * gamma + beta),
    ("pdX", pd_x, exact_x),
    ("pdGamma", pd_gamma, (grad * normalised).sum((0, 1))),
    ("pdBeta", pd_beta, grad.sum((0, 1))),
):
    print(f"{name}: largest error below 1e-5: {bool(abs(ours - exact).max() < 1e-5)}")
