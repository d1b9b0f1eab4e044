"""What the commands share: exit codes, options, an open warehouse, and how failures are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.completion import complete_stream
from headwater.cli.output import Output, Steps, discard_stdout
from headwater.errors import BusyError, EvaluationError, HeadwaterError

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    ERROR = 1
    USAGE = 2
    BUSY = 3
    INTERRUPTED = 130


Target = Annotated[
    str,
    typer.Option(
        "--warehouse",
        "-w",
        metavar="PATH_OR_URL",
        envvar="HEADWATER_WAREHOUSE",
        help="The warehouse: a directory, or the postgresql:// address of its catalog.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
NoService = Annotated[
    bool,
    typer.Option(
        "--no-service",
        envvar="HEADWATER_NO_SERVICE",
        help="Work in this process, even if `headwater run` could do it at once.",
    ),
]
StreamName = Annotated[
    str | None, typer.Argument(help="A stream table; all of them if left out.", autocompletion=complete_stream)
]
OneStream = Annotated[str, typer.Argument(help="A stream table.", autocompletion=complete_stream)]


@contextmanager
def telling_failures(out: Output) -> Iterator[None]:
    """Turn errors into messages and exit codes."""
    try:
        yield
    except BusyError as error:
        out.error(error)
        raise typer.Exit(Exit.BUSY) from error
    except HeadwaterError as error:
        out.error(error)
        raise typer.Exit(Exit.ERROR) from error
    except Exception as error:
        if not type(error).__module__.startswith("pyspark."):
            raise
        out.error(_evaluation_error(error))
        raise typer.Exit(Exit.ERROR) from error


@contextmanager
def reporting(out: Output) -> Iterator[None]:
    """Turn errors, Ctrl-C, and the end of a pipe into messages and exit codes."""
    try:
        with telling_failures(out):
            yield
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        discard_stdout()
        raise typer.Exit(Exit.OK) from None


@contextmanager
def opened(target: str, out: Output) -> Iterator[Warehouse]:
    """Open an existing warehouse while the block runs."""
    import headwater as hw

    with reporting(out):
        warehouse = hw.connect(target, create=False)
        try:
            yield warehouse
        finally:
            warehouse.close()


def progress_of(out: Output, steps: Steps, verb: str) -> Callable[[str, int, int], None]:
    """Return what shows the progress of long work, and ends the work once nobody waits for it."""

    def progress(name: str, done: int, total: int) -> None:
        out.check()
        steps.advance(done, total, f"{verb} {name}")

    return progress


def _evaluation_error(error: Exception) -> EvaluationError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return EvaluationError("Spark failed while computing the result", detail="\n".join(lines[:8]))
