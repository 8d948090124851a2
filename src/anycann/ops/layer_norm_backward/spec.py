"""The contract of aclnnLayerNormBackward."""

from anycann.ops.column_sums import ROWS_PER_RUN, RUNS_PER_PARTIAL
from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE, TRAINING
from anycann.spec import FLOATS, Bools, IntArray, Let, OpSpec, Same, Tensor, Workload

_LIKE_INPUT = Same("input")
_PARAMETER = Same("input", also=("float32",))
_LIKE_WEIGHT = Same("weightOptional", otherwise=_LIKE_INPUT)


def _workload(name: str, rows: tuple[int, ...], width: int) -> Workload:
    full, ones = (*rows, width), (*rows, 1)
    shapes = {"gradOut": full, "input": full, "mean": ones, "rstd": ones, "weightOptional": (width,), "biasOptional": (width,)}
    return Workload(name, shapes, {"normalizedShape": (width,)})


SPEC = OpSpec(
    name="aclnnLayerNormBackward",
    summary="Gradients of layer normalisation with respect to its input, weight and bias.",
    formula=(
        "x = (input - mean) * rstd; g = gradOut * weight; "
        "gradInput = (g - sum of g over N / n - x * sum of g * x over N / n) * rstd, n the number of elements of normalizedShape; "
        "gradWeight = sum of gradOut * x over M; gradBias = sum of gradOut over M"
    ),
    params=(
        Tensor("gradOut", "*M *N", FLOATS, dtype=_LIKE_INPUT, doc="gradient of the forward result"),
        Tensor("input", "*M *N", FLOATS, doc="what was normalised over the axes N"),
        IntArray("normalizedShape", required=True, null_code=161001, low=0, least=1, doc="the sizes of the axes N"),
        Tensor("mean", "*M *U", FLOATS, doc="mean of each row, from the forward pass"),
        Tensor("rstd", "*M *U", FLOATS, dtype=Same("mean"), values="positive", doc="reciprocal standard deviation of each row"),
        Tensor("weightOptional", "*N", FLOATS, dtype=_PARAMETER, optional=True, doc="the forward's weight; without it 1"),
        Tensor(
            "biasOptional",
            "*N",
            FLOATS,
            dtype=Same("weightOptional", otherwise=_PARAMETER),
            optional=True,
            doc="the forward's bias, of which only the dtype matters",
        ),
        Bools("outputMask", size=3, default=(True, True, True), doc="which of the three gradients are computed"),
        Tensor("gradInputOut", "*M *N", FLOATS, dtype=_LIKE_INPUT, output=True, needed="outputMask[0]", doc="gradient of input"),
        Tensor("gradWeightOut", "*N", FLOATS, dtype=_LIKE_WEIGHT, output=True, needed="outputMask[1]", doc="gradient of weight"),
        Tensor(
            "gradBiasOut",
            "*N",
            FLOATS,
            dtype=Same("biasOptional", otherwise=_LIKE_WEIGHT),
            output=True,
            needed="outputMask[2]",
            doc="gradient of bias",
        ),
    ),
    rules=(
        Let("*N", "normalizedShape", "{normalizedShape}"),
        Let("*U", "(1,) * len(normalizedShape)", "a 1 for each axis of N"),
    ),
    products=(INFERENCE, TRAINING, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "gradInput within 0.51 ULP; what cancels leaves 2**-48 of its size; "
        "gradWeight, gradBias: error <= 1.2e-6 * sum of |terms| for any number of rows",
        "float16, bfloat16": "gradInput: error <= 8 * 2**-24 * (|g| + mean of |g| + |x| * mean of |g * x|) * rstd; all rounded once",
    },
    notes=(
        "Where results are float32, gradInput is evaluated in float64 and rounded once.",
        "The sums over N are float64, in 16 lanes that are then added pairwise. Of the sums over M the terms are rounded to float32; "
        f"{ROWS_PER_RUN} consecutive rows are added in order in float32, {RUNS_PER_PARTIAL} such runs in order in float64, and those "
        "partial sums in order in float64; one rounding at the end, as in LayerNormGradBeta.",
        "Without rows gradWeight and gradBias are 0. Gradients that outputMask leaves out are not written; the Python function gives None.",
        "gradOut and gradInput have the dtype of input, weight and bias that or float32, gradWeight and gradBias the dtype of weight and "
        "bias (of input without them); mean and rstd any listed dtype, both the same.",
    ),
    source="aclnnLayerNormBackward of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x, dy = np.array([[1, 3], [2, 6]], np.float32), np.array([[1, 0], [0, 4]], np.float32)\n"
        ">>> mean, rstd = np.array([[2], [4]], np.float32), np.array([[1], [0.5]], np.float32)\n"
        ">>> dx, dw, db = anycann.layer_norm_backward(dy, x, (2,), mean, rstd)\n"
        ">>> dx.tolist(), dw.tolist(), db.tolist()\n"
        "([[0.0, 0.0], [0.0, 0.0]], [-1.0, 4.0], [1.0, 4.0])"
    ),
    workloads=(
        _workload("small", (512,), 1024),
        _workload("8192x4096", (4, 2048), 4096),
        _workload("262144x128", (262144,), 128),
    ),
)
