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
    strings: tuple[str, ...]  # strings and arrays whose null is refused as that of a tensor is
    passes: tuple[str, ...]  # in the order of the checks
    products: frozenset[str]
    optional: tuple[str, ...] = ()  # tensors that may be null
    masks: Mapping[str, tuple[str, int]] = {}  # outputs that an entry of an array chooses
    positive: tuple[str, ...] = ()  # inputs that make sense above 0 only
    lists: Mapping[str, tuple[str, ...]] = {}  # all dtypes of tensors of a fixed one that may have others

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
        if tensor in self.lists:
            return self.lists[tensor]
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

GELU_V2 = Fact(
    api="aclnnGeluV2",
    function="gelu_v2",
    parameters=("x", "approximate", "y"),
    python={"x": "x", "approximate": "approximate", "y": "out"},
    outputs=("y",),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=_all_equal(("x",), ("y",)),
    any_castable=False,
    ranks={"x": UP_TO_8, "y": UP_TO_8},
    sizes={"a": 4, "b": 2, "c": 3},
    shapes=lambda z: dict.fromkeys(("x", "y"), (z["a"], z["b"], z["c"])),
    fits=lambda shapes, attrs: shapes["x"] == shapes["y"],
    attributes=lambda z: {"approximate": 0},
    good={"approximate": (0, 1, True, False)},
    bad={
        "approximate": (
            *(Bad(2**power) for power in (1, 2, 8, 16, 31, 32, 33, 62, 63, 64)),
            *(Bad(-(2**power)) for power in (0, 1, 31, 32, 63)),
            *map(Bad, (3, 257, 2**32 + 1, 2**64 + 1)),
            *(Bad(value, doors=("python",)) for value in ("None", "TANH", "Tanh", "erf", "", "0", "1", "none ", "tanhh", "n\u043ene")),
        ),
    },
    nullable=(),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((INFERENCE, TRAINING, *A2_CHIPS, A3, ASCEND_950)),
)


def _loss_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    both = broadcast(shapes["self"], shapes["target"])
    return both is not None and (shapes["result"] == both if attrs["reduction"] == 0 else shapes["result"] in ((), (1,)))


_loss_met = _meet(("self", "target"))

SMOOTH_L1_LOSS = Fact(
    api="aclnnSmoothL1Loss",
    function="smooth_l1_loss",
    parameters=("self", "target", "reduction", "beta", "result"),
    python={"self": "self", "target": "target", "reduction": "reduction", "beta": "beta", "result": "out"},
    outputs=("result",),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=lambda given: {"result": met} if (met := _loss_met(given)) else None,
    any_castable=True,
    ranks={"self": UP_TO_8, "target": UP_TO_8, "result": UP_TO_8},
    sizes={"a": 4, "b": 2, "c": 3},
    shapes=lambda z: {"self": (z["b"], z["c"]), "target": (z["a"], 1, z["c"]), "result": (z["a"], z["b"], z["c"])},
    fits=_loss_fits,
    attributes=lambda z: {"reduction": 0, "beta": 1.0},
    good={"reduction": (0, False), "beta": SMOOTH_L1.good["beta"]},
    bad=SMOOTH_L1.bad,
    nullable=(),
    strings=(),
    passes=SMOOTH_L1.passes,
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


def _norm_dtypes(data: str, parameters: Sequence[str], statistics: Sequence[str], same: Sequence[str]) -> Callable[..., bool]:
    """Whether the dtypes of inputs belong together: parameters are of the data's dtype or float32, those of a kind are equal."""

    def fit(given: Mapping[str, str]) -> bool:
        kinds = [{given[name] for name in names} for names in (parameters, statistics)]
        alike = all(len(kind) == 1 for kind in kinds) and all(given[name] == given[data] for name in same)
        return alike and kinds[0] <= {given[data], "float32"}

    return fit


def _norm_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    """Full tensors [*M, *N], statistics [*M, 1, ...], parameters [*N]."""
    inner = tuple(attrs["normalizedShape"])
    full = shapes["input"]
    ones = (*full[: len(full) - len(inner)], *(1,) * len(inner))
    expected = {"gradOut": full, "input": full, "out": full, "gradInputOut": full}
    expected |= dict.fromkeys(("mean", "rstd", "meanOutOptional", "rstdOutOptional"), ones)
    tail_fits = len(full) >= len(inner) and full[len(full) - len(inner) :] == inner
    return tail_fits and all(shape == expected.get(name, inner) for name, shape in shapes.items())


_forward_fits = _norm_dtypes("input", ("weightOptional", "biasOptional"), ("input",), ())
_backward_fits = _norm_dtypes("input", ("weightOptional", "biasOptional"), ("mean", "rstd"), ("gradOut",))
_BAD_SHAPES = tuple(Bad(value, "shape") for value in ([], [-1], [-5], [2**63], [-(2**63) - 1]))
_NORM_PRODUCTS = frozenset((INFERENCE, TRAINING, *A2_CHIPS, A3, ASCEND_950))

LAYER_NORM_FORWARD = Fact(
    api="aclnnLayerNorm",
    function="layer_norm",
    parameters=("input", "normalizedShape", "weightOptional", "biasOptional", "eps", "out", "meanOutOptional", "rstdOutOptional"),
    python={
        "input": "input",
        "normalizedShape": "normalized_shape",
        "weightOptional": "weight",
        "biasOptional": "bias",
        "eps": "eps",
        "out": "out[0] (out)",
        "meanOutOptional": "out[1] (mean)",
        "rstdOutOptional": "out[2] (rstd)",
    },
    outputs=("out", "meanOutOptional", "rstdOutOptional"),
    floats=FLOATS,
    wider=(),
    fixed={"meanOutOptional": "float32", "rstdOutOptional": "float32"},
    result_dtype=lambda given: (
        {"out": given["input"], "meanOutOptional": "float32", "rstdOutOptional": "float32"} if _forward_fits(given) else None
    ),
    any_castable=False,
    ranks=dict.fromkeys(("input", "weightOptional", "biasOptional", "out", "meanOutOptional", "rstdOutOptional"), UP_TO_8),
    sizes={"B": 2, "S": 3, "H": 5},
    shapes=lambda z: {
        "input": (z["B"], z["S"], z["H"]),
        "weightOptional": (z["H"],),
        "biasOptional": (z["H"],),
        "out": (z["B"], z["S"], z["H"]),
        "meanOutOptional": (z["B"], z["S"], 1),
        "rstdOutOptional": (z["B"], z["S"], 1),
    },
    fits=_norm_fits,
    attributes=lambda z: {"normalizedShape": [z["H"]], "eps": 1e-5},
    good={"normalizedShape": ([5], (5,)), "eps": (0, 0.0, 1, -1.0, 1e-300, math.inf, 10**400)},
    bad={"normalizedShape": _BAD_SHAPES, "eps": (Bad(math.nan),)},
    nullable=(),
    strings=("normalizedShape",),
    passes=FRAMEWORK_ORDER,
    products=_NORM_PRODUCTS,
    optional=("weightOptional", "biasOptional", "meanOutOptional", "rstdOutOptional"),
)

LAYER_NORM_BACKWARD = Fact(
    api="aclnnLayerNormBackward",
    function="layer_norm_backward",
    parameters=(
        "gradOut",
        "input",
        "normalizedShape",
        "mean",
        "rstd",
        "weightOptional",
        "biasOptional",
        "outputMask",
        "gradInputOut",
        "gradWeightOut",
        "gradBiasOut",
    ),
    python={
        "gradOut": "grad_out",
        "input": "input",
        "normalizedShape": "normalized_shape",
        "mean": "mean",
        "rstd": "rstd",
        "weightOptional": "weight",
        "biasOptional": "bias",
        "outputMask": "output_mask",
        "gradInputOut": "out[0] (grad_input)",
        "gradWeightOut": "out[1] (grad_weight)",
        "gradBiasOut": "out[2] (grad_bias)",
    },
    outputs=("gradInputOut", "gradWeightOut", "gradBiasOut"),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=lambda given: (
        {"gradInputOut": given["input"], "gradWeightOut": given["weightOptional"], "gradBiasOut": given["biasOptional"]}
        if _backward_fits(given)
        else None
    ),
    any_castable=False,
    ranks=dict.fromkeys(
        ("gradOut", "input", "mean", "rstd", "weightOptional", "biasOptional", "gradInputOut", "gradWeightOut", "gradBiasOut"), UP_TO_8
    ),
    sizes={"B": 2, "S": 3, "H": 5},
    shapes=lambda z: {
        **dict.fromkeys(("gradOut", "input", "gradInputOut"), (z["B"], z["S"], z["H"])),
        **dict.fromkeys(("mean", "rstd"), (z["B"], z["S"], 1)),
        **dict.fromkeys(("weightOptional", "biasOptional", "gradWeightOut", "gradBiasOut"), (z["H"],)),
    },
    fits=_norm_fits,
    attributes=lambda z: {"normalizedShape": [z["H"]], "outputMask": [True, True, True]},
    good={"normalizedShape": ([5], (5,)), "outputMask": ([True] * 3, (False,) * 3, [1, 0, 1], [False, False, True])},
    bad={"normalizedShape": _BAD_SHAPES, "outputMask": tuple(map(Bad, ([], [True], [True] * 2, [False] * 4, [True] * 9)))},
    nullable=(),
    strings=("normalizedShape", "outputMask"),
    passes=FRAMEWORK_ORDER,
    products=_NORM_PRODUCTS,
    optional=("weightOptional", "biasOptional"),
    masks={"gradInputOut": ("outputMask", 0), "gradWeightOut": ("outputMask", 1), "gradBiasOut": ("outputMask", 2)},
    positive=("rstd",),
)


def _grad_dtypes(given: Mapping[str, str]) -> Mapping[str, str] | None:
    dy = given["inputDy"]
    statistics = given["inputVariance"] == given["inputMean"] and given["inputMean"] in (dy, "float32")
    fits = given["inputX"] == dy and statistics and given["inputGamma"] in (dy, "float32")
    return {"pdX": dy, "resForGamma": dy} if fits else None


LAYER_NORM_GRAD = Fact(
    api="LayerNormGrad",
    function="layer_norm_grad",
    parameters=("inputDy", "inputX", "inputVariance", "inputMean", "inputGamma", "epsilon", "pdX", "resForGamma"),
    python={
        "inputDy": "input_dy",
        "inputX": "input_x",
        "inputVariance": "input_variance",
        "inputMean": "input_mean",
        "inputGamma": "input_gamma",
        "epsilon": "epsilon",
        "pdX": "out[0] (pd_x)",
        "resForGamma": "out[1] (res_for_gamma)",
    },
    outputs=("pdX", "resForGamma"),
    floats=FLOATS,
    wider=(),
    fixed={},
    result_dtype=_grad_dtypes,
    any_castable=False,
    ranks={
        "inputDy": UP_TO_8[1:],
        "inputX": UP_TO_8[1:],
        "inputVariance": UP_TO_8,
        "inputMean": UP_TO_8,
        "inputGamma": (1,),
        "pdX": UP_TO_8[1:],
        "resForGamma": UP_TO_8[1:],
    },
    sizes={"B": 2, "S": 3, "H": 5},
    shapes=lambda z: {
        **dict.fromkeys(("inputDy", "inputX", "pdX", "resForGamma"), (z["B"], z["S"], z["H"])),
        **dict.fromkeys(("inputVariance", "inputMean"), (z["B"], z["S"])),
        "inputGamma": (z["H"],),
    },
    fits=lambda shapes, attrs: (
        all(shapes[name] == shapes["inputDy"] for name in ("inputX", "pdX", "resForGamma"))
        and all(shapes[name] == shapes["inputDy"][:-1] for name in ("inputVariance", "inputMean"))
        and shapes["inputGamma"] == shapes["inputDy"][-1:]
    ),
    attributes=lambda z: {"epsilon": 1e-5},
    good={"epsilon": (0, 0.0, 1, 1e-45, math.inf)},
    bad={"epsilon": (Bad(math.nan),)},
    nullable=(),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((*A2_CHIPS, A3, ASCEND_950, INFERENCE)),
    positive=("inputVariance",),
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


def _compress_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    block, ends = attrs["compressBlockSize"], attrs["actSeqLenOptional"]
    tokens, heads, width = shapes["input"]
    sums_fit = list(ends) == sorted(ends) and ends[0] >= 0 and ends[-1] == tokens
    count = window_count(ends, tokens, block, attrs["compressStride"])
    return sums_fit and shapes["weight"] == (block, heads) and shapes["output"] == (count, heads, width)


NSA_FORWARD = Fact(
    api="aclnnNsaCompress",
    function="nsa_compress",
    parameters=(
        "input", "weight", "actSeqLenOptional", "layoutOptional", "compressBlockSize", "compressStride", "actSeqLenType", "output",
    ),
    python={
        **{name: NSA.python[name] for name in ("input", "weight", "actSeqLenOptional", "layoutOptional", "compressBlockSize")},
        "compressStride": "compress_stride",
        "actSeqLenType": "act_seq_len_type",
        "output": "out",
    },
    outputs=("output",),
    floats=("float16", "bfloat16"),
    wider=("float32",),
    fixed={},
    result_dtype=_all_equal(("input", "weight"), ("output",)),
    any_castable=False,
    ranks={"input": (3,), "weight": (2,), "output": (3,)},
    sizes={"T": 80, "N": 2, "D": 16, "W": 32, "s": 16, "ends": [80]},
    shapes=lambda z: {
        "input": (z["T"], z["N"], z["D"]),
        "weight": (z["W"], z["N"]),
        "output": (window_count(z["ends"], z["T"], z["W"], z["s"]), z["N"], z["D"]),
    },
    fits=_compress_fits,
    attributes=lambda z: {
        "actSeqLenOptional": z["ends"],
        "layoutOptional": "TND",
        "compressBlockSize": z["W"],
        "compressStride": z["s"],
        "actSeqLenType": 0,
    },
    good={**NSA.good, "actSeqLenOptional": ([80], [0, 80], (0, 0, 80), [80, 80])},
    bad={**NSA.bad, "actSeqLenOptional": (*NSA.bad["actSeqLenOptional"], Bad(None, "shape", ("aclnn",)))},
    nullable=("layoutOptional",),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((A2,)),
)  # fmt: skip


def _permute_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    (tokens, width), indices, count = shapes["tokens"], shapes["indices"], attrs["numOutTokens"]
    copies = math.prod(indices)
    rows = min(copies, count) if count > 0 else max(0, copies + count)
    return indices[0] == tokens and shapes["permuteTokensOut"] == (rows, width) and shapes["sortedIndicesOut"] == (copies,)


_PADDED = tuple(map(Bad, (True, 1, 256)))
_NOT_INT64 = (2**63, -(2**63) - 1, _WRAPS)

PERMUTE = Fact(
    api="aclnnMoeTokenPermute",
    function="moe_token_permute",
    parameters=("tokens", "indices", "numOutTokens", "paddedMode", "permuteTokensOut", "sortedIndicesOut"),
    python={
        "tokens": "tokens",
        "indices": "indices",
        "numOutTokens": "num_out_tokens",
        "paddedMode": "padded_mode",
        "permuteTokensOut": "out[0] (permute_tokens)",
        "sortedIndicesOut": "out[1] (sorted_indices)",
    },
    outputs=("permuteTokensOut", "sortedIndicesOut"),
    floats=FLOATS,
    wider=(),
    fixed={"indices": "int32", "sortedIndicesOut": "int32"},
    lists={"indices": ("int32", "int64")},
    result_dtype=lambda given: {"permuteTokensOut": given["tokens"], "sortedIndicesOut": "int32"},
    any_castable=False,
    ranks={"tokens": (2,), "indices": (1, 2), "permuteTokensOut": (2,), "sortedIndicesOut": (1,)},
    sizes={"N": 3, "K": 2, "H": 5},
    shapes=lambda z: {
        "tokens": (z["N"], z["H"]),
        "indices": (z["N"], z["K"]),
        "permuteTokensOut": (z["N"] * z["K"], z["H"]),
        "sortedIndicesOut": (z["N"] * z["K"],),
    },
    fits=_permute_fits,
    attributes=lambda z: {"numOutTokens": 0, "paddedMode": False},
    good={"numOutTokens": (0, False, 6, 7, 2**63 - 1), "paddedMode": (False, 0)},
    bad={
        "numOutTokens": tuple(Bad(value, "shape") for value in _NOT_INT64),
        "paddedMode": _PADDED,
    },
    nullable=(),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((*A2_CHIPS, A3, ASCEND_950)),
)


def _unpermute_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    tokens, top_k = shapes["probsOptional"]
    width = shapes["permutedTokens"][1]
    return 1 <= top_k <= 512 and shapes["sortedIndices"] == (tokens * top_k,) and shapes["out"] == (tokens, width)


_RESTORE_GOOD, _RESTORE_BAD = (None, [], [3, 5], (-1, 2**63 - 1)), tuple(Bad([value]) for value in _NOT_INT64)

UNPERMUTE = Fact(
    api="aclnnMoeTokenUnpermute",
    function="moe_token_unpermute",
    parameters=("permutedTokens", "sortedIndices", "probsOptional", "paddedMode", "restoreShapeOptional", "out"),
    python={
        "permutedTokens": "permuted_tokens",
        "sortedIndices": "sorted_indices",
        "probsOptional": "probs",
        "paddedMode": "padded_mode",
        "restoreShapeOptional": "restore_shape",
        "out": "out",
    },
    outputs=("out",),
    floats=FLOATS,
    wider=(),
    fixed={"sortedIndices": "int32"},
    result_dtype=lambda given: {"out": given["permutedTokens"]},
    any_castable=False,
    ranks={"permutedTokens": (2,), "sortedIndices": (1,), "probsOptional": (2,), "out": (2,)},
    sizes={"T": 3, "K": 1, "H": 5, "R": 7},
    shapes=lambda z: {
        "permutedTokens": (z["R"], z["H"]),
        "sortedIndices": (z["T"] * z["K"],),
        "probsOptional": (z["T"], z["K"]),
        "out": (z["T"], z["H"]),
    },
    fits=_unpermute_fits,
    attributes=lambda z: {"paddedMode": False, "restoreShapeOptional": None},
    good={"paddedMode": (False, 0), "restoreShapeOptional": _RESTORE_GOOD},
    bad={"paddedMode": _PADDED, "restoreShapeOptional": _RESTORE_BAD},
    nullable=("restoreShapeOptional",),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((*A2_CHIPS, A3, ASCEND_950)),
    optional=("probsOptional",),
)


def _unpermute_grad_fits(shapes: Mapping[str, tuple[int, ...]], attrs: Mapping[str, Any]) -> bool:
    tokens, top_k = shapes["probsOptional"]
    rows, width = shapes["permuteTokensOptional"]
    return (
        1 <= top_k <= 512
        and shapes["sortedIndices"] == (tokens * top_k,)
        and shapes["unpermutedTokensGrad"] == (tokens, width)
        and shapes["permutedTokensGradOut"] == (rows, width)
        and shapes["probsGradOut"] == (tokens, top_k)
    )


UNPERMUTE_GRAD = Fact(
    api="aclnnMoeTokenUnpermuteGrad",
    function="moe_token_unpermute_grad",
    parameters=(
        "permuteTokensOptional", "unpermutedTokensGrad", "sortedIndices", "probsOptional", "paddedMode", "restoreShapeOptional",
        "permutedTokensGradOut", "probsGradOut",
    ),
    python={
        "permuteTokensOptional": "permute_tokens",
        "unpermutedTokensGrad": "unpermuted_tokens_grad",
        "sortedIndices": "sorted_indices",
        "probsOptional": "probs",
        "paddedMode": "padded_mode",
        "restoreShapeOptional": "restore_shape",
        "permutedTokensGradOut": "out[0] (permuted_tokens_grad)",
        "probsGradOut": "out[1] (probs_grad)",
    },
    outputs=("permutedTokensGradOut", "probsGradOut"),
    floats=FLOATS,
    wider=(),
    fixed={"sortedIndices": "int32"},
    result_dtype=lambda given: (
        {"permutedTokensGradOut": given["unpermutedTokensGrad"], "probsGradOut": given["probsOptional"]}
        if given["permuteTokensOptional"] == given["unpermutedTokensGrad"]
        else None
    ),
    any_castable=False,
    ranks={
        **dict.fromkeys(("permuteTokensOptional", "unpermutedTokensGrad"), (2,)),
        "sortedIndices": (1,),
        **dict.fromkeys(("probsOptional", "permutedTokensGradOut", "probsGradOut"), (2,)),
    },
    sizes={"T": 3, "K": 1, "H": 5, "R": 7},
    shapes=lambda z: {
        "permuteTokensOptional": (z["R"], z["H"]),
        "unpermutedTokensGrad": (z["T"], z["H"]),
        "sortedIndices": (z["T"] * z["K"],),
        "probsOptional": (z["T"], z["K"]),
        "permutedTokensGradOut": (z["R"], z["H"]),
        "probsGradOut": (z["T"], z["K"]),
    },
    fits=_unpermute_grad_fits,
    attributes=lambda z: {"paddedMode": False, "restoreShapeOptional": None},
    good={"paddedMode": (False, 0), "restoreShapeOptional": _RESTORE_GOOD},
    bad={"paddedMode": _PADDED, "restoreShapeOptional": _RESTORE_BAD},
    nullable=("restoreShapeOptional",),
    strings=(),
    passes=FRAMEWORK_ORDER,
    products=frozenset((*A2_CHIPS, A3, ASCEND_950)),
    optional=("probsOptional",),
)  # fmt: skip

FACTS = (
    GELU,
    SMOOTH_L1,
    LAYER_NORM,
    MOE,
    NSA,
    GELU_V2,
    SMOOTH_L1_LOSS,
    LAYER_NORM_FORWARD,
    LAYER_NORM_BACKWARD,
    LAYER_NORM_GRAD,
    NSA_FORWARD,
    PERMUTE,
    UNPERMUTE,
    UNPERMUTE_GRAD,
)
