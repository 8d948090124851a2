"""torch's own judgement: opcheck with all of its utilities, and compiled, exported and deterministic runs."""

from typing import Any

import pytest
import torch
from torch_samples import HAVE, baseline, lay

from anycann.torch import library
from anycann.torch.gradients import RULES
from contract_facts import Fact

by_operator = pytest.mark.parametrize("fact", HAVE, ids=lambda fact: fact.function)
UTILITIES = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def wanting_gradients(args: tuple[Any, ...], function: str) -> tuple[Any, ...]:
    """Those tensors that have a derivative require it."""
    rule, entry = RULES.get(function), library.ENTRIES[function]
    refused = set(entry.tensors) if rule is None else set(rule.refuses)
    named = zip(entry.positional, args, strict=True)
    return tuple(
        value.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        if isinstance(value, torch.Tensor) and value.is_floating_point() and name not in refused
        else value
        for name, value in named
    )


@by_operator
@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # torch 2.15 looks at it
def test_opcheck(fact: Fact, layout: str) -> None:
    for kind in fact.floats + fact.wider:
        args, kwargs = baseline(fact, kind).positional()
        args = tuple(lay(value, layout) if isinstance(value, torch.Tensor) else value for value in args)
        entry = library.ENTRIES[fact.function]
        results = torch.library.opcheck(entry.op, wanting_gradients(args, fact.function), kwargs, test_utils=UTILITIES)
        assert set(results.values()) == {"SUCCESS"}


@by_operator
def test_opcheck_of_out_variants(fact: Fact) -> None:
    one = baseline(fact, "float16")
    args, kwargs = one.positional()
    results = one.call()
    if any(result is None for result in results):
        pytest.skip("an output is not computed in this call")
    kwargs |= dict(zip(one.entry.outputs, map(torch.empty_like, results), strict=True))
    utilities = UTILITIES if hasattr(torch.Tag, "out") else UTILITIES[:-1]  # older torch compiles no operator that returns what it writes
    assert set(torch.library.opcheck(one.entry.out, args, kwargs, test_utils=utilities).values()) == {"SUCCESS"}
