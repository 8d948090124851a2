"""The C interface: headers and libraries under the names that programs are written against, and how to build with them."""

from pathlib import Path

__all__ = ["cflags", "home", "libs"]


def home() -> Path:
    """The folder with include/, lib64/ and set_env.sh: what ASCEND_HOME_PATH names. Compiled at the first call, then kept.

    Raises ToolchainError, naming the package to install, where a compiler, Python's headers or its shared library is missing.
    """
    from anycann.cabi import build

    return build.home()


def cflags() -> list[str]:
    """Compiler options of a program."""
    return [f"-I{home()}/include", f"-I{home()}/include/aclnnop"]


def libs() -> list[str]:
    """Linker options of a program, with the path where it finds the libraries when it runs."""
    folder = home() / "lib64"
    return [f"-L{folder}", "-lascendcl", "-lnnopbase", "-lopapi", f"-Wl,-rpath,{folder}"]
