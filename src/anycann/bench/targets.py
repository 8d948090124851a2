"""The speeds that this project sets itself on CPUs, as data, and the verdict on a measured one.

Ratios are time of the best other / our time; shares are our bytes per second / those of the nearest ceiling. They hold for
one thread and for all, on machines with AVX-512; others have 0.75 of the goal.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anycann.spec import FLOATS

__all__ = ["DTYPES", "LIMITS_US", "NEVER_SLOWER", "Steps", "Target", "adapted", "target", "verdict"]

LARGE = 1 << 24  # elements of the largest tensor from which on the table below applies
NARROW_VECTORS = 0.75


class Steps(NamedTuple):
    """What must be reached, what shall be, and what would be splendid."""

    gate: float
    goal: float | None = None
    stretch: float | None = None


@dataclass(frozen=True)
class Target:
    """What is asked of an operator for some dtypes and values of attributes."""

    operator: str
    dtypes: tuple[str, ...]
    ratio: Steps
    share: Steps | None = None
    eager_ratio: Steps | None = None  # against the best that is not compiled for the case
    where: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    against: Mapping[str, Steps] = field(default_factory=dict)  # libraries that the ratios leave out, as they have steps of their own


_HALVES = ("float16", "bfloat16")
_GELU, _NORM, _PERMUTE = "gelu_backward_v2", "layer_norm_grad_beta", "moe_token_permute_grad"
_COPIES = "moe_token_permute", "moe_token_unpermute", "moe_token_unpermute_grad"

TARGETS = (
    Target(_GELU, ("float32",), Steps(1.3, 1.8, 2.0), Steps(0.70, 0.85), where={"approximate": ("none",)}),
    Target(_GELU, ("float32",), Steps(2.4, 3.3, 4.0), Steps(0.70, 0.85), where={"approximate": ("tanh",)}),
    Target(_GELU, _HALVES, Steps(2.3, 3.2, 3.6), Steps(0.80, 0.92), where={"approximate": ("none",)}),
    Target(_GELU, _HALVES, Steps(5.0, 7.0, 8.0), Steps(0.80, 0.92), where={"approximate": ("tanh",)}),
    Target("gelu_v2", ("float32",), Steps(1.3, 1.8, 2.0), Steps(0.70, 0.85), where={"approximate": (0,)}),
    Target("gelu_v2", ("float32",), Steps(2.4, 3.3, 4.0), Steps(0.70, 0.85), where={"approximate": (1,)}),
    Target("gelu_v2", _HALVES, Steps(1.3, 1.8, 2.0), Steps(0.60, 0.80), where={"approximate": (0,)}),
    Target("gelu_v2", _HALVES, Steps(5.0, 7.0, 8.0), Steps(0.60, 0.80), where={"approximate": (1,)}),
    Target("smooth_l1_loss", FLOATS, Steps(1.3, 1.7, 1.9), Steps(0.80, 0.92)),
    Target("smooth_l1_loss_backward", FLOATS, Steps(1.3, 1.7, 1.9), Steps(0.80, 0.92)),
    *(Target(operator, FLOATS, Steps(1.0, 1.3, 1.5)) for operator in ("layer_norm", "layer_norm_backward", "layer_norm_grad")),
    Target(_NORM, ("float32",), Steps(1.05, 1.3, 1.5), Steps(0.80, 0.95)),
    Target(_NORM, ("bfloat16",), Steps(2.5, 3.3, 4.0), Steps(0.80, 0.95)),
    Target(_NORM, ("float16",), Steps(1.5, 2.0, 2.5), Steps(0.80, 0.95)),
    Target(_PERMUTE, ("bfloat16",), Steps(2.5, 4.0, 4.5), Steps(0.80, 0.95), where={"numTopk": (2,)}),
    Target(_PERMUTE, ("bfloat16",), Steps(1.05, 1.25, 1.5), Steps(0.85, 0.95), where={"numTopk": (6, 8)}),
    *(Target(operator, ("bfloat16",), Steps(1.05, 1.25, 1.5)) for operator in _COPIES),
    Target("nsa_compress", ("bfloat16",), Steps(3.5, 4.7, 6.0)),
    Target("nsa_compress_grad", ("bfloat16",), Steps(3.5, 4.7, 6.0), Steps(0.50, 0.75), Steps(10.0, 22.0, 30.0)),
)

NEVER_SLOWER = Steps(1.0)  # all else, from 4,096 elements up

DTYPES = {  # of each operator, those that the table names
    operator: tuple(name for name in FLOATS if any(line.operator == operator and name in line.dtypes for line in TARGETS))
    for operator in dict.fromkeys(line.operator for line in TARGETS)
}

LIMITS_US = {  # of a call on 64 elements, in microseconds
    "Python, NumPy out=": 3.0,
    "Python, torch out=": 2.0,  # above torch's own call
    "core": 1.0,
    "phase 1, first": 4.0,
    "phase 1, moved": 4.0,
    "phase 1, repeated": 2.0,
}


def target(operator: str, dtype: str, attrs: Mapping[str, Any], elements: int) -> Target:
    """What is asked of a case; never to be slower where the table has no line for it."""
    for line in TARGETS:
        here = line.operator == operator and dtype in line.dtypes and elements >= LARGE
        if here and all(attrs[name] in values for name, values in line.where.items()):
            return line
    return Target(operator, (dtype,), NEVER_SLOWER)


def adapted(steps: Steps, avx512: bool) -> Steps:
    """The steps on this machine: without AVX-512 0.75 of the goal and beyond, and a gate that is not above it."""
    if avx512 or steps.goal is None:
        return steps
    goal = NARROW_VECTORS * steps.goal
    return Steps(min(steps.gate, goal), goal, None if steps.stretch is None else NARROW_VECTORS * steps.stretch)


def verdict(value: float, steps: Steps) -> str:
    """The highest step that a value reaches: "stretch", "goal", "gate", or "missed"."""
    reached = [name for name, step in zip(Steps._fields, steps, strict=True) if step is not None and value >= step]
    return reached[-1] if reached else "missed"
