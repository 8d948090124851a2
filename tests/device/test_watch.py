"""The check mode: every mistake is named, correct programs are not disturbed, and nothing happens while it is off."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anycann import device, ops
from anycann.device.handles import Table
from anycann.device.memory import DEVICE
from anycann.device.watch_memory import Ledger, Written
from anycann.device.watch_report import Report
from anycann.device.watch_values import float_bits, integer_bits
from anycann.dtypes import DTYPES
from anycann.tensor import Tensor

HERE = Path(__file__).parent
BACKWARD = (
    "aclnnGeluBackwardV2",
    "aclnnSmoothL1LossBackward",
    "aclnnLayerNormBackward",
    "aclnnMoeTokenPermuteGrad",
    "aclnnNsaCompressGrad",
)
OTHERS = sorted(operator.spec.name for operator in ops.OPERATORS if operator.spec.two_phase and operator.spec.name not in BACKWARD)


def run(*words: str, findings: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
    settings = {"ANYCANN_CHECK": "1", **({} if findings is None else {"ANYCANN_CHECK_JSON": str(findings)}), **variables}
    command = [sys.executable, str(HERE / "watch_programs.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **settings})


CLOSED = "exec 2>&-"
CLOSED_PIPE = "exec 2> >(:); sleep 0.2"
FULL = "exec 2>/dev/full"


def run_without_errors(how: str, command: list[str], **variables: str) -> "subprocess.CompletedProcess[str]":
    """A command whose standard error stream cannot be written."""
    shell = ["bash", "-c", f'trap "" PIPE; {how}; exec "$@"', "bash", *command]
    settings = {**os.environ, "ANYCANN_CHECK": "1", "ANYCANN_EXPLAIN": "1", **variables}
    return subprocess.run(shell, capture_output=True, text=True, check=False, timeout=600, env=settings)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, list[dict[str, Any]]], str]:
    """The findings of every mistake by its name, and all that was printed."""
    path = tmp_path_factory.mktemp("findings") / "findings.json"
    done = run("mistakes", findings=path)
    assert done.returncode == 0, done.stderr
    lines, made = read(path), [json.loads(line) for line in done.stdout.splitlines()]
    assert made[-1][2] == len(lines)
    return {name: lines[first:last] for name, first, last in made}, done.stderr


GELU, PLAN, PERMUTE = "aclnnGeluBackwardV2", "aclnnGeluBackwardV2GetWorkspaceSize", "aclnnMoeTokenPermuteGrad"
INDEX, TYPE, NEVER = "index out of range", "data of another type", "uninitialised memory"
EXPECTED = {
    "floats_in_an_index_tensor": [
        (INDEX, PERMUTE, "sortedIndices", "1 of 2 entries are outside [0, 2); the first is entry 1, 1065353216. "
         "These bits are the float32 number 1.0: the tensor was filled from an array of floats."),
    ],
    "index_out_of_range": [
        (INDEX, PERMUTE, "sortedIndices", "2 of 4 entries are outside [0, 4); the first is entry 2, -1."),
    ],
    "integers_in_a_float_tensor": [
        (TYPE, GELU, "gradOutput", "the float32 tensor looks like int32 data: all its bits are those of small integers, such as 1."),
    ],
    "integers_after_an_operator": [
        (TYPE, GELU, "gradOutput", "the float32 tensor looks like int32 data: all its bits are those of small integers, such as 5."),
    ],
    "floats_in_an_integer_tensor": [
        (TYPE, "aclnnMoeTokenPermute", "indices", "the int32 tensor looks like float32 data: its bits are those of numbers such as 1.0."),
    ],
    "wide_elements": [
        (TYPE, GELU, "gradOutput", "16 bytes were copied into the 8 bytes of a bfloat16 tensor, and nothing uses the others: "
         "elements of 4 bytes instead of 2."),
    ],
    "buffer_too_small": [
        ("buffer smaller than its tensor", PLAN, name, "a float32 tensor of shape (8,) uses bytes 0 to 32 of an allocation of 16 bytes.")
        for name in ("gradOutput", "self", "gradInput")
    ],
    "copy_of_uninitialised_memory": [
        (NEVER, "aclrtMemcpy", "src", "4 of the 64 bytes that are copied were never written; the first is byte 60 of the allocation."),
    ],
    "copy_on_the_device_of_uninitialised_memory": [
        (NEVER, "aclrtMemcpy", "src", "64 of the 64 bytes that are copied were never written; the first is byte 0 of the allocation."),
    ],
    "uninitialised_input": [
        (NEVER, GELU, "gradOutput", "1 of the 6 elements of the float32 tensor were never written; the first is (1, 2)."),
    ],
    "uninitialised_row": [
        (NEVER, "aclnnMoeTokenUnpermute", "permutedTokens",
         "3 of the 12 elements of the float32 tensor are in rows that sortedIndices names and were never written; the first is (2, 0)."),
    ],
    "workspace_in_an_operand": [
        ("workspace overlaps a tensor", "aclnnSmoothL1Loss", name, " bytes of workspace from byte 4096 of the allocation are in ")
        for name in ("self", "target")
    ],
    "use_after_free": [("use after free", "aclrtMemcpy", "src", "lies in device memory that was freed. The call was refused;")],
    "host_memory_after_free": [("use after free", "aclrtMemcpy", "dst", "lies in host memory that was freed. The call was refused;")],
    "host_memory_freed_wrongly": [
        ("not the beginning of an allocation", "aclrtFreeHost", "hostPtr", "lies 8 bytes into 16 bytes of host memory."),
        ("freed twice", "aclrtFreeHost", "hostPtr", "lies in host memory that was freed before."),
    ],
    "host_memory_past_the_end": [
        ("past the end of an allocation", "aclrtMemcpy", "src", "20 bytes are needed from "),
        ("past the end of an allocation", "aclrtMemset", "devPtr", ", and 8 bytes of host memory are left. The call was refused;"),
    ],
    "operator_after_free": [
        ("use after free", GELU, "gradInput", "lies in device memory that was freed. The call was refused;"),
        ("use after free", PLAN, "gradInput", "lies in device memory that was freed. The call was refused."),
    ],
    "freed_twice": [
        ("not the beginning of an allocation", "aclrtFree", "devPtr", "lies 4 bytes into an allocation."),
        ("freed twice", "aclrtFree", "devPtr", "was freed before."),
    ],
    "past_the_end": [("past the end of an allocation", "aclrtMemset", "devPtr", "12 bytes are needed from ")],
    "use_after_destroy": [("use after destroy", "aclGetViewShape", "tensor", "which was destroyed or used up.")],
}  # fmt: skip


@pytest.mark.parametrize("name", EXPECTED)
def test_a_mistake_is_named(found: tuple[dict[str, list[dict[str, Any]]], str], name: str) -> None:
    findings, printed = found
    assert [(one["kind"], one["api"], one["parameter"]) for one in findings[name]] == [one[:3] for one in EXPECTED[name]]
    for one, (*_, words) in zip(findings[name], EXPECTED[name], strict=True):
        assert words in one["what"]
        assert f"anycann check: {one['kind']}\n  {one['api']}, {one['parameter']}: {one['what']}\n" in printed
        assert f"{name} ({HERE / 'watch_programs.py'}:" in one["site"]
        assert one["mend"].endswith(".")
        of_the_device = one["kind"] != "use after destroy" and not name.startswith("host_memory")
        if of_the_device:
            assert one["memory"].startswith(f"allocation #{one['allocation']} of ")
            assert "aclrtMalloc at " in one["memory"]
        assert ("; freed by aclrtFree at " in one["memory"]) == (of_the_device and one["kind"] in ("use after free", "freed twice"))


def test_all_mistakes_were_tried_and_counted(found: tuple[dict[str, list[dict[str, Any]]], str]) -> None:
    findings, printed = found
    assert list(findings) == list(EXPECTED)
    assert printed.endswith(f"anycann check: {sum(map(len, findings.values()))} findings\n")


def test_mistakes_are_found_without_the_double_mapping(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    done = run("mistakes", findings=path, ANYCANN_CHECK_MAP="0")
    assert done.returncode == 0, done.stderr
    expected = [one[:3] for name in EXPECTED for one in EXPECTED[name]]
    assert [(one["kind"], one["api"], one["parameter"]) for one in read(path)] == expected


@pytest.mark.parametrize("how", [CLOSED, CLOSED_PIPE, FULL])
@pytest.mark.parametrize("findings", ["{folder}/no/such/folder", "/dev/full"])
def test_reports_that_cannot_be_written_change_no_answer(tmp_path: Path, how: str, findings: str) -> None:
    command = [sys.executable, str(HERE / "watch_programs.py"), "mistakes"]
    done = run_without_errors(how, command, ANYCANN_CHECK_JSON=findings.format(folder=tmp_path))
    made = [json.loads(line) for line in done.stdout.splitlines()]  # and nothing else is there
    assert done.returncode == 0
    assert [(name, last - first) for name, first, last in made] == [(name, len(expected)) for name, expected in EXPECTED.items()]


def test_a_file_for_findings_that_cannot_be_written_is_named_once(tmp_path: Path) -> None:
    done = run("mistakes", findings=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count(f"anycann check: findings cannot be written to {tmp_path}: Is a directory\n") == 1


def test_a_file_for_findings_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff")
    assert run("left", findings=path).returncode == 0
    assert len(read(path)) > 1


def test_what_is_left_is_named(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    done = run("left", findings=path)
    assert done.returncode == 0, done.stderr
    findings = read(path)
    assert (findings[0]["kind"], findings[0]["api"]) == ("use after free", GELU), "a phase 2 that was refused is no executor never used"
    said = {(one["kind"], one["api"], one["what"].split(" Made at ")[0]) for one in findings[1:]}
    kinds = ("TensorList", "Scalar", "ScalarList", "IntArray", "FloatArray", "BoolArray", "DataBuffer", "OpExecutor")
    objects = (*(f"acl{kind}" for kind in kinds), "stream", "event", "context")
    assert said == {
        ("leak", "aclrtMalloc", "48 bytes of device memory were not freed."),
        ("leak", "aclrtMalloc", "32 bytes of device memory were not freed."),
        ("leak", "aclrtMallocHost", "32 bytes of host memory were not freed."),
        ("leak", "aclTensor", "2 objects of the kind aclTensor were not destroyed."),
        *(("leak", kind, f"1 object of the kind {kind} was not destroyed.") for kind in objects),
        ("executor never used", PLAN, f"phase 1 of {GELU} made an executor that was never used: the operator did not run."),
    }
    assert done.stderr.endswith(f"anycann check: {1 + len(said)} findings\n")


def test_memory_that_kernels_may_have_written_counts_as_written(tmp_path: Path) -> None:
    path = tmp_path / "findings.json"
    done = run("kernels", findings=path, ANYCANN_CHECK_MAP="0")
    assert done.returncode == 0, done.stderr
    assert [(one["kind"], one["allocation"]) for one in read(path)] == [("uninitialised memory", 4)]


def test_layouts_are_no_mistakes() -> None:
    done = run("layouts")
    assert (done.returncode, done.stderr) == (0, "anycann check: 0 findings\n")


@pytest.mark.parametrize("names", [BACKWARD, pytest.param(OTHERS, marks=pytest.mark.slow)], ids=("backward", "others"))
def test_correct_programs_get_the_same_bits_and_no_finding(names: tuple[str, ...]) -> None:
    done = run("operators", *names)
    assert (done.returncode, done.stderr) == (0, "anycann check: 0 findings\n")


def test_nothing_is_watched_while_the_mode_is_off() -> None:
    assert "ANYCANN_CHECK" not in os.environ
    assert (DEVICE.watch, DEVICE.shifted, Table.watch) == (None, False, None)
    done = run("layouts", ANYCANN_CHECK="")
    assert (done.returncode, done.stderr) == (0, "")
    program = "import sys, anycann.device; print([name for name in sys.modules if 'watch' in name])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert device.block_at(0) is None


def test_written_bytes() -> None:
    written = Written(100)
    assert written.lacks(10, 20) == (10, 10)
    written.mark(10, 15)
    assert written.lacks(8, 20) == (7, 8)
    written.mark(12, 30)
    assert (written.lacks(10, 30)[0], written.missing) == (0, 80)
    columns = Tensor(0, DTYPES["float32"], (3, 2), (4, 1))
    assert written.lacks_elements(40, columns) == (6, (0, 0))
    written.mark_elements(40, columns)
    assert written.lacks(40, 80) == (16, 48)
    assert written.lacks_elements(40, Tensor(0, DTYPES["float32"], (3, 3), (4, 1))) == (3, (0, 2))
    assert written.lacks_elements(80, Tensor(0, DTYPES["float32"], (9, 2), (0, -4))) == (2, (0, 0))
    written.mark(0, 100)
    assert (written.lacks(0, 100), written.missing) == ((0, 0), 0)


@pytest.mark.parametrize(
    ("values", "integers"),
    [
        (np.array([1, 2, 0], np.int32), True),
        (np.array([-5, 3], np.int32), True),
        (np.array([0, 0], np.int32), False),
        (np.array([-1, -1], np.int32), False),  # the bits of a NaN
        (np.array([0.5, 1e-45], np.float32), False),
        (np.array([1, 200], np.int16), True),
        (np.array([1e-7, -1e-7], np.float16), False),
        (np.array([1, 2], np.int64), True),
        (np.array([1.0], np.float64), False),
    ],
)
def test_bits_of_integers(values: "np.ndarray[Any, Any]", integers: bool) -> None:
    assert integer_bits(values.view(f"i{values.itemsize}")) is integers


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([0, 1.5, -2], np.float32), ("float32", 1.5)),
        (np.array([0, 0], np.float32), None),
        (np.array([np.nan, 1], np.float32), None),
        (np.arange(100, dtype=np.int32), None),
        (np.array([-1, 5], np.int32), None),
        (np.array([0, 2.5], np.float64), ("float64", 2.5)),
        (np.array([3, 1, 0, 4], np.float32).view(np.int64), ("float32", 3.0)),
        (np.array([0.1, -7]), ("float64", 0.1)),
        (np.array([1, 2**40], np.int64), None),
    ],
)
def test_bits_of_floats(values: "np.ndarray[Any, Any]", expected: tuple[str, float] | None) -> None:
    assert float_bits(values.view(f"i{values.itemsize}")) == expected


def test_the_ledger_names_freed_memory_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anycann.device.watch_memory.KEPT", 300)
    ledger, store = Ledger(True, Report(None)), np.empty(64, np.uint8)
    opened = []
    for number in range(1, 601):
        record = ledger.open(store.ctypes.data, 64, "aclrtMalloc", None)
        assert record is not None
        assert (record.number, record.real) == (number, store.ctypes.data)
        assert ledger.with_bytes(store.ctypes.data + 63) is record
        ledger.close(record.block, "aclrtFree", None)
        opened.append(record)
    assert [ledger.at(record.block.address + 3) for record in opened[300:]] == opened[300:]
    assert len(ledger.freed) == 300
    table = ledger.table
    numbers = sorted(table.ranges[i].number for i in range(table.count) if table.ranges[i].end)
    assert numbers == [record.number for record in opened[300:]]
