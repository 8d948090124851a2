"""How much operands that do not lie one element behind the other cost: every operator, nanoseconds an element of its largest operand.

Columns: operands that are one run; halves of rows twice as long; heads, each a run of its own, as attention leaves them; the last axis
outermost, as channels first are; and what each of these takes beside the first. Large operands lie so, results one behind the other, and
are the same. The calls of a line take turns in rounds; medians count.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import anycann
from anycann.bench.overhead import public_call
from anycann.check import samples
from anycann.ops import OPERATORS
from anycann.runtime import Operator
from anycann.spec import Workload

Array = NDArray[Any]

TOKENS, HEADS, WIDTH = 8192, 8, 128
_FULL, _ROWS, _COPIES = (TOKENS, HEADS, WIDTH), (TOKENS, HEADS, 1), 2 * TOKENS
_NORM = {"normalizedShape": (WIDTH,)}
_WINDOWS = {"compressBlockSize": 32, "compressStride": 16}
WORKLOADS = {
    "gelu_backward_v2": Workload("", {"gradOutput": _FULL, "self": _FULL}),
    "gelu_v2": Workload("", {"x": _FULL}),
    "smooth_l1_loss": Workload("", {"self": _FULL, "target": _FULL}),
    "smooth_l1_loss_backward": Workload("", {"gradOut": (1,), "self": _FULL, "target": _FULL}),
    "layer_norm": Workload("", {"input": _FULL, "weightOptional": (WIDTH,), "biasOptional": (WIDTH,)}, _NORM),
    "layer_norm_backward": Workload(
        "", {"gradOut": _FULL, "input": _FULL, "mean": _ROWS, "rstd": _ROWS, "weightOptional": (WIDTH,)}, _NORM
    ),
    "layer_norm_grad": Workload(
        "", {"inputDy": _FULL, "inputX": _FULL, "inputVariance": _FULL[:2], "inputMean": _FULL[:2], "inputGamma": (WIDTH,)}
    ),
    "layer_norm_grad_beta": Workload("", {"resForGamma": _FULL, "inputDy": _FULL}),
    "moe_token_permute": Workload("", {"tokens": (TOKENS, HEADS * WIDTH), "indices": (TOKENS, 2)}),
    "moe_token_permute_grad": Workload("", {"permutedOutputGrad": (_COPIES, HEADS * WIDTH), "sortedIndices": (_COPIES,)}, {"numTopk": 2}),
    "moe_token_unpermute": Workload(
        "", {"permutedTokens": (_COPIES, HEADS * WIDTH), "sortedIndices": (_COPIES,), "probsOptional": (TOKENS, 2)}
    ),
    "moe_token_unpermute_grad": Workload(
        "",
        {
            "permuteTokensOptional": (_COPIES, HEADS * WIDTH),
            "unpermutedTokensGrad": (TOKENS, HEADS * WIDTH),
            "sortedIndices": (_COPIES,),
            "probsOptional": (TOKENS, 2),
        },
    ),
    "nsa_compress": Workload("", {"input": _FULL, "weight": (32, HEADS)}, {**_WINDOWS, "actSeqLenOptional": (TOKENS,)}),
    "nsa_compress_grad": Workload("", {"outputGrad": (TOKENS // 16 - 1, HEADS, WIDTH), "input": _FULL, "weight": (32, HEADS)}, _WINDOWS),
}


def halves(array: Array) -> Array:
    """The same numbers in the first halves of rows twice as long."""
    rows = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    rows[..., : array.shape[-1]] = array
    return rows[..., : array.shape[-1]]


def heads(array: Array) -> Array:
    """The same numbers, head after head."""
    return np.ascontiguousarray(array.swapaxes(0, 1)).swapaxes(0, 1)


def channels_first(array: Array) -> Array:
    """The same numbers, the last axis outermost."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, -1, 0)), 0, -1)


LAYOUTS = {"one run": np.ascontiguousarray, "halves": halves, "heads": heads, "channels first": channels_first}


def medians(calls: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of each call."""
    seconds: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, taken in zip(calls, seconds, strict=True):
            begin = time.perf_counter()
            call()
            taken.append(time.perf_counter() - begin)
    return [statistics.median(taken) for taken in seconds]


def measured(operator: Operator, dtype: str, rounds: int) -> dict[str, float]:
    """Nanoseconds an element of the largest operand in each layout that there is of it."""
    spec, workload = operator.spec, WORKLOADS[operator.spec.python]
    inputs, attrs = samples.inputs(spec, workload, dtype, 0), samples.attributes(spec, workload)
    outs = operator.call(*samples.arguments(spec, inputs, attrs))
    want = [out.tobytes() for out in (outs if isinstance(outs, tuple) else (outs,))]
    size, axes = max((array.size, array.ndim) for array in inputs.values())
    calls = {}
    for name, lay in LAYOUTS.items():
        if axes < 3 and lay is heads:
            continue
        laid = {key: lay(array) if 16 * array.size >= size else array for key, array in inputs.items()}
        calls[name] = partial(public_call(operator, samples.arguments(spec, laid, attrs)), out=outs)
        got = calls[name]()
        assert [out.tobytes() for out in (got if isinstance(got, tuple) else (got,))] == want, (spec.python, dtype, name)
    return {name: 1e9 * seconds / size for name, seconds in zip(calls, medians(list(calls.values()), rounds), strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default="float32,bfloat16")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    anycann.set_num_threads(options.threads)
    print(f"{'':35s}", *(f"{name:>{max(8, len(name))}s}" for name in LAYOUTS))
    for operator in OPERATORS:
        for dtype in options.dtypes.split(","):
            times = measured(operator, dtype, options.rounds)
            print(f"{operator.spec.python:26s} {dtype:8s}", end="")
            for name in LAYOUTS:
                print(f" {times[name]:{max(8, len(name))}.3f}" if name in times else f" {'':{max(8, len(name))}s}", end="")
            print("  ", *(f"{name} {times[name] / times['one run']:.1f}" for name in times if name != "one run"), flush=True)


if __name__ == "__main__":
    main()
