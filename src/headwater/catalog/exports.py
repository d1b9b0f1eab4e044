"""Exports: how far the Delta log of each table has followed the catalog."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from headwater.catalog.connect import Database
from headwater.catalog.reading import IDS, head, latest
from headwater.catalog.tables import exports, table_states, tables


def exported(database: Database, table_id: str) -> int:
    """Return the version that the export of a table has reached; 0 before the first one."""
    query = select(exports.c.version).where(exports.c.table_id == table_id)
    return database.read(lambda connection: connection.scalar(query)) or 0


def set_exported(database: Database, table_id: str, version: int) -> None:
    """Say that the export of a table has reached `version`.

    It never goes back: two exporters may finish in any order.
    """
    reached = database.insert(exports).values(table_id=table_id, version=version)
    statement = reached.on_conflict_do_update(
        index_elements=[exports.c.table_id],
        set_={"version": reached.excluded.version},
        where=exports.c.version < reached.excluded.version,
    )

    def work(connection: Connection) -> None:
        # A table that was dropped and forgotten meanwhile needs no export.
        if connection.scalar(select(tables.c.id).where(tables.c.id == table_id)) is not None:
            connection.execute(statement)

    database.write(work)


def export_pending(database: Database, among: Sequence[str] | None = None) -> list[str]:
    """Return the live tables whose base files changed after the version that their export has reached: of all, or among some."""
    asked: dict[str, object] = {"at_version": head(database).version}
    query = (
        select(tables.c.id)
        .select_from(tables)
        .join(table_states, latest(table_states))
        .outerjoin(exports, exports.c.table_id == tables.c.id)
        .where(
            tables.c.dropped.is_(None),
            table_states.c.base_changed > func.coalesce(exports.c.version, 0),
        )
        .order_by(table_states.c.base_changed, tables.c.id)
    )
    if among is not None:
        query = query.where(tables.c.id.in_(IDS))
        asked["ids"] = list(among)
    return database.read(lambda connection: list(connection.execute(query, asked).scalars()))
