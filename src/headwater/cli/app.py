"""The commands. Each opens a warehouse, asks it for one thing, and hands the answer to an `Output`.

Exit codes: 0 done; 1 an error of the user's, or a table that is not equal to its query; 2 wrong usage; 3 busy, try again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli import prompt, views
from headwater.cli.output import Output, Steps, discard_stdout, output_for
from headwater.errors import BusyError, EvaluationError, HeadwaterError, StatementError
from headwater.source.parse import split_script

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse


class Exit(IntEnum):
    """Exit codes."""

    OK = 0
    ERROR = 1
    USAGE = 2
    BUSY = 3
    INTERRUPTED = 130


app = typer.Typer(
    name="headwater",
    help="Stream tables for Apache Spark: query results that stay fresh by computing only what changed.",
    epilog="Try `headwater demo` first. Completion: `headwater --install-completion`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

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
Name = Annotated[str | None, typer.Argument(help="A stream table; all of them if left out.")]


def main() -> None:
    """Run the console script."""
    app()


@contextmanager
def reporting(out: Output) -> Iterator[None]:
    """Turn errors into messages and exit codes."""
    try:
        yield
    except BusyError as error:
        out.error(error)
        raise typer.Exit(Exit.BUSY) from error
    except HeadwaterError as error:
        out.error(error)
        raise typer.Exit(Exit.ERROR) from error
    except KeyboardInterrupt:
        raise typer.Exit(Exit.INTERRUPTED) from None
    except BrokenPipeError:
        discard_stdout()
        raise typer.Exit(Exit.OK) from None
    except Exception as error:
        if not type(error).__module__.startswith("pyspark."):
            raise
        out.error(_evaluation_error(error))
        raise typer.Exit(Exit.ERROR) from error


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


def _evaluation_error(error: Exception) -> EvaluationError:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return EvaluationError("Spark failed while computing the result", detail="\n".join(lines[:8]))


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stream tables for Apache Spark: query results that stay fresh by computing only what changed."""
    if show_version:
        installed = version("headwater")
        output_for(as_json=as_json).message(f"headwater {installed}", {"version": installed})
        raise typer.Exit(Exit.OK)
    if as_json:  # `headwater --json status` means `headwater status --json`
        ctx.default_map = {str(ctx.invoked_subcommand): {"as_json": True}}


@app.command(epilog="Example: `headwater demo --seconds 10 --rows 100000`")
def demo(
    seconds: Annotated[float, typer.Option(min=1, help="How long changes keep coming.")] = 20.0,
    rows: Annotated[int, typer.Option(min=1000, help="Rows to begin with.")] = 300_000,
    seed: Annotated[int, typer.Option(help="Seed of the random changes.")] = 1,
    as_json: AsJson = False,
) -> None:
    """Show two stream tables following a changing table, in a temporary directory."""
    from headwater.cli.demo import DemoOptions, run_demo

    out = output_for(as_json=as_json)
    with reporting(out):
        summary = run_demo(DemoOptions(seconds=seconds, rows=rows, seed=seed), out)
        if not summary.equal:
            raise typer.Exit(Exit.ERROR)


@app.command(epilog="Example: `headwater init shop`")
def init(
    path: Annotated[str | None, typer.Argument(metavar="[PATH_OR_URL]", help="The same as --warehouse.")] = None,
    target: Target = ".",
    location: Annotated[
        str | None, typer.Option(help="Where the data files go, if the catalog is a PostgreSQL database.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a warehouse; an existing one is left as it is."""
    import headwater as hw

    out = output_for(as_json=as_json)
    where = path or target
    with reporting(out):
        hw.connect(where, location=location, create=True).close()
        shown = views.without_password(where)
        out.message(f"warehouse ready: {shown}", {"warehouse": shown})


@app.command(
    epilog='Examples: `headwater sql "SELECT * FROM sales"`, `headwater sql -f setup.sql`, `headwater sql` for a prompt'
)
def sql(
    statement: Annotated[str | None, typer.Argument(help="One statement, or several separated by semicolons.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="A file of statements; - is standard input.", allow_dash=True)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows of a result to show; 0 means all.")] = 100,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Run SQL: queries, CREATE TABLE, INSERT, UPDATE, DELETE, CREATE STREAM TABLE, REFRESH STREAM TABLE and so on."""
    if statement is not None and file is not None:
        raise typer.BadParameter("give a statement or a file, not both", param_hint="--file")
    out = output_for(as_json=as_json)
    if statement is None and file is None and prompt.is_interactive():
        with opened(target, out) as warehouse:
            _run_prompt(warehouse, out, limit)
        return
    with reporting(out):
        text = statement if statement is not None else prompt.read_text(file)
        statements = [piece.text for piece in split_script(text)]
        if not statements:
            raise StatementError("there is no statement to run", hint='Example: headwater sql "SELECT 1".')
    with opened(target, out) as warehouse:
        for text in statements:
            _run_statement(warehouse, out, text, limit)


@app.command(epilog="Examples: `headwater refresh`, `headwater refresh sales`, `headwater refresh sales --full`")
def refresh(
    name: Name = None,
    full: Annotated[bool, typer.Option("--full", help="Compute everything anew, whatever changed.")] = False,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Bring stream tables up to date."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        with out.steps("Refreshing", None) as steps:
            reports = warehouse.refresh(name, full=full, progress=_progress(steps, "Refreshing"))
        rows = [views.record_of(r) for r in views.as_list(reports)]
        out.records(views.REFRESH, rows, empty="There are no stream tables yet.")


@app.command(epilog="Example: `headwater status --json`")
def status(target: Target = ".", as_json: AsJson = False) -> None:
    """List all tables: rows, how fresh they are, and what the last refresh did. Starts no Spark."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        rows = [views.status_row(s) for s in warehouse.status()]
        out.records(views.STATUS, rows, empty="The warehouse is empty. CREATE TABLE makes a table.")


@app.command(epilog="Example: `headwater history sales --limit 5`")
def history(
    name: Name = None,
    limit: Annotated[int, typer.Option(min=1, help="How many refreshes to show, newest first.")] = 20,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Show what past refreshes did, and why. Starts no Spark."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        names = [name] if name is not None else [s.name for s in warehouse.status() if views.is_stream(s)]
        records = {each: warehouse.history(each, limit=limit) for each in names}
        out.records(views.HISTORY, views.history_rows(records, limit), empty="Nothing was refreshed yet.")


@app.command(epilog="Example: `headwater verify sales`")
def verify(name: Name = None, target: Target = ".", as_json: AsJson = False) -> None:
    """Compare stream tables with their queries, computed anew. Exit code 1 if one differs."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        with out.steps("Verifying", None) as steps:
            answers = warehouse.verify(name, progress=_progress(steps, "Verifying"))
        rows = [views.verify_row(a) for a in views.as_list(answers)]
        out.records(views.VERIFY, rows, empty="There are no stream tables yet.")
        if not all(row["equal"] for row in rows):
            raise typer.Exit(Exit.ERROR)


@app.command(epilog='Example: `headwater validate "SELECT region, count(*) FROM orders GROUP BY region"`')
def validate(
    query: Annotated[str, typer.Argument(help="A query, as it would stand after AS in CREATE STREAM TABLE.")],
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Say how a query would be maintained, operator by operator, without creating anything."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        views.show_validation(warehouse.validate_query(query), out)


@app.command(epilog="Example: `headwater vacuum --retention-hours 24 --dry-run`")
def vacuum(
    retention_hours: Annotated[
        float | None, typer.Option(min=0, help="Keep versions this long; the setting of that name if left out.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Delete files that no version, reader or consumer needs any more."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        with out.steps("Vacuuming", None) as steps:
            progress = _progress(steps, "Vacuuming")
            report = warehouse.vacuum(retention_hours=retention_hours, dry_run=dry_run, progress=progress)
        out.message(views.vacuum_sentence(report, dry_run=dry_run), {**views.record_of(report), "dry_run": dry_run})


def _progress(steps: Steps, verb: str) -> Callable[[str, int, int], None]:
    return lambda name, done, total: steps.advance(done, total, f"{verb} {name}")


def _run_prompt(warehouse: Warehouse, out: Output, limit: int) -> None:
    for statement in prompt.read_statements(out):
        try:
            with reporting(out):
                _run_statement(warehouse, out, statement, limit)
        except typer.Exit:
            continue  # the error is shown; the prompt goes on


def _run_statement(warehouse: Warehouse, out: Output, statement: str, limit: int) -> None:
    result: Any = warehouse.sql(statement)
    if not hasattr(result, "collect"):
        out.message(result.message, {"rows_affected": result.rows_affected, "notices": result.notices})
        for notice in result.notices:
            out.note(f"notice: {notice}")
        return
    rows = (result.limit(limit + 1) if limit else result).collect()
    more = bool(limit) and len(rows) > limit
    out.result(result.columns, rows[:limit] if more else rows, more=more)
