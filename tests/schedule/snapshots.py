"""Snapshots made by hand: stream tables over tables, and what is noted about them.

A table with the id `a` is called `A`: whoever takes an id for a name is found out. Versions count from 1; a snapshot stands at
version 10, every table changed at version 5, and every stream table was refreshed to version 10, if nothing else is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from headwater.catalog import Snapshot
from headwater.model.control import NO_NOTES, Note, Noted, Notes
from headwater.model.options import OPTION_NAMES, StreamOptions
from headwater.model.schema import Field, TableSchema
from headwater.model.tables import RefreshMode, StreamTable, Table, TableKind, WhenFull

NOW = 1_000_000.0
VERSION = 10
CHANGED = 5

SCHEMA = TableSchema((Field("id", "BIGINT", nullable=False),), ("id",))
_COLUMNS = {f.name for f in fields(StreamTable)}


def snapshot_of(
    reads: Mapping[str, str],
    streams: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    changed: Mapping[str, int] | None = None,
    notes: Iterable[Noted] = (),
) -> Snapshot:
    """Return a snapshot of stream tables, given by the ids of what each reads: `{"a": "t u", "b": "a"}`.

    `streams` says of some of them what is unusual: columns of `StreamTable` and options, by their names.
    """
    sources = {n: tuple(read.split()) for n, read in reads.items()}
    names = list(dict.fromkeys([*(s for read in sources.values() for s in read), *reads]))
    at = dict.fromkeys(names, CHANGED) | dict(changed or {})
    dependents: dict[str, tuple[str, ...]] = {}
    for node, read in sources.items():
        for source in read:
            dependents[source] = (*dependents.get(source, ()), node)
    unusual = streams or {}
    assert unusual.keys() <= reads.keys()
    return Snapshot(
        version=VERSION,
        generation=1,
        tables={n: _table(n, TableKind.STREAM if n in reads else TableKind.MANAGED, at[n]) for n in names},
        changed=at,
        streams={n: stream_of(n, **unusual.get(n, {})) for n in reads},
        sources=sources,
        dependents=dependents,
        names={n.upper().casefold(): n for n in names},
        notes=notes_of(notes),
    )


def stream_of(table_id: str, **values: Any) -> StreamTable:
    """Return a stream table; `values` are columns of it and options."""
    options = StreamOptions(**{n: v for n, v in values.items() if n in OPTION_NAMES})
    columns = {n: v for n, v in values.items() if n not in OPTION_NAMES}
    assert columns.keys() <= _COLUMNS
    plain: dict[str, Any] = {"schedule": "10s", "frontier": VERSION, "options": options}
    return StreamTable(
        table_id=table_id,
        query="SELECT 1",
        mode=RefreshMode.AUTO,
        when_full=WhenFull.WARN,
        definition="{}",
        **(plain | columns),
    )


def notes_of(given: Iterable[Noted]) -> Notes:
    """Return notes as the catalog would after they were written."""
    changes: dict[tuple[type[Note], str], Note | None] = {(n.kind, n.name): n.note for n in given}
    return NO_NOTES.with_changes(changes)


def with_notes(snapshot: Snapshot, *given: Noted) -> Snapshot:
    """Return a snapshot in which more is noted, or something withdrawn."""
    changes = {(n.kind, n.name): n.note for n in given}
    return replace(snapshot, notes=snapshot.notes.with_changes(changes))


def _table(table_id: str, kind: TableKind, moved: int) -> Table:
    return Table(table_id, table_id.upper(), kind, SCHEMA, 1, moved, 1)
