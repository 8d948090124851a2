"""pyACL: every function of the C interface in its conventions, and between Python objects and addresses."""

import ctypes
import importlib
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin

import numpy as np
import pytest

import anycann
from anycann import acl, device

CONVENTIONS = [(acl, name) for name in acl.__all__ if name not in ("rt", "util")] + [(acl.rt, name) for name in acl.rt.__all__]
by_function = pytest.mark.parametrize(("module", "name"), CONVENTIONS, ids=lambda value: value if isinstance(value, str) else "")
NAMED_BY_THE_DOCUMENTATION = {
    "": "init finalize get_soc_name get_recent_err_msg create_data_buffer destroy_data_buffer get_data_buffer_addr",
    "rt": "set_device reset_device get_device get_device_count get_run_mode create_context set_context get_context destroy_context "
    "create_stream destroy_stream synchronize_stream malloc free malloc_host free_host memcpy memcpy_async memset memset_async "
    "get_mem_info create_event destroy_event record_event synchronize_event event_elapsed_time stream_wait_event",
    "util": "bytes_to_ptr ptr_to_bytes numpy_to_ptr ptr_to_numpy numpy_contiguous_to_ptr",
}
WITHOUT_STATUS = {
    "get_soc_name",
    "get_recent_err_msg",
    "data_type_size",
    "float16_to_float",
    "float_to_float16",
    "create_data_buffer",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = device.living()
    assert acl.rt.set_device(0) == 0
    acl.get_recent_err_msg()
    yield
    acl.rt.set_device(0)
    acl.rt.reset_device_force(0)
    assert device.living() == before


def c_name(function: Any) -> str:
    name: str = function.__doc__.split()[0]
    return name


def test_the_functions_of_the_documentation_are_there() -> None:
    for module, names in NAMED_BY_THE_DOCUMENTATION.items():
        found = getattr(acl, module) if module else acl
        assert all(callable(getattr(found, name)) for name in names.split())
        assert set(names.split()) <= set(found.__all__)
    assert not [name for module in (acl, acl.rt, acl.util) for name in vars(module) if name.startswith("ACL")]


def test_every_function_of_the_runtime_is_there_once() -> None:
    made = [c_name(getattr(module, name)) for module, name in CONVENTIONS]
    assert len(set(made)) == len(made)
    assert {name for name in device.CALLS if name.startswith("aclrt")} == {name for name in made if name.startswith("aclrt")}


@by_function
def test_outputs_come_first_and_the_status_last(module: Any, name: str) -> None:
    function = getattr(module, name)
    call = device.CALLS[c_name(function)]
    returned = inspect.signature(call).return_annotation
    outputs = 0 if returned is None else len(get_args(returned)) if get_origin(returned) is tuple else 1
    found = function(*[None if one.default is None else 0 for one in inspect.signature(function).parameters.values()])
    if name in WITHOUT_STATUS:
        assert not isinstance(found, tuple)
    elif outputs:
        assert isinstance(found, tuple)
        assert len(found) == outputs + 1
        assert isinstance(found[-1], int)
    else:
        assert isinstance(found, int)
    clean_up(name, found)


def clean_up(name: str, found: Any) -> None:
    """What a call with zeros has made."""
    destroyers = {
        "create_stream": acl.rt.destroy_stream,
        "create_stream_with_config": acl.rt.destroy_stream,
        "create_event": acl.rt.destroy_event,
        "create_event_with_flag": acl.rt.destroy_event,
        "create_context": acl.rt.destroy_context,
    }
    if name in destroyers:
        assert destroyers[name](found[0]) == 0
    if name == "create_data_buffer":
        assert acl.destroy_data_buffer(found) == 0
    if name == "init":
        assert acl.finalize() == 0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: acl.rt.memcpy(1, 16, np.zeros(4), 16, 1),
            TypeError,
            "acl.rt.memcpy: src must be an int; got ndarray: pass acl.util.numpy_to_ptr(array) for the address of its memory",
        ),
        (lambda: acl.rt.free(None), TypeError, "acl.rt.free: dev_ptr must be an int; got NoneType"),
        (lambda: acl.rt.memcpy(1, 16), TypeError, "acl.rt.memcpy: missing a required argument: 'src'"),
        (
            lambda: acl.rt.set_device(2**40),
            OverflowError,
            "acl.rt.set_device: device_id: 1099511627776 does not fit into the 32 bits of an int",
        ),
        (lambda: acl.init(3), TypeError, "acl.init: config_path must be a str, the path of a file, or None; got int"),
        (lambda: acl.float_to_float16("x"), TypeError, "acl.float_to_float16: value must be a number; got str"),
    ],
)
def test_arguments_of_other_types_are_named(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == text


@by_function
def test_arguments_are_counted_and_are_numbers(module: Any, name: str) -> None:
    function = getattr(module, name)
    parameters = list(inspect.signature(function).parameters.values())
    with pytest.raises(TypeError):
        function(*[0] * (len(parameters) + 1))
    if parameters:
        with pytest.raises(TypeError):
            function(*[object()] * len(parameters))
    needed = [one for one in parameters if one.default is inspect.Parameter.empty]
    if needed:
        with pytest.raises(TypeError):
            function(*[0] * (len(needed) - 1))
    assert acl.get_recent_err_msg() is None


def test_a_script() -> None:
    """Allocate, copy there, copy back, free: as samples do."""
    assert acl.init() == 0
    context, ret = acl.rt.create_context(0)
    assert ret == 0
    stream, ret = acl.rt.create_stream()
    assert ret == 0
    assert acl.rt.get_run_mode() == (1, 0)
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    place, ret = acl.rt.malloc(data.nbytes, 0)
    assert ret == 0
    assert place % 64 == 0
    host, ret = acl.rt.malloc_host(data.nbytes)
    assert ret == 0
    assert acl.rt.memcpy(place, data.nbytes, acl.util.numpy_to_ptr(data), data.nbytes, 1) == 0
    assert acl.rt.memcpy_async(host, data.nbytes, place, data.nbytes, 2, stream) == 0
    assert acl.rt.synchronize_stream(stream) == 0
    assert np.array_equal(acl.util.ptr_to_numpy(host, (3, 4), 11), data)
    assert acl.util.ptr_to_bytes(host, data.nbytes) == data.tobytes()
    assert acl.rt.memset(place, data.nbytes, 1, 4) == 0
    assert acl.rt.memcpy(host, 4, place, 4, 2) == 0
    assert acl.util.ptr_to_bytes(host, 4) == b"\1\1\1\1"
    assert [acl.rt.free(place), acl.rt.free_host(host), acl.rt.destroy_stream(stream), acl.rt.destroy_context(context)] == [0] * 4
    assert acl.finalize() == 0


def test_outputs_are_0_where_a_call_is_refused_and_the_text_is_kept() -> None:
    assert acl.rt.malloc(0, 0) == (0, 100000)
    assert acl.rt.get_mem_info(7) == (0, 0, 100000)
    assert acl.rt.event_elapsed_time(1, 2) == (0, 107017)
    assert acl.rt.free(12345) == 107000
    assert acl.get_data_buffer_addr(99) == 0
    lines = acl.get_recent_err_msg().split("\n")
    assert [line.split(":")[0] for line in lines] == [
        "aclGetDataBufferAddr",
        "aclrtFree",
        "aclrtEventElapsedTime",
        "aclrtGetMemInfo",
        "aclrtMalloc",
    ]
    assert all("got" in line for line in lines)
    assert acl.get_recent_err_msg() is None


def test_texts_are_those_of_the_thread() -> None:
    found: list[Any] = []

    def run() -> None:
        found.append(acl.rt.malloc(8, 0))
        found.append(acl.get_recent_err_msg())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert found[0] == (0, 107002)
    assert "aclrtSetDevice" in found[1]
    assert acl.get_recent_err_msg() is None


def test_our_own_faults_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> int:
        raise ZeroDivisionError("a fault of ours")

    from anycann.acl import _functions

    monkeypatch.setitem(device.CALLS, "aclrtGetDevice", broken)
    made = _functions.functions({"get_device": ("aclrtGetDevice", 1), "value": ("aclrtGetDevice", _functions.VALUE)}, "test")
    assert made["get_device"]() == (0, 507000)
    printed = capsys.readouterr().err
    assert "Traceback" in printed
    assert "ZeroDivisionError: a fault of ours" in printed
    assert "aclrtGetDevice: anycann itself failed" in acl.get_recent_err_msg()
    assert made["value"]() == 0


def test_numbers_are_taken_as_c_takes_them() -> None:
    assert acl.rt.malloc(-1, 0) == (0, 207001)
    assert acl.rt.free(-1) == 107000
    assert f"{2**64 - 1:#x}" in acl.get_recent_err_msg()
    assert acl.rt.free(np.uint64(8)) == 107000
    assert acl.rt.set_device(-1) == 107001
    for too_large in (2**31, -(2**31) - 1):
        with pytest.raises(OverflowError, match="32 bits"):
            acl.rt.set_device(too_large)
    with pytest.raises(TypeError):
        acl.rt.malloc(8.0, 0)
    with pytest.raises(TypeError):
        acl.init(5)
    assert acl.float_to_float16(1) == 0x3C00
    assert acl.float16_to_float(0x7C00) == 65536.0


def test_bytes_and_addresses() -> None:
    for data in (b"", b"x", bytes(range(256))):
        assert acl.util.ptr_to_bytes(acl.util.bytes_to_ptr(data), len(data)) == data
    with pytest.raises(TypeError, match="bytes"):
        acl.util.bytes_to_ptr("text")
    with pytest.raises(TypeError, match="bytes"):
        acl.util.bytes_to_ptr(bytearray(3))


def test_arrays_and_addresses() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert acl.util.numpy_to_ptr(array) == acl.util.numpy_contiguous_to_ptr(array) == array.ctypes.data
    assert acl.util.numpy_to_ptr(array[:, 1:]) == array.ctypes.data + 2
    with pytest.raises(ValueError, match="ascontiguousarray"):
        acl.util.numpy_contiguous_to_ptr(array.T)
    for function in (acl.util.numpy_to_ptr, acl.util.numpy_contiguous_to_ptr):
        with pytest.raises(TypeError, match="NumPy"):
            function([1, 2])
    same = acl.util.ptr_to_numpy(array.ctypes.data, (2, 3), 3)
    same[0, 0] = 77
    assert array[0, 0] == 77
    with pytest.raises(ValueError, match="number of a NumPy type"):
        acl.util.ptr_to_numpy(array.ctypes.data, (1,), 17)


@pytest.mark.parametrize("letter", "?bBhHiIlLqQefdFD")
def test_every_type_number(letter: str) -> None:
    array = np.arange(5).astype(letter)
    found = acl.util.ptr_to_numpy(acl.util.numpy_to_ptr(array), array.shape, array.dtype.num)
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


def test_addresses_that_python_cannot_read_are_refused() -> None:
    place, _ = acl.rt.malloc(64, 0)
    for read in (lambda ptr: acl.util.ptr_to_bytes(ptr, 4), lambda ptr: acl.util.ptr_to_numpy(ptr, (1,), 11)):
        for ptr, word in ((place, "acl.rt.memcpy"), (0, "readable"), (8, "readable"), (2**64 - 2, "readable"), (-1, "readable")):
            with pytest.raises(anycann.AclnnError, match=word) as caught:
                read(ptr)
            assert caught.value.status == 107000
    with pytest.raises(anycann.AclnnError, match="got"):
        acl.util.ptr_to_bytes(place, -1)
    acl.rt.free(place)


def test_memory_that_cannot_be_written_makes_arrays_that_cannot_be() -> None:
    import mmap

    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    place = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    found = acl.util.ptr_to_numpy(place, (4,), 1)
    assert not found.flags.writeable
    assert found.tolist() == [0] * 4
    libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(mmap.PAGESIZE))


def test_importing_is_light_and_modules_are_found() -> None:
    assert importlib.import_module("anycann.acl.rt") is acl.rt
    assert importlib.import_module("anycann.acl.util") is acl.util
    program = "import sys; from anycann import acl; acl.rt.set_device(0); print(not {'numba', 'torch', 'cffi'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout, done.stderr) == ("True\n", "")


WITH_C = """
import ctypes
import numpy as np
from anycann import acl, cabi
libopapi = ctypes.CDLL(str(cabi.home() / "lib64" / "libopapi.so"))
pointer, size_t, i64 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int64
libopapi.aclCreateTensor.restype = pointer
libopapi.aclCreateTensor.argtypes = [pointer, size_t, ctypes.c_int, pointer, i64, ctypes.c_int, pointer, size_t, pointer]
libopapi.aclnnGeluBackwardV2GetWorkspaceSize.argtypes = [pointer, pointer, ctypes.c_char_p, pointer, pointer, pointer]
libopapi.aclnnGeluBackwardV2.argtypes = [pointer, size_t, pointer, pointer]
libopapi.aclrtSynchronizeStream.argtypes = [pointer]
assert acl.init() == 0 and acl.rt.set_device(0) == 0
stream, _ = acl.rt.create_stream()
x = np.linspace(-2, 2, 8, dtype=np.float32)
grad = np.ones_like(x)
out = np.empty_like(x)
shape = (ctypes.c_int64 * 1)(8)
places = [acl.rt.malloc(32, 0)[0] for _ in range(3)]
for place, array in zip(places, (grad, x)):
    assert acl.rt.memcpy(place, 32, acl.util.numpy_to_ptr(array), 32, 1) == 0
tensors = [libopapi.aclCreateTensor(shape, 1, 0, None, 0, 2, shape, 1, place) for place in places]
needed, executor = ctypes.c_uint64(), ctypes.c_void_p()
ret = libopapi.aclnnGeluBackwardV2GetWorkspaceSize(*tensors[:2], b"none", tensors[2], ctypes.byref(needed), ctypes.byref(executor))
assert ret == 0, acl.get_recent_err_msg()
assert libopapi.aclnnGeluBackwardV2(None, needed, executor, stream) == 0
assert libopapi.aclrtSynchronizeStream(stream) == 0
assert acl.rt.memcpy(acl.util.numpy_to_ptr(out), 32, places[2], 32, 2) == 0
import anycann
assert np.array_equal(out, anycann.gelu_backward_v2(grad, x))
assert libopapi.aclnnGeluBackwardV2GetWorkspaceSize(None, None, b"none", None, ctypes.byref(needed), ctypes.byref(executor)) == 161001
assert "gradOutput" in acl.get_recent_err_msg()
assert libopapi.aclrtFree(pointer(places[0])) == 0 and acl.rt.free(places[0]) == 107000
print("the same handles, streams, memory and texts")
"""


def test_ctypes_on_libopapi_uses_the_same_handles_and_memory() -> None:
    done = subprocess.run([sys.executable, "-c", WITH_C], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stderr, done.stdout) == ("", "the same handles, streams, memory and texts\n")


def test_statuses_are_the_same_where_texts_cannot_be_written() -> None:
    """A refusal is explained on a standard error stream that is full: it raised OSError, or gave 507000."""
    program = "from anycann import acl; print(acl.init(), acl.rt.set_device(0), acl.rt.malloc(0, 0), acl.rt.synchronize_stream(7))"
    settings = {**os.environ, "ANYCANN_EXPLAIN": "1"}
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, text=True, env=settings, check=False)
    assert (done.returncode, done.stdout) == (0, "0 0 (0, 100000) 107017\n")
