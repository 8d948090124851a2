"""Streams run work in order, each on a thread of its own or on a CUDA device; events mark places in them."""

import atexit
import collections
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from anycann import cuda, cuda_streams
from anycann.errors import AclnnError, Single

__all__ = ["Event", "Stream"]

Task = Callable[[], None]

_LONGEST = 1e12  # milliseconds, thirty years: clocks count no further than ten times that


def _seconds(timeout_ms: int | None, api: str) -> float | None:
    if timeout_ms is None or timeout_ms == -1:
        return None
    if not isinstance(timeout_ms, float) and not hasattr(timeout_ms, "__index__"):
        raise TypeError(f"{api}: timeout_ms must be a number of milliseconds or None; got {type(timeout_ms).__name__}")
    if not timeout_ms > 0:
        raise AclnnError(107000, api, f"timeout_ms must be positive, or None or -1 to wait without a limit; got {timeout_ms}")
    return timeout_ms / 1000 if timeout_ms < _LONGEST else None


_lanes: "weakref.WeakSet[_Lane]" = weakref.WeakSet()  # the threads of the others have finished their work


class _Mark:
    """A place in the queue of a thread."""

    __slots__ = ("_passed", "_time_ns")

    def __init__(self) -> None:
        self._passed, self._time_ns = threading.Event(), 0

    def arrive(self) -> None:
        """The thread is here."""
        self._time_ns = time.perf_counter_ns()
        self._passed.set()

    def query(self) -> bool:
        """Whether the thread has come here."""
        return self._passed.is_set()

    def wait(self, seconds: float | None) -> bool:
        """Wait until the thread has come here; False when the time is over."""
        return self._passed.wait(seconds)

    def milliseconds_to(self, other: object) -> float | None:
        """The time to another mark that was passed; None for marks of another kind."""
        return (other._time_ns - self._time_ns) / 1e6 if isinstance(other, _Mark) else None


class _Lane:
    """The thread of a stream and its queue; it does not keep the stream alive.

    An exception that a signal's handler raises in between, as Ctrl-C does, leaves no task counted that is not there: counts are read off
    what is pending and runs. A call to the thread that is lost with it is made again by whoever submits or waits.
    """

    device = "cpu"

    def __init__(self) -> None:
        self.pending: collections.deque[Task] = collections.deque()
        self.running: Task | None = None  # on the thread, or on one that it is lent to
        self.finished = 0
        self.calls: queue.SimpleQueue[bool] = queue.SimpleQueue()  # to look for what is pending; False: and to end
        self.changed = threading.Condition()
        self.errors: list[BaseException] = []
        self.pid = os.getpid()
        self.thread: threading.Thread | None = None  # started by the first task for it

    def work(self) -> None:
        with self.changed:
            going_on = self.thread is threading.current_thread()  # else its start was given up
        while going_on:
            going_on = self.calls.get()
            while (task := self.take()) is not None:
                self.execute(task)
                del task

    def take(self) -> Task | None:
        with self.changed:
            self.changed.wait_for(lambda: self.running is None)
            self.running = self.pending.popleft() if self.pending else None
            return self.running

    def execute(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            task()
        except BaseException as caught:  # surfaces at the synchronise
            error = caught
        if error is not None:
            self.errors.append(error)
        try:
            self.conclude(task)
        except BaseException:
            self.conclude(task)
            raise

    def conclude(self, task: Task) -> None:
        with self.changed:
            if self.running is task:
                self.running = None
                self.finished += 1
            self.changed.notify_all()

    def submit(self, task: Task) -> None:
        with self.changed:
            if self.thread is None:
                self.start()
            self.pending.append(task)
            self.call()

    def start(self) -> None:
        _lanes.add(self)
        self.thread = threading.Thread(target=self.work, name="anycann-stream", daemon=True)
        try:
            self.thread.start()
        except BaseException:  # the system has no more threads, or a handler has raised something
            self.thread = None
            raise

    def call(self) -> None:
        self.calls.put(True)
        self.changed.notify_all()

    def run_or_submit(self, task: Task) -> None:
        try:
            with self.changed:
                if idle := self.running is None and not self.pending:
                    self.running = task
            if idle:
                self.execute(task)
        except BaseException:
            if self.running is task:  # it did not begin
                self.running = None
            raise
        if not idle:
            self.submit(task)

    def wait(self, seconds: float | None) -> bool:
        with self.changed:
            target = self.finished + len(self.pending) + (self.running is not None)
            if self.pending:
                self.call()
            return self.changed.wait_for(lambda: self.finished >= target, seconds)

    def query(self) -> bool:
        with self.changed:
            return self.running is None and not self.pending

    def take_errors(self) -> list[BaseException]:
        with self.changed:
            errors, self.errors = self.errors, []
        return errors


class Stream(Single):
    """Runs what is submitted to it in order, asynchronously to the caller: on a thread, or on a CUDA device.

    device: "cpu"; or "cuda" (the current one), "cuda:N": a CUDA stream, into which operators on CUDA tensors are launched.
    An error of a submitted run is raised by the next `synchronize`. A stream that is no longer referenced finishes its
    work; so do all streams when the interpreter exits. Usable after a fork, where it starts empty; those of CUDA are not.
    Raises RuntimeError where there is no CUDA device.
    """

    def __init__(self, device: Any = "cpu") -> None:
        name = cuda.name_of(device)
        if name == "cpu":
            self._open()
        else:
            self._lane: _Lane | cuda_streams.Lane = cuda_streams.Lane(name)

    def _open(self) -> _Lane:
        self._lane = lane = _Lane()
        self._finalizer = weakref.finalize(self, lane.calls.put, False)
        self._finalizer.atexit = False
        return lane

    @property
    def device(self) -> str:
        """Where the work runs: "cpu" or "cuda:N"."""
        return self._lane.device

    @property
    def on_cuda(self) -> Any:
        """The torch.cuda.Stream; None on the CPU."""
        return self._lane.stream if isinstance(self._lane, cuda_streams.Lane) else None

    def _here(self) -> _Lane | cuda_streams.Lane:
        lane = self._lane
        if lane.pid != os.getpid() and isinstance(lane, _Lane):
            self._finalizer.detach()
            return self._open()
        return lane

    def submit(self, task: Task) -> None:
        """Queue a function to be called, without arguments, after everything that was queued before."""
        self._here().submit(task)

    def run_or_submit(self, task: Task) -> None:
        """`submit` for a task that takes less time than waking another thread: it runs at once where nothing is queued."""
        self._here().run_or_submit(task)

    def wait(self) -> None:
        """Wait until all work submitted so far is finished; its errors stay for `synchronize`."""
        self._here().wait(None)

    def synchronize(self, timeout_ms: int | None = None) -> None:
        """Wait until all work submitted so far is finished, and raise the first error among it.

        timeout_ms: None or -1 waits without a limit; 0 or below -1 raises 107000; AclnnError 507046 when it is over.
        """
        api = "Stream.synchronize"
        lane = self._here()
        if not lane.wait(_seconds(timeout_ms, api)):
            raise AclnnError(507046, api, f"the stream has unfinished work after {timeout_ms} ms. Wait longer, or without a limit")
        errors = lane.take_errors()
        if errors:
            raise errors[0]

    def query(self) -> bool:
        """Whether all submitted work is finished."""
        return self._here().query()

    def mark(self) -> _Mark | cuda_streams.Mark:
        """A mark behind all work submitted so far."""
        lane = self._here()
        if isinstance(lane, cuda_streams.Lane):
            return lane.mark()
        mark = _Mark()
        self.run_or_submit(mark.arrive)
        return mark

    def wait_event(self, event: "Event") -> None:
        """Make work submitted from now on wait for an event as it is recorded now; an event never recorded is not waited for.

        A CUDA stream waits for one of its kind on the device, and for a thread here, before this returns.
        """
        mark, here = event.latest(), self.on_cuda
        if mark is None:
            return
        if here is not None and isinstance(mark, cuda_streams.Mark):
            mark.hold_up(here)
        elif here is not None:
            mark.wait(None)
        else:

            def wait() -> None:
                mark.wait(None)

            self.submit(wait)


class Event(Single):
    """A mark in a stream, and the time at which it was passed."""

    def __init__(self) -> None:
        self._latest: _Mark | cuda_streams.Mark | None = None
        self._lock = threading.RLock()

    def record(self, stream: Stream | cuda_streams.Lane | None = None) -> None:
        """Mark the place after all work submitted to the stream so far; None is the default stream, whose work is always finished."""
        if stream is not None and not isinstance(stream, (Stream, cuda_streams.Lane)):
            raise TypeError(f"Event.record: stream must be a Stream or None; got {type(stream).__name__}")
        with self._lock:  # until it is queued: else a wait for this record could be queued before it, on the same stream
            if stream is not None:
                self._latest = stream.mark()
            else:
                self._latest = mark = _Mark()
                mark.arrive()

    def reset(self, stream: Stream | None = None) -> None:
        """Forget the record made last, once the stream has come here: the event is as before its first record.

        On CUDA streams it is forgotten at once.
        """
        past = self.latest()

        def forget() -> None:
            with self._lock:
                if self._latest is past:
                    self._latest = None

        if stream is None or stream.on_cuda is not None:
            forget()
        else:
            stream.run_or_submit(forget)

    def latest(self) -> _Mark | cuda_streams.Mark | None:
        """The latest record; None before the first."""
        with self._lock:
            return self._latest

    def query(self) -> bool:
        """Whether the latest record is passed; True before the first."""
        mark = self.latest()
        return mark is None or mark.query()

    @property
    def reached(self) -> bool:
        """Whether the event is recorded and the latest record passed."""
        mark = self.latest()
        return mark is not None and mark.query()

    def synchronize(self, timeout_ms: int | None = None) -> None:
        """Wait until the latest record is passed. AclnnError 507047 when the time is over, 107000 for a timeout of 0 or below -1."""
        api = "Event.synchronize"
        mark, seconds = self.latest(), _seconds(timeout_ms, api)
        if mark is not None and not mark.wait(seconds):
            raise AclnnError(507047, api, f"the event was not reached within {timeout_ms} ms. Wait longer, or without a limit")

    def elapsed_ms(self, other: "Event") -> float:
        """Milliseconds from this event to another, of the same device.

        AclnnError 507000 unless both are recorded and passed, 107006 where one was recorded on a CUDA stream and one was not.
        """
        api = "Event.elapsed_ms"
        if not isinstance(other, Event):
            raise TypeError(f"{api}: other must be an Event; got {type(other).__name__}")
        marks = []
        for which, event in (("this event", self), ("the other event", other)):
            mark = event.latest()
            if mark is None or not mark.query():
                raise AclnnError(507000, api, f"{which} must be recorded and reached. Record it and synchronize first")
            marks.append(mark)
        found = marks[0].milliseconds_to(marks[1])
        if found is None:
            raise AclnnError(107006, api, "the events must be of one clock; got the CPU's and a device's. Use streams of one device")
        return found


def _drain() -> None:
    for lane in list(_lanes):
        if lane.pid == os.getpid():
            lane.wait(None)


atexit.register(_drain)
