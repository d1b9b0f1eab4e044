"""Freshness: what stream tables have not seen yet, what refreshes came to in all, and when tables changed.

All of it is about the present. Vacuum forgets when old versions were made; where it did, the oldest version that is remembered stands
in for them: a change may then look younger than it is, never older.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Select, case, func, select

from headwater.catalog.connect import Database
from headwater.catalog.tables import commits, dependencies, history, streams, table_states
from headwater.model.reports import RefreshTotals, Unseen
from headwater.model.tables import RefreshAction


def _first_unseen() -> Select[Any]:
    """Return the query for the first version after each frontier that changed the source.

    The counters of a table have a row for every commit that touched it, and the rows after a frontier follow each other in the key:
    the search ends at the first one that tells of a change.
    """
    read_upto = func.coalesce(dependencies.c.frontier, streams.c.frontier)
    first = (
        select(table_states.c.changed)
        .where(
            table_states.c.table_id == dependencies.c.source_id,
            table_states.c.version > read_upto,
            table_states.c.changed > read_upto,
        )
        .order_by(table_states.c.version)
        .limit(1)
        .correlate(dependencies, streams)
        .scalar_subquery()
    )
    return (
        select(dependencies.c.stream_id, dependencies.c.source_id, first.label("version"))
        .select_from(dependencies)
        .join(streams, streams.c.table_id == dependencies.c.stream_id)
    )


def _committed(version: ColumnElement[Any]) -> ColumnElement[float]:
    """Return when a version was made, or the oldest one after it of which that is known."""
    return (
        select(commits.c.committed_at)
        .where(commits.c.version >= version)
        .order_by(commits.c.version)
        .limit(1)
        .scalar_subquery()
    )


_FIRST = _first_unseen().subquery()
FIRST_UNSEEN = select(
    _FIRST.c.stream_id, _FIRST.c.source_id, _FIRST.c.version, _committed(_FIRST.c.version).label("committed_at")
).where(_FIRST.c.version.is_not(None))

CHANGE_TIMES = (
    select(commits.c.committed_at)
    .select_from(table_states)
    .join(commits, commits.c.version == table_states.c.version)
    .where(table_states.c.changed == table_states.c.version)
    .order_by(table_states.c.version.desc())
)


def oldest_unseen(database: Database) -> dict[tuple[str, str], Unseen]:
    """Return, for each stream table and source, the first change that the stream table has not read. One query for all.

    Left out are the pairs of which everything was read, and stream tables that were never populated.
    """
    query = FIRST_UNSEEN.add_columns(database.now.label("now"))
    rows = database.read(lambda connection: connection.execute(query).all())
    return {
        (r.stream_id, r.source_id): Unseen(
            r.version, 0.0 if r.committed_at is None else max(0.0, r.now - r.committed_at)
        )
        for r in rows
    }


def refresh_totals(database: Database) -> RefreshTotals:
    """Return the sums over the history that is kept, in one query."""
    completed, failed = history.c.status == "COMPLETED", history.c.status == "FAILED"

    def count(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)

    def total(value: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.coalesce(func.sum(case((completed, value), else_=0)), 0)

    in_full = history.c.action.in_((RefreshAction.FULL.value, RefreshAction.INITIAL.value))
    query = select(
        count(completed).label("completed"),
        count(failed).label("failed"),
        count(completed & (history.c.action == RefreshAction.DIFFERENTIAL.value)).label("differential"),
        count(completed & in_full).label("full"),
        total(history.c.rows_in).label("rows_in"),
        total(history.c.rows_inserted + history.c.rows_deleted).label("rows_changed"),
        total(history.c.bytes_written).label("bytes_written"),
        total(history.c.spark_jobs).label("spark_jobs"),
        total(history.c.duration_ms).label("milliseconds"),
    )
    found = database.read(lambda connection: connection.execute(query).mappings().one())
    values: dict[str, Any] = {n: float(v) if n == "milliseconds" else int(v) for n, v in found.items()}
    return RefreshTotals(**values)


def change_times(database: Database, table_id: str, limit: int) -> list[float]:
    """Return when the newest `limit` commits were made that changed the rows of a table, the oldest first."""
    query = CHANGE_TIMES.where(table_states.c.table_id == table_id).limit(limit)
    return database.read(lambda connection: list(connection.execute(query).scalars()))[::-1]
