"""What others offer for the same computation: torch as it comes, torch.compile, and NumPy as one would write it at first."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from anycann.bench.problems import Problem

__all__ = ["GPU_LIBRARIES", "LIBRARIES", "Peer", "installed", "of"]

LIBRARIES = {"torch": "torch", "compile": "torch", "numpy": "numpy"}  # names of --peers, and the packages they need
GPU_LIBRARIES = {"torch": "torch", "compile": "torch", "liger": "liger_kernel", "quack": "quack", "te": "transformer_engine"}  # on a GPU


class Peer(NamedTuple):
    """One way to compute a problem. `call` gives the results: arrays or tensors, a tuple of them if there are several."""

    library: str
    name: str
    allocates: bool
    call: Callable[[], Any]
    single: bool = False  # one call of the library
    needs: int = 0  # bytes of temporaries


def installed(library: str) -> bool:
    """Whether the package behind a name of --peers can be imported."""
    return importlib.util.find_spec((LIBRARIES | GPU_LIBRARIES)[library]) is not None


def of(problem: Problem, libraries: Sequence[str]) -> list[Peer]:
    """The peers of a problem from the libraries named, which must be installed."""
    found: list[Peer] = []
    if "torch" in libraries or "compile" in libraries:
        from anycann.bench.peers import with_torch

        found += with_torch.eager(problem) if "torch" in libraries else []
        found += with_torch.compiled(problem) if "compile" in libraries else []
    if set(libraries) & (GPU_LIBRARIES.keys() - LIBRARIES.keys()):
        from anycann.bench.peers import with_gpu_libraries

        found += with_gpu_libraries.of(problem, libraries)
    if "numpy" in libraries:
        from anycann.bench.peers import with_numpy

        found.append(with_numpy.naive(problem))
    return found
