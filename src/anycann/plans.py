"""Plans: calls made ready to run, which hold no address, and what recognises a call that is like a recent one."""

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from anycann import buffers, cuda, overlap
from anycann.bind import Call, Launch
from anycann.keys import SEQUENCES, SIMPLE
from anycann.locks import loading
from anycann.products import Product
from anycann.tensor import ABSENT, Tensor, address_of, maker_like, strides_like, torch_kinds
from anycann.torch_match import dispatch_modes, torch_matcher

__all__ = ["ALIGNMENT", "Plan", "Repeated", "aligned_bytes"]

ALIGNMENT = 64
SPARE = 1 << 14  # bytes of workspace that a thread keeps
MATCHED = 12  # arrays, as many as `backends.match` compares
G = TypeVar("G")
R = TypeVar("R")


def aligned_bytes(size: int) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Memory of `size` bytes that begins at a multiple of ALIGNMENT."""
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -address_of(room) % ALIGNMENT
    return room[start : start + size]


class _Spare(threading.local):
    memory: "tuple[np.ndarray[Any, Any], int] | None" = None  # and its address


_spare = _Spare()


class Plan:
    """A call made ready: which kernel runs, over which layouts, with how much workspace. It holds no address.

    Absent tensors, which `absent` marks if there are any, have a layout without elements and None in `results`.
    """

    def __init__(self, call: Call, workspace_size: int, launch: Launch | None, device: str = "cpu") -> None:
        self.spec = call.spec
        self.workspace_size = workspace_size
        self.launch = launch  # None: nothing to compute
        self._repeated: Repeated | None = None
        self._suits: bool | None = None  # whether calls can be recognised; None: not known yet
        self.device = device
        tensors, outputs = call.tensors, call.tensors[-len(self.spec.outputs) :]
        self._lie = [(tensor.dtype, tensor.shape, tensor.strides) for tensor in tensors]
        there = [i for i, tensor in enumerate(tensors) if tensor is not ABSENT]
        self.absent = () if len(there) == len(tensors) else tuple([tensor is ABSENT for tensor in tensors])
        self.results = tuple(
            [None if tensor is ABSENT else (tensor.shape, strides_like(tensor.shape, [tensor]), tensor.dtype) for tensor in outputs]
        )
        self.spans = spans = [tensor.bytes_spanned() for tensor in tensors]
        self.bytes = sum([high - low for low, high in spans])
        first = len(tensors) - len(outputs)
        inputs, written = [i for i in there if i < first], [i for i in there if i >= first]
        self._pairs = tuple([(*spans[i], *spans[o], i, o, self._may_coincide(i, o)) for o in written for i in inputs])
        pairs = [(i, o) for o in written for i in written if i < o]  # of outputs: they meet within a distance
        self._apart_at: list[int] = []  # addresses at which outputs are known to share no memory
        self._outputs = tuple([(spans[o][0] - spans[i][1], spans[o][1] - spans[i][0], i, o) for i, o in pairs])
        runner = getattr(launch, "runner", None)  # of a program, which looks for itself whether operands meet
        self._apart_at_once: Callable[[tuple[int, ...]], bool] | None = None if runner is None else runner(self._pairs)

    @functools.cached_property
    def layouts(self) -> tuple[Tensor, ...]:
        """The tensors without their memory: first elements at address 0."""
        return tuple([Tensor(0, *lies) for lies in self._lie])

    def _may_coincide(self, i: int, o: int) -> bool:
        return self.spec.elementwise and self._lie[i] == self._lie[o]

    def recognition(self, is_attr: tuple[bool, ...], values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> "Repeated | None":
        """What recognises calls like this one; made once, when a kept plan is used again. Calls of one plan have one kind of arrays."""
        if self._suits is None:
            self._suits = Repeated.suits(self, is_attr, values, outs)
            self._repeated = Repeated(self, is_attr, values, outs, product) if self._suits else None
        return self._repeated

    def outputs_meet(self, addresses: Sequence[int]) -> bool:
        """Whether two outputs share memory."""
        if not self._outputs or addresses == self._apart_at:
            return False
        for low, high, i, o in self._outputs:
            if low < addresses[i] - addresses[o] < high and overlap.between(*(self.layouts[k].at(addresses[k]) for k in (i, o))):
                return True
        self._apart_at = [*addresses]
        return False

    def run(self, addresses: Sequence[int], workspace: int) -> None:
        """Run on first elements at these addresses, laid out as planned, with `workspace_size` bytes of workspace.

        An input that an output overlaps is copied first, unless both are the same elements of an element-wise operator.
        """
        if self.launch is None or (self._apart_at_once and self._apart_at_once((*addresses, workspace))):
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
        self.lend_workspace(self.run, addresses)

    def lend_workspace(self, launch: Callable[[G, int], R], given: G) -> R:
        """launch(given, workspace): a small workspace is the thread's own, unless a signal's handler calls while that is in use."""
        if self.workspace_size == 0:
            return launch(given, 0)
        if self.workspace_size > SPARE or self.device != "cpu":
            _keep, workspace = self.workspace()
            return launch(given, workspace)
        spare, _spare.memory = _spare.memory, None
        if spare is None:
            room = aligned_bytes(SPARE)
            spare = room, address_of(room)
        result = launch(given, spare[1])
        _spare.memory = spare
        return result

    def workspace(self) -> tuple[object, int]:
        """New workspace: the object that owns it, and its address."""
        size = self.workspace_size
        if self.device != "cpu":
            return cuda.empty(size, self.device)
        owner = np.empty(size, np.uint8) if size < buffers.POOLED_FROM else buffers.empty((size,), np.dtype(np.uint8))
        return owner, -(-address_of(owner) // ALIGNMENT) * ALIGNMENT

    def _apart(self, addresses: Sequence[int]) -> tuple[list[Any], list[int]]:
        """Copies of the memory of inputs that share elements with an output, and the addresses to use."""
        places = [layout.at(address) for layout, address in zip(self.layouts, addresses, strict=True)]
        result, copies = list(addresses), []
        for _, _, _, _, i, o, may_coincide in self._pairs:
            if result[i] == addresses[i] and not (may_coincide and addresses[i] == addresses[o]) and overlap.between(places[i], places[o]):
                low, high = places[i].bytes_touched()
                copy, start = self._copied(low, high - low)
                copies.append(copy)
                result[i] = start + addresses[i] - low
        return copies, result

    def _copied(self, address: int, size: int) -> tuple[object, int]:
        if self.device != "cpu":
            return cuda.snapshot(address, size, self.device)
        copy = buffers.memory(address, (size,), "|u1").copy()
        return copy, address_of(copy)


class Repeated:
    """A recent call on NumPy arrays or torch tensors: the next one like it needs no key, only a comparison."""

    __slots__ = (
        "absent", "at_once", "fixed", "fixed_of", "kinds", "late", "launch", "light", "made", "makers", "match", "may_meet", "modes",
        "plan", "product", "run_alike", "sequences",
    )  # fmt: skip

    def __init__(self, plan: Plan, is_attr: tuple[bool, ...], values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> None:
        if plan.launch is None:
            raise RuntimeError("a plan without a kernel needs no recognition")
        self.plan, self.product = plan, product
        self.absent = plan.absent
        fixed = [i for i, (attr, value) in enumerate(zip(is_attr, values, strict=True)) if attr or value is None]
        self.fixed_of = _items(fixed)
        self.fixed = tuple([_kept(value) for value in self.fixed_of(values)])  # what must be as it was, in kind, too
        self.kinds = [*map(type, self.fixed)]
        self.sequences = tuple([(i, [*map(type, value)]) for i, value in enumerate(self.fixed) if type(value) in SEQUENCES])
        inputs = [i for i in range(len(values)) if i not in fixed]
        first = values[inputs[0]]
        self.made, self.may_meet = all(value is None for value in outs), False
        self.makers = tuple([_nothing if result is None else maker_like(first, *result) for result in plan.results]) if self.made else ()
        self.late = self.made and type(first) is not np.ndarray  # results are made once the inputs are known
        given = values + (() if self.late else self.new() if self.made else outs)
        nothing = [i for i in range(len(values), len(given)) if given[i] is None]
        arrays = inputs + [i for i in range(len(values), len(given)) if i not in nothing]
        self.launch: Launch
        self.match: Callable[[tuple[Any, ...]], Sequence[int] | None]
        self.run_alike: Callable[[tuple[Any, ...]], int] | None = None  # compares arrays and runs, in one step
        self.at_once: Callable[[tuple[Any, ...]], int] | None = None  # the same with attributes, which must be the very objects
        self.modes: Callable[[], int] | None = None  # how many of torch's dispatch modes are in force
        if type(first) is np.ndarray:
            with loading:
                from anycann.backends.match import Arrays, Matcher, Program

            there = [i for i, absent in enumerate(self.absent or (False,) * len(arrays)) if not absent]
            known = Arrays(given, arrays, len(inputs), there, plan.spans)
            matcher = Matcher(given, known, nothing)
            self.match, self.launch = matcher.addresses, plan.launch
            if isinstance(plan.launch, Program):
                self.run_alike = functools.partial(plan.lend_workspace, matcher.launch(plan.launch))
                if not self.made or max(out.nbytes for out in given[len(values) :] if out is not None) < buffers.POOLED_FROM:
                    exact = Matcher(given, known, nothing + fixed)
                    self.at_once = functools.partial(plan.lend_workspace, exact.launch(plan.launch))
        else:
            self.match = _picking(torch_matcher([given[i] for i in arrays]), arrays, nothing)
            self.launch = plan.launch if self.made else plan.run  # what is made overlaps nothing
            self.modes = dispatch_modes()
            self.may_meet = not self.made and len(outs) > 1
        self.light = self.at_once is not None or self.late or not self.made  # makes nothing large for calls that turn out to be others

    @staticmethod
    def suits(plan: Plan, is_attr: tuple[bool, ...], values: tuple[Any, ...], outs: tuple[Any, ...]) -> bool:
        """Whether calls like this one can be recognised: arrays of one kind, simple attributes, all outputs given or none."""
        arrays = {type(value) for attr, value in zip(is_attr, values, strict=True) if not (attr or value is None)}
        given = [value is not None for value in outs]
        there = len(plan.layouts) - sum(plan.absent)
        if plan.launch is None or there > MATCHED or (any(given) and given != [result is not None for result in plan.results]):
            return False
        arrays |= {type(value) for value in outs if value is not None}
        known = arrays == {np.ndarray} or arrays.issubset(torch_kinds())
        return known and all(_simple(value) for attr, value in zip(is_attr, values, strict=True) if attr)

    def new(self) -> tuple[Any, ...]:
        """Outputs for a call that brings none."""
        return tuple([make() for make in self.makers])

    def _outputs(self, outs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Those of a call like this one, new ones if it brings none; None if it is another."""
        if not self.made:
            return outs
        for value in outs:
            if value is not None:
                return None
        return self.new()

    def _alike(self, values: tuple[Any, ...], product: Product) -> bool:
        """Whether a call is like this one but for its tensors."""
        if product is not self.product or (self.modes is not None and self.modes()):
            return False
        given = self.fixed_of(values)
        if [*map(type, given)] != self.kinds:
            return False
        for place, kinds in self.sequences:  # before values are compared: what a caller put there may not like to be
            if [*map(type, given[place])] != kinds:
                return False
        return bool(given == self.fixed)

    def _located(self, values: tuple[Any, ...], outs: tuple[Any, ...]) -> tuple[Sequence[int], tuple[Any, ...]] | None:
        """The addresses and the outputs of a call whose tensors are like those of this one."""
        if self.late:
            inputs = self.match(values)
            results = None if inputs is None else self._outputs(outs)
            if inputs is None or results is None:
                return None
            return [*inputs, *[result.data_ptr() for result in results if result is not None]], results
        results = self._outputs(outs)
        addresses = None if results is None else self.match(values + results)
        return None if results is None or addresses is None else (addresses, results)

    def recognise(self, values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> tuple[Sequence[int], tuple[Any, ...]] | None:
        """The addresses and the outputs of a call like this one; None if it is another."""
        found = self._located(values, outs) if self._alike(values, product) else None
        if found is None:
            return None
        addresses, results = found
        if self.absent:
            following = iter(addresses)
            addresses = [0 if absent else next(following) for absent in self.absent]
        return None if self.may_meet and self.plan.outputs_meet(addresses) else (addresses, results)

    def run(self, values: tuple[Any, ...], outs: tuple[Any, ...], product: Product) -> tuple[Any, ...] | None:
        """Run a call like this one, and its outputs; None if it is another."""
        if self.at_once is not None and product is self.product:
            results = self._outputs(outs)
            found = 0 if results is None else self.at_once(values + results)
            if found >= 0:
                return results if found else None
        if self.run_alike is not None:  # attributes may be equal objects
            results = self._outputs(outs) if self._alike(values, product) else None
            return results if results is not None and self.run_alike(values + results) else None
        recognised = self.recognise(values, outs, product)
        if recognised is None:
            return None
        self.plan.lend_workspace(self.launch, recognised[0])
        return recognised[1]


def _items(places: Sequence[int]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
    """What takes the items at some places out of a tuple."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    first = slice(places[0], places[0] + 1) if places else slice(0)
    return operator.itemgetter(first)


def _picking(
    match: Callable[[Sequence[Any]], G | None], places: Sequence[int], nothing: Sequence[int]
) -> Callable[[tuple[Any, ...]], G | None]:
    """`match` for the items at some places of a tuple, which has None at others."""
    pick = _items(places)

    def matched(given: tuple[Any, ...]) -> G | None:
        for place in nothing:
            if given[place] is not None:
                return None
        return match(pick(given))

    return matched


def _nothing() -> None:
    """The result that is not computed."""


def _simple(value: Any) -> bool:
    """Whether an attribute can be recognised by comparison."""
    return type(value) in SIMPLE or (type(value) in SEQUENCES and all(type(item) in SIMPLE for item in value))


def _kept(value: Any) -> Any:
    """An attribute that nobody else changes."""
    return list(value) if type(value) is list else value
