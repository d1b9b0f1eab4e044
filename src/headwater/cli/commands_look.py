"""Commands that look: `status`, `history`, `timeline`, `dag`, `health`, `events`, `buffers`, `schedule`, `workers`. None starts Spark."""

from __future__ import annotations

import time
from enum import Enum
from typing import Annotated, Any

import typer

from headwater.cli import views, views_operations
from headwater.cli.common import AsJson, Exit, StreamName, Target, opened
from headwater.cli.output import Output, output_for

commands = typer.Typer(rich_markup_mode="markdown")

FOLLOW_SECONDS = 0.5


class DagFormat(Enum):
    """How `dag` draws."""

    TREE = "tree"
    MERMAID = "mermaid"
    DOT = "dot"


@commands.command(epilog="Example: `headwater status --json`")
def status(target: Target = ".", as_json: AsJson = False) -> None:
    """List all tables: rows, how fresh they are and why not, and what the last refresh did."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        rows = [views.status_row(s) for s in warehouse.status()]
        out.records(views.STATUS, rows, empty="The warehouse is empty. CREATE TABLE makes a table.")


@commands.command(epilog="Example: `headwater history sales --limit 5`")
def history(
    name: StreamName = None,
    limit: Annotated[int, typer.Option(min=1, help="How many refreshes to show, newest first.")] = 20,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Show what past refreshes did, and why."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        names = [name] if name is not None else [s.name for s in warehouse.status() if views.is_stream(s)]
        records = {each: warehouse.history(each, limit=limit) for each in names}
        out.records(views.HISTORY, views.history_rows(records, limit), empty="Nothing was refreshed yet.")


@commands.command(epilog="Example: `headwater timeline --limit 100`")
def timeline(
    limit: Annotated[int, typer.Option(min=1, help="How many refreshes to show, newest first.")] = 50,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Show the newest refreshes of all stream tables in the order in which they ran."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        rows = [views.record_of(entry) for entry in warehouse.refresh_timeline(limit)]
        out.records(views.HISTORY, rows, empty="Nothing was refreshed yet.")


@commands.command(
    epilog="Examples: `headwater dag`, `headwater dag sales`, `headwater dag --format dot | dot -Tsvg > dag.svg`"
)
def dag(
    name: StreamName = None,
    form: Annotated[
        DagFormat, typer.Option("--format", help="A tree of names, or a drawing of the whole graph.")
    ] = DagFormat.TREE,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Show what stream tables read, directly or not."""
    if name is not None and form is not DagFormat.TREE:
        raise typer.BadParameter("a drawing shows all stream tables", param_hint="NAME")
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        if form is DagFormat.TREE:
            tree = warehouse.dependency_tree(name)
            out.document({"format": form.value, "nodes": [views.record_of(n) for n in tree.nodes], "text": tree.text})
            out.note(tree.text or "There are no stream tables yet.")
            return
        text = warehouse.explain_dag(form.value)
        out.document({"format": form.value, "text": text})
        out.note(text)


@commands.command(epilog="Example: `headwater health || mail -s 'headwater' me < /dev/null`")
def health(target: Target = ".", as_json: AsJson = False) -> None:
    """Check what may be wrong: tables that fail, lag or wait, and schedulers. Exit code 1 if there is an ERROR."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        rows = [views.record_of(check) for check in warehouse.health_check()]
        out.records(views_operations.HEALTH, rows, empty="")
        if any(row["severity"].value == "ERROR" for row in rows):
            raise typer.Exit(Exit.ERROR)


@commands.command(epilog="Examples: `headwater events --limit 100`, `headwater events --follow --json`")
def events(
    limit: Annotated[int, typer.Option(min=1, help="How many events to show, newest first.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with new ones as they come, until Ctrl-C.")] = False,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Show what schedulers had to tell: failures, suspensions, fuses, promises that are not kept. Refreshes are in `timeline`."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        found = warehouse.events(limit)
        if follow:
            _follow(warehouse, found, out)
        rows = [views_operations.event_row(event) for event in found]
        out.records(views_operations.EVENTS, rows, empty="Nothing was told yet.")


@commands.command(epilog="Example: `headwater buffers`")
def buffers(target: Target = ".", as_json: AsJson = False) -> None:
    """Show how many change rows of each source wait for each stream table that reads it."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        rows = [views.record_of(buffer) for buffer in warehouse.change_buffer_sizes()]
        out.records(views_operations.BUFFERS, rows, empty="There are no stream tables yet.")


@commands.command(epilog="Examples: `headwater schedule sales`, `headwater schedule`")
def schedule(name: StreamName = None, target: Target = ".", as_json: AsJson = False) -> None:
    """Recommend a schedule, judged by how long refreshes took and how often changes came."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        advice = warehouse.schedule_recommendations() if name is None else [warehouse.recommend_schedule(name)]
        rows = [views.record_of(each) for each in advice]
        out.records(views_operations.ADVICE, rows, empty="There are no stream tables yet.")


@commands.command(epilog="Example: `headwater workers`")
def workers(target: Target = ".", as_json: AsJson = False) -> None:
    """Show the schedulers that run, here or elsewhere, and how their workers are used."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        schedulers = [views.record_of(each) for each in warehouse.scheduler_diagnostics()]
        allocation = [views.record_of(each) for each in warehouse.worker_allocation_status()]
        cluster = [views.record_of(each) for each in warehouse.cluster_worker_summary()]
        out.document({"schedulers": schedulers, "allocation": allocation, "cluster": cluster})
        if not schedulers:
            out.note("No scheduler runs. `headwater run` is one.")
            return
        quotas = {each["scheduler"]: each["workers_quota"] for each in allocation}
        rows = [{**each, "quota": quotas.get(each["scheduler"])} for each in schedulers]
        out.text_records(views_operations.SCHEDULERS, rows)


def _follow(warehouse: Any, found: list[Any], out: Output) -> None:
    """Show events as they come, the oldest first. Only Ctrl-C ends it."""
    last = 0
    while True:
        for event in reversed(found):
            row = views_operations.event_row(event)
            out.document(row)
            out.note(views_operations.event_line(row))
            last = max(last, event.id or 0)
        time.sleep(FOLLOW_SECONDS)
        found = warehouse.events(1000, after=last)
