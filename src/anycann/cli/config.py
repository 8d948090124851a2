"""`anycann config`: what a compiler must be told to build a program with anycann's headers and libraries."""

from typing import Annotated

import typer

from anycann.cli.output import Wrong

__all__ = ["config_command"]


def config_command(
    home: Annotated[bool, typer.Option("--home", help="The folder with include, lib64 and set_env.sh; ASCEND_HOME_PATH names it.")] = False,
    cflags: Annotated[bool, typer.Option("--cflags", help="Options of the compiler.")] = False,
    libs: Annotated[bool, typer.Option("--libs", help="Options of the linker, with the path that programs search when they run.")] = False,
) -> None:
    """How to build C and C++ programs: g++ sample.cpp $(anycann config --cflags --libs) -o sample."""
    from anycann import cabi
    from anycann.toolchain import ToolchainError

    try:
        parts = {"home": [str(cabi.home())], "cflags": cabi.cflags(), "libs": cabi.libs()}
    except ToolchainError as error:
        raise Wrong(str(error)) from None
    wanted = [name for name, asked in (("home", home), ("cflags", cflags), ("libs", libs)) if asked]
    if wanted:
        print(*(word for name in wanted for word in parts[name]))
        return
    for name, words in parts.items():
        print(f"{name}:", *words)
