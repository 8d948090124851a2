"""The contract of aclnnGeluV2."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE, TRAINING
from anycann.spec import FLOATS, Int, OpSpec, Same, Tensor, Workload

SPEC = OpSpec(
    name="aclnnGeluV2",
    summary="GELU, exact (erf) or by its tanh approximation.",
    formula=(
        "none: y = x * Phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2; tanh: y = 0.5 x (1 + tanh(u)), u = sqrt(2 / pi) (x + 0.044715 x^3)"
    ),
    params=(
        Tensor("x", "*D", FLOATS, doc="any shape"),
        Int("approximate", default=0, low=0, high=1, names=("none", "tanh"), doc="which GELU: none is the exact one, by erf"),
        Tensor("y", "*D", FLOATS, dtype=Same("x"), output=True, doc="GELU of each element"),
    ),
    products=(INFERENCE, TRAINING, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float16, bfloat16": "correctly rounded for every x",
        "float32": "within 2 ULP for every x (below the normal range, of the smallest normal)",
    },
    notes=(
        "+inf gives +inf, NaN gives NaN. -inf gives -0, the limit, for both formulas; devices give NaN.",
        "Negative x far from 0 keep their accuracy until the result underflows: nothing cancels.",
    ),
    source="aclnnGeluV2 of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x = np.array([-1.0, 0.0, 2.0], np.float32)\n"
        ">>> anycann.gelu_v2(x, 'tanh').tolist()\n"
        "[-0.15880800783634186, 0.0, 1.9545977115631104]"
    ),
    workloads=(
        Workload("small", {"x": (256, 2048)}),
        Workload("ffn", {"x": (4096, 8192)}),
        Workload("ffn-tanh", {"x": (4096, 8192)}, {"approximate": 1}),
        Workload("ffn-large", {"x": (8192, 28672)}),
    ),
    elementwise=True,
)
