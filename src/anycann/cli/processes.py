"""Programs that the command line starts: what they find in their environment, and how they end."""

import contextlib
import logging
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from anycann.cli.output import Wrong
from anycann.errors import say

__all__ = ["environment", "execute"]

_FOR_SCRIPTS = Path(__file__).parents[1] / "acl" / "pythonpath"
_OF_THE_PROGRAM = (signal.SIGINT,)  # the terminal tells it, too
_OF_THIS_PROCESS = (
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGCHLD, signal.SIGWINCH),
    *(signal.SIGURG, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGTRAP, signal.SIGSYS),
)
_PASSED_ON = signal.valid_signals() - {*_OF_THE_PROGRAM, *_OF_THIS_PROCESS}

_log = logging.getLogger(__name__)


def environment(home: Path | None, settings: Mapping[str, str], libraries: Sequence[Path] = ()) -> dict[str, str]:
    """The environment of a program: it finds our libraries, Python finds acl, and refusals are printed unless the caller has a say.

    `home` is the folder of headers and libraries, `libraries` holds folders of the user's own.
    """
    made = {"ANYCANN_EXPLAIN": "1", **os.environ, **settings}
    if home is not None:
        made |= {"ASCEND_HOME_PATH": str(home), "ASCEND_TOOLKIT_HOME": str(home)}
        libraries = [*libraries, home / "lib64"]
    for name, folders in (("LD_LIBRARY_PATH", libraries), ("PYTHONPATH", [_FOR_SCRIPTS])):
        made[name] = os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get(name)])])
    return {name: value for name, value in made.items() if value or name != "LD_LIBRARY_PATH"}


@contextlib.contextmanager
def _signals() -> Iterator[socket.socket]:
    """Where the numbers of signals can be read, a byte each, that come meanwhile; they do nothing else. What is ignored stays so."""
    heard = [number for number in (*_OF_THE_PROGRAM, *_PASSED_ON) if signal.getsignal(number) is not signal.SIG_IGN]
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    with reader, writer:
        handlers = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGCHLD, *heard)}
        woken = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield reader
        finally:
            signal.set_wakeup_fd(woken)
            for number, handler in handlers.items():
                signal.signal(number, handler)


def execute(program: Path, called: str, arguments: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a program under the name that it is to be called; its exit status, or 128 and the number of the signal that ended it.

    What ends this process ends the program. Ctrl-C is the program's affair: the terminal tells it, too.
    """
    _log.info(shlex.join([str(program), *arguments]))
    if sys.stdout is not None:  # closed by the caller
        sys.stdout.flush()
    with _signals() as signals:
        try:
            child = subprocess.Popen([called, *arguments], executable=program, env=variables)
        except OSError as error:
            raise Wrong(f"{program}: {error.strerror}") from None
        while (status := child.poll()) is None:
            for number in signals.recv(64):
                if number in _PASSED_ON:
                    child.send_signal(number)
    if status < 0:
        if -status != signal.SIGPIPE:  # who reads its output has seen enough
            name = next((f" ({known.name})" for known in signal.Signals if known == -status), "")
            say(f"anycann: {called} was ended by signal {-status}{name}\n")
        return 128 - status
    return status
