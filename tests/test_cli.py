"""The command line: what each command prints, the JSON it writes, and its exit status."""

import importlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import config
from typer.testing import CliRunner, Result

import anycann
from anycann import caches, errors, ops, products
from anycann.backends import threads
from anycann.check import standards
from anycann.cli import checking, demo, doctor, names
from anycann.cli.app import app
from anycann.cli.output import number, write_json
from anycann.runtime import Operator

COMMAND = [sys.executable, "-m", "anycann.cli"]
NAMES = [operator.spec.python for operator in ops.OPERATORS]


@pytest.fixture(autouse=True)
def _process_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_chosen", None)
    monkeypatch.delenv("ANYCANN_PRODUCT", raising=False)


def run(*args: str, width: int = 80) -> Result:
    return CliRunner().invoke(app, list(args), env={"COLUMNS": str(width), "TERM": "dumb"}, prog_name="anycann")


def lines_of(result: Result, status: int = 0) -> list[str]:
    assert result.exit_code == status, result.output
    return result.stdout.splitlines()


def words(text: str) -> str:
    return " ".join(text.split())


# The program


def test_help_names_every_command() -> None:
    text = "\n".join(lines_of(run("--help")))
    for command in ("list", "show", "check", "explain", "doctor", "demo"):
        assert re.search(rf"\b{command}\b", text)
        assert lines_of(run(command, "--help"))


def test_version() -> None:
    assert lines_of(run("--version")) == [f"anycann {anycann.__version__}"]


def test_help_imports_no_compiler() -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from anycann.cli.app import app; CliRunner().invoke(app, ['--help'])\n"
        "print([name for name in ('numba', 'llvmlite', 'cffi', 'torch', 'triton') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("args", [("list",), ("show", "nsa_compress_grad"), ("explain", "561103"), ("doctor",)])
def test_output_fits_the_width_and_has_no_escape_codes(args: tuple[str, ...], width: int) -> None:
    lines = run(*args, width=width).stdout.splitlines()
    assert lines
    assert not any("\x1b" in line or "…" in line for line in lines)
    example = [line for line in lines if line.lstrip().startswith(">>>")]  # printed as it is, to be copied
    assert all(len(line) <= width for line in lines if line not in example)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_tables_can_be_read_on_narrow_terminals(width: int) -> None:
    lines = lines_of(run("list", width=width))
    assert all(len(line) <= width for line in lines)
    assert all(re.search(rf"\b{word}\b", "\n".join(lines)) for name in NAMES for word in (name, "approximation", "ascend-950"))
    lines = lines_of(run("check", "moe_token_unpermute_grad", "--dtype", "float16", width=width))
    assert all(len(line) <= width for line in lines)
    for word in ("float16", "permuted_tokens_grad", "probs_grad", "pass", "MERE", "attainable"):
        assert re.search(rf"\b{word}\b", "\n".join(lines)), word


def test_the_entry_point_prints_plainly_into_a_pipe() -> None:
    program = Path(sys.executable).with_name("anycann")
    done = subprocess.run(
        [program, "explain", "ACLNN_SUCCESS"], capture_output=True, text=True, check=True, env={**os.environ, "TERM": "xterm"}
    )
    assert done.stdout.splitlines()[0] == "0 ACLNN_SUCCESS"
    assert done.stderr == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [("list",), ("--version",), ("show", "--help")])
def test_output_that_cannot_be_written_is_said_in_one_line(words: tuple[str, ...], unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run([*COMMAND, *words], stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert (done.returncode, done.stderr) == (2, "anycann: the output cannot be written: No space left on device\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("words", "status"), [(("list",), 1), (("--version",), 1), (("run", "echo", "x"), 128 + signal.SIGPIPE)])
def test_a_closed_pipe_ends_a_command_in_silence(words: tuple[str, ...], status: int, unbuffered: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run([*COMMAND, *words], stdout=writer, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writer)
    assert (done.returncode, done.stderr) == (status, "")


def test_commands_run_without_a_standard_output() -> None:
    for words in ("list", "run true"):
        command = f'"$1" -m anycann.cli {words} >&-'
        done = subprocess.run(["sh", "-c", command, "sh", sys.executable], stderr=subprocess.PIPE, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("number", ["0", "1025", "9999"])
def test_numbers_of_threads_that_cannot_be_are_refused_before_anything_runs(number: str) -> None:
    result = run("bench", "gelu_v2", "--threads", number, "--workload", "small", "--quick", "--peers", "none")
    assert result.exit_code == 2
    assert re.search("should be (greater than or equal to 1|less than or equal to 1024)", words(result.stderr))


# list and show


def test_doors_that_need_what_is_not_installed_are_not_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ops.OPERATORS[0].spec
    assert names.doors(spec) == ["Python", "aclnn", "C", "torch"]
    monkeypatch.setattr(names, "find_spec", lambda module: None if module == "torch" else importlib.util.find_spec(module))
    assert names.doors(spec) == ["Python", "aclnn", "C"]


def test_list_has_every_operator_with_both_names_and_its_doors() -> None:
    lines = lines_of(run("list"))
    for spec in (operator.spec for operator in ops.OPERATORS):
        row = next(line for line in lines if line.startswith(spec.name))
        assert ("aclnn " in row.removeprefix(spec.name)) == spec.two_phase
        assert any(line.startswith(spec.python) for line in lines)


@pytest.mark.parametrize("name", NAMES)
def test_show_prints_the_whole_contract(name: str) -> None:
    spec = names.find_operator(name).spec
    text = words("\n".join(lines_of(run("show", name, width=500))))
    for param in spec.params:
        assert param.name in text
        assert param.python in text
        assert words(param.doc) in text
    for part in (spec.summary, spec.source, *spec.formula.split(";"), *spec.notes, *spec.accuracy.values(), spec.example):
        assert words(part) in text
    for product in spec.products:
        assert product.series in text
    for workload in spec.workloads:
        assert f"{workload.name}:" in text
    assert ("const aclTensor *" in text) == spec.two_phase
    assert "161001" in text


@pytest.mark.parametrize(
    "typed",
    ["aclnnGeluBackwardV2", "gelu_backward_v2", "GeluBackwardV2", "GELU_BACKWARD_V2", "anycann.gelu_backward_v2", "gelu-backward-v2"],
)
def test_operators_are_found_by_any_of_their_names(typed: str) -> None:
    assert names.find_operator(typed).spec.name == "aclnnGeluBackwardV2"


@pytest.mark.parametrize(("typed", "meant"), [("gelu", "gelu_backward_v2 or gelu_v2"), ("nsa_compres_grad", "nsa_compress_grad")])
@pytest.mark.parametrize("command", ["show", "check"])
def test_a_name_that_is_almost_right_gets_a_suggestion(command: str, typed: str, meant: str) -> None:
    result = run(command, typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"anycann: no operator is called {typed!r}; did you mean {meant}?\n"


def test_a_name_that_is_nothing_gets_the_list() -> None:
    result = run("show", "qqqqqq")
    assert result.exit_code == 2
    assert all(name in result.stderr for name in NAMES)


# explain


@pytest.mark.parametrize("typed", ["161002", "ACLNN_ERR_PARAM_INVALID", "aclnn_err_param_invalid"])
def test_explain_takes_numbers_and_names(typed: str) -> None:
    lines = lines_of(run("explain", typed, width=300))
    row = errors.CODES[161002]
    assert lines == ["161002 ACLNN_ERR_PARAM_INVALID", f"When: {row.when}", f"What to do: {row.mend}"]


@pytest.mark.parametrize("typed", ["161003", "nonsense", "1.5", ""])
def test_explain_lists_the_codes_for_an_unknown_one(typed: str) -> None:
    result = run("explain", typed)
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(f"{row.value}  {row.name}" in result.stderr for row in errors.CODES.values())


# check


def test_check_passes_for_every_operator_and_writes_json(tmp_path: Path) -> None:
    target = tmp_path / "check.json"
    lines = lines_of(run("check", "--json", str(target)))
    assert all(len(line) <= 80 for line in lines)
    assert all(name in lines for name in NAMES)
    data = json.loads(target.read_text())
    assert data["format"] == "anycann check 1"
    assert data["passed"] is True
    assert data["not_on_product"] == []
    assert data["thresholds"]["float16"]["single"] == 2**-10
    assert f"{len(data['cases'])} passed, 0 failed on Atlas A2 training." in lines
    assert {case["python"] for case in data["cases"]} == set(NAMES)
    assert {case["dtype"] for case in data["cases"]} == {"float16", "bfloat16", "float32"}
    for case in data["cases"]:
        for output in case["outputs"]:
            assert {output["S1"], output["S2"]} <= {"pass", "not attainable"}
            assert output["ours"]["compared"] == output["ours"]["elements"] > 0
            assert (output["S1"] == "not attainable") <= ("S1" in output["unattainable"])


def test_json_to_standard_output_is_all_there_is() -> None:
    data = json.loads(run("check", "smooth_l1_loss_backward", "--dtype", "float32", "--seed", "3", "--json", "-").stdout)
    assert {(case["dtype"], case["seed"]) for case in data["cases"]} == {("float32", 3)}
    assert {case["workload"] for case in data["cases"]} == {"small none", "small mean", "small sum"}


def test_all_dtypes_are_the_products_and_one_by_name_may_be_wider() -> None:
    operator, product = names.find_operator("nsa_compress_grad"), products.find("Ascend910B1")
    assert {dtype for _, _, dtype in checking.plan([operator], product, None, every=True)} == {"float16", "bfloat16"}
    assert {dtype for _, _, dtype in checking.plan([operator], product, "float32", every=False)} == {"float32"}


def test_check_follows_the_product() -> None:
    lines = lines_of(run("check", "smooth_l1_loss_backward", "--product", "Ascend310P3"))
    assert not any("bfloat16" in line for line in lines)
    assert any("on Atlas inference" in line for line in lines)
    refused = run("check", "nsa_compress_grad", "--product", "A3")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "aclnnNsaCompressGrad is not available on Atlas A3" in refused.stderr
    assert refused.stderr.endswith("561003]\n")


def test_check_of_everything_leaves_out_what_the_product_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tuple(operator for operator in ops.OPERATORS if operator.spec.python in ("smooth_l1_loss_backward", "nsa_compress_grad"))
    monkeypatch.setattr(ops, "OPERATORS", kept)
    assert "Not on Atlas A3 training / inference: aclnnNsaCompressGrad." in lines_of(run("check", "--product", "A3", "--dtype", "float16"))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--dtype", "int8"), "--dtype int8: must be one of float16, bfloat16, float32"),
        (("--product", "Ascend999"), "no product is called 'Ascend999'"),
        (("--values", "odd"), "--values odd: must be one of normal, L0"),
        (("--seed", "-1"), "--seed"),
        (("--json", ""), "--json must name a file; got an empty name"),
    ],
)
def test_wrong_options_of_check_are_refused_before_anything_runs(args: tuple[str, ...], message: str) -> None:
    result = run("check", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_a_wrong_product_in_the_environment_is_the_users_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_PRODUCT", "Ascend999")
    result = run("check")
    assert result.exit_code == 2
    assert result.stderr.startswith("anycann: ANYCANN_PRODUCT: no product is called 'Ascend999'")


@pytest.mark.parametrize("command", ["check", "demo", "bench"])
@pytest.mark.parametrize("value", ["many", "²"])
def test_a_wrong_number_in_the_environment_is_the_users_mistake(command: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_chosen", None)
    monkeypatch.setenv("ANYCANN_NUM_THREADS", value)
    result = run(command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"anycann: ANYCANN_NUM_THREADS must be a whole number between 1 and 1024; got {value!r}\n"
    monkeypatch.setenv("ANYCANN_NUM_THREADS", "1")
    monkeypatch.setenv("ANYCANN_BUFFER_POOL", value)
    result = run(command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"anycann: ANYCANN_BUFFER_POOL must be a number of bytes; got {value!r}\n"


@pytest.mark.parametrize("command", ["check", "demo", "bench"])
def test_a_compiler_that_is_switched_off_is_the_users_mistake(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    result = run(command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "anycann: anycann's CPU kernels need Numba's compiler: unset NUMBA_DISABLE_JIT\n"


@pytest.mark.parametrize("command", ["check", "doctor", "demo", "bench", "bench --plot", "run --trace"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(command: str, tmp_path: Path) -> None:
    words, rest = command.split(), ["x.asc"] if command.startswith("run") else []
    option = words[1] if len(words) > 1 else "--json"
    for path, reason in ((tmp_path / "no" / "where.png", "No such file or directory"), (tmp_path, "Is a directory")):
        result = run(words[0], option, str(path), *rest)
        assert (result.exit_code, result.stdout, result.stderr) == (2, "", f"anycann: {option} {path}: {reason}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_of_an_unknown_kind_is_refused_before_anything_runs(tmp_path: Path) -> None:
    result = run("bench", "--plot", str(tmp_path / "x.tiff"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.endswith("x.tiff: must end in .png, .pdf, .svg\n")


def test_files_are_as_they_were_when_the_work_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(result: Any) -> None:
        raise ValueError("ours")

    spoil(monkeypatch, fault)
    kept, link = tmp_path / "kept.json", tmp_path / "link.json"
    kept.write_text("before")
    link.symlink_to(tmp_path / "aim.json")
    for path in (kept, link, tmp_path / "new.json"):
        assert isinstance(run("check", "smooth_l1_loss_backward", "--dtype", "float32", "--json", str(path)).exception, ValueError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json", "link.json"]
    assert kept.read_text() == "before"


def test_json_goes_to_what_is_no_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True) as reader:
        lines_of(run("check", "smooth_l1_loss_backward", "--dtype", "float32", "--json", str(pipe)))
        assert json.loads(reader.communicate()[0])["passed"] is True


def spoil(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    real = Operator.call

    def spoilt(self: Operator, *values: Any, out: Any = None, product: str | None = None) -> Any:
        result = real(self, *values, out=out, product=product)
        change(result)
        return result

    monkeypatch.setattr(Operator, "call", spoilt)


def test_a_wrong_result_gives_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(result: Any) -> None:
        result[-1, -1] = np.nan

    spoil(monkeypatch, change)
    result = run("check", "smooth_l1_loss_backward", "--dtype", "float32")
    assert result.exit_code == 1
    assert result.stdout.count("FAIL") == 6
    assert "0 passed, 3 failed" in result.stdout


def test_bits_that_depend_on_the_run_give_exit_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    factors = itertools.cycle([np.float32(1), np.float32(1 + 1e-6)])

    def change(result: Any) -> None:
        result[0, 0] *= next(factors)

    spoil(monkeypatch, change)
    result = run("check", "smooth_l1_loss_backward", "--dtype", "float32")
    assert result.exit_code == 1
    assert result.stdout.count("gave other bits") == 3
    assert "FAIL" not in result.stdout


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fault(result: Any) -> None:
        raise ValueError("ours")

    spoil(monkeypatch, fault)
    result = run("check", "smooth_l1_loss_backward", "--dtype", "float32")
    assert result.exit_code == 1
    assert isinstance(result.exception, ValueError)


# doctor


def test_doctor_finds_nothing_broken_here(tmp_path: Path) -> None:
    target = tmp_path / "doctor.json"
    text = words("\n".join(lines_of(run("doctor", "--json", str(target)))))
    data = json.loads(target.read_text())
    found = {finding["topic"]: finding for finding in data["findings"]}
    assert data["broken"] is False
    for topic in (
        "Python",
        "numpy",
        "numba",
        "CPU",
        "threads",
        "product in force",
        "cache root",
        "kernel folder",
        "torch",
        "triton",
        "mpmath",
    ):
        assert topic in found
        assert topic in text
    for name in NAMES:
        assert found[name]["text"] == "its example gives the printed result"


def test_doctor_reports_a_broken_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(result: Any) -> None:
        for array in result if isinstance(result, tuple) else (result,):
            array += 1

    spoil(monkeypatch, change)
    result = run("doctor")
    assert result.exit_code == 1
    assert result.stdout.count("BROKEN") == len(NAMES)


def test_doctor_reports_missing_packages_and_wrong_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED", ("numpy", "no-such-package"))
    monkeypatch.setenv("ANYCANN_PRODUCT", "Ascend999")
    monkeypatch.setenv("ANYCANN_BUFFER_POOL", "abc")
    result = run("doctor", width=120)
    assert result.exit_code == 1
    assert re.search(r"kept for results +BROKEN +ANYCANN_BUFFER_POOL must be a number of bytes; got 'abc'", result.stdout)
    assert re.search(r"no-such-package +BROKEN +not installed", result.stdout)
    assert re.search(r"product in force +BROKEN +ANYCANN_PRODUCT: no product is called 'Ascend999'", result.stdout)


def test_numbas_optimiser_must_not_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was said to be a fault of anycann."""
    monkeypatch.setattr(config, "OPT", 0)
    result = run("check")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "anycann: NUMBA_OPT must be 1, 2 or 3 for anycann's CPU kernels; got 0: unset it\n"


def test_doctor_reports_a_compiler_that_is_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    monkeypatch.setattr(ops, "OPERATORS", ())
    result = run("doctor", width=120)
    assert result.exit_code == 1
    assert re.search(r"kernel compiler +BROKEN +anycann's CPU kernels need Numba's compiler: unset NUMBA_DISABLE_JIT", result.stdout)


def test_doctor_calls_an_unwritable_cache_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "save", lambda path, data: False)
    monkeypatch.setattr(ops, "OPERATORS", ())
    result = run("doctor", width=200)
    assert result.exit_code == 0
    assert re.search(r"cache root +warn .*not writable", result.stdout)


def test_doctor_does_not_call_an_operator_broken_that_the_product_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYCANN_PRODUCT", "A3")
    assert "not available on Atlas A3" in words("\n".join(lines_of(run("doctor", width=120))))


# demo


def test_demo_measures_every_operator_and_sums_up(tmp_path: Path) -> None:
    target = tmp_path / "demo.json"
    lines = lines_of(run("demo", "--scale", "small", "--json", str(target)))
    assert all(len(line) <= 80 for line in lines)
    data = json.loads(target.read_text())
    assert {row["operator"] for row in data["rows"]} == set(NAMES)
    assert data["right"] is True
    assert data["not_on_product"] == []
    for row in data["rows"]:
        assert row["seconds"] > 0
        assert row["numpy_seconds"] > 0
        assert 0 < row["sampled"] <= row["elements"]
        assert len(row["figures"]) == len(row["numpy_figures"]) == len(row["S3_against_numpy"]) > 0
    assert re.search(r"\d+ measurements in \d+ s, every result within S1 and S2: .* times as fast as NumPy", words(" ".join(lines)))
    gelu = [row for row in data["rows"] if row["operator"] == "gelu_backward_v2" and row["dtype"] == "float32"]
    assert all(row["figures"][0]["max_ulp"] <= 5 < row["numpy_figures"][0]["max_ulp"] for row in gelu)


def test_the_demos_workloads_exist() -> None:
    todo, missing = demo.jobs(products.find("Ascend910B1"), "real")
    assert missing == []
    assert [operator.spec.python for operator, _, _ in todo] == [row[0] for row in demo.ROWS]
    assert all(max(int(np.prod(shape)) for shape in workload.shapes.values()) >= 2**25 for _, workload, _ in todo)
    assert demo.jobs(products.find("Ascend310P3"), "real")[1][0] == "gelu_backward_v2 bfloat16"


def test_demo_reports_no_speed_for_a_wrong_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ROWS", tuple(row for row in demo.ROWS if row[0] == "smooth_l1_loss_backward"))

    def change(result: Any) -> None:
        result *= 2

    spoil(monkeypatch, change)
    result = run("demo", "--scale", "small")
    assert result.exit_code == 1
    assert re.search(r"float32 +WRONG ", result.stdout)
    assert "WRONG results: smooth_l1_loss_backward small float32." in words(result.stdout)


def test_demo_refuses_other_scales() -> None:
    result = run("demo", "--scale", "huge")
    assert (result.exit_code, result.stderr) == (2, "anycann: --scale huge: must be one of real, small\n")


# Output


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.5, "0.5"),
        (3.4567, "3.46"),
        (123.4, "123"),
        (2202.0, "2202"),
        (1.5e5, "1.5e+05"),
        (1.2e-5, "1.2e-05"),
        (float("inf"), "inf"),
    ],
)
def test_figures_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_json_spells_out_what_json_lacks(tmp_path: Path) -> None:
    write_json({"a": float("nan"), "b": (float("inf"), 1.5), "c": {"d": float("-inf")}}, str(tmp_path / "x.json"))
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": "nan", "b": ["inf", 1.5], "c": {"d": "-inf"}}


@pytest.mark.parametrize("module", ["checking", "demo", "doctor", "names", "output", "processes", "programs", "run", "show"])
def test_exports_exist(module: str) -> None:
    loaded = importlib.import_module(f"anycann.cli.{module}")
    assert all(name in vars(loaded) for name in loaded.__all__)


def test_every_standard_of_the_table_is_in_the_json() -> None:
    data = json.loads(run("check", "layer_norm_grad_beta", "--dtype", "float16", "--json", "-").stdout)
    assert [set(standards.STANDARDS) <= set(output) for case in data["cases"] for output in case["outputs"]] == [True, True]


EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "ascendc"


def test_run_compiles_and_runs_a_program_that_launches_kernels() -> None:
    done = subprocess.run([sys.executable, "-m", "anycann.cli", "run", str(EXAMPLES / "add_program.cpp")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_run_says_how_to_launch_a_kernel_without_a_main() -> None:
    done = subprocess.run([sys.executable, "-m", "anycann.cli", "run", str(EXAMPLES / "add.cpp")], capture_output=True, text=True)
    assert done.returncode == 2
    assert "Launch them from Python" in done.stderr


def test_run_reports_a_mistake_of_a_kernel_with_its_line(tmp_path: Path) -> None:
    text = (EXAMPLES / "add_program.cpp").read_text()
    kept = [line for line in text.splitlines(keepends=True) if "FreeTensor" not in line]
    assert len(kept) < len(text.splitlines())
    source = tmp_path / "leak.cpp"
    source.write_text("".join(kept))
    done = subprocess.run([sys.executable, "-m", "anycann.cli", "run", str(source)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "leak.cpp:" in done.stderr
