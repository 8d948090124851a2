"""Arrays for operator tests: every dtype and layout, memory that ends where no page is, outputs whose surroundings are watched."""

import contextlib
import ctypes
import itertools
import mmap
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

import anycann
from anycann.backends import cpu_threads

DTYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16), "float32": np.dtype(np.float32)}
POISON = 0xFF  # bytes of it are NaN in every dtype
THREADS = (1, 2, 3, 8)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(shape: tuple[int, ...], dtype: Any, seed: int = 0, scale: float = 1.0) -> Any:
    return (rng(seed).standard_normal(shape) * scale).astype(dtype)


def single(array: Any) -> Any:
    """The float32 values of an array of any dtype."""
    return np.asarray(array).astype(np.float32)


def round_double(values: Any, dtype: Any) -> Any:
    """float64 rounded once, half to even: bfloat16 by comparing candidates, for its cast goes through float32."""
    if dtype != DTYPES["bfloat16"]:
        with np.errstate(over="ignore", invalid="ignore"):
            return values.astype(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        guess = values.astype(np.float32).astype(dtype)
    bits = guess.view(np.uint16).astype(np.int64)
    candidates = np.stack([np.clip(bits + step, 0, 0xFFFF).astype(np.uint16) for step in (0, -1, 1)])
    with np.errstate(invalid="ignore"):
        distance = np.abs(candidates.view(dtype).astype(np.float64) - values)
    distance = np.where(np.isnan(distance), np.inf, distance)
    best = np.lexsort((candidates & 1, distance), axis=0)[0]
    chosen = np.take_along_axis(candidates, best[None], 0)[0]
    finite = np.isfinite(guess.astype(np.float64)) & np.isfinite(values)
    return np.where(finite, chosen, guess.view(np.uint16)).astype(np.uint16).view(dtype)


def assert_same(got: Any, expected: Any, what: object = "") -> None:
    """Equal bit for bit; where a NaN is expected, any, the dtype's quiet NaN without further bits."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype, what
    assert got.shape == expected.shape, what
    kind, quiet = {"float16": (np.uint16, 0x7E00), "bfloat16": (np.uint16, 0x7FC0), "float32": (np.uint32, 0x7FC00000)}[got.dtype.name]
    want = np.where(np.isnan(expected), kind(quiet), np.ascontiguousarray(expected).view(kind).reshape(expected.shape))
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(kind).reshape(got.shape), want, str(what))


def raw(array: Any) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# Layouts: how `size` elements an axis lie in a larger array. Each gives the indices into the larger array, and its shape.


def _plain(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    return shape, tuple(slice(None) for _ in shape), tuple(range(len(shape)))


def _strided(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    return tuple(2 * size + 1 for size in shape), tuple(slice(1, None, 2) for _ in shape), tuple(range(len(shape)))


def _reversed(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    return shape, tuple(slice(None, None, -1) for _ in shape), tuple(range(len(shape)))


def _transposed(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    return shape[::-1], tuple(slice(None) for _ in shape), tuple(range(len(shape)))[::-1]


def _padded(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    return tuple(size + 3 for size in shape), tuple(slice(1, size + 1) for size in shape), tuple(range(len(shape)))


def _thrice_reversed(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[Any, ...], tuple[int, ...]]:
    larger = tuple(3 * size for size in shape)
    return larger[::-1], tuple(slice(None, None, -3) for _ in shape), tuple(range(len(shape)))[::-1]


LAYOUTS: dict[str, Callable[..., Any]] = {
    "plain": _plain,
    "strided": _strided,
    "reversed": _reversed,
    "transposed": _transposed,
    "padded": _padded,
    "thrice reversed": _thrice_reversed,
}


def place(shape: tuple[int, ...], dtype: Any, layout: str, offset: int = 0) -> tuple[Any, Any]:
    """A view of this shape and layout, and the bytes it is a view of, all poisoned; the first of them `offset` elements on."""
    larger, index, axes = LAYOUTS[layout](tuple(shape))
    size, itemsize = int(np.prod(larger, dtype=np.int64)), np.dtype(dtype).itemsize
    room = np.full((size + offset + 64) * itemsize, POISON, np.uint8)
    start = 32 * itemsize + offset * itemsize
    whole = room[start : start + size * itemsize].view(dtype).reshape(larger)
    return whole.transpose(axes)[(*index, ...)], room


def lay(values: Any, layout: str, offset: int = 0) -> Any:
    """The same values in another layout."""
    view, _ = place(values.shape, values.dtype, layout, offset)
    view[...] = values
    return view


class Watched:
    """An output of some layout; `check` fails if a byte beside its elements has changed."""

    def __init__(self, shape: tuple[int, ...], dtype: Any, layout: str = "plain", offset: int = 0) -> None:
        self.array, self.room = place(shape, dtype, layout, offset)
        self.before = self.room.copy()

    def check(self) -> Any:
        values = self.array.copy()
        self.array.view(np.uint16 if self.array.dtype.itemsize == 2 else np.uint32)[...] = 0
        after = self.room.copy()
        self.room[:] = self.before
        self.array.view(np.uint16 if self.array.dtype.itemsize == 2 else np.uint32)[...] = 0
        assert (after == self.room).all(), "memory beside the output was written"
        return values


@contextlib.contextmanager
def at_the_edge(*arrays: Any, end: bool = True) -> Iterator[list[Any]]:
    """Copies of contiguous arrays that end where the next page may not be touched, or begin where the one before may not."""
    page, rooms, results = mmap.PAGESIZE, [], []
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for array in arrays:
        inside = -(-array.nbytes // page) * page
        room = np.frombuffer(mmap.mmap(-1, inside + 2 * page), np.uint8)
        first = room.ctypes.data
        for guard in (first, first + page + inside):
            assert mprotect(guard, page, 0) == 0
        rooms.append((first, inside))
        start = page + inside - array.nbytes if end else page
        copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        copy[...] = array
        results.append(copy)
    try:
        yield results
    finally:
        for first, inside in rooms:
            for guard in (first, first + page + inside):
                mprotect(guard, page, mmap.PROT_READ | mmap.PROT_WRITE)


def for_all_threads(call: Callable[[], Any], counts: tuple[int, ...] = THREADS) -> set[bytes]:
    """The results of a call with these numbers of threads, as a set of bytes; any two pieces of work are shared."""
    before, asleep = anycann.get_num_threads(), cpu_threads._ASLEEP
    cpu_threads._ASLEEP = 0
    try:
        found = set()
        for count in counts:
            anycann.set_num_threads(count)
            result = call()
            found.add(b"".join(raw(array) for array in (result if isinstance(result, tuple) else (result,))))
        return found
    finally:
        anycann.set_num_threads(before)
        cpu_threads._ASLEEP = asleep


layouts = st.sampled_from(sorted(LAYOUTS))
dtypes = st.sampled_from(sorted(DTYPES))
seeds = st.integers(0, 2**32 - 1)

SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-8, 6e-8, -3e-5, 1e-39, -1e-42, 65504.0, -3.4e38, np.inf, -np.inf, np.nan)


def with_special_values(array: Any, seed: int) -> Any:
    """About a fifth of the elements replaced by zeros, subnormals, extremes, infinities and NaN."""
    generator = rng(seed)
    with np.errstate(over="ignore"):
        special = np.asarray(SPECIAL).astype(array.dtype)
    return np.where(generator.random(array.shape) < 0.2, generator.choice(special, array.shape), array)


def assert_layouts_do_not_matter(call: Callable[..., Any], *arrays: Any) -> None:
    """call(*inputs, out=out) on large arrays of one shape gives the same bits wherever their axes lie, by any number of threads."""
    want = np.empty_like(arrays[0])
    call(*arrays, out=want)
    for orders in itertools.product(itertools.permutations(range(want.ndim)), repeat=2):
        first, rest = ([array.transpose(order).copy().transpose(np.argsort(order)) for array in arrays] for order in orders)
        given = [first[0], *rest[1:]]
        out = np.full_like(rest[0], np.nan)
        assert for_all_threads(lambda given=given, out=out: call(*given, out=out), (1, 3)) == {raw(want)}, orders


def closer_than_rows(array: Any, axes: int) -> list[Any]:
    """The same values with the axes of rows innermost in memory: all of them, all but the first, and both in reverse."""
    rows = array.ndim - axes
    orders = [(*range(rows, array.ndim), *range(rows)), (0, *range(rows, array.ndim), *range(1, rows))]
    orders += [(*range(rows, array.ndim), *reversed(range(rows))), (0, *range(rows, array.ndim), *reversed(range(1, rows)))]
    return [array.transpose(order).copy().transpose(np.argsort(order)) for order in orders]
