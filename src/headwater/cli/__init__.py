"""The command line. `main` is the console script `headwater`."""

from headwater.cli.app import main

__all__ = ["main"]
