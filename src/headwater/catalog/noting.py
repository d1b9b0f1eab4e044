"""Notes, events and schedulers: what is said about stream tables outside of commits.

Notes are part of every snapshot, so each change of them moves the revision. Events and schedulers are not: they are asked for.

A note that is withdrawn leaves its row behind, empty: a process that keeps an older snapshot reads only what was written since, and
must find there that the note is gone. Such rows stay. They are as few as the names that ever had a note of their kind, and a note
written again takes the row that is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

from sqlalchemy import BigInteger, Connection, Insert, Update, bindparam, delete, func, insert, select, text, update

from headwater.catalog.connect import Database
from headwater.catalog.postgres import PostgresDatabase
from headwater.catalog.records import SchedulerEntry
from headwater.catalog.tables import events, leases, notes, schedulers, warehouse
from headwater.model.control import KINDS, NO_NOTES, Note, Noted, Notes, kind_of, note_of, note_value
from headwater.model.events import Event, EventKind

ALL_NOTES = select(notes.c.kind, notes.c.name, notes.c.value).where(notes.c.value.is_not(None))

RECENT_NOTES = select(notes.c.kind, notes.c.name, notes.c.value).where(
    notes.c.progressed > bindparam("progressed", type_=BigInteger)
)

DEAD_FOR = 10
"""So many times as long as a scheduler shows itself for, its entry stays after it has expired."""


def read_notes(connection: Connection) -> Notes:
    """Return all notes."""
    return _with_rows(NO_NOTES, connection.execute(ALL_NOTES))


def newer_notes(connection: Connection, since: int, old: Notes) -> Notes:
    """Return the notes of which those are read again that were written since."""
    return _with_rows(old, connection.execute(RECENT_NOTES, {"progressed": since}))


def _with_rows(old: Notes, rows: Iterable[Any]) -> Notes:
    found: dict[tuple[type[Note], str], Note | None] = {}
    for kind, name, value in rows:
        type_ = kind_of(kind)
        if type_ is not None:
            found[type_, name] = None if value is None else note_of(kind, json.loads(value))
    if not found:
        return old
    changed = old.with_changes(found)
    # Without kinds that are empty now: equal notes are equal, however they were read.
    return Notes(MappingProxyType({kind: named for kind, named in changed.values.items() if named}))


def write_notes(database: Database, changes: Sequence[Noted]) -> None:
    """Write and withdraw notes, all or none."""

    def work(connection: Connection) -> None:
        # The row of `warehouse` first, as every commit does: one order of locks means no deadlock.
        taken = update(warehouse).values(revision=warehouse.c.revision + 1)
        now = connection.execute(taken.returning(warehouse.c.version + warehouse.c.revision)).scalar_one()
        for change in changes:
            connection.execute(_written(database, change, now))

    if changes:
        database.write(work)


def _written(database: Database, change: Noted, now: int) -> Insert | Update:
    """Return the statement that writes a note, or empties its row if there is one."""
    kind = KINDS[change.kind]
    if change.note is None:
        standing = (notes.c.kind == kind, notes.c.name == change.name, notes.c.value.is_not(None))
        return update(notes).where(*standing).values(value=None, progressed=now)
    value = json.dumps(note_value(change.note), sort_keys=True)
    put = database.insert(notes).values(kind=kind, name=change.name, value=value, progressed=now)
    return put.on_conflict_do_update(
        index_elements=[notes.c.kind, notes.c.name],
        set_={"value": put.excluded.value, "progressed": put.excluded.progressed},
    )


def record_events(database: Database, found: Sequence[Event]) -> None:
    """Keep events, under ids that grow in the order in which readers come to see them."""
    rows = [
        {"at": e.at, "event": e.kind.value, "table_name": e.table, "data": json.dumps(dict(e.data), default=str)}
        for e in found
    ]

    def work(connection: Connection) -> None:
        if isinstance(database, PostgresDatabase):
            # One after the other: a smaller id that is committed later would be missed by whoever asks for newer events.
            _lock_events(connection, database.schema)
        connection.execute(insert(events), rows)

    if rows:
        database.write(work)


def _lock_events(connection: Connection, schema: str) -> None:
    """Hold off everybody else who would record events in the catalog in `schema`, until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": f"headwater.events.{schema}"})


def read_events(database: Database, limit: int, after: int) -> list[Event]:
    """Return the newest events after the one with the id `after`, newest first; without those of kinds not known here."""
    known = {k.value: k for k in EventKind}
    query = select(events).where(events.c.id > after, events.c.event.in_(list(known))).order_by(events.c.id.desc())
    rows = database.read(lambda connection: connection.execute(query.limit(limit)).all())
    return [Event(known[r.event], r.at, r.table_name, json.loads(r.data), r.id) for r in rows]


def forget_events(database: Database, before: float) -> None:
    """Forget events that are older than `before`, but not the last one: SQLite would give its id away again."""
    old = events.c.at < before
    statement = delete(events).where(old, events.c.id < select(func.max(events.c.id)).scalar_subquery())
    database.write(lambda connection: connection.execute(statement).rowcount)


def show_scheduler(database: Database, owner: str, started_at: float, ttl: float, data: str) -> None:
    """Say that a scheduler lives, for `ttl` seconds, and how it fares. Those that are dead for long are forgotten."""
    put = database.insert(schedulers).values(
        owner=owner, started_at=started_at, seen_at=database.now, expires=database.now + ttl, data=data
    )
    names = ("started_at", "seen_at", "expires", "data")
    statement = put.on_conflict_do_update(
        index_elements=[schedulers.c.owner], set_={name: put.excluded[name] for name in names}
    )
    # What somebody else holds is left: two that wake up late would otherwise wait for each other's row.
    dead = schedulers.alias()
    gone = select(dead.c.owner).where(dead.c.owner != owner, dead.c.expires < database.now - DEAD_FOR * ttl)
    forgotten = delete(schedulers).where(schedulers.c.owner.in_(gone.with_for_update(skip_locked=True)))

    def work(connection: Connection) -> None:
        connection.execute(statement)
        connection.execute(forgotten)

    database.write(work)


def hide_scheduler(database: Database, owner: str) -> None:
    """Say that a scheduler has ended."""
    statement = delete(schedulers).where(schedulers.c.owner == owner)
    database.write(lambda connection: connection.execute(statement).rowcount)


def live_schedulers(database: Database) -> list[SchedulerEntry]:
    """Return the schedulers that live, the oldest first."""
    query = select(schedulers).where(schedulers.c.expires > database.now)
    query = query.order_by(schedulers.c.started_at, schedulers.c.owner)
    rows = database.read(lambda connection: connection.execute(query).all())
    return [SchedulerEntry(r.owner, r.started_at, r.seen_at, json.loads(r.data)) for r in rows]


def leases_of_others(database: Database, prefix: str, owner: str) -> dict[str, str]:
    """Return the leases that others hold and whose names begin with `prefix`, with their holders."""
    query = select(leases.c.name, leases.c.owner).where(
        func.substr(leases.c.name, 1, len(prefix)) == prefix,
        leases.c.owner.is_not(None),
        leases.c.owner != owner,
        leases.c.expires > database.now,
    )
    return database.read(lambda connection: dict(iter(connection.execute(query))))
