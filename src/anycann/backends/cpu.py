"""Compiling CPU kernels: Numba without the GIL, and a disk cache that cannot run stale code.

Numba's own disk cache looks only at the file of the cached function. Ours keeps compiled kernels in a folder whose name
hashes every source file that kernels are made of, and the versions and CPU they were compiled for.
"""

import functools
import hashlib
import pickle
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite
import numba
from llvmlite.binding import ffi
from numba.core import config
from numba.core.codegen import CPUCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.core.compiler_lock import global_compiler_lock
from numba.core.typed_passes import InlineOverloads, NopythonRewrites
from numba.core.untyped_passes import InlineClosureLikes, InlineInlinables
from numba.extending import overload

from anycann import caches
from anycann.errors import SettingError
from anycann.locks import hold, loading

__all__ = ["Kernel", "apart", "by_tag", "by_types", "cache_folder", "device", "function", "kernel", "require_compiler"]

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

if hasattr(ffi.lib, "_lock"):  # who compiles takes this one within the other
    hold(ffi.lib._lock)
hold(global_compiler_lock)
hold(loading)

_CODEGEN_SETTINGS = ("CPU_NAME", "CPU_FEATURES", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "BOUNDSCHECK", "DEBUGINFO_DEFAULT")


@functools.cache
def _sources_digest() -> str:
    """Hash of every Python file in the folders that have kernels: whatever a kernel inlines is among them."""
    package = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for folder in ("backends", "bench", "ops"):
        for path in sorted((package / folder).rglob("*.py")):
            digest.update(f"{path.relative_to(package)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


def cache_folder(machine: tuple[str, ...]) -> Path:
    """The folder of kernels compiled for this machine (triple, CPU, features) from these sources with these tools."""
    tools = (platform.python_version(), numba.__version__, llvmlite.__version__)
    settings = tuple(str(getattr(config, name, None)) for name in _CODEGEN_SETTINGS)
    key = "\0".join((_sources_digest(), *tools, *machine, *settings))
    return caches.root() / "cpu" / hashlib.sha256(key.encode()).hexdigest()[:32]


@functools.cache
def _used(folder: Path) -> Path:
    """The folder, which this process uses from now on."""
    caches.use(folder)
    return folder


class _DiskCache:
    """What a Numba dispatcher asks of its cache."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = f"{function.__module__}.{function.__qualname__}"

    def path(self, signature: object, codegen: Any) -> Path:
        key = hashlib.sha256(f"{self.name}{signature}".encode()).hexdigest()[:16]
        return _used(cache_folder(tuple(str(part) for part in codegen.magic_tuple()))) / f"{self.name}-{key}.kernel"

    def load_overload(self, signature: object, target: Any) -> Any:
        target.refresh()
        data = caches.load(self.path(signature, target.codegen()))
        return None if data is None else CompileResult._rebuild(target, *pickle.loads(data))

    def save_overload(self, signature: object, result: Any) -> None:
        if result.library.has_dynamic_globals:
            raise RuntimeError(f"kernel {self.name} holds an address of this process and cannot be cached; pass it as an argument")
        caches.save(self.path(signature, result.codegen), pickle.dumps(result._reduce(), protocol=pickle.HIGHEST_PROTOCOL))


class _Codegen:
    """A code generator, for a function that has no machine code of its own in which its environment could be set."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, env: Any) -> None:
        """Do nothing."""


class _Inlined(CPUCodeLibrary):  # type: ignore[misc]
    """The LLVM code of a function that is only ever inlined: it is optimised in its callers, and no machine code is made of it."""

    @property
    def codegen(self) -> Any:
        return _Codegen(self._codegen)

    def get_pointer_to_function(self, name: str) -> int:
        """There is none."""
        return 0

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave it to the callers."""
        ll_module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        """Leave it to the callers."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _InlinedCompiler(Compiler):  # type: ignore[misc]
    """A compiler for functions without closures, arrays and what Numba itself would inline; looking for these takes a tenth of its time."""

    NEEDLESS = (InlineClosureLikes, InlineInlinables, InlineOverloads, NopythonRewrites)

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        super().__init__(typingctx, targetctx, library or _Inlined(targetctx.codegen(), "inlined"), *rest)

    def define_pipelines(self) -> list[Any]:
        """Numba's own, without what is needless."""
        pipelines: list[Any] = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.passes = [entry for entry in pipeline.passes if entry[0] not in self.NEEDLESS]
            pipeline.finalize()
        return pipelines


_INLINED = {"nogil": True, "error_model": "numpy", "forceinline": True, "pipeline_class": _InlinedCompiler}
_APART = {**_INLINED, "forceinline": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def require_compiler() -> None:
    """SettingError if Numba is told not to compile, or not to optimise, which leaves addresses of this process in kernels."""
    if config.DISABLE_JIT:
        raise SettingError("anycann's CPU kernels need Numba's compiler: unset NUMBA_DISABLE_JIT")
    if config.OPT == 0:
        raise SettingError("NUMBA_OPT must be 1, 2 or 3 for anycann's CPU kernels; got 0: unset it")


def by_types(made: Callable[..., R]) -> Callable[..., R]:
    """Remember what was made for Numba types, by the very objects, which Numba has one of each: their hashes are computed in Python."""
    known: dict[tuple[int, ...], tuple[R, tuple[object, ...]]] = {}

    def for_types(*types: object) -> R:
        key = tuple(map(id, types))
        found = known.get(key)
        if found is None:
            known[key] = found = made(*types), types  # kept, so that no other object is taken for one
        return found[0]

    return for_types


class Kernel:
    """A function compiled per tuple of Numba argument types; `for_types` gives the compiled entry, called with plain numbers.

    python: whether Python calls it; else compiled code does, by its `address`.
    """

    def __init__(self, function: Callable[..., Any], result: Any = numba.void, nogil: bool = True, python: bool = True) -> None:
        require_compiler()
        self.function = function
        self.result = result
        self.dispatcher = numba.njit(nogil=nogil, error_model="numpy", no_cpython_wrapper=not python, no_cfunc_wrapper=not python)(function)
        self.dispatcher._cache = _DiskCache(function)
        self.for_types = by_types(self._compile)
        self.address = by_types(self._address)

    def _compile(self, *types: object) -> Callable[..., Any]:
        entry: Callable[..., Any] = self.dispatcher.compile(self.result(*types))
        return entry

    def _address(self, *types: object) -> int:
        """Where the machine code is, which takes places for its result and for an error before its arguments; it stays there.

        Asked for once, as it takes a lock of llvmlite.
        """
        self.for_types(*types)
        compiled = self.dispatcher.overloads[types]
        place: int = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
        return place


def kernel(function: Callable[..., None]) -> Kernel:
    """Mark the outermost function of a kernel: arguments are addresses (intp), counts (intp), scalars and dtype tags; no result."""
    return Kernel(function)


def function(result: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Mark a short compiled function with a result, which keeps the GIL."""
    return lambda marked: Kernel(marked, result, nogil=False)


def device(function: F) -> F:
    """Mark a function that kernels call: compiled into them, always inlined by LLVM."""
    compiled: F = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_INLINED)(function)
    return compiled


def apart(function: F) -> F:
    """Mark a function that kernels call and that stays one of its own in them: not optimised again at every place where it is called."""
    compiled: F = numba.njit(**_APART)(function)
    return compiled


def by_tag(choose: F) -> F:
    """Mark what gives, of dtype tags and other argument types, the function that kernels then call; both have the same parameters."""

    def stub(*_: Any) -> Any:
        raise NotImplementedError(f"{choose.__name__} is called by kernels only")

    overload(stub, jit_options=_INLINED)(choose)
    made: F = functools.wraps(choose)(stub)  # type: ignore[assignment]
    return made
