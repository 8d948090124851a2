"""Plan, then run: an operator turns a checked call into a Plan, whose run only takes addresses."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from anycann import overlap, products
from anycann.bind import Call, Launch, bind
from anycann.describe import docstring
from anycann.dtypes import DType
from anycann.spec import Attr, OpSpec
from anycann.spec import Tensor as Param
from anycann.tensor import Tensor, from_array, memory, new_like

__all__ = ["ALIGNMENT", "Operator", "Plan", "aligned_bytes", "operator_of"]

ALIGNMENT = 64
F = TypeVar("F", bound=Callable[..., Any])


def aligned_bytes(size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Memory of `size` bytes that begins at a multiple of ALIGNMENT."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.__array_interface__["data"][0] % ALIGNMENT
    return room[start : start + size]


def _copy_of(tensor: Tensor) -> Tensor:
    """The same view of a copy of the memory that it spans."""
    low, high = tensor.bytes_touched()
    copy = memory(low, (high - low,), "|u1").copy()
    address: int = copy.__array_interface__["data"][0]
    return Tensor(address + tensor.start - low, tensor.dtype, tensor.shape, tensor.strides, owner=copy)


@dataclass(frozen=True, slots=True)
class Plan:
    """A call made ready: which kernel runs, over which layouts, with how much workspace. It holds no address."""

    spec: OpSpec
    workspace_size: int
    launch: Launch | None  # None: nothing to compute

    def run(self, operands: Sequence[Tensor], workspace: int) -> None:
        """Run on tensors laid out as planned; the workspace is `workspace_size` bytes. Inputs that outputs overlap are copied first."""
        if self.launch is None:
            return
        params = self.spec.tensors
        outputs = [tensor for param, tensor in zip(params, operands, strict=True) if param.output]
        addresses = []
        copies = []
        for param, tensor in zip(params, operands, strict=True):
            if not param.output and any(self._in_the_way(output, tensor) for output in outputs):
                tensor = _copy_of(tensor)
                copies.append(tensor)
            addresses.append(tensor.start)
        self.launch(addresses, -(-workspace // ALIGNMENT) * ALIGNMENT)

    def _in_the_way(self, output: Tensor, tensor: Tensor) -> bool:
        if self.spec.elementwise and overlap.same_elements(output, tensor):
            return False
        return overlap.between(output, tensor)


class Operator:
    """An operator: its contract, and the kernels in its folder."""

    def __init__(self, spec: OpSpec, package: str) -> None:
        self.spec, self.package = spec, package

    def plan(self, call: Call) -> Plan:
        """Choose the kernel and size the workspace. Empty outputs need neither."""
        if all(call[param.name].numel == 0 for param in self.spec.outputs):
            return Plan(self.spec, 0, None)
        size, launch = importlib.import_module(f"{self.package}.cpu").plan(call)
        return Plan(self.spec, size + ALIGNMENT if size else 0, launch)

    def reference(self) -> Callable[..., Any]:
        """The definition in float64, from the folder's reference.py: arrays and attributes in prototype order."""
        function: Callable[..., Any] = importlib.import_module(f"{self.package}.reference").reference
        return function

    def describes(self, function: F) -> F:
        """Make a function the public one of this operator: documented from the contract, found by `operator_of`."""
        function.__doc__ = docstring(self.spec)
        vars(function)["operator"] = self
        return function

    def __call__(self, *values: Any, out: Any = None, product: str | None = None) -> Any:
        """Call with inputs and attributes in prototype order; the results in their order, of the first array's kind."""
        spec, api = self.spec, f"anycann.{self.spec.python}"
        inputs: dict[str, Tensor | None] = {}
        attrs: dict[str, Any] = {}
        first: Any = None
        given = iter(values)
        for param in spec.params:
            if isinstance(param, Attr):
                attrs[param.name] = param.convert(next(given), param.python, friendly=True)
            elif not param.output:
                value = next(given)
                inputs[param.name] = None if value is None else from_array(value, param.python, api)
                first = value if first is None else first
        names = {param.name: param.python for param in spec.params}
        results, outputs = self._outputs(out, names, api)
        made: dict[str, Callable[[], Any]] = {}

        def allocate(param: Param, shape: tuple[int, ...], dtype: DType) -> Tensor:
            tensor, made[param.name] = new_like(first, shape, dtype)
            return tensor

        chosen = None if product is None else products.find(product)
        call = bind(spec, inputs | outputs, attrs, api=api, product=chosen, names=names, superset=True, allocate=allocate)
        plan = self.plan(call)
        workspace = np.empty(plan.workspace_size, np.uint8) if plan.workspace_size else None
        plan.run(call.tensors, 0 if workspace is None else workspace.__array_interface__["data"][0])
        finished = tuple(made[param.name]() if param.name in made else results[param.name] for param in spec.outputs)
        return finished[0] if len(finished) == 1 else finished

    def _outputs(self, out: Any, names: dict[str, str], api: str) -> tuple[dict[str, Any], dict[str, Tensor | None]]:
        """What the caller passed as out=, and its description; `names` learns how the caller spells outputs."""
        params = self.spec.outputs
        single = len(params) == 1
        if out is not None and not single and not (isinstance(out, (tuple, list)) and len(out) == len(params)):
            expected = ", ".join(param.python for param in params)
            raise TypeError(f"out of {api} must be a tuple ({expected}) of {len(params)} arrays or None; got {type(out).__name__}")
        values = (out,) if single else (None,) * len(params) if out is None else tuple(out)
        for i, param in enumerate(params):
            names[param.name] = "out" if single else f"out[{i}] ({param.python})"
        results = {param.name: value for param, value in zip(params, values, strict=True)}
        described = {name: None if value is None else from_array(value, names[name], api) for name, value in results.items()}
        return results, described


def operator_of(function: object) -> Operator | None:
    """The operator whose public function this is, or None."""
    return vars(function).get("operator") if callable(function) and hasattr(function, "__dict__") else None
