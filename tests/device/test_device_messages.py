"""Texts of refusals: per thread, newest first, cleared by reading, and with all that the reader needs."""

import inspect
import os
import subprocess
import sys
import threading

import pytest
from device_calls import TWO_PHASE, C, refused

import anycann
from anycann import device


def test_nothing_to_say_is_null() -> None:
    assert C.aclGetRecentErrMsg() is None
    assert device.recent() is None


def test_newest_first_and_cleared_by_reading() -> None:
    for text in ("first", "second", "third"):
        device.remember(text)
    assert C.aclGetRecentErrMsg() == "third\nsecond\nfirst"
    assert C.aclGetRecentErrMsg() is None


def test_errors_are_remembered_with_everything() -> None:
    with pytest.raises(anycann.AclnnError) as caught:
        C.aclrtMalloc(0, 0)
    device.remember(caught.value)
    text = C.aclGetRecentErrMsg()
    for part in ("aclrtMalloc", "size", "at least 1", "got 0", "ACL_ERROR_INVALID_PARAM", "100000", "Allocate"):
        assert part in text


def test_every_thread_reads_its_own() -> None:
    found: dict[int, object] = {}
    ready = threading.Barrier(8)

    def run(number: int) -> None:
        device.remember(f"text {number}")
        ready.wait(30)
        found[number] = C.aclGetRecentErrMsg()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {number: f"text {number}" for number in range(8)}
    assert C.aclGetRecentErrMsg() is None


def test_what_nobody_reads_does_not_pile_up() -> None:
    for number in range(1000):
        device.remember(f"text {number}")
    lines = C.aclGetRecentErrMsg().split("\n")
    assert lines[0] == "text 999"
    assert len(lines) <= 64


def test_texts_are_printed_where_that_is_wanted() -> None:
    program = "from anycann import device\ndevice.remember('a text')"
    for wanted, printed in (("1", "a text\n"), ("yes", "a text\n"), ("", ""), ("0", "")):
        environment = dict(os.environ) | {"ANYCANN_EXPLAIN": wanted}
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment, check=True)
        assert done.stderr == printed


def test_all_codes_of_refusals_are_documented() -> None:
    """An AclnnError of a code that is not documented cannot be made."""
    with pytest.raises(KeyError):
        anycann.AclnnError(4711, "aclrtMalloc", "text")


def test_functions_bear_the_names_of_the_interface() -> None:
    for name, function in device.CALLS.items():
        assert name.startswith(("acl", "Acl", "anycann_"))
        assert function.__name__.casefold() == name.casefold()
        assert not any(one.default is not inspect.Parameter.empty for one in inspect.signature(function).parameters.values())
    assert len(device.CALLS) >= 90
    assert all(len(pair) == 2 for pair in TWO_PHASE.values())


def test_a_refusal_is_raised_and_not_remembered_by_itself() -> None:
    refused(100000, lambda: C.aclrtFree(0))
    assert C.aclGetRecentErrMsg() is None
