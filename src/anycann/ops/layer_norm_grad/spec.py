"""The contract of LayerNormGrad on whole arrays."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE
from anycann.spec import FLOATS, Float, OpSpec, Same, Tensor, Workload

_LIKE = Same("inputDy")
_OR_FLOAT32 = Same("inputDy", also=("float32",))


def _workload(name: str, rows: tuple[int, ...], width: int) -> Workload:
    full = (*rows, width)
    return Workload(name, {"inputDy": full, "inputX": full, "inputVariance": rows, "inputMean": rows, "inputGamma": (width,)})


SPEC = OpSpec(
    name="LayerNormGrad",
    summary="Gradient of the input of layer normalisation from the variance, and the normalised input that LayerNormGradBeta takes.",
    formula=(
        "a = inputDy * inputGamma, c = inputX - inputMean, r = (inputVariance + epsilon)**(-1/2); "
        "pdVar = sum over h of -a * c * r**3 / 2; pdMean = sum over h of -a * r + pdVar * (sum over h of -2 * c) / H; "
        "pdX = a * r + pdVar * 2 * c / H + pdMean / H; resForGamma = c * r"
    ),
    params=(
        Tensor("inputDy", "*D H", FLOATS, doc="gradient of the forward result"),
        Tensor("inputX", "*D H", FLOATS, dtype=_LIKE, doc="what was normalised over its last axis"),
        Tensor("inputVariance", "*D", FLOATS, dtype=_OR_FLOAT32, values="positive", doc="variance of each row, from the forward pass"),
        Tensor("inputMean", "*D", FLOATS, dtype=Same("inputVariance"), doc="mean of each row"),
        Tensor("inputGamma", "H", FLOATS, dtype=_OR_FLOAT32, doc="the forward's weight"),
        Float("epsilon", default=1e-5, doc="added to the variance"),
        Tensor("pdX", "*D H", FLOATS, dtype=_LIKE, output=True, doc="gradient of inputX"),
        Tensor("resForGamma", "*D H", FLOATS, dtype=_LIKE, output=True, doc="the normalised inputX"),
    ),
    products=(INFERENCE, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "pdX within 0.51 ULP; what cancels leaves 2**-48 of its size; resForGamma: error <= 3 * 2**-24 * |c * r|",
        "float16, bfloat16": "pdX: error <= 8 * 2**-24 * (|a| + mean of |a| + r * |c| * mean of |a * c * r|) * r, and one rounding",
    },
    notes=(
        "The sums over a row are float64: 16 lanes (element h in lane h mod 16), then the lanes pairwise (8+8, 4+4, 2+2, 1+1).",
        "inputVariance and inputMean have the dtype of inputDy or float32, both the same; inputGamma has that of inputDy or float32.",
    ),
    source="LayerNormGrad of the Ascend C API documentation, on whole arrays",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x, dy = np.array([[1, 3], [2, 6]], np.float32), np.array([[1, 0], [0, 4]], np.float32)\n"
        ">>> variance, mean = np.array([1, 4], np.float32), np.array([2, 4], np.float32)\n"
        ">>> pd_x, normalised = anycann.layer_norm_grad(dy, x, variance, mean, np.ones(2, np.float32), 0.0)\n"
        ">>> pd_x.tolist(), normalised.tolist()\n"
        "([[0.0, 0.0], [0.0, 0.0]], [[-1.0, 1.0], [-1.0, 1.0]])"
    ),
    workloads=(
        _workload("small", (512,), 1024),
        _workload("8192x4096", (4, 2048), 4096),
        _workload("262144x128", (262144,), 128),
    ),
    two_phase=False,
)
