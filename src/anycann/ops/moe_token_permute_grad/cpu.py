"""Each token adds the rows of its copies."""

from anycann.backends.cpu_gather import sums_of_rows
from anycann.backends.cpu_program import Program
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; the workspace is for operands whose rows lie side by side in memory."""
    program = Program(call.tensors)
    grad, indices, out = zip(call.tensors, program.operands, strict=True)
    size = sums_of_rows(program, grad, indices, None, out, call.attrs["numTopk"])
    return size, program
