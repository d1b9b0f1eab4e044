"""Pins: a reader keeps a version from vacuum while it may still open that version's files."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, select, update

from headwater.catalog.connect import Database
from headwater.catalog.reading import check_version
from headwater.catalog.rows import chunks
from headwater.catalog.tables import pins, warehouse


def pin(database: Database, version: int, owner: str, ttl: float) -> str:
    """Keep `version` for `ttl` seconds and return the pin's id.

    Holding the row of `warehouse` keeps vacuum from moving the horizon past the version between the check and the pin.
    """
    pin_id = uuid4().hex

    def work(connection: Connection) -> None:
        connection.execute(select(warehouse.c.version).with_for_update(read=True))
        check_version(connection, database.now, version)
        connection.execute(insert(pins).values(id=pin_id, version=version, owner=owner, expires=database.now + ttl))

    database.write(work)
    return pin_id


def renew_pins(database: Database, pin_ids: Iterable[str], ttl: float) -> set[str]:
    """Let pins hold for another `ttl` seconds; return those that still held.

    An expired pin is not revived: vacuum may have deleted what it kept.
    """
    wanted = list(pin_ids)
    if not wanted:
        return set()

    def work(connection: Connection) -> set[str]:
        renewed: set[str] = set()
        for part in chunks(wanted):
            statement = (
                update(pins)
                .where(pins.c.id.in_(part), pins.c.expires > database.now)
                .values(expires=database.now + ttl)
                .returning(pins.c.id)
            )
            renewed.update(connection.execute(statement).scalars())
        return renewed

    return database.write(work)


def unpin(database: Database, pin_id: str) -> None:
    """Give a pin back. One that is gone already is no error."""
    statement = delete(pins).where(pins.c.id == pin_id)
    database.write(lambda connection: connection.execute(statement).rowcount)


def pinned_versions(database: Database) -> list[int]:
    """Return the versions that are pinned now, in order."""
    query = select(pins.c.version).where(pins.c.expires > database.now).distinct().order_by(pins.c.version)
    return database.read(lambda connection: list(connection.execute(query).scalars()))
