"""The folder that programs are built against, and the ways in which programs find and start the libraries."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anycann import cabi, ops
from anycann.cabi import build, declarations
from anycann.cli.app import app
from anycann.toolchain import ToolchainError

PROGRAM = Path(__file__).parent / "program.cpp"
GELU = "-0.166631 1.000000 2.170464\n"
WARNINGS = ["-std=c++11", "-Wall", "-Wextra", "-Werror"]


def run(*words, **options):
    return subprocess.run([str(word) for word in words], **{"capture_output": True, "text": True, "check": False} | options)


def compiled(folder, flags, name="program", source=PROGRAM):
    program = folder / name
    done = run("g++", *WARNINGS, source, *flags, "-o", program, "-pthread", "-ldl")
    assert (done.returncode, done.stderr) == (0, "")
    return program


def without_path(home, libraries=("ascendcl", "nnopbase", "opapi")):
    """How programs are built by hand: no path to the libraries is in the program."""
    return [f"-I{home}/include", f"-I{home}/include/aclnnop", f"-L{home}/lib64", *(f"-l{name}" for name in libraries)]


@pytest.fixture(scope="module")
def home():
    return cabi.home()


@pytest.fixture(scope="module")
def program(home, tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("program"), [*cabi.cflags(), *cabi.libs()])


def test_a_program_runs_as_it_is_built(program):
    done = run(program)
    assert (done.stdout, done.stderr, done.returncode) == (GELU, "", 0)


def test_neither_shell_nor_folder_of_the_user_matters(program, tmp_path):
    (tmp_path / "anycann.py").write_text("raise SystemExit('the wrong anycann')\n")
    (tmp_path / "numpy.py").write_text("raise SystemExit('the wrong numpy')\n")
    stray = {"PYTHONHOME": "/nonexistent", "PYTHONPATH": str(tmp_path), "PATH": "", "PYTHONSTARTUP": "/nonexistent", "LC_ALL": "C"}
    kept = {name: value for name, value in os.environ.items() if name in ("HOME", "ANYCANN_CACHE_DIR", "XDG_CACHE_HOME")}
    done = run(program, cwd=tmp_path, env=kept | stray)
    assert (done.stdout, done.stderr, done.returncode) == (GELU, "", 0)
    done = run(program, "answers", env=kept | stray | {"ANYCANN_PRODUCT": "Ascend310P3"})
    assert done.stdout == "0 0 1 1 Ascend310P3\n"


def test_threads_that_come_first_together_start_one_interpreter(program):
    done = run(program, "threads")
    assert (done.stdout, done.stderr) == ("107001 " * 8 + f"\n{GELU}", "")


def test_arrays_are_released_by_the_program(program, home, tmp_path):
    assert run(program, "shape").stdout == "0 3 2 3 4\n"
    checked = compiled(tmp_path, ["-fsanitize=address", *cabi.cflags(), *cabi.libs()])
    done = run(checked, "shape", env=os.environ | {"ASAN_OPTIONS": "detect_leaks=0"})
    assert (done.stdout, done.stderr, done.returncode) == ("0 3 2 3 4\n", "", 0)


@pytest.mark.parametrize(
    "libraries", [("acl_rt", "nnopbase", "opapi_nn", "opapi_math", "opapi_transformer"), ("ascendcl", "nnopbase", "opapi")]
)
def test_every_library_name_links_and_set_env_finds_it(home, tmp_path, libraries):
    program = compiled(tmp_path, without_path(home, libraries))
    assert "cannot open shared object file" in run(program).stderr
    script = f'. {home}/set_env.sh && test -d "$ASCEND_HOME_PATH/lib" && {program} && "$ASCEND_TOOLKIT_HOME/bin/anycann" config --home'
    done = run("sh", "-euc", script)
    assert (done.stdout, done.stderr) == (f"{GELU}{home}\n", "")


def test_a_client_may_open_one_library_only(home, tmp_path):
    program = compiled(tmp_path, ["-DOPENS", *cabi.cflags()])
    for library in ("libopapi.so", "libopapi_nn.so", "libopapi_math.so", "libopapi_transformer.so", "libnnopbase.so"):
        done = run(program, home / "lib64" / library)
        assert (done.stdout, done.stderr, done.returncode) == ("0 1\n", "", 0), library


LOOK_UP = """
import ctypes, sys
import anycann
anycann.set_product("Ascend310P3")
library = ctypes.CDLL(sys.argv[1])
missing = [name for name in sys.argv[2].split() if not hasattr(library, name)]
name = library.aclrtGetSocName
name.restype = ctypes.c_char_p
print(missing, name(), library.aclrtSetDevice(0), library.aclrtSetDevice(99))
"""


def test_python_programs_share_their_interpreter(home):
    specs = [operator.spec for operator in ops.OPERATORS if operator.spec.two_phase]
    names = [function.name for function in declarations.every_function(specs)]
    done = run(sys.executable, "-c", LOOK_UP, home / "lib64" / "libopapi.so", " ".join([*names, "_ZdaPv"]))
    assert (done.stdout, done.stderr) == ("[] b'Ascend310P3' 0 107001\n", "")
    done = run(sys.executable, "-c", LOOK_UP, home / "lib64" / "libnnopbase.so", "_ZdaPv aclCreateTensor aclrtMalloc")
    assert (done.stdout, done.stderr) == ("[] b'Ascend310P3' 0 107001\n", "")


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_cmake_finds_the_folder_by_its_variable(home, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        """cmake_minimum_required(VERSION 3.14)
        project(program CXX)
        set(ROOT "$ENV{ASCEND_HOME_PATH}")
        include_directories(${ROOT}/include ${ROOT}/include/aclnn ${ROOT}/include/aclnnop)
        link_directories(${ROOT}/lib64)
        find_library(OPAPI opapi HINTS ${ROOT}/lib64 REQUIRED)
        find_package(Threads REQUIRED)
        """
        f"add_executable(program {PROGRAM})\n"
        "target_link_libraries(program PRIVATE ascendcl nnopbase ${OPAPI} Threads::Threads ${CMAKE_DL_LIBS})\n"
    )
    environment = os.environ | {"ASCEND_HOME_PATH": str(home)}
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", env=environment, check=True)
    run("cmake", "--build", tmp_path / "build", env=environment, check=True)
    assert run(tmp_path / "build" / "program").stdout == GELU


FRESH = "from anycann import cabi; print(cabi.home())"


def test_processes_that_build_at_once_agree(tmp_path):
    """Here in a folder that is named from where one is, and has a comma."""
    environment = os.environ | {"ANYCANN_CACHE_DIR": "one,two"}
    pair = [
        subprocess.Popen([sys.executable, "-c", FRESH], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate()[0].strip() for process in pair]
    assert said[0] == said[1]
    assert [str(path) for path in (tmp_path / "one,two" / "cann").iterdir()] == [said[0]]
    assert {path.name for path in Path(said[0]).iterdir()} == {"include", "lib64", "lib", "set_env.sh", "bin"}
    assert {path.name for path in Path(said[0], "lib64").iterdir()} == {build.DOOR, *build.LIBRARIES, *build.ALIASES}
    status = Path(said[0]).stat()
    assert run(sys.executable, "-c", FRESH, cwd=tmp_path, env=environment).stdout.strip() == said[0]
    assert Path(said[0]).stat() == status
    flags = run(sys.executable, "-m", "anycann.cli", "config", "--cflags", "--libs", cwd=tmp_path, env=environment).stdout.split()
    assert run(compiled(tmp_path, flags), cwd="/").stdout == GELU


@pytest.mark.parametrize("sign", [":", ";"])
def test_a_folder_that_no_loader_can_be_told_is_refused(monkeypatch, tmp_path, sign):
    monkeypatch.setattr(build.toolchain, "folder", lambda kind: tmp_path / f"a{sign}b")
    with pytest.raises(ToolchainError, match=f"must not have '{sign}', where lists of folders are cut; got .*: set ANYCANN_CACHE_DIR"):
        build.home.__wrapped__()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """`home` of an empty cache, to be made with something wrong."""
    monkeypatch.setattr(build.toolchain, "folder", lambda kind: tmp_path)
    return build.home.__wrapped__


def answers(made, folder):
    """What a program says with the libraries of a folder."""
    program = compiled(folder, without_path(made))
    return run(program, "answers", env=os.environ | {"LD_LIBRARY_PATH": f"{made}/lib64"})


def test_libraries_of_another_version_say_so_once(elsewhere, monkeypatch, tmp_path):
    real = build.interface
    monkeypatch.setattr(build, "interface", lambda functions: f"{real(functions)}\nint32_t anycann_py_old(void);")
    done = answers(elsewhere(), tmp_path)
    assert (done.stdout, done.returncode) == ("507000 561000 0 0 null\n", 0)
    assert done.stderr.startswith(
        "anycann: Python could not be started: RuntimeError: these libraries were built by another version of anycann than "
    )
    assert done.stderr.count("\n") == 1


def test_an_interpreter_that_is_gone(elsewhere, monkeypatch, tmp_path):
    monkeypatch.setattr(build, "_folders_of_packages", lambda: ["/nonexistent"])
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    done = answers(elsewhere(), tmp_path)
    assert (done.stdout, done.returncode) == ("507000 561000 0 0 null\n", 0)
    assert "anycann: Python could not be started: " in done.stderr


def test_what_is_missing_is_named_with_its_package(elsewhere, monkeypatch):
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "/nonexistent")
        with pytest.raises(ToolchainError, match=r"g\+\+ or clang\+\+ was not found; install the package g\+\+"):
            elsewhere()
    with monkeypatch.context() as patch:
        patch.setattr(sysconfig, "get_path", lambda kind: "/nonexistent")
        expected = rf"its header Python.h was not found in /nonexistent; install the package python{version}-dev \(Debian, Ubuntu\)"
        with pytest.raises(ToolchainError, match=expected):
            elsewhere()
    with monkeypatch.context() as patch:
        patch.setattr(sysconfig, "get_config_var", lambda name: {"INSTSONAME": "libpython.a", "LIBDIR": "/nonexistent"}.get(name))
        with pytest.raises(ToolchainError, match=rf"needs? Python as a shared library, .*; install the package libpython{version} "):
            elsewhere()
    with monkeypatch.context() as patch:
        patch.setattr(build, "_COMPILE", ("-no-such-option",))
        with pytest.raises(ToolchainError, match=r"cannot compile anycann's libanycann_cabi.so:\n(.*\n)*.*no-such-option"):
            elsewhere()


def said(*words, **environment):
    return CliRunner().invoke(app, ["config", *words], env=environment)


def test_the_command(home):
    assert said("--home").stdout == f"{home}\n"
    assert said("--cflags", "--libs").stdout == " ".join([*cabi.cflags(), *cabi.libs()]) + "\n"
    assert said("--libs", "--home").stdout == " ".join([str(home), *cabi.libs()]) + "\n"
    assert [line.split(":")[0] for line in said().stdout.splitlines()] == ["home", "cflags", "libs"]


def test_the_command_without_a_compiler(tmp_path):
    done = run(sys.executable, "-m", "anycann.cli", "config", env=os.environ | {"PATH": "", "ANYCANN_CACHE_DIR": str(tmp_path)})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(
        "anycann: C++ is compiled here, and g++ or clang++ was not found; install the package g++ (Debian, Ubuntu)"
    )
