"""The documented contract once more, written down by hand: what the tests hold the implementation against.

Nothing here is read off anycann. A wrong dtype list, range, order of checks or code in a specification of the package
disagrees with this table.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

ACL_DTYPES = {
    "float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int16": 6, "uint16": 7, "uint32": 8, "int64": 9, "uint64": 10,
    "float64": 11, "bool": 12, "complex64": 16, "complex128": 17, "bfloat16": 27, "int4": 29, "uint1": 30, "complex32": 33,
}  # fmt: skip
ACL_NAMES = {
    "float32": "FLOAT", "float64": "DOUBLE", "bfloat16": "BF16",
} | {name: name.upper() for name in ACL_DTYPES if name not in ("float32", "float64", "bfloat16")}  # fmt: skip
ITEMSIZE = {
    "bool": 1, "int4": 1, "uint1": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4,
    "float32": 4, "complex32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
}  # fmt: skip
NOT_IN_NUMPY = ("int4", "uint1", "complex32")
FORMATS = {
    "UNDEFINED": -1, "NCHW": 0, "NHWC": 1, "ND": 2, "NC1HWC0": 3, "FRACTAL_Z": 4, "HWCN": 16, "NDHWC": 27, "FRACTAL_NZ": 29,
    "NCDHW": 30, "NCL": 47,
}  # fmt: skip
STATUS_NAMES = {
    161001: "ACLNN_ERR_PARAM_NULLPTR",
    161002: "ACLNN_ERR_PARAM_INVALID",
    361001: "ACLNN_ERR_RUNTIME_ERROR",
    561002: "ACLNN_ERR_INNER_TILING_ERROR",
    561003: "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
    561103: "ACLNN_ERR_INNER_NULLPTR",
}
CODES = (0, 161001, 161002, 361001, 561000, 561001, 561002, 561003, *range(561101, 561120))

INT64 = range(-(2**63), 2**63)


class Series(NamedTuple):
    """A product series: its name, SoC names that mean it, its architecture, whether it has bfloat16."""

    name: str
    socs: tuple[str, ...]
    architecture: int
    bf16: bool


SERIES = (
    Series("Atlas training", ("Ascend910A", "Ascend910B", "Ascend910ProA", "Ascend910ProB", "Ascend910PremiumA"), 1001, False),
    Series("Atlas inference", ("Ascend310P1", "Ascend310P3", "Ascend310P5", "Ascend310P7"), 2002, False),
    Series("Atlas A2 training", ("Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3", "Ascend910B4"), 2201, True),
    Series("Atlas 800I A2 inference", (), 2201, True),
    Series("A200I A2 Box", (), 2201, True),
    Series("Atlas A3 training / inference", ("Ascend910_93", "Ascend910_9391", "Ascend910_9382"), 2201, True),
    Series("Atlas 200I/500 A2 inference", ("Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4"), 3002, True),
    Series("Ascend 950PR / 950DT", ("Ascend950PR_9589", "Ascend950DT_9581"), 3510, True),
)
TRAINING, INFERENCE, A2, A2_INFERENCE, A2_BOX, A3, A2_EDGE, ASCEND_950 = (series.name for series in SERIES)
A2_CHIPS = (A2, A2_INFERENCE, A2_BOX)


def promoted(a: str, b: str) -> str | None:
    """The documented promotion of two dtypes; None where there is none."""
    if a == b:
        return a
    if {a, b} & {"uint16", "uint32", "uint64", "int4", "uint1"}:
        return None
    integers, complexes = ("bool", "uint8", "int8", "int16", "int32", "int64"), ("complex32", "complex64", "complex128")
    if a in integers and b in integers:
        return "int16" if {a, b} == {"int8", "uint8"} else max(a, b, key=integers.index)
    if a in integers or b in integers:
        return b if a in integers else a
    parts = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
    real = {parts.get(a, a), parts.get(b, b)}
    wide = next(iter(real)) if len(real) == 1 else "float64" if "float64" in real else "float32"
    if a in complexes or b in complexes:
        return next(name for name, part in parts.items() if part == wide)
    return wide


def castable(source: str, target: str) -> bool:
    """Everything except complex to real, floating to integer and non-bool to bool."""
    floating = ("float16", "bfloat16", "float32", "float64")
    if source == target:
        return True
    if source.startswith("complex"):
        return target.startswith("complex")
    return target != "bool" and (source not in floating or target in floating or target.startswith("complex"))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    """Right-aligned broadcasting; 1 against 0 gives 0, 0 against n > 1 fails."""
    result = []
    for position in range(1, max(map(len, shapes)) + 1):
        sizes = {shape[-position] for shape in shapes if len(shape) >= position} - {1}
        if len(sizes) > 1:
            return None
        result.insert(0, sizes.pop() if sizes else 1)
    return tuple(result)


class Bad(NamedTuple):
    """An attribute value that is refused: in which pass, and at which doors it can be passed."""

    value: Any
    stage: str = "attribute"
    doors: tuple[str, ...] = ("python", "aclnn")


class Fact(NamedTuple):
    """The contract of one operator. Names are those of the C prototype."""

    api: str
    function: str
    parameters: tuple[str, ...]  # in the order of the prototype
    python: Mapping[str, str]  # how the Python function spells them
    outputs: tuple[str, ...]
    floats: tuple[str, ...]  # dtypes of the floating tensors; bfloat16 only on series that have it
    wider: tuple[str, ...]  # dtypes that the Python function accepts besides
    fixed: Mapping[str, str]  # tensors of one dtype
    result_dtype: Callable[[Mapping[str, str]], Mapping[str, str] | None]  # dtypes of inputs -> of outputs; None: no such call
    any_castable: bool  # outputs may have any listed dtype that the result casts to
    ranks: Mapping[str, tuple[int, ...]]
    sizes: Mapping[str, Any]  # of the baseline call
    shapes: Callable[[Mapping[str, Any]], dict[str, tuple[int, ...]]]  # sizes -> shapes
    fits: Callable[[Mapping[str, tuple[int, ...]], Mapping[str, Any]], bool]  # whether shapes belong together
    attributes: Callable[[Mapping[str, Any]], dict[str, Any]]  # sizes -> values of the baseline call
    good: Mapping[str, tuple[Any, ...]]  # attribute values that are accepted as they stand
    bad: Mapping[str, tuple[Bad, ...]]
    nullable: tuple[str, ...]
    strings: tuple[str, ...]  # strings whose null is refused
    passes: tuple[str, ...]  # in the order of the checks
    products: frozenset[str]

    @property
    def doors(self) -> tuple[str, ...]:
        return ("python", "aclnn") if self.api.startswith("aclnn") else ("python",)

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(self.ranks)

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(name for name in self.ranks if name not in self.outputs)

    def listed(self, tensor: str, series: Series, door: str) -> tuple[str, ...]:
        """The dtypes of a tensor on a series, at a door."""
        names = (self.fixed[tensor],) if tensor in self.fixed else self.floats + (self.wider if door == "python" else ())
        return tuple(name for name in names if series.bf16 or name != "bfloat16")


PASS_CODES = {
    "null": 161001, "dtype": 161002, "promotion": 161002, "rank": 161002, "shape": 161002, "storage": 561103, "alias": 161002,
    "attribute": 161002, "tiling": 561002, "empty": 161002, "product": 561003,
}  # fmt: skip
FRAMEWORK_ORDER = ("null", "dtype", "promotion", "rank", "shape", "storage", "alias", "attribute", "tiling", "empty", "product")
FLOATS = ("float16", "bfloat16", "float32")
UP_TO_8 = tuple(range(9))


def _meet(names: Sequence[str]) -> Callable[[Mapping[str, str]], str | None]:
    def met(given: Mapping[str, str]) -> str | None:
        found: str | None = given[names[0]]
        for name in names[1:]:
            found = None if found is None else promoted(found, given[name])
        return found

    return met


def _all_equal(inputs: Sequence[str], outputs: Sequence[str]) -> Callable[[Mapping[str, str]], Mapping[str, str] | None]:
    def result(given: Mapping[str, str]) -> Mapping[str, str] | None:
        kinds = {given[name] for name in inputs}
        return dict.fromkeys(outputs, given[inputs[0]]) if len(kinds) == 1 else None

    return result


_gelu_met = _meet(("gradOutput", "self"))
_smooth_met = _meet(("gradOut", "self", "target"))

GELU = Fact(
    api="aclnnGeluBackwardV2",
    function="gelu_backward_v2",
    parameters=("gradOutput", "self", "approximate", "gradInput"),
    python={"gradOutput": "grad_output", "self": "self", "approximate": "approximate", "gradInput": "out"},
    outputs=("gradInput",),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=lambda given: {"gradInput": met} if (met := _gelu_met(given)) else None,
    any_castable=False,
    ranks={"gradOutput": UP_TO_8, "self": UP_TO_8, "gradInput": UP_TO_8},
    sizes={"a": 4, "b": 2, "c": 3},
    shapes=lambda z: {"gradOutput": (z["a"], 1, z["c"]), "self": (z["b"], z["c"]), "gradInput": (z["a"], z["b"], z["c"])},
    fits=lambda shapes, attrs: broadcast(shapes["gradOutput"], shapes["self"]) == shapes["gradInput"],
    attributes=lambda z: {"approximate": "none"},
    good={"approximate": ("none", "tanh", b"tanh")},
    bad={"approximate": tuple(map(Bad, ("None", "TANH", "Tanh", "", "erf", "none ", "tanhh", b"erf", "n\u043ene")))},
    nullable=(),
    strings=("approximate",),
    passes=FRAMEWORK_ORDER,
    products=frozenset((INFERENCE, TRAINING, *A2_CHIPS, A3, ASCEND_950)),
)

SMOOTH_L1 = Fact(
    api="aclnnSmoothL1LossBackward",
    function="smooth_l1_loss_backward",
    parameters=("gradOut", "self", "target", "reduction", "beta", "gradInput"),
    python={"gradOut": "grad_out", "self": "self", "target": "target", "reduction": "reduction", "beta": "beta", "gradInput": "out"},
    outputs=("gradInput",),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=lambda given: {"gradInput": met} if (met := _smooth_met(given)) else None,
    any_castable=True,
    ranks={"gradOut": UP_TO_8, "self": UP_TO_8, "target": UP_TO_8, "gradInput": UP_TO_8},
    sizes={"a": 4, "b": 2, "c": 3},
    shapes=lambda z: {
        "gradOut": (z["b"], 1),
        "self": (z["b"], z["c"]),
        "target": (z["a"], 1, z["c"]),
        "gradInput": (z["a"], z["b"], z["c"]),
    },
    fits=lambda shapes, attrs: broadcast(shapes["gradOut"], shapes["self"], shapes["target"]) == shapes["gradInput"],
    attributes=lambda z: {"reduction": 1, "beta": 1.0},
    good={"reduction": (0, 1, 2, True), "beta": (0, 0.0, -0.0, -1e-300, 1, 0.1, 1e-45, 1e39, 10**400, math.inf)},
    bad={
        "reduction": (
            *map(Bad, (-1, 3, 2**31, 2**32 + 1, 2**63, -(2**63) - 1, 2**64 + 1)),
            *(Bad(value, doors=("python",)) for value in ("avg", "MEAN", "", "1")),
        ),
        "beta": tuple(map(Bad, (-1, -1.0, -1e-45, -1e300, -(10**400), -math.inf, math.nan))),
    },
    nullable=(),
    strings=(),
    passes=("null", "dtype", "rank", "attribute", "promotion", "shape", "storage", "alias", "tiling", "empty", "product"),
    products=frozenset((INFERENCE, TRAINING, *A2_CHIPS, A3, ASCEND_950)),
)

LAYER_NORM = Fact(
    api="LayerNormGradBeta",
    function="layer_norm_grad_beta",
    parameters=("resForGamma", "inputDy", "pdGamma", "pdBeta"),
    python={"resForGamma": "res_for_gamma", "inputDy": "input_dy", "pdGamma": "out[0] (pd_gamma)", "pdBeta": "out[1] (pd_beta)"},
    outputs=("pdGamma", "pdBeta"),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=_all_equal(("resForGamma", "inputDy"), ("pdGamma", "pdBeta")),
    any_castable=False,
    ranks={"resForGamma": UP_TO_8[1:], "inputDy": UP_TO_8[1:], "pdGamma": (1,), "pdBeta": (1,)},
    sizes={"B": 2, "S": 3, "H": 5},
    shapes=lambda z: {
        "resForGamma": (z["B"], z["S"], z["H"]),
        "inputDy": (z["B"], z["S"], z["H"]),
        "pdGamma": (z["H"],),
        "pdBeta": (z["H"],),
    },
    fits=lambda shapes, attrs: (
        shapes["resForGamma"] == shapes["inputDy"] and shapes["pdGamma"] == shapes["pdBeta"] == shapes["inputDy"][-1:]
    ),
    attributes=lambda z: {},
    good={},
    bad={},
    nullable=(),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((*A2_CHIPS, A3, ASCEND_950, INFERENCE)),
)

MOE = Fact(
    api="aclnnMoeTokenPermuteGrad",
    function="moe_token_permute_grad",
    parameters=("permutedOutputGrad", "sortedIndices", "numTopk", "paddedModeOptional", "out"),
    python={
        "permutedOutputGrad": "permuted_output_grad",
        "sortedIndices": "sorted_indices",
        "numTopk": "num_topk",
        "paddedModeOptional": "padded_mode",
        "out": "out",
    },
    outputs=("out",),
    floats=FLOATS,
    wider=(),
    fixed={"sortedIndices": "int32"},
    result_dtype=_all_equal(("permutedOutputGrad",), ("out",)),
    any_castable=False,
    ranks={"permutedOutputGrad": (2,), "sortedIndices": (1,), "out": (2,)},
    sizes={"T": 3, "K": 2, "H": 5, "R": 7},
    shapes=lambda z: {"permutedOutputGrad": (z["R"], z["H"]), "sortedIndices": (z["T"] * z["K"],), "out": (z["T"], z["H"])},
    fits=lambda shapes, attrs: (
        shapes["permutedOutputGrad"][1] == shapes["out"][1] and shapes["sortedIndices"][0] == attrs["numTopk"] * shapes["out"][0]
    ),
    attributes=lambda z: {"numTopk": z["K"], "paddedModeOptional": False},
    good={"paddedModeOptional": (False, 0)},
    bad={
        "numTopk": tuple(map(Bad, (0, -1, -2, 513, 2**31, 2**32 + 2, 2**63, -(2**63) - 1, 2**64 + 2))),
        "paddedModeOptional": tuple(map(Bad, (True, 1, 256))),
    },
    nullable=(),
    strings=(),
    passes=("null", "dtype", "promotion", "attribute", "rank", "shape", "storage", "alias", "tiling", "empty", "product"),
    products=frozenset((*A2_CHIPS, A3, ASCEND_950)),
)


def window_count(running_sums: Sequence[int] | None, tokens: int, block: int, stride: int) -> int:
    """C: the windows of all sequences; a sequence shorter than a window has none."""
    ends = [0, tokens] if running_sums is None else [0, *running_sums]
    return sum(len(range(0, end - start - block + 1, stride)) for start, end in pairwise(ends))


def _nsa_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    block, stride, ends = attrs["compressBlockSize"], attrs["compressStride"], attrs["actSeqLenOptional"]
    tokens, heads, width = shapes["input"]
    sums_fit = ends is None or (list(ends) == sorted(ends) and ends[0] >= 0 and ends[-1] == tokens)
    return (
        sums_fit
        and shapes["inputGradOut"] == shapes["input"]
        and shapes["weight"] == shapes["weightGradOut"] == (block, heads)
        and shapes["outputGrad"] == (window_count(ends, tokens, block, stride), heads, width)
    )


_NSA_PARAMETERS = (
    "outputGrad", "input", "weight", "actSeqLenOptional", "compressBlockSize", "compressStride", "actSeqLenType", "layoutOptional",
    "inputGradOut", "weightGradOut",
)  # fmt: skip
_WRAPS = 2**64
_NO_RUNNING_SUMS = (
    [], [0], [79], [81], [0, 79], [40, 30, 80], [80, 0], [-1, 80], [-80], [-(2**63) - 1, 80], [80 + _WRAPS], [0, _WRAPS, 80],
)  # fmt: skip

NSA = Fact(
    api="aclnnNsaCompressGrad",
    function="nsa_compress_grad",
    parameters=_NSA_PARAMETERS,
    python={
        "outputGrad": "output_grad",
        "input": "input",
        "weight": "weight",
        "actSeqLenOptional": "act_seq_len",
        "compressBlockSize": "compress_block_size",
        "compressStride": "compress_stride",
        "actSeqLenType": "act_seq_len_type",
        "layoutOptional": "layout",
        "inputGradOut": "out[0] (input_grad)",
        "weightGradOut": "out[1] (weight_grad)",
    },
    outputs=("inputGradOut", "weightGradOut"),
    floats=("float16", "bfloat16"),
    wider=("float32",),
    fixed={},
    result_dtype=_all_equal(("outputGrad", "input", "weight"), ("inputGradOut", "weightGradOut")),
    any_castable=False,
    ranks={"outputGrad": (3,), "input": (3,), "weight": (2,), "inputGradOut": (3,), "weightGradOut": (2,)},
    sizes={"T": 80, "N": 2, "D": 16, "W": 32, "s": 16, "ends": None},
    shapes=lambda z: {
        "outputGrad": (window_count(z["ends"], z["T"], z["W"], z["s"]), z["N"], z["D"]),
        "input": (z["T"], z["N"], z["D"]),
        "weight": (z["W"], z["N"]),
        "inputGradOut": (z["T"], z["N"], z["D"]),
        "weightGradOut": (z["W"], z["N"]),
    },
    fits=_nsa_fits,
    attributes=lambda z: {
        "actSeqLenOptional": z["ends"],
        "compressBlockSize": z["W"],
        "compressStride": z["s"],
        "actSeqLenType": 0,
        "layoutOptional": "TND",
    },
    good={
        "actSeqLenOptional": (None, [80], [0, 80], (0, 0, 80), [80, 80]),
        "layoutOptional": ("TND", b"TND", None),
        "actSeqLenType": (0, False),
    },
    bad={
        "actSeqLenOptional": tuple(Bad(value, "shape") for value in _NO_RUNNING_SUMS),
        "compressBlockSize": tuple(Bad(value, "shape") for value in (0, -1, -32, -(2**63) - 1, 2**63, _WRAPS + 32)),
        "compressStride": tuple(Bad(value, "shape") for value in (0, -1, -16, -(2**63) - 1, 2**63, _WRAPS + 16)),
        "actSeqLenType": tuple(map(Bad, (1, -1, 2, 2**31, 2**63, _WRAPS))),
        "layoutOptional": tuple(map(Bad, ("BSND", "tnd", "", "TND ", "NTD", b"BSH"))),
    },
    nullable=("actSeqLenOptional", "layoutOptional"),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((A2,)),
)

FACTS = (GELU, SMOOTH_L1, LAYER_NORM, MOE, NSA)
