"""Commit: data, frontiers and history become visible together, or nothing does.

    1. take the next version        a row lock (SQLite: the write lock), so commits pass one by one
    2. check what was relied on     leases, generation, unmoved tables, open writes; any miss rolls back
    3. apply the changes            `applying.py`
    4. leave the marks              history, the commit's uid, writes no longer open

The version is a column, not a sequence: a commit that rolls back gives its number back, so versions are dense and a
reader that sees version v sees all versions before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import uuid4

from sqlalchemy import BigInteger, Connection, bindparam, delete, insert, select, update

from headwater.catalog.applying import Edit, added_files, touched
from headwater.catalog.connect import Database
from headwater.catalog.entries import check_written
from headwater.catalog.leases import release_in
from headwater.catalog.records import WriteState
from headwater.catalog.rows import record_row
from headwater.catalog.states import State, check_live, load_states, name_of
from headwater.catalog.tables import commits, history, leases, warehouse, writes
from headwater.errors import BusyError, LeaseLostError
from headwater.model.commit import Commit, CreateTable, DefineStream, DropTable, LeaseToken, SetSchema
from headwater.model.tables import RefreshRecord

DEFINITIONS = (CreateTable, DropTable, SetSchema, DefineStream)
"""The changes after which a plan made before may be wrong."""


class Committer:
    """Applies commits. It holds the statement they all begin with."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._take_version = (
            update(warehouse)
            .values(
                version=warehouse.c.version + 1, generation=warehouse.c.generation + bindparam("step", type_=BigInteger)
            )
            .returning(warehouse.c.version, warehouse.c.generation, warehouse.c.revision, database.now)
        )

    def publish(self, commit: Commit) -> int:
        """Apply `commit` and return its version."""
        uid = uuid4().hex

        def landed(connection: Connection) -> bool:
            # Locking the row first waits for the end of a transaction that the server may still be working on.
            connection.execute(select(warehouse.c.version).with_for_update())
            return connection.scalar(select(commits.c.version).where(commits.c.uid == uid)) is not None

        return self._database.write(lambda connection: self._publish(connection, commit, uid), landed)

    def _publish(self, connection: Connection, commit: Commit, uid: str) -> int:
        step = int(any(isinstance(change, DEFINITIONS) for change in commit.changes))
        version, generation, revision, now = connection.execute(self._take_version, {"step": step}).one()
        _check_generation(commit, generation - step)
        _check_leases(connection, commit.leases, now)
        states = load_states(connection, {*commit.unmoved, *touched(commit.changes)}, version)
        _check_unmoved(connection, commit, states)
        _close_writes(connection, commit.write_ids)
        new_files = (file for change in commit.changes for file in added_files(change))
        check_written(connection, new_files, frozenset(commit.write_ids))
        edit = Edit(connection, version, revision, now, states)
        for change in commit.changes:
            edit.apply(change)
        edit.finish()
        if commit.releases:
            release_in(connection, commit.leases)
        _write_history(connection, commit.history, version)
        connection.execute(insert(commits), {"version": version, "uid": uid, "committed_at": now})
        return int(version)


def record_refresh(database: Database, entry: RefreshRecord) -> None:
    """Add a line of history that belongs to no commit."""
    database.write(lambda connection: _write_history(connection, (entry,), None))


def _check_generation(commit: Commit, generation: int) -> None:
    if commit.generation is not None and commit.generation != generation:
        raise BusyError(
            "a table was created, changed or dropped by somebody else",
            detail=f"Definitions were read at generation {commit.generation}, the catalog is at {generation}.",
            hint="Nothing was changed; try again.",
        )


def _check_leases(connection: Connection, tokens: Iterable[LeaseToken], now: float) -> None:
    wanted = {token.name: token for token in tokens}
    if not wanted:
        return
    # Shared row locks: nobody takes a lease over between this check and the commit.
    query = select(leases).where(leases.c.name.in_(wanted)).order_by(leases.c.name).with_for_update(read=True)
    held = {row.name: row for row in connection.execute(query)}
    for name, token in wanted.items():
        row = held.get(name)
        if row is None or row.number != token.number or row.owner != token.owner:
            raise LeaseLostError(
                f'the lease "{name}" was lost',
                detail=f"{token.owner} held number {token.number}; it was released or taken over since.",
                hint="Nothing was committed; the new holder carries on.",
            )
        if row.expires <= now:
            raise LeaseLostError(
                f'the lease "{name}" expired',
                detail=f"{token.owner} renewed it last for a time that ended {now - row.expires:.1f} s ago.",
                hint="Nothing was committed; try again.",
            )


def _check_unmoved(connection: Connection, commit: Commit, states: Mapping[str, State]) -> None:
    check_live(connection, commit.unmoved, states)
    for table_id, moved in commit.unmoved.items():
        found = states[table_id].moved
        if found != moved:
            raise BusyError(
                f'table "{name_of(connection, table_id)}" was changed by somebody else',
                detail=f"It was read as of version {moved} and has moved to version {found}.",
                hint="Nothing was changed; try again.",
            )


def _close_writes(connection: Connection, write_ids: tuple[str, ...]) -> None:
    """End the writes of this commit.

    Deleting the rows settles the race with vacuum: only one of the two finds them open.
    """
    if not write_ids:
        return
    closed = connection.execute(
        delete(writes).where(writes.c.id.in_(write_ids), writes.c.state == WriteState.OPEN.value).returning(writes.c.id)
    ).scalars()
    lost = sorted(set(write_ids) - set(closed))
    if lost:
        raise LeaseLostError(
            f"{len(lost)} of the commit's writes are no longer open",
            detail=f"Write {lost[0]} was committed, discarded, or taken by vacuum after it had expired.",
            hint="Nothing was committed; write the files again under a new write.",
        )


def _write_history(connection: Connection, records: Iterable[RefreshRecord], version: int | None) -> None:
    lines = [record_row(replace(entry, version=version) if version is not None else entry) for entry in records]
    if lines:
        connection.execute(insert(history), lines)
