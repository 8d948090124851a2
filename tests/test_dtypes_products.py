"""Dtypes and products: ids, sizes, promotion of every pair, what casts to what, names of products and how one is chosen."""

import itertools
import os
import pickle
import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anycann
from anycann import dtypes, errors, products
from contract_facts import (
    ACL_DTYPES,
    ACL_NAMES,
    CODES,
    FORMATS,
    ITEMSIZE,
    NOT_IN_NUMPY,
    SERIES,
    STATUS_NAMES,
    Series,
    castable,
    promoted,
)

PAIRS = list(itertools.product(ACL_DTYPES, repeat=2))


@pytest.mark.parametrize("name", ACL_DTYPES)
def test_ids_names_and_sizes(name: str) -> None:
    dtype = dtypes.by_name(name)
    assert (dtype.name, dtype.acl, dtype.acl_name, dtype.itemsize) == (name, ACL_DTYPES[name], ACL_NAMES[name], ITEMSIZE[name])
    assert dtypes.by_acl(ACL_DTYPES[name]) == dtypes.by_name(f"ACL_{ACL_NAMES[name]}") == dtypes.by_name(ACL_NAMES[name]) == dtype
    assert str(dtype) == name


@pytest.mark.parametrize("name", [name for name in ACL_DTYPES if name not in NOT_IN_NUMPY])
def test_numpy_dtypes_there_and_back(name: str) -> None:
    expected = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    assert dtypes.to_numpy(dtypes.by_name(name)) == expected
    assert dtypes.by_numpy(expected) == dtypes.by_name(name)
    assert expected.itemsize == ITEMSIZE[name]
    if expected.itemsize > 1 and expected.isnative and name != "bfloat16":
        assert dtypes.by_numpy(expected.newbyteorder()) is None


@pytest.mark.parametrize("name", NOT_IN_NUMPY)
def test_dtypes_that_numpy_lacks(name: str) -> None:
    with pytest.raises(KeyError):
        dtypes.to_numpy(dtypes.by_name(name))


def test_ids_are_unique_and_others_are_unknown() -> None:
    ids = [dtype.acl for dtype in dtypes.DTYPES.values()]
    assert len(set(ids)) == len(ids)
    assert {name: dtype.acl for name, dtype in dtypes.DTYPES.items() if name in ACL_DTYPES} == ACL_DTYPES
    assert dtypes.by_name("ACL_FLOAT8_E5M2").acl == 35
    assert dtypes.by_name("ACL_FLOAT8_E4M3FN").acl == 36
    assert [dtypes.by_acl(number) for number in (-2, 5, 14, 15, 18, 26, 28, 31, 32, 1000)] == [None] * 10
    for name in ("", "float", "Float32", "acl_float", "ACL_", "half", "S1"):
        with pytest.raises(KeyError):
            dtypes.by_name(name)
    for other in ("datetime64[s]", "S3", "U2", "O", "V4"):
        assert dtypes.by_numpy(np.dtype(other)) is None


def test_formats() -> None:
    assert dtypes.FORMATS == FORMATS


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_promotion(a: str, b: str) -> None:
    if {a, b} & {"complex32", "complex64"} and "bfloat16" in (a, b):
        return  # the documentation names no type for bfloat16 with the complex types that are no wider
    met = dtypes.promote(dtypes.by_name(a), dtypes.by_name(b))
    assert (met and met.name) == promoted(a, b)


@pytest.mark.parametrize(("a", "b"), PAIRS)
def test_promotion_is_symmetric(a: str, b: str) -> None:
    assert dtypes.promote(dtypes.by_name(a), dtypes.by_name(b)) == dtypes.promote(dtypes.by_name(b), dtypes.by_name(a))


PRINTED = {
    ("float16", "float32"): "float32",
    ("bfloat16", "float32"): "float32",
    ("float16", "bfloat16"): "float32",
    ("float64", "bfloat16"): "float64",
    ("float64", "int64"): "float64",
    ("float16", "int64"): "float16",
    ("bfloat16", "bool"): "bfloat16",
    ("int8", "uint8"): "int16",
    ("uint8", "int16"): "int16",
    ("uint8", "int64"): "int64",
    ("int8", "int32"): "int32",
    ("bool", "uint8"): "uint8",
    ("bool", "int32"): "int32",
    ("float32", "complex32"): "complex64",
    ("float16", "complex32"): "complex32",
    ("float64", "complex32"): "complex128",
    ("float64", "complex64"): "complex128",
    ("uint16", "uint16"): "uint16",
    ("uint32", "int64"): None,
    ("uint64", "uint32"): None,
    ("uint16", "bool"): None,
    ("uint16", "uint8"): None,
}


@pytest.mark.parametrize(("pair", "expected"), PRINTED.items())
def test_promotion_as_printed(pair: tuple[str, str], expected: str | None) -> None:
    assert promoted(*pair) == expected
    met = dtypes.promote(*map(dtypes.by_name, pair))
    assert (met and met.name) == expected


@pytest.mark.parametrize(("source", "target"), [pair for pair in PAIRS if not set(pair) & {"int4", "uint1"}])
def test_castable(source: str, target: str) -> None:
    assert dtypes.castable(dtypes.by_name(source), dtypes.by_name(target)) is castable(source, target)


def test_an_unknown_type_promotes_and_casts_to_nothing_else() -> None:
    other = dtypes.unknown("float128", 16)
    assert (other.name, other.itemsize) == ("float128", 16)
    assert dtypes.promote(other, dtypes.by_name("float32")) is None
    assert not dtypes.castable(other, dtypes.by_name("float32"))
    assert not dtypes.castable(dtypes.by_name("float32"), other)
    assert dtypes.unknown("void", 0).itemsize >= 1


# status codes


@pytest.mark.parametrize("code", CODES)
def test_every_documented_code_is_explained(code: int) -> None:
    row = errors.status(code)
    assert row.value == code
    assert row.name == STATUS_NAMES.get(code, row.name)
    assert row.name.startswith("ACLNN_")
    assert row.when
    assert row.mend
    assert errors.status(row.name) == errors.status(str(code)) == row


def test_names_of_codes_are_unique_and_unknown_codes_are_none() -> None:
    assert len({row.name for row in errors.CODES.values()}) == len(errors.CODES)
    assert {code for code in errors.CODES if 161000 <= code < 162000} == {161001, 161002}
    for unknown in (161003, 1, -1, "ACLNN_ERR_NO_SUCH", "161003"):
        with pytest.raises(KeyError):
            errors.status(unknown)


@pytest.mark.parametrize(("code", "name"), STATUS_NAMES.items())
def test_the_exception_carries_its_code(code: int, name: str) -> None:
    error = anycann.AclnnError(code, "aclnnX", "x must be y; got z. Do w.")
    assert isinstance(error, ValueError)
    assert (error.status, error.name, error.api) == (code, name, "aclnnX")
    assert str(error) == f"aclnnX: x must be y; got z. Do w. [{name} {code}]"
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.status, copy.name, copy.api, str(copy)) == (type(error), code, name, "aclnnX", str(error))


# products

by_series = pytest.mark.parametrize("series", SERIES, ids=lambda series: series.name)


@by_series
def test_a_series_has_its_architecture_and_dtypes(series: Series) -> None:
    product = products.find(series.name)
    assert (product.series, product.architecture, product.bf16) == (series.name, series.architecture, series.bf16)


def test_there_are_exactly_these_series() -> None:
    assert {product.series for product in products.PRODUCTS} == {series.name for series in SERIES}


@by_series
def test_soc_names_mean_their_series(series: Series) -> None:
    for soc in series.socs:
        assert products.find(soc).series == series.name


WRONG_NAMES = [
    "", " ", "Ascend", "Ascend910", "Ascend910B5", "Ascend910B22", "Ascend910C", "Ascend310", "Ascend310P2", "Ascend310P", "Ascend310P31",
    "Ascend310B5", "Ascend910ProC", "Ascend910_9", "Ascend95", "Atlas", "Atlas A2", "A2", "910B1", "xAscend910B1", "Ascend910B1x", "NVIDIA",
]  # fmt: skip


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_an_unknown_product_lists_the_known_ones(name: str) -> None:
    with pytest.raises(ValueError, match="Ascend910B1") as refused:
        products.find(name)
    assert repr(name) in str(refused.value)
    for series in SERIES:
        assert series.name in str(refused.value)
        known = [soc for soc in series.socs if not soc.startswith(("Ascend910_93", "Ascend950"))]
        assert all(soc in str(refused.value) for soc in known)
    assert "Ascend910_93" in str(refused.value)
    assert "Ascend950PR_" in str(refused.value)


def test_the_old_training_chip_is_not_the_a2_chip() -> None:
    assert products.find("Ascend910B").series == "Atlas training"
    assert products.find("Ascend910B1").series == "Atlas A2 training"
    assert products.find("Ascend910B2C").series == "Atlas A2 training"
    assert products.find("Ascend910_9391").series == "Atlas A3 training / inference"


@pytest.mark.parametrize("wrong", [None, 910, b"Ascend910B1", ["Ascend910B1"]])
def test_a_product_is_chosen_by_its_name(wrong: Any) -> None:
    with pytest.raises(TypeError):
        anycann.set_product(wrong)


def test_a_refused_choice_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_chosen", None)
    anycann.set_product("Ascend310P3")
    with pytest.raises(ValueError, match="Ascend999"):
        anycann.set_product("Ascend999")
    assert products.current().series == "Atlas inference"
    assert products.soc_name() == "Ascend310P3"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("ascend910b4", "Ascend910B4"), ("ASCEND910B", "Ascend910B"), ("ascend310p3\n", "Ascend310P3"), ("Ascend 910B4", "Ascend910B4"),
        ("ascend910_9391", "Ascend910_9391"), ("ascend 950pr_9579", "Ascend950PR_9579"), ("ascend950", "Ascend950"),
        ("Atlas A2 training", "Ascend910B1"), ("a2_training", "Ascend910B1"), ("Ascend 950PR/950DT", "ASCEND_950"),
    ],
)  # fmt: skip
def test_the_chip_is_called_by_its_name_however_it_was_spelled(said: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_chosen", None)
    anycann.set_product(said)
    assert products.soc_name() == name


@by_series
def test_the_name_of_the_chip_in_force(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "_chosen", None)
    for soc in series.socs:
        anycann.set_product(soc)
        assert products.soc_name() == soc
        assert products.current().series == series.name
    anycann.set_product(series.name)
    assert products.current().series == series.name
    name = products.soc_name()
    assert name
    if series.socs and not series.socs[0].startswith(("Ascend910_93", "Ascend950")):
        assert name in series.socs


ASK = "import anycann; from anycann import products; print(products.current().series, products.soc_name(), sep='|')"


def ask(program: str = ASK, **environment: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANYCANN_PRODUCT")}
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=clean | environment, check=False)


def test_the_default_product() -> None:
    assert ask().stdout == "Atlas A2 training|Ascend910B1\n"
    assert ask(ANYCANN_PRODUCT="").stdout == "Atlas A2 training|Ascend910B1\n"


@pytest.mark.parametrize(
    ("name", "series"), [("Ascend310P3", "Atlas inference"), ("Atlas 800I A2 inference",) * 2, ("Ascend910_9391", SERIES[5].name)]
)
def test_the_environment_chooses(name: str, series: str) -> None:
    result = ask(ANYCANN_PRODUCT=name)
    assert (result.returncode, result.stdout.split("|")[0]) == (0, series)


def test_set_product_wins_over_the_environment() -> None:
    result = ask("import anycann; anycann.set_product('Ascend910A'); " + ASK, ANYCANN_PRODUCT="Ascend310P3")
    assert result.stdout == "Atlas training|Ascend910A\n"


def test_a_wrong_environment_is_an_error_that_names_it_at_the_first_use() -> None:
    program = (
        "import numpy as np, anycann; x = np.ones(3, np.float32)\ntry:\n    anycann.gelu_backward_v2(x, x)\n"
        "except ValueError as error:\n    print(type(error).__name__, error)"
    )
    result = ask(program, ANYCANN_PRODUCT="Ascend9000")
    assert result.returncode == 0
    assert result.stdout.startswith("SettingError ANYCANN_PRODUCT: ")
    assert "Ascend9000" in result.stdout
    assert "Ascend910B1" in result.stdout


def test_the_environment_decides_what_an_operator_accepts() -> None:
    program = (
        "import numpy as np, ml_dtypes, anycann; x = np.ones(3, ml_dtypes.bfloat16)\ntry:\n    anycann.gelu_backward_v2(x, x)\n"
        "    print('accepted')\nexcept anycann.AclnnError as error:\n    print(error.status)"
    )
    assert ask(program, ANYCANN_PRODUCT="Ascend310P3").stdout == "161002\n"
    assert ask(program, ANYCANN_PRODUCT="Ascend310B1").stdout == "561003\n"
    assert ask(program).stdout == "accepted\n"
