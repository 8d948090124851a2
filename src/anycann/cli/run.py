"""`anycann run`: compile and run a program that launches Ascend C kernels on simulated cores."""

from pathlib import Path
from typing import Annotated

import typer

from anycann.cli.output import Wrong

__all__ = ["run_command"]

_SOURCES = (".cpp", ".cc", ".cxx", ".asc", ".cce")


def run_command(
    words: Annotated[list[str], typer.Argument(metavar="SOURCE... [ARGS]...", help="C++ sources, then arguments of the program.")],
    fast: Annotated[bool, typer.Option("--fast", help="Without the checker for mistakes.")] = False,
    sanitize: Annotated[str | None, typer.Option(metavar="address|undefined", help="Build with this sanitizer.")] = None,
    trace: Annotated[str | None, typer.Option(metavar="FILE", help="Write the timeline of the cores as a Chrome trace.")] = None,
    product: Annotated[str | None, typer.Option(metavar="NAME", help="The product to simulate.")] = None,
) -> None:
    """Compile and run a program that launches Ascend C kernels. Exit status: the program's, or 1 if a kernel made a mistake."""
    from anycann import ascendc

    count = next((i for i, word in enumerate(words) if Path(word).suffix not in _SOURCES), len(words))
    sources, arguments = [Path(word) for word in words[:count]], words[count:]
    if not sources:
        raise Wrong(f"{words[0]}: expected a C++ source, {' '.join(_SOURCES)}")
    missing = [str(source) for source in sources if not source.is_file()]
    if missing:
        raise Wrong(f"{missing[0]}: no such file")
    if all(ascendc.kind(source) == "other" for source in sources):
        raise Wrong(f"{sources[0]} includes no kernel_operator.h and launches no kernel; only Ascend C sources can be run")
    try:
        status = ascendc.run(sources, arguments, product=product, check=not fast, sanitize=sanitize, trace=trace)
    except ValueError as error:
        raise Wrong(str(error)) from None
    raise typer.Exit(status)
