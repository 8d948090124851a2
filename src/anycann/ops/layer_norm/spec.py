"""The contract of aclnnLayerNorm."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950, INFERENCE, TRAINING
from anycann.spec import FLOATS, Double, IntArray, Let, OpSpec, Same, Tensor, Workload

_PARAMETER = Same("input", also=("float32",))


def _workload(name: str, rows: tuple[int, ...], width: int) -> Workload:
    shapes = {"input": (*rows, width), "weightOptional": (width,), "biasOptional": (width,)}
    return Workload(name, shapes, {"normalizedShape": (width,)})


SPEC = OpSpec(
    name="aclnnLayerNorm",
    summary="Layer normalisation over the last axes: less the mean, over the standard deviation, times weight, plus bias.",
    formula=(
        "out = (input - mean) * rstd * weight + bias; mean = sum of input over N / n; "
        "rstd = 1 / sqrt(sum of (input - mean)**2 over N / n + eps), n the number of elements of normalizedShape"
    ),
    params=(
        Tensor("input", "*M *N", FLOATS, doc="what is normalised over the axes N"),
        IntArray("normalizedShape", required=True, null_code=161001, low=0, least=1, doc="the sizes of the axes N"),
        Tensor("weightOptional", "*N", FLOATS, dtype=_PARAMETER, optional=True, doc="factor of each element of N; without it 1"),
        Tensor(
            "biasOptional",
            "*N",
            FLOATS,
            dtype=Same("weightOptional", otherwise=_PARAMETER),
            optional=True,
            doc="summand of each element of N; without it 0",
        ),
        Double("eps", default=1e-5, doc="added to the variance"),
        Tensor("out", "*M *N", FLOATS, dtype=Same("input"), output=True, doc="the normalised input"),
        Tensor("meanOutOptional", "*M *U", ("float32",), output=True, optional=True, doc="mean of each row"),
        Tensor("rstdOutOptional", "*M *U", ("float32",), output=True, optional=True, doc="reciprocal standard deviation of each row"),
    ),
    rules=(
        Let("*N", "normalizedShape", "{normalizedShape}"),
        Let("*U", "(1,) * len(normalizedShape)", "a 1 for each axis of N"),
    ),
    products=(INFERENCE, TRAINING, A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "out, mean and rstd within 0.51 ULP; what cancels leaves 2**-48 of its size",
        "float16, bfloat16": "error <= 4 * 2**-24 * |(input - mean) * rstd * weight| and one rounding, where rstd is within float32; "
        "mean and rstd as for float32",
    },
    notes=(
        "The variance is the biased one. Mean and variance come from the sums, in float64, of the elements less the first of their row, "
        "and of the squares of that: 16 lanes (element i in lane i mod 16), then the lanes pairwise (8+8, 4+4, 2+2, 1+1). The mean that is "
        "subtracted is not rounded to float32.",
        "weight and bias have the dtype of input or float32, both the same; mean and rstd are always float32.",
        "Of a row without elements mean and rstd are NaN.",
    ),
    source="aclnnLayerNorm of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> x = np.array([[1, 3], [2, 6]], np.float32)\n"
        ">>> out, mean, rstd = anycann.layer_norm(x, (2,), eps=0.0)\n"
        ">>> out.tolist(), mean.tolist(), rstd.tolist()\n"
        "([[-1.0, 1.0], [-1.0, 1.0]], [[2.0], [4.0]], [[1.0], [0.5]])"
    ),
    workloads=(
        _workload("small", (512,), 1024),
        _workload("8192x4096", (4, 2048), 4096),
        _workload("262144x128", (262144,), 128),
    ),
)
