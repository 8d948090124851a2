"""torch.ops.anycann: every operator, against the plain functions, on samples and refusals made from the contract facts."""

import re
from typing import Any

import pytest
import torch
from torch_samples import ERRORS, HAVE, SAMPLES, TorchSample, errors, samples, to_numpy

from anycann import AclnnError, ops
from anycann.torch import library
from contract_calls import same_bits
from contract_facts import FACTS, Fact

by_operator = pytest.mark.parametrize("fact", HAVE, ids=lambda fact: fact.function)


def test_every_operator_is_registered() -> None:
    assert set(library.ENTRIES) == {operator.spec.python for operator in ops.OPERATORS}
    assert {fact.function for fact in FACTS} <= set(library.ENTRIES)


def test_schemas_read_as_the_python_functions_do() -> None:
    found = {str(entry.op._schema) for entry in library.ENTRIES.values()}
    assert {
        'anycann::gelu_backward_v2(Tensor grad_output, Tensor self, str approximate="none") -> Tensor',
        "anycann::smooth_l1_loss_backward(Tensor grad_out, Tensor self, Tensor target, int reduction=1, float beta=1.) -> Tensor",
        "anycann::layer_norm_grad_beta(Tensor res_for_gamma, Tensor input_dy) -> (Tensor, Tensor)",
        "anycann::moe_token_permute_grad(Tensor permuted_output_grad, Tensor sorted_indices, SymInt num_topk, "
        "bool padded_mode=False) -> Tensor",
        "anycann::nsa_compress_grad(Tensor output_grad, Tensor input, Tensor weight, SymInt[]? act_seq_len=None, *, "
        'SymInt compress_block_size, SymInt compress_stride, SymInt act_seq_len_type=0, str? layout="TND") -> (Tensor, Tensor)',
    } <= found
    outs = {str(entry.out._schema) for entry in library.ENTRIES.values()}
    assert (
        "anycann::layer_norm_grad_beta.out(Tensor res_for_gamma, Tensor input_dy, *, Tensor(a!) pd_gamma, Tensor(b!) pd_beta)"
        " -> (Tensor(a!), Tensor(b!))"
    ) in outs


def _on_meta(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


@by_operator
def test_samples_give_the_bits_of_the_plain_function(fact: Fact) -> None:
    found = samples(fact)
    assert len(found) == SAMPLES
    assert {(one.kind, one.layout == "contiguous") for one in found} >= {(kind, plain) for kind in fact.floats for plain in (False, True)}
    for one in found:
        results = one.call()
        for result, expected in zip(results, one.expected, strict=True):
            assert (result is None) == (expected is None)
            assert result is None or same_bits(to_numpy(result), expected), one
        _assert_shapes_are_known(one, results)


def _assert_shapes_are_known(one: TorchSample, results: list[Any]) -> None:
    """Meta tensors give the shape, dtype and strides of real ones."""
    empty = one.call(**{name: _on_meta(value) for name, value in one.arguments.items()})
    for meta, result in zip(empty, results, strict=True):
        assert (meta is None) == (result is None)
        if result is not None:
            assert meta.is_meta
            assert (meta.shape, meta.dtype, meta.stride()) == (result.shape, result.dtype, result.stride()), one


@by_operator
def test_out_variants_write_into_given_tensors(fact: Fact) -> None:
    for one in samples(fact)[:40]:
        expected = one.call()
        if any(result is None for result in expected):
            continue
        outs = [torch.full_like(result, 77).transpose(0, -1).contiguous().transpose(0, -1) for result in expected]
        versions = [out._version for out in outs]
        returned = one.call(**dict(zip(one.entry.outputs, outs, strict=True)))
        for out, result, given, version in zip(outs, expected, returned, versions, strict=True):
            assert given is out
            assert same_bits(to_numpy(out.contiguous()), to_numpy(result))
            assert out._version > version


def _worded(text: object) -> str:
    """A message without strides, which NumPy and torch report differently where an axis has one element."""
    return re.sub(r"strides \([^)]*\)", "strides", str(text))


@by_operator
def test_refusals_are_those_of_the_plain_function(fact: Fact) -> None:
    found = list(errors(fact))
    assert len(found) >= ERRORS
    for one in found:
        with pytest.raises(AclnnError) as caught:
            one.function(**one.arguments)
        assert (caught.value.status, _worded(caught.value)) == (one.status, _worded(one.text)), one.label
        with pytest.raises(AclnnError) as caught:
            one.function(**{name: _on_meta(value) for name, value in one.arguments.items()})
        assert (caught.value.status, _worded(caught.value)) == (one.status, _worded(one.text)), one.label
