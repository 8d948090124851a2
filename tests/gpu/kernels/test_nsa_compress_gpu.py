"""nsa_compress on the GPU: the bits of the CPU."""

import pytest
from kernels import compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, with_special_values

from anycann import nsa_compress
from anycann.ops.windows import windows

every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def check(dtype, tokens, heads, width, block, stride, lengths=None, layout="plain", special=False):
    kind = DTYPES[dtype]
    x, weight = normal((tokens, heads, width), kind), normal((block, heads), kind, 1)
    if special:
        x, weight = with_special_values(x, 1), with_special_values(weight, 2)
    out = Watched((windows(lengths, tokens, block, stride), heads, width), kind, layout)
    values = lay(x, layout), lay(weight, layout), lengths, "TND", block, stride, 0
    compare(nsa_compress, values, [out], (tokens, heads, width, block, stride, lengths))


@every_dtype
@pytest.mark.parametrize(
    ("width", "block", "stride"), [(16, 32, 16), (48, 64, 16), (192, 32, 16), (272, 64, 48), (32, 32, 32), (16, 128, 32)]
)
def test_windows(dtype, width, block, stride):
    check(dtype, 210, 2, width, block, stride)


@pytest.mark.parametrize("lengths", [(0, 40, 300, 300, 555, 600), (13, 290, 300, 600), (600,)])
def test_several_sequences(lengths):
    for dtype in ("bfloat16", "float32"):
        check(dtype, 600, 1, 32, 32, 16, lengths)


@every_dtype
def test_special_values(dtype):
    check(dtype, 150, 2, 32, 64, 16, special=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    check("bfloat16", 100, 2, 32, 32, 16, None, layout)
