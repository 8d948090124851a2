"""aclnnNsaCompressGrad."""

from collections.abc import Sequence
from typing import Any

from anycann.ops.nsa_compress_grad.spec import SPEC
from anycann.runtime import Operator

__all__ = ["nsa_compress_grad"]

_operator = Operator(SPEC, __name__)


@_operator.describes
def nsa_compress_grad(
    output_grad: Any,
    input: Any,
    weight: Any,
    act_seq_len: Sequence[int] | None = None,
    *,
    compress_block_size: int,
    compress_stride: int,
    act_seq_len_type: int = 0,
    layout: str | None = "TND",
    out: Any = None,
    product: str | None = None,
) -> Any:
    return _operator.call(
        output_grad, input, weight, act_seq_len, compress_block_size, compress_stride, act_seq_len_type, layout, out=out, product=product
    )
