"""Programs: arguments arrive as they were written down, kernels run one after the other, and nothing runs where operands meet."""

import gc
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core.caching import NullCache

import anycann
from anycann import dtypes
from anycann.backends.cpu import by_types
from anycann.backends.cpu_blocks import Held
from anycann.backends.cpu_program import ADDRESSES, Place, Program, clear, parallel
from anycann.backends.cpu_simd import F32, Tag, load1_i64, store1, store1_f64, store1_i64
from anycann.backends.cpu_threads import partitioned, whole
from anycann.plans import aligned_bytes
from anycann.runtime import operator_of
from anycann.tensor import ABSENT, Tensor

ONE = types.intp
TWO = types.UniTuple(ONE, 2)


@whole
def note(
    tag: Tag, out: int, pair: tuple[tuple[int, int], float], short: float, truth: bool, absent: int | None, held: int, far: int
) -> None:
    """Write down what arrived."""
    (a, b), long = pair
    store1_i64(out, 0, a)
    store1_i64(out, 1, b)
    store1_f64(out, 2, long)
    store1_f64(out, 3, types.float64(short))
    store1_i64(out, 4, 7 if truth else 3)
    store1_i64(out, 5, 1 if absent is None else 0)
    store1_i64(out, 6, load1_i64(held, 1))
    store1_i64(out, 7, far)
    store1(tag, out + 64, 0, np.float32(1.5))


@partitioned
def add(out: int, source: int, number: int, start: int, stop: int) -> None:
    """Add a number to what came before."""
    for i in range(start, stop):
        store1_i64(out, i, load1_i64(source, i) + number)


for kernel in (note, add):
    kernel.entry.dispatcher._cache = NullCache()  # the disk cache does not know the sources of tests

NOTE = F32, ONE, types.Tuple((TWO, types.float64)), types.float32, types.boolean, types.none, ONE, ONE


@pytest.fixture(params=[1, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = anycann.get_num_threads()
    anycann.set_num_threads(request.param)
    yield request.param
    anycann.set_num_threads(before)


def tensor(count: int = 64) -> Tensor:
    return Tensor(0, dtypes.DTYPES["int64"], (count,), (1,))


def test_arguments_arrive_as_they_were_written_down() -> None:
    program, out = Program([tensor(), ABSENT, tensor()]), np.zeros(9, np.int64)
    first, absent, last = program.operands
    assert absent == 0
    held = Held(np.array([5, -(2**63)]))
    program.add(note.for_types(*NOTE), (None, first, ((-3, 2**62), math.pi), 0.1, True, None, held, last + 40))
    del held
    gc.collect()
    for far in (1000, 2000):
        program([out.ctypes.data, 0, far], 0)
        assert out[[0, 1, 4, 5, 6, 7]].tolist() == [-3, 2**62, 7, 1, -(2**63), far + 40]
        assert out[2:4].view(np.float64).tolist() == [math.pi, float(np.float32(0.1))]
        assert out[8:].view(np.float32)[0] == 1.5


def test_numbers_are_converted_to_the_type_of_the_parameter() -> None:
    out = np.zeros(9, np.int64)
    parallel(note.for_types(*NOTE), (None, out.ctypes.data, ((np.int64(1), True), 2), np.float32(3), False, None, out.ctypes.data, 0), 1)
    assert out[[0, 1, 4]].tolist() == [1, 1, 3]
    assert out[2:4].view(np.float64).tolist() == [2.0, 3.0]
    with pytest.raises(TypeError):
        parallel(add.for_types(ONE, ONE, ONE), (out.ctypes.data, out.ctypes.data, 1.0), 1)
    with pytest.raises(ValueError, match="zip"):
        parallel(add.for_types(ONE, ONE, ONE), (out.ctypes.data, out.ctypes.data), 1)


def test_kernels_run_one_after_the_other(threads: int) -> None:
    count = 5000
    program = Program([tensor(count), tensor(count)])
    source, out = program.operands
    program.add(add.for_types(ONE, ONE, ONE), (program.workspace, source, 1), count, 10)
    program.add(add.for_types(ONE, ONE, ONE), (out, program.workspace, 2), count, 10)
    program.add(clear.for_types(ONE, ONE), (program.workspace, 8 * count))
    program.add(add.for_types(ONE, ONE, ONE), (out, out, 4), count, count)
    given, found, room = np.arange(count), np.empty(count, np.int64), aligned_bytes(8 * count)
    for _ in range(3):
        program([given.ctypes.data, found.ctypes.data], room.ctypes.data)
        assert (found == given + 7).all()
        assert not room.any()
        found[:], room[:] = 0, 1
    assert program.helpers == threads - 1


def test_a_workspace_begins_with_a_line() -> None:
    program, room = Program([]), np.ones(32, np.int64)
    program.add(clear.for_types(ONE, ONE), (program.workspace, 8))
    program((), room.ctypes.data + 8)
    begin = (-room.ctypes.data - 8) % 64 + 8
    assert np.flatnonzero(room == 0).tolist() == [begin // 8]


@pytest.mark.parametrize(
    ("first", "second", "same", "runs"),
    [
        (0, 80, False, True),
        (80, 0, False, True),
        (0, 79, False, False),
        (79, 0, False, False),
        (40, 40, False, False),
        (40, 40, True, True),
        (40, 48, True, False),
    ],
)
def test_nothing_runs_where_operands_meet(first: int, second: int, same: bool, runs: bool, threads: int) -> None:
    program = Program([tensor(10), tensor(10)])
    source, out = program.operands
    program.add(add.for_types(ONE, ONE, ONE), (out, source, 1), 10)
    run = program.runner([(0, 80, 0, 80, 0, 1, same)])
    memory = np.arange(40)
    before, start = memory.copy(), memory.ctypes.data
    assert run((start + first, start + second, 0)) is runs
    if not runs:
        assert (memory == before).all()
    elif first % 8 == second % 8 == 0:
        assert (memory[second // 8 : second // 8 + 10] == before[first // 8 : first // 8 + 10] + 1).all()


def test_spans_are_counted_from_the_addresses() -> None:
    program = Program([tensor(4), tensor(4), tensor(4)])
    program.add(add.for_types(ONE, ONE, ONE), (program.operands[2], program.operands[0], 1), 4)
    run = program.runner([(-24, 8, 0, 32, 0, 2, False), (0, 32, 0, 32, 1, 2, False)])
    memory = np.zeros(40, np.int64)
    start = memory.ctypes.data
    assert run((start + 24, start + 200, start + 32, 0))
    assert not run((start + 24, start + 200, start + 24, 0))
    assert not run((start + 24, start + 60, start + 32, 0))


def test_what_is_too_large_is_said() -> None:
    with pytest.raises(RuntimeError, match="at most 24 addresses; got 25"):
        Program([tensor()] * (ADDRESSES // 8))
    wide = types.UniTuple(ONE, 65)

    @whole
    def many(given: tuple[int, ...]) -> None:
        """Nothing."""

    many.entry.dispatcher._cache = NullCache()
    with pytest.raises(RuntimeError, match="at most 64 words of arguments; got 65"):
        parallel(many.for_types(wide), ((0,) * 65,), 1)


def test_places_are_counted_in_bytes() -> None:
    place = Place(3) + 8 + 16
    assert (place.number, place.offset) == (3, 24)


def test_calls_with_nine_arrays_are_recognised() -> None:
    rng = np.random.default_rng(1)
    x, grad = (rng.standard_normal((4, 16)).astype(np.float32) for _ in range(2))
    weight, (_, mean, rstd) = x[0].copy(), anycann.layer_norm(x, (16,))
    expected = anycann.layer_norm_backward(grad, x, (16,), mean, rstd, weight, weight)
    outs = tuple([np.empty_like(result) for result in expected])

    def call() -> Any:
        return anycann.layer_norm_backward(grad, x, (16,), mean, rstd, weight, weight, out=outs)

    known = operator_of(anycann.layer_norm_backward)
    assert known is not None
    for _ in range(3):
        call()
    latest = known._recent[known.api, grad.shape, grad.dtype][0]
    assert latest is known._latest
    assert latest.at_once is not None
    for out in outs:
        out.fill(0)
    all_of, two = (True, True, True), (True, True, False)
    for shape, mask, found in (([16], all_of, -1), ((16, 1), all_of, -1), ((16,), two, -1), ((16,), all_of, 1)):
        assert not any(out.any() for out in outs)
        assert latest.at_once((grad, x, shape, mean, rstd, weight, weight, mask, *outs)) == found
    assert latest.at_once((grad, x, (16,), mean, rstd, weight, grad, all_of, *outs)) == 0
    for found, result in zip(outs, expected, strict=True):
        np.testing.assert_array_equal(found, result)


def test_code_is_made_once_for_the_same_types() -> None:
    made: list[tuple[object, ...]] = []
    for_types = by_types(lambda *kinds: made.append(kinds) or len(made))
    assert [for_types(types.intp, types.float32) for _ in range(3)] == [1, 1, 1]
    assert [for_types(types.float32, types.intp), for_types(types.intp), for_types()] == [2, 3, 4]
    assert [for_types(object()) for _ in range(100)] == [*range(5, 105)]  # none takes the place of one that nobody else keeps
