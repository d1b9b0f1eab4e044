"""Commands that read and change data: `demo`, `init`, `sql`, `refresh`, `verify`, `validate`, `explain`, `vacuum`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli import client, prompt, views
from headwater.cli.common import (
    AsJson,
    Exit,
    NoService,
    OneStream,
    StreamName,
    Target,
    opened,
    progress_of,
    reporting,
)
from headwater.cli.output import Output, output_for
from headwater.cli.tasks import Explain, Refresh, Sql, Validate, Verify
from headwater.errors import StatementError
from headwater.source.parse import split_script

if TYPE_CHECKING:
    from headwater.warehouse import Warehouse

commands = typer.Typer(rich_markup_mode="markdown")


@commands.command(epilog="Example: `headwater demo --seconds 10 --rows 100000`")
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


@commands.command(epilog="Example: `headwater init shop`")
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


@commands.command(
    epilog='Examples: `headwater sql "SELECT * FROM sales"`, `headwater sql -f setup.sql`, `headwater sql` for a prompt'
)
def sql(
    statement: Annotated[str | None, typer.Argument(help="One statement, or several separated by semicolons.")] = None,
    file: Annotated[
        Path | None, typer.Option("-f", "--file", help="A file of statements; - is standard input.", allow_dash=True)
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="Rows of a result to show; 0 means all.")] = 100,
    target: Target = ".",
    no_service: NoService = False,
    as_json: AsJson = False,
) -> None:
    """Run SQL: queries, CREATE TABLE, INSERT, UPDATE, DELETE, CREATE STREAM TABLE, REFRESH STREAM TABLE and so on."""
    if statement is not None and file is not None:
        raise typer.BadParameter("give a statement or a file, not both", param_hint="--file")
    out = output_for(as_json=as_json)
    if statement is None and file is None and prompt.is_interactive():
        _run_prompt(target, out, limit, no_service=no_service)
        return
    with reporting(out):
        text = statement if statement is not None else prompt.read_text(file)
        statements = tuple(piece.text for piece in split_script(text))
        if not statements:
            raise StatementError("there is no statement to run", hint='Example: headwater sql "SELECT 1".')
    raise typer.Exit(client.perform(Sql(statements, limit), target, out, no_service=no_service))


@commands.command(epilog="Examples: `headwater refresh`, `headwater refresh sales`, `headwater refresh sales --full`")
def refresh(
    name: StreamName = None,
    full: Annotated[bool, typer.Option("--full", help="Compute everything anew, whatever changed.")] = False,
    target: Target = ".",
    no_service: NoService = False,
    as_json: AsJson = False,
) -> None:
    """Bring stream tables up to date."""
    out = output_for(as_json=as_json)
    raise typer.Exit(client.perform(Refresh(name, full), target, out, no_service=no_service))


@commands.command(epilog="Example: `headwater verify sales`")
def verify(
    name: StreamName = None, target: Target = ".", no_service: NoService = False, as_json: AsJson = False
) -> None:
    """Compare stream tables with their queries, computed anew. Exit code 1 if one differs."""
    raise typer.Exit(client.perform(Verify(name), target, output_for(as_json=as_json), no_service=no_service))


@commands.command(epilog='Example: `headwater validate "SELECT region, count(*) FROM orders GROUP BY region"`')
def validate(
    query: Annotated[str, typer.Argument(help="A query, as it would stand after AS in CREATE STREAM TABLE.")],
    target: Target = ".",
    no_service: NoService = False,
    as_json: AsJson = False,
) -> None:
    """Say how a query would be maintained, operator by operator, without creating anything."""
    raise typer.Exit(client.perform(Validate(query), target, output_for(as_json=as_json), no_service=no_service))


@commands.command(epilog="Example: `headwater explain sales`")
def explain(name: OneStream, target: Target = ".", no_service: NoService = False, as_json: AsJson = False) -> None:
    """Say how a stream table is maintained: its query, its mode and why, its state, and the texts that a refresh runs."""
    raise typer.Exit(client.perform(Explain(name), target, output_for(as_json=as_json), no_service=no_service))


@commands.command(epilog="Example: `headwater vacuum --retention-hours 24 --dry-run`")
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
            progress = progress_of(out, steps, "Vacuuming")
            report = warehouse.vacuum(retention_hours=retention_hours, dry_run=dry_run, progress=progress)
        out.message(views.vacuum_sentence(report, dry_run=dry_run), {**views.record_of(report), "dry_run": dry_run})


def _run_prompt(target: str, out: Output, limit: int, *, no_service: bool) -> None:
    """Run statements as they are typed, each where it is done soonest; Spark is started here when it is first needed."""
    with ExitStack() as held:
        warehouse: Warehouse | None = None
        if no_service or not client.is_served(target):
            warehouse = held.enter_context(opened(target, out))
        for statement in prompt.read_statements(out):
            task = Sql((statement,), limit)
            try:
                with reporting(out):
                    if warehouse is None and client.handed_over(task, target, out) is not None:
                        continue
                    if warehouse is None:
                        warehouse = held.enter_context(opened(target, out))
                    task.run(warehouse, out)
            except typer.Exit:
                continue  # the error is shown; the prompt goes on
