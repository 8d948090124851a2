"""Streams and events behind handles. A null stream is the default one, whose work is done when the call returns."""

import contextlib
from collections.abc import Callable, Iterator

from anycann.device.backing import BACKING
from anycann.device.calls import call, need
from anycann.device.contexts import need_context
from anycann.device.handles import Table
from anycann.device.memory import DEVICE
from anycann.errors import AclnnError
from anycann.streams import Event, Stream

__all__ = ["EVENTS", "STREAMS", "enqueue", "stream_of", "wait_for_all"]

STREAMS: Table[Stream] = Table("stream", 107017)
EVENTS: Table[Event] = Table("event", 107017)
COMPLETE, NOT_READY = 0, 1  # aclrtStreamStatus
RECORDED, NOT_RECORDED = 1, 0  # aclrtEventRecordedStatus


def stream_of(stream: int, api: str) -> Stream | None:
    """The stream of a handle, None for the default one."""
    return STREAMS.find(stream, "stream", api) if stream else None


def enqueue(stream: Stream | None, task: Callable[[], None], small: bool) -> None:
    """Run a task in the order of a stream; a small one at once where nothing is queued."""
    if DEVICE.watch is not None:
        task = DEVICE.watch.carry(task)
    if stream is None:
        BACKING.at_once(task)
    elif small:
        stream.run_or_submit(task)
    else:
        stream.submit(task)


def wait_for_all() -> None:
    """Wait until no stream has work left; errors of the work wait for their own synchronise."""
    for stream in list(STREAMS.living.values()):
        stream.wait()


@contextlib.contextmanager
def _named(api: str) -> Iterator[None]:
    """Refusals from here bear the name of the C function; other errors of queued work are internal ones of the runtime."""
    try:
        yield
    except AclnnError as error:
        raise AclnnError(error.status, api, error.message) from error


def _new_stream(api: str) -> int:
    need_context(api)
    return STREAMS.add(BACKING.stream())


@call
def aclrtCreateStream() -> int:
    return _new_stream("aclrtCreateStream")


@call
def aclrtCreateStreamWithConfig(priority: int, flag: int) -> int:
    return _new_stream("aclrtCreateStreamWithConfig")


def _end_stream(stream: int, api: str) -> None:
    need(stream, "stream", api)
    STREAMS.find(stream, "stream", api).wait()
    STREAMS.remove(stream, "stream", api)


@call
def aclrtDestroyStream(stream: int) -> None:
    _end_stream(stream, "aclrtDestroyStream")


@call
def aclrtDestroyStreamForce(stream: int) -> None:
    _end_stream(stream, "aclrtDestroyStreamForce")


def _synchronize(stream: int, timeout: int, api: str) -> None:
    queue = stream_of(stream, api)
    if timeout == 0 or timeout < -1:
        raise AclnnError(107000, api, f"timeout must be positive, or -1 to wait without a limit; got {timeout}. Use milliseconds.")
    need_context(api)
    if queue is not None:
        with _named(api):
            queue.synchronize(timeout)


@call
def aclrtSynchronizeStream(stream: int) -> None:
    _synchronize(stream, -1, "aclrtSynchronizeStream")


@call
def aclrtSynchronizeStreamWithTimeout(stream: int, timeout: int) -> None:
    _synchronize(stream, timeout, "aclrtSynchronizeStreamWithTimeout")


@call
def aclrtSynchronizeDevice() -> None:
    need_context("aclrtSynchronizeDevice")
    wait_for_all()
    with _named("aclrtSynchronizeDevice"):
        for stream in list(STREAMS.living.values()):
            stream.synchronize()


@call
def aclrtStreamQuery(stream: int) -> int:
    queue = stream_of(stream, "aclrtStreamQuery")
    return COMPLETE if queue is None or queue.query() else NOT_READY


@call
def aclrtStreamWaitEvent(stream: int, event: int) -> None:
    api = "aclrtStreamWaitEvent"
    queue = stream_of(stream, api)
    mark = _event(event, "event", api)
    if queue is None:
        mark.synchronize()
    else:
        queue.wait_event(mark)


def _event(event: int, name: str, api: str) -> Event:
    need(event, name, api)
    return EVENTS.find(event, name, api)


@call
def aclrtCreateEvent() -> int:
    return EVENTS.add(Event())


@call
def aclrtCreateEventWithFlag(flag: int) -> int:
    return EVENTS.add(Event())


@call
def aclrtDestroyEvent(event: int) -> None:
    need(event, "event", "aclrtDestroyEvent")
    EVENTS.remove(event, "event", "aclrtDestroyEvent")


@call
def aclrtRecordEvent(event: int, stream: int) -> None:
    mark = _event(event, "event", "aclrtRecordEvent")
    queue = stream_of(stream, "aclrtRecordEvent")
    if queue is None:
        BACKING.at_once(lambda: mark.record(BACKING.default()))
    else:
        mark.record(queue)


@call
def aclrtResetEvent(event: int, stream: int) -> None:
    mark = _event(event, "event", "aclrtResetEvent")
    mark.reset(stream_of(stream, "aclrtResetEvent"))


@call
def aclrtSynchronizeEvent(event: int) -> None:
    _event(event, "event", "aclrtSynchronizeEvent").synchronize()


@call
def aclrtQueryEventStatus(event: int) -> int:
    return RECORDED if _event(event, "event", "aclrtQueryEventStatus").reached else NOT_RECORDED


@call
def aclrtEventElapsedTime(start: int, end: int) -> float:
    api = "aclrtEventElapsedTime"
    first, last = _event(start, "start", api), _event(end, "end", api)
    with _named(api):
        return first.elapsed_ms(last)
