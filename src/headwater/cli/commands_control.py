"""Commands that steer schedulers: `pause`, `resume`, `drain`, `gate`, `ungate`, `fuse`. They hold for all processes, until taken back."""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli import client, views, views_operations
from headwater.cli.common import AsJson, Exit, NoService, StreamName, Target, opened
from headwater.cli.completion import complete_source, complete_stream
from headwater.cli.output import output_for
from headwater.cli.tasks import FuseAction, ResetFuse

commands = typer.Typer(rich_markup_mode="markdown")

Names = Annotated[list[str] | None, typer.Argument(help="Stream tables.", autocompletion=complete_stream)]
All = Annotated[bool, typer.Option("--all", help="All stream tables, also those made later.")]
Source = Annotated[str, typer.Argument(help="A table that users write to.", autocompletion=complete_source)]
SUSPENDED = "SUSPENDED"


@commands.command(epilog="Examples: `headwater pause sales large`, `headwater pause --all`")
def pause(names: Names = None, every: All = False, target: Target = ".", as_json: AsJson = False) -> None:
    """Let schedulers start no refresh of stream tables, and wait for those that run. Exit code 3 if one still runs."""
    _require_names_or_all(names, every)
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        with out.steps("Waiting for what runs", None):
            report = warehouse.pause_all() if every else warehouse.pause_scheduler(names or [])
        text = "paused: " + (", ".join(report.paused) or "everything, though there are no stream tables yet")
        out.message(text, views.record_of(report))
        if report.still_running:
            out.aside(f"still being refreshed: {', '.join(report.still_running)}")
            raise typer.Exit(Exit.BUSY)


@commands.command(epilog="Examples: `headwater resume sales`, `headwater resume --all`")
def resume(names: Names = None, every: All = False, target: Target = ".", as_json: AsJson = False) -> None:
    """Let schedulers refresh stream tables again that were paused, or suspended because they failed too often."""
    _require_names_or_all(names, every)
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        resumed = warehouse.resume_all() if every else warehouse.resume_scheduler(names or [])
        suspects = [s.name for s in warehouse.status() if s.status == SUSPENDED] if every else list(names or [])
        forgiven = [name for name in dict.fromkeys(suspects) if warehouse.resume_stream_table(name)]
        said = [f"resumed: {', '.join(resumed)}"] if resumed else []
        said += [f"failures forgotten: {', '.join(forgiven)}"] if forgiven else []
        text = "; ".join(said) or ("nothing is paused any more" if every else "nothing was paused")
        out.message(text, {"resumed": resumed, "forgiven": forgiven})


@commands.command(epilog="Examples: `headwater drain --timeout 120`, `headwater drain --undo`")
def drain(
    timeout: Annotated[float, typer.Option(min=0, help="How many seconds to wait for what runs.")] = 60.0,
    undo: Annotated[bool, typer.Option("--undo", help="Let schedulers begin again.")] = False,
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Let no scheduler of the warehouse begin anything, and wait until nothing runs. Exit code 3 if something still runs."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        if undo:
            warehouse.undrain()
            out.message("schedulers begin again", {"drained": False})
            return
        with out.steps("Waiting for what runs", None):
            drained = warehouse.drain(timeout)
        text = "nothing runs" if drained else f"something still runs after {timeout:g} s"
        out.message(f"{text}; nothing new begins until `headwater drain --undo`", {"drained": drained})
        if not drained:
            raise typer.Exit(Exit.BUSY)


@commands.command(epilog="Examples: `headwater gate orders --reason 'night load'`, `headwater gate`")
def gate(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A table that users write to; shows the closed gates if left out.", autocompletion=complete_source
        ),
    ] = None,
    reason: Annotated[str, typer.Option(help="What `status` says about it.")] = "",
    target: Target = ".",
    as_json: AsJson = False,
) -> None:
    """Let scheduled refreshes of everything that reads a table wait, for example while it is loaded."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        if source is None:
            rows = [views_operations.gate_row(each) for each in warehouse.source_gates()]
            out.records(views_operations.GATES, rows, empty="No gate is closed.")
            return
        warehouse.gate_source(source, reason)
        out.message(f"gate closed: {source}", {"source": source, "gated": True})


@commands.command(epilog="Example: `headwater ungate orders`")
def ungate(source: Source, target: Target = ".", as_json: AsJson = False) -> None:
    """Open the gate of a table again."""
    out = output_for(as_json=as_json)
    with opened(target, out) as warehouse:
        was_gated = warehouse.ungate_source(source)
        text = f"gate opened: {source}" if was_gated else f"the gate of {source} was open"
        out.message(text, {"source": source, "gated": False, "was_gated": was_gated})


@commands.command(epilog="Examples: `headwater fuse`, `headwater fuse sales --apply`, `headwater fuse sales --skip`")
def fuse(
    name: StreamName = None,
    apply: Annotated[bool, typer.Option("--apply", help="Refresh with the changes that blew it.")] = False,
    reinitialize: Annotated[bool, typer.Option("--reinitialize", help="Compute the table anew.")] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Leave the changes out; the table is wrong until computed anew.")
    ] = False,
    target: Target = ".",
    no_service: NoService = False,
    as_json: AsJson = False,
) -> None:
    """Show fuses, or mend one that has blown because more rows changed than its ceiling allows."""
    given = {FuseAction.APPLY: apply, FuseAction.REINITIALIZE: reinitialize, FuseAction.SKIP: skip}
    actions = [action for action, is_given in given.items() if is_given]
    if len(actions) > 1 or bool(actions) != (name is not None):
        raise typer.BadParameter("give a stream table and one of --apply, --reinitialize and --skip, or nothing")
    out = output_for(as_json=as_json)
    if name is not None:
        task = ResetFuse(name, actions[0].value)
        raise typer.Exit(client.perform(task, target, out, no_service=no_service))
    with opened(target, out) as warehouse:
        rows = [views.record_of(each) for each in warehouse.fuse_status()]
        out.records(views_operations.FUSES, rows, empty="No stream table has a fuse.")


def _require_names_or_all(names: list[str] | None, every: bool) -> None:
    if every == bool(names):
        raise typer.BadParameter("give stream tables, or --all", param_hint="NAMES")
