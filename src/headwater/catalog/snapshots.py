"""Snapshots, kept while nothing changes.

The newest snapshot is kept with the head it belongs to. As long as the head stays, asking for it costs one query of
three numbers. When only versions and revisions moved on, and no definition, just the counters that are newer are read:
a commit on one of a thousand tables does not read the other 999 again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from threading import Lock
from types import MappingProxyType
from typing import Any

from sqlalchemy import BigInteger, Connection, bindparam, select

from headwater.catalog.connect import Database
from headwater.catalog.noting import newer_notes, read_notes
from headwater.catalog.reading import AT, LIVES, check_version, head, latest
from headwater.catalog.records import Head, Snapshot
from headwater.catalog.rows import loaded_hash, schema_of, stream_of
from headwater.catalog.tables import dependencies, streams, table_schemas, table_states, tables, warehouse
from headwater.model.tables import StreamTable, Table, TableKind

COUNTERS = (
    table_states.c.moved,
    table_states.c.base_version,
    table_states.c.row_count,
    table_states.c.hash,
    table_states.c.next_row_id,
    table_states.c.changed,
)

LIVE = (
    select(
        tables.c.id,
        tables.c.name,
        tables.c.kind,
        tables.c.parent_id,
        tables.c.created,
        table_schemas.c.schema,
        *COUNTERS,
    )
    .select_from(tables)
    .join(table_states, latest(table_states))
    .join(table_schemas, latest(table_schemas))
    .where(LIVES)
    .order_by(tables.c.created, tables.c.id)
)

NEWER = (
    select(table_states.c.table_id, *COUNTERS)
    .where(table_states.c.version > bindparam("after", type_=BigInteger), table_states.c.version <= AT)
    .order_by(table_states.c.version)
)

STREAMS = select(streams)

RECENT = streams.c.progressed > bindparam("progressed", type_=BigInteger)

PROGRESS = select(
    streams.c.table_id,
    streams.c.frontier,
    streams.c.status,
    streams.c.full_ms,
    streams.c.diff_ms,
    streams.c.last_error,
    streams.c.refreshed_at,
    streams.c.refresh_ms,
).where(RECENT)

EDGES = select(dependencies.c.stream_id, dependencies.c.source_id).order_by(
    dependencies.c.stream_id, dependencies.c.position
)

FRONTIERS = select(dependencies.c.stream_id, dependencies.c.source_id, dependencies.c.frontier).where(
    dependencies.c.frontier.is_not(None)
)

RECENT_FRONTIERS = FRONTIERS.join(streams, streams.c.table_id == dependencies.c.stream_id).where(RECENT)

NUMBERS = select(warehouse.c.version, warehouse.c.generation, warehouse.c.revision)


class Snapshots:
    """Reads snapshots and keeps the newest one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._kept: tuple[Head, Snapshot] | None = None

    def newest(self) -> Snapshot:
        """Return the snapshot of the newest version."""
        now = head(self._database)
        kept = self._kept
        if kept is not None and kept[0] == now:
            return kept[1]
        read = self._database.read_snapshot(lambda connection: _newest(connection, kept))
        with self._lock:
            # Threads may finish in any order; what is kept only moves forward.
            if self._kept is None or _order(read[0]) > _order(self._kept[0]):
                self._kept = read
        return read[1]

    def at(self, version: int) -> Snapshot:
        """Return the snapshot of `version`."""
        kept = self._kept
        if kept is not None and kept[0].version == version and head(self._database) == kept[0]:
            return kept[1]

        def work(connection: Connection) -> Snapshot:
            check_version(connection, self._database.now, version)
            return _read(connection, version, _head(connection).generation)

        return self._database.read_snapshot(work)

    def kept_at(self, version: int) -> Snapshot | None:
        """Return the snapshot of `version` if it needs no query.

        Its counters are right; its streams may have moved on.
        """
        kept = self._kept
        return kept[1] if kept is not None and kept[0].version == version else None


def _order(found: Head) -> tuple[int, int]:
    return found.version, found.revision


def _head(connection: Connection) -> Head:
    return Head(*connection.execute(NUMBERS).one())


def _newest(connection: Connection, kept: tuple[Head, Snapshot] | None) -> tuple[Head, Snapshot]:
    now = _head(connection)
    if kept is not None and kept[0].generation == now.generation and kept[0].version <= now.version:
        return now, _advanced(connection, *kept, now.version)
    return now, _read(connection, now.version, now.generation)


def _read(connection: Connection, version: int, generation: int) -> Snapshot:
    """Read everything that a snapshot holds."""
    live: dict[str, Table] = {}
    changed: dict[str, int] = {}
    found = connection.execute(LIVE, {"at_version": version})
    for id_, name, kind, parent_id, created, schema, moved, base, rows, hash_, row_id, change in found:
        live[id_] = Table(
            id_,
            name,
            TableKind(kind),
            schema_of(schema),
            created,
            moved,
            base,
            parent_id,
            rows,
            loaded_hash(hash_),
            row_id,
        )
        changed[id_] = change
    read = _frontiers(connection.execute(FRONTIERS))
    defined = [stream_of(row, read.get(row[0], {})) for row in connection.execute(STREAMS)]
    edges = [(stream, source) for stream, source in connection.execute(EDGES) if stream in live]
    return Snapshot(
        version=version,
        generation=generation,
        tables=MappingProxyType(live),
        changed=MappingProxyType(changed),
        streams=MappingProxyType({stream.table_id: stream for stream in defined if stream.table_id in live}),
        sources=_grouped(edges),
        dependents=_grouped((source, stream) for stream, source in edges),
        names=MappingProxyType({table.name.casefold(): table.id for table in live.values()}),
        notes=read_notes(connection),
        parts=_grouped((table.parent_id, table.id) for table in live.values() if table.parent_id is not None),
    )


def _advanced(connection: Connection, head: Head, old: Snapshot, version: int) -> Snapshot:
    """Return `old`, read at `head`, moved on to `version`; definitions are the same, counters and frontiers may differ."""
    live = dict(old.tables)
    changed = dict(old.changed)
    for table_id, moved, base, rows, hash_, row_id, change in connection.execute(
        NEWER, {"after": old.version, "at_version": version}
    ):
        live[table_id] = replace(
            live[table_id],
            moved=moved,
            base_version=base,
            row_count=rows,
            hash=loaded_hash(hash_),
            next_row_id=row_id,
        )
        changed[table_id] = change
    return replace(
        old,
        version=version,
        tables=MappingProxyType(live),
        changed=MappingProxyType(changed),
        streams=_progressed(connection, head.version + head.revision, old.streams),
        notes=newer_notes(connection, head.version + head.revision, old.notes),
    )


def _progressed(connection: Connection, since: int, old: Mapping[str, StreamTable]) -> Mapping[str, StreamTable]:
    """Return the stream tables of which those that progressed since then are read again."""
    rows = connection.execute(PROGRESS, {"progressed": since}).all()
    if not rows:
        return old
    read = _frontiers(connection.execute(RECENT_FRONTIERS, {"progressed": since}))
    found = dict(old)
    for table_id, frontier, status, full_ms, diff_ms, last_error, refreshed_at, refresh_ms in rows:
        found[table_id] = replace(
            old[table_id],
            frontier=frontier,
            status=status,
            full_ms=full_ms,
            diff_ms=diff_ms,
            last_error=last_error,
            refreshed_at=refreshed_at,
            refresh_ms=refresh_ms,
            frontiers=MappingProxyType(read.get(table_id, {})),
        )
    return MappingProxyType(found)


def _frontiers(rows: Iterable[Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for stream, source, frontier in rows:
        found.setdefault(stream, {})[source] = frontier
    return found


def _grouped(pairs: Iterable[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for key, value in pairs:
        found.setdefault(key, []).append(value)
    return MappingProxyType({key: tuple(values) for key, values in found.items()})
