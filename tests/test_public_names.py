"""The public names that programs rely on: exactly these, with these signatures, documented from the contract, with examples that run."""

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from typing import Any

import pytest

import anycann
from anycann import aclnn, ops, spec
from contract_facts import FACTS, Fact

Parameter = inspect.Parameter
NO = Parameter.empty
FUNCTIONS: dict[str, tuple[list[tuple[str, Any]], list[tuple[str, Any]]]] = {
    "gelu_backward_v2": ([("grad_output", NO), ("self", NO), ("approximate", "none")], []),
    "gelu_v2": ([("x", NO), ("approximate", "none")], []),
    "smooth_l1_loss": ([("self", NO), ("target", NO), ("reduction", "mean"), ("beta", 1.0)], []),
    "smooth_l1_loss_backward": ([("grad_out", NO), ("self", NO), ("target", NO), ("reduction", "mean"), ("beta", 1.0)], []),
    "layer_norm": ([("input", NO), ("normalized_shape", NO), ("weight", None), ("bias", None), ("eps", 1e-5)], []),
    "layer_norm_backward": (
        [
            *((name, NO) for name in ("grad_out", "input", "normalized_shape", "mean", "rstd")),
            *(("weight", None), ("bias", None), ("output_mask", (True, True, True))),
        ],
        [],
    ),
    "layer_norm_grad": (
        [*((name, NO) for name in ("input_dy", "input_x", "input_variance", "input_mean", "input_gamma")), ("epsilon", 1e-5)],
        [],
    ),
    "layer_norm_grad_beta": ([("res_for_gamma", NO), ("input_dy", NO)], []),
    "moe_token_permute": ([("tokens", NO), ("indices", NO), ("num_out_tokens", 0), ("padded_mode", False)], []),
    "moe_token_permute_grad": ([("permuted_output_grad", NO), ("sorted_indices", NO), ("num_topk", NO), ("padded_mode", False)], []),
    "moe_token_unpermute": (
        [("permuted_tokens", NO), ("sorted_indices", NO), ("probs", None), ("padded_mode", False), ("restore_shape", None)],
        [],
    ),
    "moe_token_unpermute_grad": (
        [
            *((name, NO) for name in ("permute_tokens", "unpermuted_tokens_grad", "sorted_indices")),
            *(("probs", None), ("padded_mode", False), ("restore_shape", None)),
        ],
        [],
    ),
    "nsa_compress": (
        [("input", NO), ("weight", NO), ("act_seq_len", NO)],
        [("layout", "TND"), ("compress_block_size", NO), ("compress_stride", NO), ("act_seq_len_type", 0)],
    ),
    "nsa_compress_grad": (
        [("output_grad", NO), ("input", NO), ("weight", NO), ("act_seq_len", None)],
        [("compress_block_size", NO), ("compress_stride", NO), ("act_seq_len_type", 0), ("layout", "TND")],
    ),
}
OTHERS = {"AclnnError", "set_product", "set_num_threads", "get_num_threads", "release_buffers"}
METHODS = {
    "aclnn.create_tensor": "view_dims, dtype, strides=None, offset=0, format='ND', storage_dims=None, data=None, device='cpu'",
    "aclnn.empty_workspace": "size, device='cpu'",
    "aclnn.Stream": "device='cpu'",
    "aclnn.Executor.set_repeatable": "self",
    "aclnn.Executor.set_input_address": "self, index, data",
    "aclnn.Executor.set_output_address": "self, index, data",
    "aclnn.Executor.destroy": "self",
    "aclnn.Stream.synchronize": "self, timeout_ms=None",
    "aclnn.Stream.wait_event": "self, event",
    "aclnn.Event.record": "self, stream=None",
    "aclnn.Event.elapsed_ms": "self, other",
    "set_product": "name",
    "set_num_threads": "n",
}
by_operator = pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.api)


def signature(function: Any) -> list[tuple[str, Any, Any]]:
    return [(one.name, one.kind, one.default) for one in inspect.signature(function).parameters.values()]


def operator_of(fact: Fact) -> Any:
    return next(operator for operator in ops.OPERATORS if operator.spec.name == fact.api)


def test_the_package_has_exactly_these_names() -> None:
    program = "import anycann\nfor name, value in vars(anycann).items():\n    print(name, type(value).__name__)"
    listed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout.split("\n")
    named = dict(line.split() for line in listed if line)
    public = {name for name, kind in named.items() if not name.startswith("_") and kind != "module"}
    assert public == set(FUNCTIONS) | OTHERS
    assert set(FUNCTIONS) == {fact.function for fact in FACTS}
    assert re.fullmatch(r"\d+\.\d+\.\d+", anycann.__version__)


def test_doors_are_there_without_an_import_of_their_own() -> None:
    program = (
        "import sys, anycann\n"
        "doors = 'aclnn', 'acl', 'ascendc'\n"
        "print(any(f'anycann.{door}' in sys.modules for door in doors), hasattr(anycann, 'door'), hasattr(anycann, 'os'))\n"
        "print(anycann.aclnn.Stream.__name__, anycann.acl.init.__name__, anycann.ascendc.build.__name__)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.split("\n") == ["False False False", "Stream init build", ""]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_of_the_operators(name: str) -> None:
    by_position, by_name = FUNCTIONS[name]
    expected = [(parameter, Parameter.POSITIONAL_OR_KEYWORD, default) for parameter, default in by_position]
    expected += [(parameter, Parameter.KEYWORD_ONLY, default) for parameter, default in (*by_name, ("out", None), ("product", None))]
    assert signature(getattr(anycann, name)) == expected


@pytest.mark.parametrize("name", METHODS)
def test_signatures_of_the_others(name: str) -> None:
    found: Any = anycann
    for part in name.split("."):
        found = getattr(found, part)
    made = [one.name if one.default is NO else f"{one.name}={one.default!r}" for one in inspect.signature(found).parameters.values()]
    assert ", ".join(made) == METHODS[name]
    assert (inspect.getdoc(found) or "").strip()


def test_the_exception() -> None:
    error = anycann.AclnnError(161002, "aclnnX", "text")
    assert isinstance(error, ValueError)
    assert (error.status, error.name, error.api) == (161002, "ACLNN_ERR_PARAM_INVALID", "aclnnX")
    assert "text" in str(error)


@by_operator
def test_parameters_derive_from_the_specification(fact: Fact) -> None:
    operator = operator_of(fact)
    parameters = [one for one in operator.spec.params if not getattr(one, "output", False)]
    found = inspect.signature(getattr(anycann, fact.function)).parameters
    assert [one.python for one in parameters] == [name for name in found if name not in ("out", "product")]
    assert [one.python for one in parameters] == [fact.python[name] for name in fact.parameters if name not in fact.outputs]
    for place, one in enumerate(parameters):
        default, later = found[one.python].default, [found[other.python] for other in parameters[place + 1 :]]
        obliged = any(other.default is NO and other.kind is Parameter.POSITIONAL_OR_KEYWORD for other in later)
        if isinstance(one, spec.Attr):
            assert (default is NO) == one.required
            assert default is NO or one.convert(default, one.python, friendly=True) == one.convert(one.default, one.python)
        else:
            assert default is (None if one.optional and not obliged else NO)


@by_operator
def test_the_specification_names_what_the_documentation_names(fact: Fact) -> None:
    contract = operator_of(fact).spec
    assert tuple(one.name for one in contract.params) == fact.parameters
    assert (contract.python, contract.two_phase) == (fact.function, "aclnn" in fact.doors)
    assert {product.series for product in contract.products} == fact.products
    assert tuple(one.name for one in contract.outputs) == fact.outputs


SECTIONS = ("Parameters:", "Returns:", "Raises:", "Accuracy:", "Notes:", "Example:", "Source: ")


def sections(text: str) -> dict[str, str]:
    """A docstring's sections by their titles; what comes before the first under an empty title."""
    found: dict[str, str] = {}
    title = ""
    for line in text.splitlines():
        title = next((one for one in SECTIONS if line.startswith(one)), title)
        found[title] = found.get(title, "") + line + "\n"
    return found


@by_operator
def test_docstrings_are_complete(fact: Fact) -> None:
    function = getattr(anycann, fact.function)
    text = inspect.getdoc(function) or ""
    parts = sections(text)
    assert list(parts) == ["", *SECTIONS]
    contract = operator_of(fact).spec
    assert parts[""].splitlines()[0].endswith(".")
    assert " = " in parts[""], "no formula"
    for name in (*fact.parameters, "out", "product"):
        spelled = fact.python.get(name, name)
        where = "Returns:" if name in fact.outputs else "Parameters:"
        shown = next(one.python for one in contract.params if one.name == name) if name in fact.parameters else spelled
        assert re.search(rf"^    {shown}: \S", parts[where], re.MULTILINE), (where, shown)
    for kind in fact.floats:
        assert kind in parts["Parameters:"]
    for code in (161001, 161002, 561003):
        assert str(code) in parts["Raises:"]
    assert ("561002" in parts["Raises:"]) == fact.function.startswith("nsa_compress")
    assert "TypeError" in parts["Raises:"]
    assert all(kind in parts["Accuracy:"] for kind in ("float16", "float32"))
    assert ">>> " in parts["Example:"]
    assert all(series in parts["Source: "] for series in fact.products)


@by_operator
def test_the_order_of_checks_in_a_docstring_is_the_documented_one(fact: Fact) -> None:
    lines = sections(inspect.getdoc(getattr(anycann, fact.function)) or "")["Raises:"].splitlines()
    codes = [int(found.group(1)) for line in lines if (found := re.match(r"\s+(\d{6}): ", line))]
    assert codes[0] == 161001
    assert codes[-1] == 561003
    assert codes.index(561103) < len(codes) - 1
    assert set(codes) <= {161001, 161002, 561002, 561003, 561103}


@by_operator
def test_both_phases_are_documented(fact: Fact) -> None:
    if "aclnn" not in fact.doors:
        assert not hasattr(aclnn, fact.api)
        return
    first, second = getattr(aclnn, f"{fact.api}GetWorkspaceSize"), getattr(aclnn, fact.api)
    assert (first.__name__, second.__name__) == (f"{fact.api}GetWorkspaceSize", fact.api)
    assert first.__module__ == second.__module__ == "anycann.aclnn"
    assert [name for name, _, _ in signature(first)] == [*fact.parameters, "product"]
    assert signature(first)[-1][1:] == (Parameter.KEYWORD_ONLY, None)
    assert [name for name, _, _ in signature(second)] == ["workspace", "workspace_size", "executor", "stream"]
    assert "workspace size" in (first.__doc__ or "")
    assert "executor" in (second.__doc__ or "")


def examples() -> list[doctest.DocTest]:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = []
    for module in ("anycann", *(f"anycann.{info.name}" for info in pkgutil.iter_modules(anycann.__path__))):
        if module.split(".")[-1] not in ("cli", "bench", "check", "torch", "acl", "cabi", "ascendc"):
            found += [test for test in finder.find(importlib.import_module(module), module) if test.examples]
    found += [test for operator in FUNCTIONS for test in finder.find(getattr(anycann, operator), operator) if test.examples]
    return found


@pytest.mark.parametrize("test", examples(), ids=lambda test: test.name)
def test_examples_run(test: doctest.DocTest) -> None:
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test, out=said.append, clear_globs=False)
    assert result.failed == 0, "".join(said)
    assert result.attempted > 0


def test_there_are_examples() -> None:
    names = {test.name for test in examples()}
    assert set(FUNCTIONS) <= names
    assert "anycann.aclnn" in names


MODULES = [
    "aclnn",
    "attributes",
    "axes",
    "bind",
    "buffers",
    "caches",
    "describe",
    "dlpack",
    "dtypes",
    "errors",
    "overlap",
    "products",
    "runtime",
    "spec",
    "streams",
    "tensor",
]


@pytest.mark.parametrize("name", MODULES)
def test_what_a_module_exports_exists_and_is_documented(name: str) -> None:
    module = importlib.import_module(f"anycann.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    for exported in module.__all__:
        value = getattr(module, exported)
        if inspect.isfunction(value) or (inspect.isclass(value) and value.__module__ == module.__name__):
            assert (value.__doc__ or "").strip() or name == "spec", f"{name}.{exported} has no docstring"
