"""`headwater run`: the scheduler as a process."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from headwater.cli.common import AsJson, reporting
from headwater.cli.output import output_for

commands = typer.Typer(rich_markup_mode="markdown")


@commands.command(
    epilog="Examples: `headwater run`, `headwater run -w shop -w depot`, `headwater run --once` from a cron job. "
    "SIGTERM and Ctrl-C let what runs come to its end; a second one does not wait."
)
def run(
    targets: Annotated[
        list[str] | None,
        typer.Option(
            "--warehouse",
            "-w",
            metavar="PATH_OR_URL",
            help="A warehouse, as for the other commands (env var: HEADWATER_WAREHOUSE). Give several to serve them all.",
            show_default=".",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Refresh what is due now, and end.")] = False,
    seconds: Annotated[
        float | None, typer.Option(min=0, help="End after so many seconds.", show_default="never")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Keep stream tables fresh by their schedules, and do the commands of other terminals without starting Spark again."""
    if once and seconds is not None:
        raise typer.BadParameter("--once ends by itself", param_hint="--seconds")
    from headwater.cli.run import run_on, run_once

    out = output_for(as_json=as_json)
    places = tuple(targets or [os.environ.get("HEADWATER_WAREHOUSE") or "."])
    with reporting(out):
        raise typer.Exit(run_once(places, out) if once else run_on(places, out, seconds))
