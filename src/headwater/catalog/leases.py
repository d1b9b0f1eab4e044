"""Leases: one process at a time does a thing, and a dead one does not stop it for ever.

A lease has a number that grows with every change of hands, for ever. Its holder shows the number at each commit, and
the commit checks it: a process that slept through its own expiry cannot publish over the work of its successor. Until
somebody takes an expired lease over, its holder may renew it.
"""

from __future__ import annotations

from sqlalchemy import ColumnElement, select, update

from headwater.catalog.connect import Database
from headwater.catalog.records import LeaseHolder
from headwater.catalog.tables import leases
from headwater.model.commit import LeaseToken


def acquire(database: Database, name: str, owner: str, ttl: float) -> LeaseToken | None:
    """Take the lease `name`, or return None while somebody else holds it. Its own holder gets a new number."""
    take = database.insert(leases).values(name=name, owner=owner, number=1, expires=database.now + ttl)
    statement = take.on_conflict_do_update(
        index_elements=[leases.c.name],
        set_={"owner": take.excluded.owner, "number": leases.c.number + 1, "expires": take.excluded.expires},
        where=(leases.c.expires <= database.now) | leases.c.owner.is_(None) | (leases.c.owner == owner),
    ).returning(leases.c.number)
    number = database.write(lambda connection: connection.scalar(statement))
    return None if number is None else LeaseToken(name, owner, number)


def heartbeat(database: Database, token: LeaseToken, ttl: float) -> bool:
    """Let the lease hold for another `ttl` seconds; False if it is lost."""
    statement = update(leases).where(*_held_by(token)).values(expires=database.now + ttl)
    return database.write(lambda connection: connection.execute(statement).rowcount == 1)


def release(database: Database, token: LeaseToken) -> None:
    """Give the lease back. One that is lost already stays with its new holder."""
    statement = update(leases).where(*_held_by(token)).values(owner=None, expires=0.0)
    database.write(lambda connection: connection.execute(statement).rowcount)


def lease_holder(database: Database, name: str) -> LeaseHolder | None:
    """Return who holds the lease `name`."""
    query = select(leases.c.owner, leases.c.expires).where(
        leases.c.name == name, leases.c.owner.is_not(None), leases.c.expires > database.now
    )
    row = database.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else LeaseHolder(row.owner, row.expires)


def _held_by(token: LeaseToken) -> tuple[ColumnElement[bool], ...]:
    return (leases.c.name == token.name, leases.c.owner == token.owner, leases.c.number == token.number)
