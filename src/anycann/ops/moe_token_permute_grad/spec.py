"""The contract of aclnnMoeTokenPermuteGrad."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950
from anycann.spec import FLOATS, Bool, Int, Let, OpSpec, Rule, Same, Tensor, Workload


def _workload(name: str, tokens: int, top_k: int, hidden: int) -> Workload:
    return Workload(name, {"permutedOutputGrad": (tokens * top_k, hidden), "sortedIndices": (tokens * top_k,)}, {"numTopk": top_k})


SPEC = OpSpec(
    name="aclnnMoeTokenPermuteGrad",
    summary="Gradient of the permutation of tokens to experts: each token gathers and adds the gradients of its K copies.",
    formula="out[t, h] = sum over k < K of permutedOutputGrad[sortedIndices[t * K + k], h]",
    params=(
        Tensor("permutedOutputGrad", "R H", FLOATS, doc="gradient of the permuted tokens"),
        Tensor(
            "sortedIndices", "L", ("int32",), values="permutation", below="max(R, L)", doc="row of each token's copies, K for every token"
        ),
        Int("numTopk", required=True, low=1, high=512, alias="K", doc="copies of each token"),
        Bool("paddedModeOptional", default=False, allowed=(False,), doc="padded mode is not supported, on devices neither"),
        Tensor("out", "T H", FLOATS, dtype=Same("permutedOutputGrad"), output=True, doc="gradient of the tokens"),
    ),
    rules=(
        Rule(
            "L % K == 0",
            "must hold {numTopk} entries for every row of {out}",
            "sortedIndices",
            mend="Pass a multiple of {numTopk} entries.",
        ),
        Let("T", "L // K", "L / K"),
    ),
    products=(A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "bit for bit the float32 sum in the order of k, starting from the first kept row",
        "float16, bfloat16": "that sum in float32, rounded once",
    },
    notes=(
        "An index that is negative or >= R is a dropped token and adds nothing; an index that occurs twice adds twice.",
        "The checking tools report how many indices are out of range: float bits in an int32 tensor look like this.",
    ),
    sum_error="K * 2**-24",
    source="aclnnMoeTokenPermuteGrad of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> grad = np.array([[1, 2], [3, 4]], np.float32)\n"
        ">>> anycann.moe_token_permute_grad(grad, np.array([1, 0], np.int32), 2).tolist()\n"
        "[[4.0, 6.0]]"
    ),
    workloads=(
        _workload("small", 512, 2, 512),
        _workload("mixtral", 8192, 2, 4096),
        _workload("k6", 4096, 6, 2048),
        _workload("deepseek", 4096, 8, 7168),
        _workload("k1", 16384, 1, 4096),
    ),
    stages=("nulls", "dtypes", "promotion", "attributes", "ranks", "shapes", "storage", "aliases", "tiling", "empty", "product"),
)
