"""The command line: `anycann --help`."""

import contextlib
import errno
import os
import sys

__all__ = ["main"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def main() -> None:
    """The entry point of the `anycann` program."""
    from anycann.cli.app import app

    try:
        try:
            app()
        finally:
            if sys.stdout is not None:  # closed by the caller
                sys.stdout.flush()
    except BrokenPipeError:  # who reads it has seen enough
        _drop_output()
        sys.exit(1)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        with contextlib.suppress(OSError):
            print(f"anycann: the output cannot be written: {error.strerror}", file=sys.stderr)
        _drop_output()
        sys.exit(2)


def _drop_output() -> None:
    """What is still to be written goes nowhere; else the interpreter tries, and complains, when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
