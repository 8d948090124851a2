"""The contract of aclnnGeluBackwardV2."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE, TRAINING
from anycann.spec import FLOATS, Broadcast, OpSpec, Promote, Str, Tensor, Workload

_BOTH = ("gradOutput", "self")

SPEC = OpSpec(
    name="aclnnGeluBackwardV2",
    summary="Gradient of GELU, exact (erf) or by its tanh approximation.",
    formula=(
        "gradInput = gradOutput * d(self), with broadcasting; "
        "none: d(x) = Phi(x) + x * phi(x), Phi(x) = (1 + erf(x / sqrt(2))) / 2, phi(x) = exp(-x^2 / 2) / sqrt(2 pi); "
        "tanh: d(x) = s + 2 x s (1 - s) sqrt(2 / pi) (1 + 3 * 0.044715 x^2), s = sigmoid(2 sqrt(2 / pi) (x + 0.044715 x^3))"
    ),
    params=(
        Tensor("gradOutput", "*G", FLOATS, doc="gradient of the forward result; broadcasts with self"),
        Tensor("self", "*S", FLOATS, doc="input of the forward GELU; broadcasts with gradOutput"),
        Str("approximate", default="none", choices=("none", "tanh"), doc="which GELU: none is the exact one, by erf"),
        Tensor(
            "gradInput",
            Broadcast(_BOTH),
            FLOATS,
            dtype=Promote(_BOTH),
            output=True,
            doc="gradient of self before any sum over broadcast axes",
        ),
    ),
    products=(INFERENCE, TRAINING, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float16, bfloat16": "gradOutput 1: correctly rounded for every self; any gradOutput: within 0.51 ULP where |d| >= 2^-126",
        "float32": "gradOutput 1: within 2 ULP for every self (of the smallest normal, below it); any gradOutput: within 5 ULP",
    },
    notes=(
        "d is rounded to float32, multiplied by gradOutput in float32, and the product is rounded once to the output dtype.",
        "none: d of +inf, -inf and NaN is NaN. tanh: d(+inf) = 1, d(-inf) = 0, d(NaN) = NaN. The product is plain IEEE: 0 * inf = NaN.",
    ),
    source="aclnnGeluBackwardV2 of the CANN operator documentation; tanh: derivative of the forward formula printed there",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x = np.array([-1.0, 0.0, 2.0], np.float32)\n"
        ">>> anycann.gelu_backward_v2(np.full(3, 2, np.float32), x).tolist()\n"
        "[-0.16663093864917755, 1.0, 2.1704635620117188]"
    ),
    workloads=(
        Workload("small", {"gradOutput": (256, 2048), "self": (256, 2048)}),
        Workload("ffn", {"gradOutput": (4096, 8192), "self": (4096, 8192)}),
        Workload("ffn-tanh", {"gradOutput": (4096, 8192), "self": (4096, 8192)}, {"approximate": "tanh"}),
        Workload("ffn-large", {"gradOutput": (8192, 28672), "self": (8192, 28672)}),
    ),
    elementwise=True,
)
