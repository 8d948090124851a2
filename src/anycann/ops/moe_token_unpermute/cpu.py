"""Each token adds the rows of its copies, times their weights."""

from anycann.backends.cpu_gather import sums_of_rows
from anycann.backends.cpu_program import Program
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; the workspace is for operands whose rows lie side by side in memory."""
    program = Program(call.tensors)
    permuted, indices, probs, out = zip(call.tensors, program.operands, strict=True)
    size = sums_of_rows(program, permuted, indices, None if call.get("probsOptional") is None else probs, out, call.axes["K"])
    return size, program
