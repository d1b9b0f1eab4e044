"""Writes: every file stands under a write that was registered before its first byte.

A write is open until a commit closes it (its row is deleted) or its owner discards it. When its owner died it expires,
and vacuum takes it: from then on no commit can name it, so its files can be deleted. Commit and vacuum never both win.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from sqlalchemy import delete, insert, select, update

from headwater.catalog.connect import Database
from headwater.catalog.records import Write, WriteState
from headwater.catalog.tables import writes

PLACEHOLDER = "{id}"
TAKEN_FOR = 3600.0
"""How long vacuum has for the files of a write it took, in seconds; after that another vacuum may take it."""


def open_write(database: Database, owner: str, ttl: float, paths: Iterable[str]) -> str:
    """Register a write and return its id. `{id}` in `paths` stands for it."""
    write_id = uuid4().hex
    row = insert(writes).values(
        id=write_id,
        owner=owner,
        paths=json.dumps([path.replace(PLACEHOLDER, write_id) for path in paths], ensure_ascii=False),
        state=WriteState.OPEN.value,
        opened_at=database.now,
        expires=database.now + ttl,
    )
    database.write(lambda connection: connection.execute(row))
    return write_id


def extend_write(database: Database, write_id: str, ttl: float) -> bool:
    """Let an open write live for another `ttl` seconds; False if it is not open any more."""
    statement = (
        update(writes)
        .where(writes.c.id == write_id, writes.c.state == WriteState.OPEN.value)
        .values(expires=database.now + ttl)
    )
    return database.write(lambda connection: connection.execute(statement).rowcount == 1)


def discard_write(database: Database, write_id: str) -> None:
    """Forget a write whose files are deleted. One that is forgotten already is no error."""
    statement = delete(writes).where(writes.c.id == write_id)
    database.write(lambda connection: connection.execute(statement).rowcount)


def expired_writes(database: Database) -> list[Write]:
    """Return the writes that vacuum may take, oldest first:

    expired ones, and those that a vacuum took and then died.
    """
    query = select(writes).where(writes.c.expires <= database.now).order_by(writes.c.opened_at, writes.c.id)
    return database.read(lambda connection: [_write_of(row) for row in connection.execute(query)])


def take_write(database: Database, write_id: str) -> bool:
    """Take an expired write, so that it can never be committed; False if it was committed, extended or taken
    meanwhile."""
    statement = (
        update(writes)
        .where(writes.c.id == write_id, writes.c.expires <= database.now)
        .values(state=WriteState.DISCARDED.value, expires=database.now + TAKEN_FOR)
    )
    return database.write(lambda connection: connection.execute(statement).rowcount == 1)


def _write_of(row: Any) -> Write:
    paths = tuple(json.loads(row.paths))
    return Write(row.id, row.owner, paths, WriteState(row.state), row.opened_at, row.expires)
