"""Numbers of the interface: data types and their sizes, formats, conversions of halves; descriptors, scalars, arrays and buffers."""

import math
from typing import Any

import numpy as np
import pytest
from device_calls import C, address, refused, tensor
from hypothesis import given
from hypothesis import strategies as st

from anycann import device

SIZES = {
    -1: 0, 0: 4, 1: 2, 2: 1, 3: 4, 4: 1, 6: 2, 7: 2, 8: 4, 9: 8, 10: 8, 11: 8, 12: 1, 13: 0,
    16: 8, 17: 16, 27: 2, 29: 1, 30: 1, 33: 4, 34: 1, 35: 1, 36: 1, 37: 1,
}  # fmt: skip
FORMATS = (-1, 0, 1, 2, 3, 4, 16, 27, 29, 30, 47)


@pytest.mark.parametrize("number", range(-2, 100))
def test_sizes_of_data_types(number: int) -> None:
    assert C.aclDataTypeSize(number) == SIZES.get(number, 0)


@pytest.mark.parametrize("number", [2**31 - 1, -(2**31)])
def test_sizes_of_numbers_that_are_no_data_type(number: int) -> None:
    assert C.aclDataTypeSize(number) == 0


def test_every_half_as_a_float() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    values = np.array([C.aclFloat16ToFloat(int(one)) for one in bits])
    ieee = bits.view(np.float16).astype(np.float64)
    special = (bits & 0x7C00) == 0x7C00
    expected = np.where(special, np.copysign(65536 * (1 + (bits & 0x3FF) / 1024), np.where(bits & 0x8000, -1.0, 1.0)), ieee)
    assert np.array_equal(values, expected)
    assert np.array_equal(np.signbit(values), np.signbit(expected))
    assert C.aclFloat16ToFloat(0x7C00) == 65536.0
    assert np.array_equal(values.astype(np.float32), values), "not a float"


def expected_bits(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Nearest even; too large saturates, NaN is the largest number."""
    with np.errstate(over="ignore", invalid="ignore"):
        bits = values.astype(np.float16).view(np.uint16)
    bits = np.where((bits & 0x7FFF) == 0x7C00, (bits & 0x8000) | 0x7BFF, bits)
    return np.where(np.isnan(values), 0x7BFF, bits)


def converted(values: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    return np.array([C.aclFloatToFloat16(float(one)) for one in values])


def test_halves_survive_the_way_to_floats_and_back() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    finite = bits[(bits & 0x7C00) != 0x7C00]
    assert np.array_equal(converted(finite.view(np.float16).astype(np.float32)), finite)


def test_floats_as_halves() -> None:
    rng = np.random.default_rng(7)
    any_bits = rng.integers(0, 1 << 32, 20_000, np.uint32).view(np.float32)
    halves = np.arange(0, 0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float32)
    ties = ((halves[:-1].astype(np.float64) + halves[1:]) / 2).astype(np.float32)[::7]
    around = np.concatenate([np.nextafter(ties, np.float32(0)), ties, np.nextafter(ties, np.float32(np.inf))])
    for values in (any_bits, rng.normal(size=5000).astype(np.float32), around, -around):
        assert np.array_equal(converted(values), expected_bits(values))


@pytest.mark.parametrize(
    ("value", "bits"),
    [
        (math.nan, 0x7BFF),
        (-math.nan, 0x7BFF),
        (math.inf, 0x7BFF),
        (-math.inf, 0xFBFF),
        (65504.0, 0x7BFF),
        (65519.996, 0x7BFF),
        (65520.0, 0x7BFF),
        (-65520.0, 0xFBFF),
        (3.4028234663852886e38, 0x7BFF),
        (0.0, 0),
        (-0.0, 0x8000),
        (2.0**-24, 1),
        (2.0**-25, 0),
        (2.0**-25 * 1.0000001192092896, 1),
        (-(2.0**-26), 0x8000),
    ],
)
def test_floats_at_the_ends_as_halves(value: float, bits: int) -> None:
    assert C.aclFloatToFloat16(value) == bits


@pytest.mark.parametrize("number", sorted(SIZES))
@pytest.mark.parametrize("layout", FORMATS)
def test_descriptors_give_back_what_they_were_made_of(number: int, layout: int) -> None:
    handle = C.aclCreateTensor((2, 3), number, (7, -2), 5, layout, (4, 5), 0x1000)
    assert C.aclGetViewShape(handle) == ((2, 3), 2)
    assert C.aclGetStorageShape(handle) == ((4, 5), 2)
    assert C.aclGetViewStrides(handle) == ((7, -2), 2)
    assert (C.aclGetViewOffset(handle), C.aclGetFormat(handle), C.aclGetDataType(handle)) == (5, layout, number)
    assert C.aclGetRawTensorAddr(handle) == 0x1000
    C.aclSetRawTensorAddr(handle, 2**64 - 1)
    assert C.aclGetRawTensorAddr(handle) == 2**64 - 1
    C.aclInitTensor(handle, (), 0, None, 0, 2, (), 0)
    assert C.aclGetViewShape(handle) == C.aclGetViewStrides(handle) == C.aclGetStorageShape(handle) == ((), 0)
    assert (C.aclGetDataType(handle), C.aclGetRawTensorAddr(handle)) == (0, 0)
    C.aclDestroyTensor(handle)


def test_null_strides_are_those_of_a_contiguous_view() -> None:
    for shape, strides in (((2, 3, 4), (12, 4, 1)), ((5,), (1,)), ((), ()), ((2, 0, 3), None)):
        handle = tensor(shape, 0)
        found = C.aclGetViewStrides(handle)
        assert found[1] == len(shape)
        if strides is not None:
            assert found[0] == strides
        C.aclDestroyTensor(handle)


@pytest.mark.parametrize("shape", [(1, 2**32, 2**31), (0, 2**62, 2**62), (3, 2**62, 2), (2,) * 64])
def test_null_strides_must_fit_into_64_bits(shape: tuple[int, ...]) -> None:
    before = device.living()
    refused(161002, lambda: C.aclCreateTensor(shape, 0, None, 0, 2, (1,), 0), "viewDims", "contiguous strides", "got")
    assert device.living() == before
    largest = C.aclCreateTensor((2**62, 2**62 - 1, 2), 0, None, 0, 2, (1,), 0)
    assert C.aclGetViewStrides(largest)[0] == (2**63 - 2, 2, 1)
    C.aclDestroyTensor(largest)


def test_descriptors_that_cannot_be_made() -> None:
    before = device.living()
    handle = tensor((1,), 0)
    made = {
        "aclCreateTensor": lambda *args: C.aclCreateTensor(*args),
        "aclInitTensor": lambda *args: C.aclInitTensor(handle, *args),
    }
    for make in made.values():
        refused(161001, lambda m=make: m(None, 0, None, 0, 2, (1,), 0), "viewDims", "null")
        refused(161001, lambda m=make: m((1,), 0, None, 0, 2, None, 0), "storageDims", "null")
        refused(161002, lambda m=make: m((2, -1), 0, None, 0, 2, (1,), 0), "viewDims", "at least 0", "got (2, -1)")
        refused(161002, lambda m=make: m((2,), 0, None, 0, 2, (-5,), 0), "storageDims", "got (-5,)")
        refused(161002, lambda m=make: m((1,) * 65, 0, None, 0, 2, (1,), 0), "viewDims", "64", "got 65")
    assert C.aclGetViewShape(handle) == ((1,), 1), "a refused call changed the tensor"
    C.aclDestroyTensor(handle)
    assert device.living() == before


@given(
    st.lists(st.integers(0, 2**63 - 1), max_size=9),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**64 - 1),
    st.data(),
)
def test_descriptors_of_any_numbers_do_not_overflow(shape: list[int], offset: int, data: int, draw: Any) -> None:
    strides = draw.draw(st.tuples(*[st.integers(-(2**63), 2**63 - 1) for _ in shape]))
    handle = C.aclCreateTensor(tuple(shape), 0, strides, offset, 2, tuple(shape), data)
    assert C.aclGetViewShape(handle)[0] == tuple(shape)
    C.aclDestroyTensor(handle)


def test_arrays_and_scalars() -> None:
    for kind, values in (("Int", (-(2**63), 2**63 - 1)), ("Float", (1.5, math.inf)), ("Bool", (True, False, True)), ("Int", ())):
        handle = device.CALLS[f"aclCreate{kind}Array"](values)
        assert device.CALLS[f"aclGet{kind}ArraySize"](handle) == len(values)
        device.CALLS[f"aclDestroy{kind}Array"](handle)
        refused(161001, lambda k=kind: device.CALLS[f"aclCreate{k}Array"](None), "value", "null")
    value = np.array([1.5])
    refused(161001, lambda: C.aclCreateScalar(0, 0), "value", "null")
    for number in (-1, 13, 99):
        refused(161002, lambda n=number: C.aclCreateScalar(address(value), n), "dataType", f"got {number}")
    both = [C.aclCreateScalar(address(value), number) for number in (0, 11)]
    scalars = C.aclCreateScalarList(tuple(both))
    assert C.aclGetScalarListSize(scalars) == 2
    C.aclDestroyScalarList(scalars)
    refused(161002, lambda: C.aclDestroyScalar(both[0]), "destroyed")


def test_data_buffers() -> None:
    handle = C.aclCreateDataBuffer(4096, 2**40)
    assert C.aclGetDataBufferAddr(handle) == 4096
    assert C.aclGetDataBufferSizeV2(handle) == 2**40
    refused(100000, lambda: C.aclGetDataBufferSize(handle), "2**32", f"got {2**40}", "aclGetDataBufferSizeV2")
    C.aclUpdateDataBuffer(handle, 8, 16)
    assert (C.aclGetDataBufferAddr(handle), C.aclGetDataBufferSize(handle), C.aclGetDataBufferSizeV2(handle)) == (8, 16, 16)
    C.aclDestroyDataBuffer(handle)
