"""Kernels on all threads: pieces are handed over in machine code, without the GIL.

A call puts its work into a slot of the pool, takes pieces of it like every other thread, and closes the slot when none is left. Workers
look for open slots for a short while after their last piece, then sleep until a call wakes them. The pieces are divided into parts, one
behind the other; each thread begins with the same part in every call, whose memory its core's caches may still hold, and goes on with
what others have left of theirs. So which thread runs which piece is left to chance: kernels give the same bits for every partition.
"""

import atexit
import inspect
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from anycann.backends.cpu import Kernel, apart, by_types, device
from anycann.backends.cpu_blocks import stack
from anycann.backends.cpu_llvm import DOUBLE, I8, I32, I64, Emit, Static, Value, operation
from anycann.backends.cpu_simd import load1_i64, store1_i64
from anycann.backends.cpu_system import (
    CORES,
    add_to_word,
    await_signal,
    exchange_word,
    lock,
    new_condition,
    new_mutex,
    own_cores,
    pause,
    read_word,
    set_cores,
    signal,
    unlock,
    usual_floats,
    write_word,
    yield_core,
)
from anycann.backends.threads import get_num_threads

__all__ = ["Code", "PartitionedKernel", "claim", "invoke", "invoke_share", "partitioned", "pieces", "release", "share", "whole"]

T = TypeVar("T")

_PIECES_PER_THREAD = 4  # evens out cores that are busy with something else
_ASLEEP = 8  # pieces that are done before another thread has woken up
_AWAKE = 100e-6  # seconds for which a worker looks for the next piece before it sleeps
_YIELD = 128  # looks, some microseconds, after which a thread that waits lets others of its core run

_MUTEX = 0  # where it lies in the memory of a pool
_WORKERS, _SLEEPERS, _CLOSED, _SHARE = 64, 72, 80, 88  # words: threads, those of them that sleep, whether they shall end, where `_share` is
_PARTS = 16  # of the pieces of a call, at most
_FIRST_SLOT, _SLOTS, _SLOT = 128, 8, 128 + 64 * _PARTS  # calls that share their work at the same time; others do it alone
_FIRST_WORKER, _MOST_WORKERS, _WORKER = _FIRST_SLOT + _SLOTS * _SLOT, 1023, 128
_CONDITION, _CALLED, _THREAD, _SLEEPER, _BUSY = 0, 64, 72, 80, 88
# Words of a worker: whether it is to wake up, the system's number for it, the n-th worker that sleeps, the core on which it shall not wake
_STATE, _HELPERS, _CODE, _GIVEN, _UNITS, _STEP = (8 * i for i in range(6))  # words of a slot
_INSIDE, _LEFT, _NEXT = 64, 72, 128  # who works, parts that have pieces left, and the next piece of each: they change while it is open
_FREE, _TAKEN, _OPEN = 0, 1, 2

_INTP = types.intp


def _call(e: Emit, code: Value, *given: Value) -> None:
    with e.b.goto_entry_block():
        nothing = e.b.alloca(I8.as_pointer())  # where it writes its result, None, and would write an error
    kind = ir.FunctionType(I32, [nothing.type, nothing.type, *(I64,) * len(given)])
    e.b.call(e.b.inttoptr(code, kind.as_pointer()), [nothing, nothing, *given])


@operation(types.void, _INTP, _INTP, _INTP, _INTP)
def invoke(e: Emit, code: Value, given: Value, start: Value, stop: Value) -> None:
    """Run a kernel, whose arguments are words at `given`, on units [start, stop)."""
    _call(e, code, given, start, stop)


@operation(types.void, *(_INTP,) * 7)
def invoke_share(e: Emit, pool: Value, code: Value, given: Value, units: Value, step: Value, helpers: Value, wake: Value) -> None:
    """Call `_share` where the pool says that it is: who calls kernels need not be compiled with it."""
    _call(e, e.read(pool, I64(_SHARE // 8), 8, I64), pool, code, given, units, step, helpers, wake)


@device
def _wait(looks: int) -> None:
    """Before the next look."""
    if looks % _YIELD == _YIELD - 1:
        yield_core()
    else:
        pause()


@device
def _parts(slot: int) -> int:
    """How many parts the pieces have."""
    parts: int = min(load1_i64(slot + _HELPERS, 0) + 1, _PARTS)
    return parts


@device
def _first(slot: int, part: int) -> int:
    """The first piece of a part; of the one behind the last, how many pieces there are."""
    units, step = load1_i64(slot + _UNITS, 0), load1_i64(slot + _STEP, 0)
    piece: int = part * -(-units // step) // _parts(slot)
    return piece


@device
def _work(slot: int, own: int) -> None:
    """Take pieces until none is left, those of one's own part first."""
    code, given = load1_i64(slot + _CODE, 0), load1_i64(slot + _GIVEN, 0)
    units, step = load1_i64(slot + _UNITS, 0), load1_i64(slot + _STEP, 0)
    part = own
    for _ in range(_parts(slot)):
        place, end = slot + _NEXT + 64 * part, _first(slot, part + 1)
        piece = add_to_word(place, 1)
        while piece < end:
            if piece == end - 1:
                add_to_word(slot + _LEFT, -1)
            invoke(code, given, piece * step, min((piece + 1) * step, units))
            piece = add_to_word(place, 1)
        part = part + 1 if part + 1 < _parts(slot) else 0 * part


@device
def _wake(pool: int, helpers: int) -> None:
    """See to it that so many workers look for open slots, as far as there are any that sleep.

    They shall not wake up on the core that is busy here, where virtual machines put them even if others are idle, and leave them for long.
    """
    cores, others = stack(CORES), 0 * helpers
    core = own_cores(cores)
    if core >= 0:
        store1_i64(cores, core >> 6, load1_i64(cores, core >> 6) & ~(1 << (core & 63)))
        for i in range(CORES // 8):
            others |= load1_i64(cores, i)
    lock(pool + _MUTEX)
    sleepers = read_word(pool + _SLEEPERS)
    awake = read_word(pool + _WORKERS) - sleepers
    left = min(sleepers, max(0, sleepers - (helpers - awake)))
    write_word(pool + _SLEEPERS, left)
    for i in range(left, sleepers):
        worker = load1_i64(pool + _FIRST_WORKER + i * _WORKER + _SLEEPER, 0)
        store1_i64(worker + _BUSY, 0, core if others != 0 else -1)
        if others != 0:
            set_cores(load1_i64(worker + _THREAD, 0), cores)
        write_word(worker + _CALLED, 1)
        signal(worker + _CONDITION)
    unlock(pool + _MUTEX)


@device
def claim(locks: int, count: int) -> int:
    """One of `count` places that no other piece uses, after waiting for one to be free; `locks` has a word for each, at first 0."""
    place, looks = 0 * count, 0
    while not exchange_word(locks + 8 * place, _FREE, _TAKEN):
        place += 1
        if place == count:
            place = 0 * count
            _wait(looks)
            looks += 1
    return place


@device
def release(locks: int, place: int) -> None:
    """Let others use it."""
    write_word(locks + 8 * place, _FREE)


def _share(pool: int, code: int, given: int, units: int, step: int, helpers: int, wake: int) -> None:
    """Run code(given, start, stop) on pieces of [0, units), on this thread and up to so many workers."""
    slot, end = pool + _FIRST_SLOT, pool + _FIRST_SLOT + _SLOTS * _SLOT
    while slot < end and not exchange_word(slot + _STATE, _FREE, _TAKEN):
        slot += _SLOT
    if slot == end:
        invoke(code, given, 0, units)
        return
    store1_i64(slot + _HELPERS, 0, helpers)
    store1_i64(slot + _CODE, 0, code)
    store1_i64(slot + _GIVEN, 0, given)
    store1_i64(slot + _UNITS, 0, units)
    store1_i64(slot + _STEP, 0, step)
    left = 0 * helpers
    for part in range(_parts(slot)):
        write_word(slot + _NEXT + 64 * part, _first(slot, part))
        left += _first(slot, part) < _first(slot, part + 1)
    write_word(slot + _LEFT, left)
    write_word(slot + _STATE, _OPEN)
    if wake != 0 and read_word(pool + _SLEEPERS) > 0:
        _wake(pool, helpers)
    _work(slot, 0 * helpers)
    write_word(slot + _STATE, _TAKEN)
    looks = 0
    while read_word(slot + _INSIDE) != 0:
        _wait(looks)
        looks += 1
    write_word(slot + _STATE, _FREE)


@device
def _look(pool: int, looks: int, number: int) -> None:
    """Work for open slots, as the worker of this number, until so many looks at all of them have found none."""
    idle = 0
    while idle < looks:
        for i in range(_SLOTS):
            slot = pool + _FIRST_SLOT + i * _SLOT
            if read_word(slot + _STATE) == _OPEN and read_word(slot + _LEFT) > 0:
                others = add_to_word(slot + _INSIDE, 1)
                # A slot that is open now stays as it is until this thread has left it.
                if read_word(slot + _STATE) == _OPEN and others < load1_i64(slot + _HELPERS, 0):
                    _work(slot, 1 + number % (_parts(slot) - 1))
                    idle = 0
                add_to_word(slot + _INSIDE, -1)
        _wait(idle)
        idle += 1


def _prepare(pool: int, looks: int) -> None:
    """Make a pool of memory that is zero; then look so often, to learn how long it takes."""
    new_mutex(pool + _MUTEX)
    _look(pool, looks, 0 * looks)


def _serve(pool: int, looks: int, worker: int) -> None:
    """Be a worker until the pool is closed: look, then sleep."""
    cores = stack(CORES)
    usual_floats()  # not those of the thread that started this one
    new_condition(worker + _CONDITION)
    while read_word(pool + _CLOSED) == 0:
        _look(pool, looks, (worker - pool - _FIRST_WORKER) // _WORKER)
        lock(pool + _MUTEX)
        sleepers = read_word(pool + _SLEEPERS)
        store1_i64(pool + _FIRST_WORKER + sleepers * _WORKER + _SLEEPER, 0, worker)
        write_word(pool + _SLEEPERS, sleepers + 1)
        write_word(worker + _CALLED, 0)
        while read_word(worker + _CALLED) == 0 and read_word(pool + _CLOSED) == 0:
            await_signal(worker + _CONDITION, pool + _MUTEX)
        unlock(pool + _MUTEX)
        busy = load1_i64(worker + _BUSY, 0)
        if busy >= 0 and own_cores(cores) >= 0:  # it may run there again, now that it has begun elsewhere
            store1_i64(cores, busy >> 6, load1_i64(cores, busy >> 6) | 1 << (busy & 63))
            set_cores(0 * busy, cores)
        store1_i64(worker + _BUSY, 0, -1)


def _close(pool: int) -> None:
    """Let all workers end."""
    lock(pool + _MUTEX)
    write_word(pool + _CLOSED, 1)
    for i in range(read_word(pool + _SLEEPERS)):
        signal(load1_i64(pool + _FIRST_WORKER + i * _WORKER + _SLEEPER, 0) + _CONDITION)
    unlock(pool + _MUTEX)


_preparing, _serving, _sharing, _closing = Kernel(_prepare), Kernel(_serve), Kernel(_share), Kernel(_close)


def _argument(context: Any, builder: ir.IRBuilder, kind: types.Type, words: Iterator[Value]) -> Value:
    """An argument of this type: numbers are words, those of floating point float64; what is known already takes none."""
    if isinstance(kind, types.BaseTuple):
        return context.make_tuple(builder, kind, [_argument(context, builder, part, words) for part in kind])
    if isinstance(kind, (Static, types.NoneType)):
        return context.get_dummy_value()
    word, value = next(words), context.get_value_type(kind)
    if isinstance(kind, types.Float):
        number = builder.bitcast(builder.load(word, typ=I64), DOUBLE)
        return number if value == DOUBLE else builder.fptrunc(number, value)
    number = builder.load(word, typ=I64)
    return number if value == I64 else builder.trunc(number, value)


@intrinsic  # type: ignore[untyped-decorator]
def _apply(typing_context: Any, function: types.Dispatcher, given: types.CPointer, start: types.Integer, stop: types.Integer) -> Any:
    """Call function(*given, start, stop), where `given` points to words; function(*given) if it takes no units."""
    kinds = given.dtype.types
    units = (start, stop)[: len(inspect.signature(function.dispatcher.py_func).parameters) - len(kinds)]
    call = function.get_call_type(typing_context, (*kinds, *units), {})

    def generate(context: Any, builder: ir.IRBuilder, _: Any, values: Any) -> Value:
        compiled = function.dispatcher.overloads[call.args]
        context.active_code_library.add_linking_library(compiled.library)
        first = builder.bitcast(values[1], I64.as_pointer())
        words = (builder.gep(first, [I64(i)], source_etype=I64) for i in itertools.count())
        args = [_argument(context, builder, kind, words) for kind in kinds]
        context.call_internal_no_propagate(builder, compiled.fndesc, call, [*args, *values[2 : 2 + len(units)]])
        return context.get_dummy_value()

    return types.void(function, given, start, stop), generate


class Code(NamedTuple):
    """Where the code of a kernel is, and which of its words are float64."""

    address: int
    floats: tuple[bool, ...]


def _floats(kind: types.Type) -> Iterator[bool]:
    """For each word of an argument whether it is float64."""
    if isinstance(kind, types.BaseTuple):
        for part in kind:
            yield from _floats(part)
    elif not isinstance(kind, (Static, types.NoneType)):
        yield isinstance(kind, types.Float)


class PartitionedKernel:
    """A kernel of programs: `for_types` takes the types of its arguments but for `start` and `stop`, and gives where its code is."""

    def __init__(self, function: Callable[..., None]) -> None:
        inner = apart(function)

        def entry(given: Any, start: int, stop: int) -> None:
            _apply(inner, given, start, stop)

        entry.__module__, entry.__qualname__ = function.__module__, function.__qualname__  # by which the disk cache knows it
        self.entry = Kernel(entry, python=False)
        self.for_types = by_types(self._code)

    def _code(self, *kinds: types.Type) -> Code:
        return Code(self.entry.address(types.CPointer(types.Tuple(kinds)), _INTP, _INTP), tuple(_floats(types.Tuple(kinds))))


def partitioned(function: Callable[..., None]) -> PartitionedKernel:
    """Mark a kernel: arguments are addresses (intp), counts (intp), scalars and dtype tags, then the units [start, stop) to do."""
    return PartitionedKernel(function)


def whole(function: Callable[..., None]) -> PartitionedKernel:
    """Mark a kernel that does all of its work at once; its arguments are those of a partitioned one, without units."""
    return PartitionedKernel(function)


class _Pool:
    """Worker threads, started when they are first asked for, and the memory by which calls meet them; forgotten after a fork."""

    def __init__(self) -> None:
        memory = np.zeros(_FIRST_WORKER + _MOST_WORKERS * _WORKER + 64, np.uint8)
        start: int = memory.__array_interface__["data"][0]
        self.address = start + -start % 64
        self.words = memory[-start % 64 :][: _FIRST_WORKER + _MOST_WORKERS * _WORKER].view(np.int64)
        self.threads: list[threading.Thread] = []
        self.looks = self.workers = 0
        self.closed = self.growing = False
        self.shared = 0.0  # when a call last shared its work
        self.lock = threading.RLock()

    def grow(self, workers: int) -> None:
        """Have so many workers, at least; fewer where the system gives no more threads, or while others see to it."""
        prepare, serve = _preparing.for_types(_INTP, _INTP), _serving.for_types(_INTP, _INTP, _INTP)  # no fork forgets who compiles
        share, _ = _sharing.address(*(_INTP,) * 7), _closing.for_types(_INTP)
        with self.lock:  # which no exception of a signal's handler can leave taken
            if self.growing:  # this thread, which a handler has interrupted here
                return
            try:
                self.growing = True
                if self.looks == 0:
                    tried, start = 1 << 10, time.perf_counter()
                    self.words[_SHARE // 8] = share
                    prepare(self.address, tried)
                    self.looks = max(1, int(tried * _AWAKE / (time.perf_counter() - start)))
                while self.workers < workers and not self.closed and self.start(serve):
                    pass
            finally:
                self.growing = False

    def start(self, serve: Callable[[int, int, int], None]) -> bool:
        """Whether there is one worker more. One whose start is interrupted counts: it may come."""
        name, worker = f"anycann-cpu-{self.workers}", _FIRST_WORKER + self.workers * _WORKER
        thread = threading.Thread(target=self.serve, args=(serve, worker), name=name, daemon=True)
        self.workers += 1
        self.threads.append(thread)
        try:
            thread.start()
        except (RuntimeError, MemoryError):  # the system has no more threads
            self.threads.remove(thread)
            self.workers -= 1
            return False
        self.words[_WORKERS // 8] = self.workers
        return True

    def serve(self, serve: Callable[[int, int, int], None], worker: int) -> None:
        """Be the worker whose memory lies there."""
        self.words[(worker + _THREAD) // 8] = threading.get_native_id()
        serve(self.address, self.looks, self.address + worker)

    def close(self) -> None:
        """End the workers before the interpreter takes their code and memory away. Later calls do their work alone."""
        with self.lock:
            self.closed, self.workers = True, 0
            if self.threads:
                _closing.for_types(_INTP)(self.address)
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()

    def asleep(self) -> int:
        """How many workers sleep."""
        return int(self.words[_SLEEPERS // 8])


_pool = _Pool()


def _forget_threads() -> None:
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
atexit.register(lambda: _pool.close())


def pieces(units: int, grain: int) -> tuple[int, int, bool]:
    """How many units make a piece, each at least `grain`; how many workers may help; and whether they are woken for it."""
    helpers = 0 if units <= grain else min(get_num_threads(), -(-units // grain)) - 1
    if helpers == 0:
        return units, 0, False
    step = max(grain, -(-units // ((helpers + 1) * _PIECES_PER_THREAD)))
    return -(-step // grain) * grain, helpers, grain == 1 or units > _ASLEEP * grain


def share(helpers: int, wake: bool, run: Callable[[int, int, int], T]) -> T:
    """The result of run(address of the pool, how many of its workers may help, whether work was shared just before)."""
    pool, most = _pool, min(helpers, get_num_threads() - 1)
    recent = time.perf_counter() - pool.shared < _AWAKE
    if (wake or recent) and pool.workers < most:
        pool.grow(most)
    result = run(pool.address, most, recent) if pool.workers else run(0, 0, 0)
    pool.shared = time.perf_counter()
    return result
