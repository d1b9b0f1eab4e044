"""Reading: where the catalog stands, snapshots, manifests, history.

An entry stands at version v when `added <= v` and it is not removed or removed after v. As no entry is ever
overwritten, every statement that asks for a version gets the same answer at any time, whatever is committed meanwhile;
that is why no read needs a long transaction. Versions before the horizon are an exception: vacuum forgets them unless
they are pinned. So the check that a version is kept and the reading of its entries see the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Table,
    Text,
    bindparam,
    func,
    select,
    union_all,
)

from headwater.catalog.connect import Database
from headwater.catalog.records import EMPTY_MANIFEST, Head, Manifest
from headwater.catalog.rows import batch_of, chunks, file_of, record_of
from headwater.catalog.tables import batches, files, history, inline_rows, pins, table_states, tables, warehouse
from headwater.errors import UnknownVersionError
from headwater.model.tables import Batch, DataFile, FileRole, RefreshRecord

HEAD = "SELECT version, generation, revision FROM warehouse"

IDS: BindParameter[str] = bindparam("ids", expanding=True, type_=Text)
AT = bindparam("at_version", type_=BigInteger)
"""The parameters of the statements below, which are built once: building one takes longer than running it."""

FILE_COLUMNS = (
    files.c.id,
    files.c.table_id,
    files.c.role,
    files.c.path,
    files.c.rows,
    files.c.bytes,
    files.c.write_id,
    files.c.stats,
    files.c.batch_id,
    files.c.added,
)

BATCH_COLUMNS = (
    batches.c.id,
    batches.c.table_id,
    batches.c.format,
    batches.c.inserts,
    batches.c.deletes,
    batches.c.bytes,
    batches.c.merged,
    batches.c.first_version,
    batches.c.last_version,
    batches.c.added,
)


def latest(versioned: Table) -> ColumnElement[bool]:
    """Return the join condition of `tables` with the row of `versioned` that counts at the version `AT`.

    The newest version is found from the id in `tables`, not from the row itself: so both databases look it up in the index
    instead of trying every row that the table ever had.
    """
    other = versioned.alias()
    newest = select(func.max(other.c.version)).where(other.c.table_id == tables.c.id, other.c.version <= AT)
    return (versioned.c.table_id == tables.c.id) & (versioned.c.version == newest.correlate(tables).scalar_subquery())


def _standing(entries: Table, columns: Sequence[ColumnElement[Any]]) -> CompoundSelect[Any]:
    """Return the query for the entries of the tables `IDS` that stand at the version `AT`.

    Two searches of the index (table_id, removed): what was never removed, and what was removed since. Neither touches the
    entries that were removed before, which are most of them.
    """
    mine = select(*columns).where(entries.c.table_id.in_(IDS), entries.c.added <= AT)
    return union_all(mine.where(entries.c.removed.is_(None)), mine.where(entries.c.removed > AT))


LIVES = (tables.c.created <= AT) & (tables.c.dropped.is_(None) | (tables.c.dropped > AT))
"""The condition for a table that exists at the version `AT`."""

STANDING_FILES = _standing(files, FILE_COLUMNS)
STANDING_BATCHES = _standing(batches, BATCH_COLUMNS)

BOUNDS = select(warehouse.c.version, warehouse.c.horizon)

INLINE = select(inline_rows.c.batch_id, inline_rows.c.data).where(inline_rows.c.batch_id.in_(IDS))

CHANGED = (
    select(table_states.c.table_id, table_states.c.changed)
    .select_from(tables)
    .join(table_states, latest(table_states))
    .where(tables.c.id.in_(IDS), LIVES)
)


def head(database: Database) -> Head:
    """Return where the catalog stands, in one small query."""
    return Head(*database.first_row(HEAD))


def check_version(connection: Connection, now: ColumnElement[float], version: int) -> None:
    """Refuse a version that is not made yet, or no longer kept."""
    newest, horizon = connection.execute(BOUNDS).one()
    if not 0 <= version <= newest:
        raise UnknownVersionError(
            f"version {version} does not exist",
            detail=f"The newest version is {newest}.",
            hint="Ask for that one or an older one.",
        )
    if version < horizon and not connection.scalar(
        select(pins.c.id).where(pins.c.version == version, pins.c.expires > now).limit(1)
    ):
        raise UnknownVersionError(
            f"version {version} is no longer kept",
            detail=f"The oldest version that is kept is {horizon}.",
            hint="Ask for a newer one; the retention setting says how long versions are kept.",
        )


def manifests(database: Database, table_ids: Iterable[str], version: int) -> dict[str, Manifest]:
    """Return what each table consists of at `version`; a table without entries has an empty manifest."""
    wanted = list(dict.fromkeys(table_ids))
    if not wanted:
        return {}

    def work(connection: Connection) -> tuple[list[DataFile], list[Batch]]:
        check_version(connection, database.now, version)
        found_files: list[DataFile] = []
        found_batches: list[Batch] = []
        for part in chunks(wanted):
            asked = {"ids": part, "at_version": version}
            found_files += map(file_of, connection.execute(STANDING_FILES, asked))
            found_batches += map(batch_of, connection.execute(STANDING_BATCHES, asked))
        return found_files, found_batches

    found = _by_table(*database.read_snapshot(work))
    return {table_id: found.get(table_id, EMPTY_MANIFEST) for table_id in wanted}


def _by_table(found_files: list[DataFile], found_batches: list[Batch]) -> dict[str, Manifest]:
    base: dict[str, list[DataFile]] = {}
    tail: dict[str, dict[str, list[DataFile]]] = {}
    changes: dict[str, list[Batch]] = {}
    for file in sorted(found_files, key=lambda file: (file.added, file.path)):
        if file.role is FileRole.BASE:
            base.setdefault(file.table_id, []).append(file)
        elif file.batch_id is not None:
            tail.setdefault(file.table_id, {}).setdefault(file.batch_id, []).append(file)
    for batch in sorted(found_batches, key=lambda batch: (batch.first_version, batch.last_version, batch.id)):
        changes.setdefault(batch.table_id, []).append(batch)
    return {
        table_id: Manifest(
            tuple(base.get(table_id, ())),
            tuple(changes.get(table_id, ())),
            {batch_id: tuple(of_batch) for batch_id, of_batch in tail.get(table_id, {}).items()},
        )
        for table_id in base.keys() | changes.keys()
    }


def inline(database: Database, batch_ids: Iterable[str]) -> dict[str, bytes]:
    """Return the bytes of inline batches; a batch that is not inline is left out."""

    def work(connection: Connection) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for part in chunks(batch_ids):
            found.update((batch_id, bytes(data)) for batch_id, data in connection.execute(INLINE, {"ids": part}))
        return found

    return database.read(work)


def changes_of(database: Database, table_ids: Iterable[str], upto: int) -> dict[str, int]:
    """Return, for each table that lives at version `upto`, the last version up to it that changed its rows."""

    def work(connection: Connection) -> dict[str, int]:
        check_version(connection, database.now, upto)
        found: dict[str, int] = {}
        for part in chunks(table_ids):
            rows = connection.execute(CHANGED, {"ids": part, "at_version": upto})
            found.update((table_id, changed) for table_id, changed in rows)
        return found

    return database.read_snapshot(work)


def waiting_rows(database: Database, pairs: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Return, for tables and versions, how many change rows stand after that version.

    A merged batch that begins before the version counts whole: the number is an upper bound there.
    """
    asked = list(dict.fromkeys(pairs))
    if not asked:
        return {}
    oldest: dict[str, int] = {}
    for table_id, after in asked:
        oldest[table_id] = min(after, oldest.get(table_id, after))
    query = select(batches.c.table_id, batches.c.last_version, (batches.c.inserts + batches.c.deletes)).where(
        batches.c.table_id.in_(IDS),
        batches.c.removed.is_(None),
        batches.c.last_version > bindparam("after", type_=BigInteger),
    )

    def work(connection: Connection) -> dict[tuple[str, int], int]:
        found = dict.fromkeys(asked, 0)
        after_of: dict[str, list[int]] = {}
        for table_id, after in asked:
            after_of.setdefault(table_id, []).append(after)
        for part in chunks(oldest):
            for table_id, last, rows in connection.execute(query, {"ids": part, "after": min(oldest.values())}):
                for after in after_of[table_id]:
                    if last > after:
                        found[table_id, after] += rows
        return found

    return database.read(work)


def refresh_records(database: Database, table_id: str | None, limit: int) -> list[RefreshRecord]:
    """Return the newest `limit` lines of history, newest first, of one table or of all."""
    query: Select[Any] = select(history).order_by(history.c.id.desc()).limit(limit)
    if table_id is not None:
        query = query.where(history.c.table_id == table_id)
    return database.read(lambda connection: [record_of(row) for row in connection.execute(query)])
