"""What kernels write beside instructions: kinds of cores, elements, steps of a buffer, whole tensors, prints, claims."""

import subprocess

import numpy as np
import pytest

from anycann import ascendc
from anycann.ascendc.program import build_program


def test_a_kernel_asks_what_core_it_runs_on(make):
    module = make("""
        if ASCEND_IS_AIC { return; }
        if (g_coreType == AscendC::AIC) { return; }
        if ASCEND_IS_AIV { ((__gm__ float*)y)[0] = 3; }""")
    x, y = np.zeros((2, 8), np.float32)
    module.kernel[1](x, y)
    assert y[0] == 3


def test_elements_of_global_memory(make):
    module = make("""
        AscendC::GlobalTensor<half> g; g.SetGlobalBuffer((__gm__ half*)y, 16);
        g(1) = half(g.GetValue(0)) * 2; g(2) = g(1); g[2](1) = 9;""")
    x, y = np.zeros(16, np.float16), np.full(16, 4, np.float16)
    module.kernel[1](x, y)
    assert y[:5].tolist() == [4, 8, 8, 9, 4]
    with pytest.raises(ascendc.KernelError, match="SetGlobalBuffer gave 32 bytes"):
        make("AscendC::GlobalTensor<half> g; g.SetGlobalBuffer((__gm__ half*)y, 16); g(16) = 0;").kernel[1](x, y)


STEPS = """
    using namespace AscendC;
    TPipe pipe; TQueBind<TPosition::VECIN, TPosition::VECOUT, 2> queue; pipe.InitBuffer(queue, 2, 256);
    GlobalTensor<float> from, to; from.SetGlobalBuffer((__gm__ float*)x, 256); to.SetGlobalBuffer((__gm__ float*)y, 256);
    for (int i = 0; i < 4; ++i) {
        LocalTensor<float> t = queue.AllocTensor<float>();
        DataCopy(t, from[64 * i], 64);
        queue.EnQue<TPosition::GM, TPosition::VECIN, float>(t); t = queue.DeQue<TPosition::GM, TPosition::VECIN, float>();
        Muls(t, t, 2.0f, 64);
        queue.EnQue<TPosition::VECOUT, TPosition::GM>(t); t = queue.DeQue<TPosition::VECOUT, TPosition::GM, float>();
        DataCopy(to[64 * i], t, 64);
        queue.FreeTensor(t);
    }"""


def test_one_buffer_is_filled_computed_on_and_emptied(make):
    x, y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
    make(STEPS).kernel[1](x, y)
    assert np.array_equal(y, 2 * x)


@pytest.mark.parametrize(
    ("step", "pipes"), [("TPosition::GM, TPosition::VECIN", "pipe V"), ("TPosition::VECOUT, TPosition::GM", "pipe MTE3")]
)
def test_a_step_that_is_left_out_orders_nothing(make, step, pipes):
    lines = [line for line in STEPS.splitlines() if f"EnQue<{step}" not in line]
    x, y = np.zeros((2, 256), np.float32)
    with pytest.raises(ascendc.KernelError) as caught:
        make("\n".join(lines)).kernel[1](x, y)
    assert "missing-sync" in {report.rule for report in caught.value.reports}
    assert pipes in str(caught.value)


def test_a_step_between_cube_positions_is_refused(make):
    with pytest.raises(ascendc.CompileError, match="EnQue and DeQue go between GM, VECIN, VECCALC and VECOUT"):
        make(STEPS.replace("EnQue<TPosition::GM", "EnQue<TPosition::A1"))


WHOLE = """
    using namespace AscendC;
    TPipe pipe; TBuf<> abuf, bbuf, cbuf; pipe.InitBuffer(abuf, 512); pipe.InitBuffer(bbuf, 512); pipe.InitBuffer(cbuf, 512);
    GlobalTensor<T> from, to; from.SetGlobalBuffer((__gm__ T*)x); to.SetGlobalBuffer((__gm__ T*)y);
    LocalTensor<T> a = abuf.Get<T>(), b = bbuf.Get<T>(), c = cbuf.Get<T>();
    DataCopy(a, from, 512 / sizeof(T)); DataCopy(b, from[512 / sizeof(T)], 512 / sizeof(T)); PipeBarrier<PIPE_ALL>();
    Sub(c, a, a, 512 / sizeof(T));
    @;
    PipeBarrier<PIPE_ALL>(); DataCopy(to, c, 512 / sizeof(T));"""


@pytest.mark.parametrize(
    ("symbol", "dtype", "of_numpy"),
    [
        *[
            (symbol, dtype, f)
            for dtype in (np.float16, np.float32)
            for symbol, f in zip("+-*/", (np.add, np.subtract, np.multiply, np.divide), strict=True)
        ],
        ("&", np.int16, np.bitwise_and),
        ("|", np.int16, np.bitwise_or),
    ],
)
def test_operators_on_whole_tensors(make, symbol, dtype, of_numpy):
    name = {"float16": "half", "float32": "float", "int16": "int16_t"}[np.dtype(dtype).name]
    x = np.random.default_rng(0).integers(1, 99, (2, 512 // np.dtype(dtype).itemsize)).astype(dtype)
    y = np.zeros(x.shape[1], dtype)
    make(WHOLE.replace("@", f"c = a {symbol} b"), head=f"using T = {name};").kernel[1](x, y)
    assert np.array_equal(y, of_numpy(x[0], x[1]))


def test_comparisons_of_whole_tensors(make):
    x = np.random.default_rng(0).integers(0, 3, (2, 128)).astype(np.float32)
    symbols = {"<": np.less, ">": np.greater, "<=": np.less_equal, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal}
    body = "LocalTensor<uint8_t> m = cbuf.Get<uint8_t>(); " + " ".join(f"m[{32 * i}] = a {s} b;" for i, s in enumerate(symbols))
    y = np.zeros(128, np.float32)
    make(WHOLE.replace("@", body), head="using T = float;").kernel[1](x, y)
    bits = np.unpackbits(y.view(np.uint8), bitorder="little").reshape(-1, 256)
    for row, compare in zip(bits, symbols.values(), strict=False):
        assert np.array_equal(row[:128].astype(bool), compare(x[0], x[1]))


def test_mistakes_on_whole_tensors_have_their_line(make):
    with pytest.raises(ascendc.KernelError) as caught:
        make(WHOLE.replace("@", "\nc = a[8] * b"), head="using T = float;").kernel[1](
            np.ones((2, 128), np.float32), np.zeros(128, np.float32)
        )
    (report,) = caught.value.reports
    assert (report.rule, report.line) == ("tensor-range", 13)
    assert "Mul reads bytes 0 to 511 of a tensor of 480 bytes" in str(caught.value)


PROGRAM = """
#include "tikicpulib.h"
using namespace AscendC;
extern "C" __global__ __aicore__ void kernel(GM_ADDR x)
{
    const half h = 1.5;
    PRINTF("%d %s\\n", static_cast<int>(GetBlockIdx()), "one");
    AscendC::PRINTF("%.2f\\n", h);
    AscendC::printf("%.2f %%\\n", bfloat16_t(0.25f));
    printf("%.1f\\n", h);
    AscendC::printf("100%%\\n");
}
int main()
{
    GM_ADDR x = static_cast<GM_ADDR>(GmAlloc(32));
    ICPU_RUN_KF(kernel, 1, x);
    printf("%s\\n", "host");
    GmFree(x);
}
"""


def test_what_kernels_print(tmp_path):
    path = tmp_path / "print.cpp"
    path.write_text(PROGRAM)
    printed = subprocess.run([str(build_program([path]))], capture_output=True, text=True, check=True)
    assert printed.stdout.splitlines() == ["0 one", "1.50", "0.25 %", "1.5", "100%", "host"]


@pytest.mark.parametrize(
    ("claim", "says"),
    [
        ("ASSERT(AscendC::GetBlockNum() == 7)", "AscendC::GetBlockNum() == 7 does not hold"),
        ('ASSERT(n > 5, "n is %d, half %.1f", n, half(0.5))', "n > 5 does not hold: n is 3, half 0.5"),
        ("ascendc_assert(n > 5)", "n > 5 does not hold"),
        ('ascendc_assert(n > 5 && n != 7, "said")', "n > 5 && n != 7 does not hold: said"),
    ],
)
def test_claims(make, claim, says):
    module = make(f'const int n = 3; ASSERT(n == 3); ascendc_assert(n == 3, "%d", n); {claim};')
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[1](*np.zeros((2, 8), np.float32))
    (report,) = caught.value.reports
    assert (report.rule, report.what) == ("assert", says)
