"""What a process has set: initialisation, devices and their contexts."""

import os
import threading

from anycann import products
from anycann.device.backing import BACKING
from anycann.device.calls import call, need
from anycann.device.contexts import CONTEXTS, Context, need_context, set_context
from anycann.device.queues import wait_for_all
from anycann.errors import AclnnError
from anycann.locks import hold

__all__ = ["default_contexts"]

DEVICES = 1
HOST_MODE = 1  # aclrtRunMode: the program runs on the host
VERSION = (1, 0, 0)

_setting = threading.RLock()
hold(_setting)
_initialised = 0  # how often aclInit was called since the last aclFinalize
_set: dict[int, int] = {}  # how often a device was set
_defaults: dict[int, Context] = {}  # the context of each device that is set


@call
def aclInit(configPath: str | None) -> None:
    global _initialised
    BACKING.need("aclInit")
    if configPath and not os.path.isfile(configPath):
        raise AclnnError(100000, "aclInit", f"configPath must be the path of a file, or null; got {configPath!r}, which is none. Use null.")
    with _setting:
        _initialised += 1
        again = _initialised > 1
    if again:
        raise AclnnError(100002, "aclInit", "the interface is initialised already, and stays so. Call aclFinalize first.")


@call
def aclFinalize() -> None:
    global _initialised
    with _setting:
        known, _initialised = _initialised, 0
    if not known:
        raise AclnnError(100037, "aclFinalize", "the interface is not initialised, or was ended before. Call it once, after aclInit.")
    wait_for_all()


@call
def aclFinalizeReference() -> int:
    global _initialised
    with _setting:
        known = _initialised
        _initialised = max(known - 1, 0)
    if not known:
        raise AclnnError(100037, "aclFinalizeReference", "the interface is not initialised, or was ended before. Call it after aclInit.")
    if known == 1:
        wait_for_all()
    return known - 1


@call
def aclnnInit(configPath: str | None) -> None:
    """Nothing to prepare: operators prepare themselves."""


@call
def aclnnFinalize() -> None:
    """Nothing to end."""


def default_contexts() -> list[Context]:
    """The contexts of the devices that are set."""
    return list(_defaults.values())


def _need_device(number: int, api: str) -> None:
    if not 0 <= number < DEVICES:
        raise AclnnError(107001, api, f"deviceId must be from 0 to {DEVICES - 1}; got {number}. Use 0.")
    BACKING.need(api)


@call
def aclrtSetDevice(deviceId: int) -> None:
    _need_device(deviceId, "aclrtSetDevice")
    with _setting:
        _set[deviceId] = _set.get(deviceId, 0) + 1
        if deviceId not in _defaults:
            _defaults[deviceId] = Context(deviceId)
        set_context(_defaults[deviceId])


def _reset(number: int, api: str, all_of_them: bool) -> None:
    _need_device(number, api)
    if number not in _set:
        mend = "Call aclrtSetDevice first, and this once for each."
        raise AclnnError(507007, api, f"deviceId must be a device that is set; got {number}, which is not. {mend}")
    wait_for_all()
    with _setting:
        left = 0 if all_of_them else _set.get(number, 1) - 1
        if left:
            _set[number] = left
        elif _set.pop(number, None) is not None:
            _defaults.pop(number).end()


@call
def aclrtResetDevice(deviceId: int) -> None:
    _reset(deviceId, "aclrtResetDevice", all_of_them=False)


@call
def aclrtResetDeviceForce(deviceId: int) -> None:
    _reset(deviceId, "aclrtResetDeviceForce", all_of_them=True)


@call
def aclrtGetDevice() -> int:
    return need_context("aclrtGetDevice").device


@call
def aclrtGetDeviceCount() -> int:
    BACKING.need("aclrtGetDeviceCount")
    return DEVICES


@call
def aclrtGetRunMode() -> int:
    return HOST_MODE


@call
def aclrtGetSocName() -> str:
    return products.soc_name()


@call
def aclrtGetVersion() -> tuple[int, int, int]:
    return VERSION


@call
def aclrtCreateContext(deviceId: int) -> int:
    _need_device(deviceId, "aclrtCreateContext")
    context = Context(deviceId)
    set_context(context)
    return context.handle


@call
def aclrtDestroyContext(context: int) -> None:
    api = "aclrtDestroyContext"
    need(context, "context", api)
    found = CONTEXTS.find(context, "context", api)
    if found in _defaults.values():
        raise AclnnError(107000, api, "context must be one of aclrtCreateContext; got the default one of its device. Use aclrtResetDevice.")
    wait_for_all()
    found.end()


@call
def aclrtSetCurrentContext(context: int) -> None:
    need(context, "context", "aclrtSetCurrentContext")
    set_context(CONTEXTS.find(context, "context", "aclrtSetCurrentContext"))


@call
def aclrtGetCurrentContext() -> int:
    return need_context("aclrtGetCurrentContext").handle
