"""layer_norm on the GPU: the bits of the CPU."""

import itertools

import numpy as np
import pytest
from kernels import DEVICE, cancelling, compare, run
from operands import DTYPES, LAYOUTS, Watched, assert_same, lay, normal, with_special_values

from anycann import layer_norm
from anycann.backends import gpu_rows

SINGLE = DTYPES["float32"]
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def outputs(x, axes=1, layout="plain"):
    """Room for out, mean and rstd."""
    ones = (*x.shape[: x.ndim - axes], *[1] * axes)
    return [Watched(x.shape, x.dtype, layout), Watched(ones, SINGLE, layout), Watched(ones, SINGLE)]


@every_dtype
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (5, 63), (34, 129), (0, 5)])
def test_rows_and_columns(dtype, rows, width):
    x, weight, bias = normal((rows, width), DTYPES[dtype], 1), normal((width,), DTYPES[dtype], 2), normal((width,), DTYPES[dtype], 3)
    compare(layer_norm, (x, (width,), weight, bias, 1e-5), outputs(x))


@pytest.mark.parametrize(("dtype", "rows"), [("bfloat16", 5), ("float32", 3)])
@pytest.mark.parametrize("width", [1025] if DEVICE == "cpu" else [1025, 5120, 7168, 20000])
def test_long_rows(dtype, rows, width):
    x = normal((rows, width), DTYPES[dtype], 1) + DTYPES[dtype].type(3)
    compare(layer_norm, (x, (width,), normal((width,), DTYPES[dtype], 2), None, 1e-5), outputs(x))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_order_of_the_sums(dtype):
    x = cancelling((40, 90), DTYPES[dtype], 1)
    out, mean, rstd = outputs(x)
    compare(layer_norm, (x, (90,), None, None, 1e-5), [out, mean, rstd])
    first = x[:, :1].astype(np.float64)
    pairwise = (first + (x.astype(np.float64) - first).mean(1, keepdims=True)).astype(np.float32)
    assert (pairwise != layer_norm(x, (90,))[1]).any(), "another order gives other bits"


def test_what_the_bias_cancels_keeps_its_digits():
    x, weight = normal((1, 400), SINGLE, 1), normal((400,), SINGLE, 2)
    out, _, _ = layer_norm(x, (400,), weight)
    compare(layer_norm, (x, (400,), weight, -out[0], 1e-5), outputs(x))


@pytest.mark.parametrize(("layout", "dtype"), [*zip(LAYOUTS, itertools.cycle(DTYPES))])
def test_layouts(dtype, layout):
    kind, inner = DTYPES[dtype], (5, 4)
    x, weight, bias = lay(normal((2, 3, *inner), kind), layout), lay(normal(inner, kind, 1), layout), lay(normal(inner, kind, 2), "padded")
    compare(layer_norm, (x, inner, weight, bias, 1e-5), outputs(x, 2, layout))
    repeated = np.broadcast_to(x[:, :1], x.shape)
    compare(layer_norm, (repeated, inner, weight, None, 1e-5), outputs(x, 2, "strided"))


@every_dtype
@pytest.mark.parametrize("parameters", [(None, None), ("own", None), ("float32", "float32"), (None, "float32")])
def test_parameters_and_their_dtypes(dtype, parameters):
    x = normal((6, 33), DTYPES[dtype], 1)
    weight, bias = (None if each is None else normal((33,), DTYPES.get(each, x.dtype), 2) for each in parameters)
    compare(layer_norm, (x, (33,), weight, bias, 1e-5), outputs(x))


@pytest.mark.parametrize("eps", [0.0, 5e-324, 1e-300, 0.1, 1.0, 3e38])
def test_eps_is_a_double(eps):
    x = normal((4, 16), SINGLE, 1, 1e-3)
    compare(layer_norm, (x, (16,), None, None, eps), outputs(x))


def test_all_axes_are_normalised_and_offsets_may_be_wide(monkeypatch):
    monkeypatch.setattr(gpu_rows, "wide", lambda *given: True)
    x = normal((3, 4, 50), SINGLE, 1)
    compare(layer_norm, (x, x.shape, normal(x.shape, SINGLE, 2), None, 1e-5), outputs(x, 3))
    compare(layer_norm, (x, (50,), normal((50,), SINGLE, 2), None, 1e-5), outputs(x))


@pytest.mark.parametrize("there", [(True, False, False), (True, True, False), (True, False, True)])
def test_mean_and_rstd_may_be_left_out(there):
    x = normal((9, 20), SINGLE, 1)
    outs = outputs(x)
    run(layer_norm, (x, (20,), None, None, 1e-5), [out.array if wanted else None for out, wanted in zip(outs, there, strict=True)])
    for out, expected, wanted in zip(outs, layer_norm(x, (20,)), there, strict=True):
        if wanted:
            assert_same(out.check(), expected)


@pytest.mark.parametrize(
    ("dtype", "scale"), [("float32", 1e-44), ("float32", 1e36), ("bfloat16", 1e-38), ("bfloat16", 1e36), ("float16", 1e4)]
)
def test_sizes_of_numbers_and_constant_rows(dtype, scale):
    x = (normal((10, 40), SINGLE, 1) * np.float32(scale)).astype(DTYPES[dtype])
    x[3], x[4] = x[3, :1], -0.0
    weight, bias = with_special_values(normal((40,), x.dtype, 2), 3), normal((40,), x.dtype, 4)
    for eps in (0.0, 1e-5):
        compare(layer_norm, (x, (40,), weight, bias, eps), outputs(x))


@every_dtype
def test_special_values_and_rows_of_nothing(dtype):
    x = normal((24, 35), DTYPES[dtype], 1)
    x[::2] = with_special_values(x[::2], 2)
    compare(layer_norm, (x, (35,), normal((35,), x.dtype, 2), normal((35,), x.dtype, 3), 1e-5), outputs(x))
    compare(layer_norm, (x[:, :0], (0,), None, None, 1e-5), outputs(x[:, :0]))
