"""The C interface: headers and libraries under the names that programs are written against, and how to build with them."""

from pathlib import Path

__all__ = ["cflags", "home", "libs", "search_path"]


def home() -> Path:
    """The folder with include/, lib64/ and set_env.sh: what ASCEND_HOME_PATH names. Compiled at the first call, then kept.

    Raises ToolchainError, naming the package to install, where a compiler, Python's headers or its shared library is missing.
    """
    from anycann.cabi import build

    return build.home()


def cflags() -> list[str]:
    """Compiler options of a program."""
    return [f"-I{home()}/include", f"-I{home()}/include/aclnnop"]


def search_path(folder: Path) -> list[str]:
    """Linker options for a folder in which a program looks for libraries when it runs. What -Wl begins is cut at commas."""
    return [f"-Wl,-rpath,{folder}"] if "," not in str(folder) else ["-Xlinker", "-rpath", "-Xlinker", str(folder)]


def libs() -> list[str]:
    """Linker options of a program, with the path where it finds the libraries when it runs."""
    folder = home() / "lib64"
    return [f"-L{folder}", "-lascendcl", "-lnnopbase", "-lopapi", *search_path(folder)]
