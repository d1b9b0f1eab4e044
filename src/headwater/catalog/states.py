"""The counters of the tables that a commit touches: read once, changed in memory, written as one new row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select

from headwater.catalog.reading import IDS, latest
from headwater.catalog.rows import chunks, loaded_hash, stored_hash
from headwater.catalog.tables import table_states, tables
from headwater.errors import BusyError

STATES = (
    select(table_states)
    .select_from(tables)
    .join(table_states, latest(table_states))
    .where(tables.c.id.in_(IDS), tables.c.dropped.is_(None))
)


@dataclass(slots=True)
class State:
    """The counters of one table, as the changes of this commit make them; `hash` is unsigned."""

    moved: int
    changed: int
    base_version: int
    base_changed: int
    row_count: int
    hash: int
    next_row_id: int
    is_touched: bool = False


def load_states(connection: Connection, table_ids: Iterable[str], version: int) -> dict[str, State]:
    """Return the counters of those of `table_ids` that exist and are not dropped."""
    found: dict[str, State] = {}
    for part in chunks(table_ids):
        for row in connection.execute(STATES, {"ids": part, "at_version": version}):
            found[row.table_id] = State(
                row.moved,
                row.changed,
                row.base_version,
                row.base_changed,
                row.row_count,
                loaded_hash(row.hash),
                row.next_row_id,
            )
    return found


def write_states(connection: Connection, states: Mapping[str, State], version: int) -> None:
    """Write the counters that were touched, valid from `version` on."""
    rows = [
        {
            "table_id": table_id,
            "version": version,
            "moved": state.moved,
            "changed": state.changed,
            "base_version": state.base_version,
            "base_changed": state.base_changed,
            "row_count": state.row_count,
            "hash": stored_hash(state.hash),
            "next_row_id": state.next_row_id,
        }
        for table_id, state in states.items()
        if state.is_touched
    ]
    if rows:
        connection.execute(insert(table_states), rows)


def check_live(connection: Connection, table_ids: Iterable[str], states: Mapping[str, State]) -> None:
    """Refuse as busy a table that is gone: it was there when the caller looked."""
    for table_id in table_ids:
        if table_id not in states:
            raise BusyError(
                f'table "{name_of(connection, table_id)}" was dropped by somebody else',
                hint="Nothing was changed; look at the tables again.",
            )


def name_of(connection: Connection, table_id: str) -> str:
    """Return a table's name for a message, dropped or not; its id if there is no such table."""
    return connection.scalar(select(tables.c.name).where(tables.c.id == table_id)) or table_id
