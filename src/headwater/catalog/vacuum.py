"""Vacuum: what no version that is kept can see.

Kept are all versions from `keep_from` on, and those that are pinned. An entry that was removed at version r is seen by
the versions before r, so it is out of sight when r <= keep_from and no pin lies between its `added` and r. It is also
left alone until it was removed before the time `before`, a grace for readers without a pin.

The order makes a crash at any point harmless: the horizon moves first (from then on nobody can pin an older version),
then the files are deleted, then the rows that named them are forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, exists, func, select, update

from headwater.catalog.connect import Database
from headwater.catalog.reading import FILE_COLUMNS
from headwater.catalog.rows import chunks, file_of
from headwater.catalog.tables import (
    batches,
    commits,
    exports,
    files,
    history,
    leases,
    pins,
    table_schemas,
    table_states,
    tables,
    warehouse,
)
from headwater.model.tables import DataFile

LEASED = ("refresh", "fold", "export")
"""What is done with a table under a lease that has its id in its name."""


def move_horizon(database: Database, keep_from: int) -> None:
    """Stop keeping versions before `keep_from`: from then on they are there for the pins that they have, and for nobody else."""
    database.write(lambda connection: _move_horizon(connection, keep_from))


def horizon(database: Database) -> int:
    """Return the oldest version that is kept for everybody."""
    return int(database.read(lambda connection: connection.execute(select(warehouse.c.horizon)).scalar_one()))


def unneeded_files(database: Database, keep_from: int, before: float) -> list[DataFile]:
    """Return the files that nothing would see if versions were kept from `keep_from` on, each path once. Changes nothing."""
    return database.read(lambda connection: _unneeded_files(connection, database.now, keep_from, before))


def removable_files(database: Database, keep_from: int, before: float) -> list[DataFile]:
    """Move the horizon to `keep_from` and return the files that nothing kept can see, each path once.

    A path is removable when all entries that name it are: a file may serve the base and a batch.
    """

    def work(connection: Connection) -> list[DataFile]:
        _move_horizon(connection, keep_from)
        return _unneeded_files(connection, database.now, keep_from, before)

    return database.write(work)


def _unneeded_files(connection: Connection, now: ColumnElement[float], keep_from: int, before: float) -> list[DataFile]:
    other = files.alias()
    needed = exists().where(other.c.path == files.c.path, ~_unseen(other, now, keep_from, before))
    query = (
        select(*FILE_COLUMNS, files.c.removed)
        .where(_unseen(files, now, keep_from, before), ~needed)
        .order_by(files.c.removed, files.c.path, files.c.role)
    )
    found: dict[str, DataFile] = {}
    for row in connection.execute(query):
        found.setdefault(row.path, file_of(row))
    return list(found.values())


def forget_files(database: Database, file_ids: Iterable[str]) -> None:
    """Forget files that are deleted: all entries that name the paths of `file_ids`."""
    other = files.alias()

    def work(connection: Connection) -> None:
        for part in chunks(file_ids):
            paths = select(other.c.path).where(other.c.id.in_(part))
            connection.execute(delete(files).where(files.c.path.in_(paths), files.c.removed.is_not(None)))

    database.write(work)


def forget_batches(database: Database, keep_from: int, before: float) -> int:
    """Forget the batches, with their inline bytes, that nothing kept can see and whose files are forgotten."""
    has_files = exists().where(files.c.batch_id == batches.c.id)
    statement = delete(batches).where(_unseen(batches, database.now, keep_from, before), ~has_files)

    def work(connection: Connection) -> int:
        _move_horizon(connection, keep_from)
        return connection.execute(statement).rowcount

    return database.write(work)


def forget_tables(
    database: Database, keep_from: int, before: float, remove: Callable[[str], None] | None = None
) -> list[str]:
    """Forget dropped tables that nothing kept can see and whose entries are forgotten; return their ids.

    A table goes together with its auxiliary tables or after them. `remove` is called with each id before it is forgotten for
    good: whoever dies in between leaves a table that the next vacuum removes again.
    """
    child = tables.alias()
    out_of_sight = and_(
        tables.c.dropped <= keep_from,
        tables.c.dropped_at < before,
        ~exists().where(
            pins.c.expires > database.now, pins.c.version >= tables.c.created, pins.c.version < tables.c.dropped
        ),
        ~exists().where(files.c.table_id == tables.c.id),
        ~exists().where(batches.c.table_id == tables.c.id),
        ~exists().where(child.c.parent_id == tables.c.id),
    )

    def work(connection: Connection) -> list[str]:
        _move_horizon(connection, keep_from)
        gone: list[str] = []
        # Twice: once the auxiliary tables are gone their parents can go.
        for _ in range(2):
            found = list(connection.execute(select(tables.c.id).where(out_of_sight)).scalars())
            for part in chunks(found):
                for rows in (table_states, table_schemas, exports, history):
                    connection.execute(delete(rows).where(rows.c.table_id.in_(part)))
                connection.execute(delete(tables).where(tables.c.id.in_(part)))
                names = [f"{work}:{table_id}" for work in LEASED for table_id in part]
                connection.execute(delete(leases).where(leases.c.name.in_(names)))
            gone += found
        if remove is not None:
            for table_id in gone:
                remove(table_id)
        return gone

    return database.write(work)


def forget_versions(database: Database, keep_from: int) -> int:
    """Forget the counters, schemas and times of versions that are not kept; return how many rows went.

    A row of counters is valid until the next one of its table: it goes when that comes at or before `keep_from` and no
    pin lies between.
    """

    def work(connection: Connection) -> int:
        _move_horizon(connection, keep_from)
        gone = sum(
            _forget_superseded(connection, rows, database.now, keep_from) for rows in (table_states, table_schemas)
        )
        return gone + connection.execute(delete(commits).where(commits.c.version < keep_from)).rowcount

    return database.write(work)


def _forget_superseded(connection: Connection, rows: Table, now: ColumnElement[float], keep_from: int) -> int:
    later = rows.alias()
    following = (
        select(func.min(later.c.version))
        .where(later.c.table_id == rows.c.table_id, later.c.version > rows.c.version)
        .correlate(rows)
        .scalar_subquery()
    )
    pinned = (
        exists()
        .where(pins.c.expires > now, pins.c.version >= rows.c.version, pins.c.version < following)
        .correlate(rows)
    )
    return connection.execute(delete(rows).where(rows.c.version < keep_from, following <= keep_from, ~pinned)).rowcount


def forget_history(database: Database, before: float) -> int:
    """Forget the lines of history that ended before the time `before`; return how many."""
    statement = delete(history).where(history.c.finished_at < before)
    return database.write(lambda connection: connection.execute(statement).rowcount)


def _move_horizon(connection: Connection, keep_from: int) -> None:
    """Say that versions before `keep_from` are kept for pins alone, from now on and for ever.

    A horizon that is further already stays: another vacuum was faster, and what this one deletes is part of what that one may.
    """
    row = connection.execute(update(warehouse).values(version=warehouse.c.version).returning(warehouse)).one()
    if not 0 <= keep_from <= row.version:
        raise ValueError(f"cannot keep versions from {keep_from} on, the newest is {row.version}")
    if keep_from > row.horizon:
        connection.execute(update(warehouse).values(horizon=keep_from))


def _unseen(entries: Any, now: ColumnElement[float], keep_from: int, before: float) -> ColumnElement[bool]:
    """Return the condition for an entry that no kept version can see."""
    pinned = exists().where(pins.c.expires > now, pins.c.version >= entries.c.added, pins.c.version < entries.c.removed)
    return and_(entries.c.removed.is_not(None), entries.c.removed <= keep_from, entries.c.removed_at < before, ~pinned)
