"""Tiling: the formulas against the given numbers, C++ against Python, struct layouts against the compiler."""

import re
import subprocess

import numpy as np
import pytest

from anycann import ascendc
from anycann.ascendc.program import build_program
from anycann.ascendc.tiling.structs import TilingData, describe, known_structs, parse_definitions

SHAPES = [(2, 16, 64, 64), (1, 8, 8, 8), (1, 1, 16, 16), (3, 5, 48, 40), (4, 33, 16, 16), (1, 128, 256, 250), (7, 1, 80, 80)]
FAMILY = {
    "LayerNormGradBeta": (ascendc.layer_norm_grad_beta_max_min_tmp_size, ascendc.layer_norm_grad_beta_tiling),
    "LayerNormGrad": (ascendc.layer_norm_grad_max_min_tmp_size, ascendc.layer_norm_grad_tiling),
    "LayerNorm": (ascendc.layer_norm_max_min_tmp_size, ascendc.layer_norm_tiling),
}

HOST = """
#include "tiling/tiling_api.h"
#include <cstdlib>

template <typename Host>
void Print(Host& tiling)
{
    std::vector<uint32_t> words(tiling.GetDataSize() / 4);
    tiling.SaveToBuffer(words.data(), words.size() * 4);
    for (uint32_t word : words) { std::printf(" %u", word); }
    std::printf("\\n");
}

#define ONE(NAME)                                                                                              \\
    {                                                                                                          \\
        uint32_t max = 0, min = 0;                                                                             \\
        if (!AscendC::Get##NAME##MaxMinTmpSize(shape, size, reuse, max, min)) { return 1; }                     \\
        std::printf("%u %u\\n", max, min);                                                                      \\
        for (uint32_t bytes : {min, min + 64, (max + min) / 2, max}) {                                         \\
            optiling::NAME##Tiling tiling;                                                                     \\
            if (AscendC::Get##NAME##NDTilingInfo(shape, bytes, size, reuse, tiling)) {                        \\
                Print(tiling);                                                                                 \\
            } else {                                                                                           \\
                std::printf("refused\\n");                                                                     \\
            }                                                                                                  \\
        }                                                                                                      \\
    }

int main(int, char** argv)
{
    AscendC::TensorShape shape{std::atoll(argv[1]), std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])};
    const uint32_t size = static_cast<uint32_t>(std::atoi(argv[5]));
    const bool reuse = std::atoi(argv[6]) != 0;
    ONE(LayerNormGradBeta) ONE(LayerNormGrad) ONE(LayerNorm)
}
"""


@pytest.fixture(scope="module")
def host_program(tmp_path_factory):
    path = tmp_path_factory.mktemp("host") / "host.cpp"
    path.write_text(HOST)
    return build_program([path])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("dtype", "reuse"), [("float16", False), ("float32", False), ("float32", True)])
def test_cpp_and_python_agree(host_program, shape, dtype, reuse):
    size = np.dtype(dtype).itemsize
    arguments = [str(host_program), *map(str, shape), str(size), str(int(reuse))]
    lines = iter(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.splitlines())
    for sizes, tiling in FAMILY.values():
        largest, least = sizes(shape, size, reuse)
        assert next(lines) == f"{largest} {least}"
        for tmp_bytes in (least, least + 64, (largest + least) // 2, largest):
            try:
                words = np.frombuffer(tiling(shape, dtype, tmp_bytes, reuse).to_bytes(), np.uint32)
                expected = "".join(f" {word}" for word in words)
            except ValueError:
                expected = "refused"
            assert next(lines) == expected


def test_the_given_numbers():
    assert ascendc.layer_norm_grad_beta_max_min_tmp_size((2, 16, 64, 64), 2) == (32768, 1024)
    t = ascendc.layer_norm_grad_beta_tiling((2, 16, 64, 64), "float16", 1024)
    assert (t.stackBufferSize, t.oneCalSize, t.loopRound) == (256, 64, 32)
    assert (t.gammaTempTensorPos, t.betaTempTensorPos, t.inputDyTmpTensorPos, t.resForGammaTmpTensorPos) == (0, 64, 128, 192)
    t = ascendc.layer_norm_grad_beta_tiling((2, 16, 64, 64), "float16", 5120)
    assert (t.oneCalSize, t.loopRound, t.inputTailSize, t.inputTailPos, t.bsTailSize) == (576, 3, 320, 1728, 5)
    assert len(t.to_bytes()) == 80
    assert list(t) == [
        *("stackBufferSize", "bLength", "sLength", "hLength", "originalHLength", "bshLength", "bsLength", "oneCalSize", "numberOfTmpBuf"),
        *("loopRound", "inputTailSize", "inputTailPos", "bsTailSize", "bshCurLength", "bsCurLength", "gammaTempTensorPos"),
        *("betaTempTensorPos", "inputDyTmpTensorPos", "resForGammaTmpTensorPos", "reserved"),
    ]
    assert (t.numberOfTmpBuf, t.bshCurLength, t.bsCurLength, t.bshLength, t.bsLength, t.reserved) == (2, 576, 9, 2048, 32, 0)


def test_formulas_of_the_companions():
    assert ascendc.layer_norm_grad_max_min_tmp_size((2, 16, 64), 2) == (9 * 2 * 4096, 9 * 2 * 2048)
    assert ascendc.layer_norm_grad_max_min_tmp_size((2, 64, 64), 4) == (6 * 4 * 8192, 6 * 4 * 4096)
    assert ascendc.layer_norm_grad_max_min_tmp_size((2, 64, 64), 4, True) == (4 * 4 * 8192, 4 * 4 * 4096)
    assert ascendc.layer_norm_max_min_tmp_size((1, 3, 10), 4) == (3 * 128 + 2 * 32, 3 * 64 + 2 * 32)
    assert ascendc.layer_norm_max_min_tmp_size((1, 3, 10), 4, True) == (2 * 128 + 2 * 32, 2 * 64 + 2 * 32)


def test_without_a_size_the_largest_that_fits_is_taken():
    limit = 192 * 1024 - 8 * 1024 - 256
    assert ascendc.layer_norm_grad_beta_tiling((2, 16, 64), "float16").stackBufferSize * 4 == 32768
    large = ascendc.layer_norm_grad_beta_tiling((1, 512, 64), "float16")
    queues = 2 * 512 * 64 * 2 + 2 * 64 * 2
    assert large.stackBufferSize * 4 == (limit - queues) // 32 * 32
    on_edge = ascendc.layer_norm_grad_beta_tiling((1, 512, 64), "float16", product="Ascend310B1")
    assert on_edge.stackBufferSize * 4 == (248 * 1024 - queues) // 32 * 32
    with pytest.raises(ValueError, match="leave 0, less than the 1024 that the temporary buffer needs at least"):
        ascendc.layer_norm_grad_beta_tiling((1, 1024, 64), "float16")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ascendc.layer_norm_grad_beta_tiling((2, 16, 64), "float16", 100), "too few for H = 64; at least 512 are needed"),
        (
            lambda: ascendc.layer_norm_grad_beta_tiling((2, 16, 64), "float16", 600),
            "do not hold one row of H = 64; at least 1024 are needed",
        ),
        (lambda: ascendc.layer_norm_grad_beta_tiling((2, 16), "float16"), r"must be \(B, S, H\) or \(B, S, H, originalH\)"),
        (lambda: ascendc.layer_norm_grad_beta_tiling((2, 16, 8, 9), "float16"), "originalH at most H"),
        (lambda: ascendc.layer_norm_grad_beta_tiling((2, 16, 64), "bfloat16"), "take float16 or float32; got bfloat16"),
        (lambda: ascendc.layer_norm_grad_beta_max_min_tmp_size((2, 16, 64), 2, True), "float only, not for half"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_layouts_are_those_of_the_compiler(make):
    layout = {
        "a": "uint8_t",
        "b": "uint64_t",
        "c": "float[3]",
        "inner": {"d": "int16_t", "e": "double"},
        "g": "LayerNormTiling",
        "h": ("half", 5),
    }
    values = {"a": 7, "b": 2**63, "c": [1.5, 2.5, -3.5], "inner": {"d": -4, "e": 0.25}, "h": [1, 2, 3, 4, 5]}
    values["g"] = ascendc.layer_norm_tiling((1, 2, 16), "float32")
    body = """GET_TILING_DATA(t, tiling); __gm__ double* out = (__gm__ double*)y;
    out[0] = t.a; out[1] = t.b == (1ull << 63); out[2] = t.c[2]; out[3] = t.inner.d; out[4] = t.inner.e;
    out[5] = t.g.hLength; out[6] = float(t.h[4]);"""
    out = np.zeros(7)
    make(body, "GM_ADDR y, GM_ADDR tiling", tiling=layout).kernel[1](out, values)
    assert out.tolist() == [7, 1, -3.5, -4, 0.25, 16, 5]
    struct = describe(layout)
    assert struct.unpack(struct.pack(values)) == TilingData(struct, values)


def test_round_trip_of_the_layer_norm_tilings():
    for name, (_, tiling) in FAMILY.items():
        filled = tiling((3, 5, 48, 40), "float32")
        layout = known_structs()[f"{name}Tiling"]
        assert dict(layout.unpack(filled.to_bytes())) == dict(filled)
        assert (filled.bLength, filled.sLength, filled.hLength, filled.originalHLength) == (3, 5, 48, 40)


MACROS = """
namespace optiling {
BEGIN_TILING_DATA_DEF(Inner)
  TILING_DATA_FIELD_DEF(uint16_t, small);  // a comment, with TILING_DATA_FIELD_DEF(uint8_t, not_me)
  TILING_DATA_FIELD_DEF_ARR(uint32_t, 3, many);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(InnerOp, Inner)
BEGIN_TILING_DATA_DEF(Outer)
  TILING_DATA_FIELD_DEF(float, scale);
  TILING_DATA_FIELD_DEF_STRUCT(Inner, inner);
  TILING_DATA_FIELD_DEF_STRUCT(LayerNormGradBetaTiling, norm);
  TILING_DATA_FIELD_DEF(uint64_t, total);
END_TILING_DATA_DEF;
REGISTER_TILING_DATA_CLASS(Op, Outer)
}
"""


def test_host_macros_give_the_same_bytes_in_python_and_cpp(make, tmp_path):
    struct = parse_definitions(MACROS)
    assert (struct.name, struct.size) == ("Outer", 112)
    norm = ascendc.layer_norm_grad_beta_tiling((1, 8, 8), "float32")
    values = {"scale": 0.5, "inner": {"small": 3, "many": [4, 5, 6]}, "norm": norm, "total": 2**40}
    path = tmp_path / "host.cpp"
    path.write_text(
        f"""#include "tiling/tiling_api.h"
        {MACROS}
        int main() {{ optiling::Outer t; t.set_scale(0.5f); t.inner.set_small(3); uint32_t many[3] = {{4, 5, 6}}; t.inner.set_many(many);
        AscendC::GetLayerNormGradBetaNDTilingInfo({{1, 8, 8}}, 512, 4, false, t.norm); t.set_total(1ull << 40); unsigned char bytes[256];
        t.SaveToBuffer(bytes, sizeof bytes); for (size_t i = 0; i < t.GetDataSize(); ++i) std::printf("%02x", bytes[i]); }}"""
    )
    printed = subprocess.run([str(build_program([path]))], capture_output=True, text=True, check=True).stdout
    assert printed == struct.pack(values).hex()
    body = "GET_TILING_DATA_WITH_STRUCT(Outer, t, tiling); ((__gm__ float*)y)[0] = t.scale * t.inner.many[2] + t.norm.hLength;"
    out = np.zeros(1, np.float32)
    make(body, "GM_ADDR y, GM_ADDR tiling", tiling=MACROS).kernel[1](out, values)
    assert out[0] == 0.5 * 6 + 8


def test_plain_structs_of_the_kernel(make, tmp_path):
    header = "#pragma once\nstruct MyTiling {\n    uint32_t count = 0;  // how many\n    float scales[2];\n};\n"
    (tmp_path / "my_tiling.h").write_text(header)
    body = "REGISTER_TILING_DEFAULT(MyTiling); GET_TILING_DATA(t, tiling); ((__gm__ float*)y)[0] = t.count * t.scales[1];"
    module = make(body, "GM_ADDR y, GM_ADDR tiling", head='#include "my_tiling.h"', tiling=tmp_path / "my_tiling.h")
    out = np.zeros(1, np.float32)
    module.kernel[1](out, {"count": 3, "scales": [1, 2.5]})
    assert out[0] == 7.5


@pytest.mark.parametrize(
    ("head", "size"),
    [
        ("struct T { uint32_t rows, cols = 1;\n std::int64_t offsets[2], last;\n};", 32),
        ("struct alignas(64) T { unsigned int rows; uint32_t cols; uint64_t offsets[2], last; };", 64),
        ("typedef struct { int rows, cols; int64_t offsets[2]; int64_t last; } T;", 32),
    ],
)
def test_plain_structs_as_they_are_written(make, tmp_path, head, size):
    struct = parse_definitions(head, "T")
    assert (list(struct.offsets), struct.size) == (["rows", "cols", "offsets", "last"], size)
    body = "GET_TILING_DATA_WITH_STRUCT(T, t, tiling); ((__gm__ int64_t*)y)[0] = t.rows * t.cols + t.offsets[1] + t.last;"
    out = np.zeros(1, np.int64)
    make(body, "GM_ADDR y, GM_ADDR tiling", head=head, tiling=(tmp_path / "kernel.cpp", "T")).kernel[1](
        out, {"rows": 2, "cols": 3, "offsets": [1, 10], "last": 100}
    )
    assert out[0] == 116


def test_members_that_are_not_read_are_named():
    text = "struct Other { Pipe* pipe; }; struct T { int n; }; struct U { float scales[N]; };"
    assert parse_definitions(text, "T").size == 4
    with pytest.raises(ValueError, match=r"tiling struct U has a member that is not read: `float scales\[N\];`"):
        parse_definitions(text, "U")


@pytest.mark.parametrize(
    "value",
    [
        {"n": 3, "scale": 2.5},
        np.array([(3, 2.5)], "u4, f4"),
        np.array((3, 2.5), "u4, f4"),
        np.array((3, 2.5), "u4, f4")[()],
        np.array([(3, 2.5)], "u4, f4").tobytes(),
    ],
)
def test_structs_by_value(make, value):
    head = "struct T { uint32_t n; float scale; };"
    module = make("((__gm__ float*)y)[0] = t.n * t.scale;", "GM_ADDR y, T t", head=head, tiling={"n": "uint32_t", "scale": "float"})
    y = np.zeros(1, np.float32)
    module.kernel[1](y, value)
    assert y[0] == 7.5


@pytest.mark.parametrize(
    ("value", "got"), [(3, "int"), (np.zeros(2, "u4, f4"), "ndarray"), (np.zeros(1, "u4"), "ndarray"), (None, "NoneType")]
)
def test_what_is_no_struct_is_said(make, value, got):
    module = make("", "GM_ADDR y, T t", head="struct T { uint32_t n; float scale; };")
    with pytest.raises(TypeError, match=f"kernel: t takes a struct: a dict of its fields, a record of NumPy or bytes; got {got}$"):
        module.kernel[1](np.zeros(1, np.float32), value)


def test_counts_of_arrays_in_host_macros_are_numbers_or_their_names():
    host = """#define WIDTH 0x10
    constexpr uint32_t CORES = 48u;
    BEGIN_TILING_DATA_DEF(T) TILING_DATA_FIELD_DEF_ARR(uint32_t, CORES, a); TILING_DATA_FIELD_DEF_ARR(uint8_t, 0x10, b);
    TILING_DATA_FIELD_DEF_ARR(half, 16u, c); TILING_DATA_FIELD_DEF_ARR(float, WIDTH, d); END_TILING_DATA_DEF;"""
    assert [field.count for field in parse_definitions(host).fields] == [48, 16, 16, 16]
    assert parse_definitions("static const int N = 3; struct T { float scales[N], more[0x2]; };\n").size == 20
    for count in ("OTHER", "CORES * 2", "0.5"):
        with pytest.raises(ValueError, match=rf"tiling struct T has an array a whose count is not read: uint32_t, {re.escape(count)}, a\."):
            parse_definitions(host.replace("CORES, a", f"{count}, a"))
    for kind in ("float[0]", ("float", 0), ("float", -1)):
        with pytest.raises(ValueError, match=r"array n of (0|-1) elements; it must have at least 1"):
            describe({"n": kind})


def test_a_filled_tiling_of_another_layout_is_refused(make):
    body = "GET_TILING_DATA(t, tiling); ((__gm__ float*)y)[0] = t.t.hLength;"
    kernel = make(body, "GM_ADDR y, GM_ADDR tiling", tiling={"t": "LayerNormGradBetaTiling"}).kernel
    y, filled = np.zeros(1, np.float32), ascendc.layer_norm_grad_beta_tiling((2, 4, 16), "float32", 512)
    same = describe({"t": known_structs()["LayerNormGradBetaTiling"]})
    for value in ({"t": filled}, filled, TilingData(same, {"t": filled})):
        y[0] = 0
        kernel[1](y, value)
        assert y[0] == 16
    words = describe({"a": "uint32_t[20]"})
    for foreign, fields in ((TilingData(words, {"a": [0] * 20}), "a"), (ascendc.layer_norm_tiling((2, 4, 16), "float32"), "bLength, .*")):
        with pytest.raises(ValueError, match=rf"tiling takes a AnycannTilingData \(t\); got a \w+ of another layout \({fields}\)"):
            kernel[1](y, foreign)


def test_wrong_values_are_named():
    struct = describe({"n": "uint8_t", "scale": "float"})
    with pytest.raises(ValueError, match="lacks scale and has no field total; its fields are n, scale"):
        struct.pack({"n": 1, "total": 2})
    with pytest.raises(ValueError, match="n is a uint8_t and cannot hold 300"):
        struct.pack({"n": 300, "scale": 1})
    with pytest.raises(ValueError, match="unknown type 'quux'"):
        describe({"n": "quux"})


def test_a_kernel_without_a_description_does_not_compile(make):
    with pytest.raises(ascendc.CompileError, match="does not know this kernel's tiling struct"):
        make("GET_TILING_DATA(t, tiling);", "GM_ADDR tiling")


def test_a_tiling_of_another_size_is_reported(make):
    module = make("GET_TILING_DATA(t, tiling);", "GM_ADDR tiling", tiling={"a": "uint64_t", "b": "uint64_t"})
    with pytest.raises(ascendc.KernelError, match="tiling has 8 bytes"):
        module.kernel[1](b"12345678")


@pytest.mark.parametrize("shape", [(65536, 65536, 8), (2**32 + 1, 1, 8), (1, 2**32, 8), (3, 5, 2**61)])
def test_shapes_beyond_the_fields_of_a_tiling_are_refused(host_program, shape):
    done = subprocess.run([host_program, *map(str, (*shape, shape[2], 4, 0))], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "are more elements" in done.stderr
    with pytest.raises(ValueError, match=r"uint32_t and cannot hold|are needed"):
        ascendc.layer_norm_grad_beta_tiling(shape, "float32", 4096)


def test_sizes_that_are_no_integers_are_refused():
    with pytest.raises(TypeError, match="float"):
        ascendc.layer_norm_grad_beta_tiling((2.7, 8, 8), "float32")
