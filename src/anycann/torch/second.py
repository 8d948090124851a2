"""Second derivatives, of those gradients that are not linear: formulas of torch's own operators in float64, which differentiate again.

Values and gradients are kernels. Who differentiates twice does so on little data, and wants it right.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["gelu", "layer_norm", "smooth_l1"]

_SLOPE, _CUBE = math.sqrt(2 / math.pi), 0.044715  # of GELU's tanh form


def gelu(x: Tensor, approximate: str) -> Tensor:
    """The second derivative of GELU. Far from 0, where float64 has nothing smaller, it is zero, at infinity too."""
    x = x.double()
    if approximate == "none":
        x = x.clamp(-40, 40)
        return (2 - x * x) * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    x = x.clamp(-22, 22)
    inner, slope, bend = _SLOPE * (x + _CUBE * x**3), _SLOPE * (1 + 3 * _CUBE * x * x), _SLOPE * 6 * _CUBE * x
    return torch.cosh(inner) ** -2 * (slope + x * (bend / 2 - torch.tanh(inner) * slope * slope))


def smooth_l1(self: Tensor, target: Tensor, beta: float) -> Tensor:
    """The second derivative of an element's loss by self: 1 / beta where it is a parabola, NaN where an element is."""
    x = self.double() - target.double()
    line = torch.where(x.isnan(), x, 0.0)
    return torch.where(x.abs() < beta, 1 / beta, line) if beta else line


def layer_norm(
    grads: Sequence[Tensor | None],
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    axes: tuple[int, ...],
) -> tuple[Tensor, Tensor, Tensor | None]:
    """What the gradients of the gradients of layer normalisation over some axes, the last ones, give to grad_out, input and weight.

    With y the normalised rows, r the reciprocal deviations and P(v) = v - mean(v) - y mean(v y), the gradient of the input is r P(grad_out
    weight). P is symmetric; of y and r the derivatives are r P and -r^2 mean(y .).
    """

    def average(v: Tensor) -> Tensor:
        return v.mean(axes, keepdim=True)

    def project(v: Tensor) -> Tensor:
        return v - average(v) - y * average(v * y)

    g, (y, r) = grad_out.double(), _normalised(input.double(), mean.double(), rstd.double(), axes)
    scale = 1.0 if weight is None else weight.double()
    of_input, of_weight, of_bias = [None if grad is None else grad.double() for grad in grads]
    to_grad, to_rows, to_input, to_weight = torch.zeros_like(g), torch.zeros_like(g), torch.zeros_like(g), None
    if of_input is not None:
        projected, through = r * project(of_input), g * scale
        to_grad = projected * scale
        to_rows = -r * (of_input * average(through * y) + through * average(of_input * y))
        to_input = -r * y * average(projected * through)
        to_weight = g * projected
    if of_weight is not None:
        to_grad, to_rows = to_grad + y * of_weight, to_rows + g * of_weight
    if of_bias is not None:
        to_grad = to_grad + of_bias
    return to_grad, to_input + r * project(to_rows), to_weight


def _normalised(x: Tensor, mean: Tensor, rstd: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """The rows and the reciprocal deviations, of the statistics that are given; they follow the input where it is differentiated."""
    own = x.mean(axes, keepdim=True)
    away = x - (own - own.detach() + mean)
    variance = (x - own).square().mean(axes, keepdim=True)
    r = (variance - variance.detach() + rstd**-2) ** -0.5
    return away * r, r
