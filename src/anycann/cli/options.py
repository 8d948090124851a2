"""Options that several commands have."""

import os
from typing import Annotated

import typer

from anycann.cli.output import Wrong

__all__ = ["Json", "writable"]


def writable(param: typer.CallbackParam, target: str | None) -> str | None:
    """The path that an option names for a file to be written; `Wrong` if that is in vain. No file is changed, none stays."""
    if target is None or target == "-" or (os.path.exists(target) and not os.path.isfile(target) and not os.path.isdir(target)):
        return target  # what is no file, like a pipe, may notice that it is opened
    if not target:
        raise Wrong(f"{param.opts[0]} must name a file; got an empty name")
    try:
        if os.path.exists(target):
            os.close(os.open(target, os.O_WRONLY))
        else:
            made = os.path.realpath(target)  # a link may point to a file that is not there yet
            os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
            os.unlink(made)
    except OSError as error:
        raise Wrong(f"{param.opts[0]} {target}: {error.strerror}") from None
    return target


Json = Annotated[
    str | None,
    typer.Option(
        "--json", metavar="FILE", help="Also write the results as JSON; - writes JSON only, to standard output.", callback=writable
    ),
]
