"""The contract of aclnnMoeTokenUnpermuteGrad, and the constants of its sums."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950
from anycann.spec import FLOATS, Bool, IntArray, Let, OpSpec, Rule, Same, Tensor, Workload

LANES = 16  # h = l, l + 16, l + 32, … are added in float32 in lane l
RUN_H = 256  # so many h, 16 a lane, make a run; runs are added in float64


def _workload(name: str, tokens: int, top_k: int, hidden: int) -> Workload:
    shapes = {
        "permuteTokensOptional": (tokens * top_k, hidden),
        "unpermutedTokensGrad": (tokens, hidden),
        "sortedIndices": (tokens * top_k,),
        "probsOptional": (tokens, top_k),
    }
    return Workload(name, shapes)


SPEC = OpSpec(
    name="aclnnMoeTokenUnpermuteGrad",
    summary="Gradients of the way back from the permutation of tokens to experts: of the permuted tokens, and of their weights.",
    formula=(
        "permutedTokensGrad[sortedIndices[t * K + k], h] = unpermutedTokensGrad[t, h] * probs[t, k]; "
        "probsGrad[t, k] = sum over h of unpermutedTokensGrad[t, h] * permuteTokens[sortedIndices[t * K + k], h]"
    ),
    params=(
        Tensor(
            "permuteTokensOptional",
            "P H",
            FLOATS,
            dtype=Same("unpermutedTokensGrad"),
            optional=True,
            needed="probsOptional",
            doc="the permuted tokens of the forward pass",
        ),
        Tensor("unpermutedTokensGrad", "T H", FLOATS, doc="gradient of the tokens"),
        Tensor(
            "sortedIndices", "L", ("int32",), values="permutation", below="max(R, L)", doc="row of each token's copies, K for every token"
        ),
        Tensor("probsOptional", "T K", FLOATS, optional=True, doc="weights of the copies; without them K is 1, and so are they"),
        Bool("paddedMode", default=False, allowed=(False,), doc="padded mode is not supported, on devices neither"),
        IntArray("restoreShapeOptional", doc="has a meaning in padded mode only"),
        Tensor(
            "permutedTokensGradOut", "R H", FLOATS, dtype=Same("unpermutedTokensGrad"), output=True, doc="gradient of the permuted tokens"
        ),
        Tensor(
            "probsGradOut",
            "T K",
            FLOATS,
            dtype=Same("probsOptional"),
            output=True,
            needed="probsOptional",
            doc="gradient of the weights, where there are any",
        ),
    ),
    rules=(
        Rule("1 <= K <= 512", "must have 1 to 512 columns", "probsOptional"),
        Rule(
            "L % K == 0",
            "must hold K entries for every row of {unpermutedTokensGrad}",
            "sortedIndices",
            mend="Pass an entry for each element of {probsOptional}.",
        ),
        Let("T", "L // K", "L / K"),
        Let("R", "P if permuteTokensOptional else L", "P, or L where there are no permuted tokens"),
    ),
    products=(A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={
        "float32": "permutedTokensGrad: the product, rounded once; probsGrad: error <= 1.1e-6 * sum of |terms|",
        "float16, bfloat16": "permutedTokensGrad: the product in float32, rounded once; probsGrad: its sums, rounded once",
    },
    notes=(
        "Rows that no index names are 0. Of indices that name the same row the last one decides its gradient, in the order of t and k.",
        f"probsGrad: {LANES} lanes of h (l, l + {LANES}, ...) in float32, products rounded, at most {RUN_H // LANES} terms each; such runs "
        "in order in float64; then the lanes pairwise (8+8, 4+4, 2+2, 1+1). It is 0 where the index is negative or >= R.",
        "A row whose weight is 0 is no exception: its gradient is that product, and the weight has a gradient.",
        "probs may have any of the listed dtypes, whatever the tokens have. K is at most 512, as numTopk of the permutation's gradient.",
        "Without probs there is no probsGrad, and permuteTokens is only asked how many rows there are: without it as many as indices.",
    ),
    sum_error="1.1e-6",
    source="aclnnMoeTokenUnpermuteGrad of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> rows, grad = np.array([[1, 2], [3, 4]], np.float32), np.array([[10, 100]], np.float32)\n"
        ">>> probs = np.array([[0.5, 2]], np.float32)\n"
        ">>> rows_grad, probs_grad = anycann.moe_token_unpermute_grad(rows, grad, np.array([1, 0], np.int32), probs)\n"
        ">>> rows_grad.tolist(), probs_grad.tolist()\n"
        "([[20.0, 200.0], [5.0, 50.0]], [[430.0, 210.0]])"
    ),
    workloads=(
        _workload("small", 512, 2, 512),
        _workload("mixtral", 8192, 2, 4096),
        _workload("k6", 4096, 6, 2048),
        _workload("deepseek", 4096, 8, 7168),
        _workload("k1", 16384, 1, 4096),
    ),
)
