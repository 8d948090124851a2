"""Each token adds the rows of its copies."""

from anycann.backends.cpu_gather import sums_of_rows
from anycann.backends.cpu_program import Program
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """Tokens are independent; no workspace."""
    program = Program(call.tensors)
    grad, indices, out = zip(call.tensors, program.operands, strict=True)
    sums_of_rows(program, grad, indices, None, out, call.attrs["numTopk"])
    return 0, program
