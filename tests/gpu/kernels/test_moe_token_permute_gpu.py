"""moe_token_permute on the GPU: the bits of the CPU, whose sort is another one."""

import numpy as np
import pytest
from kernels import DEVICE, compare
from operands import DTYPES, LAYOUTS, Watched, lay, normal, rng, with_special_values

from anycann import dtypes, moe_token_permute
from anycann.backends import gpu_gather, gpu_sort
from anycann.backends.gpu import Start
from anycann.bind import bind
from anycann.runtime import operator_of
from anycann.tensor import Tensor, contiguous_strides

SMALL = 8  # keys that are looked up in the tests of small tiles
EXPERTS = {  # of an integer type
    "small": lambda shape, most: rng(1).integers(0, SMALL, shape),
    "around the small": lambda shape, most: rng(2).integers(-1, SMALL + 2, shape),
    "seldom large": lambda shape, most: np.where(rng(3).random(shape) < 0.1, most, rng(4).integers(0, SMALL, shape)),
    "many": lambda shape, most: rng(5).integers(-most - 1, most, shape),
    "one": lambda shape, most: np.full(shape, -5),
    "falling": lambda shape, most: 3 - np.arange(np.prod(shape)).reshape(shape),
    "widest": lambda shape, most: rng(6).choice([-most - 1, -most, -1, 0, 1, most - 1, most], shape),
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


@pytest.fixture
def small_tiles(monkeypatch):
    """Tiles of 16 keys, counted in 4 steps; 2 tiles are searched at once: from 65 keys on, there are at least three such pairs."""
    monkeypatch.setattr(gpu_sort, "_TILE", 16)
    monkeypatch.setattr(gpu_sort, "_KEYS", 4)
    monkeypatch.setattr(gpu_sort, "_OTHERS", 4)
    monkeypatch.setattr(gpu_sort, "_SMALL", SMALL)
    monkeypatch.setattr(gpu_sort, "_AT_ONCE", 2)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("integer", [np.int32, np.int64])
@pytest.mark.parametrize("experts", EXPERTS)
@pytest.mark.parametrize("shape", [(16,), (17,), (20, 4)])
def test_tiles(experts, shape, integer):
    permute(np.zeros((shape[0], 0), np.float16), EXPERTS[experts](shape, np.iinfo(integer).max).astype(integer))


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("experts", ["small", "seldom large"])
@pytest.mark.parametrize("k", range(1, 18))
def test_copies_of_a_token_lie_in_many_tiles(k, experts):
    tokens = 70 // k + 1
    indices = EXPERTS[experts]((tokens, k), 2**63 - 1)
    permute(normal((tokens, 3), np.float32), indices, kept=-7)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_many_tiles(layout):
    tokens = lay(normal((15, 33), np.float16), layout)
    for experts in ("small", "many"):
        permute(tokens, lay(EXPERTS[experts]((15, 5), 2**63 - 1), layout), 50, layout)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("programs", [1, 30, 10000])
def test_programs_share_a_wide_row(monkeypatch, programs):
    """One, two or all three of a row's blocks of columns have programs of their own; all find the places, one writes them."""
    monkeypatch.setattr(gpu_gather, "_PROGRAMS", programs)
    permute(normal((20, 5120), DTYPES["bfloat16"]), EXPERTS["small"]((20, 2), 0))


@pytest.mark.usefixtures("small_tiles")
def test_places_are_written_where_nothing_is_copied():
    permute(normal((40, 5), np.float32), rng().integers(0, 9, 40), -40)
    permute(np.zeros((40, 0), np.float32), rng().integers(0, 9, 40))


def test_steps_of_their_own_size():
    permute(np.zeros((175, 0), np.float16), rng().integers(0, 50, (175, 4)))


@pytest.mark.parametrize("lowest", [0, -50])
def test_tiles_of_their_own_size(monkeypatch, lowest):
    """A tile and 16 keys; counted in larger steps, for the interpreter is slow."""
    monkeypatch.setattr(gpu_sort, "_KEYS", 64)
    monkeypatch.setattr(gpu_sort, "_OTHERS", 512)
    permute(np.zeros((129, 0), np.float16), rng().integers(lowest, 50, (129, 16)))


@pytest.mark.parametrize(
    ("copies", "width", "launches"),
    [(10, 64, 2), (10, 0, 1), (3000, 64, 2), (3000, 0, 2), (40000, 64, 2), (2**21 + 1, 64, 2), (2**31 - 1, 64, 2)],
)
def test_at_most_two_launches(monkeypatch, copies, width, launches):
    """The launches of a plan are counted, not run."""
    kinds = {"tokens": "bfloat16", "indices": "int32", "permuteTokensOut": "bfloat16", "sortedIndicesOut": "int32"}
    shapes = (copies, width), (copies,), (copies, width), (copies,)
    tensors = {
        name: Tensor(place << 44, dtypes.by_name(kind), shape, contiguous_strides(shape), device=DEVICE)
        for place, ((name, kind), shape) in enumerate(zip(kinds.items(), shapes, strict=True), 1)
    }
    operator, started = operator_of(moe_token_permute), []
    monkeypatch.setattr(Start, "__call__", lambda start, *addresses: started.append((start.kernel, start.grid[0])))
    call = bind(operator.spec, tensors, {"numOutTokens": 0, "paddedMode": False}, api="test")
    plan = operator.plan(call, backend="gpu")
    plan.run([tensors[name].start for name in kinds], 1 << 50)
    assert len(started) == launches
    assert all(0 < programs < 2**31 for _, programs in started), "the most that a grid may have"


def test_nothing_to_copy():
    permute(np.zeros((4, 0), np.float32), np.array([3, 1, 2, 0]))
    permute(normal((4, 5), np.float32), np.array([3, 1, 2, 0]), -4)
