"""What `cpu_simd` is made of: the Numba types of vectors, tags and tables, and how their operations become LLVM code."""

import functools
import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from llvmlite import binding as llvm
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import NativeValue, intrinsic, lower_builtin, register_model, unbox

__all__ = [
    "BF16", "DOUBLE", "F16", "F32", "FLOAT", "I1", "I8", "I16", "I32", "I64", "LANES", "Constants", "Emit", "Static", "Table", "Tag",
    "Value", "Vector", "f32x16", "f64x16", "i32x16", "lanes", "mask16", "operation", "raw_type", "same",
]  # fmt: skip

LANES = 16
_STRANGE = 0x01 | 0x20 | 0x80  # classes of numbers: quiet NaN, subnormal, signalling NaN
Value: TypeAlias = Any  # an LLVM value

I1, I8, I16, I32, I64 = (ir.IntType(width) for width in (1, 8, 16, 32, 64))
HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()


class Static(types.Dummy):
    """A value known at compile time, as the type of an argument that carries nothing at run time."""

    def __init_subclass__(cls) -> None:
        register_model(cls)(models.OpaqueModel)


class Tag(Static):
    """A dtype that chooses code."""

    def __init__(self, name: str, itemsize: int) -> None:
        super().__init__(name)
        self.itemsize = itemsize


class Constants(Static):
    """Numbers that a kernel file has given a name at module level."""

    def __init__(self, values: tuple[Any, ...]) -> None:
        self.values = values
        super().__init__(f"{type(self).__name__}_{hash(values) & 0xFFFFFFFFFFFFFFFF:x}")

    @property
    def key(self) -> tuple[Any, ...]:
        return self.values


class Table(Constants):
    """8, 16 or 32 float32 constants for `lookup`."""

    def __init__(self, values: tuple[float, ...]) -> None:
        if len(values) not in (8, 16, 32):
            raise ValueError(f"a table holds 8, 16 or 32 numbers; got {len(values)}")
        super().__init__(values)


class Vector(types.Type):
    """The type of 16 lanes of one scalar type."""

    def __init__(self, name: str, element: types.Type, lanes: ir.Type) -> None:
        super().__init__(name)
        self.element, self.llvm = element, ir.VectorType(lanes, LANES)


F16, BF16, F32 = Tag("float16", 2), Tag("bfloat16", 2), Tag("float32", 4)

if TYPE_CHECKING:  # Numba checks these types when it compiles a kernel; to mypy a vector is Any
    f32x16: TypeAlias = Any
    i32x16: TypeAlias = Any
    f64x16: TypeAlias = Any
    mask16: TypeAlias = Any
else:
    f32x16 = Vector("f32x16", types.float32, FLOAT)
    i32x16 = Vector("i32x16", types.int32, I32)
    f64x16 = Vector("f64x16", types.float64, DOUBLE)
    mask16 = Vector("mask16", types.boolean, I1)


@register_model(Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, vector: Vector) -> None:
        super().__init__(manager, vector, vector.llvm)


@unbox(Tag)  # type: ignore[untyped-decorator]
def _unbox_tag(tag: Tag, value: Any, c: Any) -> NativeValue:
    return NativeValue(c.context.get_dummy_value())


class Emit:
    """The LLVM builder of one call, with what all operations below are made of; values are vectors or scalars alike."""

    def __init__(self, context: Any, builder: ir.IRBuilder) -> None:
        self.context, self.b = context, builder

    def has(self, feature: str) -> bool:
        """Whether kernels are compiled for a CPU with this LLVM feature."""
        return f"+{feature}" in self.context.codegen().magic_tuple()[2].split(",")

    def shaped(self, value: Any, element: ir.Type) -> ir.Type:
        """The element type in the shape (vector or scalar) of value."""
        return ir.VectorType(element, value.type.count) if isinstance(value.type, ir.VectorType) else element

    def like(self, value: Any, number: Any) -> Any:
        """A constant in the type of value."""
        return ir.Constant(value.type, [number] * value.type.count if isinstance(value.type, ir.VectorType) else number)

    def cast(self, value: Any, element: ir.Type) -> Any:
        return self.b.bitcast(value, self.shaped(value, element))

    def call(self, name: str, result: ir.Type, *args: Any) -> Any:
        function = self.b.module.globals.get(name)
        if function is None:
            function = ir.Function(self.b.module, ir.FunctionType(result, [arg.type for arg in args]), name)
        return self.b.call(function, args)

    def splat(self, scalar: Any, count: int = LANES) -> Any:
        vector = ir.VectorType(scalar.type, count)
        one = self.b.insert_element(ir.Constant(vector, ir.Undefined), scalar, I32(0))
        return self.b.shuffle_vector(one, ir.Constant(vector, ir.Undefined), ir.Constant(ir.VectorType(I32, count), [0] * count))

    def iota(self, count: int = LANES) -> Any:
        return ir.Constant(ir.VectorType(I32, count), list(range(count)))

    def pointer(self, address: Any, i: Any, size: int, to: ir.Type) -> Any:
        return self.b.inttoptr(self.b.add(address, self.b.mul(i, I64(size))), to.as_pointer())

    def read(self, address: Any, i: Any, size: int, what: ir.Type) -> Any:
        value = self.b.load(self.pointer(address, i, size, what), typ=what)
        value.align = 1
        return value

    def write(self, address: Any, i: Any, size: int, value: Any) -> Any:
        store = self.b.store(value, self.pointer(address, i, size, value.type))
        store.align = 1
        return store

    def first(self, n: Any, count: int = LANES) -> Any:
        """The mask of the lanes below n, of so many."""
        return self.b.icmp_signed("<", self.iota(count), self.splat(self.b.trunc(n, I32), count))

    def read_tail(self, address: Any, i: Any, size: int, what: ir.VectorType, n: Any) -> Any:
        name = f"llvm.masked.load.v{what.count}i{8 * size}.p0"
        nothing = ir.Constant(what, [0] * what.count)
        return self.call(name, what, self.pointer(address, i, size, what), I32(1), self.first(n, what.count), nothing)

    def write_tail(self, address: Any, i: Any, size: int, value: Any, n: Any) -> None:
        name = f"llvm.masked.store.v{LANES}i{8 * size}.p0"
        self.call(name, ir.VoidType(), value, self.pointer(address, i, size, value.type), I32(1), self.first(n))

    def nan(self, value: Any) -> Any:
        return self.b.fcmp_unordered("uno", value, value)

    def widened(self, tag: Tag, raw: Any) -> Any:
        """float32 of the raw bits of tag."""
        if tag == F32:
            return self.cast(raw, FLOAT)
        if tag == F16 and self.converts_half():
            return self.b.fpext(self.cast(raw, HALF), self.shaped(raw, FLOAT))
        wide = self.b.zext(raw, self.shaped(raw, I32))
        if tag == BF16:
            return self.cast(self.b.shl(wide, self.like(wide, 16)), FLOAT)
        return self.half_to_float(wide)

    def narrowed(self, tag: Tag, value: Any) -> Any:
        """The raw bits of tag that are nearest to a float32."""
        if tag == F32:
            return self.cast(value, I32)
        if tag == F16 and self.converts_half():
            quiet = self.cast(self.like(self.cast(value, I32), 0x7FC00000), FLOAT)
            return self.halves(self.b.select(self.nan(value), quiet, value))
        if tag == F16:
            return self.float_to_half(value)
        if isinstance(value.type, ir.VectorType) and self.rounds_bf16():
            return self.unless_strange([value], lambda: self.assembly("vcvtneps2bf16 $1, $0", lanes(I16), value), lambda: self.upper(value))
        return self.upper(value)

    def upper(self, value: Any) -> Any:
        """The raw bits of the bfloat16 that are nearest to a float32, by integer operations."""
        rounded = self.rounded_above(value)
        return self.b.trunc(self.b.lshr(rounded, self.like(rounded, 16)), self.shaped(rounded, I16))

    def narrowed_pair(self, tag: Tag, low: Any, high: Any) -> Any:
        """`narrowed` of two vectors to 16 bits, one after the other."""

        def each() -> Value:
            return self.side_by_side(*(self.narrowed(tag, value) for value in (low, high)))

        def upper_halves() -> Value:
            halves = [self.b.bitcast(self.rounded_above(value), lanes(I16, 2 * LANES)) for value in (low, high)]
            return self.b.shuffle_vector(*halves, ir.Constant(lanes(I32, 2 * LANES), list(range(1, 4 * LANES, 2))))

        if tag == F16 and self.has("avx512f"):  # one comparison of both instead of one, and a choice, for each
            return self.unless(self.b.fcmp_unordered("uno", low, high), lambda: self.usual_halves(low, high), each)
        if tag != BF16:
            return each()
        if not self.rounds_bf16():
            return upper_halves()
        return self.unless_strange(
            [low, high], lambda: self.assembly("vcvtne2ps2bf16 $1, $2, $0", lanes(I16, 2 * LANES), low, high), upper_halves
        )

    def both(self, first: Value, second: Value) -> Value:
        """Two vectors as the tuple that an operation returns."""
        pair = ir.Constant(ir.ArrayType(first.type, 2), ir.Undefined)
        return self.b.insert_value(self.b.insert_value(pair, first, 0), second, 1)

    def side_by_side(self, low: Value, high: Value) -> Value:
        return self.b.shuffle_vector(low, high, ir.Constant(lanes(I32, 2 * LANES), list(range(2 * LANES))))

    def usual_halves(self, low: Value, high: Value) -> Value:
        """The raw bits of float16 that are nearest to two vectors without NaN, where `converts_half`."""
        return self.side_by_side(*map(self.halves, (low, high)))

    def halves(self, value: Value) -> Value:
        """The raw bits of float16 that are nearest to floats without NaN, where `converts_half`.

        By name for vectors of AVX-512: LLVM takes what comes of its own conversion for a vector of halves wherever it is cast to, where the
        CPU has such, and stores these past no cache.
        """
        if self.has("avx512f") and isinstance(value.type, ir.VectorType):
            name, kept = "llvm.x86.avx512.mask.vcvtps2ph.512", ir.Constant(lanes(I16), ir.Undefined)
            return self.call(name, lanes(I16), value, I32(0), kept, I16(-1))
        return self.cast(self.b.fptrunc(value, self.shaped(value, HALF)), I16)

    def rounds_bf16(self) -> bool:
        """Whether the CPU rounds to bfloat16, subnormal numbers to zero and NaN to some NaN."""
        return self.has("avx512bf16") and self.has("avx512dq")

    def unless_strange(self, values: list[Value], usual: Callable[[], Value], careful: Callable[[], Value]) -> Value:
        """What `usual` gives, or `careful` if there is a NaN or a subnormal number among the float32 values."""
        masks = [self.call("llvm.x86.avx512.fpclass.ps.512", lanes(I1), value, I32(_STRANGE)) for value in values]
        return self.unless(functools.reduce(self.b.or_, masks), usual, careful)

    def unless(self, mask: Value, usual: Callable[[], Value], careful: Callable[[], Value]) -> Value:
        """What `usual` gives, or `careful` if the mask, which hardly ever is, is set in some lane."""
        found = self.b.bitcast(mask, ir.IntType(LANES))
        with self.b.if_else(self.b.icmp_unsigned("!=", found, ir.IntType(LANES)(0)), likely=False) as (strange, ordinary):
            with strange:
                slow, slow_block = careful(), self.b.block
            with ordinary:
                fast, fast_block = usual(), self.b.block
        result = self.b.phi(fast.type)
        result.add_incoming(slow, slow_block)
        result.add_incoming(fast, fast_block)
        return result

    def assembly(self, text: str, result: ir.Type, *args: Value) -> Value:
        """One instruction on vector registers, for types that the LLVM binding cannot write."""
        llvm.initialize_native_asmparser()
        kind = ir.FunctionType(result, [arg.type for arg in args])
        return self.b.asm(kind, text, ",".join(["=v", *["v"] * len(args)]), args, False)

    def rounded_above(self, value: Any) -> Any:
        """Bits whose upper half is the bfloat16 nearest to a float32."""
        u = self.cast(value, I32)
        up = self.b.add(u, self.like(u, 0x7FFF))
        odd = self.b.icmp_unsigned("!=", self.b.and_(u, self.like(u, 0x10000)), self.like(u, 0))
        rounded = self.b.select(odd, self.b.add(up, self.like(u, 1)), up)
        return self.b.select(self.nan(value), self.like(u, 0x7FC00000), rounded)

    def converts_half(self) -> bool:
        """Whether LLVM has an instruction for half conversions; otherwise it would call a library that need not be there."""
        return self.has("f16c") or self.context.codegen().magic_tuple()[0].startswith(("aarch64", "arm64"))

    def half_to_float(self, wide: Any) -> Any:
        def k(number: int) -> Value:
            return self.like(wide, number)

        b = self.b
        magnitude = b.and_(wide, k(0x7FFF))
        shifted = b.shl(magnitude, k(13))
        scaled = b.fmul(self.cast(shifted, FLOAT), self.cast(k((127 + 112) << 23), FLOAT))  # 2^112: the exponents' biases differ by it
        quiet = b.select(b.icmp_signed(">", magnitude, k(0x7C00)), k(0x7FC00000), k(0x7F800000))
        special = b.icmp_signed(">=", magnitude, k(0x7C00))
        body = b.select(special, b.or_(shifted, quiet), self.cast(scaled, I32))
        return self.cast(b.or_(body, b.shl(b.and_(wide, k(0x8000)), k(16))), FLOAT)

    def float_to_half(self, value: Any) -> Any:
        def k(number: int) -> Value:
            return self.like(u, number)

        b, u = self.b, self.cast(value, I32)
        magnitude = b.and_(u, k(0x7FFFFFFF))
        odd = b.and_(b.lshr(magnitude, k(13)), k(1))
        normal = b.lshr(b.add(b.sub(magnitude, k(0x38000000 - 0xFFF)), odd), k(13))
        half = k(0x3F000000)  # 0.5: its unit in the last place is the smallest half, so the addition rounds to a multiple of that
        tiny = b.sub(self.cast(b.fadd(self.cast(magnitude, FLOAT), self.cast(half, FLOAT)), I32), half)
        rounded = b.select(b.icmp_signed("<", magnitude, k(0x38800000)), tiny, normal)  # 2^-14: the smallest normal half
        rounded = b.select(b.icmp_signed(">=", magnitude, k(0x47800000)), k(0x7C00), rounded)  # 2^16
        signed = b.or_(rounded, b.and_(b.lshr(u, k(16)), k(0x8000)))
        return b.trunc(b.select(self.nan(value), k(0x7E00), signed), self.shaped(u, I16))


def lanes(element: ir.Type, count: int = LANES) -> ir.VectorType:
    """The LLVM type of vectors."""
    return ir.VectorType(element, count)


def raw_type(tag: Tag) -> ir.VectorType:
    """The LLVM type of 16 elements in memory, as integers."""
    return lanes(I16 if tag.itemsize == 2 else I32)


Parameter: TypeAlias = Any  # a Numba type, a tuple of tags, or a class (of Static, or Vector) for all its instances


def _converts(given: types.Type, scalar: types.Type) -> bool:
    """Whether a number of one type may stand for one of another: integers for all numbers, floats for floats."""
    if isinstance(given, types.Float):
        return isinstance(scalar, types.Float)
    return isinstance(given, types.Integer) and isinstance(scalar, types.Number)


def _accept(parameter: Parameter, given: types.Type, vectors: list[Vector]) -> types.Type | None:
    """The type to which an argument is converted for this parameter; None if it does not fit."""
    given = given.instance_type if isinstance(given, types.TypeRef) else given
    if parameter is Vector and isinstance(given, types.Number):
        return vectors[-1].element if vectors and _converts(given, vectors[-1].element) else None
    if isinstance(parameter, type):
        return given if isinstance(given, parameter) else None
    if isinstance(parameter, tuple):
        return given if given in parameter else None
    if isinstance(parameter, Vector) and given == parameter:
        return parameter
    scalar = parameter.element if isinstance(parameter, Vector) else parameter
    return scalar if _converts(given, scalar) else None


def _argument(e: Emit, parameter: Parameter, accepted: Any, value: Value) -> Any:
    """What the emitting function is given."""
    if isinstance(accepted, Static):
        return accepted
    vector = parameter is Vector or isinstance(parameter, Vector)
    return e.splat(value) if vector and not isinstance(accepted, Vector) else value


def operation(result: Any, *parameters: Parameter) -> Callable[[Callable[..., Any]], Any]:
    """Make a function of kernels from one that emits LLVM: `emit(e, *values)`, with Static arguments given as themselves.

    All arguments of the parameter class `Vector` have one vector type; result is a Numba type or maps that vector type to one. The
    emitting function stays available as the attribute `emit`, for operations made of others.
    """

    def make(emit: Callable[..., Any]) -> Any:
        def define(typing_context: Any, *given: types.Type) -> Any:
            vectors = [t for p, t in zip(parameters, given, strict=True) if p is Vector and isinstance(t, Vector)]
            accepted = [_accept(p, t, vectors) for p, t in zip(parameters, given, strict=True)]
            if None in accepted or len(set(vectors)) > 1:
                return None
            returned = result(vectors[0]) if inspect.isfunction(result) else result

            def generate(context: Any, builder: ir.IRBuilder, _: Any, values: tuple[Any, ...]) -> Any:
                e = Emit(context, builder)
                emitted = emit(e, *(_argument(e, *given_) for given_ in zip(parameters, accepted, values, strict=True)))
                return context.get_dummy_value() if returned == types.void else emitted

            types_ = [t if not isinstance(g, types.TypeRef) else g for t, g in zip(accepted, given, strict=True)]
            return signature(returned, *types_), generate

        names = list(inspect.signature(emit).parameters.values())
        context = inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        define.__signature__ = inspect.Signature([context, *names[1:]])  # type: ignore[attr-defined]
        define.__name__, define.__qualname__, define.__doc__ = emit.__name__, emit.__qualname__, emit.__doc__
        made = intrinsic(define)
        made.emit = emit
        return made

    return make


def same(vector: Vector) -> Vector:
    """The result type of operations that keep the type."""
    return vector


def _operator(function: Any, accepts: tuple[str, ...], emit: Callable[[Emit, Any, Any], Any], result: Any = same) -> None:
    """Give vectors of these element kinds a binary operator; one operand may be a number."""

    class Typing(AbstractTemplate):  # type: ignore[misc]
        def generic(self, given: tuple[types.Type, ...], _: Any) -> Any:
            vectors = {t for t in given if isinstance(t, Vector)}
            if len(vectors) != 1:
                return None
            vector = vectors.pop()
            if _element_kind(vector) not in accepts or not all(t == vector or _converts(t, vector.element) for t in given):
                return None
            return signature(result(vector), *(t if isinstance(t, Vector) else vector.element for t in given))

    def generate(context: Any, builder: ir.IRBuilder, types_: Any, values: tuple[Any, ...]) -> Any:
        e = Emit(context, builder)
        return emit(e, *(v if isinstance(t, Vector) else e.splat(v) for t, v in zip(types_.args, values, strict=True)))

    infer_global(function)(Typing)
    for pair in ((Vector, Vector), (Vector, types.Number), (types.Number, Vector)):
        lower_builtin(function, *pair)(generate)


def _unary(function: Any, accepts: tuple[str, ...], emit: Callable[[Emit, Any], Any]) -> None:
    class Typing(AbstractTemplate):  # type: ignore[misc]
        def generic(self, given: tuple[types.Type, ...], _: Any) -> Any:
            return signature(given[0], given[0]) if isinstance(given[0], Vector) and _element_kind(given[0]) in accepts else None

    infer_global(function)(Typing)
    lower_builtin(function, Vector)(lambda context, builder, _, values: emit(Emit(context, builder), *values))


def _floats(v: Value) -> bool:
    return v.type.element in (FLOAT, DOUBLE)


def _arithmetic(real: Callable[..., Value], integer: Callable[..., Value]) -> Callable[[Emit, Value, Value], Value]:
    return lambda e, a, b: (real if _floats(a) else integer)(e.b, a, b)


def _comparison(sign: str) -> Callable[[Emit, Value, Value], Value]:
    def emit(e: Emit, a: Value, b: Value) -> Value:
        if not _floats(a):
            return e.b.icmp_signed(sign, a, b)
        return (e.b.fcmp_unordered if sign == "!=" else e.b.fcmp_ordered)(sign, a, b)

    return emit


def _element_kind(vector: Vector) -> str:
    return "m" if vector == mask16 else "i" if vector == i32x16 else "f"


def _register_operators() -> None:
    build = ir.IRBuilder
    for function, in_place, real, integer in (
        (operator.add, operator.iadd, build.fadd, build.add),
        (operator.sub, operator.isub, build.fsub, build.sub),
        (operator.mul, operator.imul, build.fmul, build.mul),
    ):
        _operator(function, ("f", "i"), _arithmetic(real, integer))
        _operator(in_place, ("f", "i"), _arithmetic(real, integer))
    for function, in_place, emit in (
        (operator.and_, operator.iand, build.and_),
        (operator.or_, operator.ior, build.or_),
        (operator.xor, operator.ixor, build.xor),
    ):
        _operator(function, ("i", "m"), _arithmetic(emit, emit))
        _operator(in_place, ("i", "m"), _arithmetic(emit, emit))
    _operator(operator.truediv, ("f",), lambda e, a, b: e.b.fdiv(a, b))
    _operator(operator.itruediv, ("f",), lambda e, a, b: e.b.fdiv(a, b))
    _operator(operator.lshift, ("i",), lambda e, a, b: e.b.shl(a, b))
    _operator(operator.rshift, ("i",), lambda e, a, b: e.b.ashr(a, b))
    for function, sign in (
        (operator.lt, "<"),
        (operator.le, "<="),
        (operator.gt, ">"),
        (operator.ge, ">="),
        (operator.eq, "=="),
        (operator.ne, "!="),
    ):
        _operator(function, ("f", "i"), _comparison(sign), lambda _: mask16)
    _unary(operator.neg, ("f", "i"), lambda e, v: e.b.fneg(v) if _floats(v) else e.b.neg(v))
    _unary(operator.invert, ("i", "m"), lambda e, v: e.b.xor(v, e.like(v, -1)))


_register_operators()
