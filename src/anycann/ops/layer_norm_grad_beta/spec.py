"""The contract of LayerNormGradBeta on whole arrays."""

from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL
from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE
from anycann.spec import FLOATS, OpSpec, Same, Tensor, Workload

SPEC = OpSpec(
    name="LayerNormGradBeta",
    summary="Gradients of the weight (gamma) and bias (beta) of layer normalisation: two column sums.",
    formula="pdGamma[h] = sum over rows of inputDy[..., h] * resForGamma[..., h]; pdBeta[h] = sum over rows of inputDy[..., h]",
    params=(
        Tensor("resForGamma", "*D H", FLOATS, doc="the normalised input of the forward pass"),
        Tensor("inputDy", "*D H", FLOATS, dtype=Same("resForGamma"), doc="gradient of the forward result"),
        Tensor("pdGamma", "H", FLOATS, dtype=Same("resForGamma"), output=True, doc="gradient of gamma"),
        Tensor("pdBeta", "H", FLOATS, dtype=Same("resForGamma"), output=True, doc="gradient of beta"),
    ),
    products=(INFERENCE, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "error <= 1.1e-6 * sum of |terms| for any data and any number of rows; <= 5e-7 on random and on constant columns",
        "float16, bfloat16": "the same sum, rounded once; 32,768 rows of ones sum to 32,768",
    },
    notes=(
        f"Products are rounded to float32. {ROWS_PER_RUN} consecutive rows are added in order in float32, {RUNS_PER_PARTIAL} such runs in "
        "order in float64, and those partial sums in order in float64; one rounding at the end.",
        "Without rows both results are 0.",
    ),
    sum_error="1.1e-6",
    source="LayerNormGradBeta of the Ascend C API documentation, on whole arrays",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x = np.arange(8, dtype=np.float32).reshape(4, 2)\n"
        ">>> gamma, beta = anycann.layer_norm_grad_beta(x, np.ones_like(x))\n"
        ">>> gamma.tolist(), beta.tolist()\n"
        "([12.0, 16.0], [4.0, 4.0])"
    ),
    workloads=(
        Workload("small", {"resForGamma": (1024, 512), "inputDy": (1024, 512)}),
        Workload("8192x4096", {"resForGamma": (8192, 4096), "inputDy": (8192, 4096)}),
        Workload("32768x1024", {"resForGamma": (32768, 1024), "inputDy": (32768, 1024)}),
        Workload("262144x128", {"resForGamma": (262144, 128), "inputDy": (262144, 128)}),
    ),
    two_phase=False,
)
