"""Status codes of the interface, what each means, the exception that carries them, and how texts are said."""

import contextlib
import sys
from typing import NamedTuple, NoReturn

__all__ = ["CODES", "AclnnError", "SettingError", "Single", "Status", "say", "status", "told"]


_LONG = 256  # bits of integers that are not spelled out: Python refuses to spell those of many thousands of digits


def told(value: object) -> str:
    """A value as a message shows it."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    bits = max((item.bit_length() for item in items if isinstance(item, int)), default=0)
    if bits <= _LONG:
        return repr(value)
    return f"{'a list with ' if items is value else ''}an integer of {bits} bits"


class Status(NamedTuple):
    """A documented code: its value, its name, when it is given and what the caller can do."""

    value: int
    name: str
    when: str
    mend: str


_INNER = "This is not a mistake in your call; please report it with the message."
_PACKAGE = "Given by the vendor's installed operator packages; anycann has none, so it never gives this code itself."

CODES: dict[int, Status] = {
    row[0]: Status(*row)
    for row in (
        (0, "ACLNN_SUCCESS", "The call succeeded.", "Nothing to do."),
        (161001, "ACLNN_ERR_PARAM_NULLPTR", "A required pointer is null (None in Python).", "Pass the parameter that the message names."),
        (
            161002,
            "ACLNN_ERR_PARAM_INVALID",
            "A dtype, format, promotion, shape or attribute value is not allowed.",
            "Change the parameter that the message names to what it expects; `anycann show OP` lists every rule of an operator.",
        ),
        (361001, "ACLNN_ERR_RUNTIME_ERROR", "A runtime call failed inside the operator.", "See the message for the call that failed."),
        (561000, "ACLNN_ERR_INNER", "Another internal error.", _INNER),
        (561001, "ACLNN_ERR_INNER_INFERSHAPE_ERROR", "The shape of an output could not be inferred.", "Check the input shapes."),
        (
            561002,
            "ACLNN_ERR_INNER_TILING_ERROR",
            "The kernel's tiling refused the call.",
            "Choose sizes that the rule in the message allows; devices refuse the same sizes with this code.",
        ),
        (
            561003,
            "ACLNN_ERR_INNER_FIND_KERNEL_ERROR",
            "There is no kernel for this operator or dtype on the product in force.",
            "Choose another product: anycann.set_product(...) or the variable ANYCANN_PRODUCT; `anycann show OP` lists them.",
        ),
        (561101, "ACLNN_ERR_INNER_CREATE_EXECUTOR", "The executor could not be made.", _INNER),
        (561102, "ACLNN_ERR_INNER_NOT_TRANS_EXECUTOR", "The executor was not handed to the caller.", _INNER),
        (
            561103,
            "ACLNN_ERR_INNER_NULLPTR",
            "An internal step gave nothing: a view reaches outside its storage, or a handle that is needed is null.",
            "Check view shape, strides, offset and storage shape of the tensor that the message names.",
        ),
        (561104, "ACLNN_ERR_INNER_WRONG_ATTR_INFO_SIZE", "The number of attributes differs from the operator's description.", _PACKAGE),
        (561105, "ACLNN_ERR_INNER_KEY_CONFILICT", "Two kernels have the same key.", _PACKAGE),
        (561106, "ACLNN_ERR_INNER_INVALID_IMPL_MODE", "An implementation mode is not known.", _PACKAGE),
        (561107, "ACLNN_ERR_INNER_OPP_PATH_NOT_FOUND", "The folder of operator packages was not found.", _PACKAGE),
        (561108, "ACLNN_ERR_INNER_LOAD_JSON_FAILED", "An operator description could not be loaded.", _PACKAGE),
        (561109, "ACLNN_ERR_INNER_JSON_VALUE_NOT_FOUND", "An operator description lacks a value.", _PACKAGE),
        (561110, "ACLNN_ERR_INNER_JSON_FORMAT_INVALID", "An operator description names a format that is not known.", _PACKAGE),
        (561111, "ACLNN_ERR_INNER_JSON_DTYPE_INVALID", "An operator description names a dtype that is not known.", _PACKAGE),
        (561112, "ACLNN_ERR_INNER_OPP_KERNEL_PKG_NOT_FOUND", "A kernel package was not found.", _PACKAGE),
        (561113, "ACLNN_ERR_INNER_OP_FILE_INVALID", "An operator file is damaged.", _PACKAGE),
        (561114, "ACLNN_ERR_INNER_ATTR_NUM_OUT_OF_BOUND", "An operator has too many attributes.", _PACKAGE),
        (561115, "ACLNN_ERR_INNER_ATTR_LEN_NOT_ENOUGH", "An attribute is shorter than its description says.", _PACKAGE),
        (561116, "ACLNN_ERR_INNER_INPUT_NUM_IN_JSON_TOO_LARGE", "An operator description has too many inputs.", _PACKAGE),
        (561117, "ACLNN_ERR_INNER_JSON_VALUE_IS_NULL", "An operator description holds a null value.", _PACKAGE),
        (561118, "ACLNN_ERR_INNER_STATIC_WORKSPACE_INVALID", "A static kernel's workspace size is not valid.", _PACKAGE),
        (561119, "ACLNN_ERR_INNER_STATIC_BLOCK_DIM_INVALID", "A static kernel's block count is not valid.", _PACKAGE),
        (
            100000,
            "ACL_ERROR_INVALID_PARAM",
            "A parameter of a runtime call is null or not allowed.",
            "Pass the parameter that the message names.",
        ),
        (100001, "ACL_ERROR_UNINITIALIZE", "The interface is not initialised.", "Call aclInit first."),
        (100002, "ACL_ERROR_REPEAT_INITIALIZE", "aclInit was called again before aclFinalize.", "Harmless: the first call holds."),
        (100037, "ACL_ERROR_REPEAT_FINALIZE", "aclFinalize was called without aclInit, or again.", "Harmless: nothing was left to end."),
        (107000, "ACL_ERROR_RT_PARAM_INVALID", "A runtime call was given a value that is not allowed.", "See the message."),
        (107001, "ACL_ERROR_RT_INVALID_DEVICEID", "There is no device of this number.", "Use a number below aclrtGetDeviceCount."),
        (
            107002,
            "ACL_ERROR_RT_CONTEXT_NULL",
            "The calling thread has no context.",
            "Call aclrtSetDevice or aclrtSetCurrentContext in every thread that uses the device.",
        ),
        (107003, "ACL_ERROR_RT_STREAM_CONTEXT", "A stream belongs to another context.", "Use streams of the current context."),
        (107006, "ACL_ERROR_RT_EVENT_TIMESTAMP_INVALID", "An event has no time.", "Record it first."),
        (
            107017,
            "ACL_ERROR_RT_INVALID_HANDLE",
            "A stream, event or context is not one that lives.",
            "Pass a handle that the library returned and that is not destroyed.",
        ),
        (200000, "ACL_ERROR_BAD_ALLOC", "Host memory could not be had.", "Free memory."),
        (207000, "ACL_ERROR_RT_FEATURE_NOT_SUPPORT", "The runtime does not have this feature.", "See the message."),
        (207001, "ACL_ERROR_RT_MEMORY_ALLOCATION", "The device has not enough memory.", "Free memory, or ask for less."),
        (
            507000,
            "ACL_ERROR_RT_INTERNAL_ERROR",
            "The runtime could not answer, as with times of an event that is not recorded.",
            "See the message.",
        ),
        (
            507007,
            "ACL_ERROR_RT_CONTEXT_RELEASE_ERROR",
            "A device that is not set cannot be reset.",
            "Call aclrtSetDevice first, and aclrtResetDevice once for each.",
        ),
        (
            507046,
            "ACL_ERROR_RT_STREAM_SYNC_TIMEOUT",
            "A stream had work left when the time to wait was over.",
            "Wait longer, or without a limit.",
        ),
        (
            507047,
            "ACL_ERROR_RT_EVENT_SYNC_TIMEOUT",
            "An event was not reached when the time to wait was over.",
            "Wait longer, or without a limit.",
        ),
    )
}


def status(code: int | str) -> Status:
    """Look a code up by value or by name; KeyError if there is none."""
    if isinstance(code, str) and not code.lstrip("-").isdigit():
        return {row.name: row for row in CODES.values()}[code.upper()]
    return CODES[int(code)]


def say(text: str) -> None:
    """Print a text to the standard error stream, in one piece. Where that is closed, full or gone, the text is lost, and no more."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
            sys.stderr.flush()


class Single:
    """A handle: what a copy of it held would be addresses, or a thread, of this one."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} cannot be copied or pickled: it stands for memory and work of this process. Make another")


class SettingError(ValueError):
    """A variable of the environment has a value that means nothing, or that nothing works with; str() names it."""


class AclnnError(ValueError):
    """A call that the contract refuses. Nothing was written.

    `status` is the documented code (161002), `name` its name ("ACLNN_ERR_PARAM_INVALID"), `api` the function that
    refused; str() names the parameter, the rule, what was expected, what came and how to mend it.
    """

    def __init__(self, status: int, api: str, message: str) -> None:
        self.status = status
        self.name = CODES[status].name
        self.api = api
        self.message = message
        super().__init__(f"{api}: {message} [{self.name} {status}]")

    def __reduce__(self) -> tuple[type["AclnnError"], tuple[int, str, str]]:
        return AclnnError, (self.status, self.api, self.message)
