"""The contract of aclnnSmoothL1Loss, and the constants of its summation tree."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE, TRAINING
from anycann.spec import FLOATS, Broadcast, Float, Int, OpSpec, Promote, Rule, Tensor, When, Workload

ELEMENTS_PER_PARTIAL = 1024  # consecutive elements of the broadcast shape whose losses make one partial sum
SUMS_PER_PARTIAL = 64  # float64 sums of which each takes the losses that lie so many elements apart, one after the other
PARTIALS_PER_GROUP = 64  # partial sums added one after the other; the sums of groups then are, too

_BOTH = ("self", "target")


SPEC = OpSpec(
    name="aclnnSmoothL1Loss",
    summary="Smooth L1 loss: of each element, or its mean or sum.",
    formula=(
        "x = self - target, with broadcasting; loss = 0.5 x^2 / beta if |x| < beta, else |x| - 0.5 beta; "
        "result = loss for reduction none, its mean or its sum over all elements"
    ),
    params=(
        Tensor("self", "*S", FLOATS, doc="prediction"),
        Tensor("target", "*T", FLOATS, doc="what was to be predicted"),
        Int("reduction", default=1, low=0, high=2, names=("none", "mean", "sum"), doc="what becomes of the losses of the elements"),
        Float("beta", default=1.0, low=0.0, doc="where the loss turns from quadratic to linear; 0 gives the L1 loss"),
        Tensor(
            "result",
            When("reduction == 0", Broadcast(_BOTH), ("", "1")),
            FLOATS,
            dtype=Promote(_BOTH, castable=True),
            output=True,
            doc="the losses, or their mean or sum; any listed dtype",
        ),
    ),
    rules=(
        Rule(
            "broadcasts(S, T)",
            "must broadcast with {target}",
            "self",
            mend="Right-aligned dimensions must be equal, or one of them 1, and all together 2**60 elements at most.",
        ),
    ),
    products=(INFERENCE, TRAINING, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "none: bit for bit the float32 evaluation below; mean and sum: those losses added in float64, rounded once",
        "float16, bfloat16": "the same, rounded once to the output dtype",
    },
    notes=(
        "Each operation in float32, rounded once: x = self - target; (0.5 x) (x / beta) where |x| < beta, which overflows and underflows "
        "only with the loss itself, else |x| - 0.5 beta.",
        f"Mean and sum: the losses of {ELEMENTS_PER_PARTIAL} consecutive elements of the broadcast shape make one partial sum in float64: "
        f"{SUMS_PER_PARTIAL} sums of every {SUMS_PER_PARTIAL}th loss, in order, then in halves, each with the one half their number on. "
        f"{PARTIALS_PER_GROUP} partial sums are added in order in float64, then the sums of such groups; the mean divides by the number of "
        "elements; one rounding at the end.",
        "The mean of nothing is NaN, the sum of nothing 0. beta = 0: |x|. beta = inf: 0 for finite x. NaN in any operand gives NaN.",
    ),
    source="aclnnSmoothL1Loss of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x = np.array([0.0, 1.5, 4.0], np.float32)\n"
        ">>> anycann.smooth_l1_loss(x, np.ones(3, np.float32), 'none').tolist()\n"
        "[0.5, 0.125, 2.5]\n"
        ">>> float(anycann.smooth_l1_loss(x, np.ones(3, np.float32), 'sum'))\n"
        "3.125"
    ),
    workloads=(
        Workload("small", {"self": (256, 2048), "target": (256, 2048)}, {"reduction": 1, "beta": 1.0}),
        Workload("mean", {"self": (4096, 8192), "target": (4096, 8192)}, {"reduction": 1, "beta": 1.0}),
        Workload("none", {"self": (4096, 8192), "target": (4096, 8192)}, {"reduction": 0, "beta": 0.5}),
        Workload("sum", {"self": (4096, 8192), "target": (4096, 8192)}, {"reduction": 2, "beta": 0.5}),
    ),
    stages=("nulls", "dtypes", "ranks", "attributes", "promotion", "shapes", "storage", "aliases", "tiling", "empty", "product"),
    elementwise=True,
)
