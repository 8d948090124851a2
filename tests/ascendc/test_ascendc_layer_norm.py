"""LayerNorm and LayerNormGrad at kernel level, against the given numbers and against the formulas in exact arithmetic."""

from functools import cache

import mpmath
import numpy as np
import pytest
from ascendc_paths import EXAMPLES

from anycann import ascendc

EPSILON = 1e-5


@cache
def chain():
    tiling = {"norm": "LayerNormTiling", "grad": "LayerNormGradTiling", "gradBeta": "LayerNormGradBetaTiling"}
    return ascendc.build(EXAMPLES / "layer_norm_chain.cpp", tiling=tiling, templates={"layer_norm_chain": ["half", "float"]})


def run_chain(name, dtype, shape, x, gamma, beta, dy, epsilon):
    y, pd_x = np.empty_like(x), np.empty_like(x)
    pd_gamma, pd_beta = np.empty_like(gamma), np.empty_like(beta)
    tiling = {
        "norm": ascendc.layer_norm_tiling(shape, dtype, ascendc.layer_norm_max_min_tmp_size(shape, x.itemsize)[1]),
        "grad": ascendc.layer_norm_grad_tiling(shape, dtype, 9 * 4 * shape[2]),
        "gradBeta": ascendc.layer_norm_grad_beta_tiling(shape, dtype, 16 * shape[2]),
    }
    chain()[f"layer_norm_chain<{name}>"][1](x, gamma, beta, dy, y, pd_x, pd_gamma, pd_beta, epsilon, tiling)
    return y, pd_x, pd_gamma, pd_beta


def exact_chain(x, gamma, beta, dy, epsilon):
    """The formulas with 50 digits; rows is [B*S, H]."""
    with mpmath.workdps(50):
        rows, grads = [[mpmath.mpf(float(v)) for v in row] for row in x], [[mpmath.mpf(float(v)) for v in row] for row in dy]
        g, b = [mpmath.mpf(float(v)) for v in gamma], [mpmath.mpf(float(v)) for v in beta]
        h = len(g)
        y, pd_x, pd_gamma, pd_beta = [], [], [mpmath.mpf(0)] * h, [mpmath.mpf(0)] * h
        for row, grad in zip(rows, grads, strict=True):
            mean = mpmath.fsum(row) / h
            c = [v - mean for v in row]
            variance = mpmath.fsum(v * v for v in c) / h
            r = 1 / mpmath.sqrt(variance + epsilon)
            a = [d * w for d, w in zip(grad, g, strict=True)]
            pd_var = mpmath.fsum(-a[i] * c[i] / 2 for i in range(h)) * r**3
            pd_mean = mpmath.fsum(-a[i] * r for i in range(h)) + pd_var * mpmath.fsum(-2 * v for v in c) / h
            y += [float(c[i] * r * g[i] + b[i]) for i in range(h)]
            pd_x += [float(a[i] * r + pd_var * 2 / h * c[i] + pd_mean / h) for i in range(h)]
            pd_gamma = [pd_gamma[i] + grad[i] * c[i] * r for i in range(h)]
            pd_beta = [pd_beta[i] + grad[i] for i in range(h)]
        return np.array(y), np.array(pd_x), np.array([float(v) for v in pd_gamma]), np.array([float(v) for v in pd_beta])


@pytest.mark.parametrize(("name", "dtype", "tolerance"), [("float", "float32", 4e-6), ("half", "float16", 6e-3)])
@pytest.mark.parametrize("shape", [(1, 4, 16), (2, 3, 48), (1, 1, 64)], ids=str)
def test_the_chain(name, dtype, tolerance, shape):
    rng = np.random.default_rng(11)
    x, dy = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    gamma, beta = (rng.standard_normal(shape[2]).astype(dtype) for _ in range(2))
    got = run_chain(name, dtype, shape, x, gamma, beta, dy, EPSILON)
    epsilon = float(np.asarray(EPSILON, dtype))  # the kernel takes epsilon in T
    expected = exact_chain(x.reshape(-1, shape[2]), gamma, beta, dy.reshape(-1, shape[2]), epsilon)
    for ours, exact in zip(got, expected, strict=True):
        assert abs(ours.ravel().astype(float) - exact).max() <= tolerance * max(1.0, abs(exact).max())


GRAD = """
AscendC::TPipe pipe; AscendC::TQue<AscendC::QuePosition::VECIN, 5> in; AscendC::TQue<AscendC::QuePosition::VECOUT, 2> out;
pipe.InitBuffer(in, 5, 256); pipe.InitBuffer(out, 2, 256);
GM_ADDR sources[5] = {dy, x, variance, mean, gamma}; const int counts[5] = {64, 64, 8, 8, 8};
for (int i = 0; i < 5; ++i) {
    AscendC::GlobalTensor<float> gm; gm.SetGlobalBuffer((__gm__ float*)sources[i], counts[i]);
    AscendC::LocalTensor<float> t = in.AllocTensor<float>(); AscendC::DataCopy(t, gm, counts[i]); in.EnQue(t);
}
AscendC::LocalTensor<float> a = in.DeQue<float>(), b = in.DeQue<float>(), c = in.DeQue<float>();
AscendC::LocalTensor<float> d = in.DeQue<float>(), e = in.DeQue<float>();
AscendC::LocalTensor<float> pdX = out.AllocTensor<float>(), res = out.AllocTensor<float>();
GET_TILING_DATA(t, tiling);
AscendC::LayerNormGrad<float, false>(pdX, res, a, b, c, d, e, 1e-4f, t.grad, {AscendC::DataFormat::ND});
out.EnQue(pdX); out.EnQue(res);
in.FreeTensor(a); in.FreeTensor(b); in.FreeTensor(c); in.FreeTensor(d); in.FreeTensor(e);
pdX = out.DeQue<float>(); res = out.DeQue<float>();
AscendC::GlobalTensor<float> xGm, resGm; xGm.SetGlobalBuffer((__gm__ float*)pd_x, 64); resGm.SetGlobalBuffer((__gm__ float*)res_gm, 64);
AscendC::DataCopy(xGm, pdX, 64); AscendC::DataCopy(resGm, res, 64); out.FreeTensor(pdX); out.FreeTensor(res);
"""


def test_the_given_gradient(make):
    parameters = "GM_ADDR dy, GM_ADDR x, GM_ADDR variance, GM_ADDR mean, GM_ADDR gamma, GM_ADDR pd_x, GM_ADDR res_gm, GM_ADDR tiling"
    module = make(GRAD, parameters, tiling={"grad": "LayerNormGradTiling"})
    x = np.arange(64, dtype=np.float32).reshape(1, 8, 8)
    pd_x, res = np.empty_like(x), np.empty_like(x)
    mean, variance = x.mean(axis=-1).ravel(), np.full(8, 5.25, np.float32)
    tiling = {"grad": ascendc.layer_norm_grad_tiling((1, 8, 8), "float32")}
    module.kernel[1](x, x, variance, mean, np.arange(8, dtype=np.float32), pd_x, res, tiling)
    row = np.array([-1.5275106, -1.091079, -0.6546474, -0.21821581], np.float32)
    assert abs(res - np.concatenate([row, -row[::-1]])).max() <= np.spacing(np.float32(1.5275106))
    exact = exact_gradient(x.reshape(8, 8), np.arange(8), mean, variance)
    assert abs(pd_x.reshape(8, 8) - exact).max() <= 2e-4
    assert abs(pd_x.ravel()[0] - np.float32(3.0548172)) <= 1e-5


def exact_gradient(x, gamma, mean, variance):
    c, r = x.astype(float) - mean[:, None].astype(float), (variance[:, None].astype(float) + 1e-4) ** -0.5
    a, h = x.astype(float) * gamma, x.shape[1]
    pd_var = (-0.5 * a * c * r**3).sum(axis=1, keepdims=True)
    pd_mean = (-a * r).sum(axis=1, keepdims=True) + pd_var * (-2 * c).sum(axis=1, keepdims=True) / h
    return a * r + pd_var * 2 / h * c + pd_mean / h


CHECK = """
#define CHECK(NAME) for (int32_t i = 0; i < count; ++i) { \\
    anycann::emu::CheckTiling("check", ((const NAME*)tilings)[i], size, reuse, anycann::emu::Loc::current()); }
if (kind == 0) { CHECK(LayerNormTiling) } else if (kind == 1) { CHECK(LayerNormGradTiling) } else { CHECK(LayerNormGradBetaTiling) }
"""
FAMILY = (
    (ascendc.layer_norm_max_min_tmp_size, ascendc.layer_norm_tiling),
    (ascendc.layer_norm_grad_max_min_tmp_size, ascendc.layer_norm_grad_tiling),
    (ascendc.layer_norm_grad_beta_max_min_tmp_size, ascendc.layer_norm_grad_beta_tiling),
)


def test_tilings_of_the_host_functions_pass_and_those_that_contradict_themselves_do_not(make):
    kernel = make(CHECK, "GM_ADDR tilings, int32_t count, int32_t kind, int32_t size, bool reuse").kernel
    rng = np.random.default_rng(5)

    def check(tilings, *arguments):
        kernel[1](np.array([list(tiling.values()) for tiling in tilings], np.uint32), len(tilings), *arguments)

    for kind, (sizes, make_tiling) in enumerate(FAMILY):
        for dtype, size, reuse in (("float16", 2, False), ("float32", 4, False), ("float32", 4, True)):
            made = []
            for _ in range(300):
                b, s, h = int(rng.integers(1, 9)), int(rng.integers(1, 33)), 16 * int(rng.integers(1, 20))
                shape = (b, s, h, h - int(rng.integers(0, 8)))
                most, least = sizes(shape, size, reuse)
                fitting = 4 * h * size * 9 if kind == 1 else least  # the least of LayerNormGrad may be for H * H elements
                made.append(make_tiling(shape, dtype, int(rng.integers(max(least, fitting), max(most, least, fitting) + 100)), reuse))
            check(made, kind, size, reuse)
            shape = (2, 3, 16)
            least = 16 * size * {2: 9, 4: 4 if reuse else 6}[size] if kind == 1 else sizes(shape, size, reuse)[1]
            good = make_tiling(shape, dtype, least, reuse)
            check([good], kind, size, reuse)
            for field in good:
                wrong = {good[field] - 1, 0, good[field] + 1, 1000} if field in ("oneCalSize", "oneTmpSize") else {good[field] + 1}
                wrong = {good[field] - 1, 0} if field in ("stackBufferSize", "tmpBufSize") else wrong
                for value in wrong if field != "reserved" else ():
                    with pytest.raises(ascendc.KernelError) as caught:
                        check([{**good, field: value}], kind, size, reuse)
                    assert caught.value.reports[0].rule == "tiling", (field, value)
            if kind > 0:
                with pytest.raises(ascendc.KernelError, match="the tiling contradicts itself: numberOfTmpBuf is"):
                    check([good], kind, 6 - size, reuse and size == 2)
