"""moe_token_permute on the GPU: the bits of the CPU, whose sort is another one."""

import numpy as np
import pytest
from kernels import compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values

from anycann import moe_token_permute
from anycann.backends import gpu_sort

INT64 = np.iinfo(np.int64)
EXPERTS = {
    "few": lambda shape: rng(1).integers(0, 8, shape),
    "many": lambda shape: rng(2).integers(-(2**31), 2**31, shape),
    "one": lambda shape: np.full(shape, 5),
    "falling": lambda shape: -np.arange(np.prod(shape)).reshape(shape),
    "widest": lambda shape: rng(3).choice([INT64.min, INT64.min + 1, -1, 0, 1, INT64.max - 1, INT64.max], shape),
}


def permute(tokens, indices, kept=0, layout="plain"):
    copies = indices.size
    rows = min(copies, max(0, kept if kept > 0 else kept + copies))
    outs = Watched((rows, tokens.shape[1]), tokens.dtype, layout), Watched((copies,), np.int32, "plain" if layout == "plain" else "strided")
    compare(moe_token_permute, (tokens, indices, kept, False), outs, (copies, kept))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("k", "integer"), [(1, np.int32), (2, np.int64), (6, np.int32), (17, np.int64)])
def test_copies_of_a_token(dtype, k, integer):
    tokens = with_special_values(normal((9, 70), DTYPES[dtype]), 1)
    tokens.view(np.uint16)[0, :8] = 0x7F81  # NaN of other bits, and parts of float32
    permute(tokens, rng(k).integers(0, 5, (9, k)).astype(integer))


@pytest.mark.parametrize("width", [1, 63, 1025, 5120])
def test_widths(width):
    permute(normal((3, width), DTYPES["bfloat16"]), np.array([[2, 0], [1, 1], [0, 2]]))


@pytest.mark.parametrize("kept", [1, 5, 11, 12, 13, 99, 0, -1, -11, -12, -13])
def test_rows_to_keep(kept):
    permute(normal((6, 33), np.float32), rng().integers(0, 3, (6, 2)), kept)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    tokens = lay(normal((6, 33), np.float16), layout)
    permute(tokens, lay(rng().integers(0, 4, (6, 3)), layout), 15, layout)
    permute(tokens, lay(rng().integers(0, 4, 6), "strided"), 0, layout)


@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("copies", [17, 64, 65, 300])
def test_the_sort(monkeypatch, experts, copies):
    """One merge of two tiles, and of as many as may be, and several merges; whole tiles and others."""
    indices, tokens = EXPERTS[experts]((copies,)), np.zeros((copies, 0), np.float16)
    monkeypatch.setattr(gpu_sort, "_WHOLE", 16)
    monkeypatch.setattr(gpu_sort, "_TILE", 16)
    monkeypatch.setattr(gpu_sort, "_FAN", 4)
    permute(tokens, indices)
    if experts in ("few", "many"):
        permute(tokens, indices.astype(np.int32))


@pytest.mark.parametrize("copies", [16, 700, 2049])
def test_the_sort_in_its_own_sizes(copies):
    permute(np.zeros((copies, 0), np.float16), rng().integers(0, 50, copies))


@pytest.mark.parametrize(("copies", "launches"), [(1, 1), (2048, 1), (2049, 2), (32768, 2), (32769, 3), (2**21, 3), (2**31 - 1, 5)])
def test_launches_of_the_sort(copies, launches):
    tile = gpu_sort._WHOLE if copies <= gpu_sort._WHOLE else gpu_sort._TILE
    levels, fan = gpu_sort._levels(-(-copies // tile))
    assert 1 + levels == launches
    assert fan <= gpu_sort._FAN
    assert tile * fan**levels >= copies


def test_nothing_to_copy():
    permute(np.zeros((4, 0), np.float32), np.array([3, 1, 2, 0]))
    permute(normal((4, 5), np.float32), np.array([3, 1, 2, 0]), -4)
