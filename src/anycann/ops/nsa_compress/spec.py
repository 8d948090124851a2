"""The contract of aclnnNsaCompress, and the constant of its summation order."""

from anycann.ops.windows import FUNCTIONS, MULTIPLES, SEQUENCES, nothing_empty
from anycann.products import A2_TRAINING
from anycann.spec import Int, IntArray, OpSpec, Rule, Same, Str, Tensor, Workload

RUN_W = 16  # so many tokens of a window are added one after the other; then these runs are, in float32 all of it

_SIXTEENTHS = ("float16", "bfloat16")


def _workload(name: str, tokens: int, heads: int, width: int, block: int = 32, stride: int = 16) -> Workload:
    shapes = {"input": (tokens, heads, width), "weight": (block, heads)}
    return Workload(name, shapes, {"actSeqLenOptional": (tokens,), "compressBlockSize": block, "compressStride": stride})


SPEC = OpSpec(
    name="aclnnNsaCompress",
    summary="The NSA compression: each window of tokens of a sequence becomes one, their weighted sum.",
    formula=(
        "output[c, n, d] = sum over w < W of input[start_b + j * s + w, n, d] * weight[w, n]; "
        "c counts the windows j of all sequences b; a sequence of length L has (L - W) // s + 1 windows, none if L < W"
    ),
    params=(
        Tensor("input", "T N D", _SIXTEENTHS, superset=("float32",), doc="tokens of all sequences, one after the other"),
        Tensor(
            "weight",
            "W N",
            _SIXTEENTHS,
            dtype=Same("input"),
            superset=("float32",),
            doc="weight of each place in a window, for each head",
        ),
        IntArray(
            "actSeqLenOptional",
            required=True,
            null_code=161002,
            null_superset=True,
            alias="actSeqLen",
            doc="running sums of the sequence lengths, with or without a leading 0",
        ),
        Str("layoutOptional", default="TND", choices=("TND",), null="TND", doc="order of the axes"),
        Int("compressBlockSize", required=True, low=1, alias="W", doc="tokens in a window"),
        Int("compressStride", required=True, low=1, alias="s", doc="tokens from one window to the next"),
        Int("actSeqLenType", default=0, low=0, high=0, doc="0: actSeqLen holds running sums"),
        Tensor("output", "C N D", _SIXTEENTHS, dtype=Same("input"), output=True, superset=("float32",), doc="compressed tokens"),
    ),
    rules=(
        *SEQUENCES,
        *MULTIPLES,
        Rule("W >= s", "must not be smaller than {compressStride}", "compressBlockSize", "tiling", 561002),
        *nothing_empty("output", "anycann.nsa_compress takes this case: its result is empty."),
    ),
    functions=FUNCTIONS,
    products=(A2_TRAINING,),
    accuracy={
        "float32": "bit for bit the float32 sum in its written order: error <= (16 + W / 16) * 2**-24 * sum of |terms|",
        "float16, bfloat16": "that sum in float32, rounded once",
    },
    notes=(
        f"Each product is rounded to float32; {RUN_W} consecutive tokens of a window are added in order, then these runs in order; the one "
        "rounding to 16 bits is half to even (devices round the half away from 0).",
        "The Python function also takes float32, no running sums (None: one sequence), and sequences all shorter than a window.",
    ),
    sum_error="(16 + W // 16) * 2**-24",
    source="aclnnNsaCompress of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> ones = np.ones((48, 1, 16), np.float16)\n"
        ">>> y = anycann.nsa_compress(ones, ones[:32, :, 0], [48], compress_block_size=32, compress_stride=16)\n"
        ">>> y[:, 0, 0].tolist()\n"
        "[32.0, 32.0]"
    ),
    workloads=(
        _workload("small", 2048, 4, 64),
        _workload("n4d128", 65536, 4, 128),
        _workload("n16d192", 65536, 16, 192),
        _workload("n64d128", 8192, 64, 128),
    ),
)
