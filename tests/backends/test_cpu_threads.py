"""The pool of threads: every unit is done once, whoever does it, however many calls share their work at the same time."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from numba import types
from numba.core.caching import NullCache

import anycann
from anycann.backends import cpu_threads
from anycann.backends.cpu_blocks import stack
from anycann.backends.cpu_program import parallel
from anycann.backends.cpu_simd import load1_i64, store1_i64
from anycann.backends.cpu_system import add_to_word
from anycann.backends.cpu_threads import claim, partitioned, release
from anycann.backends.threads import group_size
from anycann.runtime import operator_of

ONE = types.intp


@partitioned
def mark(done: int, pieces: int, first: int, start: int, stop: int) -> None:
    """Count each unit; at its first one, the length of the piece."""
    for i in range(start, stop):
        store1_i64(done, i, load1_i64(done, i) + 1)
    store1_i64(pieces, start, stop - start)


@partitioned
def who(found: int, rounds: int, start: int, stop: int) -> None:
    """For each unit the stack of the thread that does it, which takes a while."""
    place = stack(64)
    for i in range(start, stop):
        for k in range(rounds):
            add_to_word(place, k)  # is not optimised away
        store1_i64(found, i, place)


mark.entry.dispatcher._cache = who.entry.dispatcher._cache = NullCache()  # the disk cache does not know the sources of tests


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = anycann.get_num_threads()
    yield
    anycann.set_num_threads(before)


def run_marks(units: int, grain: int) -> tuple[np.ndarray, np.ndarray]:
    done, pieces = np.zeros(max(1, units), np.int64), np.zeros(max(1, units), np.int64)
    parallel(mark.for_types(ONE, ONE, ONE), (done.ctypes.data, pieces.ctypes.data, 0), units, grain)
    return done, pieces


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 2 * cpu_threads._PARTS + 3])
@pytest.mark.parametrize("grain", [1, 8, 1000])
def test_each_unit_is_done_once_in_pieces_of_at_least_a_grain(threads: int, grain: int) -> None:
    anycann.set_num_threads(threads)
    for units in [0, 1, 2, 7, 8, 9, 16, 17, 63, 129, 1000, 2001, 16001, 40000]:
        for _ in range(20):
            done, pieces = run_marks(units, grain)
            assert (done[:units] == 1).all()
            lengths = pieces[pieces > 0]
            assert lengths.sum() == units
            assert (lengths[:-1] >= grain).all()


def test_more_calls_at_the_same_time_than_slots() -> None:
    anycann.set_num_threads(4)
    wrong = []

    def call(seed: int) -> None:
        sizes = np.random.default_rng(seed).integers(1, 4000, 300)
        for units in sizes:
            done, _ = run_marks(int(units), 1)
            if not (done == 1).all():
                wrong.append(units)

    callers = [threading.Thread(target=call, args=(seed,)) for seed in range(cpu_threads._SLOTS + 5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert wrong == []


def doers(units: int) -> list[int]:
    """A number of the thread that did it, for each unit of a call that takes tens of milliseconds."""
    found = np.zeros(units, np.int64)
    parallel(who.for_types(ONE, ONE), (found.ctypes.data, 300_000), units)
    assert (found != 0).all()
    return found.tolist()


def stacks(units: int) -> int:
    """How many threads did the units of such a call."""
    return len(set(doers(units)))


def most_stacks(wanted: int) -> int:
    """The most threads that took part in one of ten calls, or more: a busy machine may leave one out now and then, not always."""
    until, taking_part = time.monotonic() + 60, [stacks(64) for _ in range(10)]
    while max(taking_part) < wanted and time.monotonic() < until:
        taking_part.append(stacks(64))
    return max(taking_part)


def test_as_many_threads_as_were_asked_for_and_no_more() -> None:
    for threads in (4, 2, 3, 1):  # later calls find more workers than they may have
        anycann.set_num_threads(threads)
        assert most_stacks(threads) == threads


def test_each_thread_begins_with_a_part_of_its_own() -> None:
    """Two threads that nothing disturbs do a half each."""
    anycann.set_num_threads(2)
    until, halves = time.monotonic() + 60, False
    while not halves and time.monotonic() < until:
        found = doers(64)
        halves = len(set(found)) == 2 and found[:32] == 32 * found[:1] and found[32:] == 32 * found[-1:]
    assert halves


@partitioned
def borrow(locks: int, count: int, used: int, start: int, stop: int) -> None:
    """Each piece changes a word that only it may use at that time."""
    for _ in range(start, stop):
        place = claim(locks, count)
        before = load1_i64(used, place)
        for k in range(100):
            store1_i64(used, place, before + k)
        store1_i64(used, place, before + 1)
        release(locks, place)


borrow.entry.dispatcher._cache = NullCache()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_claimed_places_are_used_by_one_piece_at_a_time(count: int) -> None:
    anycann.set_num_threads(4)
    locks, used = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for _ in range(5):
        parallel(borrow.for_types(ONE, ONE, ONE), (locks.ctypes.data, count, used.ctypes.data), 20_000)
    assert used.sum() == 100_000
    assert not locks.any()


def test_a_change_of_the_number_of_threads_makes_plans_anew() -> None:
    anycann.set_num_threads(2)
    x = np.zeros(8, np.float32)
    anycann.gelu_v2(x)
    known = operator_of(anycann.gelu_v2)
    assert known is not None
    assert known._known
    anycann.set_num_threads(2)
    assert known._known
    anycann.set_num_threads(3)
    assert not known._known
    assert not known._recent


def test_workers_fall_asleep_and_are_woken() -> None:
    anycann.set_num_threads(2)
    for _ in range(3):
        assert most_stacks(2) == 2
        until = time.monotonic() + 30
        while cpu_threads._pool.asleep() < cpu_threads._pool.workers and time.monotonic() < until:
            time.sleep(0.02)
        assert cpu_threads._pool.asleep() == cpu_threads._pool.workers
        before = time.process_time()
        time.sleep(0.2)
        assert time.process_time() - before < 0.05


def test_calls_that_follow_each_other_closely_get_workers() -> None:
    """One alone would be done before a worker is awake; of a process that makes no larger ones, too."""
    script = """
import time
import numpy as np
import anycann
from anycann.backends import cpu_threads
anycann.set_num_threads(2)
x, until = np.ones(1 << 17, np.float32), time.monotonic() + 60
y, small = np.empty_like(x), np.ones(64, np.float32)
anycann.gelu_v2(x, out=y)
for _ in range(1000):
    anycann.gelu_v2(small)
print(cpu_threads._pool.workers)
while not cpu_threads._pool.workers and time.monotonic() < until:
    anycann.gelu_v2(x, out=y)
print(cpu_threads._pool.workers)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "1"]


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be chosen here")
def test_workers_may_run_on_all_cores_again() -> None:
    anycann.set_num_threads(3)
    for _ in range(3):
        stacks(64)
        time.sleep(0.01)
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("anycann-cpu-")]
    assert len(workers) >= 2
    assert {frozenset(os.sched_getaffinity(worker.native_id or 0)) for worker in workers} == {frozenset(os.sched_getaffinity(0))}


def test_a_child_process_has_a_pool_of_its_own() -> None:
    script = """
import os, sys
import numpy as np
import anycann
anycann.set_num_threads(2)
x = np.linspace(-3, 3, 1 << 21, dtype=np.float32)
expected = anycann.gelu_v2(x)
child = os.fork()
same = np.array_equal(anycann.gelu_v2(x), expected)
if child == 0:
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) or not same)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


def test_workers_end_with_the_program_and_later_calls_work_alone() -> None:
    script = """
import atexit, threading
import numpy as np
import anycann
anycann.set_num_threads(3)
x = np.linspace(-3, 3, 1 << 21, dtype=np.float32)
def late():
    again = anycann.gelu_v2(x)
    print([thread.name for thread in threading.enumerate()], np.array_equal(again, first))
atexit.register(late)
first = anycann.gelu_v2(x)
print(sorted(thread.name for thread in threading.enumerate()))
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["['MainThread', 'anycann-cpu-0', 'anycann-cpu-1']", "['MainThread'] True"]
    assert done.stderr == ""


SMALL_STACK = """
import threading
import numpy as np
import anycann

x = np.ones((300, 300), np.float32)
near, mean = x.T, np.zeros((300, 1), np.float32)
done = []


def call():
    anycann.gelu_backward_v2(near, x)
    anycann.smooth_l1_loss_backward(near, x, near)
    anycann.smooth_l1_loss(near, x, "none")
    anycann.layer_norm(near, (300,))
    anycann.layer_norm_backward(near, near, (300,), mean, mean + 1)
    anycann.layer_norm_grad_beta(near, near)
    done.append(True)


anycann.set_num_threads(1)
call()
threading.stack_size(64 << 10)
thread = threading.Thread(target=call)
thread.start()
thread.join()
assert len(done) == 2
"""


def test_kernels_need_little_stack():
    found = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr[-2000:]


@pytest.mark.parametrize(
    ("arguments", "alone", "among_eight"),
    [((64, 64, 8, 1), 64, 8), ((64, 16, 1, 8), 16, 16), ((5, 64, 1, 1), 5, 1), ((1, 0, 0, 1), 1, 1), ((3, 100, 0, 2), 3, 1)],
)
def test_groups_leave_work_for_every_thread_but_are_never_empty(arguments, alone, among_eight):
    before = anycann.get_num_threads()
    try:
        for threads, size in ((1, alone), (8, among_eight)):
            anycann.set_num_threads(threads)
            assert group_size(*arguments) == size
    finally:
        anycann.set_num_threads(before)
