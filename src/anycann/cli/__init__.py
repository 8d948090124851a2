"""The command line: `anycann --help`."""

__all__ = ["main"]


def main() -> None:
    """The entry point of the `anycann` program."""
    from anycann.cli.app import app

    app()
