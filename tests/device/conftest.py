"""Every test of the device begins with a device that is set and leaves nothing behind."""

from collections.abc import Iterator

import pytest
from device_calls import C

from anycann import device


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = device.living()
    C.aclrtSetDevice(0)
    C.aclGetRecentErrMsg()
    yield
    C.aclrtSetDevice(0)
    C.aclrtResetDeviceForce(0)
    assert device.living() == before, "the test left objects behind"
