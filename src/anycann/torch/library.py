"""torch.ops.anycann: every operator of `anycann.ops`, its schema, its shape function and its out variant made from its contract."""

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

import torch

from anycann import dtypes, ops, products
from anycann.bind import bind
from anycann.dtypes import DType
from anycann.runtime import Operator
from anycann.spec import Attr, Int, IntArray, OpSpec, Str
from anycann.spec import Tensor as Param
from anycann.tensor import Tensor

__all__ = ["ENTRIES", "LIBRARY", "Entry", "any_requires_grad"]

_LIBRARY: Any = torch.library.Library
LIBRARY: Any = _LIBRARY("anycann", "DEF")
DEVICES = ("CPU", "CUDA")  # what a device lacks, the operators themselves refuse
TAGS = (torch.Tag.pt2_compliant_tag,)


def _any_requires_grad(*args: Any, **named: Any) -> bool:
    return any(isinstance(value, torch.Tensor) and value.requires_grad for value in (*args, *named.values()))


any_requires_grad = torch._C._any_requires_grad if hasattr(torch._C, "_any_requires_grad") else _any_requires_grad  # torch 2.6 lacks it
_TYPES = {
    "int64_t": "SymInt",
    "bool": "bool",
    "float": "float",
    "double": "float",
    "char *": "str",
    "const aclIntArray *": "SymInt[]",
    "const aclBoolArray *": "bool[]",
}


class Entry:
    """One operator as torch sees it: the parameters of its Python function, with the types of its contract."""

    def __init__(self, operator: Operator) -> None:
        self.spec: OpSpec = operator.spec
        self.name = self.spec.python
        self.function: Callable[..., Any] = vars(ops)[self.name]
        signature = inspect.signature(self.function).parameters
        self.given: dict[str, Param | Attr] = {param.python: param for param in self.spec.params if param not in self.spec.outputs}
        self.parameters = {name: value for name, value in signature.items() if name in self.given}
        self.defaults = {name: self._default(name) for name, value in self.parameters.items() if value.default is not value.empty}
        self.positional = tuple([name for name, value in self.parameters.items() if value.kind is not value.KEYWORD_ONLY])
        self.outputs = ("out",) if len(self.spec.outputs) == 1 else tuple([param.python for param in self.spec.outputs])
        self.tensors = tuple([name for name in self.parameters if isinstance(self.given[name], Param)])

    @property
    def op(self) -> Any:
        """The overload without out arguments."""
        return getattr(torch.ops.anycann, self.name).default

    @property
    def out(self) -> Any:
        """The overload that writes into given tensors."""
        return getattr(torch.ops.anycann, self.name).out

    def _default(self, name: str) -> Any:
        param, default = self.given[name], self.parameters[name].default
        if isinstance(param, Attr) and default is not None and not isinstance(default, float):
            return param.convert(default, name, friendly=True)
        return default

    def schema(self, out: bool = False) -> str:
        """The schema of the functional or of the out overload."""
        words = []
        for name, value in self.parameters.items():
            if value.kind is value.KEYWORD_ONLY and "*" not in words:
                words.append("*")
            default = f"={_literal(self.defaults[name])}" if name in self.defaults else ""
            words.append(f"{self._type(name)} {name}{default}")
        if not out:
            returns = ", ".join(["Tensor"] * len(self.outputs))
            return f"{self.name}({', '.join(words)}) -> {returns if len(self.outputs) == 1 else f'({returns})'}"
        words += [] if "*" in words else ["*"]
        aliases = [f"Tensor({chr(ord('a') + place)}!)" for place in range(len(self.outputs))]
        words += [f"{alias} {name}" for alias, name in zip(aliases, self.outputs, strict=True)]
        returns = aliases[0] if len(aliases) == 1 else f"({', '.join(aliases)})"
        return f"{self.name}.out({', '.join(words)}) -> {returns}"

    def _type(self, name: str) -> str:
        param = self.given[name]
        absent = name in self.defaults and self.defaults[name] is None
        if isinstance(param, Param):
            return "Tensor?" if absent or param.optional else "Tensor"
        if isinstance(param, Int) and param.names:
            return "int"
        nullable = absent or isinstance(param, IntArray) or (isinstance(param, Str) and param.convert(None, name) is not None)
        return _TYPES[param.ctype] + ("?" if nullable else "")

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names, defaults included."""
        return {**self.defaults, **dict(zip(self.positional, args, strict=False)), **kwargs}

    def call(self, values: Mapping[str, Any]) -> Any:
        """Call the torch operator with arguments by their names."""
        return self.op(*[values[name] for name in self.positional], **{n: values[n] for n in self.parameters if n not in self.positional})

    def shapes(self, /, *args: Any, **kwargs: Any) -> Any:
        """The results of a call as empty tensors; refuses what the kernel refuses. For fake and meta tensors."""
        values = self.named(args, kwargs)
        like = next(values[name] for name in self.tensors if values[name] is not None)
        made: dict[str, Any] = {param.name: values.get(name) for param, name in zip(self.spec.outputs, self.outputs, strict=True)}
        tensors = {**{self.given[name].name: values[name] for name in self.tensors}, **made}
        attrs = {
            param.name: param.convert(values[name], name, friendly=True) for name, param in self.given.items() if isinstance(param, Attr)
        }
        several = len(self.outputs) > 1
        names = {param.name: param.python for param in self.spec.params}
        names |= {param.name: f"out[{i}] ({param.python})" if several else "out" for i, param in enumerate(self.spec.outputs)}

        def allocate(param: Param, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Tensor:
            made[param.name] = like.new_empty_strided(shape, strides, dtype=getattr(torch, dtype.name))
            return _described(made[param.name])

        described = {name: None if tensor is None else _described(tensor) for name, tensor in tensors.items()}
        product = products.current()
        api = f"anycann.{self.name}"
        bind(self.spec, described, attrs, api=api, product=product, names=names, superset=True, allocate=allocate)
        results = tuple(made.values())
        return results[0] if len(results) == 1 else results

    def kernel(self, /, *args: Any, **kwargs: Any) -> Any:
        """Compute. Below autograd it does not matter which tensors require gradients."""
        if any_requires_grad(*args, **kwargs):
            args = tuple([_plain(value) for value in args])
            kwargs = {name: _plain(value) for name, value in kwargs.items()}
        return self.function(*args, **kwargs)

    def kernel_out(self, /, *args: Any, **kwargs: Any) -> Any:
        """Compute into given tensors."""
        outs = tuple([kwargs.pop(name) for name in self.outputs])
        return self.kernel(*args, **kwargs, out=outs[0] if len(outs) == 1 else outs)

    def functionalized_out(self, /, *args: Any, **kwargs: Any) -> Any:
        """The out overload in a graph, which knows no memory: the operator, whose results are copied into the out tensors."""
        checked = self.shapes(*args, **kwargs)
        outs = [kwargs.pop(name) for name in self.outputs]
        found = self.op(*args, **kwargs)
        for out, result in zip(outs, found if isinstance(found, tuple) else (found,), strict=True):
            if result is not None:
                out.copy_(result)
        return checked


def _plain(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else value


def _described(tensor: torch.Tensor) -> Tensor:
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = dtypes.DTYPES.get(name) or dtypes.unknown(name, tensor.element_size())
    device = "cpu" if tensor.is_meta else str(tensor.device)
    return Tensor(0, dtype, tuple(tensor.shape), tuple(tensor.stride()), device=device)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    return f"[{', '.join(map(_literal, value))}]" if isinstance(value, (tuple, list)) else repr(value)


def _define(operator: Operator) -> Entry:
    entry = Entry(operator)
    LIBRARY.define(entry.schema(), tags=TAGS)
    LIBRARY.define(entry.schema(out=True), tags=TAGS)
    for device in DEVICES:
        LIBRARY.impl(entry.name, entry.kernel, device)
        LIBRARY.impl(f"{entry.name}.out", entry.kernel_out, device)
    LIBRARY.impl(f"{entry.name}.out", entry.functionalized_out, "Functionalize")
    torch.library.register_fake(f"anycann::{entry.name}", entry.shapes, lib=LIBRARY)
    torch.library.register_fake(f"anycann::{entry.name}.out", entry.shapes, lib=LIBRARY)
    return entry


ENTRIES: dict[str, Entry] = {operator.spec.python: _define(operator) for operator in ops.OPERATORS}
