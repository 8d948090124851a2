"""acl.rt: devices, contexts, streams, events and memory."""

from typing import TYPE_CHECKING, Any

from anycann.acl._functions import functions

__all__: list[str] = []

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the functions, made below


_FUNCTIONS = {
    "set_device": ("aclrtSetDevice", 0),
    "reset_device": ("aclrtResetDevice", 0),
    "reset_device_force": ("aclrtResetDeviceForce", 0),
    "get_device": ("aclrtGetDevice", 1),
    "get_device_count": ("aclrtGetDeviceCount", 1),
    "get_run_mode": ("aclrtGetRunMode", 1),
    "get_version": ("aclrtGetVersion", 3),
    "synchronize_device": ("aclrtSynchronizeDevice", 0),
    "create_context": ("aclrtCreateContext", 1),
    "destroy_context": ("aclrtDestroyContext", 0),
    "set_context": ("aclrtSetCurrentContext", 0),
    "get_context": ("aclrtGetCurrentContext", 1),
    "create_stream": ("aclrtCreateStream", 1),
    "create_stream_with_config": ("aclrtCreateStreamWithConfig", 1),
    "destroy_stream": ("aclrtDestroyStream", 0),
    "destroy_stream_force": ("aclrtDestroyStreamForce", 0),
    "synchronize_stream": ("aclrtSynchronizeStream", 0),
    "synchronize_stream_with_timeout": ("aclrtSynchronizeStreamWithTimeout", 0),
    "stream_query": ("aclrtStreamQuery", 1),
    "stream_wait_event": ("aclrtStreamWaitEvent", 0),
    "create_event": ("aclrtCreateEvent", 1),
    "create_event_with_flag": ("aclrtCreateEventWithFlag", 1),
    "destroy_event": ("aclrtDestroyEvent", 0),
    "record_event": ("aclrtRecordEvent", 0),
    "reset_event": ("aclrtResetEvent", 0),
    "synchronize_event": ("aclrtSynchronizeEvent", 0),
    "query_event_status": ("aclrtQueryEventStatus", 1),
    "event_elapsed_time": ("aclrtEventElapsedTime", 1),
    "malloc": ("aclrtMalloc", 1),
    "malloc_align32": ("aclrtMallocAlign32", 1),
    "free": ("aclrtFree", 0),
    "malloc_host": ("aclrtMallocHost", 1),
    "free_host": ("aclrtFreeHost", 0),
    "memcpy": ("aclrtMemcpy", 0),
    "memcpy_async": ("aclrtMemcpyAsync", 0),
    "memset": ("aclrtMemset", 0),
    "memset_async": ("aclrtMemsetAsync", 0),
    "get_mem_info": ("aclrtGetMemInfo", 2),
}

globals().update(functions(_FUNCTIONS, __name__))
__all__ += _FUNCTIONS
