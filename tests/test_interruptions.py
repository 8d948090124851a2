"""What comes in between: signals whose handlers call or raise, threads that the system refuses, forks while other threads are inside."""

import subprocess
import sys
import textwrap

import pytest

SECONDS = 90  # after which something hangs


def run(program: str) -> "subprocess.CompletedProcess[str]":
    """Run a program that says where it hangs."""
    watched = f"import faulthandler\nfaulthandler.dump_traceback_later({SECONDS}, exit=True)\n" + textwrap.dedent(program)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", watched]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * SECONDS, check=False)


def fine(program: str) -> None:
    done = run(program)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "fine\n")


def test_the_handler_of_a_signal_may_call_whatever_it_interrupts() -> None:
    """Calls of ever new shapes, which keep plans; some results come from the pool."""
    fine("""
        import random, signal, time
        import numpy as np
        import anycann

        anycann.gelu_v2(np.ones(9, np.float32))
        anycann.gelu_v2(np.ones(1 << 19, np.float32))  # compiled before time is taken
        calls = 0

        def handler(*_):
            global calls
            calls += 1
            anycann.gelu_v2(np.ones((calls % 2000, 3), np.float32))
            if calls % 100 == 0:
                anycann.gelu_v2(np.ones(1 << 19, np.float32))

        signal.signal(signal.SIGALRM, handler)
        end, limit, i = time.monotonic() + 6, time.monotonic() + 60, 0
        while time.monotonic() < end or calls <= 100 and time.monotonic() < limit:  # other work may be in the way
            i += 1
            signal.setitimer(signal.ITIMER_REAL, random.uniform(5e-5, 1e-3))
            anycann.gelu_v2(np.ones((1, i), np.float32))
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("fine" if calls > 100 else calls)
    """)


def test_an_exception_of_a_signals_handler_leaves_memory_to_other_threads() -> None:
    """Results from the pool, which go back to it when they are dropped."""
    fine("""
        import random, signal, sys, threading, time
        import numpy as np
        import anycann

        class Stop(BaseException):
            pass

        def handler(*_):
            if raising:
                raise Stop

        def others_work():
            thread = threading.Thread(target=lambda: [anycann.gelu_v2(x) for _ in range(2)], daemon=True)
            thread.start()
            thread.join(20)
            return not thread.is_alive()

        reports = []
        sys.unraisablehook = lambda report: reports.append(report.exc_type)
        signal.signal(signal.SIGALRM, handler)
        raising, x, stopped = False, np.ones(1 << 18, np.float32), 0
        anycann.set_num_threads(1)
        anycann.gelu_v2(x)
        limit = time.monotonic() + 40
        while stopped < 800 and time.monotonic() < limit:
            try:
                raising = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(2e-5, 6e-4))
                for _ in range(20):
                    result = anycann.gelu_v2(x)
                    del result
            except Stop:
                stopped += 1
            raising = False
            if stopped % 25 == 1:
                assert others_work(), stopped
        assert {*reports} <= {Stop}, reports  # of memory that is dropped just then
        print("fine" if stopped > 100 else stopped)
    """)


@pytest.mark.parametrize("submit", ["submit", "run_or_submit"])
def test_an_exception_of_a_signals_handler_leaves_a_stream_as_usable_as_it_was(submit: str) -> None:
    fine(f"""
        import random, signal, time
        from anycann.aclnn import Stream

        class Stop(BaseException):
            pass

        def handler(*_):
            if raising:  # a signal may come late, to another thread first
                raise Stop

        signal.signal(signal.SIGALRM, handler)
        raising, stopped, done = False, 0, 0

        def task():
            global done
            done += 1

        end, limit = time.monotonic() + 5, time.monotonic() + 60
        while time.monotonic() < end or stopped <= 20 and time.monotonic() < limit:  # other work may be in the way
            stream = Stream()
            for _ in range(random.randrange(1, 5)):
                try:
                    raising = True
                    signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 3e-4))
                    stream.{submit}(task)
                    stream.{submit}(task)
                    raising = False
                except (Stop, RuntimeError):  # Python's own locks make the latter of the former
                    raising, stopped = False, stopped + 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            before = done
            stream.submit(task)
            try:
                stream.synchronize(20000)
            except Stop:  # it came while a task ran
                stopped += 1
            assert done > before
            assert stream.query()
        print("fine" if stopped > 20 else stopped)
    """)


def test_a_thread_that_the_system_refuses_leaves_a_stream_as_it_was() -> None:
    fine("""
        import threading
        import numpy as np
        from anycann import aclnn

        x, out, stream = np.ones(1 << 19, np.float32), np.zeros(1 << 19, np.float32), aclnn.Stream()

        def call():
            size, executor = aclnn.aclnnGeluV2GetWorkspaceSize(x, 0, out)
            aclnn.aclnnGeluV2(None, size, executor, stream)

        threading.stack_size(1 << 46)  # no system gives a thread so much
        try:
            call()
        except RuntimeError as error:
            assert "start new thread" in str(error), error
        else:
            print("not refused")
        assert stream.query()
        threading.stack_size(0)
        call()
        stream.synchronize(30000)
        print("fine" if out[-1] > 0.8 else out)
    """)


def test_a_call_that_gets_no_other_thread_works_alone() -> None:
    fine("""
        import threading
        import numpy as np
        import anycann

        x = np.linspace(-3, 3, 1 << 21, dtype=np.float32)
        anycann.set_num_threads(1)
        expected = anycann.gelu_v2(x)
        anycann.set_num_threads(3)
        threading.stack_size(1 << 46)
        assert np.array_equal(anycann.gelu_v2(x), expected)
        assert threading.active_count() == 1
        threading.stack_size(0)
        assert np.array_equal(anycann.gelu_v2(x), expected)
        assert threading.active_count() == 3
        print("fine")
    """)


def test_a_fork_waits_for_a_kernel_that_another_thread_compiles() -> None:
    """The locks of Numba and of llvmlite, which that thread holds, would not come free in the child."""
    fine("""
        import os, signal, tempfile, threading, time
        import numpy as np
        import anycann

        x = np.ones(100, np.float32)
        anycann.gelu_v2(x)
        with tempfile.TemporaryDirectory() as folder:
            os.environ["ANYCANN_CACHE_DIR"] = folder
            compiling = threading.Thread(target=anycann.smooth_l1_loss, args=(x, x))
            compiling.start()
            children = []
            while compiling.is_alive() and len(children) < 3:
                time.sleep(0.1)
                pid = os.fork()
                if pid == 0:
                    signal.alarm(60)
                    anycann.smooth_l1_loss(x, x)
                    os._exit(0)
                children.append(pid)
            compiling.join()
            ended = [os.waitpid(child, 0)[1] for child in children]
        print("fine" if children and not any(ended) else ended)
    """)


def test_a_child_process_computes_wherever_other_threads_were_when_it_was_forked() -> None:
    """Their locks stay taken in the child: of the pool of results, of plans, of the compiler, of an executor."""
    fine("""
        import os, signal, sys, threading
        import numpy as np
        import anycann
        from anycann import aclnn

        sys.setswitchinterval(1e-5)
        x = np.ones(1 << 19, np.float32)
        anycann.gelu_v2(x)
        anycann.gelu_v2(x)
        executor = aclnn.aclnnGeluV2GetWorkspaceSize(x[:9], 0, np.empty(9, np.float32))[1]
        executor.set_repeatable()

        def work(seed):
            i = seed
            while True:
                i += 3
                anycann.gelu_v2(x)
                anycann.gelu_v2(x[: i % 5000])
                for _ in range(20):
                    aclnn.aclnnGeluV2(None, 0, executor, None)

        for seed in range(3):
            threading.Thread(target=work, args=(seed,), daemon=True).start()
        for child in range(150):
            pid = os.fork()
            if pid == 0:
                signal.alarm(20)
                anycann.gelu_v2(x)
                anycann.gelu_v2(x[: 6000 + child])
                aclnn.aclnnGeluV2(None, 0, executor, None)
                os._exit(0)
            status = os.waitpid(pid, 0)[1]
            if status:
                print("child", child, "ended with", status)
                break
        else:
            print("fine")
        sys.stdout.flush()
        os._exit(0)
    """)


def test_results_that_are_dropped_at_exit_wait_for_no_thread() -> None:
    """Threads that do not keep the interpreter alive end where they are, with what they hold."""
    fine("""
        import threading, time
        import numpy as np
        import anycann
        from anycann.locks import shared

        elsewhere = {"shared": shared, "time": time}  # of a thread's own function, this module would not be dropped
        exec("def stay():\\n    with shared:\\n        time.sleep(1000)", elsewhere)
        result = anycann.gelu_v2(np.ones(1 << 19, np.float32))
        threading.Thread(target=elsewhere["stay"], daemon=True).start()
        while shared.acquire(blocking=False):
            shared.release()
        print("fine")
    """)
