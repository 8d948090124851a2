"""Sort, then copy: a program reads a block of columns of a token once and writes it to the places of its copies.

The sort takes one to three launches, by the number of copies (see gpu_sort.py), and the copy one more.
"""

from collections.abc import Sequence

from anycann.backends.gpu_gather import copies_of_rows
from anycann.backends.gpu_sort import stable_places
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace is that of the sort."""
    tokens, indices, out, places = call.tensors
    size, sort = stable_places(indices, places)
    copy = copies_of_rows(tokens, places, out, call.axes["K"]) if out.numel else None

    def run(addresses: Sequence[int], workspace: int) -> None:
        p_tokens, p_indices, p_out, p_places = addresses
        sort(p_indices, p_places, workspace)
        if copy is not None:
            copy(p_tokens, p_places, p_out)

    return size, run
