"""What a call through torch costs beside the computation: for every operator on its smallest problem, microseconds a call.

Columns: the plain function on NumPy arrays; the plain function on tensors; the operator of torch.ops.anycann; the least operator that
PyTorch can make of the same schema; what ours takes above the plain function and that. The calls of a line take turns in rounds; the
shortest round counts, as it is the least disturbed by what else a machine does.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from anycann.bench.overhead import SMALLEST, public_call
from anycann.bench.peers.with_torch import as_torch
from anycann.bench.problems import prepare
from anycann.check import samples
from anycann.ops import OPERATORS
from anycann.torch.library import ENTRIES, Entry

_LIBRARY: Any = torch.library.Library
LEAST: Any = _LIBRARY("anycann_least", "DEF")


def shortest(calls: list[Callable[[], Any]], rounds: int, repeat: int) -> list[float]:
    """Microseconds of each call."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for place, call in enumerate(calls):
            begin = time.perf_counter()
            for _ in range(repeat):
                call()
            best[place] = min(best[place], (time.perf_counter() - begin) / repeat * 1e6)
    return best


def least(entry: Entry, results: Any) -> Any:
    """The least operator that PyTorch can make of the same schema: it has its results."""
    LEAST.define(entry.schema())
    LEAST.impl(entry.name, lambda *args, **named: results, "CPU")
    return getattr(torch.ops.anycann_least, entry.name).default


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'':26s} {'NumPy':>7s} {'tensors':>8s} {'torch.ops':>10s} {'least':>6s} {'above both':>11s}")
    for operator in OPERATORS:
        spec = operator.spec
        problem = prepare(operator, SMALLEST[spec.python], spec.tensors[0].dtypes[0])
        values = samples.arguments(spec, {name: as_torch(array) for name, array in problem.inputs.items()}, problem.attrs)
        same, entry = public_call(operator, values), ENTRIES[spec.python]
        calls = [
            public_call(operator, problem.values),
            same,
            public_call(operator, values, entry.op),
            public_call(operator, values, least(entry, same())),
        ]
        arrays, tensors, through_torch, nothing = shortest(calls, options.rounds, options.repeat)
        above = through_torch - tensors - nothing
        print(f"{spec.python:26s} {arrays:7.2f} {tensors:8.2f} {through_torch:10.2f} {nothing:6.2f} {above:11.2f}")


if __name__ == "__main__":
    main()
