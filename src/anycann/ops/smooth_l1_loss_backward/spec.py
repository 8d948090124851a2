"""The contract of aclnnSmoothL1LossBackward."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE, TRAINING
from anycann.spec import FLOATS, Broadcast, Float, Int, OpSpec, Promote, Tensor, Workload

_ALL = ("gradOut", "self", "target")

SPEC = OpSpec(
    name="aclnnSmoothL1LossBackward",
    summary="Gradient of the smooth L1 loss with respect to self.",
    formula=(
        "x = self - target; d = x / beta if |x| < beta, else sign(x); gradInput = d * gradOut * norm, with broadcasting; "
        "norm = 1 / N for reduction mean (N elements in the broadcast of self and target), else 1"
    ),
    params=(
        Tensor("gradOut", "*G", FLOATS, doc="gradient of the loss; usually one element for mean and sum"),
        Tensor("self", "*S", FLOATS, doc="prediction"),
        Tensor("target", "*T", FLOATS, doc="what was to be predicted"),
        Int("reduction", default=1, low=0, high=2, names=("none", "mean", "sum"), doc="the forward's reduction"),
        Float("beta", default=1.0, low=0.0, doc="where the loss turns from quadratic to linear; 0 gives the gradient of the L1 loss"),
        Tensor(
            "gradInput",
            Broadcast(_ALL),
            FLOATS,
            dtype=Promote(_ALL, castable=True),
            output=True,
            doc="gradient of self, never reduced; any listed dtype",
        ),
    ),
    products=(INFERENCE, TRAINING, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "bit for bit the float32 evaluation x = self - target; x / beta or sign(x); * gradOut; * norm, each rounded once",
        "float16, bfloat16": "that evaluation in float32, rounded once to the output dtype",
    },
    notes=(
        "beta = 0: sign(x), with sign(0) = 0. beta = inf: 0 for finite x. NaN in any operand gives NaN.",
        "norm is 1 / N rounded to float32; it is left out when it is 1.",
    ),
    source="aclnnSmoothL1LossBackward of the CANN operator documentation (whose formula shows beta = 1)",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x = np.array([0.0, 1.25, 4.0], np.float32)\n"
        ">>> anycann.smooth_l1_loss_backward(np.ones(1, np.float32), x, np.ones(3, np.float32), 'sum').tolist()\n"
        "[-1.0, 0.25, 1.0]"
    ),
    workloads=(
        Workload("small", {"gradOut": (1,), "self": (256, 2048), "target": (256, 2048)}, {"reduction": 1, "beta": 1.0}),
        Workload("mean", {"gradOut": (1,), "self": (4096, 8192), "target": (4096, 8192)}, {"reduction": 1, "beta": 1.0}),
        Workload("none", {"gradOut": (4096, 8192), "self": (4096, 8192), "target": (4096, 8192)}, {"reduction": 0, "beta": 0.5}),
        Workload("mean-large", {"gradOut": (1,), "self": (8192, 28672), "target": (8192, 28672)}, {"reduction": 1, "beta": 1.0}),
    ),
    stages=("nulls", "dtypes", "ranks", "attributes", "promotion", "shapes", "storage", "aliases", "tiling", "empty", "product"),
    elementwise=True,
)
