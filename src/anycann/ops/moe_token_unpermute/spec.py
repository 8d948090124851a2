"""The contract of aclnnMoeTokenUnpermute."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950
from anycann.spec import FLOATS, Bool, IntArray, Let, OpSpec, Rule, Same, Tensor, Workload


def _workload(name: str, tokens: int, top_k: int, hidden: int) -> Workload:
    shapes = {"permutedTokens": (tokens * top_k, hidden), "sortedIndices": (tokens * top_k,)}
    return Workload(name, shapes if top_k == 1 else {**shapes, "probsOptional": (tokens, top_k)})


SPEC = OpSpec(
    name="aclnnMoeTokenUnpermute",
    summary="The way back from the permutation of tokens to experts: each token is the weighted sum of its K copies.",
    formula="out[t, h] = sum over k < K of permutedTokens[sortedIndices[t * K + k], h] * probs[t, k]",
    params=(
        Tensor("permutedTokens", "R H", FLOATS, doc="what the experts made of the copies"),
        Tensor(
            "sortedIndices", "L", ("int32",), values="permutation", below="max(R, L)", doc="row of each token's copies, K for every token"
        ),
        Tensor("probsOptional", "T K", FLOATS, optional=True, doc="weights of the copies; without them K is 1, and so are they"),
        Bool("paddedMode", default=False, allowed=(False,), doc="padded mode is not supported, on devices neither"),
        IntArray("restoreShapeOptional", doc="has a meaning in padded mode only"),
        Tensor("out", "T H", FLOATS, dtype=Same("permutedTokens"), output=True, doc="the tokens"),
    ),
    rules=(
        Rule("1 <= K <= 512", "must have 1 to 512 columns", "probsOptional"),
        Rule(
            "L % K == 0",
            "must hold K entries for every row of {out}",
            "sortedIndices",
            mend="Pass an entry for each element of {probsOptional}.",
        ),
        Let("T", "L // K", "L / K"),
    ),
    products=(A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "bit for bit the float32 sum of the rounded products in the order of k, starting from the first kept row",
        "float16, bfloat16": "that sum in float32, rounded once",
    },
    notes=(
        "An index that is negative or >= R is a dropped copy. It adds nothing, nor does a row whose weight is 0, whatever it holds.",
        "probs may have any of the listed dtypes, whatever permutedTokens has. K is at most 512, as numTopk of the gradient.",
    ),
    sum_error="(K + 1) * 2**-24",
    source="aclnnMoeTokenUnpermute of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> rows = np.array([[1, 2], [3, 4]], np.float32)\n"
        ">>> anycann.moe_token_unpermute(rows, np.array([1, 0], np.int32), np.array([[0.5, 0.25]], np.float32)).tolist()\n"
        "[[1.75, 2.5]]"
    ),
    workloads=(
        _workload("small", 512, 2, 512),
        _workload("mixtral", 8192, 2, 4096),
        _workload("k6", 4096, 6, 2048),
        _workload("deepseek", 4096, 8, 7168),
        _workload("k1", 16384, 1, 4096),
    ),
)
