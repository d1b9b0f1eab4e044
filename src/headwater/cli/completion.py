"""Names of tables for the shell's completion, read from the catalog without Spark."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from headwater.catalog import Snapshot

CATALOG_FILE = "headwater.db"
URL_PREFIXES = ("postgresql://", "postgres://", "postgresql+")
WAIT_SECONDS = 1.0
"""A shell waits for its user: a busy catalog completes nothing."""


def complete_stream(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the stream tables whose names begin with what is typed."""
    return _names(ctx, incomplete, lambda snapshot: snapshot.streams)


def complete_source(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the tables that stream tables read and whose names begin with what is typed."""
    return _names(ctx, incomplete, lambda snapshot: {s for read in snapshot.sources.values() for s in read})


def is_url(target: str) -> bool:
    """Say whether a target is the address of a shared catalog, and not a directory."""
    return target.startswith(URL_PREFIXES)


def _names(ctx: typer.Context, incomplete: str, ids: Callable[[Snapshot], Iterable[str]]) -> list[str]:
    begun = incomplete.casefold()
    try:
        snapshot = _snapshot(_target(ctx))
        found = [snapshot.tables[i].name for i in ids(snapshot)]
    except Exception:
        return []  # an error would be printed into the line that is being typed
    return sorted(name for name in found if name.casefold().startswith(begun))


def _target(ctx: typer.Context) -> str:
    given = ctx.params.get("target") or os.environ.get("HEADWATER_WAREHOUSE") or "."
    return str(given)


def _snapshot(target: str) -> Snapshot:
    from headwater.catalog import Catalog, Options

    address = target if is_url(target) else str(Path(target) / CATALOG_FILE)
    with Catalog.open(address, options=Options(busy_timeout=WAIT_SECONDS)) as catalog:
        return catalog.snapshot()
