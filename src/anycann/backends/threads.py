"""A thread pool for kernels that release the GIL: the caller works too, so nested and concurrent jobs cannot deadlock.

Which thread runs which piece is left to chance; kernels must give the same bits for every partition.
"""

import itertools
import os
import queue
import threading
from collections.abc import Callable

__all__ = ["get_num_threads", "parallel", "set_num_threads"]

Piece = Callable[[int, int], None]

_PIECES_PER_THREAD = 4  # evens out cores that are busy with something else
_ALONE = 16  # pieces of `grain` units that are done before another thread has woken up


class _Job:
    """One kernel over pieces of [0, units); every thread that calls `work` takes pieces until none is left."""

    def __init__(self, run: Piece, units: int, step: int) -> None:
        self.run, self.units, self.step = run, units, step
        self.count = -(-units // step)
        self.next_piece = itertools.count()  # next() is atomic
        self.lock = threading.Lock()
        self.finished = 0
        self.done = threading.Event()
        self.error: BaseException | None = None

    def work(self) -> None:
        while (piece := next(self.next_piece)) < self.count:
            start = piece * self.step
            try:
                self.run(start, min(start + self.step, self.units))
            except BaseException as error:  # handed to the caller by `parallel`
                self.error = error
            with self.lock:
                self.finished += 1
                last = self.finished == self.count
            if last:
                self.done.set()


class _Pool:
    """Worker threads that wait for jobs; grown on demand, forgotten after a fork."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.workers = 0

    def ask(self, job: _Job, helpers: int) -> None:
        if self.workers < helpers:
            with self.lock:
                while self.workers < helpers:
                    threading.Thread(target=self.serve, args=(self.jobs,), name=f"anycann-cpu-{self.workers}", daemon=True).start()
                    self.workers += 1
        for _ in range(helpers):
            self.jobs.put(job)

    @staticmethod
    def serve(jobs: "queue.SimpleQueue[_Job]") -> None:
        while True:
            jobs.get().work()


_pool = _Pool()
_chosen: int | None = None


def _forget_threads() -> None:
    global _pool
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def _checked(value: int, source: str) -> int:
    if not 1 <= value <= 1024:
        raise ValueError(f"{source} must be between 1 and 1024; got {value}")
    return value


def set_num_threads(n: int) -> None:
    """Use n threads for each operator call from now on, in the whole process. Results do not depend on n."""
    global _chosen
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"set_num_threads takes an int; got {type(n).__name__}")
    _chosen = _checked(n, "the number of threads")


def get_num_threads() -> int:
    """Threads an operator call may use: `set_num_threads`, else ANYCANN_NUM_THREADS, else the cores this process may run on."""
    global _chosen
    if _chosen is None:
        text = os.environ.get("ANYCANN_NUM_THREADS", "").strip()
        if text:
            if not text.isdigit():
                raise ValueError(f"ANYCANN_NUM_THREADS must be a whole number between 1 and 1024; got {text!r}")
            _chosen = _checked(int(text), "ANYCANN_NUM_THREADS")
        else:
            _chosen = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return _chosen


def parallel(run: Piece, units: int, grain: int = 1) -> None:
    """Call run(start, stop) on pieces that cover [0, units), each at least `grain` units (the last may be shorter), on all threads.

    A grain of more than one unit is as little as a piece should be; work of up to _ALONE of them stays with the caller.
    """
    alone = _ALONE * grain if grain > 1 else 1
    threads = 1 if units <= alone else min(get_num_threads(), -(-units // grain))
    if threads == 1:
        run(0, units)
        return
    step = max(grain, -(-units // (threads * _PIECES_PER_THREAD)))
    step = -(-step // grain) * grain
    job = _Job(run, units, step)
    _pool.ask(job, threads - 1)
    job.work()
    job.done.wait()
    if job.error is not None:
        raise job.error
