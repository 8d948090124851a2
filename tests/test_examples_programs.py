"""The example programs print what their files in examples/expected say, by every way to build and run them."""

import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from anycann.toolchain import compiler

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
COMMAND = [sys.executable, "-m", "anycann.cli"]
PROGRAMS = sorted(path for path in (*EXAMPLES.glob("*.cpp"), *EXAMPLES.glob("*.py")))
STRICT = ("-Wall", "-Wextra", "-Werror")


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANYCANN_EXPLAIN", "ANYCANN_CHECK", "ANYCANN_PRODUCT", "LD_LIBRARY_PATH", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)


def expected(name: str) -> str:
    return (EXAMPLES / "expected" / f"{name}.txt").read_text(encoding="utf-8")


def printed(*words: object, **more: object) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, cwd=ROOT, **more)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


@cache
def options(*wanted: str) -> list[str]:
    return printed(*COMMAND, "config", *wanted).split()


def test_every_program_has_its_expected_output() -> None:
    assert len(PROGRAMS) >= 8
    assert {path.stem for path in (EXAMPLES / "expected").iterdir()} == {path.stem for path in PROGRAMS} | {"cmake"}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_with_run(program: Path) -> None:
    flags = STRICT if program.suffix == ".cpp" else ()
    assert printed(*COMMAND, "run", *flags, program) == expected(program.stem)


@pytest.mark.parametrize("name", ["gelu_backward_v2", "two_streams"])
def test_with_the_compiler_alone(name: str, tmp_path: Path) -> None:
    made = tmp_path / name
    printed(*compiler()[0], *STRICT, "-std=c++14", EXAMPLES / f"{name}.cpp", *options("--cflags", "--libs"), "-o", made)
    assert printed(made) == expected(name)


@pytest.mark.skipif(shutil.which("cmake") is None, reason="needs cmake")
def test_with_cmake(tmp_path: Path) -> None:
    env = {**os.environ, "ASCEND_HOME_PATH": options("--home")[0], "CXX": shlex.join(compiler()[0])}
    printed("cmake", "-S", EXAMPLES / "cmake", "-B", tmp_path, env=env)
    printed("cmake", "--build", tmp_path)
    assert printed(tmp_path / "gelu") == expected("cmake")
    refused = subprocess.run(
        ["cmake", "-S", EXAMPLES / "cmake", "-B", tmp_path / "other"],
        capture_output=True,
        text=True,
        env={name: value for name, value in env.items() if name != "ASCEND_HOME_PATH"},
    )
    assert refused.returncode != 0
    assert "ASCEND_HOME_PATH is not set" in refused.stderr


def test_with_the_environment_of_set_env() -> None:
    home = options("--home")[0]
    for name in ("ctypes_gelu", "pyacl_copy"):
        script = f'. "{home}/set_env.sh" && exec "{sys.executable}" "{EXAMPLES / name}.py"'
        assert printed("bash", "-c", script) == expected(name)
