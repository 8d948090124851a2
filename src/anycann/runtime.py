"""Operators: a checked call becomes a plan, which runs. Plans of repeated calls are kept."""

import functools
import importlib
import importlib.util
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

from anycann import products
from anycann.backends.threads import when_changed
from anycann.bind import Call, bind
from anycann.describe import docstring
from anycann.dtypes import DType
from anycann.errors import AclnnError
from anycann.floats import in_usual_floats
from anycann.keys import Describer, describer, sketches
from anycann.locks import loading, shared
from anycann.plans import ALIGNMENT, Plan, Repeated
from anycann.products import Product
from anycann.spec import Attr, OpSpec
from anycann.spec import Tensor as Param
from anycann.tensor import ABSENT, Tensor, address_of, from_array, new_like
from anycann.torch_match import note_written

__all__ = ["Operator", "operator_of"]

KEPT_PLANS = 512  # for each operator; the oldest goes first
RECENT = 8  # calls of an operator that are recognised without a key, for each kind of its first tensor
RECENT_SHAPES = 64  # of which there are so many
F = TypeVar("F", bound=Callable[..., Any])


class Operator:
    """An operator: its contract, the kernels in its folder, and the plans of its recent calls."""

    def __init__(self, spec: OpSpec, package: str) -> None:
        self.spec, self.package = spec, package
        self.api = f"anycann.{spec.python}"
        self._given: tuple[Param | Attr, ...] = tuple([param for param in spec.params if isinstance(param, Attr) or not param.output])
        self.is_attr = tuple([isinstance(param, Attr) for param in self._given])
        self.inputs, self._count = len(self._given), len(spec.outputs)  # attributes among the first
        self._leading = next(i for i, param in enumerate(self._given) if isinstance(param, Param) and not param.optional)
        self._single = self._count == 1
        self.described: Describer = self._describe  # what a call on descriptors says, and where
        self._modules: dict[str, Any] = {}  # of kernels, by their backend
        self._known: dict[Hashable, Plan] = {}
        self._recent: dict[tuple[str, Any, Any], tuple[Repeated, ...]] = {}  # what recognises recent calls, by the function and a tensor
        self._latest: Repeated | None = None  # what recognised the call before, if it is light
        when_changed(self.forget)

    def _describe(self, *given: Any) -> tuple[Hashable, list[int]]:
        """The first call of `described`: to write it for all operators took a tenth of the time of the import."""
        self.described = describer(self.spec)
        return self.described(*given)

    def forget(self) -> None:
        """Forget all plans, which may depend on the number of threads."""
        with shared:
            self._known.clear()
            self._recent.clear()
            self._latest = None

    def plan(self, call: Call, backend: str | None = None) -> Plan:
        """Choose the kernel, "cpu" or "gpu" by where the tensors are, and size the workspace. Empty outputs need neither."""
        device = _device({param.name: tensor for param, tensor in zip(self.spec.tensors, call.tensors, strict=True)}, {}, self.spec.name)
        if all(tensor.numel == 0 for tensor in call.tensors[-len(self.spec.outputs) :]):
            return Plan(call, 0, None, device)
        size, launch = self._kernels(backend or ("cpu" if device == "cpu" else "gpu")).plan(call)
        return Plan(call, size + ALIGNMENT if size else 0, launch, device)

    def has_kernels(self, backend: str) -> bool:
        """Whether there are kernels for a backend, "cpu" or "gpu"."""
        return importlib.util.find_spec(f"{self.package}.{backend}") is not None

    def _kernels(self, backend: str) -> Any:
        """The module of the kernels for a backend. Imported once: Python 3.10 does not import in what interrupts an import."""
        known = self._modules.get(backend)
        if known is not None:
            return known
        if backend == "gpu":
            if not self.has_kernels("gpu"):
                raise NotImplementedError(
                    f"{self.api} has no kernel for CUDA devices in this version: pass CPU tensors, as .cpu() makes them"
                )
            if importlib.util.find_spec("triton") is None:
                raise RuntimeError(f"{self.api} runs on CUDA devices with Triton, which is not installed: pip install 'anycann[gpu]'")
        with loading:
            self._modules[backend] = found = importlib.import_module(f"{self.package}.{backend}")
        return found

    def known(self, key: Hashable) -> Plan | None:
        """The plan of an earlier call that was described by the same key."""
        try:
            return self._known.get(key)
        except TypeError:  # an attribute that cannot be hashed
            return None

    def keep(self, key: Hashable, plan: Plan) -> None:
        """Remember a plan for calls with the same description."""
        try:
            hash(key)
        except TypeError:
            return
        with shared:
            if len(self._known) >= KEPT_PLANS:
                self._known.pop(next(iter(self._known)), None)  # which a handler may have dropped meanwhile
            self._known[key] = plan

    def recent(self, api: str, values: tuple[Any, ...]) -> Sequence[Repeated]:
        """What may recognise a call of one of the operator's functions, by its first tensor alone; the latest first."""
        first = values[self._leading]
        try:
            return self._recent.get((api, first.shape, first.dtype), ())
        except (AttributeError, TypeError):  # no array, or one whose sizes a graph does not know
            return ()

    def remember(self, api: str, values: tuple[Any, ...], call: Repeated | None) -> None:
        """Recognise calls like this one from now on."""
        if call is None:
            return
        first = values[self._leading]
        looks = api, first.shape, first.dtype
        with shared:
            known = self._recent.pop(looks, ())
            self._recent[looks] = known if call in known else (call, *known[: RECENT - 1])
            if len(self._recent) > RECENT_SHAPES:
                self._recent.pop(next(iter(self._recent)), None)

    def reference(self) -> Callable[..., Any]:
        """The definition in float64, from the folder's reference.py: arrays and attributes in prototype order."""
        function: Callable[..., Any] = importlib.import_module(f"{self.package}.reference").reference
        return function

    def describes(self, function: F) -> F:
        """Make a function the public one of this operator: documented from the contract, found by `operator_of`."""
        function.__doc__ = docstring(self.spec)
        reason = f"{self.api} only sees memory: import anycann.torch and call torch.ops.anycann.{self.spec.python} in compiled code"
        vars(function).update(operator=self, _torchdynamo_disable=True, _torchdynamo_disable_msg=reason)  # of torch.compile
        return function

    def call(self, *values: Any, out: Any = None, product: str | None = None) -> Any:
        """Call with inputs and attributes in prototype order; the results in their order, of the first array's kind."""
        chosen = products.current() if product is None else products.find(product)
        outs = (out,) if self._single else out if type(out) is tuple and len(out) == self._count else self._tuple_of_outputs(out)
        latest = self._latest
        results = None if latest is None else latest.run(values, outs, chosen)
        if results is None:
            results = self._computed(values, outs, chosen, latest)
        if out is not None:
            note_written(outs)
        return results[0] if self._single else results

    def _computed(self, values: tuple[Any, ...], outs: tuple[Any, ...], chosen: Product, tried: Repeated | None) -> tuple[Any, ...]:
        for last in self.recent(self.api, values):
            results = None if last is tried else last.run(values, outs, chosen)
            if results is not None:
                self._latest = last if last.light else None
                return results
        described = sketches(self.is_attr, values, outs, chosen)
        plan = None if described is None else self.known(described[0])
        if described is None or plan is None:
            return self._checked(values, outs, chosen, None if described is None else described[0])
        self.remember(self.api, values, plan.recognition(self.is_attr, values, outs, chosen))
        addresses = described[1]
        if 0 in addresses:
            outs = self._with_results(values, outs, plan)
            addresses[-len(outs) :] = [0 if value is None else address_of(value) for value in outs]
        elif plan.absent:
            outs = self._with_results(values, outs, plan)
        if plan.outputs_meet(addresses):
            return self._checked(values, outs, chosen, None)
        plan.run_with_workspace(addresses)
        return outs

    def _first(self, values: tuple[Any, ...]) -> Any:
        """The first array of a call, whose kind the results have."""
        return next((value for attr, value in zip(self.is_attr, values, strict=True) if not attr and value is not None), None)

    def _with_results(self, values: tuple[Any, ...], outs: tuple[Any, ...], plan: Plan) -> tuple[Any, ...]:
        """The outputs of a call: new ones where none was passed, None where none is computed."""
        like = self._first(values)
        chosen = zip(outs, plan.results, strict=True)
        return tuple([None if result is None else new_like(like, *result)[0] if out is None else out for out, result in chosen])

    @in_usual_floats
    def _checked(self, values: tuple[Any, ...], outs: tuple[Any, ...], product: Product, key: Hashable) -> tuple[Any, ...]:
        """The call as if it were the first of its kind."""
        spec, api = self.spec, self.api
        names = _spellings(spec)
        attrs: dict[str, Any] = {}
        tensors: dict[str, Tensor | None] = {}
        for param, value in zip(self._given + spec.outputs, values + outs, strict=True):
            if isinstance(param, Attr):
                attrs[param.name] = param.convert(value, param.python, friendly=True)
            else:
                tensors[param.name] = None if value is None else from_array(value, names[param.name], api)
        device = _device(tensors, names, api)
        first = self._first(values)
        results = dict(zip((param.name for param in spec.outputs), outs, strict=True))
        finish: list[Callable[[], None]] = []

        def allocate(param: Param, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType) -> Tensor:
            made, handed = new_like(first, shape, strides, dtype, device)
            results[param.name] = made

            def hand_over() -> None:
                results[param.name] = handed(made)

            finish.append(hand_over)
            return from_array(made, param.python, api)

        call = bind(spec, tensors, attrs, api=api, product=product, names=names, superset=True, allocate=allocate)
        plan = self.plan(call)
        if key is not None:
            self.keep(key, plan)
        plan.run_with_workspace([tensor.start for tensor in call.tensors])
        for hand_over in finish:
            hand_over()
        return tuple([None if result is None else value for value, result in zip(results.values(), plan.results, strict=True)])

    def _tuple_of_outputs(self, out: Any) -> tuple[Any, ...]:
        params = self.spec.outputs
        if out is None:
            return (None,) * len(params)
        if isinstance(out, (tuple, list)) and len(out) == len(params):
            return tuple(out)
        expected = ", ".join(param.python for param in params)
        raise TypeError(f"out of {self.api} must be a tuple of {len(params)} arrays ({expected}); got {type(out).__name__}")


@functools.cache
def _spellings(spec: OpSpec) -> Mapping[str, str]:
    """The parameters as the callers of the Python functions spell them."""
    outs = {param.name: f"out[{i}] ({param.python})" for i, param in enumerate(spec.outputs)}
    return {param.name: param.python for param in spec.params} | (dict.fromkeys(outs, "out") if len(outs) == 1 else outs)


def _device(tensors: Mapping[Any, Tensor | None], names: Mapping[Any, str], api: str) -> str:
    """The one device that all tensors of a call are on."""
    there = {name: tensor.device for name, tensor in tensors.items() if tensor is not None and tensor is not ABSENT}
    if len(set(there.values())) > 1:
        listed = ", ".join(f"{names.get(name, name)} on {device}" for name, device in there.items())
        raise AclnnError(161002, api, f"tensors must be on one device; got {listed}. Move them with .to(device).")
    return next(iter(there.values()), "cpu")


def operator_of(function: object) -> Operator | None:
    """The operator whose public function this is, or None."""
    return vars(function).get("operator") if callable(function) and hasattr(function, "__dict__") else None
