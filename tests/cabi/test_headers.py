"""The headers: what they declare, which values they give, and that every compiler and standard takes them without a warning."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from anycann import device, dtypes, errors, ops
from anycann.cabi import declarations, headers
from anycann.cabi.declarations import Function, Parameter

SPECS = [operator.spec for operator in ops.OPERATORS if operator.spec.two_phase]
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-fsyntax-only"]
TEXT = "\n".join(path.read_text() for path in sorted(declarations.INCLUDE.rglob("*.h")))

# Phase 1 of the operators as their pages print it, without the last two parameters. Whether an output is const is left open:
# aclTensor * goes wherever const aclTensor * goes.
IN, OUT = "const aclTensor *", "aclTensor *"
PHASE_ONE = {
    "aclnnGeluBackwardV2": ((IN, "gradOutput"), (IN, "self"), ("char *", "approximate"), (OUT, "gradInput")),
    "aclnnGeluV2": ((IN, "x"), ("int64_t", "approximate"), (OUT, "y")),
    "aclnnSmoothL1LossBackward": (
        (IN, "gradOut"), (IN, "self"), (IN, "target"), ("int64_t", "reduction"), ("float", "beta"), (OUT, "gradInput"),
    ),
    "aclnnSmoothL1Loss": ((IN, "self"), (IN, "target"), ("int64_t", "reduction"), ("float", "beta"), (OUT, "result")),
    "aclnnLayerNormBackward": (
        (IN, "gradOut"), (IN, "input"), ("const aclIntArray *", "normalizedShape"), (IN, "mean"), (IN, "rstd"), (IN, "weightOptional"),
        (IN, "biasOptional"), ("const aclBoolArray *", "outputMask"), (OUT, "gradInputOut"), (OUT, "gradWeightOut"), (OUT, "gradBiasOut"),
    ),
    "aclnnLayerNorm": (
        (IN, "input"), ("const aclIntArray *", "normalizedShape"), (IN, "weightOptional"), (IN, "biasOptional"), ("double", "eps"),
        (OUT, "out"), (OUT, "meanOutOptional"), (OUT, "rstdOutOptional"),
    ),
    "aclnnMoeTokenPermuteGrad": (
        (IN, "permutedOutputGrad"), (IN, "sortedIndices"), ("int64_t", "numTopk"), ("bool", "paddedModeOptional"), (OUT, "out"),
    ),
    "aclnnMoeTokenPermute": (
        (IN, "tokens"), (IN, "indices"), ("int64_t", "numOutTokens"), ("bool", "paddedMode"), (OUT, "permuteTokensOut"),
        (OUT, "sortedIndicesOut"),
    ),
    "aclnnMoeTokenUnpermute": (
        (IN, "permutedTokens"), (IN, "sortedIndices"), (IN, "probsOptional"), ("bool", "paddedMode"),
        ("const aclIntArray *", "restoreShapeOptional"), (OUT, "out"),
    ),
    "aclnnMoeTokenUnpermuteGrad": (
        (IN, "permuteTokensOptional"), (IN, "unpermutedTokensGrad"), (IN, "sortedIndices"), (IN, "probsOptional"), ("bool", "paddedMode"),
        ("const aclIntArray *", "restoreShapeOptional"), (OUT, "permutedTokensGradOut"), (OUT, "probsGradOut"),
    ),
    "aclnnNsaCompress": (
        (IN, "input"), (IN, "weight"), ("const aclIntArray *", "actSeqLenOptional"), ("char *", "layoutOptional"),
        ("int64_t", "compressBlockSize"), ("int64_t", "compressStride"), ("int64_t", "actSeqLenType"), (OUT, "output"),
    ),
    "aclnnNsaCompressGrad": (
        (IN, "outputGrad"), (IN, "input"), (IN, "weight"), ("const aclIntArray *", "actSeqLenOptional"), ("int64_t", "compressBlockSize"),
        ("int64_t", "compressStride"), ("int64_t", "actSeqLenType"), ("char *", "layoutOptional"), (OUT, "inputGradOut"),
        (OUT, "weightGradOut"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def include(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home") / "include"
    headers.write_headers(SPECS, folder)
    return folder


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_prototypes_of_operators(spec):
    first, second = declarations.operator_functions(spec)
    outputs = {param.name for param in spec.outputs}
    listed = tuple((OUT if name in outputs else ctype, name) for ctype, name in ((param.ctype, param.name) for param in first.params))
    assert first.name == f"{spec.name}GetWorkspaceSize"
    assert listed == (*PHASE_ONE[spec.name], ("uint64_t *", "workspaceSize"), ("aclOpExecutor **", "executor"))
    run = "(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream)"
    assert second.prototype == f"aclnnStatus {spec.name}{run}"
    assert declarations.parse(headers.operator_header(spec)) == [first, second]


def test_everything_that_is_declared_is_done_and_the_other_way_round():
    assert {function.name for function in declarations.every_function([])} == set(device.CALLS)


def test_reading_declarations():
    text = """/* ANYCANN_API in a comment; */ #define x
    #define ANYCANN_API __attribute__((visibility("default")))
    ANYCANN_API const char* name( void );  // void other(int);
    ANYCANN_API aclnnStatus get(const aclTensor *const *tensors, uint64_t count,
                                void** address, aclrtStream stream);"""
    assert declarations.parse(text.replace(" #define x", "")) == [
        Function("name", "const char *", ()),
        Function(
            "get",
            "aclnnStatus",
            (
                Parameter("const aclTensor *const *", "tensors"),
                Parameter("uint64_t", "count"),
                Parameter("void **", "address"),
                Parameter("aclrtStream", "stream"),
            ),
        ),
    ]
    with pytest.raises(ValueError, match="2 declarations are marked ANYCANN_API; 1 could be read"):
        declarations.parse("ANYCANN_API int a(void); ANYCANN_API int b(int (*f)(void));")
    with pytest.raises(ValueError, match="every parameter has a type and a name; got 'int'"):
        declarations.parse("ANYCANN_API int a(int);")


@pytest.mark.parametrize(
    ("ctype", "kind"),
    [
        ("int64_t", "value"), ("aclFormat", "value"),
        ("aclrtStream", "handle"), ("const void *", "handle"), ("const aclTensor *", "handle"),
        ("aclrtStream *", "out"), ("void **", "out"), ("size_t *", "out"), ("aclFormat *", "out"), ("aclOpExecutor **", "out"),
        ("int64_t **", "new array"), ("const int64_t *", "array"), ("const aclTensor *const *", "array"), ("char *", "text"),
        ("const char *", "text"), ("const aclBoolArray *", "handle"),
    ],
)  # fmt: skip
def test_kinds_of_parameters(ctype, kind):
    assert Parameter(ctype, "x").kind == kind


def test_status_codes_are_those_of_the_package():
    found = {name: int(value) for name, value in re.findall(r"static const \w+ (AC\w+) = (\d+);", TEXT)}
    assert (found.pop("ACL_SUCCESS"), found.pop("ACL_ERROR_NONE")) == (0, 0)
    assert found == {row.name: row.value for row in errors.CODES.values()}


def test_enumerators_are_those_of_the_package():
    values = {name: int(value) for name, value in re.findall(r"\b(ACL_\w+) = (-?\d+)[,\n ]", TEXT)}
    assert {name: values[f"ACL_{name}"] for name in (dtype.acl_name for dtype in dtypes.DTYPES.values())} == {
        dtype.acl_name: dtype.acl for dtype in dtypes.DTYPES.values()
    }
    assert {name.removeprefix("ACL_FORMAT_"): value for name, value in values.items() if name.startswith("ACL_FORMAT_")} == dtypes.FORMATS
    groups = [values[f"ACL_MEMCPY_{name}"] for name in ("HOST_TO_HOST", "HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE", "DEFAULT")]
    assert groups == [0, 1, 2, 3, 4]
    assert [values[f"ACL_EVENT_RECORDED_STATUS_{name}"] for name in ("NOT_READY", "COMPLETE")] == [0, 1]
    assert [values[f"ACL_STREAM_STATUS_{name}"] for name in ("NOT_READY", "COMPLETE")] == [1, 0]


def _everything(include: Path) -> str:
    listed = sorted(path.relative_to(include).as_posix() for path in include.rglob("*.h"))
    spelled = [*listed, *(path.name for path in (include / "aclnnop").glob("*.h"))]
    return "".join(f"#include <{name}>\n" for name in spelled)


@pytest.mark.parametrize("standard", ["c11", "c17", "c++11", "c++14", "c++17", "c++20"])
def test_headers_give_no_warning(include, standard, tmp_path):
    unit = tmp_path / ("all.cpp" if "+" in standard else "all.c")
    uses = "int main(void)\n{\n    aclError status = ACL_SUCCESS;\n    aclrtStream stream;\n    status = aclrtCreateStream(&stream);\n"
    unit.write_text(f"{_everything(include)}{uses}    return status == ACLNN_SUCCESS ? 0 : 1;\n}}\n")
    flags = [f"-std={standard}", *STRICT, *(["-Wstrict-prototypes"] if "+" not in standard else [])]
    compiler = "g++" if "+" in standard else "gcc"
    done = subprocess.run(
        [compiler, *flags, f"-I{include}", f"-I{include}/aclnnop", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("clang++") is None, reason="needs clang++")
def test_headers_give_no_warning_to_another_compiler(include, tmp_path):
    unit = tmp_path / "all.cpp"
    unit.write_text(_everything(include))
    subprocess.run(["clang++", "-std=c++11", *STRICT, f"-I{include}", f"-I{include}/aclnnop", str(unit)], check=True)


def test_each_header_stands_alone_wherever_it_is_found(include, tmp_path):
    units = []
    for number, header in enumerate(sorted(include.rglob("*.h"))):
        units.append(tmp_path / f"{number}.c")
        units[-1].write_text(f'#include "{header}"\n#include "{header}"\n')  # no -I: headers find each other by where they lie
    subprocess.run(["gcc", "-std=c11", *STRICT, *map(str, units)], check=True)


def test_nothing_in_a_contract_ends_a_comment():
    spec = SPECS[0]
    header = headers.operator_header(replace(spec, formula="y = a */ int b; /* c", summary="Ends */ here."))
    assert declarations.parse(header) == list(declarations.operator_functions(spec))
    assert "int b" not in re.sub(r"/\*.*?\*/", "", header, flags=re.DOTALL)


def test_operator_headers_say_what_holds_in_c():
    text = headers.operator_header(next(spec for spec in SPECS if spec.name == "aclnnNsaCompressGrad"))
    assert "outputGrad: input [C, N, D]; float16 | bfloat16; gradient of the compressed tokens" in text
    assert "float32" not in text
    assert "default" not in text
    assert max(len(line) for line in text.splitlines()) <= 140
