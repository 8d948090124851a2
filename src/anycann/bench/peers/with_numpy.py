"""NumPy as one would write it at first: whole arrays, float32, temporaries."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from anycann.bench.naive import NAIVE
from anycann.bench.peers import Peer
from anycann.bench.problems import Problem
from anycann.check import samples

__all__ = ["naive"]

# of the size of the largest tensor; 3 elsewhere
_TEMPORARIES = {"gelu_backward_v2": 6, "gelu_v2": 5, "smooth_l1_loss": 5, "smooth_l1_loss_backward": 5}


def naive(problem: Problem) -> Peer:
    """The formula in float32, its result rounded to the dtype of the problem; converting to float32 is part of it."""
    spec = problem.operator.spec
    formula = NAIVE[spec.python]

    def call() -> tuple[NDArray[Any], ...]:
        wide = {name: array if array.dtype.kind in "iu" else array.astype(np.float32, copy=False) for name, array in problem.inputs.items()}
        results = formula(*samples.arguments(spec, wide, problem.attrs))
        results = results if isinstance(results, tuple) else (results,)
        return tuple(value.astype(out.dtype, copy=False) for value, out in zip(results, problem.outs, strict=True))

    return Peer("numpy", "NumPy formula", True, call, needs=4 * _TEMPORARIES.get(spec.python, 3) * problem.elements)
