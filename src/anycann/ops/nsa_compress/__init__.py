"""aclnnNsaCompress."""

from collections.abc import Sequence
from typing import Any

from anycann.ops.nsa_compress.spec import SPEC
from anycann.runtime import Operator

__all__ = ["nsa_compress"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def nsa_compress(
    input: Any,
    weight: Any,
    act_seq_len: Sequence[int] | None,
    *,
    layout: str | None = "TND",
    compress_block_size: int,
    compress_stride: int,
    act_seq_len_type: int = 0,
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(
        input, weight, act_seq_len, layout, compress_block_size, compress_stride, act_seq_len_type, out=out, product=product
    )
