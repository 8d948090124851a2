"""pyACL: the runtime interface for Python scripts, over the simulated device. `import acl` in scripts, as `anycann run` provides it.

A C function aclrtFooBar(out, in) is `out, ret = acl.rt.foo_bar(in)`: outputs first and 0 on errors, the status last, and alone where
there are no outputs. Handles and addresses are ints, null is 0. Scripts define the constants ACL_* themselves. Operators are reached
with ctypes on libopapi: handles, streams and memory are the same.

>>> from anycann import acl
>>> acl.init(), acl.rt.set_device(0)
(0, 0)
>>> place, ret = acl.rt.malloc(16, 0)
>>> acl.rt.memcpy(place, 16, acl.util.bytes_to_ptr(b"sixteen bytes..."), 16, 1)
0
>>> acl.rt.memset(place, 16, 0, 17)
107000
>>> print(acl.get_recent_err_msg())
aclrtMemset: count must be at most maxCount = 16; got 17. Set less. [ACL_ERROR_RT_PARAM_INVALID 107000]
>>> acl.rt.free(place), acl.rt.reset_device(0), acl.finalize()
(0, 0, 0)
"""

from typing import TYPE_CHECKING, Any

from anycann.acl import rt, util
from anycann.acl._functions import VALUE, functions

__all__ = ["rt", "util"]

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...  # the functions, made below


_FUNCTIONS = {
    "init": ("aclInit", 0),
    "finalize": ("aclFinalize", 0),
    "finalize_reference": ("aclFinalizeReference", 1),
    "get_soc_name": ("aclrtGetSocName", VALUE),
    "get_recent_err_msg": ("aclGetRecentErrMsg", VALUE),
    "data_type_size": ("aclDataTypeSize", VALUE),
    "float16_to_float": ("aclFloat16ToFloat", VALUE),
    "float_to_float16": ("aclFloatToFloat16", VALUE),
    "create_data_buffer": ("aclCreateDataBuffer", VALUE),
    "destroy_data_buffer": ("aclDestroyDataBuffer", 0),
    "update_data_buffer": ("aclUpdateDataBuffer", 0),
    "get_data_buffer_addr": ("aclGetDataBufferAddr", VALUE),
    "get_data_buffer_size": ("aclGetDataBufferSize", VALUE),
    "get_data_buffer_size_v2": ("aclGetDataBufferSizeV2", VALUE),
}

globals().update(functions(_FUNCTIONS, __name__))
__all__ += _FUNCTIONS
