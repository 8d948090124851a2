"""Programs for the check mode, run as processes of their own: `python watch_programs.py layouts`, for example."""

import ctypes
import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import anycann
from anycann import device, dtypes, ops
from anycann.check import samples
from anycann.device.memory import DEVICE
from anycann.spec import OpSpec

C = SimpleNamespace(**device.CALLS)
OPERATORS = {operator.spec.name: operator for operator in ops.OPERATORS if operator.spec.two_phase}
CALLS = {name: device.two_phase(operator) for name, operator in OPERATORS.items()}
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
ND = 2
Array = np.ndarray[Any, Any]


def upload(array: Array) -> int:
    """New device memory with the bytes of an array."""
    place: int = C.aclrtMalloc(max(array.nbytes, 1), 0)
    C.aclrtMemcpy(place, max(array.nbytes, 1), array.ctypes.data, array.nbytes, TO_DEVICE)
    return place


def download(place: int, size: int) -> bytes:
    result = np.empty(size, np.uint8)
    C.aclrtMemcpy(result.ctypes.data, size, place, size, TO_HOST)
    return result.tobytes()


def tensor(place: int, shape: tuple[int, ...], dtype: str, strides: Any = None, offset: int = 0, storage: Any = None) -> int:
    handle: int = C.aclCreateTensor(shape, dtypes.DTYPES[dtype].acl, strides, offset, ND, shape if storage is None else storage, place)
    return handle


class Made:
    """Tensors in device memory with what was made for them, to be destroyed together."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.handles: list[int] = []

    def memory(self, array: Array) -> int:
        self.places.append(upload(array))
        return self.places[-1]

    def tensor(self, array: Array, dtype: str, **layout: Any) -> int:
        shape = layout.pop("shape", array.shape)
        self.handles.append(tensor(self.memory(array), shape, dtype, **layout))
        return self.handles[-1]

    def end(self) -> None:
        for handle in self.handles:
            C.aclDestroyTensor(handle)
        for place in self.places:
            C.aclrtFree(place)


def pitched(array: Array) -> tuple[Array, dict[str, Any]]:
    """The same elements with gaps: every row is two elements longer, and the first lies at element 3."""
    if array.ndim == 0 or array.size == 0:
        return array, {}
    rows, width = array.size // array.shape[-1], array.shape[-1]
    storage = np.zeros(3 + rows * (width + 2), array.dtype)
    np.lib.stride_tricks.as_strided(storage[3:], (rows, width), ((width + 2) * array.itemsize, array.itemsize))[...] = array.reshape(
        rows, width
    )
    strides = [1]
    for size in reversed(array.shape[1:]):
        strides.append(strides[-1] * size + 2 * (len(strides) == 1))
    return storage, {"shape": array.shape, "strides": tuple(reversed(strides)), "offset": 3, "storage": storage.shape}


def attributes(spec: OpSpec, values: dict[str, Any]) -> tuple[dict[str, int], list[Callable[[], object]]]:
    """Attributes as the interface takes them, and what destroys them."""
    given, ends = {}, []
    for attr in spec.attrs:
        value = values[attr.name]
        for kind in ("IntArray", "BoolArray"):
            if kind in attr.ctype and value is not None:
                value = getattr(C, f"aclCreate{kind}")(tuple(value))
                ends.append(lambda value=value, kind=kind: getattr(C, f"aclDestroy{kind}")(value))
        given[attr.name] = 0 if value is None and "Array" in attr.ctype else value
    return given, ends


def run(name: str, values: list[Any], stream: int, repeats: int = 1) -> None:
    first, second = CALLS[name]
    size, executor = first(*values)
    place = C.aclrtMalloc(size, 0) if size else 0
    if repeats > 1:
        C.aclSetAclOpExecutorRepeatable(executor)
    for _ in range(repeats):
        second(place, size, executor, stream)
    C.aclrtSynchronizeStream(stream)
    if repeats > 1:
        C.aclDestroyAclOpExecutor(executor)
    if place:
        C.aclrtFree(place)


def samples_of(name: str, dtype: str) -> tuple[dict[str, Array], dict[str, Any], list[Any]]:
    """Inputs, attributes and results of an operator, of a small size."""
    operator = OPERATORS[name]
    workload = operator.spec.workloads[0]
    inputs, attrs = samples.inputs(operator.spec, workload, dtype), samples.attributes(operator.spec, workload)
    found = operator.call(*samples.arguments(operator.spec, inputs, attrs), product=None)
    return inputs, attrs, list(found) if isinstance(found, tuple) else [found]


def operators(*names: str) -> None:
    """Operators on tensors with gaps, twice: the bits of the results are those of the plain functions, and the gaps stay as they were."""
    stream = C.aclrtCreateStream()
    for name in names:
        spec = OPERATORS[name].spec
        inputs, attrs, results = samples_of(name, "float16")
        made = Made()
        given, ends = attributes(spec, attrs)
        outputs = []
        for param in spec.tensors:
            array = np.full_like(results[spec.outputs.index(param)], 1) if param.output else inputs.get(param.name)
            stored, layout = (None, {}) if array is None else pitched(array)
            given[param.name] = 0 if stored is None else made.tensor(stored, str(array.dtype), **layout)
            if param.output:
                outputs.append((made.places[-1], pitched(results[spec.outputs.index(param)])[0]))
        run(name, [given[param.name] for param in spec.params], stream, repeats=2)
        for place, expected in outputs:
            assert download(place, expected.nbytes) == expected.tobytes(), name
        for end in (*ends, made.end):
            end()
    C.aclrtDestroyStream(stream)


def layouts() -> None:
    """Inputs that overlap, that are broadcast, that are empty, that are the output; other addresses; results of results."""
    data = np.linspace(-3, 3, 6, dtype=np.float32)
    one_by_one = {"shape": (6,), "storage": (6,)}
    cases: list[tuple[dict[str, Any], Array]] = [
        (one_by_one, data),
        ({"shape": (4, 3), "strides": (1, 1), "storage": (6,)}, np.lib.stride_tricks.sliding_window_view(data, 3)),
        ({"shape": (4, 6), "strides": (0, 1), "storage": (6,)}, np.broadcast_to(data, (4, 6))),
        ({"shape": (1,), "storage": (6,), "offset": 5}, data[5:]),
        ({"shape": (), "storage": (6,)}, data[0]),
        ({"shape": (6,), "strides": (-1,), "offset": 5, "storage": (6,)}, data[::-1]),
        ({"shape": (3,), "strides": (-2,), "offset": 4, "storage": (6,)}, data[4::-2]),
        ({"shape": (0, 3), "storage": (6,)}, data[:0].reshape(0, 3)),
        ({"shape": (1, 6), "strides": (2**62, 1), "storage": (6,)}, data.reshape(1, 6)),
        ({"shape": (1, 3, 1), "strides": (-(2**63), 2, 2**62), "storage": (6,)}, data[::2].reshape(1, 3, 1)),
    ]
    for layout, x in cases:
        made = Made()
        given = made.tensor(data, "float32", **layout)
        place = C.aclrtMalloc(256, 0)  # nothing is copied to it: the operator writes it
        made.places.append(place)
        made.handles.append(tensor(place, x.shape, "float32"))
        gelu(given, made.handles[-1])
        expected = anycann.gelu_backward_v2(x, x)
        assert not x.size or download(place, expected.nbytes) == expected.tobytes(), layout
        if layout is one_by_one:
            gelu(made.handles[-1], made.handles[-1])
            expected = anycann.gelu_backward_v2(expected, expected)
            assert download(place, expected.nbytes) == expected.tobytes()
        made.end()
    moved(data)
    part_by_part(data)
    spare_rows()


def moved(data: Array) -> None:
    """A repeatable executor whose addresses change, in a stream, with copies and fills in order."""
    stream, made = C.aclrtCreateStream(), Made()
    x, out = made.tensor(data, "float32"), made.tensor(data, "float32")
    other = [C.aclrtMalloc(data.nbytes, 0) for _ in range(2)]
    C.aclrtMemcpyAsync(other[0], data.nbytes, data[::-1].copy().ctypes.data, 0, TO_DEVICE, stream)
    C.aclrtMemcpyAsync(other[0], data.nbytes, made.places[0], data.nbytes, ON_DEVICE, stream)
    first, second = CALLS["aclnnGeluBackwardV2"]
    _, executor = first(x, x, "tanh", out)
    C.aclSetAclOpExecutorRepeatable(executor)
    second(0, 0, executor, stream)
    C.aclSetInputTensorAddr(executor, 1, x, other[0])
    C.aclSetOutputTensorAddr(executor, 0, out, other[1])
    second(0, 0, executor, stream)
    C.aclrtMemsetAsync(made.places[0], data.nbytes, 0, data.nbytes, stream)
    C.aclrtSynchronizeStream(stream)
    C.aclDestroyAclOpExecutor(executor)
    expected = anycann.gelu_backward_v2(data, data, "tanh").tobytes()
    assert [download(place, data.nbytes) for place in (made.places[1], other[1], made.places[0])] == [expected, expected, bytes(24)]
    for place in other:
        C.aclrtFree(place)
    made.end()
    C.aclrtDestroyStream(stream)


def part_by_part(data: Array) -> None:
    """One allocation for many tensors, written in pieces; numbers of unusual size that are meant."""
    place = C.aclrtMalloc(4 * data.nbytes, 0)
    for piece in range(8):
        C.aclrtMemcpy(place + 12 * piece, 12, data.ctypes.data + 12 * (piece % 2), 12, TO_DEVICE)
    handles = [tensor(place + data.nbytes * i, data.shape, "float32") for i in range(4)]
    gelu(handles[0], handles[3])
    tiny = np.array([1e-45, -1e-45, 1e-41], np.float32)
    C.aclrtMemcpy(place, 12, tiny.ctypes.data, 12, TO_DEVICE)
    gelu(handles[0], handles[1])
    assert len(download(place, 4 * data.nbytes)) == 96
    for handle in handles:
        C.aclDestroyTensor(handle)
    C.aclrtFree(place)


def spare_rows() -> None:
    """Buffers with room for more rows than there are: those that no index names are not read."""
    made = Made()
    grad, weights = made.tensor(np.ones((1, 3), np.float32), "float32"), made.tensor(np.ones((1, 2), np.float32), "float32")
    index, buffer, grads = made.tensor(np.array([2, 1], np.int32), "int32"), rows_of(made, 1, 2), rows_of(made)
    run("aclnnMoeTokenUnpermute", [buffer, index, weights, False, 0, grad], 0)
    run("aclnnMoeTokenPermuteGrad", [buffer, index, 2, False, grad], 0)
    run("aclnnMoeTokenUnpermuteGrad", [buffer, grad, index, weights, False, 0, grads, weights], 0)
    tokens = made.tensor(np.ones((2, 3), np.float32), "float32")
    run("aclnnMoeTokenUnpermuteGrad", [rows_of(made), tokens, index, 0, False, 0, grads, 0], 0)  # only the number of rows matters
    made.end()


def rows_of(made: Made, *written: int) -> int:
    """A tensor of four rows, some of which are written."""
    made.places.append(C.aclrtMalloc(48, 0))
    ones = np.ones(3, np.float32)
    for row in written:
        C.aclrtMemcpy(made.places[-1] + 12 * row, 12, ones.ctypes.data, 12, TO_DEVICE)
    made.handles.append(tensor(made.places[-1], (4, 3), "float32"))
    return made.handles[-1]


def gelu(x: int, out: int) -> None:
    run("aclnnGeluBackwardV2", [x, x, "none", out], 0)


def floats_in_an_index_tensor() -> None:
    made = Made()
    grad, indices, out = np.ones((2, 2), np.float32), np.array([0, 1], np.float32), np.zeros((1, 2), np.float32)
    values = [made.tensor(grad, "float32"), made.tensor(indices, "int32"), 2, False, made.tensor(out, "float32")]
    run("aclnnMoeTokenPermuteGrad", values, 0)
    made.end()


def index_out_of_range() -> None:
    made = Made()
    grad, indices, out = np.ones((2, 2), np.float32), np.array([0, 2, -1, 4], np.int32), np.zeros((2, 2), np.float32)
    values = [made.tensor(grad, "float32"), made.tensor(indices, "int32"), 2, False, made.tensor(out, "float32")]
    run("aclnnMoeTokenPermuteGrad", values, 0)
    made.end()


def integers_in_a_float_tensor() -> None:
    made = Made()
    gelu(made.tensor(np.array([1, -2, 0], np.int32), "float32"), made.tensor(np.zeros(3, np.float32), "float32"))
    made.end()


def integers_after_an_operator() -> None:
    """Memory that was an output and is filled again from the host."""
    made = Made()
    x, out = made.tensor(np.ones(3, np.float32), "float32"), made.tensor(np.ones(3, np.float32), "float32")
    gelu(x, out)
    C.aclrtMemcpy(made.places[1], 12, np.array([5, 6, 7], np.int32).ctypes.data, 12, TO_DEVICE)
    gelu(out, x)
    made.end()


def floats_in_an_integer_tensor() -> None:
    made = Made()
    values = [made.tensor(np.ones((2, 4), np.float32), "float32"), made.tensor(np.array([1, 0.5], np.float32), "int32"), 0, False]
    values += [made.tensor(np.ones((2, 4), np.float32), "float32"), made.tensor(np.zeros(2, np.int32), "int32")]
    run("aclnnMoeTokenPermute", values, 0)
    made.end()


def wide_elements() -> None:
    made = Made()
    data = np.arange(4, dtype=np.float32)
    gelu(made.tensor(data, "bfloat16"), made.tensor(np.zeros(4, np.float16), "bfloat16"))
    made.end()


def buffer_too_small() -> None:
    place = C.aclrtMalloc(16, 0)
    handle = tensor(place, (8,), "float32")
    refused(561103, lambda: CALLS["aclnnGeluBackwardV2"][0](handle, handle, "none", handle))
    C.aclDestroyTensor(handle)
    C.aclrtFree(place)


def copy_of_uninitialised_memory() -> None:
    place = C.aclrtMalloc(64, 0)
    C.aclrtMemset(place, 64, 0, 60)
    download(place, 60)
    download(place, 64)
    C.aclrtFree(place)


def copy_on_the_device_of_uninitialised_memory() -> None:
    places = [C.aclrtMalloc(64, 0) for _ in range(2)]
    C.aclrtMemcpy(places[0], 64, places[1], 64, ON_DEVICE)
    download(places[0], 64)
    for place in places:
        C.aclrtFree(place)


def uninitialised_input() -> None:
    made = Made()
    data = np.ones(6, np.float32)
    x = made.tensor(data[:5], "float32", shape=(2, 2), storage=(5,))
    place = C.aclrtMalloc(24, 0)
    C.aclrtMemcpy(place, 24, data.ctypes.data, 20, TO_DEVICE)
    handle = tensor(place, (2, 3), "float32")
    gelu(handle, made.tensor(data.reshape(2, 3), "float32"))
    gelu(x, made.tensor(data[:4].reshape(2, 2).copy(), "float32"))
    C.aclDestroyTensor(handle)
    C.aclrtFree(place)
    made.end()


def uninitialised_row() -> None:
    made = Made()
    index, weights = made.tensor(np.array([0, 2], np.int32), "int32"), made.tensor(np.ones((1, 2), np.float32), "float32")
    run("aclnnMoeTokenUnpermute", [rows_of(made, 0, 1), index, weights, False, 0, made.tensor(np.ones((1, 3), np.float32), "float32")], 0)
    made.end()


def workspace_in_an_operand() -> None:
    made = Made()
    data = np.ones(100000, np.float32)
    x, out = made.tensor(data, "float32"), made.tensor(np.zeros((), np.float32), "float32")
    first, second = CALLS["aclnnSmoothL1Loss"]
    size, executor = first(x, x, 2, 1.0, out)
    second(made.places[0] + 4096, size, executor, 0)
    made.end()


def use_after_free() -> None:
    place = upload(np.ones(4, np.float32))
    C.aclrtFree(place)
    host = np.empty(4, np.float32)
    refused(107000, lambda: C.aclrtMemcpy(host.ctypes.data, 16, place, 16, TO_HOST))


def host_memory_after_free() -> None:
    host, place = C.aclrtMallocHost(16), upload(np.ones(4, np.float32))
    C.aclrtFreeHost(host)
    refused(107000, lambda: C.aclrtMemcpy(host, 16, place, 16, TO_HOST))
    C.aclrtFree(place)


def host_memory_freed_wrongly() -> None:
    host = C.aclrtMallocHost(16)
    refused(107000, lambda: C.aclrtFreeHost(host + 8))
    C.aclrtFreeHost(host)
    refused(107000, lambda: C.aclrtFreeHost(host))


def host_memory_past_the_end() -> None:
    host, place = C.aclrtMallocHost(16), C.aclrtMalloc(64, 0)
    refused(107000, lambda: C.aclrtMemcpy(place, 64, host, 20, TO_DEVICE))
    refused(107000, lambda: C.aclrtMemset(host + 8, 16, 0, 9))
    C.aclrtFree(place)
    C.aclrtFreeHost(host)


def operator_after_free() -> None:
    made = Made()
    x, out = made.tensor(np.ones(4, np.float32), "float32"), made.tensor(np.ones(4, np.float32), "float32")
    _, executor = CALLS["aclnnGeluBackwardV2"][0](x, x, "none", out)
    C.aclrtFree(made.places.pop())
    refused(361001, lambda: CALLS["aclnnGeluBackwardV2"][1](0, 0, executor, 0))
    C.aclDestroyAclOpExecutor(executor)
    refused(561103, lambda: CALLS["aclnnGeluBackwardV2"][0](x, x, "none", out))
    made.end()


def freed_twice() -> None:
    place = upload(np.ones(4, np.float32))
    refused(107000, lambda: C.aclrtFree(place + 4))
    C.aclrtFree(place)
    refused(107000, lambda: C.aclrtFree(place))


def past_the_end() -> None:
    place = C.aclrtMalloc(10, 0)
    refused(107000, lambda: C.aclrtMemset(place, 12, 0, 12))
    C.aclrtFree(place)


def use_after_destroy() -> None:
    place = C.aclrtMalloc(10, 0)
    handle = tensor(place, (1,), "float32")
    C.aclDestroyTensor(handle)
    refused(161002, lambda: C.aclGetViewShape(handle))
    C.aclrtFree(place)


def refused(code: int, call: Callable[[], object]) -> None:
    with pytest.raises(anycann.AclnnError) as caught:
        call()
    assert caught.value.status == code


MISTAKES = (
    floats_in_an_index_tensor, index_out_of_range, integers_in_a_float_tensor, integers_after_an_operator, floats_in_an_integer_tensor,
    wide_elements, buffer_too_small, copy_of_uninitialised_memory, copy_on_the_device_of_uninitialised_memory, uninitialised_input,
    uninitialised_row, workspace_in_an_operand, use_after_free, host_memory_after_free, host_memory_freed_wrongly,
    host_memory_past_the_end, operator_after_free, freed_twice, past_the_end, use_after_destroy,
)  # fmt: skip


def mistakes() -> None:
    """Each of them, and which findings it made."""
    assert DEVICE.watch is not None
    report = DEVICE.watch.report
    for mistake in MISTAKES:
        before = report.count
        mistake()
        print(json.dumps([mistake.__name__, before, report.count]), flush=True)


def kernels() -> None:
    """Code of the program that runs as the device's, with one block named and with none."""
    places = [C.aclrtMalloc(64, 0) for _ in range(3)]
    job = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda address: ctypes.memset(address, 7, 64) and 0)
    job(places[0])
    assert C.anycann_device_block(places[0]) == (places[0], 64)
    download(places[0], 64)
    stream = C.aclrtCreateStream()
    C.anycann_stream_enqueue(stream, ctypes.cast(job, ctypes.c_void_p).value, places[1])
    C.aclrtSynchronizeStream(stream)
    assert download(places[1], 64) == bytes([7] * 64)
    C.aclrtDestroyStream(stream)
    places.append(C.aclrtMalloc(64, 0))
    download(places[3], 64)
    for place in places:
        C.aclrtFree(place)


def left() -> None:
    """Objects of every kind that are not destroyed, and one that is."""
    place, host = C.aclrtMalloc(48, 0), C.aclrtMallocHost(32)
    assert place
    assert host
    upload(np.ones(8, np.float32))
    handles = [tensor(place, (2,), "float32") for _ in range(3)]
    C.aclCreateTensorList((handles[2],))
    value = ctypes.c_float(1)
    C.aclCreateScalarList((C.aclCreateScalar(ctypes.addressof(value), 0),))
    C.aclCreateScalar(ctypes.addressof(value), 0)
    C.aclCreateIntArray((1, 2))
    C.aclCreateFloatArray((1.0,))
    C.aclCreateBoolArray((True,))
    C.aclCreateDataBuffer(place, 48)
    C.aclrtCreateStream()
    C.aclrtCreateEvent()
    C.aclrtDestroyEvent(C.aclrtCreateEvent())
    C.aclrtCreateContext(0)
    first, second = CALLS["aclnnGeluBackwardV2"]
    C.aclrtMemset(place, 48, 0, 48)
    first(handles[0], handles[0], "none", handles[1])
    _, executor = first(handles[0], handles[0], "none", handles[0])
    C.aclSetAclOpExecutorRepeatable(executor)
    second(0, 0, executor, 0)
    freed = upload(np.ones(2, np.float32))
    handles.append(tensor(freed, (2,), "float32"))
    _, executor = first(handles[0], handles[0], "none", handles[3])
    C.aclDestroyTensor(handles.pop())
    C.aclrtFree(freed)
    refused(361001, lambda: second(0, 0, executor, 0))


if __name__ == "__main__":
    C.aclInit(None)
    C.aclrtSetDevice(0)
    {"operators": operators, "layouts": layouts, "kernels": kernels, "mistakes": mistakes, "left": left}[sys.argv[1]](*sys.argv[2:])
    C.aclrtResetDevice(0)
    C.aclFinalize()
