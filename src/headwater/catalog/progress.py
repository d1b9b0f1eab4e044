"""What is noted about a stream table outside commits: its status and what its refreshes cost.

Each note moves the revision, so that every process sees it in its next snapshot. A table that was dropped meanwhile has
nothing to note; that is no error.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, update

from headwater.catalog.connect import Database
from headwater.catalog.tables import streams, warehouse
from headwater.model.tables import ACTIVE, REREAD, SUSPENDED


def set_stream_status(database: Database, table_id: str, status: str, last_error: str | None) -> None:
    """Note how a stream table fares."""
    _note(database, table_id, {"status": status, "last_error": last_error})


def set_stream_error(database: Database, table_id: str, last_error: str | None) -> None:
    """Note why the last refresh failed; the status stays."""
    _note(database, table_id, {"last_error": last_error})


def suspend_stream(database: Database, table_id: str, last_error: str) -> None:
    """Note that a stream table is not to be refreshed, unless it must read its sources anew: that must not be forgotten."""
    _note(database, table_id, {"status": SUSPENDED, "last_error": last_error}, streams.c.status != REREAD)


def resume_stream(database: Database, table_id: str) -> None:
    """Note that a suspended stream table may be refreshed again."""
    _note(database, table_id, {"status": ACTIVE, "last_error": None}, streams.c.status == SUSPENDED)


def set_costs(database: Database, table_id: str, full_ms: float | None, diff_ms: float | None) -> None:
    """Note what a full and a differential refresh cost."""
    _note(database, table_id, {"full_ms": full_ms, "diff_ms": diff_ms})


def _note(database: Database, table_id: str, values: dict[str, Any], *only: ColumnElement[bool]) -> None:
    def work(connection: Connection) -> None:
        # The row of `warehouse` first, as every commit does: one order of locks means no deadlock.
        taken = update(warehouse).values(revision=warehouse.c.revision + 1)
        now = connection.execute(taken.returning(warehouse.c.version + warehouse.c.revision)).scalar_one()
        mine = update(streams).where(streams.c.table_id == table_id, *only)
        connection.execute(mine.values(progressed=now, **values))

    database.write(work)
