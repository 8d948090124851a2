"""Host side of LayerNorm, LayerNormGrad and LayerNormGradBeta: sizes of temporary buffers, and the tilings for them.

The same formulas as the C++ functions of tiling/tiling_api.h (a test compares them). Sizes are in bytes, shapes are (B, S, H) or
(B, S, H, originalH). Without a temporary size the largest useful one is taken that fits the product's Unified Buffer beside the queues
of a kernel that holds the whole tensors; never less than the minimum, which is refused where it does not fit.
"""

import operator
from collections.abc import Sequence
from typing import NamedTuple

from anycann.ascendc.devices import device
from anycann.ascendc.tiling.structs import TilingData, known_structs

__all__ = [
    "layer_norm_grad_beta_max_min_tmp_size",
    "layer_norm_grad_beta_tiling",
    "layer_norm_grad_max_min_tmp_size",
    "layer_norm_grad_tiling",
    "layer_norm_max_min_tmp_size",
    "layer_norm_tiling",
]

_TYPE_SIZES = {"float16": 2, "half": 2, "float32": 4, "float": 4}


class _Rows(NamedTuple):
    b: int
    s: int
    h: int
    original_h: int

    @property
    def bs(self) -> int:
        return self.b * self.s

    @property
    def bsh(self) -> int:
        return self.b * self.s * self.h


def _rows(shape: Sequence[int]) -> _Rows:
    dims = tuple(operator.index(n) for n in shape)
    if len(dims) == 3:
        dims = (*dims, dims[2])
    if len(dims) != 4 or min(dims) < 1 or dims[3] > dims[2]:
        raise ValueError(f"the shape must be (B, S, H) or (B, S, H, originalH), positive, originalH at most H; got {tuple(shape)}")
    return _Rows(*dims)


def _type_size(dtype: object) -> int:
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None) or str(dtype)
    if name not in _TYPE_SIZES:
        raise ValueError(f"the layer-norm kernel functions take float16 or float32; got {name}")
    return _TYPE_SIZES[name]


def _up32(size: int) -> int:
    return -(-size // 32) * 32


def _check_type_size(type_size: int, is_reuse_source: bool) -> None:
    if type_size not in (2, 4):
        raise ValueError(f"type_size must be 2 (half) or 4 (float); got {type_size}")
    if is_reuse_source and type_size == 2:
        raise ValueError("is_reuse_source is for float only, not for half")


def layer_norm_grad_beta_max_min_tmp_size(shape: Sequence[int], type_size: int, is_reuse_source: bool = False) -> tuple[int, int]:
    """(max, min) bytes: k·B·S·H·4 and k·H·4 with k = 4 for half, 2 for float."""
    _check_type_size(type_size, is_reuse_source)
    rows = _rows(shape)
    k = 4 if type_size == 2 else 2
    return k * rows.bsh * 4, k * rows.h * 4


def layer_norm_grad_max_min_tmp_size(shape: Sequence[int], type_size: int, is_reuse_source: bool = False) -> tuple[int, int]:
    """(max, min) bytes: k·type_size·max(B·S·H, H²), and with min; k = 9 for half, 6 for float, 4 for float with reuse."""
    _check_type_size(type_size, is_reuse_source)
    rows = _rows(shape)
    k = _grad_buffers(type_size, is_reuse_source)
    return k * type_size * max(rows.bsh, rows.h**2), k * type_size * min(rows.bsh, rows.h**2)


def layer_norm_max_min_tmp_size(shape: Sequence[int], type_size: int, is_reuse_source: bool = False) -> tuple[int, int]:
    """(max, min) bytes: k·up(B·S·H·4) + 2·up(B·S·4) and k·up(H·4) + 2·up(B·S·4); up is to 32, k = 2 for float with reuse, else 3."""
    _check_type_size(type_size, is_reuse_source)
    rows = _rows(shape)
    k, mv = _norm_buffers(is_reuse_source), _up32(rows.bs * 4)
    return k * _up32(rows.bsh * 4) + 2 * mv, k * _up32(rows.h * 4) + 2 * mv


def _grad_buffers(type_size: int, is_reuse_source: bool) -> int:
    return 9 if type_size == 2 else 4 if is_reuse_source else 6


def _norm_buffers(is_reuse_source: bool) -> int:
    return 2 if is_reuse_source else 3


def _choose_tmp(name: str, tmp_bytes: int | None, sizes: tuple[int, int], queues: int, product: str | None) -> int:
    if tmp_bytes is not None:
        return tmp_bytes
    largest, least = sizes
    limit = device(product).ub_limit
    left = (limit - queues) // 32 * 32
    if left < least:
        raise ValueError(
            f"{name}: the tensors take {queues} of {limit} bytes of Unified Buffer and leave {max(left, 0)}, less than the {least} that "
            "the temporary buffer needs at least; use a smaller shape, or give tmp_bytes if the kernel splits it"
        )
    return min(largest, left)


def _fill_rows(rows: _Rows, one: int) -> dict[str, int]:
    tail = rows.bsh % one
    return {
        "bLength": rows.b,
        "sLength": rows.s,
        "hLength": rows.h,
        "originalHLength": rows.original_h,
        "bshLength": rows.bsh,
        "bsLength": rows.bs,
        "loopRound": rows.bsh // one,
        "inputTailSize": tail,
        "inputTailPos": rows.bsh - tail,
    }


def _whole_rows(name: str, elements: int, rows: _Rows, tmp_bytes: int, least: int) -> int:
    one = min(max(elements, 0) // rows.h * rows.h, rows.bsh)
    if one == 0:
        raise ValueError(f"{name}: {tmp_bytes} bytes of temporary buffer do not hold one row of H = {rows.h}; at least {least} are needed")
    return one


def layer_norm_grad_beta_tiling(
    shape: Sequence[int], dtype: object, tmp_bytes: int | None = None, is_reuse_source: bool = False, *, product: str | None = None
) -> TilingData:
    """The LayerNormGradBetaTiling for a shape, "float16" or "float32", and a temporary buffer of tmp_bytes."""
    name, size, rows = "layer_norm_grad_beta_tiling", _type_size(dtype), _rows(shape)
    sizes = layer_norm_grad_beta_max_min_tmp_size(shape, size, is_reuse_source)
    tmp = _choose_tmp(name, tmp_bytes, sizes, 2 * _up32(rows.bsh * size) + 2 * _up32(rows.h * size), product)
    n = tmp // 4
    if n < 2 * rows.h:
        raise ValueError(f"{name}: {tmp} bytes of temporary buffer are too few for H = {rows.h}; at least {8 * rows.h} are needed")
    half = size == 2
    one = _whole_rows(name, (n - 2 * rows.h) // 2 if half else n, rows, tmp, 16 * rows.h)
    values = _fill_rows(rows, one) | {
        "stackBufferSize": n,
        "oneCalSize": one,
        "numberOfTmpBuf": 2 if half else 1,
        "bsTailSize": rows.bsh % one // rows.h,
        "bshCurLength": one,
        "bsCurLength": one // rows.h,
        "gammaTempTensorPos": 0,
        "betaTempTensorPos": rows.h if half else 0,
        "inputDyTmpTensorPos": 2 * rows.h if half else 0,
        "resForGammaTmpTensorPos": 2 * rows.h + one if half else 0,
        "reserved": 0,
    }
    return TilingData(known_structs()["LayerNormGradBetaTiling"], values)


def layer_norm_grad_tiling(
    shape: Sequence[int], dtype: object, tmp_bytes: int | None = None, is_reuse_source: bool = False, *, product: str | None = None
) -> TilingData:
    """The LayerNormGradTiling for a shape, "float16" or "float32", and a temporary buffer of tmp_bytes."""
    name, size, rows = "layer_norm_grad_tiling", _type_size(dtype), _rows(shape)
    sizes = layer_norm_grad_max_min_tmp_size(shape, size, is_reuse_source)
    queues = 4 * _up32(rows.bsh * size) + 2 * _up32(rows.bs * size) + _up32(rows.h * size)
    tmp = _choose_tmp(name, tmp_bytes, sizes, queues, product)
    k = _grad_buffers(size, is_reuse_source)
    one = _whole_rows(name, tmp // (k * size), rows, tmp, k * size * rows.h)
    values = _fill_rows(rows, one) | {"stackBufferSize": tmp // 4, "oneCalSize": one, "numberOfTmpBuf": k}
    return TilingData(known_structs()["LayerNormGradTiling"], values)


def layer_norm_tiling(
    shape: Sequence[int], dtype: object, tmp_bytes: int | None = None, is_reuse_source: bool = False, *, product: str | None = None
) -> TilingData:
    """The LayerNormTiling for a shape, "float16" or "float32", and a temporary buffer of tmp_bytes."""
    name, size, rows = "layer_norm_tiling", _type_size(dtype), _rows(shape)
    sizes = layer_norm_max_min_tmp_size(shape, size, is_reuse_source)
    queues = 2 * _up32(rows.bsh * size) + 2 * _up32(rows.bs * size) + 2 * _up32(rows.h * size)
    tmp = _choose_tmp(name, tmp_bytes, sizes, queues, product)
    k = _norm_buffers(is_reuse_source)
    one = _whole_rows(name, (tmp - 2 * _up32(rows.bs * 4)) // 4 // k, rows, tmp, sizes[1])
    values = _fill_rows(rows, one) | {"tmpBufSize": tmp // 4, "oneTmpSize": one, "numberOfTmpBuf": k}
    return TilingData(known_structs()["LayerNormTiling"], values)
