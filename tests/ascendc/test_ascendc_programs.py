"""C++ programs that launch kernels: every launch form, the exit status, the generated headers."""

import json
import subprocess
import sys

import pytest
from ascendc_paths import EXAMPLES

from anycann import ascendc
from anycann.ascendc.sources import find_kernels, has_main, kind, rewrite_launches

KERNEL = """#include "kernel_operator.h"
template <typename T>
__global__ __aicore__ void add(GM_ADDR x, int32_t value, uint32_t count)
{
    AscendC::TPipe pipe;
    AscendC::TBuf<> buffer;
    AscendC::GlobalTensor<T> gm;
    gm.SetGlobalBuffer((__gm__ T*)x, count);
    pipe.InitBuffer(buffer, count * sizeof(T));
    AscendC::LocalTensor<T> t = buffer.Get<T>();
    AscendC::DataCopy(t, gm, count);
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::Adds(t, t, T(value), count);
    AscendC::PipeBarrier<PIPE_ALL>();
    AscendC::DataCopy(gm, t, count);
}
"""


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_the_example_program(capfd):
    assert ascendc.run([EXAMPLES / "add_program.cpp"]) == 0
    assert capfd.readouterr().out == "10 11 73\n"


def test_a_mistake_is_an_exit_status_and_a_text(tmp_path, capfd):
    text = (EXAMPLES / "add_program.cpp").read_text()
    wrong = write(
        tmp_path,
        "wrong.cpp",
        text.replace("    queue.FreeTensor(tensor);\n", "").replace("return 0;", 'std::printf("main goes on\\n"); return 0;'),
    )
    assert ascendc.run([wrong]) == 1
    out, err = capfd.readouterr()
    assert out.endswith("main goes on\n")
    assert "1 mistake in kernel add_ten (4 blocks):" in err
    assert "where  all 4 cores, queue queue (VECIN, 1 x 64 bytes, depth 1), buffer 0" in err
    past = write(tmp_path, "past.cpp", text.replace("* count, count);", "* count + 8, count);"))
    assert ascendc.run([past]) == 1
    assert "GmAlloc'd memory of 256 bytes has 256 bytes" in capfd.readouterr().err


def test_angle_brackets(tmp_path, capfd):
    main = """
    int main()
    {
        alignas(32) int32_t values[16] = {1, 2, 3};
        const char* text = "not<<<a launch>>>(";  // add<<<1, nullptr, nullptr>>>(x)
        add<int32_t><<<1, nullptr, nullptr>>>(reinterpret_cast<uint8_t*>(values), 10,
            16); add<int32_t><<<1,
            nullptr, nullptr>>>((uint8_t*)values, 100, 16);
        std::printf("%d %d %d %s %d\\n", values[0], values[1], values[15], text, __LINE__);
    }
    """
    assert ascendc.run([write(tmp_path, "main.asc", KERNEL + main)]) == 0
    line = (KERNEL + main).splitlines().index(
        '        std::printf("%d %d %d %s %d\\n", values[0], values[1], values[15], text, __LINE__);'
    ) + 1
    assert capfd.readouterr().out == f"111 112 110 not<<<a launch>>>( {line}\n"


def test_a_number_of_blocks_that_cannot_be_is_refused(tmp_path, capfd):
    main = """
    int main(int argc, char**)
    {
        alignas(32) int32_t values[8] = {};
        uint8_t* x = reinterpret_cast<uint8_t*>(values);
        const int none = argc - 1;
        add<int32_t><<<none, nullptr, nullptr>>>(x, 10, 8);
        const auto status = ICPU_RUN_KF(add<int32_t>, none - 1, x, 10, 8);
        add<int32_t><<<65536, nullptr, nullptr>>>(x, 10, 8);
        std::printf("%d %u\\n", values[0], status);
    }
    """
    assert ascendc.run([write(tmp_path, "main.cpp", KERNEL + main)]) == 1
    out, err = capfd.readouterr()
    assert out == "0 107000\n"
    said = "kernel add<int32_t> was not run: the number of blocks must be 1 to 65535; got {} [107000]"
    assert err.splitlines() == [said.format(count) for count in (0, -1, 65536)]


def test_aclrt_launch_kernel_in_two_files(tmp_path, capfd):
    kernel = write(
        tmp_path,
        "kernel.cpp",
        KERNEL + 'extern "C" __global__ __aicore__ void add_int(GM_ADDR x, int32_t value) { add<int32_t>(x, value, 8); }\n',
    )
    main = """#include <cstdio>
    #include "aclrtlaunch_add_int.h"
    int main() { alignas(32) int values[8] = {}; void* x = values;
    if (ACLRT_LAUNCH_KERNEL(add_int)(1, nullptr, x, 5) != 0) return 9; std::printf("%d\\n", values[7]); }
    """
    host = write(
        tmp_path, "main.cpp", main.replace("#include <cstdio>", "#include <cstdio>\n#define ACLRT_LAUNCH_KERNEL(name) aclrtlaunch_##name")
    )
    assert ascendc.run([host, kernel]) == 0
    assert capfd.readouterr().out == "5\n"


def test_headers_that_options_put_in_front_may_include_others(tmp_path, capfd):
    header = write(tmp_path, "front.h", "#pragma once\n#include <cstdint>\n#include <cstdlib>\n#define VALUE 5\n")
    text = (
        KERNEL
        + """
    #include <cstdio>
    extern "C" __global__ __aicore__ void add_int(GM_ADDR x) { add<int32_t>(x, VALUE, 8); }
    int main() { alignas(32) int values[8] = {}; add_int<<<1, nullptr, nullptr>>>((uint8_t*)values); std::printf("%d\\n", values[7]); }
    """
    )
    host = write(tmp_path, "main.cpp", text)
    for flags in (["-include", str(header)], [f"-include{header}"]):
        assert ascendc.run([host], flags=flags) == 0
        assert capfd.readouterr().out == "5\n"


def test_generated_functions_take_what_the_compiled_kernel_does(tmp_path, capfd):
    text = """
    #include "aclrtlaunch_chosen.h"
    #include "aclrtlaunch_hidden.h"
    #define PARAMETERS GM_ADDR x, int32_t n
    #ifdef OTHER
    extern "C" __global__ __aicore__ void chosen(GM_ADDR x) {}
    #else
    extern "C" __global__ __aicore__ void chosen(PARAMETERS) { add<int32_t>(x, n, 8); }
    #endif
    extern "C" __global__ __aicore__ void hidden(PARAMETERS) { add<int32_t>(x, n, 8); }
    int main()
    {
        alignas(32) int32_t values[8] = {};
        ACLRT_LAUNCH_KERNEL(chosen)(1, nullptr, values, 3);
        ACLRT_LAUNCH_KERNEL(hidden)(1, nullptr, values, 4);
        std::printf("%d\\n", values[7]);
    }
    """
    assert ascendc.run([write(tmp_path, "main.cpp", KERNEL + text)]) == 0
    assert capfd.readouterr().out == "7\n"


def test_kernels_that_no_generated_function_could_launch(tmp_path, capfd):
    text = """
    namespace inner { __global__ __aicore__ void scoped(GM_ADDR x) { add<int32_t>(x, 1, 8); } }
    #if 0
    extern "C" __global__ __aicore__ void old(GM_ADDR x, Foo bar) {}
    #endif
    #define DEFINE(name) \\
        extern "C" __global__ __aicore__ void name(GM_ADDR x) { add<int32_t>(x, 10, 8); }
    DEFINE(made)
    int main()
    {
        alignas(32) int32_t values[8] = {};
        inner::scoped<<<1, nullptr, nullptr>>>(reinterpret_cast<uint8_t*>(values));
        made<<<1, nullptr, nullptr>>>(reinterpret_cast<uint8_t*>(values));
        std::printf("%d\\n", values[7]);
    }
    """
    assert ascendc.run([write(tmp_path, "main.cpp", KERNEL + text)]) == 0
    assert capfd.readouterr().out == "11\n"
    assert [kernel.name for kernel in find_kernels(text)] == ["scoped", "old"]


def test_a_header_of_the_program_names_the_kernel_that_it_launches(tmp_path, capfd):
    kernel = write(tmp_path, "kernel.cpp", KERNEL + 'extern "C" __global__ __aicore__ void one(GM_ADDR x) { add<int32_t>(x, 1, 8); }\n')
    (tmp_path / "include").mkdir()
    write(tmp_path, "include/launch.h", '#include "aclrtlaunch_one.h"\n')
    write(tmp_path, "first.h", '#pragma once\n#include "first.h"\n#include "launch.h"\n')
    launch = "int main() { alignas(32) int v[8] = {}; LAUNCH(one)(1, nullptr, v); return v[7] - 1; }\n"
    host = write(tmp_path, "main.cpp", f'#include "first.h"\n#define LAUNCH(name) ACLRT_LAUNCH_KERNEL(name)\n{launch}')
    assert ascendc.run([host, kernel], flags=[f"-I{tmp_path / 'include'}"]) == 0


def test_a_source_whose_own_header_includes_the_interface(tmp_path, capfd):
    write(tmp_path, "kernels.h", KERNEL)
    source = write(tmp_path, "main.cpp", '#include "kernels.h"\nint main() { std::puts("here"); }\n')
    assert kind(source) == "program"
    assert ascendc.run([source]) == 0
    assert capfd.readouterr().out == "here\n"


def test_an_older_standard_is_refused_in_one_sentence(tmp_path, capfd):
    assert ascendc.run([write(tmp_path, "main.cpp", KERNEL + "int main() {}\n")], flags=["-std=c++14"]) == 1
    assert capfd.readouterr().err == "Ascend C kernels need C++17; got -std=c++14\n"


def test_trace_and_arguments_of_a_program(tmp_path):
    program = ascendc.build_program([EXAMPLES / "add_program.cpp"])
    assert ascendc.run_program(program, trace=tmp_path / "trace.json") == 0
    assert {event["pid"] for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]} == {0, 1, 2, 3}


def test_address_sanitizer(tmp_path, capfd):
    main = """#include <cstdlib>
    int main(int argc, char**)
    {
        int* p = static_cast<int*>(std::malloc(8));
        const int v = p[argc + 1];
        std::free(p);
        return v == 12345;
    }
    """
    assert ascendc.run([write(tmp_path, "main.cpp", KERNEL + main)], sanitize="address") != 0
    assert "heap-buffer-overflow" in capfd.readouterr().err


def test_children_of_a_fork_can_launch_while_other_threads_allocate(tmp_path, capfd):
    main = """
    #include "tikicpulib.h"
    #include <sys/wait.h>
    #include <unistd.h>
    #include <atomic>
    #include <cstdio>
    #include <thread>

    int Launched()
    {
        auto* x = (int32_t*)AscendC::GmAlloc(32);
        x[0] = 40;
        add<int32_t><<<1, nullptr, nullptr>>>((uint8_t*)x, 2, 8);
        const int got = x[0];
        AscendC::GmFree(x);
        return got;
    }

    int main()
    {
        std::atomic<bool> over{false};
        std::thread allocating([&] {
            while (!over) {
                AscendC::GmFree(AscendC::GmAlloc(32));
            }
        });
        int right = 0;
        for (int i = 0; i < 40; ++i) {
            const pid_t child = fork();
            if (child == 0) {
                alarm(20);
                _exit(Launched() == 42 ? 0 : 1);
            }
            int ended = 1;
            waitpid(child, &ended, 0);
            if (ended != 0) {
                break;
            }
            ++right;
        }
        over = true;
        allocating.join();
        std::printf("%d\\n", right);
        return 0;
    }
    """
    assert ascendc.run([write(tmp_path, "main.cpp", KERNEL + main)]) == 0
    assert capfd.readouterr().out == "40\n"


def test_kernels_without_main_are_explained(capfd):
    assert ascendc.run([EXAMPLES / "add.cpp"]) == 2
    text = capfd.readouterr().err
    assert 'module = ascendc.build("' in text
    assert "module.add[blocks](x, y, z, tiling)" in text


def test_a_program_that_does_not_compile(tmp_path, capfd):
    path = write(tmp_path, "bad.cpp", KERNEL + "int main() { AscendC::Mmad(1); }\n")
    assert ascendc.run([path]) == 1
    assert f"{path}:{KERNEL.count(chr(10)) + 1}: AscendC::Mmad is not supported by anycann" in capfd.readouterr().err


def test_sources_are_told_apart(tmp_path):
    assert kind(EXAMPLES / "add.cpp") == "kernel"
    assert kind(EXAMPLES / "add_program.cpp") == "program"
    assert kind(write(tmp_path, "host.cpp", '#include "acl/acl.h"\nint main() { int a = 1 << 2; }\n')) == "other"
    assert kind(write(tmp_path, "k.asc", "__global__ __aicore__ void k(GM_ADDR x) {}\n")) == "kernel"
    assert not has_main("// int main()\n")
    assert has_main("int32_t main(int32_t argc, char *argv[]) {}")
    assert has_main("auto main() -> int {}")
    assert not has_main("Sprint main(3);")


def test_kernels_are_found():
    text = """
    // extern "C" __global__ __aicore__ void commented(GM_ADDR x) {}
    extern "C" __global__ __aicore__ void declared(GM_ADDR x);
    extern "C" __global__ [aicore] void first(GM_ADDR x, __gm__ float *y, const int32_t n = 4)
    {}
    template <typename T, int N = 2> __aicore__ __global__ void second(__gm__ T* values, Pair<int, float> pair) {
        const char* s = "} __global__ void no() {"; }
    __global__ __aicore__ void third() {}
    """
    found = find_kernels(text)
    assert [(k.name, k.parameters, k.template) for k in found] == [
        ("first", ("x", "y", "n"), False),
        ("second", ("values", "pair"), True),
        ("third", (), False),
    ]
    assert found[0].types == ("GM_ADDR", "__gm__ float *", "const int32_t")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("k<<<8, nullptr, s>>>(x);", '::anycann::emu::Launcher("k", 8, nullptr, s).Bind(k)(x);'),
        ("ns::k<float, 3><<<n / 2,\n l2, s>>>();", '::anycann::emu::Launcher("ns::k<float, 3>", n / 2,\n l2, s).Bind(ns::k<float, 3>)();'),
        ('puts("k<<<1>>>()"); a << b >> c;', 'puts("k<<<1>>>()"); a << b >> c;'),
        ("if (n < 5) k<T><<<1, l, s>>>(x);", 'if (n < 5) ::anycann::emu::Launcher("k<T>", 1, l, s).Bind(k<T>)(x);'),
        ("while (i < n) k<<<1, l, s>>>(x);", 'while (i < n) ::anycann::emu::Launcher("k", 1, l, s).Bind(k)(x);'),
        ("k<A<B<1>>, (3 > 2)> <<<1, l, s>>>();", '::anycann::emu::Launcher("k<A<B<1>>, (3 > 2)>", 1, l, s).Bind(k<A<B<1>>, (3 > 2)>)();'),
        ("k<1 << 2><<<1, l, s>>>();", '::anycann::emu::Launcher("k<1 << 2>", 1, l, s).Bind(k<1 << 2>)();'),
        ("::ns :: k<<<1, l, s>>>();", '::anycann::emu::Launcher("::ns :: k", 1, l, s).Bind(::ns :: k)();'),
    ],
)
def test_launches_are_rewritten(source, expected):
    assert rewrite_launches(source) == expected


def test_a_program_can_be_run_from_a_fresh_process(tmp_path):
    code = f"from anycann import ascendc; raise SystemExit(ascendc.run(['{EXAMPLES / 'add_program.cpp'}']))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stdout == "10 11 73\n"


RUNTIME = """
#include <cstddef>
#include <cstdint>
alignas(512) static uint8_t memory[64];
static int jobs = 0;
extern "C" {
void* fake_device_memory() { return memory; }
int fake_jobs() { return jobs; }
int anycann_stream_enqueue(void* stream, int (*job)(void*), void* context) { ++jobs; *static_cast<int*>(stream) = job(context); return 0; }
int anycann_device_block(const void* address, void** base, size_t* bytes)
{
    const auto* at = static_cast<const uint8_t*>(address);
    if (at < memory || at >= memory + sizeof memory) { return 1; }
    *base = memory;
    *bytes = sizeof memory;
    return 0;
}
}
"""


def test_a_runtime_library_takes_launches_and_knows_device_memory(tmp_path, capfd):
    library = tmp_path / "libruntime.so"
    subprocess.run(["g++", "-shared", "-fPIC", str(write(tmp_path, "runtime.cpp", RUNTIME)), "-o", str(library)], check=True)
    main = """
    extern "C" void* fake_device_memory();
    extern "C" int fake_jobs();
    int main(int, char** argv)
    {
        alignas(32) int32_t host[16] = {};
        uint8_t* device = static_cast<uint8_t*>(fake_device_memory());
        int mistakes = -1;
        switch (argv[1][0]) {
            case 'd': add<int32_t><<<1, nullptr, &mistakes>>>(device, 7, 16); break;
            case 'h': add<int32_t><<<1, nullptr, &mistakes>>>(reinterpret_cast<uint8_t*>(host), 7, 16); break;
            default: add<int32_t><<<1, nullptr, &mistakes>>>(device, 7, 24); break;
        }
        std::printf("%d %d %d\\n", fake_jobs(), mistakes, reinterpret_cast<int32_t*>(device)[15]);
    }
    """
    program = ascendc.build_program([write(tmp_path, "main.cpp", KERNEL + main)], libraries=[str(library)])
    assert ascendc.run_program(program, ["device"]) == 0
    assert capfd.readouterr().out == "1 0 7\n"
    assert ascendc.run_program(program, ["host"]) == 1
    assert "not device memory: past the end of an allocation, a host pointer, or memory that was freed" in capfd.readouterr().err
    assert ascendc.run_program(program, ["past"]) == 1
    assert "touches bytes 0 to 95 of device memory of 64 bytes" in capfd.readouterr().err
