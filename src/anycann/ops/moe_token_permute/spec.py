"""The contract of aclnnMoeTokenPermute."""

from anycann.products import A2_BOX, A2_INFERENCE, A2_TRAINING, A3, ASCEND_950
from anycann.spec import FLOATS, Bool, Int, Let, OpSpec, Rule, Same, Tensor, Workload


def _workload(name: str, tokens: int, top_k: int, hidden: int) -> Workload:
    return Workload(name, {"tokens": (tokens, hidden), "indices": (tokens, top_k)})


SPEC = OpSpec(
    name="aclnnMoeTokenPermute",
    summary="Permutation of tokens to experts: the copies of all tokens, sorted by the experts that they go to.",
    formula=(
        "sortedIndices = inverse of the stable argsort of indices, flattened; "
        "permuteTokens[sortedIndices[i]] = tokens[i // K] for each of the N * K copies i whose place is below R; "
        "R = numOutTokens if that is positive, else numOutTokens + N * K, at least 0 and at most N * K"
    ),
    params=(
        Tensor("tokens", "N H", FLOATS, doc="the tokens"),
        Tensor("indices", ("N K", "N"), ("int32", "int64"), values="experts", doc="expert of each copy of each token; any integers"),
        Int("numOutTokens", default=0, doc="rows to keep: so many of the first, or if not positive all but so many of the last"),
        Bool("paddedMode", default=False, allowed=(False,), doc="padded mode is not supported, on devices neither"),
        Tensor("permuteTokensOut", "R H", FLOATS, dtype=Same("tokens"), output=True, const=True, doc="copies of the tokens, sorted"),
        Tensor("sortedIndicesOut", "L", ("int32",), output=True, const=True, doc="the place of each copy"),
    ),
    rules=(
        Let("L", "N * K", "N * K"),
        Rule("L < 2**31", "must have fewer elements than an int32 counts", "indices"),
        Let("R", "max(0, min(numOutTokens if numOutTokens > 0 else numOutTokens + L, L))", "rows to keep"),
    ),
    products=(A2_TRAINING, A2_INFERENCE, A2_BOX, A3, ASCEND_950),
    accuracy={"float16, bfloat16, float32": "copies, bit for bit"},
    notes=(
        "Copies that go to the same expert keep their order. sortedIndices is whole, whatever numOutTokens is.",
        "moe_token_permute_grad with numTopk = K is the gradient, moe_token_unpermute the way back.",
    ),
    source="aclnnMoeTokenPermute of the CANN operator documentation",
    example=(
        ">>> import numpy as np, anycann\n"
        ">>> tokens, experts = np.array([[1], [2]], np.float32), np.array([[7, 3], [3, 5]])\n"
        ">>> rows, places = anycann.moe_token_permute(tokens, experts)\n"
        ">>> rows[:, 0].tolist(), places.tolist()\n"
        "([1.0, 2.0, 2.0, 1.0], [3, 0, 1, 2])"
    ),
    workloads=(
        _workload("small", 512, 2, 512),
        _workload("mixtral", 8192, 2, 4096),
        _workload("k6", 4096, 6, 2048),
        _workload("deepseek", 4096, 8, 7168),
        _workload("k1", 16384, 1, 4096),
    ),
)
