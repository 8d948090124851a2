"""Vectors of 16 lanes for CPU kernels: written once like arithmetic, lowered by LLVM to AVX-512, AVX2, SSE or NEON.

Types: `f32x16`, `i32x16`, `f64x16`, `mask16`. `+ - * /`, unary `-` and comparisons (which give a mask) work on them, `& | ^ ~` on
integers and masks, `<< >>` (arithmetic) on integers. Where a vector is expected a number stands for that number in every lane; a
Python float is rounded to the vector's element type. Nothing mixes element types silently.

Dtype tags `F16`, `BF16`, `F32` choose code at compile time; Python passes None for a tag argument of a kernel. An address is a plain
intp in bytes; the index that follows it counts elements of the tag's type, and no alignment is asked for unless the name says
`stream`.

Numerics: every operation is rounded once to nearest even; nothing is contracted, reassociated or flushed to zero, so that all
targets give the same bits. Widening to float32 is exact (signalling NaNs may become quiet). Narrowing to 16 bits rounds once, half
to even, keeps subnormals, overflows to infinity and turns every NaN into 0x7E00 (float16) or 0x7FC0 (bfloat16).
"""

from llvmlite import ir
from numba.core import types
from numba.core.types.containers import UniTuple

from anycann.backends.cpu_llvm import (
    BF16,
    DOUBLE,
    F16,
    F32,
    FLOAT,
    I1,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Emit,
    Table,
    Tag,
    Value,
    Vector,
    f32x16,
    f64x16,
    i32x16,
    lanes,
    mask16,
    operation,
    raw_type,
    same,
)

__all__ = [
    "BF16", "F16", "F32", "LANES", "Table", "Tag", "absolute", "any_lane", "bits", "copy1", "f32x16", "f64x16", "fence", "fma",
    "from_bits", "gather", "i32x16", "iota", "itemsize", "joined", "lane", "load", "load1", "load1_f64", "load1_i32", "load1_i64",
    "load_bits", "load_bits_tail", "load_f64", "load_pair", "load_split", "load_tail", "load_wide", "lookup", "many_registers",
    "mask16", "narrow", "pack", "pack_usual", "prefetch", "prefetch_far", "reads_ahead", "select", "splat", "splat_d", "splat_i",
    "sqrt", "store", "store1", "store1_f64", "store1_i32", "store1_i64", "store_f64", "store_line", "store_pair", "store_stream",
    "store_tail", "sum_lanes", "sums_of_lanes", "tag_of", "to_float", "transpose", "unsplit", "widen",
]  # fmt: skip

_INTP, _F32, _F64 = types.intp, types.float32, types.float64
_WOVEN = [k // 2 + LANES * (k % 2) for k in range(2 * LANES)]  # the elements of two vectors by turns


def tag_of(name: str) -> Tag:
    """The tag of a dtype's name."""
    return {tag.name: tag for tag in (F16, BF16, F32)}[name]


@operation(_INTP, Tag)
def itemsize(e: Emit, tag: Tag) -> Value:
    """Bytes of an element, a constant."""
    return I64(tag.itemsize)


@operation(f32x16, Tag, _INTP, _INTP)
def load(e: Emit, tag: Tag, address: Value, i: Value) -> Value:
    """16 elements from i on, widened exactly."""
    return e.widened(tag, e.read(address, i, tag.itemsize, raw_type(tag)))


@operation(f32x16, Tag, _INTP, _INTP, _INTP)
def load_tail(e: Emit, tag: Tag, address: Value, i: Value, n: Value) -> Value:
    """n <= 16 elements from i on, 0 in the other lanes; memory beyond is not touched."""
    return e.widened(tag, e.read_tail(address, i, tag.itemsize, raw_type(tag), n))


@operation(UniTuple(f32x16, 2), Tag, _INTP, _INTP)
def load_pair(e: Emit, tag: Tag, address: Value, i: Value) -> Value:
    """`load` of 32 elements: the first 16, and the others."""
    if tag == BF16 and e.has("avx512bw"):  # one shuffle instead of widening both halves
        raw = e.read(address, i, tag.itemsize, lanes(I16, 2 * LANES))
        woven = e.b.bitcast(e.b.shuffle_vector(raw, raw, ir.Constant(lanes(I32, 2 * LANES), _WOVEN)), lanes(I32))
        halves = [e.b.shl(woven, e.like(woven, 16)), e.b.and_(woven, e.like(woven, 0xFFFF0000))]
        wide = [e.cast(half, FLOAT) for half in halves]
    else:
        halves = [e.read(e.b.add(address, I64(LANES * tag.itemsize * k)), i, tag.itemsize, raw_type(tag)) for k in range(2)]
        wide = [e.widened(tag, half) for half in halves]
    return e.both(*wide)


@operation(UniTuple(f32x16, 2), Tag, _INTP, _INTP, _INTP)
def load_split(e: Emit, tag: Tag, address: Value, i: Value, n: Value) -> Value:
    """n <= 32 elements from i on, 0 in the other lanes, in the order that costs least: `unsplit` puts it right."""
    if tag == BF16:
        raw = e.b.bitcast(e.read_tail(address, i, tag.itemsize, lanes(I16, 2 * LANES), n), lanes(I32))
        wide = [e.cast(half, FLOAT) for half in (e.b.shl(raw, e.like(raw, 16)), e.b.and_(raw, e.like(raw, 0xFFFF0000)))]
    else:
        low = e.b.select(e.b.icmp_signed("<", n, I64(LANES)), n, I64(LANES))
        places, counts = (address, e.b.add(address, I64(LANES * tag.itemsize))), (low, e.b.sub(n, I64(LANES)))
        wide = [e.widened(tag, e.read_tail(place, i, tag.itemsize, raw_type(tag), k)) for place, k in zip(places, counts, strict=True)]
    return e.both(*wide)


@operation(UniTuple(f32x16, 2), Tag, f32x16, f32x16)
def unsplit(e: Emit, tag: Tag, v0: Value, v1: Value) -> Value:
    """The first 16 elements of what `load_split` gives, and the others."""
    if tag != BF16:
        return e.both(v0, v1)
    halves = [ir.Constant(lanes(I32), _WOVEN[k : k + LANES]) for k in (0, LANES)]
    return e.both(*(e.b.shuffle_vector(v0, v1, half) for half in halves))


@operation(i32x16, Tag, _INTP, _INTP)
def load_bits(e: Emit, tag: Tag, address: Value, i: Value) -> Value:
    """The raw bits of 16 elements, zero-extended."""
    raw = e.read(address, i, tag.itemsize, raw_type(tag))
    return raw if tag.itemsize == 4 else e.b.zext(raw, e.shaped(raw, I32))


@operation(i32x16, Tag, _INTP, _INTP, _INTP)
def load_bits_tail(e: Emit, tag: Tag, address: Value, i: Value, n: Value) -> Value:
    """The raw bits of n <= 16 elements, zero-extended; 0 in the other lanes."""
    raw = e.read_tail(address, i, tag.itemsize, raw_type(tag), n)
    return raw if tag.itemsize == 4 else e.b.zext(raw, e.shaped(raw, I32))


@operation(f64x16, Tag, _INTP, _INTP)
def load_wide(e: Emit, tag: Tag, address: Value, i: Value) -> Value:
    """`load`, widened to float64: by halves, which registers hold as float64."""
    size, count = tag.itemsize, LANES // 2
    raw = [e.read(e.b.add(address, I64(count * size * k)), i, size, lanes(raw_type(tag).element, count)) for k in range(2)]
    halves = [e.b.fpext(e.widened(tag, half), lanes(DOUBLE, count)) for half in raw]
    return e.b.shuffle_vector(*halves, e.iota())


@operation(types.void, Tag, _INTP, _INTP, f32x16)
def store(e: Emit, tag: Tag, address: Value, i: Value, v: Value) -> None:
    """Round 16 elements once to the tag's type and write them from i on."""
    e.write(address, i, tag.itemsize, e.narrowed(tag, v))


@operation(types.void, Tag, _INTP, _INTP, f32x16, _INTP)
def store_tail(e: Emit, tag: Tag, address: Value, i: Value, v: Value, n: Value) -> None:
    """Round the first n <= 16 elements once and write them; memory beyond is not touched."""
    e.write_tail(address, i, tag.itemsize, e.narrowed(tag, v), n)


@operation(types.void, (F32,), _INTP, _INTP, f32x16)
def store_stream(e: Emit, tag: Tag, address: Value, i: Value, v: Value) -> None:
    """`store` of float32 past the caches; the line must be aligned to 64 bytes."""
    _stream(e, tag, address, i, e.narrowed(tag, v))


@operation(types.void, Tag, _INTP, _INTP, f32x16, f32x16)
def store_pair(e: Emit, tag: Tag, address: Value, i: Value, v0: Value, v1: Value) -> None:
    """`store` of 32 elements."""
    if tag.itemsize == 2:
        e.write(address, i, tag.itemsize, e.narrowed_pair(tag, v0, v1))
    else:
        e.write(address, i, tag.itemsize, e.narrowed(tag, v0))
        e.write(e.b.add(address, I64(64)), i, tag.itemsize, e.narrowed(tag, v1))


@operation(i32x16, (F16, BF16), f32x16, f32x16)
def pack(e: Emit, tag: Tag, v0: Value, v1: Value) -> Value:
    """The bits of 32 elements, each rounded once to 16 bits."""
    return e.b.bitcast(e.narrowed_pair(tag, v0, v1), lanes(I32))


@operation(i32x16, (F16, BF16), f32x16, f32x16)
def pack_usual(e: Emit, tag: Tag, v0: Value, v1: Value) -> Value:
    """`pack` of what has no NaN and, for bfloat16, no subnormal number."""
    if tag == BF16 and e.rounds_bf16():
        return e.assembly("vcvtne2ps2bf16 $1, $2, $0", lanes(I32), v0, v1)
    if tag == F16 and e.converts_half():
        return e.b.bitcast(e.usual_halves(v0, v1), lanes(I32))
    return e.b.bitcast(e.narrowed_pair(tag, v0, v1), lanes(I32))


@operation(i32x16, i32x16, i32x16, _INTP)
def joined(e: Emit, before: Value, after: Value, k: Value) -> Value:
    """The last k < 16 lanes of one vector, then the first lanes of the next."""
    if e.has("avx512f"):
        index = e.b.sub(e.b.add(e.iota(), e.splat(I32(LANES))), e.splat(e.b.trunc(k, I32)))
        return e.call("llvm.x86.avx512.vpermi2var.d.512", before.type, before, index, after)
    with e.b.goto_entry_block():
        memory = e.b.alloca(lanes(I32, 2 * LANES))
    place = e.b.ptrtoint(memory, I64)
    e.write(place, I64(0), 64, before)
    e.write(place, I64(1), 64, after)
    return e.read(place, e.b.sub(I64(LANES), k), 4, lanes(I32))


@operation(types.void, Tag, _INTP, _INTP, f32x16, f32x16)
def store_line(e: Emit, tag: Tag, address: Value, i: Value, v0: Value, v1: Value) -> None:
    """`store` of 32 elements past the caches; the place must be aligned to 64 bytes."""
    if tag.itemsize == 2:
        _stream(e, tag, address, i, e.narrowed_pair(tag, v0, v1))
    else:
        _stream(e, tag, address, i, e.narrowed(tag, v0))
        _stream(e, tag, e.b.add(address, I64(64)), i, e.narrowed(tag, v1))


def _stream(e: Emit, tag: Tag, address: Value, i: Value, line: Value) -> None:
    write = e.write(address, i, tag.itemsize, line)
    write.align = 64
    write.set_metadata("nontemporal", e.b.module.add_metadata([I32(1)]))


@operation(types.void, _INTP)
def prefetch(e: Emit, address: Value) -> None:
    """Ask for the line at an address to be read into the nearest cache; any address is allowed."""
    e.call("llvm.prefetch.p0", ir.VoidType(), e.b.inttoptr(address, I8.as_pointer()), I32(0), I32(3), I32(1))


@operation(types.void, _INTP)
def prefetch_far(e: Emit, address: Value) -> None:
    """`prefetch` into the second cache only, which holds more of them at a time."""
    e.call("llvm.prefetch.p0", ir.VoidType(), e.b.inttoptr(address, I8.as_pointer()), I32(0), I32(2), I32(1))


@operation(types.boolean)
def reads_ahead(e: Emit) -> Value:
    """Whether the CPU, left alone, reads streams beside which nothing is written faster than it does if asked: AMD's. A constant.

    What lies in many places it reads faster if asked, but for the second cache.
    """
    return I1(e.has("clzero"))


@operation(types.boolean)
def many_registers(e: Emit) -> Value:
    """Whether registers hold more than sixteen vectors of float32. A constant."""
    return I1(e.has("avx512f"))


@operation(types.void)
def fence(e: Emit) -> None:
    """Put streaming stores before whatever this thread does next; once at the end of a kernel that streams."""
    e.b.fence("seq_cst")


@operation(_F32, Tag, _INTP, _INTP)
def load1(e: Emit, tag: Tag, address: Value, i: Value) -> Value:
    """Element i, widened exactly."""
    return e.widened(tag, e.read(address, i, tag.itemsize, raw_type(tag).element))


@operation(types.void, Tag, _INTP, _INTP, _F32)
def store1(e: Emit, tag: Tag, address: Value, i: Value, value: Value) -> None:
    """Round a number once to the tag's type and write element i."""
    e.write(address, i, tag.itemsize, e.narrowed(tag, value))


@operation(f64x16, _INTP, _INTP)
def load_f64(e: Emit, address: Value, i: Value) -> Value:
    """16 float64 from i on."""
    return e.read(address, i, 8, lanes(DOUBLE))


@operation(types.void, _INTP, _INTP, f64x16)
def store_f64(e: Emit, address: Value, i: Value, v: Value) -> None:
    """Write 16 float64 from i on."""
    e.write(address, i, 8, v)


@operation(_F64, _INTP, _INTP)
def load1_f64(e: Emit, address: Value, i: Value) -> Value:
    """The float64 at i."""
    return e.read(address, i, 8, DOUBLE)


@operation(types.void, _INTP, _INTP, _F64)
def store1_f64(e: Emit, address: Value, i: Value, value: Value) -> None:
    """Write the float64 at i."""
    e.write(address, i, 8, value)


@operation(types.int32, _INTP, _INTP)
def load1_i32(e: Emit, address: Value, i: Value) -> Value:
    """The int32 at i."""
    return e.read(address, i, 4, I32)


@operation(types.int64, _INTP, _INTP)
def load1_i64(e: Emit, address: Value, i: Value) -> Value:
    """The int64 at i."""
    return e.read(address, i, 8, I64)


@operation(types.void, _INTP, _INTP, types.int64)
def store1_i32(e: Emit, address: Value, i: Value, value: Value) -> None:
    """Write the low half of an int64 as the int32 at i."""
    e.write(address, i, 4, e.b.trunc(value, I32))


@operation(types.void, _INTP, _INTP, types.int64)
def store1_i64(e: Emit, address: Value, i: Value, value: Value) -> None:
    """Write the int64 at i."""
    e.write(address, i, 8, value)


@operation(types.void, _INTP, _INTP, _INTP, _INTP, _INTP)
def copy1(e: Emit, itemsize: Value, dst: Value, i: Value, src: Value, j: Value) -> None:
    """Copy the bits of element j of src to element i of dst; an element has 2 or 4 bytes."""
    with e.b.if_else(e.b.icmp_signed("==", itemsize, I64(2))) as (two, four):
        with two:
            e.write(dst, i, 2, e.read(src, j, 2, I16))
        with four:
            e.write(dst, i, 4, e.read(src, j, 4, I32))


@operation(types.void, Tag, _INTP, _INTP, _INTP, _INTP)
def transpose(e: Emit, tag: Tag, source: Value, source_step: Value, target: Value, target_step: Value) -> None:
    """Copy the bits of 16 x 16 elements: what lies side by side lies a step of bytes apart then, and the other way round."""
    raw = raw_type(tag)
    rows = [e.read(e.b.add(source, e.b.mul(source_step, I64(k))), I64(0), 1, raw) for k in range(LANES)]
    low, high = (ir.Constant(lanes(I32), [start + k // 2 + LANES * (k % 2) for k in range(LANES)]) for start in (0, LANES // 2))
    for _ in range(4):  # each time rows that are 8 apart are interleaved
        rows = [e.b.shuffle_vector(rows[k // 2], rows[k // 2 + LANES // 2], (low, high)[k % 2]) for k in range(LANES)]
    for k, row in enumerate(rows):
        e.write(e.b.add(target, e.b.mul(target_step, I64(k))), I64(0), 1, row)


@operation(f32x16, _INTP, i32x16)
def gather(e: Emit, address: Value, index: Value) -> Value:
    """The elements of a float32 table at these offsets (not negative, counted in elements)."""
    base = e.splat(e.b.inttoptr(address, FLOAT.as_pointer()))
    where = e.b.gep(base, [index], source_etype=FLOAT)
    everywhere = ir.Constant(lanes(I1), [1] * LANES)
    vector = lanes(FLOAT)
    name = f"llvm.masked.gather.v{LANES}f32.v{LANES}p0"
    return e.call(name, vector, where, I32(4), everywhere, ir.Constant(vector, ir.Undefined))


@operation(f32x16, _F32)
def splat(e: Emit, x: Value) -> Value:
    """x in every lane."""
    return e.splat(x)


@operation(f64x16, _F64)
def splat_d(e: Emit, x: Value) -> Value:
    """x in every lane."""
    return e.splat(x)


@operation(i32x16, types.int32)
def splat_i(e: Emit, x: Value) -> Value:
    """x in every lane."""
    return e.splat(x)


@operation(i32x16)
def iota(e: Emit) -> Value:
    """0, 1, …, 15."""
    return e.iota()


@operation(same, Vector, Vector, Vector)
def fma(e: Emit, a: Value, b: Value, c: Value) -> Value:
    """a · b + c of floats, rounded once."""
    return e.call(f"llvm.fma.v{LANES}{_kind(a)}", a.type, a, b, c)


@operation(same, Vector)
def absolute(e: Emit, v: Value) -> Value:
    """|v| of floats; only the sign bit changes."""
    return e.call(f"llvm.fabs.v{LANES}{_kind(v)}", v.type, v)


@operation(same, Vector)
def sqrt(e: Emit, v: Value) -> Value:
    """The square root of floats, correctly rounded."""
    return e.call(f"llvm.sqrt.v{LANES}{_kind(v)}", v.type, v)


def _kind(v: Value) -> str:
    return {FLOAT: "f32", DOUBLE: "f64"}[v.type.element]


@operation(same, mask16, Vector, Vector)
def select(e: Emit, mask: Value, a: Value, b: Value) -> Value:
    """a where the mask is set, b elsewhere."""
    return e.b.select(mask, a, b)


@operation(types.boolean, mask16)
def any_lane(e: Emit, mask: Value) -> Value:
    """Whether the mask is set in some lane."""
    return e.b.icmp_unsigned("!=", e.b.bitcast(mask, ir.IntType(LANES)), ir.IntType(LANES)(0))


@operation(i32x16, f32x16)
def bits(e: Emit, v: Value) -> Value:
    """The bit patterns of floats."""
    return e.cast(v, I32)


@operation(f32x16, i32x16)
def from_bits(e: Emit, i: Value) -> Value:
    """The floats with these bit patterns."""
    return e.cast(i, FLOAT)


@operation(f32x16, i32x16)
def to_float(e: Emit, i: Value) -> Value:
    """Integers rounded to float32."""
    return e.b.sitofp(i, e.shaped(i, FLOAT))


@operation(f64x16, f32x16)
def widen(e: Emit, v: Value) -> Value:
    """float32 as float64, exactly."""
    return e.b.fpext(v, e.shaped(v, DOUBLE))


@operation(f32x16, f64x16)
def narrow(e: Emit, v: Value) -> Value:
    """float64 rounded once to float32."""
    return e.b.fptrunc(v, e.shaped(v, FLOAT))


@operation(lambda vector: vector.element, Vector, _INTP)
def lane(e: Emit, v: Value, k: Value) -> Value:
    """Lane k."""
    return e.b.extract_element(v, e.b.trunc(k, I32))


@operation(_F64, f64x16)
def sum_lanes(e: Emit, v: Value) -> Value:
    """The sum of the lanes in a fixed order: lane k + lane k+8, then k + (k+4), k + (k+2), and the two that are left."""
    width = LANES
    while width > 1:
        width //= 2
        low, high = (ir.Constant(lanes(I32, width), list(range(start, start + width))) for start in (0, width))
        v = e.b.fadd(e.b.shuffle_vector(v, v, low), e.b.shuffle_vector(v, v, high))
    return e.b.extract_element(v, I32(0))


@operation(f64x16, _INTP)
def sums_of_lanes(e: Emit, address: Value) -> Value:
    """`sum_lanes` of 16 vectors of float64 that lie one behind the other, lane k that of vector k."""

    def folded(a: Value, b: Value, width: int) -> Value:
        """Of vectors of 8 lanes, `width` of each row: half as many of each, the rows of a and then those of b."""
        starts = range(0, LANES, width)
        low, high = ([start + half + k for start in starts for k in range(width // 2)] for half in (0, width // 2))
        halves = (e.b.shuffle_vector(a, b, ir.Constant(lanes(I32, len(index)), index)) for index in (low, high))
        return e.b.fadd(*halves)

    eight = lanes(DOUBLE, LANES // 2)
    parts = [[e.read(address, I64(LANES * k + half), 8, eight) for half in (0, LANES // 2)] for k in range(LANES)]
    rows = [e.b.fadd(low, high) for low, high in parts]
    for width in (8, 4, 2):
        rows = [folded(rows[k], rows[k + 1], width) for k in range(0, len(rows), 2)]
    return e.b.shuffle_vector(*rows, e.iota())


@operation(f32x16, Table, i32x16)
def lookup(e: Emit, table: Table, index: Value) -> Value:
    """table[index mod its size], from registers where the CPU can permute them."""
    if e.has("avx512f"):
        return _lookup_avx512(e, table, index)
    index = e.b.and_(index, e.like(index, len(table.values) - 1))
    if e.has("avx2") and len(table.values) < 32:
        return _lookup_avx2(e, table, index)
    return _lookup_memory(e, table, index)


def _lookup_avx512(e: Emit, table: Table, index: Value) -> Value:
    repeated = table.values * (2 if len(table.values) == 8 else 1)  # the instruction takes the low 4 bits of an index
    low, high = (ir.Constant(lanes(FLOAT), list(part)) for part in (repeated[:16], repeated[-16:]))
    if len(table.values) == 32:
        return e.call("llvm.x86.avx512.vpermi2var.ps.512", low.type, low, index, high)
    return e.call("llvm.x86.avx512.permvar.sf.512", low.type, low, index)


def _lookup_avx2(e: Emit, table: Table, index: Value) -> Value:
    halves, eight = [], lanes(FLOAT, 8)
    for start in (0, 8):
        part = e.b.shuffle_vector(index, index, ir.Constant(lanes(I32, 8), list(range(start, start + 8))))
        constants = [ir.Constant(eight, list(table.values[k : k + 8])) for k in range(0, len(table.values), 8)]
        found = [e.call("llvm.x86.avx2.permps", eight, constant, part) for constant in constants]
        halves.append(found[0] if len(found) == 1 else e.b.select(e.b.icmp_signed(">", part, e.like(part, 7)), found[1], found[0]))
    return e.b.shuffle_vector(*halves, e.iota())


def _lookup_memory(e: Emit, table: Table, index: Value) -> Value:
    kind = ir.ArrayType(FLOAT, len(table.values))
    array = ir.GlobalVariable(e.b.module, kind, e.b.module.get_unique_name("table"))
    array.initializer, array.linkage, array.global_constant = ir.Constant(kind, list(table.values)), "internal", True
    address, result = e.b.ptrtoint(array, I64), ir.Constant(lanes(FLOAT), ir.Undefined)
    for k in range(LANES):
        place = e.b.zext(e.b.extract_element(index, I32(k)), I64)
        result = e.b.insert_element(result, e.read(address, place, 4, FLOAT), I32(k))
    return result
