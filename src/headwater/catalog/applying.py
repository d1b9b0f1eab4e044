"""Applying the changes of one commit, in their order.

Nothing here may look at the caller's snapshot: what a change relies on is in its record and is checked against the
database, inside the transaction. A contradiction within the commit itself is a `ValueError`: trying again would not
help.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from sqlalchemy import Connection, delete, insert, select, update

from headwater.catalog.entries import Entries
from headwater.catalog.rows import HASH_RANGE
from headwater.catalog.states import State, check_live, name_of, write_states
from headwater.catalog.tables import dependencies, notes, streams, table_schemas, tables, warehouse
from headwater.errors import BusyError, CheckFailedError, DuplicateTableError, HasDependentsError
from headwater.model.commit import (
    AddBatch,
    Change,
    CreateTable,
    DefineStream,
    DropTable,
    MoveFrontier,
    ReplaceBase,
    ReplaceBatches,
    SetSchema,
)
from headwater.model.schema import TableSchema
from headwater.model.tables import BatchFormat, DataFile, FileRole

ACTIVE = "ACTIVE"


def touched_tables(change: Change) -> tuple[str, ...]:
    """Return the ids of the tables whose counters `change` needs."""
    match change:
        case CreateTable():
            return () if change.table.parent_id is None else (change.table.parent_id,)
        case AddBatch():
            return (change.batch.table_id,)
        case DefineStream():
            return (change.table_id, *change.sources)
        case DropTable() | SetSchema() | ReplaceBase() | ReplaceBatches() | MoveFrontier():
            return (change.table_id,)
        case _:
            assert_never(change)


def added_files(change: Change) -> tuple[DataFile, ...]:
    """Return the files that `change` brings."""
    match change:
        case AddBatch() | ReplaceBatches():
            return change.files
        case ReplaceBase():
            return change.add
        case CreateTable() | DropTable() | SetSchema() | DefineStream() | MoveFrontier():
            return ()
        case _:
            assert_never(change)


class Edit:
    """The changes of one commit at work on the counters of the tables it touches."""

    def __init__(
        self, connection: Connection, version: int, revision: int, now: float, states: dict[str, State]
    ) -> None:
        self._connection = connection
        self._version = version
        self._progressed = version + revision
        self._now = now
        self._states = states
        self._entries = Entries(connection, version, now)
        self._dropped: set[str] = set()

    def apply(self, change: Change) -> None:
        """Apply one change."""
        match change:
            case CreateTable():
                self._create_table(change)
            case DropTable():
                self._drop_table(change)
            case SetSchema():
                self._set_schema(change)
            case AddBatch():
                self._add_batch(change)
            case ReplaceBase():
                self._replace_base(change)
            case ReplaceBatches():
                self._replace_batches(change)
            case DefineStream():
                self._define_stream(change)
            case MoveFrontier():
                self._move_frontier(change)
            case _:
                assert_never(change)

    def finish(self) -> None:
        """Write the collected entries and counters."""
        both = self._dropped & self._entries.tables()
        if both:
            raise ValueError(f"tables get rows and are dropped in one commit: {sorted(both)}")
        self._check_dependents()
        self._entries.write()
        write_states(self._connection, self._states, self._version)

    def _state(self, table_id: str) -> State:
        check_live(self._connection, (table_id,), self._states)
        state = self._states[table_id]
        state.is_touched = True
        return state

    def _create_table(self, change: CreateTable) -> None:
        table = change.table
        if table.parent_id is not None:
            check_live(self._connection, (table.parent_id,), self._states)
        name_key = table.name.casefold()
        query = select(tables.c.name).where(tables.c.name_key == name_key, tables.c.dropped.is_(None))
        taken = self._connection.scalar(query)
        if taken is not None:
            raise DuplicateTableError(
                f'table "{taken}" exists already',
                detail=None if taken == table.name else "Names are compared without letter case.",
                hint="Choose another name, or drop that table first.",
            )
        row = {"id": table.id, "name": table.name, "name_key": name_key, "kind": table.kind.value}
        self._connection.execute(
            insert(tables), {**row, "parent_id": table.parent_id, "created": self._version, "dropped": None}
        )
        self._write_schema(table.id, table.schema)
        self._states[table.id] = State(
            moved=self._version,
            changed=0,
            base_version=self._version,
            base_changed=0,
            row_count=0,
            hash=0,
            next_row_id=table.next_row_id,
            is_touched=True,
        )

    def _drop_table(self, change: DropTable) -> None:
        check_live(self._connection, (change.table_id,), self._states)
        family = (tables.c.id == change.table_id) | (tables.c.parent_id == change.table_id)
        ended = (
            update(tables)
            .where(family, tables.c.dropped.is_(None))
            .values(dropped=self._version, dropped_at=self._now)
            .returning(tables.c.id)
        )
        gone = list(self._connection.execute(ended).scalars())
        self._entries.end_tables(gone)
        self._connection.execute(delete(streams).where(streams.c.table_id.in_(gone)))
        self._connection.execute(delete(dependencies).where(dependencies.c.stream_id.in_(gone)))
        # Whole rows: the generation moves, so nobody goes on from a snapshot that knows them.
        self._connection.execute(delete(notes).where(notes.c.name.in_(gone)))
        for table_id in gone:
            self._states.pop(table_id, None)
        self._dropped.update(gone)

    def _set_schema(self, change: SetSchema) -> None:
        self._state(change.table_id).moved = self._version
        self._write_schema(change.table_id, change.schema)

    def _write_schema(self, table_id: str, schema: TableSchema) -> None:
        row = {"table_id": table_id, "version": self._version, "schema": schema.to_json()}
        self._connection.execute(
            delete(table_schemas).where(table_schemas.c.table_id == table_id, table_schemas.c.version == self._version)
        )
        self._connection.execute(insert(table_schemas), row)

    def _add_batch(self, change: AddBatch) -> None:
        batch = replace(change.batch, first_version=self._version, last_version=self._version)
        state = self._state(batch.table_id)
        self._entries.add_batch(batch, change.files)
        if change.into_base:
            self._extend_base(change, state)
        elif state.base_version == self._version:
            # A base at this version would claim to hold these rows. It may go back only while it is still as it was.
            if state.base_changed == self._version:
                raise ValueError(f"the rows of one commit go into the base of {batch.table_id} all, or none of them")
            state.base_version = self._version - 1
        state.moved = state.changed = self._version
        state.row_count += batch.inserts - batch.deletes
        state.hash = (state.hash + change.hash_change) % HASH_RANGE
        if change.next_row_id is not None:
            state.next_row_id = change.next_row_id
        if state.row_count < 0:
            raise CheckFailedError(
                f'table "{name_of(self._connection, batch.table_id)}" would have {state.row_count} rows',
                detail=f"The change deletes {batch.deletes} rows, more than there are.",
                hint="Nothing was committed. `verify` shows how the table differs from its query.",
            )

    def _extend_base(self, change: AddBatch, state: State) -> None:
        """Let the files of an insert batch be base files too."""
        table_id = change.batch.table_id
        if change.batch.format is not BatchFormat.INSERT:
            raise ValueError(f"batch {change.batch.id} has change columns, its files cannot be base files")
        if state.changed > state.base_version:
            raise ValueError(
                f"the base of table {table_id} holds version {state.base_version}, but its rows changed at version "
                f"{state.changed}: a batch cannot go into it before the changes between are folded"
            )
        self._entries.add_files(table_id, change.files, FileRole.BASE, change.batch.id)
        state.base_version = self._version
        state.base_changed = self._version

    def _replace_base(self, change: ReplaceBase) -> None:
        state = self._state(change.table_id)
        if state.base_version != change.expected_base_version:
            raise BusyError(
                f'the base of table "{name_of(self._connection, change.table_id)}" was rewritten by somebody else',
                detail=f"It held version {change.expected_base_version} and holds {state.base_version} now.",
                hint="Nothing was changed; try again.",
            )
        if not change.expected_base_version <= change.base_version < self._version:
            raise ValueError(
                f"a base cannot go from version {change.expected_base_version} to {change.base_version}: "
                f"the newest that it can hold is {self._version - 1}"
            )
        self._entries.end_base_files(change.table_id, change.remove)
        self._entries.add_files(change.table_id, change.add, FileRole.BASE)
        state.base_version = change.base_version
        if change.remove or change.add:
            state.base_changed = self._version

    def _replace_batches(self, change: ReplaceBatches) -> None:
        self._state(change.table_id)
        if not change.remove:
            raise ValueError("a merge must replace at least one batch")
        first, last = self._entries.end_batches(change.table_id, change.remove)
        if change.add is None:
            if change.files:
                raise ValueError("files without a batch")
            return
        if change.add.table_id != change.table_id:
            raise ValueError(f"batch {change.add.id} belongs to table {change.add.table_id}, not to {change.table_id}")
        if (change.add.first_version, change.add.last_version) not in ((0, 0), (first, last)):
            raise ValueError(
                f"batch {change.add.id} holds versions {change.add.first_version} to {change.add.last_version}, "
                f"those it replaces {first} to {last}"
            )
        self._entries.add_batch(replace(change.add, first_version=first, last_version=last), change.files)

    def _define_stream(self, change: DefineStream) -> None:
        self._state(change.table_id).moved = self._version
        check_live(self._connection, change.sources, self._states)
        definition = {
            "query": change.query,
            "mode": change.mode.value,
            "schedule": change.schedule,
            "when_full": change.when_full.value,
            "definition": change.definition,
            "options": change.options.to_json(),
            "frontier": change.frontier,
            "progressed": self._progressed,
        }
        # A new query starts afresh; with the old one, what was learned and the status stay.
        learned = ("full_ms", "diff_ms", "last_error", "refreshed_at", "refresh_ms")
        afresh = {"status": ACTIVE, **dict.fromkeys(learned)}
        mine = streams.c.table_id == change.table_id
        old = self._connection.execute(select(streams.c.query, streams.c.frontier).where(mine)).one_or_none()
        if old is None and change.frontier is not None:
            self._check_readable(change.table_id, change.frontier)
        if old is not None and change.frontier is not None and change.frontier != old.frontier:
            raise BusyError(
                f'stream table "{name_of(self._connection, change.table_id)}" was refreshed by somebody else',
                detail=f"Its frontier was read as {change.frontier} and is {old.frontier}.",
                hint="Nothing was changed; try again.",
            )
        if old is None:
            self._connection.execute(insert(streams), {"table_id": change.table_id, **definition, **afresh})
        else:
            kept = {} if old.query == change.query else afresh
            self._connection.execute(update(streams).where(mine).values(**definition, **kept))
        edges_of_mine = dependencies.c.stream_id == change.table_id
        known = select(dependencies.c.source_id, dependencies.c.frontier).where(edges_of_mine)
        read = {} if change.frontier is None else dict(iter(self._connection.execute(known)))
        self._connection.execute(delete(dependencies).where(edges_of_mine))
        edges = [
            {"stream_id": change.table_id, "position": position, "source_id": source, "frontier": read.get(source)}
            for position, source in enumerate(dict.fromkeys(change.sources))
        ]
        if edges:
            self._connection.execute(insert(dependencies), edges)

    def _move_frontier(self, change: MoveFrontier) -> None:
        check_live(self._connection, (change.table_id,), self._states)
        if change.new > self._version or (change.expected is not None and change.new < change.expected):
            raise ValueError(
                f"a frontier cannot move from {change.expected} to {change.new} at version {self._version}"
            )
        read = {source: self._version if at is None else at for source, at in change.read.items()}
        if any(at > self._version for at in read.values()):
            raise ValueError(f"a source cannot be read at version {max(read.values())}, this one is {self._version}")
        self._check_readable(change.table_id, min(change.new, *read.values()) if read else change.new)
        moved = (
            update(streams)
            .where(streams.c.table_id == change.table_id, streams.c.frontier.is_not_distinct_from(change.expected))
            .values(frontier=change.new, progressed=self._progressed, refreshed_at=change.began, refresh_ms=change.ms)
        )
        if self._connection.execute(moved).rowcount != 1:
            raise BusyError(
                f'stream table "{name_of(self._connection, change.table_id)}" was refreshed by somebody else',
                detail=f"Its frontier is not {change.expected} any more.",
                hint="Nothing was changed; try again.",
            )
        edges = dependencies.c.stream_id == change.table_id
        self._connection.execute(
            update(dependencies).where(edges, dependencies.c.frontier.is_not(None)).values(frontier=None)
        )
        for source, at in read.items():
            self._connection.execute(
                update(dependencies).where(edges, dependencies.c.source_id == source).values(frontier=at)
            )

    def _check_readable(self, table_id: str, frontier: int) -> None:
        """Refuse a new frontier that lies before the horizon.

        There vacuum forgets changes and sums them: from such a frontier on, the next refresh would miss some or apply them twice.
        """
        horizon = self._connection.execute(select(warehouse.c.horizon)).scalar_one()
        if frontier < horizon:
            raise BusyError(
                f'stream table "{name_of(self._connection, table_id)}" was computed from a version that is gone',
                detail=f"It read version {frontier}; meanwhile a vacuum kept versions from {horizon} on only.",
                hint="Nothing was changed; try again.",
            )

    def _check_dependents(self) -> None:
        """Refuse to leave a stream table that reads a dropped one."""
        if not self._dropped:
            return
        query = select(dependencies.c.stream_id, dependencies.c.source_id).where(
            dependencies.c.source_id.in_(self._dropped)
        )
        row = self._connection.execute(query.order_by(dependencies.c.stream_id).limit(1)).one_or_none()
        if row is not None:
            stream, source = (name_of(self._connection, table_id) for table_id in row)
            raise HasDependentsError(
                f'table "{source}" cannot be dropped',
                detail=f'Stream table "{stream}" reads it.',
                hint=f'Drop "{stream}" first.',
            )


def touched(changes: Iterable[Change]) -> list[str]:
    """Return the ids of all tables whose counters `changes` need."""
    return [table_id for change in changes for table_id in touched_tables(change)]
