"""Streams and events of CUDA by way of torch: into which stream work goes, who waits for it, and what must outlive it."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from anycann.cuda import need

__all__ = ["Lane", "Mark", "launch", "stream_of"]

_POLL = 5e-5  # seconds between looks at a stream or an event that is waited for with a limit


def stream_of(given: Any, device: str, api: str) -> Any:
    """The torch stream that a caller means: None is the current one; a stream of torch; a handle of CUDA as a number."""
    torch = need("stream", device)
    if given is None:
        return torch.cuda.current_stream(device)
    if isinstance(given, (int, np.integer)):
        return torch.cuda.ExternalStream(int(given), device)
    if isinstance(given, torch.cuda.Stream):
        return given
    raise TypeError(f"stream of {api} must be a Stream, a torch.cuda.Stream, a handle as an int, or None; got {type(given).__name__}")


_held: deque[tuple[Any, list[object]]] = deque()  # owners of memory, and the events after which it is not used any more
_holding = threading.Lock()


def launch(stream: Any, task: Callable[[], None], owners: Iterable[object]) -> None:
    """Call what puts work into the current stream, for another: after the current one's work so far. The owners outlive the work."""
    torch = need("stream", "a CUDA device")
    here = torch.cuda.current_stream(stream.device)
    if here == stream:
        task()
    else:
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            task()
    _outlive(torch, stream, owners)


def _outlive(torch: Any, stream: Any, owners: Iterable[object]) -> None:
    """Torch's allocator knows how to wait for a stream; memory of other libraries is kept until an event has passed."""
    others = []
    for owner in owners:
        if isinstance(owner, torch.Tensor):
            owner.record_stream(stream)
        else:
            others.append(owner)
    if torch.cuda.is_current_stream_capturing():
        return  # a graph replays on memory that its maker keeps
    with _holding:
        while _held and _held[0][0].query():
            _held.popleft()
        if others:
            event = torch.cuda.Event()
            event.record(stream)
            _held.append((event, others))


class Mark:
    """A place in a CUDA stream, behind the work that is in it now."""

    __slots__ = ("_event",)

    def __init__(self, torch: Any, stream: Any) -> None:
        self._event = torch.cuda.Event(enable_timing=True)
        self._event.record(stream)

    def query(self) -> bool:
        """Whether the stream has come here."""
        passed: bool = self._event.query()
        return passed

    def wait(self, seconds: float | None) -> bool:
        """Wait until the stream has come here; False when the time is over."""
        return _wait(self._event, seconds)

    def hold_up(self, stream: Any) -> None:
        """Make later work of another CUDA stream wait, on the device."""
        stream.wait_event(self._event)

    def milliseconds_to(self, other: object) -> float | None:
        """The time to another mark that was passed, by the device's clock; None for marks of another kind."""
        return float(self._event.elapsed_time(other._event)) if isinstance(other, Mark) else None


def _wait(what: Any, seconds: float | None) -> bool:
    """Wait for a stream or an event of CUDA; False when the time is over."""
    if seconds is None:
        what.synchronize()
        return True
    end = time.monotonic() + seconds
    while not what.query():
        if time.monotonic() >= end:
            return False
        time.sleep(_POLL)
    return True


class Lane:
    """A CUDA stream as `streams.Stream` knows it: a task is called at once, and puts its work into the stream."""

    def __init__(self, device: str, default: bool = False) -> None:
        self.torch, self.device = need("stream", device), device
        self.stream = self.torch.cuda.default_stream(device) if default else self.torch.cuda.Stream(device)
        self._errors: list[BaseException] = []
        self.pid = os.getpid()

    def submit(self, task: Callable[[], None]) -> None:
        """Call what puts work into the current stream; what it raises waits for `take_errors`."""
        try:
            with self.torch.cuda.stream(self.stream):
                task()
        except BaseException as caught:  # surfaces at the synchronise
            self._errors.append(caught)

    run_or_submit = submit

    def at_once(self, task: Callable[[], None]) -> None:
        """Call what puts work into the current stream, and wait for the work."""
        with self.torch.cuda.stream(self.stream):
            task()
        self.stream.synchronize()

    def wait(self, seconds: float | None) -> bool:
        """Wait until all work so far is finished; False when the time is over."""
        return _wait(self.stream, seconds)

    def query(self) -> bool:
        """Whether all work is finished."""
        finished: bool = self.stream.query()
        return finished

    def take_errors(self) -> list[BaseException]:
        """What tasks raised since the last time."""
        errors, self._errors = self._errors, []
        return errors

    def mark(self) -> Mark:
        """A mark behind all work so far."""
        return Mark(self.torch, self.stream)
