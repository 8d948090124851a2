"""The number of threads, ours and the peers', for as long as a measurement takes."""

from collections.abc import Iterator
from contextlib import contextmanager

import anycann

__all__ = ["threads"]


@contextmanager
def threads(count: int, with_torch: bool) -> Iterator[None]:
    """Use `count` threads for our calls and, with `with_torch`, for torch's; the numbers from before come back afterwards."""
    ours = anycann.get_num_threads()
    anycann.set_num_threads(count)
    try:
        if with_torch:
            import torch

            theirs = torch.get_num_threads()
            torch.set_num_threads(count)
            try:
                yield
            finally:
                torch.set_num_threads(theirs)
        else:
            yield
    finally:
        anycann.set_num_threads(ours)
