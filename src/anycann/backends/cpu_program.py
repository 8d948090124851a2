"""What a plan does on the CPU, as data: kernels one after the other, and their arguments, in which only addresses are still open.

A program is written down as words of 64 bits, and one compiled function goes through it: it puts the addresses of a call into the
arguments and runs each kernel, on this thread or shared with others. So a call leaves Python once, however many kernels it takes.
"""

import itertools
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numba import types

from anycann.backends.cpu import device, function
from anycann.backends.cpu_blocks import Held, stack
from anycann.backends.cpu_simd import load1_i64, store1_i64
from anycann.backends.cpu_system import enter_python, leave_python, own_floats, python_int, usual_floats
from anycann.backends.cpu_threads import Code, invoke, invoke_share, pieces, share, whole
from anycann.backends.loops import LINE
from anycann.tensor import ABSENT, Tensor

__all__ = ["ADDRESSES", "ITEMS", "Place", "Program", "clear", "parallel", "perform"]

ADDRESSES = 8 * 24  # bytes of those of a call, with that of the workspace, at most
_ARGUMENTS = 8 * 64  # bytes of those of a kernel, at most
_LENGTH, _CODE, _UNITS, _STEP, _HELPERS, _WAKE, _WORDS, _OPEN, _HEAD = range(9)  # words of a step, before its arguments
_FIRST = 2  # words before the first step: how many there are, how many addresses a call has
ITEMS = tuple.__basicsize__  # where the items of a tuple begin
_PAIR = 7  # words of a pair of spans
_INTP = types.intp

Pair: TypeAlias = tuple[int, int, int, int, int, int, bool]
# Two spans of bytes from the addresses of operands, the numbers of these, and whether they may be the very same memory
Argument: TypeAlias = "int | float | Place | Held | tuple[Argument, ...] | None"


class Place:
    """An address that a call brings: of an operand, by its number, or behind it."""

    __slots__ = ("number", "offset")

    def __init__(self, number: int, offset: int = 0) -> None:
        self.number, self.offset = number, offset

    def __add__(self, offset: int) -> "Place":
        return Place(self.number, self.offset + offset)


def _leaves(argument: Argument) -> list[Any]:
    """The numbers of an argument; None is known when kernels are compiled, and takes no word."""
    if not isinstance(argument, tuple):
        return [] if argument is None else [argument]
    found = []
    for part in argument:
        if type(part) is tuple:
            found += _leaves(part)
        elif part is not None:
            found.append(part)
    return found


class Program:
    """Kernels to run one after the other for a call on `tensors`; `operands` and `workspace` stand for the addresses. A Launch."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.operands: tuple[Any, ...] = tuple([0 if tensor is ABSENT else Place(i) for i, tensor in enumerate(tensors)])
        self.workspace = Place(len(tensors))
        self.helpers, self.wakes = 0, False
        self._words = [0, len(tensors) + 1]
        self._kept: list[Held] = []
        self._written: Held | None = None
        self._run: Callable[[tuple[int, ...]], bool] | None = None
        if len(tensors) >= ADDRESSES // 8:
            raise RuntimeError(f"a program takes at most {ADDRESSES // 8} addresses; got {len(tensors) + 1}")

    def add(self, code: Code, arguments: Argument, units: int = 1, grain: int = 1) -> None:
        """Run a kernel on pieces that cover [0, units), each at least `grain` units (the last may be shorter), on all threads.

        A grain of more than one unit is as little as a piece should be: workers that sleep are woken for several, and for calls that
        follow each other closely.
        """
        words: list[int] = []
        opened: list[int] = []
        for leaf, floats in zip(_leaves(arguments), code.floats, strict=True):
            if isinstance(leaf, Place):
                opened += (len(words), leaf.number)
                words.append(leaf.offset)
            elif isinstance(leaf, Held):
                self._kept.append(leaf)
                words.append(leaf.address)
            else:
                words.append(struct.unpack("q", struct.pack("d", leaf))[0] if floats else operator.index(leaf))
        if len(words) > _ARGUMENTS // 8:
            raise RuntimeError(f"a kernel takes at most {_ARGUMENTS // 8} words of arguments; got {len(words)}")
        step, helpers, wake = pieces(units, grain)
        self.helpers, self.wakes = max(self.helpers, helpers), self.wakes or wake
        self._written = self._run = None
        head = [_HEAD + len(words) + len(opened), code.address, units, step, helpers, wake, len(words), len(opened)]
        self._words += (*head, *words, *opened)
        self._words[0] += 1

    def written(self) -> Held:
        """The words."""
        found = self._written
        if found is None:
            self._written = found = Held(np.array(self._words, np.int64))
        return found

    def __call__(self, addresses: Sequence[int], workspace: int) -> None:
        """Run on first elements at these addresses."""
        run = self._run
        if run is None:
            self._run = run = self.runner(())
        run((*addresses, workspace))

    def runner(self, pairs: Sequence[Pair]) -> Callable[[tuple[int, ...]], bool]:
        """A function of the addresses and that of the workspace; it runs the program unless one of the pairs meets, and says whether."""
        written, spans = self.written(), Held(np.array([len(pairs), *itertools.chain(*pairs)], np.int64))
        helpers, wakes, places, entry = self.helpers, self.wakes, (written.address, spans.address), _run.for_types(*(_INTP,) * 6)
        read = written, spans, self._kept

        def run(given: tuple[int, ...], keep: object = read) -> bool:
            done: bool = entry(*places, id(given), 0, 0, 0)
            return done

        def run_shared(given: tuple[int, ...], keep: object = read) -> bool:
            done: bool = share(helpers, wakes, lambda pool, most, recent: entry(*places, id(given), pool, most, recent))
            return done

        return run_shared if helpers else run


@whole
def clear(address: int, size: int) -> None:
    """Write 0 to so many bytes, a multiple of 8."""
    for i in range(size // 8):
        store1_i64(address, i, 0)


def parallel(code: Code, arguments: Argument, units: int, grain: int = 1) -> None:
    """Run one kernel once."""
    program = Program(())
    program.add(code, arguments, units, grain)
    program((), 0)


@device
def perform(program: int, addresses: int, pool: int, most: int, recent: int) -> None:
    """Run a program; up to `most` workers of the pool help. `recent`: work was shared just before, so that they may be awake."""
    given, place, floats = stack(_ARGUMENTS), program + 8 * _FIRST, usual_floats()
    for _ in range(load1_i64(program, 0)):
        arguments, count = place + 8 * _HEAD, load1_i64(place, _WORDS)
        for i in range(count):
            store1_i64(given, i, load1_i64(arguments, i))
        for i in range(count, count + load1_i64(place, _OPEN), 2):
            word = load1_i64(arguments, i)
            store1_i64(given, word, load1_i64(given, word) + load1_i64(addresses, load1_i64(arguments, i + 1)))
        code, units, helpers = load1_i64(place, _CODE), load1_i64(place, _UNITS), min(most, load1_i64(place, _HELPERS))
        if helpers == 0:
            invoke(code, given, 0, units)
        else:
            invoke_share(pool, code, given, units, load1_i64(place, _STEP), helpers, load1_i64(place, _WAKE) | recent)
            recent = 1 + 0 * recent
        place += 8 * load1_i64(place, _LENGTH)
    own_floats(floats)


@device
def _meet(spans: int, addresses: int) -> bool:
    """Whether the memory of an output is also that of another operand, other than element for element where it may be."""
    pair = spans + 8
    for _ in range(load1_i64(spans, 0)):
        first, second = load1_i64(addresses, load1_i64(pair, 4)), load1_i64(addresses, load1_i64(pair, 5))
        apart = first + load1_i64(pair, 0) >= second + load1_i64(pair, 3) or second + load1_i64(pair, 2) >= first + load1_i64(pair, 1)
        if not (apart or (first == second and load1_i64(pair, 6) != 0)):
            return True
        pair += 8 * _PAIR
    return False


@function(types.boolean)
def _run(program: int, spans: int, given: int, pool: int, most: int, recent: int) -> bool:
    """Run a program unless a pair of spans meets, and whether it did; given: the object that is the tuple of its addresses."""
    addresses, last = stack(ADDRESSES), load1_i64(program, 1) - 1
    for i in range(last + 1):
        store1_i64(addresses, i, python_int(load1_i64(given + ITEMS, i)))
    if _meet(spans, addresses):
        return False
    store1_i64(addresses, last, -(-load1_i64(addresses, last) // LINE) * LINE)  # a workspace begins with a line
    state = leave_python()
    perform(program, addresses, pool, most, recent)
    enter_python(state)
    return True
