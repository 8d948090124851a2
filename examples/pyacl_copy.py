"""pyACL from Python: memory, a stream, copies both ways, events.

anycann run examples/pyacl_copy.py
"""

import numpy as np

import acl

# pyACL has no names for these numbers.
ACL_MEM_MALLOC_HUGE_FIRST = 0
ACL_MEMCPY_HOST_TO_DEVICE = 1
ACL_MEMCPY_DEVICE_TO_HOST = 2
ACL_MEMCPY_DEVICE_TO_DEVICE = 3
NPY_FLOAT = 11


def need(status: int, what: str) -> None:
    """Every call gives a status last."""
    if status:
        raise SystemExit(f"{what} gave {status}: {acl.get_recent_err_msg()}")


need(acl.init(), "acl.init")
need(acl.rt.set_device(0), "acl.rt.set_device")
stream, status = acl.rt.create_stream()
need(status, "acl.rt.create_stream")
print("device of", acl.get_soc_name())

sent = np.arange(6, dtype=np.float32).reshape(2, 3)
size = sent.nbytes
first, status = acl.rt.malloc(size, ACL_MEM_MALLOC_HUGE_FIRST)
need(status, "acl.rt.malloc")
second, status = acl.rt.malloc(size, ACL_MEM_MALLOC_HUGE_FIRST)
need(status, "acl.rt.malloc")

packed = sent.tobytes()
need(acl.rt.memcpy(first, size, acl.util.bytes_to_ptr(packed), size, ACL_MEMCPY_HOST_TO_DEVICE), "acl.rt.memcpy")
need(acl.rt.memcpy_async(second, size, first, size, ACL_MEMCPY_DEVICE_TO_DEVICE, stream), "acl.rt.memcpy_async")
need(acl.rt.memset_async(first, size, 0, 8, stream), "acl.rt.memset_async")  # two elements of the first become 0
need(acl.rt.synchronize_stream(stream), "acl.rt.synchronize_stream")

for name, address in (("first", first), ("second", second)):
    host, status = acl.rt.malloc_host(size)
    need(status, "acl.rt.malloc_host")
    need(acl.rt.memcpy(host, size, address, size, ACL_MEMCPY_DEVICE_TO_HOST), "acl.rt.memcpy")
    print(name, acl.util.ptr_to_numpy(host, (2, 3), NPY_FLOAT).tolist())
    need(acl.rt.free_host(host), "acl.rt.free_host")
    need(acl.rt.free(address), "acl.rt.free")

print("freeing twice gives", acl.rt.free(first))
need(acl.rt.destroy_stream(stream), "acl.rt.destroy_stream")
need(acl.rt.reset_device(0), "acl.rt.reset_device")
need(acl.finalize(), "acl.finalize")
