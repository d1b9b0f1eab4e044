"""The command line: what all commands have in common. Each opens a warehouse, asks it for one thing, and hands the answer to an `Output`.

Exit codes: 0 done; 1 an error of the user's, a table that is not equal to its query, a check of `health` that failed; 2 wrong usage;
3 busy, try again; 130 Ctrl-C.
"""

from __future__ import annotations

from typing import Annotated

import typer

from headwater.cli import commands_control, commands_data, commands_look, commands_run
from headwater.cli.common import AsJson, Exit
from headwater.cli.output import output_for

app = typer.Typer(
    name="headwater",
    help="Stream tables for Apache Spark: query results that stay fresh by computing only what changed.",
    epilog="Try `headwater demo` first. Completion: `headwater --install-completion`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (commands_data, commands_run, commands_look, commands_control):
    app.add_typer(part.commands)


def main() -> None:
    """Run the console script."""
    app()


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stream tables for Apache Spark: query results that stay fresh by computing only what changed."""
    if show_version:
        from importlib.metadata import version

        installed = version("headwater")
        output_for(as_json=as_json).message(f"headwater {installed}", {"version": installed})
        raise typer.Exit(Exit.OK)
    if as_json:  # `headwater --json status` means `headwater status --json`
        ctx.default_map = {str(ctx.invoked_subcommand): {"as_json": True}}
