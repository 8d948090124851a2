"""LayerNormGradBeta at kernel level is bit for bit the sequential float32 definition, whatever the temporary buffer."""

from functools import cache

import numpy as np
import pytest
from ascendc_paths import EXAMPLES, SAMPLE

import anycann
from anycann import ascendc

TILING = {"layerNormGradBetaTiling": "LayerNormGradBetaTiling"}

# One element of each kind of edge: a single row, a single block of 32 bytes, rows that no tile divides, many rows, wide rows, padded H.
SHAPES = [
    (1, 1, 16),
    (1, 8, 16),
    (2, 16, 64),
    (3, 5, 32),
    (1, 7, 48),
    (1, 1, 512),
    (4, 33, 16),
    (2, 3, 240),
    (1, 100, 32),
    (5, 1, 80),
    (1, 13, 256),
    (7, 3, 64, 60),
]


@cache
def own(dtype: str, reuse: bool, shared: bool) -> ascendc.Kernel:
    instance = f"{'half' if dtype == 'float16' else 'float'}, {str(reuse).lower()}, {str(shared).lower()}"
    module = ascendc.build(EXAMPLES / "layer_norm_grad_beta.cpp", tiling=TILING, templates={"layer_norm_grad_beta": [instance]})
    return module[f"layer_norm_grad_beta<{instance}>"]


def definition(res, dy):
    """Sums over rows in order, the product rounded to float32 before it is added, one rounding at the end."""
    width = res.shape[-1]
    gamma, beta = np.zeros(width, np.float32), np.zeros(width, np.float32)
    for r, d in zip(res.reshape(-1, width).astype(np.float32), dy.reshape(-1, width).astype(np.float32), strict=True):
        gamma = gamma + r * d
        beta = beta + d
    return gamma.astype(res.dtype), beta.astype(res.dtype)


def inputs(shape, dtype):
    rng = np.random.default_rng(sum(shape))
    pair = [(rng.standard_normal(shape[:3]) * 3).astype(dtype) for _ in range(2)]
    for array in pair:
        array[..., shape[3] if len(shape) == 4 else shape[2] :] = 0
    return pair


def sizes(shape, itemsize):
    largest, smallest = ascendc.layer_norm_grad_beta_max_min_tmp_size(shape, itemsize)
    middle = (smallest + largest) // 2 // 32 * 32
    return sorted({smallest, min(max(middle, smallest), 65536), min(largest, 65536)})


def check(kernel, shape, dtype, tmp_bytes):
    res, dy = inputs(shape, dtype)
    gamma, beta = (np.full(shape[2], np.nan, dtype) for _ in range(2))
    tiling = ascendc.layer_norm_grad_beta_tiling(shape, dtype, tmp_bytes)
    kernel[1](gamma, beta, res, dy, {"layerNormGradBetaTiling": tiling})
    want_gamma, want_beta = definition(res, dy)
    assert gamma.tobytes() == want_gamma.tobytes()
    assert beta.tobytes() == want_beta.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "reuse", "shared"),
    [("float16", False, False), ("float16", False, True), ("float32", False, False), ("float32", True, False), ("float32", True, True)],
)
def test_own_kernel_is_the_definition(shape, dtype, reuse, shared):
    for tmp_bytes in sizes(shape, np.dtype(dtype).itemsize):
        check(own(dtype, reuse, shared), shape, dtype, tmp_bytes)


@pytest.fixture(scope="module")
def sample_variants(tmp_path_factory):
    """The sample as it is, and the variants that differ from it in one line."""
    text = SAMPLE.read_text()
    folder = tmp_path_factory.mktemp("sample")
    made = {"float16": ascendc.build(SAMPLE, tiling=TILING)}
    for name, line in (
        ("float32", "KernelLayernormGradBeta<float, false> op;"),
        ("float32-reuse", "KernelLayernormGradBeta<float, true> op;"),
    ):
        path = folder / f"{name}.cpp"
        path.write_text(text.replace("KernelLayernormGradBeta<half, false> op;", line))
        made[name] = ascendc.build(path, tiling=TILING)
    shared = text.replace("AscendC::TPipe pipe;", "AscendC::TPipe pipe; AscendC::TBuf<AscendC::QuePosition::VECCALC> tmp;")
    shared = shared.replace("inputDyLocal, tiling);", "inputDyLocal, tmp.template Get<uint8_t>(), tiling);")
    shared = shared.replace(
        "        pipe.InitBuffer(outQueuePdBeta",
        "        pipe.InitBuffer(tmp, tiling.stackBufferSize * 4);\n        pipe.InitBuffer(outQueuePdBeta",
    )
    (folder / "shared.cpp").write_text(shared)
    made["float16-shared"] = ascendc.build(folder / "shared.cpp", tiling=TILING)
    return {name: module.kernel_layernorm_grad_beta_operator for name, module in made.items()}


@pytest.mark.parametrize("variant", ["float16", "float16-shared", "float32", "float32-reuse"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.skipif(not SAMPLE.exists(), reason="the published sample is not beside this checkout")
def test_sample_is_the_definition(sample_variants, variant, shape):
    dtype = variant.split("-")[0]
    for tmp_bytes in sizes(shape, np.dtype(dtype).itemsize):
        check(sample_variants[variant], shape, dtype, tmp_bytes)


def test_the_documented_numbers():
    values = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    gamma, beta = np.empty(8, np.float32), np.empty(8, np.float32)
    tiling = ascendc.layer_norm_grad_beta_tiling((1, 8, 8), "float32")
    own("float32", False, False)[1](gamma, beta, values, values, {"layerNormGradBetaTiling": tiling})
    assert gamma.tolist() == [8960, 9416, 9888, 10376, 10880, 11400, 11936, 12488]
    assert beta.tolist() == [224, 232, 240, 248, 256, 264, 272, 280]


def test_half_with_reuse_does_not_compile():
    with pytest.raises(ascendc.CompileError, match="isReuseSource = true is for float only, not for half"):
        own("float16", True, False)


def test_the_temporary_buffer_must_be_as_large_as_the_tiling_says(tmp_path):
    text = (EXAMPLES / "layer_norm_grad_beta.cpp").read_text()
    path = tmp_path / "small.cpp"
    path.write_text(text.replace("tiling.stackBufferSize * sizeof(float)", "32"))
    instance = "layer_norm_grad_beta<float, false, true>"
    kernel = ascendc.build(path, tiling=TILING, templates={"layer_norm_grad_beta": ["float, false, true"]})[instance]
    arrays = [np.zeros(8, np.float32), np.zeros(8, np.float32), np.zeros((1, 8, 8), np.float32), np.zeros((1, 8, 8), np.float32)]
    with pytest.raises(ascendc.KernelError, match="sharedTmpBuffer has 32 bytes, the tiling was made for 512") as caught:
        kernel[1](*arrays, {"layerNormGradBetaTiling": ascendc.layer_norm_grad_beta_tiling((1, 8, 8), "float32", 512)})
    assert [report.rule for report in caught.value.reports] == ["tmp-size"]


def test_the_rest_of_the_unified_buffer_must_be_large_enough():
    arrays = [np.zeros(64, np.float16), np.zeros(64, np.float16), np.zeros((2, 16, 64), np.float16), np.zeros((2, 16, 64), np.float16)]
    tiling = ascendc.layer_norm_grad_beta_tiling((2, 16, 64), "float16", 188160)
    with pytest.raises(ascendc.KernelError, match="made for a temporary buffer of 188160 bytes; InitBuffer left 179712 of 188160"):
        own("float16", False, False)[1](*arrays, {"layerNormGradBetaTiling": tiling})


def test_an_unfilled_tiling_is_reported():
    empty = dict.fromkeys(ascendc.layer_norm_grad_beta_tiling((1, 8, 8), "float32"), 0)
    arrays = [np.zeros(8, np.float32), np.zeros(8, np.float32), np.zeros((1, 8, 8), np.float32), np.zeros((1, 8, 8), np.float32)]
    with pytest.raises(ascendc.KernelError, match="must be more than 0"):
        own("float32", False, False)[1](*arrays, {"layerNormGradBetaTiling": empty})


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_array_forms(shape, dtype):
    """The one of this module has the kernel's bits, and up to 16 rows the operator, too; it sums more of them in blocks, so that beyond
    the rounding what the kernel's sum in order loses comes on top."""
    res, dy = inputs(shape, dtype)
    gamma, beta = np.empty(shape[2], dtype), np.empty(shape[2], dtype)
    tiling = ascendc.layer_norm_grad_beta_tiling(shape, dtype, sizes(shape, res.itemsize)[-1])
    own(dtype, False, False)[1](gamma, beta, res, dy, {"layerNormGradBetaTiling": tiling})
    assert [form.tobytes() for form in ascendc.layer_norm_grad_beta(res, dy)] == [gamma.tobytes(), beta.tobytes()]
    rows = shape[0] * shape[1]
    terms = abs(res.astype(float) * dy), abs(dy.astype(float))
    for ours, array, parts in zip((gamma, beta), anycann.layer_norm_grad_beta(res, dy), terms, strict=True):
        unit = np.spacing(np.maximum(abs(array), abs(ours))).astype(float)
        lost = (rows + 1) * 2.0**-24 * parts.reshape(-1, shape[2]).sum(axis=0)
        assert (abs(ours.astype(float) - array.astype(float)) <= unit + lost).all()
        assert rows > 16 or ours.tobytes() == array.tobytes()


def test_the_array_form_with_special_values_and_what_it_refuses():
    x = np.array([[np.inf, 60000, 1], [1, 60000, np.nan]], np.float16)
    gamma, beta = ascendc.layer_norm_grad_beta(x, np.ones_like(x))
    assert gamma.tolist()[:2] == [np.inf, np.inf]
    assert np.isnan(gamma[2])
    assert beta.tolist() == [2, 2, 2]
    for wrong in (x.astype(np.float32), x[:1], x.astype(np.float64)):
        with pytest.raises(ValueError, match="one shape, of rank 1 or more, and one dtype"):
            ascendc.layer_norm_grad_beta(x, wrong)


def test_many_rows_are_added_one_after_the_other():
    ones = np.ones((1 << 12, 8), np.float16)
    assert ascendc.layer_norm_grad_beta(ones, ones)[1].tolist() == [4096] * 8
    tiny = np.full((3000, 8), 2.0**-24, np.float32)
    tiny[0] = 1
    assert ascendc.layer_norm_grad_beta(tiny, tiny)[1].tolist() == [1] * 8
    assert (anycann.layer_norm_grad_beta(tiny, tiny)[1] > 1).all()
