"""Streams run work in order, each on a thread of its own; events mark places in them."""

import atexit
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable

from anycann.errors import AclnnError

__all__ = ["Event", "Stream"]

Task = Callable[[], None]


def _seconds(timeout_ms: int | None, api: str) -> float | None:
    if timeout_ms is None or timeout_ms == -1:
        return None
    if timeout_ms == 0 or timeout_ms < -1:
        raise AclnnError(107000, api, f"timeout_ms must be positive, or None or -1 to wait without a limit; got {timeout_ms}")
    return timeout_ms / 1000


_lanes: "weakref.WeakSet[_Lane]" = weakref.WeakSet()  # the threads of the others have finished their work


class _Lane:
    """The thread of a stream and its queue; it does not keep the stream alive."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self.changed = threading.Condition()
        self.submitted = self.finished = 0
        self.errors: list[BaseException] = []
        self.pid = os.getpid()
        self.thread: threading.Thread | None = None  # started by the first task for it
        self.borrowed = False  # a caller's thread runs a task

    def work(self) -> None:
        while (task := self.tasks.get()) is not None:
            with self.changed:
                self.changed.wait_for(lambda: not self.borrowed)
            self.execute(task)
            del task

    def execute(self, task: Task) -> None:
        error: BaseException | None = None
        try:
            task()
        except BaseException as caught:  # surfaces at the synchronise
            error = caught
        with self.changed:
            self.finished += 1
            self.borrowed = False
            if error is not None:
                self.errors.append(error)
            self.changed.notify_all()

    def submit(self, task: Task) -> None:
        with self.changed:
            self.submitted += 1
            if self.thread is None:
                _lanes.add(self)
                self.thread = threading.Thread(target=self.work, name="anycann-stream", daemon=True)
                self.thread.start()
            self.tasks.put(task)

    def run_or_submit(self, task: Task) -> None:
        with self.changed:
            idle = self.finished == self.submitted
            if idle:
                self.submitted += 1
                self.borrowed = True
        if idle:
            self.execute(task)
        else:
            self.submit(task)

    def wait(self, seconds: float | None) -> bool:
        with self.changed:
            target = self.submitted
            return self.changed.wait_for(lambda: self.finished >= target, seconds)


class Stream:
    """Runs what is submitted to it in order, asynchronously to the caller.

    An error of a submitted run is raised by the next `synchronize`. A stream that is no longer referenced finishes its
    work; so do all streams when the interpreter exits. Usable after a fork, where it starts empty.
    """

    def __init__(self) -> None:
        self._lane = _Lane()
        self._finalizer = weakref.finalize(self, self._lane.tasks.put, None)
        self._finalizer.atexit = False

    def _here(self) -> _Lane:
        if self._lane.pid != os.getpid():
            self._finalizer.detach()
            self._lane = _Lane()
            self._finalizer = weakref.finalize(self, self._lane.tasks.put, None)
        return self._lane

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
        with lane.changed:
            errors = lane.errors[:]
            lane.errors.clear()
        if errors:
            raise errors[0]

    def query(self) -> bool:
        """Whether all submitted work is finished."""
        lane = self._here()
        with lane.changed:
            return lane.finished >= lane.submitted

    def wait_event(self, event: "Event") -> None:
        """Make work submitted from now on wait for an event as it is recorded now; an event never recorded is not waited for."""
        ticket = event.ticket()
        if ticket is not None:

            def wait() -> None:
                event.wait_for(ticket, None)

            self.submit(wait)


class Event:
    """A mark in a stream, and the time at which it was passed."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._recorded = self._passed = self._forgotten = 0
        self._time_ns = 0

    def record(self, stream: Stream | None = None) -> None:
        """Mark the place after all work submitted to the stream so far; None is the default stream, whose work is always finished."""
        with self._changed:  # until it is queued: else a wait for this record could be queued before it, on the same stream
            self._recorded += 1
            ticket = self._recorded
            if stream is None:
                self._pass(ticket)
            else:
                stream.run_or_submit(lambda: self._pass(ticket))

    def reset(self, stream: Stream | None = None) -> None:
        """Forget the records made so far, once the stream has come here: the event is as before its first record."""
        with self._changed:
            ticket = self._recorded

        def forget() -> None:
            with self._changed:
                self._forgotten = max(self._forgotten, ticket)

        if stream is None:
            forget()
        else:
            stream.run_or_submit(forget)

    def _pass(self, ticket: int) -> None:
        with self._changed:
            if ticket > self._passed:
                self._passed, self._time_ns = ticket, time.perf_counter_ns()
            self._changed.notify_all()

    def ticket(self) -> int | None:
        """The latest record, to wait for; None before the first."""
        with self._changed:
            return self._recorded if self._recorded > self._forgotten else None

    def wait_for(self, ticket: int, seconds: float | None) -> bool:
        """Wait until that record is passed; False when the time is over."""
        with self._changed:
            return self._changed.wait_for(lambda: self._passed >= ticket, seconds)

    def query(self) -> bool:
        """Whether the latest record is passed; True before the first."""
        with self._changed:
            return self._passed >= self._recorded

    @property
    def reached(self) -> bool:
        """Whether the event is recorded and the latest record passed."""
        with self._changed:
            return self._recorded > self._forgotten and self._passed >= self._recorded

    def synchronize(self, timeout_ms: int | None = None) -> None:
        """Wait until the latest record is passed. AclnnError 507047 when the time is over, 107000 for a timeout of 0 or below -1."""
        api = "Event.synchronize"
        ticket, seconds = self.ticket(), _seconds(timeout_ms, api)
        if ticket is not None and not self.wait_for(ticket, seconds):
            raise AclnnError(507047, api, f"the event was not reached within {timeout_ms} ms. Wait longer, or without a limit")

    def elapsed_ms(self, other: "Event") -> float:
        """Milliseconds from this event to another. AclnnError 507000 unless both are recorded and passed."""
        times = []
        for which, event in (("this event", self), ("the other event", other)):
            if not event.reached:
                raise AclnnError(507000, "Event.elapsed_ms", f"{which} must be recorded and reached. Record it and synchronize first")
            times.append(event._time_ns)
        return (times[1] - times[0]) / 1e6


def _drain() -> None:
    for lane in list(_lanes):
        if lane.pid == os.getpid():
            lane.wait(None)


atexit.register(_drain)
