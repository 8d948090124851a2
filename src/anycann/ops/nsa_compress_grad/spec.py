"""The contract of aclnnNsaCompressGrad, and the constants of its summation tree."""

from anycann.ops.windows import FUNCTIONS, MULTIPLES, SEQUENCES, nothing_empty, windows
from anycann.products import A2_TRAINING
from anycann.spec import Int, IntArray, OpSpec, Rule, Same, Str, Tensor, Workload

LANES = 16  # d = l, l + 16, l + 32, … are added in float32 in lane l
RUN_D = 256  # so many d, 16 a lane, make a run; runs are added in float64
TOKENS_PER_PARTIAL = 1024  # tokens whose runs make one partial sum of weightGrad

_SIXTEENTHS = ("float16", "bfloat16")


def _workload(name: str, tokens: int, heads: int, width: int, block: int = 32, stride: int = 16) -> Workload:
    count = windows(None, tokens, block, stride)
    shapes = {"outputGrad": (count, heads, width), "input": (tokens, heads, width), "weight": (block, heads)}
    return Workload(name, shapes, {"compressBlockSize": block, "compressStride": stride})


SPEC = OpSpec(
    name="aclnnNsaCompressGrad",
    summary="Gradients of the NSA compression, a weighted sum over sliding windows of the tokens of each sequence.",
    formula=(
        "inputGrad[start_b + j * s + w, n, d] += weight[w, n] * outputGrad[c, n, d]; "
        "weightGrad[w, n] = sum over c, d of outputGrad[c, n, d] * input[start_b + j * s + w, n, d]; "
        "c counts the windows j of all sequences b; a sequence of length L has (L - W) // s + 1 windows, none if L < W"
    ),
    params=(
        Tensor("outputGrad", "C N D", _SIXTEENTHS, superset=("float32",), doc="gradient of the compressed tokens"),
        Tensor(
            "input",
            "T N D",
            _SIXTEENTHS,
            dtype=Same("outputGrad"),
            superset=("float32",),
            doc="tokens of all sequences, one after the other",
        ),
        Tensor(
            "weight",
            "W N",
            _SIXTEENTHS,
            dtype=Same("outputGrad"),
            superset=("float32",),
            doc="weight of each place in a window, for each head",
        ),
        IntArray(
            "actSeqLenOptional",
            alias="actSeqLen",
            doc="running sums of the sequence lengths, with or without a leading 0; null is one sequence",
        ),
        Int("compressBlockSize", required=True, low=1, alias="W", doc="tokens in a window"),
        Int("compressStride", required=True, low=1, alias="s", doc="tokens from one window to the next"),
        Int("actSeqLenType", default=0, low=0, high=0, doc="0: actSeqLen holds running sums"),
        Str("layoutOptional", default="TND", choices=("TND",), null="TND", doc="order of the axes"),
        Tensor(
            "inputGradOut",
            "T N D",
            _SIXTEENTHS,
            dtype=Same("input"),
            output=True,
            superset=("float32",),
            const=True,
            doc="gradient of input",
        ),
        Tensor(
            "weightGradOut",
            "W N",
            _SIXTEENTHS,
            dtype=Same("weight"),
            output=True,
            superset=("float32",),
            const=True,
            doc="gradient of weight",
        ),
    ),
    rules=(
        *SEQUENCES,
        *MULTIPLES,
        Rule("W > s", "must be large enough for {compressStride}", "compressBlockSize", "tiling", 561002, superset="W >= s"),
        *nothing_empty("outputGrad", "anycann.nsa_compress_grad takes this case: its gradients are 0."),
    ),
    functions=FUNCTIONS,
    products=(A2_TRAINING,),
    accuracy={
        "float16, bfloat16": "one rounding of the sums in their written order; weightGrad before it: error <= 1.1e-6 * sum of |terms|",
        "float32": "inputGrad: bit for bit the float32 sum in the order of the windows; weightGrad: error <= 1.1e-6 * sum of |terms|",
    },
    notes=(
        "Tokens that no window covers get 0. inputGrad adds its windows in ascending order in float32, each product rounded.",
        f"weightGrad: for every token in order, {LANES} lanes of d (l, l + {LANES}, ...) in float32, at most {RUN_D // LANES} terms each; "
        f"lanes over {TOKENS_PER_PARTIAL} tokens in float64; then the lanes pairwise (8+8, 4+4, 2+2, 1+1), then these groups in order.",
        "The Python function also takes float32, W = s, and sequences all shorter than a window; the two-phase API follows the page.",
    ),
    sum_error="max(1.1e-6, (W // s + 1) * 2**-24)",
    source="aclnnNsaCompressGrad of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> ones = np.ones((32, 1, 16), np.float16)\n"
        ">>> dx, dw = anycann.nsa_compress_grad(ones[:1], ones, np.ones((32, 1), np.float16), compress_block_size=32, compress_stride=16)\n"
        ">>> float(dx.sum()), dw[0].tolist()\n"
        "(512.0, [16.0])"
    ),
    workloads=(
        _workload("small", 2048, 4, 64),
        _workload("n4d128", 65536, 4, 128),
        _workload("n16d192", 65536, 16, 192),
        _workload("n64d128", 8192, 64, 128),
    ),
    stages=("nulls", "dtypes", "promotion", "ranks", "shapes", "storage", "aliases", "attributes", "tiling", "empty", "product"),
)
