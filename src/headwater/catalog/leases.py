"""Leases: one process at a time does a thing, and a dead one does not stop it for ever.

A lease has a number that grows with every change of hands, for ever. Its holder shows the number at each commit, and
the commit checks it: a process that slept through its own expiry cannot publish over the work of its successor. Until
somebody takes an expired lease over, its holder may renew it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, select, update

from headwater.catalog.connect import Database
from headwater.catalog.records import LeaseHolder
from headwater.catalog.tables import leases
from headwater.model.commit import LeaseToken


class _HeldError(Exception):
    """Somebody else holds a lease; the transaction that met it is undone."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def acquire(database: Database, name: str, owner: str, ttl: float) -> LeaseToken | None:
    """Take the lease `name`, or return None while somebody else holds it. Its own holder gets a new number."""
    return database.write(lambda connection: _taken(database, connection, name, owner, ttl))


def acquire_all(database: Database, names: Collection[str], owner: str, ttl: float) -> list[LeaseToken] | str:
    """Take several leases, all or none, and return them by name; or the name of the first that somebody else holds.

    None means that nothing has changed: leases among them that `owner` held before keep their numbers. All who take or renew
    several take them in one order, so that no two wait for each other.
    """

    def work(connection: Connection) -> list[LeaseToken]:
        tokens: list[LeaseToken] = []
        for name in sorted(set(names)):
            token = _taken(database, connection, name, owner, ttl)
            if token is None:
                raise _HeldError(name)
            tokens.append(token)
        return tokens

    if not names:
        return []
    try:
        return database.write(work)
    except _HeldError as held:
        return held.name


def heartbeat(database: Database, token: LeaseToken, ttl: float) -> bool:
    """Let the lease hold for another `ttl` seconds; False if it is lost."""
    statement = update(leases).where(*_held_by(token)).values(expires=database.now + ttl)
    return database.write(lambda connection: connection.execute(statement).rowcount == 1)


def release(database: Database, token: LeaseToken) -> None:
    """Give the lease back. One that is lost already stays with its new holder."""
    statement = update(leases).where(*_held_by(token)).values(owner=None, expires=0.0)
    database.write(lambda connection: connection.execute(statement).rowcount)


def heartbeat_all(database: Database, tokens: Sequence[LeaseToken], ttl: float) -> bool:
    """Let leases hold for another `ttl` seconds; False if one of them is lost, while the others hold on."""

    def work(connection: Connection) -> bool:
        renewed = [
            connection.execute(update(leases).where(*_held_by(t)).values(expires=database.now + ttl)).rowcount
            for t in _in_order(tokens)
        ]
        return all(count == 1 for count in renewed)

    return database.write(work) if tokens else True


def release_in(connection: Connection, tokens: Iterable[LeaseToken]) -> None:
    """Give leases back as part of a transaction. Those that are lost already stay with their new holders."""
    for token in _in_order(tokens):
        connection.execute(update(leases).where(*_held_by(token)).values(owner=None, expires=0.0))


def release_all(database: Database, tokens: Sequence[LeaseToken]) -> None:
    """Give leases back."""
    if tokens:
        database.write(lambda connection: release_in(connection, tokens))


def lease_holder(database: Database, name: str) -> LeaseHolder | None:
    """Return who holds the lease `name`."""
    query = select(leases.c.owner, leases.c.expires).where(
        leases.c.name == name, leases.c.owner.is_not(None), leases.c.expires > database.now
    )
    row = database.read(lambda connection: connection.execute(query).one_or_none())
    return None if row is None else LeaseHolder(row.owner, row.expires)


def _held_by(token: LeaseToken) -> tuple[ColumnElement[bool], ...]:
    return (leases.c.name == token.name, leases.c.owner == token.owner, leases.c.number == token.number)


def _taken(database: Database, connection: Connection, name: str, owner: str, ttl: float) -> LeaseToken | None:
    take = database.insert(leases).values(name=name, owner=owner, number=1, expires=database.now + ttl)
    statement = take.on_conflict_do_update(
        index_elements=[leases.c.name],
        set_={"owner": take.excluded.owner, "number": leases.c.number + 1, "expires": take.excluded.expires},
        where=(leases.c.expires <= database.now) | leases.c.owner.is_(None) | (leases.c.owner == owner),
    ).returning(leases.c.number)
    number = connection.scalar(statement)
    return None if number is None else LeaseToken(name, owner, number)


def _in_order(tokens: Iterable[LeaseToken]) -> list[LeaseToken]:
    return sorted(tokens, key=lambda token: token.name)
