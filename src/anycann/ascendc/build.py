"""From a kernel source to a module whose kernels can be launched."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anycann.ascendc import toolchain
from anycann.ascendc.devices import device
from anycann.ascendc.diagnostics import GENERATED
from anycann.ascendc.launch import Kernel, load_kernels
from anycann.ascendc.objects import compile_unit, device_flags, include_line, preprocess
from anycann.ascendc.report import CompileError
from anycann.ascendc.sources import KernelSignature, find_kernels, without_library
from anycann.ascendc.tiling.structs import Struct, TilingData, describe, parse_definitions
from anycann.toolchain import ToolchainError

__all__ = ["Module", "build"]

_DTYPES = {
    "float32": ("float", "DT_FLOAT", 0),
    "float16": ("half", "DT_FLOAT16", 1),
    "int8": ("int8_t", "DT_INT8", 2),
    "int32": ("int32_t", "DT_INT32", 3),
    "uint8": ("uint8_t", "DT_UINT8", 4),
    "int16": ("int16_t", "DT_INT16", 6),
    "uint16": ("uint16_t", "DT_UINT16", 7),
    "uint32": ("uint32_t", "DT_UINT32", 8),
    "int64": ("int64_t", "DT_INT64", 9),
    "bfloat16": ("bfloat16_t", "DT_BF16", 27),
}


class Module:
    """A compiled source. Its kernels are attributes: module.name[blocks](...), or module["name<half>"] for instances of templates."""

    def __init__(self, kernels: Mapping[str, Kernel], tiling: Struct | None) -> None:
        self.kernels = dict(kernels)
        self.tiling = tiling

    def _find(self, name: str) -> Kernel | None:
        """The kernel of this name, with or without the namespaces that it is in where that is clear."""
        kernels: dict[str, Kernel] = self.__dict__.get("kernels", {})
        inside = [key for key in kernels if key.endswith(f"::{name}")]
        return kernels.get(name) or (kernels[inside[0]] if len(inside) == 1 else None)

    def _missing(self, name: str) -> str:
        return f"the module has no kernel {name!r}; it has {', '.join(self.__dict__.get('kernels', {}))}"

    def __getitem__(self, name: str) -> Kernel:
        found = self._find(name)
        if found is None:
            raise KeyError(self._missing(name))
        return found

    def __getattr__(self, name: str) -> Kernel:
        found = self._find(name)
        if found is None:
            raise AttributeError(self._missing(name))
        return found

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.kernels]


def _tiling_struct(tiling: Any) -> Struct | None:
    if tiling is None or isinstance(tiling, Struct):
        return tiling
    if isinstance(tiling, TilingData):
        return tiling.layout
    if isinstance(tiling, Mapping):
        return describe(tiling)
    if isinstance(tiling, tuple) and len(tiling) == 2:
        return parse_definitions(Path(tiling[0]).read_text(), tiling[1])
    if isinstance(tiling, (str, os.PathLike)):
        text = os.fspath(tiling)
        return parse_definitions(text if "\n" in text else Path(text).read_text())
    raise TypeError(
        f"tiling must be a mapping of fields, a host source (path or text), (path, struct name) or a Struct; got {type(tiling).__name__}"
    )


def _instances(
    path: Path, kernels: Sequence[KernelSignature], templates: Mapping[str, Sequence[str]]
) -> list[tuple[str, str, KernelSignature]]:
    """(key in the module, address in the unit, signature) of every kernel that is compiled."""
    known = {kernel.qualified for kernel in kernels if kernel.template}
    if unknown := [name for name in templates if name not in known]:
        raise ValueError(
            f"templates names {unknown[0]!r}, which is no template kernel here; template kernels: {', '.join(sorted(known)) or 'none'}"
        )
    if wrong := next((name for name, arguments in templates.items() if isinstance(arguments, str)), None):
        raise TypeError(f"templates[{wrong!r}] must be a list of instances, as in [{templates[wrong]!r}]; got a str")
    made = {key: alias for alias, key in _aliases(templates)}
    found = []
    for kernel in kernels:
        keys = [f"{kernel.qualified}<{one}>" for one in templates.get(kernel.qualified, ())] if kernel.template else [kernel.qualified]
        found += [(key, made.get(key, f"&{key}"), kernel) for key in keys]
    if not found and known:
        raise CompileError(
            f"{path}: only templates are kernels here: say which instances to make, as in templates={{{min(known)!r}: [...]}}", ""
        )
    if not found:
        raise CompileError(
            f'{path}: no kernel is defined here: a kernel is a function `extern "C" __global__ __aicore__ void name(...)`', ""
        )
    return found


def _aliases(templates: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    """(name of its address in the unit, key in the module) of every instance of a template: macros in its arguments are resolved there."""
    keys = [f"{name}<{one}>" for name, arguments in templates.items() for one in arguments]
    return [(f"anycann_instance_{number}", key) for number, key in enumerate(keys)]


def _dtype_flags(dtypes: Mapping[str, str]) -> list[str]:
    flags = [f"-D{name}={value}" for _, name, value in _DTYPES.values()] if dtypes else []
    for operand, dtype in dtypes.items():
        if dtype not in _DTYPES:
            raise ValueError(f"dtypes[{operand!r}] must be one of {', '.join(_DTYPES)}; got {dtype!r}")
        flags += [f"-DDTYPE_{operand.upper()}={_DTYPES[dtype][0]}", f"-DORIG_DTYPE_{operand.upper()}={_DTYPES[dtype][1]}"]
    return flags


def build(
    source: str | os.PathLike[str],
    *,
    tiling: Any = None,
    product: str | None = None,
    check: bool = True,
    sanitize: str | None = None,
    dtypes: Mapping[str, str] | None = None,
    templates: Mapping[str, Sequence[str]] | None = None,
    defines: Mapping[str, str] | None = None,
    include: Sequence[str | os.PathLike[str]] = (),
) -> Module:
    """Compile an Ascend C source (.cpp or .asc) for simulated cores; the result is cached by the content of all files involved.

    tiling: the struct behind GET_TILING_DATA: {"field": "uint32_t" | "float[4]" | "LayerNormGradBetaTiling" | {...}}, or host source with
        BEGIN_TILING_DATA_DEF (a path, its text, or (path, struct name)), or a header with the plain struct that the kernel includes.
    product: whose Unified Buffer and core count (default: the product in force).
    check: False does not look at what instructions read and write, and optimises harder; mistakes with queues, buffers, flags and
        parameters are still found.
    sanitize: "undefined" adds -fsanitize=undefined; "address" too, and needs LD_PRELOAD of libasan.
    dtypes: {"x": "float16"} defines DTYPE_X (and ORIG_DTYPE_X). templates: {"kernel": ["half, 2"]} instantiates template kernels.
    defines, include: further macros and folders.

    Raises CompileError for mistakes in the source, ToolchainError where there is no compiler, ValueError for a wrong description.

    >>> module = build("kernel.cpp", tiling={"n": "uint32_t"})       # doctest: +SKIP
    >>> module.my_kernel[8](x, y, {"n": 4096})                       # doctest: +SKIP
    """
    path = Path(source).resolve()
    layout, target, templates = _tiling_struct(tiling), device(product), templates or {}
    flags = [*device_flags(target, check, sanitize), *_dtype_flags(dtypes or {})]
    flags += [f"-D{name}={value}" for name, value in (defines or {}).items()] + [f"-I{Path(folder).resolve()}" for folder in include]
    if sanitize == "address" and "libasan" not in os.environ.get("LD_PRELOAD", ""):
        raise ToolchainError(
            'sanitize="address" needs the sanitizer loaded first: LD_PRELOAD=$(g++ -print-file-name=libasan.so) python ...'
        )
    unit = preprocess(_unit(path, layout, templates), path.parent, flags)
    kernels = find_kernels(without_library(unit, toolchain.INCLUDE)) or find_kernels(path.read_text(errors="replace"))
    instances = _instances(path, kernels, templates)  # as written where the source has a __global__ of its own
    library = toolchain.core_library(sanitize)
    made = compile_unit(unit + _table(instances), flags, ".so", link=[library])
    return Module(load_kernels(library, made, [(key, kernel) for key, _, kernel in instances], layout, target, check), layout)


def _unit(path: Path, layout: Struct | None, templates: Mapping[str, Sequence[str]]) -> str:
    lines = ["#include <cstdint>", '#include "emu/half.h"', '#include "kernel_tiling/kernel_tiling.h"']
    if layout is not None:
        lines.append(layout.declaration())
        if layout.emit or layout.name.startswith("LayerNorm"):
            lines.append(f"#define ANYCANN_TILING_TYPE {layout.name}")
    lines.append(include_line(path))
    if layout is not None:
        differs = "the tiling struct has another layout in the kernel than in the description"
        lines.append(f'static_assert(sizeof({layout.name}) == {layout.size}, "{differs}");')
    lines += ['#include "emu/launch.h"', '#line 1 "the argument templates"']
    lines += [f"static constexpr auto {alias} = &{key};" for alias, key in _aliases(templates)]
    return "\n".join(lines) + "\n"


def _table(instances: Sequence[tuple[str, str, KernelSignature]]) -> str:
    """What stands behind the preprocessed unit: the kernels by their keys."""
    entries = "\n".join(f'    anycann::emu::Entry<{address}>::Make("{key}"),' for key, address, _ in instances)
    table = "const anycann::emu::KernelEntry anycann_kernels[]"
    visible = f'extern "C" {{\nextern __attribute__((visibility("default"))) {table};\n{table} = {{\n{entries}\n}};\n}}\n'
    return f'# 1 "{GENERATED}"\n{visible}'
