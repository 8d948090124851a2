"""Sample inputs and error inputs of the torch operators, made from `contract_facts`: hundreds for every operator, none written by hand."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import torch

import anycann
from anycann.torch import library
from contract_calls import Call, Draft, home, sample
from contract_facts import FACTS, INT64, NOT_IN_NUMPY, Fact
from test_refusals import faults

ENTRIES = library.ENTRIES
HAVE = tuple(fact for fact in FACTS if fact.function in ENTRIES)
SAMPLES, ERRORS = 300, 50
LAYOUTS = ("contiguous", "strided", "transposed", "padded")


def to_torch(array: Any) -> torch.Tensor:
    """A NumPy array of any dtype, strides kept; memory is shared."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: torch.Tensor) -> Any:
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def lay(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """The same values with other strides."""
    shape, rank = tensor.shape, tensor.dim()
    if layout == "transposed":
        return tensor.permute(*reversed(range(rank))).contiguous().permute(*reversed(range(rank)))
    if layout == "strided":
        return tensor.new_empty([2 * size for size in shape])[(slice(None, None, 2),) * rank].copy_(tensor)
    if layout == "padded":
        return tensor.new_empty([size + 1 for size in shape])[tuple(slice(1, None) for _ in shape)].copy_(tensor)
    return tensor


@dataclass
class TorchSample:
    """A valid call of a torch operator, and what the plain function gives for it."""

    fact: Fact
    kind: str
    layout: str
    arguments: dict[str, Any]
    expected: list[Any]

    @property
    def entry(self) -> library.Entry:
        return ENTRIES[self.fact.function]

    def call(self, /, **changed: Any) -> list[Any]:
        found = getattr(torch.ops.anycann, self.fact.function)(**{**self.arguments, **changed})
        return list(found) if isinstance(found, tuple) else [found]

    def positional(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments as opcheck takes them."""
        names, given = self.entry.positional, self.entry.named((), self.arguments)
        return tuple(given[name] for name in names), {name: value for name, value in given.items() if name not in names}


def _changed_sizes(fact: Fact, generator: np.random.Generator) -> dict[str, int]:
    """Other sizes of the baseline call: multiples of 16 where the baseline has one, else any small number."""
    changed = {}
    for name, size in fact.sizes.items():
        if type(size) is int and generator.random() < 0.7:
            choices = [size, 16, 32, 48, 64, 96] if size and size % 16 == 0 else [size, 0, 1, 2, 3, 4, 5, 7]
            changed[name] = int(generator.choice(choices))
    return changed


def _values(fact: Fact, generator: np.random.Generator) -> dict[str, Any]:
    """Allowed values of some attributes, of the types that torch takes."""
    chosen = {}
    for name, values in fact.good.items():
        fitting = [value for value in values if isinstance(value, (int, float, str)) and (type(value) is not int or value in INT64)]
        if fitting and generator.random() < 0.7:
            chosen[name] = fitting[int(generator.integers(len(fitting)))]
    return chosen


def _drawn(fact: Fact, number: int) -> TorchSample | None:
    generator = np.random.default_rng(number)
    kinds = fact.floats + fact.wider
    kind, layout = kinds[number % len(kinds)], LAYOUTS[(number // len(kinds)) % len(LAYOUTS)]
    changed = {} if number < 12 else _changed_sizes(fact, generator)
    made = sample(fact, kind, number, **changed)
    made.attributes |= {} if number < 12 else _values(fact, generator)
    named = made.named()
    try:
        result = getattr(anycann, fact.function)(**named)
    except anycann.AclnnError:
        return None
    expected = list(result) if isinstance(result, tuple) else [result]
    arguments = {name: lay(to_torch(value), layout) if isinstance(value, np.ndarray) else value for name, value in named.items()}
    return TorchSample(fact, kind, layout, arguments, expected)


def samples(fact: Fact) -> tuple[TorchSample, ...]:
    """SAMPLES valid calls: every dtype, sizes and attribute values at random, contiguous or not."""
    return _samples(fact.function)


@functools.cache
def _samples(function: str) -> tuple[TorchSample, ...]:
    fact = next(fact for fact in HAVE if fact.function == function)
    drawn = (_drawn(fact, number) for number in range(4 * SAMPLES))
    found = []
    for one in drawn:
        if one is not None:
            found.append(one)
        if len(found) == SAMPLES:
            break
    return tuple(found)


def baseline(fact: Fact, kind: str) -> TorchSample:
    """The baseline call in a dtype."""
    found = _drawn(fact, (fact.floats + fact.wider).index(kind))
    assert found is not None
    return found


@dataclass
class TorchError:
    """A call that is refused, and how the plain function refuses it."""

    label: str
    function: Any
    arguments: dict[str, Any]
    status: int
    text: str


def _fits_the_schema(name: str, value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_fits_the_schema(name, item) for item in value)
    if type(value) is int:
        return value in INT64
    return value is None or isinstance(value, (str, float, bool, torch.Tensor))


def _torch_arguments(call: Call) -> dict[str, Any] | None:
    """The arguments by their names in the schema; None for what torch has no tensor for."""
    fact, entry, found = call.fact, ENTRIES[call.fact.function], {}
    for name, value in call.arguments.items():
        if isinstance(value, np.ndarray) and (any(step < 0 for step in value.strides) or not value.flags.writeable):
            return None
        known = entry.outputs[fact.outputs.index(name)] if name in fact.outputs else fact.python[name]
        found[known] = to_torch(value) if isinstance(value, np.ndarray) else value
        param = entry.given.get(known)
        if known in entry.given and type(param).__name__ == "Bool" and type(value) is not bool:
            return None
        if param is not None and getattr(param, "names", ()) and isinstance(value, str):
            return None
    return found if all(_fits_the_schema(name, value) for name, value in found.items()) else None


def errors(fact: Fact) -> Iterator[TorchError]:
    """Calls that one check refuses, through the functional overload, or the out overload where an output is at fault."""
    series = home(fact)
    for fault in faults(fact, series):
        if "python" not in fault.doors:
            continue
        draft = Draft(fact)
        fault.edit(draft)
        if any(kind in NOT_IN_NUMPY for kind in draft.dtypes.values()):
            continue
        of_output = bool({name for name, _ in fault.touches} & set(fact.outputs))
        draft.omitted = not of_output
        call = Call(draft, "python")
        arguments = _torch_arguments(call)
        if arguments is None or draft.null & set(fact.strings) or not any(isinstance(value, torch.Tensor) for value in arguments.values()):
            continue
        if not of_output:
            arguments = {name: value for name, value in arguments.items() if name in ENTRIES[fact.function].given}
        try:
            call.make(series)
        except anycann.AclnnError as error:
            packet = getattr(torch.ops.anycann, fact.function)
            yield TorchError(fault.label, packet.out if of_output else packet.default, arguments, error.status, str(error))
