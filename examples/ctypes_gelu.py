"""The C libraries from Python with ctypes alone: an operator, and a shape in memory that the library's own operator delete[] frees.

anycann run examples/ctypes_gelu.py
"""

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int32, c_int64, c_size_t, c_uint64, c_void_p

runtime = ctypes.CDLL("libascendcl.so")
base = ctypes.CDLL("libnnopbase.so")
operators = ctypes.CDLL("libopapi.so")

runtime.aclGetRecentErrMsg.restype = c_char_p
runtime.aclrtMalloc.argtypes = [POINTER(c_void_p), c_size_t, c_int32]
runtime.aclrtMemcpy.argtypes = [c_void_p, c_size_t, c_void_p, c_size_t, c_int32]
runtime.aclrtFree.argtypes = [c_void_p]
runtime.aclrtSynchronizeStream.argtypes = [c_void_p]
base.aclCreateTensor.restype = c_void_p
base.aclCreateTensor.argtypes = [
    POINTER(c_int64), c_uint64, c_int32, POINTER(c_int64), c_int64, c_int32, POINTER(c_int64), c_uint64, c_void_p,
]  # fmt: skip
base.aclDestroyTensor.argtypes = [c_void_p]
base.aclGetViewShape.argtypes = [c_void_p, POINTER(POINTER(c_int64)), POINTER(c_uint64)]
phase_one = operators.aclnnGeluBackwardV2GetWorkspaceSize
phase_one.argtypes = [c_void_p, c_void_p, c_char_p, c_void_p, POINTER(c_uint64), POINTER(c_void_p)]
phase_two = operators.aclnnGeluBackwardV2
phase_two.argtypes = [c_void_p, c_uint64, c_void_p, c_void_p]
delete_array = base._ZdaPv  # operator delete[](void*)
delete_array.argtypes, delete_array.restype = [c_void_p], None

ACL_FLOAT, ACL_FORMAT_ND, TO_DEVICE, TO_HOST = 0, 2, 1, 2


def need(status: int, what: str) -> None:
    """Stop with the library's own words."""
    if status:
        raise SystemExit(f"{what} gave {status}: {(runtime.aclGetRecentErrMsg() or b'').decode()}")


def tensor(values: list[float], *shape: int) -> tuple[int, c_void_p]:
    """The handle of a tensor that holds the values, and its memory."""
    host = (ctypes.c_float * len(values))(*values)
    memory, dims = c_void_p(), (c_int64 * len(shape))(*shape)
    need(runtime.aclrtMalloc(byref(memory), ctypes.sizeof(host), 0), "aclrtMalloc")
    need(runtime.aclrtMemcpy(memory, ctypes.sizeof(host), host, ctypes.sizeof(host), TO_DEVICE), "aclrtMemcpy")
    return base.aclCreateTensor(dims, len(shape), ACL_FLOAT, None, 0, ACL_FORMAT_ND, dims, len(shape), memory), memory


need(runtime.aclInit(None), "aclInit")
need(runtime.aclrtSetDevice(0), "aclrtSetDevice")
x, x_memory = tensor([-1.0, 0.0, 1.0, 2.0, 3.0, 4.0], 2, 3)
ones, ones_memory = tensor([1.0] * 6, 2, 3)
gradient, gradient_memory = tensor([0.0] * 6, 2, 3)

shape, rank = POINTER(c_int64)(), c_uint64()
need(base.aclGetViewShape(x, byref(shape), byref(rank)), "aclGetViewShape")
print("shape", [shape[i] for i in range(rank.value)])
delete_array(shape)

size, executor = c_uint64(), c_void_p()
need(phase_one(ones, x, b"tanh", gradient, byref(size), byref(executor)), "aclnnGeluBackwardV2GetWorkspaceSize")
workspace = c_void_p()
if size.value:
    need(runtime.aclrtMalloc(byref(workspace), size.value, 0), "aclrtMalloc")
need(phase_two(workspace, size.value, executor, None), "aclnnGeluBackwardV2")
need(runtime.aclrtSynchronizeStream(None), "aclrtSynchronizeStream")
result = (ctypes.c_float * 6)()
need(runtime.aclrtMemcpy(result, ctypes.sizeof(result), gradient_memory, ctypes.sizeof(result), TO_HOST), "aclrtMemcpy")
print("gradient", [f"{value:.6f}" for value in result])

for handle in (x, ones, gradient):
    need(base.aclDestroyTensor(handle), "aclDestroyTensor")
for memory in (x_memory, ones_memory, gradient_memory):
    need(runtime.aclrtFree(memory), "aclrtFree")
need(runtime.aclrtResetDevice(0), "aclrtResetDevice")
need(runtime.aclFinalize(), "aclFinalize")
