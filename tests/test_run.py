"""`anycann run`: what it compiles and when, what programs find, how they end, and what is said when something is missing."""

import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from anycann import cabi
from anycann.cabi import build as cabi_build
from anycann.cli import programs
from anycann.cli.app import app
from anycann.toolchain import ToolchainError, compiler

SAMPLES = Path(__file__).resolve().parents[2] / "shared" / "samples"


class Done(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture(autouse=True)
def _caches(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path_factory.mktemp("programs")
    monkeypatch.setattr(programs, "_folder", lambda: kept)
    for name in ("ANYCANN_EXPLAIN", "ANYCANN_CHECK", "ANYCANN_PRODUCT", "LD_LIBRARY_PATH", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """The command in this process; what programs print comes after what it prints itself."""

    def call(*words: object) -> Done:
        capfd.readouterr()
        result = CliRunner().invoke(app, ["run", *map(str, words)], prog_name="anycann", env={"COLUMNS": "200"})
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        out, err = capfd.readouterr()
        return Done(result.exit_code, result.stdout + out, result.stderr + err)

    return call


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the compiler was started since the last time this was asked, other than to look at what there is to compile."""
    log, wrapper = tmp_path / "started", tmp_path / "counting-g++"
    wrapper.write_text(f'#!/bin/sh\ncase "$1" in -v|-E) ;; *) echo >> {log} ;; esac\nexec {shlex.join(compiler()[0])} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", str(wrapper))
    cabi.home()

    def since() -> int:
        count = len(log.read_text().splitlines()) if log.exists() else 0
        log.unlink(missing_ok=True)
        return count

    since()
    return since


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


HELLO = """
    #include <cstdio>
    #ifndef WORD
    #define WORD "hello"
    #endif
    int main(int count, char** words)
    {
        std::printf("%s", WORD);
        for (int i = 1; i < count; ++i) std::printf(" [%s]", words[i]);
        std::printf("\\n");
        return count - 1;
    }
"""


# The published programs, where they are at hand

samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the published programs are not here")


def numbers(text: str) -> list[float]:
    return [float(line.split("is: ")[1]) for line in text.splitlines()]


@samples
@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("gelu_backward_v2", [f"result[{i}] is: 0.000000" for i in range(8)]),
        ("smooth_l1_loss_backward", [f"result[{i}] is: {v}.000000" for i, v in enumerate((-1, 0, 1, 1, 1, 1, 1, 1))]),
        ("moe_token_permute_grad", ["mean result[0] is: 1.000000", "mean result[1] is: 0.000000"]),
    ],
)
def test_published_programs_run_unchanged(run: Run, name: str, printed: list[str]) -> None:
    assert run(SAMPLES / f"{name}.cpp") == (0, "\n".join(printed) + "\n", "")


def changed(tmp_path: Path, name: str, *changes: tuple[str, str]) -> Path:
    text = (SAMPLES / f"{name}.cpp").read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return write(tmp_path / f"{name}.cpp", text)


TANH_0_TO_7 = [0.5, 1.082964, 1.086099, 1.011584, 1.000335, 1.000002, 1.0, 1.0]  # by mpmath


@samples
@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("gelu_backward_v2", [("<int> gradOutputHostData", "<float> gradOutputHostData")], TANH_0_TO_7),
        (
            "gelu_backward_v2",
            [("<int> gradOutputHostData", "<float> gradOutputHostData"), ("gradOutputShape = {4, 2}", "gradOutputShape = {1, 2}")],
            TANH_0_TO_7,
        ),
        ("smooth_l1_loss_backward", [("reduction = 0", "reduction = 1"), ("beta = 1.0", "beta = 4.0")],
         [-1 / 32, 0, 1 / 32, 2 / 32, 3 / 32, 4 / 32, 4 / 32, 4 / 32]),
        ("smooth_l1_loss_backward", [("targetShape = {4, 2}", "targetShape = {1}"), ("targetHostData = {1, 1,", "targetHostData = {7, 1,")],
         [-1, -1, -1, -1, -1, -1, -1, 0]),
        ("moe_token_permute_grad", [("ACL_BF16", "ACL_FLOAT"), ("<float> sortedIndicesData", "<int32_t> sortedIndicesData")], [4, 6]),
    ],
)  # fmt: skip
def test_published_programs_with_other_types_and_shapes(
    run: Run, tmp_path: Path, name: str, changes: list[tuple[str, str]], expected: list[float]
) -> None:
    done = run(changed(tmp_path, name, *changes))
    assert (done.status, done.err) == (0, "")
    assert numbers(done.out) == pytest.approx(expected, abs=5e-7)


@samples
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("gradInputShape = {4, 2}", "gradInputShape = {2, 2, 2}"), "gradInput must have shape (4, 2)"),
        (("approximate = \"tanh\"", "approximate = \"Tanh\""), "approximate must be"),
        (("aclDataType::ACL_FLOAT, &gradInput", "aclDataType::ACL_INT32, &gradInput"), "gradInput must have dtype"),
    ],
)  # fmt: skip
def test_a_refusal_is_explained_to_a_program_that_prints_the_code(run: Run, tmp_path: Path, change: tuple[str, str], text: str) -> None:
    done = run(changed(tmp_path, "gelu_backward_v2", change))
    assert done.status == 161002 % 256  # the program returns the code
    assert done.out == "aclnnGeluBackwardV2GetWorkspaceSize failed. ERROR: 161002\n"
    assert f"aclnnGeluBackwardV2GetWorkspaceSize: {text}" in done.err
    assert done.err.rstrip().endswith("[ACLNN_ERR_PARAM_INVALID 161002]")


# Sources and flags


def test_arguments_exit_status_and_name_of_the_program(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "hello.cpp", HELLO)
    assert run(source) == (0, "hello\n", "")
    assert run(source, "one", "-DWORD=x", "--check", "two words") == (4, "hello [one] [-DWORD=x] [--check] [two words]\n", "")
    assert run(source, "--", "-O2", "--") == (2, "hello [-O2] [--]\n", "")
    named = write(tmp_path / "named.cpp", "#include <cstdio>\nint main(int, char** words) { std::puts(words[0]); }\n")
    assert run(named).out == f"{tmp_path}/named\n"


def test_flags_before_between_and_after_sources(run: Run, tmp_path: Path) -> None:
    part = write(tmp_path / "part.cc", '#include "word.h"\nconst char* word() { return WORD EXTRA; }\n')
    main = write(
        tmp_path / "main.cxx", "#include <cstdio>\nconst char* word();\nint main() { std::puts(word()); return __cplusplus / 100 % 100; }\n"
    )
    write(tmp_path / "include" / "word.h", '#define WORD "a"\n')
    flags = ("-I", tmp_path / "include", "-std=c++14", "-O2", "-g", "-fno-exceptions")
    for words in (
        [*flags, '-DEXTRA="b"', part, main],
        [part, *flags, main, "-D", 'EXTRA="b"'],
        [part, main, *flags, '-DEXTRA="c"', "-UEXTRA", '-DEXTRA="b"', "--"],
    ):
        assert run(*words) == (14, "ab\n", "")


@pytest.mark.parametrize("suffix", [".cpp", ".cc", ".cxx", ".asc", ".cce"])
def test_sources_of_every_name_are_compiled_as_cpp(run: Run, tmp_path: Path, suffix: str) -> None:
    main = write(tmp_path / f"main{suffix}", "#include <cstdio>\nconst char* word();\nint main() { std::puts(word()); }\n")
    part = write(tmp_path / f"part{suffix}", 'const char* word() { return "a"; }\n')
    assert run(main, part) == (0, "a\n", "")


def test_c_and_both_languages(run: Run, tmp_path: Path) -> None:
    c = write(
        tmp_path / "main.c",
        """
        #include <stdio.h>
        #include "acl/acl.h"
        #include "aclnnop/aclnn_gelu_v2.h"
        int twice(int class);
        int main(void)
        {
            aclTensor *none = 0;
            aclOpExecutor *executor = 0;
            uint64_t size = 0;
            printf("%s %d %ld\\n", aclrtGetSocName(), twice(4), __STDC_VERSION__);
            return aclnnGeluV2GetWorkspaceSize(none, 0, none, &size, &executor) == ACLNN_ERR_PARAM_NULLPTR ? 0 : 1;
        }
        """,
    )
    other = write(tmp_path / "twice.cpp", 'extern "C" int twice(int value) { auto both = [=] { return 2 * value; }; return both(); }\n')
    done = run("--product", "Ascend310P3", "-std=c11", "-std=c++17", c, other)
    assert (done.status, done.out) == (0, "Ascend310P3 8 201112\n")
    assert "aclnnGeluV2GetWorkspaceSize: x must be a tensor; got a null pointer" in done.err


def test_paths_with_spaces_and_other_signs(run: Run, tmp_path: Path, counted: Callable[[], int]) -> None:
    folder = tmp_path / "a folder $HOME #1"
    header = write(folder / "in c" / "the word.h", '#define WORD "spaces"\n')
    source = write(folder / "my program.cpp", f'#include "the word.h"\n{textwrap.dedent(HELLO)}')
    assert run("-I", header.parent, source, "x y") == (1, "spaces [x y]\n", "")
    assert counted() == 2
    assert run("-I", header.parent, source).out == "spaces\n"
    assert counted() == 0
    header.write_text('#define WORD "changed"\n')
    assert run("-I", header.parent, source).out == "changed\n"


def test_names_that_are_no_utf_8(run: Run, tmp_path: Path) -> None:
    word = os.fsdecode(b"\xff")
    source = write(tmp_path / f"{word}.cpp", HELLO)
    assert run(f'-DWORD="a{word}"', source) == run(f'-DWORD="a{word}"', source) == (0, "a\ufffd\n", "")
    script = write(tmp_path / f"{word}.py", "print(3)\n")
    assert run("--check", script).out == "3\n"


def test_nothing_is_left_where_the_cache_cannot_be_written(tmp_path: Path) -> None:
    source, temporary = write(tmp_path / "hello.cpp", HELLO), tmp_path / "temporary"
    temporary.mkdir()
    settings = {**os.environ, "ANYCANN_CACHE_DIR": str(source / "cache"), "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "anycann.cli", "run", source]
    done = subprocess.run(command, capture_output=True, text=True, env=settings, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
    assert list(temporary.iterdir()) == []


def test_relative_paths_are_those_of_the_folder_one_is_in(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for word in ("first", "second"):
        write(tmp_path / word / "include" / "word.h", f'#define WORD "{word}"\n')
        write(tmp_path / word / "hello.cpp", f'#include "word.h"\n{textwrap.dedent(HELLO)}')
    for word in ("first", "second", "first"):
        monkeypatch.chdir(tmp_path / word)
        assert run("-Iinclude", "hello.cpp").out == f"{word}\n"


def test_libraries_of_the_user(run: Run, tmp_path: Path) -> None:
    main = write(tmp_path / "main.cpp", "int answer();\nint main() { return answer(); }\n")
    part = tmp_path / "answer.cpp"
    for kind, values in (("shared", (1, 2)), ("static", (3, 4))):
        folder = tmp_path / kind
        folder.mkdir()
        for value in values:
            write(part, f"int answer() {{ return {value}; }}\n")
            if kind == "shared":
                subprocess.run(["g++", "-shared", "-fPIC", part, "-o", folder / "libanswer.so"], check=True)
            else:
                subprocess.run(["g++", "-c", part, "-o", folder / "answer.o"], check=True)
                subprocess.run(["ar", "rcs", folder / "libanswer.a", folder / "answer.o"], check=True)
            assert run(main, "-L", folder, "-lanswer") == (value, "", "")


@pytest.mark.parametrize("word", ["one", "the other"])
def test_the_variable_cxx_holds_a_command_in_words(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    source = write(tmp_path / "hello.cpp", HELLO)
    cabi.home()
    monkeypatch.setenv("CXX", f"env {shlex.join(compiler()[0])} '-DWORD=\"{word}\"'")
    assert run(source) == (0, f"{word}\n", "")
    monkeypatch.setenv("CXX", "env no-such-g++")
    done = run(source)
    assert (done.status, done.out) == (3, "")
    assert re.match("anycann: .*env no-such-g[+]+'? does not run: .*no-such-g", done.err)
    monkeypatch.setenv("CXX", "g++ 'x")
    said = 'the variable CXX must be a command, in words as for a shell; got "g++ \'x": No closing quotation'
    assert run(source) == (3, "", f"anycann: {said}\n")


def test_one_mark_before_the_arguments_is_not_passed_on(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "hello.cpp", HELLO)
    script = write(tmp_path / "hello.py", "import sys\nprint('hello', *(f'[{word}]' for word in sys.argv[1:]))\n")
    executable = write(tmp_path / "hello", "#!/bin/sh\nprintf hello; printf ' [%s]' \"$@\"; echo\n")
    executable.chmod(0o755)
    for program in (source, script, executable):
        for words in ([program], ["--", program], ["--product", "A3", "--", program]):
            assert run(*words, "--", "-O2", "a", "--").out == "hello [-O2] [a] [--]\n"
            assert run(*words, "--", "--").out == "hello [--]\n"
            assert run(*words, "a", "--", "b").out == "hello [a] [--] [b]\n"


# What is kept


def test_nothing_is_compiled_twice(run: Run, tmp_path: Path, counted: Callable[[], int]) -> None:
    source, header = write(tmp_path / "hello.cpp", f'#include "word.h"\n{textwrap.dedent(HELLO)}'), tmp_path / "word.h"
    other = write(tmp_path / "other.cpp", "int unused;\n")
    write(header, '#define WORD "one"\n')
    assert run(source, other).out == "one\n"
    assert counted() == 3  # two sources, one link
    assert run(source, other, "again").out == "one [again]\n"
    assert counted() == 0
    write(header, '#define WORD "two"\n')
    assert run(source, other).out == "two\n"
    assert counted() == 2  # the source that includes it, and the link
    write(header, '#define WORD "one"\n')
    assert run(source, other).out == "one\n"
    assert counted() == 0  # both are still there
    assert run("-O2", source, other).out == "one\n"
    assert counted() == 3
    header.unlink()
    assert run(source, other).status == 1


def test_headers_that_appear_and_variables_of_the_compiler_are_seen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Callable[[], int]
) -> None:
    """None of these changes a file that the compiler has read before."""
    text = """
        #include "word.h"
        #if __has_include("more.h")
        #define MORE "!"
        #endif
        #ifndef MORE
        #define MORE ""
        #endif
        #include <cstdio>
        int main() { std::puts(WORD MORE); }
    """
    source = write(tmp_path / "main.cpp", text)
    folders = [tmp_path / name for name in ("first", "second", "third", "fourth")]
    for number, folder in enumerate(folders[1:], 2):
        write(folder / "word.h", f'#define WORD "{number}"\n')
    words = (f"-I{folders[0]}", f"-I{folders[1]}", source)
    assert run(*words).out == "2\n"
    write(folders[0] / "word.h", '#define WORD "1"\n')
    assert run(*words).out == "1\n"
    write(folders[1] / "more.h", "")
    assert run(*words).out == "1!\n"
    for variable, value, printed in (("CPATH", folders[2], "3\n"), ("CPLUS_INCLUDE_PATH", folders[3], "4\n")):
        monkeypatch.setenv(variable, str(value))
        assert run(source).out == printed
        monkeypatch.delenv(variable)
    counted()
    assert run(*words).out == "1!\n"
    assert counted() == 0
    main = write(tmp_path / "calls.cpp", "int answer();\nint main() { return answer(); }\n")
    for value, folder in enumerate(folders[:2]):
        part = write(tmp_path / "answer.cpp", f"int answer() {{ return {value}; }}\n")
        subprocess.run(["g++", "-c", part, "-o", folder / "answer.o"], check=True)
        subprocess.run(["ar", "rcs", folder / "libanswer.a", folder / "answer.o"], check=True)
        monkeypatch.setenv("LIBRARY_PATH", str(folder))
        assert run(main, "-lanswer").status == value
    os.replace(folders[0] / "libanswer.a", folders[1] / "libanswer.a")
    assert run(main, "-lanswer").status == 0


def test_messages_of_the_compiler_are_shown_as_they_are(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "wrong.cpp", "#include <vector>\nint main() { std::vector<int> v; v.push_bak(1); return undeclared; }\n")
    plain = subprocess.run(["g++", "-w", source, "-o", tmp_path / "out"], capture_output=True, text=True)
    assert run(source) == (1, "", plain.stderr)
    assert "push_bak" in plain.stderr
    done = run(write(tmp_path / "half.cpp", "int missing();\nint main() { return missing(); }\n"))
    assert done.status == 1
    assert "undefined reference to `missing()'" in done.err


def test_warnings_are_shown_to_those_who_ask_each_time(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "warned.cpp", "int main() { char* text = \"constant\"; int unused; return text[0] != 'c'; }\n")
    assert run(source) == (0, "", "")
    first, second = run("-Wall", source), run("-Wall", source)
    assert first == second
    assert "unused variable" in first.err
    assert first.status == 0
    assert run("-Wall", "-Werror", source).status == 1


# Existing executables and scripts


def test_an_executable_finds_the_libraries(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(
        tmp_path / "soc.cpp",
        '#include <cstdio>\n#include "acl/acl.h"\nint main(int n, char**) { std::puts(aclrtGetSocName()); return n; }\n',
    )
    program = tmp_path / "soc"
    libraries = [word for word in cabi.libs() if "rpath" not in word]
    subprocess.run(["g++", source, *cabi.cflags(), *libraries, "-o", program], check=True)
    assert subprocess.run([program], capture_output=True).returncode == 127  # no library path
    assert run(program, "-x", "--check") == (3, "Ascend910B1\n", "")
    monkeypatch.chdir(tmp_path)
    assert run("./soc") == run("soc") == (1, "Ascend910B1\n", "")
    assert run("sh", "-c", 'test -r "$ASCEND_HOME_PATH/include/acl/acl.h" && exit 9').status == 9


def test_a_script(run: Run, tmp_path: Path) -> None:
    script = write(
        tmp_path / "my script.py",
        """
        import ctypes, os, sys
        print(__name__, sys.argv[1:], sys.executable, os.path.dirname(os.path.abspath(__file__)) == sys.path[0])
        print(ctypes.CDLL("libopapi.so").aclnnGeluBackwardV2 is not None)
        sys.exit(int(sys.argv[2]))
        """,
    )
    assert run(script, "--check", "7", "-O2", "--") == (7, f"__main__ ['--check', '7', '-O2', '--'] {sys.executable} True\nTrue\n", "")
    assert "ZeroDivisionError" in run(write(tmp_path / "raises.py", "1 / 0\n")).err


def test_acl_in_a_script_is_ours(run: Run, tmp_path: Path) -> None:
    script = write(tmp_path / "script.py", "import acl\nprint(acl.__name__, acl.init(), acl.rt.set_device(0), acl.get_soc_name())\n")
    assert run("--product", "Ascend910B3", script) == (0, "anycann.acl 0 0 Ascend910B3\n", "")


def test_scripts_share_memory_between_acl_and_the_libraries(run: Run, tmp_path: Path) -> None:
    script = write(
        tmp_path / "both.py",
        """
        import ctypes, acl
        library = ctypes.CDLL("libascendcl.so")
        acl.rt.set_device(0)
        memory, status = acl.rt.malloc(64, 0)
        print(status, library.aclrtFree(ctypes.c_void_p(memory)), acl.rt.free(memory))
        """,
    )
    done = run(script)
    assert (done.status, done.out) == (0, "0 0 107000\n")
    assert "aclrtFree: devPtr must be the address of living device memory" in done.err


# How programs end


def test_input_reaches_the_program(tmp_path: Path) -> None:
    source = write(
        tmp_path / "echo.cpp", "#include <cstdio>\nint main() { int c; while ((c = std::getchar()) != EOF) std::putchar(c + 1); }\n"
    )
    done = subprocess.run([sys.executable, "-m", "anycann.cli", "run", source], input="HAL", capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "IBM", "")


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGINT])
def test_a_signal_is_said_in_one_line(run: Run, tmp_path: Path, number: signal.Signals) -> None:
    script = write(
        tmp_path / "ends.py",
        f"""
        import os, signal
        if {number.value} == signal.SIGINT:  # in the background of a shell it would be ignored
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), {number.value})
        """,
    )
    done = run(script)
    assert done == (128 + number, "", f"anycann: {sys.executable} was ended by signal {number.value} ({number.name})\n")


def test_what_ends_the_command_ends_the_program(tmp_path: Path) -> None:
    script = write(
        tmp_path / "waits.py",
        """
        import signal, sys, time
        def told(number, frame):
            print("told", number, flush=True)
            sys.exit(5)
        signal.signal(signal.SIGTERM, told)
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    with subprocess.Popen([sys.executable, "-m", "anycann.cli", "run", script], stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == "ready\n"
        command.send_signal(signal.SIGINT)  # of the terminal, which tells the program itself
        command.terminate()
        assert command.stdout.read() == f"told {signal.SIGTERM.value}\n"
    assert command.returncode == 5


def test_other_signals_reach_the_program(tmp_path: Path) -> None:
    """They ended the command only, and left the program behind."""
    script = write(
        tmp_path / "waits.py",
        """
        import signal, sys, time
        def told(number, frame):
            print("told", int(number), flush=True)
        for number in map(int, sys.argv[1:]):
            signal.signal(number, told)
        print("ready", flush=True)
        while True:
            time.sleep(60)
        """,
    )
    numbers = [signal.SIGUSR1, signal.SIGQUIT, signal.SIGALRM, signal.SIGRTMIN + 1]
    words = [sys.executable, "-m", "anycann.cli", "run", script, *(str(int(number)) for number in numbers)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline() == "ready\n"
        for number in numbers:
            command.send_signal(number)
            assert command.stdout.readline() == f"told {int(number)}\n"
        command.send_signal(signal.SIGUSR2)
        assert command.stderr.read().endswith(f"ended by signal {signal.SIGUSR2.value} (SIGUSR2)\n")
    assert command.returncode == 128 + signal.SIGUSR2


def test_what_the_caller_ignores_stays_ignored(tmp_path: Path) -> None:
    script = write(
        tmp_path / "shows.py", "import signal\nprint(signal.getsignal(signal.SIGHUP).name, signal.getsignal(signal.SIGTERM).name)\n"
    )
    command = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "anycann.cli", "run", script]
    assert subprocess.run(command, capture_output=True, text=True).stdout == "SIG_IGN SIG_DFL\n"


FINDS = """
    import ctypes, sys
    library = ctypes.CDLL("libascendcl.so")
    memory = ctypes.c_void_p()
    library.aclrtSetDevice(0)
    library.aclrtMalloc(ctypes.byref(memory), ctypes.c_size_t(64), 0)
    print(library.aclrtFree(memory), library.aclrtFree(memory), flush=True)
"""


@pytest.mark.parametrize("how", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize("findings", ["", "no/such/folder", "/dev/full"])
def test_programs_run_and_are_judged_where_nothing_can_be_said(tmp_path: Path, how: str, findings: str) -> None:
    command = ["sh", "-c", f'exec "$@" {how}', "sh", sys.executable, "-m", "anycann.cli", "run", "--check"]
    settings = {**os.environ, "ANYCANN_CHECK_JSON": findings}
    source, script = write(tmp_path / "hello.cpp", HELLO), write(tmp_path / "finds.py", FINDS)
    for words, expected in (([source], (0, "hello\n")), ([script], (1, "0 107000\n"))):
        done = subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, env=settings, check=False)
        assert (done.returncode, done.stdout) == expected
    wrong = write(tmp_path / "wrong.cpp", "int main() { return undeclared; }\n")
    for words, status in (([wrong], 1), (["sh", "-c", "kill -9 $$"], 128 + 9)):
        assert subprocess.run([*command, *words], env=settings, check=False).returncode == status


# Settings


def test_settings_reach_the_program(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(tmp_path / "show.py", 'import os\nprint([os.environ.get("ANYCANN_" + x) for x in ("EXPLAIN", "CHECK", "PRODUCT")])\n')
    assert run(script).out == "['1', None, None]\n"
    assert run("--check", "--product=Atlas A2 training", script).out == "['1', '1', 'Atlas A2 training']\n"
    monkeypatch.setenv("ANYCANN_EXPLAIN", "")
    assert run(script).out == "['', None, None]\n"


@pytest.mark.parametrize(("variable", "said"), [("ANYCANN_PRODUCT", "no product is called 'x'"), ("ANYCANN_NUM_THREADS", "a whole number")])
def test_a_variable_that_means_nothing_is_refused_by_its_name(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, said: str
) -> None:
    """It was said to be a fault of anycann, to be reported, with a traceback."""
    source = write(
        tmp_path / "main.cpp",
        """
        #include "acl/acl.h"
        #include "aclnnop/aclnn_gelu_v2.h"
        int main()
        {
            int64_t shape[] = {1 << 20}, one[] = {1};
            void *memory = nullptr;
            aclrtSetDevice(0);
            aclrtMalloc(&memory, 8 << 20, ACL_MEM_MALLOC_HUGE_FIRST);
            aclTensor *x = aclCreateTensor(shape, 1, ACL_FLOAT, one, 0, ACL_FORMAT_ND, shape, 1, memory);
            aclTensor *y = aclCreateTensor(shape, 1, ACL_FLOAT, one, 0, ACL_FORMAT_ND, shape, 1, (char *)memory + (4 << 20));
            aclOpExecutor *executor = nullptr;
            uint64_t size = 0;
            return aclnnGeluV2GetWorkspaceSize(x, 0, y, &size, &executor) == ACLNN_ERR_PARAM_INVALID ? 7 : 1;
        }
        """,
    )
    monkeypatch.setenv(variable, "x")
    done = run(source)
    assert done.status == 7
    assert done.err.startswith(f"aclnnGeluV2GetWorkspaceSize: {variable}")
    assert said in done.err
    assert "report" not in done.err


def test_paths_of_the_caller_come_after_ours(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = write(tmp_path / "show.py", 'import os\nprint(os.environ["LD_LIBRARY_PATH"], os.environ["PYTHONPATH"])\n')
    monkeypatch.setenv("LD_LIBRARY_PATH", "/one:/two")
    monkeypatch.setenv("PYTHONPATH", "/three")
    libraries, modules = run(script).out.split()
    assert libraries == f"{cabi.home()}/lib64:/one:/two"
    assert modules.split(":")[1:] == ["/three"]
    assert Path(modules.split(":")[0], "acl.py").is_file()


def test_commands_are_printed_when_asked(tmp_path: Path) -> None:
    source = write(tmp_path / "hello.cpp", HELLO)
    command = [sys.executable, "-m", "anycann.cli", "run", "--verbose", "-DX=1", source, "a b"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert [line[:2] for line in lines] == ["+ "] * 3
    assert "-DX=1 " in lines[0]
    assert lines[0].count(str(source)) == 1
    assert "-lopapi" in lines[1]
    assert lines[2].endswith(" 'a b'")


def test_sanitizers(run: Run, tmp_path: Path) -> None:
    text = """
        #include <cstdlib>
        int main(int count, char**)
        {
            char* p = static_cast<char*>(std::malloc(8));
            std::free(p);
            return p[count];
        }
    """
    source = write(tmp_path / "freed.cpp", text)
    done = run("--sanitize", "address", source)
    assert done.status == 1
    assert "heap-use-after-free" in done.err
    assert f"{source}:7" in done.err
    shift = write(tmp_path / "shift.cpp", "int main(int count, char**) { return (1 << (39 + count)) & 0; }\n")
    assert run(shift).status == 0
    done = run("--sanitize", "undefined", shift)
    assert done.status == 1
    assert f"{shift}:1:" in done.err
    assert "shift exponent 40 is too large" in done.err


@samples
def test_a_published_program_under_the_address_sanitizer(run: Run) -> None:
    done = run("--sanitize", "address", SAMPLES / "smooth_l1_loss_backward.cpp")
    assert (done.status, done.err) == (0, "")
    assert numbers(done.out) == [-1, 0, 1, 1, 1, 1, 1, 1]


# Kernels on the runtime's streams and memory

KERNEL = """
    #include "kernel_operator.h"
    extern "C" __global__ __aicore__ void add(GM_ADDR x, int32_t value)
    {
        AscendC::TPipe pipe;
        AscendC::TBuf<> buffer;
        AscendC::GlobalTensor<int32_t> gm;
        gm.SetGlobalBuffer((__gm__ int32_t*)x, 8);
        pipe.InitBuffer(buffer, 32);
        AscendC::LocalTensor<int32_t> t = buffer.Get<int32_t>();
        AscendC::DataCopy(t, gm, 8);
        AscendC::PipeBarrier<PIPE_ALL>();
        AscendC::Adds(t, t, value, 8);
        AscendC::PipeBarrier<PIPE_ALL>();
        AscendC::DataCopy(gm, t, 8);
    }
"""
HOST = """
    #include <cstdio>
    #include "acl/acl.h"
    %s
    int main(int count, char**)
    {
        alignas(32) int host[8] = {1, 2, 3};
        void* memory = nullptr;
        aclrtStream stream = nullptr;
        aclInit(nullptr);
        aclrtSetDevice(0);
        aclrtCreateStream(&stream);
        aclrtMalloc(&memory, sizeof host, ACL_MEM_MALLOC_HUGE_FIRST);
        aclrtMemcpyAsync(memory, sizeof host, host, sizeof host, ACL_MEMCPY_HOST_TO_DEVICE, stream);
        uint8_t* x = static_cast<uint8_t*>(count > 1 ? host : memory);
        %s;
        const int status = aclrtSynchronizeStream(stream);
        aclrtMemcpy(host, sizeof host, memory, sizeof host, ACL_MEMCPY_DEVICE_TO_HOST);
        std::printf("%%d: %%d %%d %%d\\n", status, host[0], host[1], host[7]);
        aclrtFree(memory);
        aclrtDestroyStream(stream);
        aclrtResetDevice(0);
        aclFinalize();
    }
"""


def test_kernels_run_in_the_order_of_a_stream_on_device_memory(run: Run, tmp_path: Path) -> None:
    launches = "add<<<1, nullptr, stream>>>(x, 10); add<<<1, nullptr, stream>>>(x, 100)"
    source = write(tmp_path / "one.asc", textwrap.dedent(KERNEL) + textwrap.dedent(HOST % ("", launches)))
    assert run(source) == (0, "0: 111 112 110\n", "")
    done = run(source, "host memory")
    assert (done.status, done.out) == (1, "507000: 1 2 0\n")
    assert "not device memory: past the end of an allocation, a host pointer, or memory that was freed" in done.err
    trace = tmp_path / "trace.json"
    assert run("--trace", trace, source).status == 0
    assert trace.stat().st_size > 0
    assert run("--fast", source).out == "0: 111 112 110\n"
    assert run("--check", source) == (0, "0: 111 112 110\n", "anycann check: 0 findings\n")


def test_a_launch_on_no_stream_is_refused(run: Run, tmp_path: Path) -> None:
    head = """
    static void say(int i)
    {
        const char* text = aclGetRecentErrMsg();
        std::printf("%d %s\\n", i, text == nullptr ? "none" : text);
    }
    """
    launches = """
        aclrtStream other = nullptr;
        aclrtCreateStream(&other);
        aclrtDestroyStream(other);
        add<<<1, nullptr, other>>>(x, 10);
        say(1);
        add<<<1, nullptr, (aclrtStream)0x1234>>>(x, 100);
        say(2)
    """
    done = run(write(tmp_path / "one.asc", textwrap.dedent(KERNEL) + HOST % (head, launches)))
    *refusals, values = done.out.splitlines()
    assert (done.status, values) == (1, "0: 1 2 0")
    assert [re.search(r"stream must be .* 107017\]", text) is not None for text in refusals] == [True, True]
    assert done.err.count("kernel add was not run: its stream does not take it; aclGetRecentErrMsg says why [107017]\n") == 2


def test_a_mistake_of_a_kernel_leaves_the_end_of_a_program_as_it_is(run: Run, tmp_path: Path) -> None:
    head = """
    static struct Last
    {
        ~Last() { std::puts("destructors ran"); }
    } last;
    """
    launches = "add<<<1, nullptr, stream>>>(x, 10); aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST)"
    done = run("--check", write(tmp_path / "one.asc", textwrap.dedent(KERNEL) + HOST % (head, launches)), "host memory")
    assert "1 mistake in kernel add" in done.err
    assert "32 bytes of device memory were not freed" in done.err
    assert (done.status, done.out.splitlines()[-1]) == (1, "destructors ran")


@pytest.mark.parametrize("check", [(), ("--check",)], ids=["run", "check"])
def test_mistakes_of_kernels_that_are_queued_when_a_program_ends_are_reported(check: tuple[str, ...], run: Run, tmp_path: Path) -> None:
    launches = "for (int i = 0; i < 3; ++i) { add<<<1, nullptr, stream>>>(x, 10); } return 0"
    done = run(*check, write(tmp_path / "one.asc", textwrap.dedent(KERNEL) + HOST % ("", launches)), "host memory")
    assert (done.status, done.out) == (1, "")
    assert done.err.count("1 mistake in kernel add") == 3


def test_findings_in_a_program_with_kernels_name_the_line(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "one.asc", textwrap.dedent(KERNEL) + HOST % ("", "aclrtMalloc(&memory, 64, ACL_MEM_MALLOC_HUGE_FIRST)"))
    line = 1 + next(i for i, text in enumerate(source.read_text().splitlines()) if "&memory, sizeof host" in text)
    done = run("--check", source)
    assert done.status == 1
    assert f"one.asc:{line})" in done.err


def test_kernels_do_not_run_beside_the_memory_of_a_gpu(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = """
        #include <cstdio>
        #include "acl/acl.h"
        int main()
        {
            alignas(32) int host[8] = {1, 2, 3};
            uint8_t* x = reinterpret_cast<uint8_t*>(host);
            unsigned count = 0;
            std::printf("%d\\n", aclrtGetDeviceCount(&count) == 0);
            add<<<1, nullptr, nullptr>>>(x, 10);
            std::printf("%d\\n", host[0]);
        }
    """
    source = write(tmp_path / "one.asc", textwrap.dedent(KERNEL) + textwrap.dedent(host))
    assert run("--fast", source) == (0, "1\n11\n", "")
    monkeypatch.setenv("ANYCANN_DEVICE", "cuda")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    done = run("--fast", source)
    assert (done.status, done.out.splitlines()[-1]) == (1, "1")
    assert "kernel add was not run" in done.err
    assert "ANYCANN_DEVICE must be cpu for Ascend C kernels" in done.err


def test_host_kernel_and_c_in_three_files(run: Run, tmp_path: Path) -> None:
    kernel = write(tmp_path / "kernel.cpp", KERNEL)
    c = write(tmp_path / "value.c", "int value(void) { int new = BASE; return new; }\n")
    head = '#include "aclrtlaunch_add.h"\n    extern "C" int value(void);'
    host = write(tmp_path / "main.cpp", HOST % (head, "ACLRT_LAUNCH_KERNEL(add)(1, stream, x, value())"))
    assert run("-DBASE=50", host, kernel, c) == (0, "0: 51 52 50\n", "")


def test_a_kernel_that_does_not_compile(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "wrong.asc", textwrap.dedent(KERNEL) + "int main() { AscendC::Mmad(1); }\n")
    done = run(source)
    assert done.status == 1
    assert "AscendC::Mmad is not supported by anycann" in done.err


def test_kernels_alone_are_explained(run: Run, tmp_path: Path) -> None:
    done = run(write(tmp_path / "kernel.cpp", KERNEL))
    assert (done.status, done.out) == (2, "")
    assert "module.add[blocks](x, value)" in done.err


# What is missing or wrong


def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Path:
        raise ToolchainError("Python.h was not found; install the package python3-dev")

    monkeypatch.setattr(cabi_build, "home", fails)


def test_without_a_compiler(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-g++")
    cabi_build.home.cache_clear()
    for source in (write(tmp_path / "hello.cpp", HELLO), write(tmp_path / "k.asc", textwrap.dedent(KERNEL) + "int main() {}\n")):
        done = run(source)
        assert (done.status, done.out) == (3, "")
        assert "the compiler no-such-g++ that the variable CXX names was not found; install the package g++" in done.err
    done = run(write(tmp_path / "script.py", "print('ran')\n"))
    assert (done.status, done.out) == (0, "ran\n")
    assert done.err.startswith("anycann: running without the C libraries: ")


def test_without_what_the_libraries_are_made_of(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch)
    hint = "Python.h was not found; install the package python3-dev"
    assert run(write(tmp_path / "hello.cpp", HELLO)) == (3, "", f"anycann: {hint}\n")
    assert run("sh", "-c", "exit 0") == (3, "", f"anycann: {hint}\n")
    alone = write(tmp_path / "alone.asc", textwrap.dedent(KERNEL) + "int main() { return 4; }\n")
    assert run(alone) == (4, "", f"anycann: running without the C libraries: {hint}\n")
    done = run(write(tmp_path / "both.asc", textwrap.dedent(KERNEL) + textwrap.dedent(HOST % ("", ""))))
    assert done.status == 3
    assert "acl/acl.h" in done.err
    assert f"Perhaps because the C libraries could not be made: {hint}" in done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.cpp",), "nothing.cpp: no such file"),
        (("nothing.py",), "nothing.py: no such file; run takes sources (.c .cpp .cc .cxx .asc .cce), Python scripts (.py) and executables"),
        (("nothing",), "nothing: no such file; run takes"),
        (("--fasst", "x.cpp"), "--fasst: no such option; see anycann run --help"),
        (("-x", "x.cpp"), "-x: no such option"),
        (("-O2", "sh"), "-O2 needs a source to compile (.c .cpp .cc .cxx .asc .cce); got sh"),
        (("-DX",), "-DX needs a source to compile (.c .cpp .cc .cxx .asc .cce); got none"),
        (("--sanitize", "address", "sh"), "--sanitize needs a source to compile"),
        (("--sanitize", "thread", "x.cpp"), "--sanitize thread: must be address or undefined"),
        (("--product", "Ascend1", "x.cpp"), "no product is called 'Ascend1'"),
        (("/",), "/: is a folder, not a file; run takes sources (.c .cpp .cc .cxx .asc .cce), Python scripts (.py) and executables"),
        (("folder.cpp",), "folder.cpp: is a folder, not a file\n"),
        (("folder.py",), "folder.py: is a folder, not a file; run takes"),
    ],
)
def test_wrong_words(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("folder.cpp", "folder.py"):
        Path(name).mkdir()
    done = run(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith(f"anycann: {message}")


def test_options_for_kernels_are_refused_elsewhere(run: Run, tmp_path: Path) -> None:
    source = write(tmp_path / "hello.cpp", HELLO)
    for options in (["--fast"], ["--trace", "x.json"]):
        done = run(*options, source)
        assert (done.status, done.out) == (2, "")
        assert done.err == f"anycann: {options[0]} is for programs that launch Ascend C kernels; {source} launches none\n"


def test_a_file_that_cannot_be_started(run: Run, tmp_path: Path) -> None:
    plain = write(tmp_path / "plain", "not a program\n")
    assert run(plain) == (2, "", f"anycann: {plain}: Permission denied\n")
    plain.chmod(0o755)
    assert run(plain) == (2, "", f"anycann: {plain}: Exec format error\n")
    assert os.access(plain, os.X_OK)
