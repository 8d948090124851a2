"""The check mode in C++ programs: faults, the exit status, the places in the source, and the published samples."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_watch import CLOSED, CLOSED_PIPE, FULL, run_without_errors

from anycann import cabi

HERE = Path(__file__).parent
SAMPLES = HERE.parents[2] / "shared" / "samples"
SIGSEGV = -11

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def compiled(source: Path, folder: Path, *flags: str) -> Path:
    program = folder / source.stem
    subprocess.run(["g++", "-std=c++17", "-g", "-w", source, *cabi.cflags(), *cabi.libs(), *flags, "-o", program], check=True)
    return program


def run(program: Path, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    settings = {"ANYCANN_CHECK": "1", **variables}
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False, timeout=300, env={**os.environ, **settings})


@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HERE / "watch_faults.cpp", tmp_path_factory.mktemp("faults"))


def line_of(text: str) -> int:
    lines = (HERE / "watch_faults.cpp").read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


@pytest.mark.parametrize(
    ("mistake", "verb", "rest", "line"),
    [
        ("read", "read", "byte 8 of allocation #2 of 100 bytes.", "sum +="),
        ("write", "wrote to", "byte 12 of allocation #2 of 100 bytes.", "values[3] = 1"),
        ("past", "wrote to", "byte 160, past the end, of allocation #2 of 100 bytes.", "values[40] = 1"),
        ("copy", "read", "byte 0 of allocation #2 of 100 bytes.", "std::memcpy"),
        ("freed", "read", "byte 0 of allocation #2 of 100 bytes, which was freed.", "sum +="),
    ],
)
def test_host_code_that_uses_a_device_address(faults: Path, tmp_path: Path, mistake: str, verb: str, rest: str, line: str) -> None:
    path = tmp_path / "findings.json"
    done = run(faults, mistake, ANYCANN_CHECK_JSON=str(path))
    assert done.returncode == SIGSEGV
    verb = verb if os.uname().machine == "x86_64" else "used"
    expected = re.escape(f"host code {verb} device address ") + "0x[0-9a-f]+" + re.escape(f": {rest}")
    assert done.stderr.startswith("anycann check: host access to device memory\n  host code ")
    assert re.search(rf"^  {expected}$", done.stderr, re.MULTILINE), done.stderr
    assert str(faults) in done.stderr
    if shutil.which("addr2line"):
        assert f"watch_faults.cpp:{line_of(line)}" in done.stderr
    assert done.stderr.endswith("anycann check: 1 finding\n")
    (finding,) = [json.loads(one) for one in path.read_text(encoding="utf-8").splitlines()]
    assert (finding["kind"], finding["allocation"]) == ("host access to device memory", 2)
    assert re.fullmatch(expected, finding["what"])


def test_other_faults_are_not_ours(faults: Path) -> None:
    done = run(faults, "stranger")
    assert (done.returncode, done.stderr) == (SIGSEGV, "")


def test_device_memory_can_be_read_without_the_double_mapping(faults: Path) -> None:
    done = run(faults, "read", ANYCANN_CHECK_MAP="0")
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun0", "anycann check: 0 findings\n")
    assert run(faults, "read", ANYCANN_CHECK="").stderr == ""


@pytest.mark.parametrize(("value", "status"), [("1", 1), ("yes", 1), ("", 0), ("0", 0)])
def test_the_variable_turns_the_check_on_unless_it_is_empty_or_0(faults: Path, value: str, status: int) -> None:
    done = run(faults, "leak", ANYCANN_CHECK=value)
    assert (done.returncode, bool(done.stderr)) == (status, status == 1)


def test_a_program_without_mistakes_ends_as_it_would(faults: Path) -> None:
    done = run(faults)
    assert (done.returncode, done.stdout, done.stderr) == (0, "begun", "anycann check: 0 findings\n")


@pytest.mark.parametrize(("mistake", "status"), [("leak", 1), ("leak and fail", 7)])
def test_findings_make_the_status_1_where_it_was_0(faults: Path, mistake: str, status: int) -> None:
    done = run(faults, mistake)
    assert (done.returncode, done.stdout) == (status, "begun")
    assert "anycann check: leak\n  aclrtMalloc: 100 bytes of device memory were not freed.\n" in done.stderr
    assert "64 bytes" not in done.stderr, "what a destructor frees after main is not left"
    assert done.stderr.endswith("anycann check: 1 finding\n")
    if shutil.which("addr2line"):
        assert f"#2 of 100 bytes, aclrtMalloc at main ({HERE}/watch_faults.cpp:{line_of('aclrtMalloc(&memory, 100')})\n" in done.stderr
    assert run(faults, mistake, ANYCANN_CHECK="").returncode == (0 if status == 1 else 7)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("ends") / "ends"
    subprocess.run(["g++", "-std=c++17", HERE / "watch_ends.cpp", *cabi.cflags(), "-ldl", "-o", program], check=True)
    return program


@pytest.mark.parametrize("first", ["", "libascendcl.so"], ids=("late", "loaded"))
@pytest.mark.parametrize(("who", "count", "said"), [
    ("nobody", 0, ""), ("program", 1, ""), ("exit", 1, "child 1\n"), ("_exit", 1, "child 0\n"),
])  # fmt: skip
def test_all_that_runs_at_the_end_is_run_before_the_status(ends: Path, tmp_path: Path, first: str, who: str, count: int, said: str) -> None:
    libraries = {"LD_LIBRARY_PATH": str(cabi.home() / "lib64"), "LD_PRELOAD": first}
    done = run(ends, who, str(tmp_path / "kept"), **libraries)
    assert done.stdout == f"{said}handler 0\nobject 0\ndestructor 0\n"
    assert (tmp_path / "kept").read_text() == "all"
    assert done.returncode == count
    assert re.findall("anycann check: (.*)", done.stderr) == ["freed twice"] * count + [f"{count} finding{'s' * (count != 1)}"]


@pytest.mark.parametrize("how", [CLOSED, CLOSED_PIPE, FULL])
def test_reports_that_cannot_be_written_change_no_answer(faults: Path, tmp_path: Path, how: str) -> None:
    done = run_without_errors(how, [str(faults), "refused"], ANYCANN_CHECK_JSON=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "begun 100000 0 107000")


def test_a_program_that_is_gone_is_still_watched(faults: Path, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    shutil.copy(faults, gone)
    done = run(gone, "gone")
    assert (done.returncode, done.stdout) == (1, "begun 100000 0 107000")
    assert done.stderr.endswith("anycann check: 1 finding\n")


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="needs the published samples")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "moe_token_permute_grad",
            [
                "aclnnMoeTokenPermuteGrad, sortedIndices: 1 of 2 entries are outside [0, 2); the first is entry 1, 1065353216. "
                "These bits are the float32 number 1.0: the tensor was filled from an array of floats.",
                "aclnnMoeTokenPermuteGrad, permutedOutputGrad: 16 bytes were copied into the 8 bytes of a bfloat16 tensor, ",
                "aclnnMoeTokenPermuteGrad, out: 8 bytes were copied into the 4 bytes of a bfloat16 tensor, ",
            ],
        ),
        (
            "gelu_backward_v2",
            ["aclnnGeluBackwardV2, gradOutput: the float32 tensor looks like int32 data: all its bits are those of small "],
        ),
        ("smooth_l1_loss_backward", []),
    ],
)
def test_the_published_samples(tmp_path: Path, name: str, expected: list[str]) -> None:
    program = compiled(SAMPLES / f"{name}.cpp", tmp_path)
    plain, done = run(program, ANYCANN_CHECK=""), run(program)
    assert (plain.returncode, plain.stderr, plain.stdout) == (0, "", done.stdout)
    assert done.returncode == bool(expected)
    found = re.findall(r"^anycann check: [a-z ]+\n  (.*)$", done.stderr, re.MULTILINE)
    assert len(found) == len(expected), done.stderr
    assert all(line.startswith(words) for line, words in zip(found, expected, strict=True)), done.stderr
