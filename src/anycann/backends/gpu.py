"""What Triton kernels share: launches on addresses, operands of any strides and dtype, arithmetic with one rounding.

Kernels get addresses as integers, as CPU kernels do, and make pointers of them; so the same plan runs torch tensors, memory of a C
program and, in Triton's interpreter, memory of the CPU. The interpreter truncates float32 to bfloat16, so there it is rounded by its
bits. NaN becomes the canonical quiet NaN. Kernels are compiled without contraction: what is fused is written `fma`.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
import triton
import triton.language as tl

from anycann import cuda
from anycann.backends.loops import loops
from anycann.tensor import Tensor

__all__ = [
    "INTERPRETED",
    "Nest",
    "Placed",
    "Start",
    "cdiv",
    "constant",
    "constants",
    "fma",
    "in_halves",
    "in_order",
    "jit",
    "load",
    "nest",
    "offsets",
    "once",
    "read",
    "store",
    "sum_of_partials",
    "type_of",
    "wide",
]

F = TypeVar("F", bound=Callable[..., Any])

INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
NARROW_INDEX = 1 << 31  # indices and offsets below this are 32-bit
_AT_ONCE = tl.constexpr(32)  # partial sums whose loads are in flight together
_HALF_NAN = tl.constexpr(0x7E00)
_BF16_NAN = tl.constexpr(0x7FC0)
_MINUS_ZERO = tl.constexpr(0x8000)
_TYPES = {"float16": tl.float16, "bfloat16": tl.bfloat16, "float32": tl.float32}


def jit(function: F) -> F:
    """A Triton function."""
    compiled: F = triton.jit(function)
    return compiled


def type_of(name: str) -> Any:
    """Triton's type of a dtype."""
    return _TYPES[name]


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


@jit
def fma(a: tl.tensor, b: tl.tensor, c: tl.tensor) -> tl.tensor:
    """a * b + c, rounded once (the interpreter: float32 by way of float64, float64 with products from 2**-900 to 2**900 or 0)."""
    if not INTERPRETED:
        return tl.fma(a, b, c)
    elif a.dtype == tl.float64:
        return _fused(a, b, c)
    else:
        return (tl.cast(a, tl.float64) * tl.cast(b, tl.float64) + tl.cast(c, tl.float64)).to(tl.float32)


@jit
def _two_sum(a: tl.tensor, b: tl.tensor) -> tl.tuple:
    """The rounded sum and what it lacks."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


@jit
def _halves(a: tl.tensor) -> tl.tuple:
    """The upper and the lower half of the digits of float64."""
    scaled = a * 134217728.0 + a  # 2**27 + 1
    high = scaled - (scaled - a)
    return high, a - high


@jit
def _fused(a: tl.tensor, b: tl.tensor, c: tl.tensor) -> tl.tensor:
    """fma of float64: of the exact product and c, all but the leading part is rounded to odd before the last addition."""
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    product = a * b
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    middle, low = _two_sum(c, rest)
    high, next_low = _two_sum(product, middle)
    tail, error = _two_sum(low, next_low)
    bits = tail.to(tl.int64, bitcast=True)
    towards = tl.where((error > 0.0) == (tail > 0.0), 1, -1)
    tail = tl.where((error != 0.0) & (bits % 2 == 0), bits + towards, bits).to(tl.float64, bitcast=True)
    result = high + tail
    return tl.where((tl.abs(result) < float("inf")) & (result != 0.0), result, product + c)


@jit
def constant(shape: tl.constexpr, VALUE: tl.constexpr, T: tl.constexpr) -> tl.tensor:
    """A number; None is -0.0, which changes no sum, and of which some versions of Triton make 0.0."""
    if VALUE is None:
        return tl.full(shape, -1.0, T) * 0.0
    else:
        return tl.full(shape, VALUE, T)


@jit
def load(p: tl.tensor, o: tl.tensor, m: tl.tensor, T: tl.constexpr, POLICY: tl.constexpr) -> tl.tensor:
    """Elements at offsets o of an address, as float32; -0.0, the number that changes no sum, where m is not set."""
    if T == tl.bfloat16:
        b = tl.load(p.to(tl.pointer_type(tl.uint16)) + o, mask=m, other=None if m is None else _MINUS_ZERO, eviction_policy=POLICY)
        return (b.to(tl.uint32) << 16).to(tl.float32, bitcast=True)
    else:
        return tl.load(p.to(tl.pointer_type(T)) + o, mask=m, other=None if m is None else constant([], None, T), eviction_policy=POLICY).to(
            tl.float32
        )


@jit
def store(p: tl.tensor, o: tl.tensor, x: tl.tensor, m: tl.tensor, T: tl.constexpr) -> None:
    """Round float32 once, half to even, and write it."""
    if T == tl.float32:
        tl.store(p.to(tl.pointer_type(tl.float32)) + o, tl.where(x == x, x, float("nan")), mask=m)
    elif T == tl.bfloat16:
        if INTERPRETED:
            b = x.to(tl.uint32, bitcast=True)
            b = ((b + 0x7FFF + ((b >> 16) & 1)) >> 16).to(tl.uint16)
        else:
            b = x.to(tl.bfloat16).to(tl.uint16, bitcast=True)
        tl.store(p.to(tl.pointer_type(tl.uint16)) + o, tl.where(x == x, b, _BF16_NAN).to(tl.uint16), mask=m)
    else:
        b = x.to(tl.float16).to(tl.uint16, bitcast=True)
        tl.store(p.to(tl.pointer_type(tl.uint16)) + o, tl.where(x == x, b, _HALF_NAN).to(tl.uint16), mask=m)


@jit
def once(x: tl.tensor, T: tl.constexpr) -> tl.tensor:
    """float64 to float32 such that rounding that to T is rounding once: to nearest, or to odd where T is shorter."""
    y = x.to(tl.float32)
    if T != tl.float32:
        back = y.to(tl.float64)
        b = y.to(tl.int32, bitcast=True)
        b = tl.where(tl.abs(back) > tl.abs(x), b - 1, b)
        b = tl.where(back != x, b | 1, b)
        y = tl.where(x == x, b.to(tl.float32, bitcast=True), y)
    return y


@jit
def in_order(total: tl.tensor, x: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """total + x[:, 0] + x[:, 1] + …, added in this order; x has N columns, a power of two."""
    if N == 1:
        return total + tl.reshape(x, total.shape).to(total.dtype)
    else:
        low, high = tl.split(tl.permute(tl.reshape(x, [total.shape[0], 2, N // 2]), (0, 2, 1)))
        return in_order(in_order(total, low, N // 2), high, N // 2)


@jit
def in_halves(x: tl.tensor, N: tl.constexpr) -> tl.tensor:
    """The sum of each row of x: elements and those half their number on, until one is left; x has N columns, a power of two."""
    if N == 1:
        return tl.reshape(x, [x.shape[0]])
    else:
        low, high = tl.split(tl.permute(tl.reshape(x, [x.shape[0], 2, N // 2]), (0, 2, 1)))
        return in_halves(low + high, N // 2)


@jit
def sum_of_partials(p: tl.tensor, o: tl.tensor, step: tl.tensor, count: tl.tensor, m: tl.tensor, first: tl.constexpr) -> tl.tensor:
    """first + the float64 numbers at offsets o, o + step, …, `count` of them, added in this order."""
    places = p.to(tl.pointer_type(tl.float64)) + o
    total = constant(o.shape, first, tl.float64)
    for start in range(0, count, _AT_ONCE):
        for j in tl.static_range(_AT_ONCE):
            there = m & (o * 0 + (start + j) < count)
            total += tl.load(places + tl.cast(start + j, tl.int64) * step, mask=there, other=constant([], None, tl.float64))
    return total


@jit
def offsets(i: tl.tensor, sizes: tl.tuple, strides: tl.tuple, N: tl.constexpr) -> tl.tensor:
    """Where the elements of flat indices i lie under a nest of N loops, innermost first."""
    o = i * 0
    for d in tl.static_range(N):
        if d == N - 1:
            if strides[d] is not None:
                o += i * strides[d]
        else:
            if strides[d] is not None:
                o += (i % sizes[d]) * strides[d]
            i = i // sizes[d]
    return o


@jit
def read(p: tl.tensor, i: tl.tensor, m: tl.tensor, sizes: tl.tuple, strides: tl.tuple, N: tl.constexpr, T: tl.constexpr) -> tl.tensor:
    """The elements of flat indices i under a nest of loops; an operand of one element is loaded once."""
    if N == 1 and strides[0] is None:
        return tl.broadcast_to(load(p, 0, None, T, ""), i.shape)
    elif N == 1:
        return load(p, offsets(i, sizes, strides, N), m, T, "evict_first")
    else:
        return load(p, offsets(i, sizes, strides, N), m, T, "")


class Nest(NamedTuple):
    """Loops over several operands at once, innermost first: sizes, and for each operand its strides, None for 0."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int | None, ...], ...]


def nest(tensors: Sequence[Tensor], shape: Sequence[int], free: bool = False) -> Nest:
    """`loops` as kernels take them."""
    sizes, strides = loops(tensors, shape, free)
    return Nest(sizes[::-1], tuple([tuple([step or None for step in reversed(steps)]) for steps in strides]))


def wide(tensors: Sequence[Tensor], numel: int, block: int) -> bool:
    """Whether flat indices, up to the end of the last block, or offsets of an element need 64 bits."""
    reach = max(max(map(abs, tensor.span())) for tensor in tensors)
    return max(reach, numel + block) >= NARROW_INDEX


class Placed:
    """An array in the memory of a device, which kernels read by its address as long as this object lives."""

    __slots__ = ("address", "kept")

    def __init__(self, array: "np.ndarray[Any, Any]", device: str) -> None:
        array = np.ascontiguousarray(array)
        self.kept: Any = array
        self.address: int = array.ctypes.data
        if device != "cpu":
            self.kept = cuda.need("a table", device).tensor(array, device=device)
            self.address = self.kept.data_ptr()


_constants: dict[tuple[str, str], Placed] = {}


def constants(key: str, device: str, make: Callable[[], "np.ndarray[Any, Any]"]) -> int:
    """The address of constants on a device; they are made once and stay."""
    if (key, device) not in _constants:
        _constants[key, device] = Placed(make(), device)
    return _constants[key, device].address


class _Pointer:
    """An address as Triton's compiler takes it, so that it sees how it is aligned."""

    __slots__ = ("address",)
    dtype = "uint8"

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        """The address."""
        return self.address


class Start:
    """A kernel and all that a plan knows of its launch; a call brings the addresses, which the kernel takes first.

    It runs on the current stream of the device; "cpu" is the interpreter. What was compiled is kept for each alignment of the
    addresses, so that a repeated launch costs Triton's launcher only.
    """

    def __init__(self, kernel: Any, grid: int, device: str, warps: int, *args: Any) -> None:
        self.kernel, self.grid, self.warps, self.args = kernel, (grid, 1, 1), warps, args
        self.run: Callable[..., None] = self._interpret if device == "cpu" else self._launch
        self._cuda: Any = None
        self._index = 0
        self._ready: dict[tuple[bool, ...], Callable[..., Any]] = {}
        if device != "cpu":
            torch = cuda.need("a tensor", device)
            self._cuda, self._index = torch.cuda, torch.device(device).index or 0

    def __call__(self, *addresses: int) -> None:
        self.run(addresses)

    def compile(self, addresses: Sequence[int], **options: Any) -> Any:
        """What Triton makes of the kernel for these addresses; nothing runs."""
        pointers = map(_Pointer, addresses)
        return self.kernel.warmup(*pointers, *self.args, grid=self.grid, num_warps=self.warps, enable_fp_fusion=False, **options)

    def _interpret(self, addresses: Sequence[int]) -> None:
        with np.errstate(all="ignore"):
            self.kernel[self.grid](*addresses, *self.args)

    def _launch(self, addresses: Sequence[int]) -> None:
        if self._cuda.current_device() != self._index:
            with self._cuda.device(self._index):
                return self._launch(addresses)
        aligned = tuple([address % 16 == 0 for address in addresses])
        ready = self._ready.get(aligned)
        if ready is None:
            self._ready[aligned] = ready = self.compile(addresses)[self.grid]
        ready(*addresses, *self.args)
        return None
