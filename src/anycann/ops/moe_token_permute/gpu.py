"""Sort tiles, then copy: a program finds the places of a token's copies, writes them, and copies the row there.

Two launches, or one if one tile holds all copies and there is nothing to copy. Up to 2,048 copies are one tile, whose places are not
searched for. Of 262,144 copies, each place takes 128 reads of neighbouring numbers, or 1,536 probes if the token has an expert below 0 or
above 511; of 16,777,216 copies 8,192 reads, or 98,304 probes, which then are most of the work.
"""

from collections.abc import Sequence

from anycann.backends.gpu_gather import copies_of_rows
from anycann.backends.gpu_sort import Tiles
from anycann.bind import Call, Launch

__all__ = ["plan"]


def plan(call: Call) -> tuple[int, Launch]:
    """The workspace is that of the sort."""
    tokens, indices, out, places = call.tensors
    tiles = Tiles(indices, places)
    copy = copies_of_rows(tokens, places, out, call.axes["K"], tiles) if tiles.several or out.numel else None

    def run(addresses: Sequence[int], workspace: int) -> None:
        p_tokens, p_indices, p_out, p_places = addresses
        parts = tiles.parts(p_places, workspace)
        tiles.sort(p_indices, *parts)
        if copy is not None:
            copy(p_tokens, p_places, p_out, *parts)

    return tiles.workspace, run
