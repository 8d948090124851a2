"""Every operator gives the same bits again and again, whatever memory held before."""

import dataclasses

import kernels
import numpy as np
import pytest
from kernels import run
from operands import raw

import anycann
from anycann.bench.overhead import SMALLEST
from anycann.bench.problems import prepare
from anycann.ops import OPERATORS
from anycann.runtime import operator_of

SEVERAL = {  # sums of more than one program
    "smooth_l1_loss": {"shapes": {"self": (9000,), "target": (9000,)}, "attrs": {"reduction": 1}},
    "layer_norm_grad_beta": {"shapes": {"resForGamma": (1100, 8), "inputDy": (1100, 8)}},
}


@pytest.mark.parametrize("name", [operator.spec.python for operator in OPERATORS if operator.has_kernels("gpu")])
def test_runs_have_the_same_bits(name, repeats, monkeypatch):
    operator = operator_of(vars(anycann)[name])
    workload = dataclasses.replace(SMALLEST[name], **SEVERAL.get(name, {}))
    problem = prepare(operator, workload, operator.spec.inputs[0].dtypes[0])
    found = set()
    for number in range(repeats):
        monkeypatch.setattr(kernels, "POISON", number * 37 % 256)
        for out in problem.outs:
            out.reshape(-1).view(np.uint8).fill(number * 91 % 256)
        run(vars(anycann)[name], problem.values, problem.outs)
        found.add(tuple(raw(out) for out in problem.outs))
    problem.ours(allocate=False)
    assert found == {tuple(raw(out) for out in problem.outs)}
