"""Memory calls: allocate, free, copy, set; at once or in the order of a stream."""

from anycann.device.calls import call, need
from anycann.device.contexts import need_context
from anycann.device.memory import DEVICE, HOST, check_copy, check_fill, fill, move
from anycann.device.queues import enqueue, stream_of, wait_for_all
from anycann.errors import AclnnError

__all__: list[str] = []

POLICIES = 6  # values of aclrtMemMallocPolicy
ATTRIBUTES = 2  # values of aclrtMemAttr
IN_PLACE = 1 << 16  # bytes that are copied in less time than another thread needs to wake


def _need_size(size: int, api: str) -> None:
    if not size:
        raise AclnnError(100000, api, "size must be at least 1; got 0. Allocate only what is needed.")


def _allocate(size: int, policy: int, api: str) -> int:
    _need_size(size, api)
    if not 0 <= policy < POLICIES:
        mend = "Use ACL_MEM_MALLOC_HUGE_FIRST."
        raise AclnnError(100000, api, f"policy must be a value of aclrtMemMallocPolicy, 0 to {POLICIES - 1}; got {policy}. {mend}")
    need_context(api)
    return DEVICE.allocate(size, api).address


@call
def aclrtMalloc(size: int, policy: int) -> int:
    return _allocate(size, policy, "aclrtMalloc")


@call
def aclrtMallocAlign32(size: int, policy: int) -> int:
    return _allocate(size, policy, "aclrtMallocAlign32")


@call
def aclrtFree(devPtr: int) -> None:
    need(devPtr, "devPtr", "aclrtFree")
    wait_for_all()
    DEVICE.release(devPtr, "devPtr", "aclrtFree")


@call
def aclrtMallocHost(size: int) -> int:
    _need_size(size, "aclrtMallocHost")
    need_context("aclrtMallocHost")
    return HOST.allocate(size, "aclrtMallocHost").address


@call
def aclrtFreeHost(hostPtr: int) -> None:
    need(hostPtr, "hostPtr", "aclrtFreeHost")
    wait_for_all()
    if DEVICE.watch is not None:
        DEVICE.watch.freeing_pinned(hostPtr, "aclrtFreeHost")
    HOST.release(hostPtr, "hostPtr", "aclrtFreeHost")


@call
def aclrtGetMemInfo(attr: int) -> tuple[int, int]:
    api = "aclrtGetMemInfo"
    if not 0 <= attr < ATTRIBUTES:
        raise AclnnError(100000, api, f"attr must be a value of aclrtMemAttr, 0 to {ATTRIBUTES - 1}; got {attr}. Use ACL_HBM_MEM.")
    need_context(api)
    return DEVICE.source.left(DEVICE.used), DEVICE.source.capacity()


@call
def aclrtMemcpy(dst: int, destMax: int, src: int, count: int, kind: int) -> None:
    places = check_copy("aclrtMemcpy", dst, destMax, src, count, kind)
    need_context("aclrtMemcpy")
    enqueue(None, lambda: move("aclrtMemcpy", places, count), small=True)


@call
def aclrtMemcpyAsync(dst: int, destMax: int, src: int, count: int, kind: int, stream: int) -> None:
    api = "aclrtMemcpyAsync"
    check_copy(api, dst, destMax, src, count, kind)
    queue = stream_of(stream, api)
    need_context(api)
    enqueue(queue, lambda: move(api, check_copy(api, dst, destMax, src, count, kind), count), small=count <= IN_PLACE)


@call
def aclrtMemset(devPtr: int, maxCount: int, value: int, count: int) -> None:
    place = check_fill("aclrtMemset", devPtr, maxCount, count)
    need_context("aclrtMemset")
    enqueue(None, lambda: fill(place, value, count), small=True)


@call
def aclrtMemsetAsync(devPtr: int, maxCount: int, value: int, count: int, stream: int) -> None:
    api = "aclrtMemsetAsync"
    check_fill(api, devPtr, maxCount, count)
    queue = stream_of(stream, api)
    need_context(api)
    enqueue(queue, lambda: fill(check_fill(api, devPtr, maxCount, count), value, count), small=count <= IN_PLACE)
