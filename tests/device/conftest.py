"""Every test of the device begins with a device that is set and leaves nothing behind.

Those that hold a stream up do so with a job of the simulated cores, which there are on the CPU only.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from device_calls import C

from anycann import device, ops
from anycann.device.backing import BACKING, Cpu

_OF_THE_CPU = {"Gate", "opens_after", "anycann_stream_enqueue", "anycann_device_block"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    lacking = {operator.spec.name for operator in ops.OPERATORS if type(BACKING) is not Cpu and not operator.has_kernels("gpu")}
    for item in items:
        if Path(__file__).parent not in item.path.parents or not isinstance(item, pytest.Function):
            continue
        if BACKING.device != "cpu" and _OF_THE_CPU & {*item.function.__code__.co_names}:
            item.add_marker(pytest.mark.skip(reason="work that waits is the CPU's"))
        fact = item.callspec.params.get("fact") if hasattr(item, "callspec") else None
        if fact is not None and fact.api in lacking:
            item.add_marker(pytest.mark.skip(reason=f"{fact.api} has no kernels for GPUs"))


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = device.living()
    C.aclrtSetDevice(0)
    C.aclGetRecentErrMsg()
    yield
    C.aclrtSetDevice(0)
    C.aclrtResetDeviceForce(0)
    assert device.living() == before, "the test left objects behind"
