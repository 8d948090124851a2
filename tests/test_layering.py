"""Imports point one way: leaves, tensors, specification, binding and backends, operators, doors; read from the sources with `ast`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import anycann

ROOT = Path(anycann.__file__).parent
DOORS = ("aclnn", "acl", "cabi", "torch", "ascendc")
ON_TOP = ("check", "bench", "cli")
LAYERS = {
    **dict.fromkeys(
        ("errors", "dtypes", "products", "caches", "buffers", "attributes", "axes", "toolchain", "locks", "floats", "cuda", "cuda_streams"),
        0,
    ),
    **dict.fromkeys(("tensor", "overlap", "dlpack"), 1),
    **dict.fromkeys(("spec", "torch_match"), 2),
    **dict.fromkeys(("bind", "describe", "keys", "streams", "backends"), 3),
    "plans": 4,
    "runtime": 5,
    "ops": 6,
    "executor": 6,
    "device": 7,
    **dict.fromkeys(DOORS, 8),
    **dict.fromkeys(ON_TOP, 9),
}
CORE = tuple(name for name, layer in LAYERS.items() if layer < 6 and name != "backends")
MAY_IMPORT_FROM_BACKENDS = {
    "plans": {"match"},  # how a repeated call is recognised
    "runtime": {"threads"},  # when its plan is out of date
}
OPERATORS = sorted(path.name for path in (ROOT / "ops").iterdir() if (path / "spec.py").exists())
FILES = {"__init__.py", "spec.py", "reference.py", "cpu.py"}
HELPERS = {
    "gelu_backward_v2": {"coefficients.py", "derivative.py", "pieces.py", "slopes.py", "tables.py"},
    "gelu_v2": {"coefficients.py", "tables.py", "value.py", "values.py"},
    "smooth_l1_loss_backward": {"norm.py"},
}
GPU_ONLY = {"gpu.py", "slopes.py", "values.py"}
SHARED = {  # what the contracts of a family have in common, beside their folders
    "column_sums": {"layer_norm_backward", "layer_norm_grad_beta"},
    "quotient": {"smooth_l1_loss", "smooth_l1_loss_backward"},
    "windows": {"nsa_compress", "nsa_compress_grad"},
}
COMPILERS = {"numba", "llvmlite", "cffi", "triton"}


def sources() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "include" not in path.parts)


def parts(path: Path) -> tuple[str, ...]:
    """The module of a file below the package: ("ops", "gelu_backward_v2", "cpu")."""
    relative = path.relative_to(ROOT).with_suffix("").parts
    return relative[:-1] if relative[-1] == "__init__" else relative


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def modules() -> set[str]:
    return {".".join(("anycann", *parts(path))) for path in sources()}


def imports(path: Path, top_level: bool = False) -> Iterator[str]:
    """Every module that a file imports, in full; functions that import included, blocks for type checkers left out."""
    known = modules()
    own = ("anycann", *parts(path))
    package = own if path.name == "__init__.py" else own[:-1]
    body = tree(path)
    for node in body.body if top_level else ast.walk(body):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*package[: len(package) - node.level + 1]] if node.level else []
            base += node.module.split(".") if node.module else []
            for alias in node.names:
                whole = ".".join((*base, alias.name))
                yield whole if whole in known else ".".join(base)


def own_imports(path: Path, top_level: bool = False) -> list[tuple[str, ...]]:
    return [tuple(name.split(".")[1:]) for name in imports(path, top_level) if name.split(".")[0] == "anycann"]


def foreign_imports(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imports(path)} - {"anycann", ""}


by_source = pytest.mark.parametrize("path", sources(), ids=lambda path: ".".join(parts(path)) or "anycann")


def test_every_module_has_a_layer() -> None:
    assert {parts(path)[0] for path in sources() if parts(path)} <= set(LAYERS)
    assert set(CORE) <= {parts(path)[0] for path in sources() if parts(path)}
    assert len(OPERATORS) >= 5


@by_source
def test_imports_go_down(path: Path) -> None:
    module = parts(path)
    if not module:
        return  # the package itself gathers the public names
    for other in own_imports(path):
        if not other:
            assert LAYERS[module[0]] >= LAYERS["ops"], f"{'.'.join(module)} imports the package that gathers it"
        elif other[0] == module[0]:
            continue
        else:
            assert LAYERS[other[0]] <= LAYERS[module[0]], f"{'.'.join(module)} imports {'.'.join(other)}"


@by_source
def test_backends_are_reached_by_operators_only(path: Path) -> None:
    module = parts(path)
    for other in own_imports(path):
        if other[:1] == ("backends",) and module[:1] not in ((), ("backends",), ("ops",), *((name,) for name in ON_TOP)):
            assert other[1] in MAY_IMPORT_FROM_BACKENDS.get(module[0], set()), f"{'.'.join(module)} imports {'.'.join(other)}"


@by_source
def test_doors_do_not_import_each_other(path: Path) -> None:
    module = parts(path)
    if module and module[0] in DOORS:
        assert not [other for other in own_imports(path) if other and other[0] in DOORS and other[0] != module[0]]
        assert not [other for other in own_imports(path) if other and other[0] in ON_TOP]


def test_no_circle_of_imports() -> None:
    arrows = {".".join(parts(path)): {".".join(other) for other in own_imports(path, top_level=True)} for path in sources()}
    arrows = {module: others & set(arrows) - {module, ""} for module, others in arrows.items()}
    while free := {module for module, others in arrows.items() if not others}:
        arrows = {module: others - free for module, others in arrows.items() if module not in free}
    left = {module: others for module, others in arrows.items() if module}
    assert not left


@by_source
def test_backends_know_no_operator(path: Path) -> None:
    if parts(path)[:1] != ("backends",):
        return
    assert not [other for other in own_imports(path) if other[:1] and LAYERS[other[0]] > LAYERS["spec"] and other[0] != "backends"]
    text = path.read_text(encoding="utf-8").lower().replace("_", "")
    assert not [name for name in ("gelu", "smoothl1", "layernorm", "moetoken", "nsacompress", "aclnn") if name in text]


def test_an_operator_is_a_folder_of_the_expected_files() -> None:
    for operator in OPERATORS:
        found = {path.name for path in (ROOT / "ops" / operator).iterdir() if path.name not in ("__pycache__", "gpu.py")}
        assert found == FILES | HELPERS.get(operator, set()), operator
    others = {path.name for path in (ROOT / "ops").iterdir() if path.name not in OPERATORS} - {"__pycache__"}
    assert others == {"__init__.py", *(f"{name}.py" for name in SHARED)}


def test_what_a_family_shares_is_used_by_all_of_it_and_no_other_operator() -> None:
    users: dict[str, set[str]] = {name: set() for name in SHARED}
    for path in sources():
        for other in own_imports(path):
            if other[:1] == ("ops",) and other[1:2] and other[1] in SHARED and parts(path)[0] == "ops":
                users[other[1]].add(parts(path)[1])
    assert users == SHARED
    assert all(set(own_imports(ROOT / "ops" / f"{name}.py")) <= {("spec",)} for name in SHARED)


@by_source
def test_files_of_an_operator_import_what_they_may(path: Path) -> None:
    module = parts(path)
    if module[:1] != ("ops",) or len(module) == 1:
        return
    here, family = module[:2], {("ops", name) for name, users in SHARED.items() if module[1] in users}
    for other in own_imports(path):
        if other in family and path.name != "__init__.py":
            continue
        if path.name == "spec.py":
            allowed = other in (("spec",), ("products",))
        elif path.name == "reference.py":
            allowed = other == (*here, "spec")
        elif path.name == "__init__.py":
            allowed = other in ((*here, "spec"), ("runtime",))
        else:
            own = ("gpu",) if path.name in GPU_ONLY else ("cpu", "threads")
            kernel = other[:1] == ("backends",) and (other[1].startswith(path.stem[:3]) or other[1] in own)
            language = "gpu" if path.name in GPU_ONLY else "cpu"
            helper = other[:1] == ("backends",) and other[1].startswith(language) and path.name not in FILES
            beside = other[:2] == here and other[2:] != ("reference",)
            allowed = kernel or helper or beside or other in (("bind",), ("spec",), ("tensor",))
        assert allowed, f"{'.'.join(module)} imports {'.'.join(other)}"


def test_backends_of_one_operator_do_not_import_each_other() -> None:
    for operator in OPERATORS:
        folder = ROOT / "ops" / operator
        backends = {path.stem for path in folder.glob("*.py")} & {"cpu", "gpu"}
        for backend in backends:
            others = {("ops", operator, other) for other in backends - {backend}}
            assert not others & set(own_imports(folder / f"{backend}.py"))


@by_source
def test_no_operator_imports_another(path: Path) -> None:
    module = parts(path)
    if module[:1] == ("ops",) and len(module) > 1:
        assert {other[1] for other in own_imports(path) if other[:1] == ("ops",) and len(other) > 1} <= {module[1], *SHARED}


@by_source
def test_references_are_for_checks(path: Path) -> None:
    module = parts(path)
    assert not [other for other in own_imports(path) if other[-1:] == ("reference",)]
    calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute) and node.attr == "reference"]
    assert not calls or module in (("runtime",), ("check", module[-1]))
    text = [node.value for node in ast.walk(tree(path)) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert not [value for value in text if value.endswith(".reference")] or module == ("runtime",)


@by_source
def test_third_party_packages_where_they_belong(path: Path) -> None:
    module, used = parts(path), foreign_imports(path)
    heavy = used & {"torch", "triton", "mpmath", "scipy", "typer", "rich", "click", "pytest", "hypothesis", *COMPILERS}
    if module[:1] in (("cli",), ("bench",)):
        allowed = {"typer", "rich", "torch", "numba", "llvmlite"}
    elif module[:1] == ("check",):
        allowed = {"mpmath"}
    elif module[:1] in (("torch",), ("cuda",)):
        allowed = {"torch"}
    elif module[:1] in (("cabi",), ("ascendc",)):
        allowed = {"cffi"}
    elif module[:1] == ("backends",) and module[-1:] != ("threads",):
        allowed = {"numba", "llvmlite"} if not module[-1].startswith("gpu") else {"triton", "torch"}
    elif module[:1] == ("ops",) and path.name not in ("spec.py", "reference.py", "__init__.py"):
        allowed = {"numba", "llvmlite"} if path.name not in GPU_ONLY else {"triton"}
    else:
        allowed = set()
    assert heavy <= allowed
    assert "scipy" not in used


@by_source
def test_nothing_is_hidden_in_the_sources(path: Path) -> None:
    """No assertion on what users pass, no bare except, no import that may fail in silence, no attribute of a composed name.

    The doctor may fail to import, which is what it reports; the programs on top may look a door's functions up by their names.
    """
    on_top = parts(path)[:1] in {(name,) for name in ON_TOP}
    for node in ast.walk(tree(path)):
        assert not isinstance(node, ast.Assert), f"line {getattr(node, 'lineno', 0)}: assert"
        if isinstance(node, ast.ExceptHandler):
            assert node.type is not None, f"line {node.lineno}: a bare except"
            caught = {one.id for one in ast.walk(node.type) if isinstance(one, ast.Name)}
            allowed = {"ImportError"} if parts(path) == ("cli", "doctor") else set()
            assert not caught & {"ImportError", "ModuleNotFoundError"} - allowed, f"line {node.lineno}: an import that may fail in silence"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and not on_top:
            assert not isinstance(node.args[1], (ast.JoinedStr, ast.BinOp)), f"line {node.lineno}: getattr of a composed name"


@by_source
def test_every_module_says_what_it_is(path: Path) -> None:
    assert (ast.get_docstring(tree(path)) or "").strip()
