"""Tier 2 instructions against NumPy, bit for bit: the count forms, the mask + repeat forms, casts in every rounding mode."""

from fractions import Fraction
from functools import cache

import ml_dtypes
import numpy as np
import pytest
from ascendc_paths import ROOT

from anycann import ascendc

SOURCE = ROOT / "tests" / "ascendc" / "vector_ops.cpp"
NAMES = {
    "half": np.float16,
    "float": np.float32,
    "int16_t": np.int16,
    "int32_t": np.int32,
    "bfloat16_t": ml_dtypes.bfloat16,
    "int8_t": np.int8,
    "int64_t": np.int64,
}
CASTS = (
    "half, float",
    "float, half",
    "float, bfloat16_t",
    "bfloat16_t, float",
    "float, int32_t",
    "half, int8_t",
    "int32_t, float",
    "int64_t, float",
    "int32_t, half",
)


@cache
def module() -> ascendc.Module:
    templates = {"arithmetic": ["half", "float", "int16_t", "int32_t"], "floating": ["half", "float"], "cast": list(CASTS)}
    return ascendc.build(SOURCE, templates=templates)


def run(kernel, key, x, y, out, count):
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    module()[kernel][1](x, y, out, x.size, out.size, count, tiling_key=key)
    return out


def data(dtype, size, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "i":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, size, dtype=dtype, endpoint=True)
    return (rng.standard_normal(size) * 4).astype(dtype)


def wide(array):
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


BINARY = [np.add, np.subtract, np.multiply, np.maximum, np.minimum]


def lanes(dtype, repeats, words):
    """Which elements of so many repeats a mask selects: None for a count of 64 bytes and one element, else the two words of the kernel."""
    size = np.dtype(dtype).itemsize
    per_repeat = 256 // size
    pattern = (
        [0x5555555555555555 >> i & 1 for i in range(64)] + [i < 8 for i in range(64)] if words else [i < 64 // size + 1 for i in range(128)]
    )
    return np.tile(np.array(pattern[:per_repeat], bool), repeats)


@pytest.mark.parametrize("name", ["half", "float", "int16_t", "int32_t"])
def test_arithmetic(name):
    dtype = NAMES[name]
    size, per_repeat = 3 * 256 // np.dtype(dtype).itemsize, 256 // np.dtype(dtype).itemsize
    count = size - 5
    x, y = data(dtype, size), data(dtype, size, 1)
    with np.errstate(over="ignore"):
        binary = [f(wide(x), wide(y)).astype(dtype) for f in BINARY]
        scalar = [
            f(wide(x), wide(np.asarray(s, dtype))).astype(dtype)
            for f, s in ((np.add, 3), (np.multiply, 3), (np.maximum, 1), (np.minimum, 1))
        ]
    for key, expected in enumerate(binary + scalar):
        got = run(f"arithmetic<{name}>", key, x, y, np.empty(size, dtype), count)
        assert got[:count].tobytes() == expected[:count].tobytes(), key
        assert not got[count:].any()
        masked = run(f"arithmetic<{name}>", 20 + key, x, y, np.empty(size, dtype), count)
        on = lanes(dtype, 3, words=key in (0, 2, 4, 5, 7))
        assert masked.tobytes() == np.where(on, expected, np.zeros((), dtype)).tobytes(), key
    assert (run(f"arithmetic<{name}>", 29, x, y, np.empty(size, dtype), count) == np.where(lanes(dtype, 3, words=True), 9, 0)).all()
    assert (run(f"arithmetic<{name}>", 30, x, y, np.empty(size, dtype), count)[:count] == 9).all()
    assert (run(f"arithmetic<{name}>", 31, x, y, np.empty(size, dtype), count)[:count] == np.arange(5, 5 + count)).all()

    per_block, some = 32 // np.dtype(dtype).itemsize, 64 // np.dtype(dtype).itemsize + 1
    strided = run(f"arithmetic<{name}>", 32, x, y, np.empty(size, dtype), count)
    expected = np.zeros(size, dtype)
    for repeat in range(2):
        for lane in range(some):
            expected[repeat * per_repeat + lane] = x[repeat * per_block + lane // per_block * 2 * per_block + lane % per_block]
    assert strided.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["half", "float", "int16_t", "int32_t"])
def test_block_and_repeat_strides(name):
    dtype = NAMES[name]
    per_repeat, per_block = 256 // np.dtype(dtype).itemsize, 32 // np.dtype(dtype).itemsize
    size = 4 * per_repeat
    x, y = data(dtype, size) // 4, data(dtype, size, 1) // 4
    expected = np.zeros(size, dtype)
    on = lanes(dtype, 1, words=True)
    for repeat in range(2):
        for lane in np.flatnonzero(on):
            block, inside = divmod(int(lane), per_block)
            expected[(repeat * 12 + 2 * block) * per_block + inside] = x[repeat * per_repeat + lane] + y[repeat * per_block + inside]
    got = run(f"arithmetic<{name}>", 33, x, y, np.empty(size, dtype), 0)
    assert got.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["half", "float"])
def test_functions(name):
    dtype = NAMES[name]
    size = 3 * 256 // np.dtype(dtype).itemsize
    count = size - 3
    x, y = np.minimum(abs(data(dtype, size)) + dtype(0.01), dtype(10)), data(dtype, size, 1)
    signed = data(dtype, size, 2)
    f64 = x.astype(np.float64)
    cases = {
        0: (signed, (wide(signed) / wide(y)).astype(dtype)),
        1: (signed, abs(signed)),
        2: (x, np.exp(f64).astype(np.float32).astype(dtype)),
        3: (x, np.log(f64).astype(np.float32).astype(dtype)),
        4: (x, np.sqrt(wide(x)).astype(dtype)),
        5: (x, (1 / np.sqrt(f64)).astype(np.float32).astype(dtype)),
        6: (x, (np.float32(1) / wide(x)).astype(dtype)),
        7: (signed, np.maximum(signed, dtype(0))),
        8: (signed, np.where(signed >= 0, signed, (wide(signed) * np.float32(0.125)).astype(dtype))),
        9: (signed, (wide(signed) * np.float32(2.5)).astype(dtype)),
    }
    on = lanes(dtype, 3, words=True)
    for key, (operand, expected) in cases.items():
        got = run(f"floating<{name}>", key, operand, y, np.empty(size, dtype), count)
        assert got[:count].tobytes() == expected[:count].tobytes(), key
        if key in (0, 1, 2, 9):
            masked = run(f"floating<{name}>", 20 + key, operand, y, np.empty(size, dtype), count)
            assert masked.tobytes() == np.where(on, expected, dtype(0)).tobytes(), key


@pytest.mark.parametrize("name", ["half", "float"])
def test_compare_and_select(name):
    dtype = NAMES[name]
    size = 4 * 256 // np.dtype(dtype).itemsize
    x, y = data(dtype, size), data(dtype, size, 1)
    y[::7] = x[::7]
    for key, f in enumerate((np.less, np.greater, np.equal, np.less_equal, np.greater_equal, np.not_equal)):
        got = run(f"floating<{name}>", 40 + key, x, y, np.empty(max(size // 8, 32), np.uint8), size)
        assert (got[: size // 8] == np.packbits(f(x, y), bitorder="little")).all()
    got = run(f"floating<{name}>", 46, x, y, np.empty(max(size // 8, 32), np.uint8), size)
    assert (got[: size // 8] == np.packbits(x > 0, bitorder="little")).all()
    on = lanes(dtype, 2, words=True)
    half = on.size
    for key, truth in ((47, x < y), (48, x > 0)):
        got = run(f"floating<{name}>", key, x, y, np.empty(32, np.uint8), size)
        assert (got[: half // 8] == np.packbits(truth[:half] & on, bitorder="little")).all()
    per_repeat = 256 // np.dtype(dtype).itemsize
    first = np.tile((x < y)[:per_repeat], 4)  # the mode that reads one register's worth of bits again and again
    for key, expected in (
        (50, np.where(x < y, x, y)),
        (51, np.where(x < y, x, dtype(7))),
        (52, np.where(first, x, y)),
        (53, np.where(x < y, x, y)),
    ):
        got = run(f"floating<{name}>", key, x, y, np.empty(size, dtype), size)
        assert got.tobytes() == expected.astype(dtype).tobytes(), key


def tree(values):
    values = list(values)
    while len(values) > 1:
        values = [(wide(a) + wide(b)).astype(a.dtype) for a, b in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def in_order(parts):
    total = parts[0]
    for part in parts[1:]:
        total = (wide(total) + wide(part)).astype(total.dtype)
    return total


@pytest.mark.parametrize("name", ["half", "float"])
def test_reductions(name):
    dtype = NAMES[name]
    itemsize = np.dtype(dtype).itemsize
    per_repeat, per_block = 256 // itemsize, 32 // itemsize
    size, count = 3 * per_repeat, 3 * per_repeat - 7
    x = data(dtype, size)
    kernel = f"floating<{name}>"

    def out():
        return np.empty(size, dtype)

    padded = np.where(np.arange(size) < count, x, dtype(0)).reshape(3, per_repeat)
    assert run(kernel, 60, x, x, out(), count)[0] == in_order([tree(row) for row in padded])
    index = np.uint16 if itemsize == 2 else np.uint32
    for key, f in ((61, np.argmax), (62, np.argmin)):
        got = run(kernel, key, x, x, out(), count)
        assert got[0] == x[f(x[:count])]
        assert got[1:2].view(index)[0] == f(x[:count])
    rows = x.reshape(3, per_repeat)
    assert run(kernel, 63, x, x, out(), count)[:3].tolist() == [tree(row) for row in rows]
    got = run(kernel, 64, x, x, out(), count)
    assert got[:6:2].tolist() == rows.max(axis=1).tolist()
    assert got[1:6:2].copy().view(index).tolist() == rows.argmax(axis=1).tolist()
    blocks = x.reshape(3, 8, per_block)
    assert run(kernel, 65, x, x, out(), count)[:24].tolist() == [tree(block) for row in blocks for block in row]
    on = lanes(dtype, 3, words=True).reshape(3, per_repeat)
    masked = np.where(on, rows, dtype(0))
    assert run(kernel, 66, x, x, out(), count)[0] == in_order([tree(row) for row in masked])
    assert run(kernel, 67, x, x, out(), count)[:6:2].tolist() == [tree(row) for row in masked]
    assert run(kernel, 68, x, x, out(), count)[:3].tolist() == [row[mask].min() for row, mask in zip(rows, on, strict=True)]
    assert run(kernel, 69, x, x, out(), count)[:24].tolist() == blocks.max(axis=2).ravel().tolist()
    assert run(kernel, 70, x, x, out(), count)[:24].tolist() == blocks.min(axis=2).ravel().tolist()
    assert run(kernel, 71, x, x, out(), count)[:count].tobytes() == x[:count][::-1].tobytes()
    gathered = np.where(lanes(dtype, 2, words=True), x[2 : 2 + 2 * per_repeat], dtype(0))
    assert run(kernel, 73, x, x, out(), count)[: 2 * per_repeat].tobytes() == gathered.tobytes()
    for key, f, other in ((74, np.argmax, -np.inf), (75, np.argmin, np.inf)):
        got = run(kernel, key, x, x, out(), count)
        best = int(f(np.where(on.ravel(), x, dtype(other))))
        assert (got[0], got[1:2].view(index)[0]) == (x[best], best)
    assert run(kernel, 72, x, x, np.empty(16 * per_block, dtype), count).tolist() == np.repeat(x[:16], per_block).tolist()


def test_bits():
    x, y = (np.random.default_rng(i).integers(0, 65536, 256).astype(np.uint16) for i in (0, 1))
    on = lanes(np.uint16, 2, words=True)
    for key, expected in enumerate((x & y, x | y, ~x, x << 3, x >> 3)):
        assert (run("bits", key, x, y, np.empty(256, np.uint16), 250)[:250] == expected.astype(np.uint16)[:250]).all()
    assert (run("bits", 7, x, y, np.empty(256, np.uint16), 0) == np.where(on, ~x, 0)).all()
    wide_x = np.random.default_rng(2).integers(-(2**31), 2**31, 128).astype(np.int32)
    for key, expected in ((5, wide_x << 3), (6, wide_x >> 3)):
        assert (run("bits", key, wide_x, wide_x, np.empty(128, np.int32), 128) == expected.astype(np.int32)).all()


def rounded(value: Fraction, mode: int, neighbours) -> float:
    """The neighbour that a mode chooses: (below, above, whether the last digit of each is odd), exactly."""
    below, above, odd_below = neighbours
    if below == above:
        return below
    up = {2: False, 3: True, 4: None, 5: value < 0, 6: not odd_below}.get(mode)
    if up is None:
        twice = 2 * value - (Fraction(below) + Fraction(above))
        up = twice > 0 or (twice == 0 and (value > 0 if mode == 4 else odd_below))
    return above if up else below


def float_neighbours(value: Fraction, dtype):
    """The two numbers of a type around a value, found by their bits."""
    near = np.array(float(value)).astype(dtype)
    bits = np.dtype(dtype).itemsize * 8
    words = near.view(f"uint{bits}").astype(np.int64)
    exact = Fraction(float(near))
    if exact == value:
        return float(near), float(near), False
    step = 1 if (exact < value) == (value > 0) else -1
    other = np.array(words + step).astype(f"uint{bits}").view(dtype)
    pair = sorted(((float(near), int(words)), (float(other), int(words) + step)))
    return pair[0][0], pair[1][0], bool(pair[0][1] & 1)


def integer_neighbours(value: Fraction):
    low = value.numerator // value.denominator
    return float(low), float(low if low == value else low + 1), bool(low & 1)


@pytest.mark.parametrize(
    "pair", ["float, half", "float, bfloat16_t", "float, int32_t", "half, int8_t", "int32_t, float", "int64_t, float", "int32_t, half"]
)
@pytest.mark.parametrize("mode", range(7))
def test_cast_modes(pair, mode):
    source, target = (NAMES[name] for name in pair.split(", "))
    rng = np.random.default_rng(5)
    if np.dtype(source).kind == "i":
        limit = 60000 if target is np.float16 else 2**40 if source is np.int64 else 2**31 - 1
        x = rng.integers(-limit, limit, 512).astype(source)
    else:
        x = (rng.standard_normal(512) * np.exp2(rng.integers(-20, 5, 512))).astype(source)
        x[:8] = np.array([0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 0.0, 3.0])
        x[8:12] = np.array([1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8, 1 + 3 * 2**-8], np.float32).astype(source)
        if np.dtype(target).kind == "i":
            x = np.clip(x, -100, 100)
    expected = []
    for value in x.tolist():
        exact = Fraction(value)
        around = integer_neighbours(exact) if np.dtype(target).kind == "i" else float_neighbours(exact, target)
        expected.append(rounded(exact, mode, around))
    got = run(f"cast<{pair}>", mode, x, x, np.empty(512, target), 512)
    assert got.astype(np.float64).tolist() == expected


def test_every_half_and_every_rounding_to_half():
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    for start in range(0, 65536, 8192):
        part = every[start : start + 8192]
        got = run("cast<half, float>", 0, part, part, np.empty(8192, np.float32), 8192)
        finite = ~np.isnan(part)
        assert got[finite].tobytes() == part[finite].astype(np.float32).tobytes()
        assert np.isnan(got[~finite]).all()
    numbers = np.unique(abs(every[np.isfinite(every)])).astype(np.float64)
    ties = ((numbers[:-1] + numbers[1:]) / 2).astype(np.float32)  # exact in float32
    around = np.concatenate(
        [ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, np.float32(-np.inf)), [65519.9, 65520, 1e9, np.inf, -np.inf]]
    )
    around = np.resize(around.astype(np.float32), 98304)
    for start in range(0, around.size, 8192):
        part = around[start : start + 8192]
        with np.errstate(over="ignore"):
            assert run("cast<float, half>", 1, part, part, np.empty(8192, np.float16), 8192).tobytes() == part.astype(np.float16).tobytes()


def test_casts_to_integers_saturate():
    x = np.resize(np.array([1e20, -1e20, np.inf, -np.inf, np.nan, 2147483520.0], np.float32), 64)
    got = run("cast<float, int32_t>", 1, x, x, np.empty(64, np.int32), 64)
    assert got[:6].tolist() == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 2147483520]


@pytest.mark.parametrize("pair", ["half, float", "float, half", "bfloat16_t, float"])
def test_cast_in_repeats_equals_the_count_form(pair):
    source, target = (NAMES[name] for name in pair.split(", "))
    x = data(np.float32, 256).astype(source)
    counted = run(f"cast<{pair}>", 1, x, x, np.empty(256, target), 256)
    repeated = run(f"cast<{pair}>", 7, x, x, np.empty(256, target), 256)
    assert counted.tobytes() == repeated.tobytes()
