"""What the processor cannot do for a kernel ends the kernel, not the process."""

import platform
import signal
import subprocess
import sys

import numpy as np
import pytest

from anycann import ascendc

UNCHECKED = ", but for instructions on data, which only a checked run notes"
DEEPER = "static int deeper(volatile int* n) { volatile int here[99]; here[*n % 99] = *n; *n += 1; return deeper(n) + here[3]; }"
CASES = {
    "a null pointer": ("y[n] = 1;", 3, "the kernel read or wrote at address 0x3, by a null pointer"),
    "memory that is not there": ("y[(int64_t(1) << 44) + n] = 1;", 3, "the kernel read or wrote at address 0x100000000003, where no"),
    "text that is not there": ('PRINTF("%s\\n", (const char*)y + n);', 5, "the kernel read or wrote at address 0x5, by a null pointer"),
    "a recursion": ("volatile int k = n; x[0] = deeper(&k);", 0, "the kernel's stack is full: a recursion without end, or large arrays"),
}
if platform.machine() in ("x86_64", "AMD64"):  # elsewhere 1 / 0 may be 0
    CASES["a division by 0"] = ("x[0] = 1024 / n;", 0, "the kernel divided an integer by 0, or the smallest one by -1")
    CASES["no address"] = ("y[(int64_t(1) << 60) + n] = 1;", 0, "the kernel read or wrote at what can be no address")


def arguments(n):
    return np.zeros(64, np.uint8), None, n


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_fault_is_reported_and_the_next_launch_runs(make, case, check):
    body, n, what = CASES[case]
    guarded = f"if (n >= 0) {{ {body} }} x[AscendC::GetBlockIdx()] = 7;"
    module = make(guarded, "GM_ADDR x, GM_ADDR y, int32_t n", head=DEEPER, check=check)
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[3](*arguments(n))
    (report,) = caught.value.reports
    assert (report.rule, report.cores) == ("fault", (0, 1, 2))
    assert report.what.startswith(what)
    if case == "text that is not there":  # found in code of the system, whose lines are nobody's
        assert (report.line, report.api) == (0, "")
        assert report.what.endswith("; it made no call" + ("" if check else UNCHECKED))
    else:
        assert report.file.endswith("/kernel.cpp")
        assert (report.line, report.api) == (2 if case == "a recursion" else 5, "code of the kernel")
    assert "zeros" in report.advice
    x, y, _ = arguments(n)
    module.kernel[3](x, y, -1)
    assert x[:4].tolist() == [7, 7, 7, 0]


@pytest.mark.parametrize("located", [True, False])
def test_a_fault_names_its_line_or_the_last_call_and_lets_other_blocks_end(make, monkeypatch, located):
    body = "if (AscendC::GetBlockIdx() == 1) { AscendC::PipeBarrier<PIPE_ALL>();\n y[0] = 1; } AscendC::SyncAll();"
    module = make(body, "GM_ADDR x, GM_ADDR y, int32_t n")
    if not located:
        monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[4](*arguments(0))
    (report,) = caught.value.reports
    assert (report.rule, report.cores) == ("fault", (1,))
    assert (report.line, report.api) == ((6, "code of the kernel") if located else (5, "PipeBarrier"))
    assert report.what.endswith("Unified Buffer" if located else "; this was its last call")


def test_a_fault_in_an_atomic_addition_keeps_no_lock(make):
    body = """AscendC::TPipe pipe; AscendC::TBuf<> buffer; pipe.InitBuffer(buffer, 32);
    AscendC::LocalTensor<float> ones = buffer.Get<float>(); AscendC::Duplicate(ones, 1.0f, 8); AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::GlobalTensor<float> gm; gm.SetGlobalBuffer((__gm__ float*)(n == 0 ? x : y), 8);
    AscendC::SetAtomicAdd<float>(); AscendC::DataCopy(gm, ones, 8); AscendC::SetAtomicNone();"""
    module = make(body, "GM_ADDR x, GM_ADDR y, int32_t n", check=False)
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[1](*arguments(1), timeout=5.0)
    assert [(report.rule, report.line) for report in caught.value.reports] == [("fault", 8)]  # the line of the copy
    x, y, _ = arguments(0)
    module.kernel[2](x, y, 0, timeout=5.0)
    assert x.view(np.float32)[:8].tolist() == [2.0] * 8


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="assert calls another function")
@pytest.mark.parametrize("first", [True, False])
def test_the_assert_of_c_ends_the_kernel_and_says_where(tmp_path, first):
    lines = ["#include <cassert>", '#include "kernel_operator.h"']
    lines = [*(lines if first else lines[::-1]), 'extern "C" __global__ __aicore__ void kernel(GM_ADDR x, int32_t n) { x[0] = 7;']
    path = tmp_path / "kernel.cpp"
    path.write_text("\n".join([*lines, 'assert(n > 2 && "room for three"); x[0] = 9; }']))
    module = ascendc.build(path)
    x = np.zeros(4, np.uint8)
    with pytest.raises(ascendc.KernelError) as caught:
        module.kernel[2](x, 2)
    (report,) = caught.value.reports
    assert (report.rule, report.api, report.line, report.cores) == ("assert", "assert", 4, (0, 1))
    assert report.what == 'n > 2 && "room for three" does not hold'
    module.kernel[1](x, 3)
    assert x[0] == 9


def test_a_claim_of_the_host_ends_the_program(tmp_path, capfd):
    program = tmp_path / "main.cpp"
    program.write_text("""#include "kernel_operator.h"
#include <cassert>
extern "C" __global__ __aicore__ void kernel(GM_ADDR x) { }
int main() { ICPU_RUN_KF(kernel, 1, nullptr); assert(1 > 2); return 0; }
""")
    assert ascendc.run([program]) == -signal.SIGABRT
    assert "Assertion `1 > 2' failed" in capfd.readouterr().err


def test_a_program_goes_on_after_a_fault_and_says_so(tmp_path, capfd):
    program = tmp_path / "main.cpp"
    program.write_text("""#include "kernel_operator.h"
extern "C" __global__ __aicore__ void kernel(GM_ADDR x) { x[1] = 1; }
int main() { ICPU_RUN_KF(kernel, 2, nullptr); std::printf("main goes on\\n"); return 0; }
""")
    assert ascendc.run([program]) == 1
    out, err = capfd.readouterr()
    assert out == "main goes on\n"
    assert "at address 0x1, by a null pointer" in err


ENVIRONMENT = """#include <cfenv>
#include <cmath>
#include <cstring>
#include "tikicpulib.h"
extern "C" __global__ __aicore__ void kernel(GM_ADDR x, float zero, float three, float tiny)
{
    auto* y = (__gm__ float*)x;
    y[0] = 1 / zero;
    y[1] = 1 / three;
    y[2] = tiny / 2;
}
int main()
{
    feenableexcept(FE_DIVBYZERO | FE_INVALID | FE_OVERFLOW);
    fesetround(FE_UPWARD);
    auto* x = static_cast<uint8_t*>(AscendC::GmAlloc(64));
    ICPU_RUN_KF(kernel, 1, x, 0.0f, 3.0f, 1e-38f);
    uint32_t bits[3];
    std::memcpy(bits, x, sizeof bits);
    std::printf("%08x %08x %08x\\n", bits[0], bits[1], bits[2]);
    AscendC::GmFree(x);
    return 0;
}
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="traps are set in another way")
@pytest.mark.parametrize("flags", [[], ["-ffast-math"]])
def test_traps_rounding_and_flushing_of_a_program_are_not_those_of_its_kernels(tmp_path, capfd, flags):
    (tmp_path / "main.cpp").write_text(ENVIRONMENT)
    assert ascendc.run([tmp_path / "main.cpp"], flags=flags) == 0
    expected = np.array([np.inf, np.float32(1) / np.float32(3), np.float32(1e-38) / np.float32(2)], np.float32).view(np.uint32)
    assert capfd.readouterr().out.split() == [f"{word:08x}" for word in expected]


def test_a_name_of_the_header_for_programs_says_so(make):
    with pytest.raises(ascendc.CompileError, match=r"kernel.cpp:5: AscendC::GmAlloc is declared in tikicpulib.h: include it"):
        make("AscendC::GmAlloc(64);")


FAULT_ELSEWHERE = """
import ctypes, faulthandler, sys
import numpy as np
from anycann import ascendc
module = ascendc.build(sys.argv[1])
for launch in ("before", "after"):
    if sys.argv[2] == launch:
        faulthandler.enable()
    try:
        module.kernel[1](None)
    except ascendc.KernelError as error:
        print(error.reports[0].rule, flush=True)
ctypes.string_at(0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_a_fault_of_the_process_itself_ends_it_as_ever(tmp_path, when):
    source = tmp_path / "kernel.cpp"
    source.write_text('#include "kernel_operator.h"\nextern "C" __global__ __aicore__ void kernel(GM_ADDR x) { x[1] = 1; }\n')
    done = subprocess.run([sys.executable, "-c", FAULT_ELSEWHERE, source, when], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["fault", "fault"]
    assert done.returncode == -signal.SIGSEGV
    assert done.stderr.count("Fatal Python error: Segmentation fault") == (0 if when == "never" else 1)
