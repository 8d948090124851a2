"""One wrong line each, and the checker says which rule it breaks. The kernels as they are give no report."""

from collections.abc import Callable

import numpy as np
import pytest
from ascendc_paths import EXAMPLES, SAMPLE

from anycann import ascendc

LN = {"layerNormGradBetaTiling": "LayerNormGradBetaTiling"}
BETA = "layer_norm_grad_beta<float, false, true>"


def run_add(build: Callable[..., ascendc.Module]) -> None:
    x = np.arange(4096, dtype=np.float32)
    build(tiling={"share": "uint32_t", "tile": "uint32_t"}).add[4](x, x.copy(), np.zeros_like(x), {"share": 1024, "tile": 256})


def run_leaky(build: Callable[..., ascendc.Module]) -> None:
    x = np.linspace(-4, 4, 1000).astype(np.float16)
    module = build(tiling={"total": "uint32_t", "tile": "uint32_t", "slope": "float"})
    module.leaky_relu[3](x, np.zeros_like(x), {"total": 1000, "tile": 128, "slope": 0.5})


def run_softmax(build: Callable[..., ascendc.Module]) -> None:
    x = np.random.default_rng(0).standard_normal((6, 136)).astype(np.float32)
    build(tiling={"rows": "uint32_t", "width": "uint32_t"}).softmax[2](x, np.zeros_like(x), {"rows": 6, "width": 136})


def run_atomic(build: Callable[..., ascendc.Module]) -> None:
    build().atomic_sum[6](np.ones((6, 64), np.float32), np.zeros(64, np.float32), 64)


def run_beta(build: Callable[..., ascendc.Module]) -> None:
    module = build(tiling=LN, templates={"layer_norm_grad_beta": ["float, false, true"]})
    arrays = [np.zeros(16, np.float32), np.zeros(16, np.float32), np.ones((2, 4, 16), np.float32), np.ones((2, 4, 16), np.float32)]
    module[BETA][1](*arrays, {"layerNormGradBetaTiling": ascendc.layer_norm_grad_beta_tiling((2, 4, 16), "float32", 256)})


def run_chain(build: Callable[..., ascendc.Module]) -> None:
    tiling = {"norm": "LayerNormTiling", "grad": "LayerNormGradTiling", "gradBeta": "LayerNormGradBetaTiling"}
    module = build(tiling=tiling, templates={"layer_norm_chain": ["half"]})
    shape = (1, 4, 32)
    tensors = [np.ones(shape, np.float16), np.ones(32, np.float16), np.ones(32, np.float16), np.ones(shape, np.float16)]
    outputs = [np.zeros(shape, np.float16), np.zeros(shape, np.float16), np.zeros(32, np.float16), np.zeros(32, np.float16)]
    filled = {
        "norm": ascendc.layer_norm_tiling(shape, "float16"),
        "grad": ascendc.layer_norm_grad_tiling(shape, "float16"),
        "gradBeta": ascendc.layer_norm_grad_beta_tiling(shape, "float16"),
    }
    module["layer_norm_chain<half>"][1](*tensors, *outputs, 1e-3, filled)


def run_sample(build: Callable[..., ascendc.Module]) -> None:
    arrays = [np.zeros(64, np.float16), np.zeros(64, np.float16), np.ones((2, 16, 64), np.float16), np.ones((2, 16, 64), np.float16)]
    tiling = ascendc.layer_norm_grad_beta_tiling((2, 16, 64), "float16", 5120)
    build(tiling=LN).kernel_layernorm_grad_beta_operator[1](*arrays, {"layerNormGradBetaTiling": tiling})


KERNELS = {
    "add": (EXAMPLES / "add.cpp", run_add),
    "leaky_relu": (EXAMPLES / "leaky_relu.cpp", run_leaky),
    "softmax": (EXAMPLES / "softmax.cpp", run_softmax),
    "atomic_sum": (EXAMPLES / "atomic_sum.cpp", run_atomic),
    "layer_norm_grad_beta": (EXAMPLES / "layer_norm_grad_beta.cpp", run_beta),
    "layer_norm_chain": (EXAMPLES / "layer_norm_chain.cpp", run_chain),
    "sample": (SAMPLE, run_sample),
}

# kernel, the line (or its part) that goes, what comes, the rule that must be among the reports
MUTANTS = [
    ("add", "        xQueue_.FreeTensor(x);\n", "", "alloc-hang"),
    ("add", "        yQueue_.FreeTensor(y);\n", "        xQueue_.FreeTensor(x);\n", "double-free"),
    ("add", "xQueue_.FreeTensor(x);", "yQueue_.FreeTensor(x);", "wrong-queue"),
    ("add", "AscendC::LocalTensor<float> x = xQueue_.AllocTensor<float>();", "AscendC::LocalTensor<float> x;", "no-memory"),
    ("add", "        xQueue_.EnQue(x);\n", "", "deque-empty"),
    ("add", "        xQueue_.EnQue(x);\n", "        yQueue_.EnQue(x);\n", "wrong-queue"),
    (
        "add",
        "        yQueue_.EnQue(y);\n",
        "        yQueue_.EnQue(y);\n        AscendC::DataCopy(y, yGm_[start], tile_);\n",
        "use-after-enque",
    ),
    ("add", "        yQueue_.EnQue(y);\n", "        yQueue_.EnQue(y); yQueue_.EnQue(y);\n", "enque-twice"),
    (
        "add",
        "AscendC::LocalTensor<float> y = yQueue_.DeQue<float>();",
        "AscendC::LocalTensor<float> y = zQueue_.DeQue<float>();",
        "deque-empty",
    ),
    (
        "add",
        "AscendC::LocalTensor<float> x = xQueue_.DeQue<float>();",
        "AscendC::LocalTensor<float> x = xQueue_.AllocTensor<float>();",
        "read-unwritten",
    ),
    ("add", "        AscendC::DataCopy(y, yGm_[start], tile_);\n", "", "read-unwritten"),
    ("add", "AscendC::DataCopy(y, yGm_[start], tile_);", "AscendC::DataCopy(y, yGm_[start], tile_ + 8);", "tensor-range"),
    ("add", "AscendC::DataCopy(y, yGm_[start], tile_);", "AscendC::DataCopy(y, yGm_[start], tile_ - 1);", "unaligned"),
    ("add", "AscendC::Add(z, x, y, tile_);", "AscendC::Add(z, x, y, tile_ + 8);", "tensor-range"),
    ("add", "AscendC::Add(z, x, y, tile_);", "AscendC::Add(z, x, y[1], tile_ - 8);", "unaligned"),
    ("add", "AscendC::Add(z, x, y, tile_);", "AscendC::Add(z, x, y, tile_ - 1);", "read-unwritten"),
    ("add", "AscendC::DataCopy(zGm_[start], z, tile_);", "AscendC::DataCopy(zGm_[start + 8], z, tile_);", "gm-range"),
    ("add", "AscendC::DataCopy(zGm_[start], z, tile_);", "AscendC::DataCopy(xGm_[start + 256], z, tile_);", "missing-sync"),
    (
        "add",
        "zGm_.SetGlobalBuffer((__gm__ float*)z + first, share);",
        "zGm_.SetGlobalBuffer((__gm__ float*)z + first + 8, share);",
        "gm-range",
    ),
    ("add", "zGm_.SetGlobalBuffer((__gm__ float*)z + first, share);", "zGm_.SetGlobalBuffer((__gm__ float*)z, share);", "gm-conflict"),
    ("add", "        zGm_.SetGlobalBuffer((__gm__ float*)z + first, share);\n", "", "gm-range"),
    ("add", "        pipe_.InitBuffer(xQueue_, 2, tile * sizeof(float));\n", "", "no-init-buffer"),
    (
        "add",
        "pipe_.InitBuffer(xQueue_, 2, tile * sizeof(float));",
        "pipe_.InitBuffer(xQueue_, 2, 100 * tile * sizeof(float));",
        "ub-overflow",
    ),
    ("add", "pipe_.InitBuffer(xQueue_, 2, tile * sizeof(float));", "pipe_.InitBuffer(xQueue_, 65, tile * sizeof(float));", "buffer-count"),
    ("add", "pipe_.InitBuffer(xQueue_, 2, tile * sizeof(float));", "pipe_.InitBuffer(xQueue_, 2, tile);", "tensor-range"),
    ("add", "pipe_.InitBuffer(yQueue_, 2, tile * sizeof(float));", "pipe_.InitBuffer(xQueue_, 2, tile * sizeof(float));", "init-twice"),
    ("add", "            CopyOut(start);\n", "", "alloc-hang"),
    ("add", "            CopyIn(start);\n", "            CopyIn(start); CopyIn(start);\n", "alloc-hang"),
    ("add", "        zQueue_.EnQue(z);\n", "        zQueue_.EnQue(z);\n        AscendC::Adds(z, z, 1.0f, tile_);\n", "use-after-enque"),
    (
        "add",
        "        zQueue_.FreeTensor(z);\n",
        "        zQueue_.FreeTensor(z);\n        AscendC::DataCopy(zGm_[start], z, tile_);\n",
        "use-after-free",
    ),
    (
        "leaky_relu",
        "AscendC::DataCopyPad(yGm_[start], y, copy);",
        "AscendC::DataCopy(yGm_[start], y, (length + 15) / 16 * 16);",
        "gm-range",
    ),
    ("leaky_relu", "AscendC::DataCopyPad(x, xGm_[start], copy, pad);", "AscendC::DataCopy(x, xGm_[start], length);", "unaligned"),
    ("leaky_relu", "AscendC::Mins(negative, x, half(0.0f), length);", "AscendC::Mins(negative, x, half(0.0f), tile_);", "read-unwritten"),
    ("leaky_relu", "        AscendC::Mins(negative, x, half(0.0f), length);\n", "", "read-unwritten"),
    ("leaky_relu", "        pipe_.InitBuffer(negative_, tile * sizeof(half));\n", "", "no-init-buffer"),
    (
        "leaky_relu",
        "const uint32_t first = AscendC::GetBlockIdx() * share;",
        "const uint32_t first = AscendC::GetBlockIdx() * (share - 1);",
        "gm-conflict",
    ),
    ("leaky_relu", "AscendC::Add(y, y, negative, length);", "AscendC::Add(y[16], y, negative, length - 16);", "overlap"),
    ("softmax", "        AscendC::WaitFlag<AscendC::HardEvent::V_S>(done);\n", "", "set-without-wait"),
    ("softmax", "        AscendC::WaitFlag<AscendC::HardEvent::V_S>(done);\n", "", "missing-sync"),
    ("softmax", "        AscendC::SetFlag<AscendC::HardEvent::V_S>(done);\n", "", "wait-without-set"),
    (
        "softmax",
        "AscendC::SetFlag<AscendC::HardEvent::V_S>(done);",
        "AscendC::SetFlag<AscendC::HardEvent::MTE2_S>(done);",
        "wait-without-set",
    ),
    ("softmax", "return result.GetValue(0);", "return result.GetValue(8);", "tensor-range"),
    ("softmax", "AscendC::ReduceMax(result, x, work, width_);", "AscendC::ReduceMax(result, y, work, width_);", "read-unwritten"),
    ("softmax", "        AscendC::Adds(y, x, -largest, width_);\n", "        AscendC::DataCopy(y, xGm_, width_);\n", "missing-sync"),
    ("softmax", "AscendC::DataCopy(x, xGm_[row * width_], width_);", "AscendC::DataCopy(x, xGm_[(row + 1) * width_], width_);", "gm-range"),
    (
        "softmax",
        "AscendC::DataCopy(yGm_[row * width_], y, width_);",
        "AscendC::DataCopy(yGm_[row / 2 * width_], y, width_);",
        "gm-conflict",
    ),
    (
        "softmax",
        "AscendC::LocalTensor<float> y = yQueue_.DeQue<float>();",
        "AscendC::LocalTensor<float> y = work_.Get<float>();",
        "read-unwritten",
    ),
    ("atomic_sum", "    AscendC::SyncAll();\n", "", "gm-conflict"),
    ("atomic_sum", "AscendC::SyncAll();", "if (AscendC::GetBlockIdx() != 3) AscendC::SyncAll();", "sync-all"),
    ("atomic_sum", "AscendC::SyncAll();", "AscendC::PipeBarrier<PIPE_ALL>();", "gm-conflict"),
    ("atomic_sum", "    AscendC::SetAtomicAdd<float>();\n", "", "gm-conflict"),
    ("atomic_sum", "    AscendC::SetAtomicNone();\n", "", "atomic-left-on"),
    ("atomic_sum", "AscendC::SetAtomicAdd<float>();", "AscendC::SetAtomicAdd<half>();", "parameter"),
    ("atomic_sum", "if (AscendC::GetBlockIdx() == 0) {", "if (AscendC::GetBlockIdx() <= 1) {", "gm-conflict"),
    ("atomic_sum", "        zero = zeroQueue.DeQue<float>();\n", "", "use-after-enque"),
    ("atomic_sum", "        AscendC::Duplicate(zero, 0.0f, width);\n", "", "read-unwritten"),
    ("layer_norm_grad_beta", "tiling.stackBufferSize * sizeof(float)", "tiling.stackBufferSize", "tmp-size"),
    ("layer_norm_grad_beta", "(pdGamma, pdBeta, res, dy, tmp, tiling_);", "(pdGamma, pdGamma, res, dy, tmp, tiling_);", "overlap"),
    ("layer_norm_grad_beta", "AscendC::DataCopy(dy, dyGm_, bsh_);", "AscendC::DataCopy(dy, dyGm_, bsh_ - 8);", "read-unwritten"),
    ("layer_norm_grad_beta", "        pipe_.InitBuffer(pdGammaQueue_, 1, h_ * sizeof(T));\n", "", "no-init-buffer"),
    ("layer_norm_grad_beta", "pdGammaQueue_.template DeQue<T>()", "pdBetaQueue_.template DeQue<T>()", "deque-empty"),
    ("layer_norm_chain", "AscendC::LayerNorm<T>(y, mean, variance, x, gamma, beta, T(epsilon), norm_);", "", "read-unwritten"),
    ("layer_norm_chain", "        inQueue_.FreeTensor(beta);\n", "", "leak"),
    ("layer_norm_chain", "        outQueue_.EnQue(pdX);\n", "", "deque-empty"),
    (
        "layer_norm_chain",
        "pipe_.InitBuffer(inQueue_, 4, bsh_ * sizeof(T));",
        "pipe_.InitBuffer(inQueue_, 3, bsh_ * sizeof(T));",
        "alloc-hang",
    ),
    (
        "layer_norm_chain",
        "AscendC::TQue<AscendC::QuePosition::VECIN, 4> inQueue_;",
        "AscendC::TQue<AscendC::QuePosition::VECIN, 3> inQueue_;",
        "beyond-depth",
    ),
    ("sample", "        inQueueDy.FreeTensor(inputDyLocal);\n", "", "leak"),
    ("sample", "inQueueDy.FreeTensor(inputDyLocal);", "inQueueResForGamma.FreeTensor(inputDyLocal);", "wrong-queue"),
    ("sample", "        inQueueDy.EnQue(inputDyLocal);\n", "", "deque-empty"),
    ("sample", "DataCopy(inputDyLocal, inputDyGlobal, bshLength);", "DataCopy(inputDyLocal, inputDyGlobal, bshLength + 16);", "gm-range"),
    ("sample", "DataCopy(inputDyLocal, inputDyGlobal, bshLength);", "DataCopy(inputDyLocal, inputDyGlobal, bshLength - 1);", "unaligned"),
    ("sample", "        pipe.InitBuffer(inQueueDy, 1, sizeof(T) * bshLength);\n", "", "no-init-buffer"),
    (
        "sample",
        "pipe.InitBuffer(inQueueDy, 1, sizeof(T) * bshLength);",
        "pipe.InitBuffer(inQueueDy, 50, sizeof(T) * bshLength);",
        "ub-overflow",
    ),
    ("sample", "outQueuePdBeta.DeQue<T>();", "outQueuePdGamma.DeQue<T>();", "deque-empty"),
    (
        "sample",
        "SetGlobalBuffer(reinterpret_cast<__gm__ T *>(inputDyGm), bshLength);",
        "SetGlobalBuffer(reinterpret_cast<__gm__ T *>(inputDyGm), hLength);",
        "gm-range",
    ),
    (
        "sample",
        "        outQueuePdBeta.FreeTensor(outputPdBetaLocal);\n",
        "        outQueuePdGamma.FreeTensor(outputPdGammaLocal);\n",
        "double-free",
    ),
]


def available(name: str) -> None:
    if not KERNELS[name][0].exists():
        pytest.skip("the published sample is not beside this checkout")


def test_there_are_enough_mutants():
    assert len(MUTANTS) >= 30
    assert {name for name, *_ in MUTANTS} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_the_kernel_itself_gives_no_report(name):
    available(name)
    path, run = KERNELS[name]
    run(lambda **options: ascendc.build(path, **options))  # a report would raise


@pytest.mark.parametrize(("name", "old", "new", "rule"), MUTANTS)
def test_mutant_is_caught(tmp_path, name, old, new, rule):
    available(name)
    path, run = KERNELS[name]
    text = path.read_text()
    assert old in text
    mutant = tmp_path / path.name
    mutant.write_text(text.replace(old, new, 1))
    with pytest.raises(ascendc.KernelError) as caught:
        run(lambda **options: ascendc.build(mutant, **options))
    assert rule in {report.rule for report in caught.value.reports}
    assert all(report.file == str(mutant) and report.line > 0 for report in caught.value.reports)
    assert f"[{rule}]" in str(caught.value)
