"""Plan, then run: a checked call becomes a Plan, whose run only takes addresses. Plans of repeated calls are kept."""

import importlib
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np

from anycann import buffers, overlap, products
from anycann.bind import Call, Launch, bind
from anycann.describe import docstring
from anycann.dtypes import DType
from anycann.products import Product
from anycann.spec import Attr, OpSpec
from anycann.spec import Tensor as Param
from anycann.tensor import Tensor, address_of, from_array, memory, new_like, sketch, torch_matcher, torch_tensor

__all__ = ["ALIGNMENT", "Operator", "Plan", "Repeated", "aligned_bytes", "operator_of", "sketches"]

ALIGNMENT = 64
KEPT_PLANS = 512  # for each operator; the oldest goes first
MATCHED = 8  # arrays, as many as `backends.match` compares, and one to spare
_SIMPLE = (int, float, bool, str, type(None))
_TO_BE_MADE: tuple[tuple[Any, ...], Any] = ((), None)
F = TypeVar("F", bound=Callable[..., Any])


def aligned_bytes(size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Memory of `size` bytes that begins at a multiple of ALIGNMENT."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + size]


class Plan:
    """A call made ready: which kernel runs, over which layouts, with how much workspace. It holds no address."""

    def __init__(self, call: Call, workspace_size: int, launch: Launch | None) -> None:
        self.spec = call.spec
        self.workspace_size = workspace_size
        self.launch = launch  # None: nothing to compute
        self._repeated: Repeated | None = None
        self.layouts = tuple([tensor.layout() for tensor in call.tensors])
        self.results = tuple([(layout.shape, layout.dtype) for layout in self.layouts[-len(self.spec.outputs) :]])
        spans = [layout.bytes_touched() for layout in self.layouts]
        places = {output: [i for i, param in enumerate(self.spec.tensors) if param.output == output] for output in (False, True)}
        self.offsets = tuple([tensor.offset * tensor.dtype.itemsize for tensor in call.tensors])
        self._pairs = tuple([(*spans[i], *spans[o], i, o, self._may_coincide(i, o)) for o in places[True] for i in places[False]])
        self._outputs = tuple([(*spans[i], *spans[o], i, o) for o in places[True] for i in places[True] if i < o])

    def _may_coincide(self, i: int, o: int) -> bool:
        a, b = self.layouts[i], self.layouts[o]
        return self.spec.elementwise and (a.dtype, a.shape, a.strides) == (b.dtype, b.shape, b.strides)

    def recognition(self, is_attr: tuple[bool, ...], values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> "Repeated | None":
        """What recognises calls like this one; made once, when a kept plan is used again."""
        if self._repeated is None and Repeated.suits(self, is_attr, values, outs):
            self._repeated = Repeated(self, is_attr, values, outs, product)
        return self._repeated

    def outputs_meet(self, addresses: Sequence[int]) -> bool:
        """Whether two outputs share memory."""
        return any(
            addresses[i] + a < addresses[o] + d
            and addresses[o] + c < addresses[i] + b
            and overlap.between(self.layouts[i].at(addresses[i]), self.layouts[o].at(addresses[o]))
            for a, b, c, d, i, o in self._outputs
        )

    def run(self, addresses: Sequence[int], workspace: int) -> None:
        """Run on first elements at these addresses, laid out as planned, with `workspace_size` bytes of workspace.

        An input that an output overlaps is copied first, unless both are the same elements of an element-wise operator.
        """
        if self.launch is None:
            return
        for a, b, c, d, i, o, may_coincide in self._pairs:
            first, second = addresses[i], addresses[o]
            if first + a < second + d and second + c < first + b and not (may_coincide and first == second):
                copies, addresses = self._apart(addresses)
                self.launch(addresses, -(-workspace // ALIGNMENT) * ALIGNMENT)
                copies.clear()
                return
        self.launch(addresses, -(-workspace // ALIGNMENT) * ALIGNMENT)

    def run_with_workspace(self, addresses: Sequence[int]) -> None:
        """`run` with a workspace of its own."""
        if self.workspace_size:
            _keep, workspace = self.workspace()
            self.run(addresses, workspace)
        else:
            self.run(addresses, 0)

    def workspace(self) -> tuple[object, int]:
        """New workspace: the object that owns it, and its address."""
        size = self.workspace_size
        owner = np.empty(size, np.uint8) if size < buffers.POOLED_FROM else buffers.empty((size,), np.dtype(np.uint8))
        return owner, -(-address_of(owner) // ALIGNMENT) * ALIGNMENT

    def _apart(self, addresses: Sequence[int]) -> tuple[list[Any], list[int]]:
        """Copies of the memory of inputs that share elements with an output, and the addresses to use."""
        places = [layout.at(address) for layout, address in zip(self.layouts, addresses, strict=True)]
        result, copies = list(addresses), []
        for _, _, _, _, i, o, may_coincide in self._pairs:
            if result[i] == addresses[i] and not (may_coincide and addresses[i] == addresses[o]) and overlap.between(places[i], places[o]):
                low, high = places[i].bytes_touched()
                copies.append(memory(low, (high - low,), "|u1").copy())
                result[i] = address_of(copies[-1]) + addresses[i] - low
        return copies, result


class Repeated:
    """The latest call on NumPy arrays or torch tensors: the next one like it needs no key, only a comparison."""

    __slots__ = ("attrs", "is_attr", "launch", "like", "made", "match", "plan", "product")

    def __init__(self, plan: Plan, is_attr: tuple[bool, ...], values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> None:
        if plan.launch is None:
            raise RuntimeError("a plan without a kernel needs no recognition")
        self.plan, self.is_attr, self.product = plan, is_attr, product
        self.attrs = tuple([value if attr else None for attr, value in zip(is_attr, values, strict=True)])
        inputs = [value for attr, value in zip(is_attr, values, strict=True) if not attr]
        self.made, self.like = outs[0] is None, inputs[0]
        arrays = [*inputs, *(self.new() if self.made else outs)]
        self.launch: Launch
        self.match: Callable[[Sequence[Any]], Sequence[int] | None]
        if type(inputs[0]) is np.ndarray:
            from anycann.backends.match import matcher

            self.match, self.launch = matcher(arrays, len(inputs)), plan.launch
            self.like = inputs[0][:0].copy() if inputs[0].ndim else inputs[0].copy()
        else:
            self.match, self.launch = torch_matcher(arrays), plan.run
            self.like = inputs[0].new_empty(0)

    @staticmethod
    def suits(plan: Plan, is_attr: tuple[bool, ...], values: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
        """Whether calls like this one can be recognised: arrays of one kind, simple attributes, all outputs given or none."""
        inputs = {type(value) for attr, value in zip(is_attr, values, strict=True) if not attr}
        kinds = {type(value) for value in outs}
        if plan.launch is None or len(plan.layouts) >= MATCHED or len(inputs) != 1 or kinds not in (inputs, {type(None)}):
            return False
        kind = inputs.pop()
        known = kind is np.ndarray or (kind is torch_tensor() and len(outs) == 1)
        return known and all(type(value) in _SIMPLE for attr, value in zip(is_attr, values, strict=True) if attr)

    def new(self) -> tuple[Any, ...]:
        """Outputs for a call that brings none."""
        return tuple([new_like(self.like, shape, dtype)[0] for shape, dtype in self.plan.results])

    def recognise(self, values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> tuple[Sequence[int], tuple[Any, ...]] | None:
        """The addresses and the outputs of a call like the latest one; None if it is another."""
        if product is not self.product:
            return None
        arrays = []
        for attr, known, value in zip(self.is_attr, self.attrs, values, strict=True):
            if not attr:
                arrays.append(value)
            elif value is not known and (type(value) is not type(known) or value != known):
                return None
        if self.made:
            if any(value is not None for value in outs):
                return None
            outs = self.new()
        found = self.match((*arrays, *outs))
        return None if found is None else (found, outs)


class Operator:
    """An operator: its contract, the kernels in its folder, and the plans of its recent calls."""

    def __init__(self, spec: OpSpec, package: str) -> None:
        self.spec, self.package = spec, package
        self.api = f"anycann.{spec.python}"
        self._given: tuple[Param | Attr, ...] = tuple([param for param in spec.params if isinstance(param, Attr) or not param.output])
        self.is_attr = tuple([isinstance(param, Attr) for param in self._given])
        self._single = len(spec.outputs) == 1
        self._known: dict[Hashable, Plan] = {}
        self.latest: dict[str, Repeated | None] = {}  # what recognises the latest call, by the name of the function that was called
        self._lock = threading.Lock()

    def plan(self, call: Call) -> Plan:
        """Choose the kernel and size the workspace. Empty outputs need neither."""
        if all(call[param.name].numel == 0 for param in self.spec.outputs):
            return Plan(call, 0, None)
        size, launch = importlib.import_module(f"{self.package}.cpu").plan(call)
        return Plan(call, size + ALIGNMENT if size else 0, launch)

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
        with self._lock:
            if len(self._known) >= KEPT_PLANS:
                self._known.pop(next(iter(self._known)))
            self._known[key] = plan

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
        chosen = products.current() if product is None else products.find(product)
        outs = (out,) if self._single else self._tuple_of_outputs(out)
        last = self.latest.get(self.api)
        if last is not None:
            found = last.recognise(values, outs, chosen)
            if found is not None:
                if last.plan.workspace_size:
                    _keep, workspace = last.plan.workspace()
                    last.launch(found[0], workspace)
                else:
                    last.launch(found[0], 0)
                return found[1][0] if self._single else found[1]
        described = sketches(self.is_attr, values, outs, chosen)
        plan = None if described is None else self.known(described[0])
        if described is None or plan is None:
            return self._checked(values, outs, chosen, None if described is None else described[0])
        self.latest[self.api] = plan.recognition(self.is_attr, values, outs, chosen)
        addresses = described[1]
        if None in addresses:
            made = [new_like(values[0], *like)[0] for like in plan.results]
            outs = tuple([new if value is None else value for value, new in zip(outs, made, strict=True)])
            addresses[-len(outs) :] = [address_of(value) for value in outs]
        if plan.outputs_meet(addresses):
            return self._checked(values, outs, chosen, None)
        plan.run_with_workspace(addresses)
        return outs[0] if self._single else outs

    def _checked(self, values: tuple[Any, ...], outs: tuple[Any, ...], product: Product, key: Hashable) -> Any:
        """The call as if it were the first of its kind."""
        spec, api = self.spec, self.api
        names = {param.name: param.python for param in spec.params}
        names |= {param.name: "out" if self._single else f"out[{i}] ({param.python})" for i, param in enumerate(spec.outputs)}
        attrs: dict[str, Any] = {}
        tensors: dict[str, Tensor | None] = {}
        for param, value in zip(self._given + spec.outputs, values + outs, strict=True):
            if isinstance(param, Attr):
                attrs[param.name] = param.convert(value, param.python, friendly=True)
            else:
                tensors[param.name] = None if value is None else from_array(value, names[param.name], api)
        first = next((value for param, value in zip(self._given, values, strict=True) if not isinstance(param, Attr)), None)
        results = dict(zip((param.name for param in spec.outputs), outs, strict=True))
        finish: list[Callable[[], None]] = []

        def allocate(param: Param, shape: tuple[int, ...], dtype: DType) -> Tensor:
            made, handed = new_like(first, shape, dtype)
            results[param.name] = made

            def hand_over() -> None:
                results[param.name] = handed(made)

            finish.append(hand_over)
            return from_array(made, param.python)

        call = bind(spec, tensors, attrs, api=api, product=product, names=names, superset=True, allocate=allocate)
        plan = self.plan(call)
        if key is not None:
            self.keep(key, plan)
        plan.run_with_workspace([tensor.start for tensor in call.tensors])
        for hand_over in finish:
            hand_over()
        finished = tuple(results.values())
        return finished[0] if self._single else finished

    def _tuple_of_outputs(self, out: Any) -> tuple[Any, ...]:
        params = self.spec.outputs
        if out is None:
            return (None,) * len(params)
        if isinstance(out, (tuple, list)) and len(out) == len(params):
            return tuple(out)
        expected = ", ".join(param.python for param in params)
        raise TypeError(f"out of {self.api} must be a tuple of {len(params)} arrays ({expected}); got {type(out).__name__}")


def sketches(
    is_attr: Sequence[bool], values: Sequence[Any], outs: Sequence[Any], product: Product
) -> tuple[tuple[Any, ...], list[Any]] | None:
    """A key that says all of a call that its plan depends on, and the addresses of its tensors (None for outputs to be made).

    None where a value is of a kind that only the full path understands.
    """
    key: list[Any] = [product]
    addresses: list[Any] = []
    for attr, value in zip(is_attr, values, strict=True):
        if attr:
            kind = type(value)
            if kind is list or kind is tuple:
                key.append(tuple([type(item) for item in value]))
                value = tuple(value)
            key += (kind, value)
        else:
            known = sketch(value)
            if known is None:
                return None
            key.append(known[0])
            addresses.append(known[1])
    for value in outs:
        known = _TO_BE_MADE if value is None else sketch(value)
        if known is None:
            return None
        key.append(known[0])
        addresses.append(known[1])
    return tuple(key), addresses


def operator_of(function: object) -> Operator | None:
    """The operator whose public function this is, or None."""
    return vars(function).get("operator") if callable(function) and hasattr(function, "__dict__") else None
