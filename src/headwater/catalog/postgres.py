"""The catalog in a PostgreSQL database: several hosts.

It lives in a schema of its own, `headwater` unless the address says `?schema=name`, so it can share a database. The
isolation is READ COMMITTED: a commit's first statement locks the one row of `warehouse`, and everything it reads after
that is what the commit before it left. Waiting for a lock is bounded, and so is how long a stopped process may hold
one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import URL, Connection, Double, Table, cast, create_engine, event, extract, func, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from headwater.catalog.connect import Database, Options
from headwater.errors import SettingError

DEFAULT_SCHEMA = "headwater"
SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")

IDLE_LIMIT = "120s"
"""How long a transaction may do nothing: a process that hangs inside a commit would stop all writers."""

ENSURE_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)
"""A database may be set to acknowledge commits before they are on the disk; here they acknowledge sources."""


class PostgresDatabase(Database):
    """A `Database` in one schema of a PostgreSQL database."""

    def __init__(self, url: URL, options: Options) -> None:
        self.schema = _schema_name(url)
        query = {key: value for key, value in url.query.items() if key != "schema"}
        settings = (
            f"-c search_path={self.schema}",
            f"-c lock_timeout={round(options.busy_timeout * 1000)}",
            f"-c idle_in_transaction_session_timeout={IDLE_LIMIT}",
        )
        arguments: dict[str, Any] = {"options": " ".join((str(query.pop("options", "")), *settings)).strip()}
        for key, value in (("application_name", "headwater"), ("connect_timeout", "10"), ("keepalives_idle", "30")):
            if key not in query:
                arguments[key] = value
        try:
            engine = create_engine(
                url.set(query=query),
                connect_args=arguments,
                isolation_level="READ COMMITTED",
                pool_size=8,
                max_overflow=24,
                pool_use_lifo=True,
                pool_timeout=options.busy_timeout,
            )
        except ModuleNotFoundError as error:
            raise SettingError(
                "a catalog in PostgreSQL needs the package psycopg",
                detail=str(error),
                hint="Install it with: pip install 'headwater[postgres]'",
            ) from error
        event.listen(engine, "connect", _ensure_durable)
        super().__init__(engine, options)
        self._repeatable = engine.execution_options(isolation_level="REPEATABLE READ")
        if options.clock is None:
            self.now = cast(extract("epoch", func.clock_timestamp()), Double)

    def insert(self, table: Table) -> postgresql.Insert:
        """Return an insert into `table` that may say what to do on a conflict."""
        return postgresql.insert(table)

    @contextmanager
    def _autocommit(self) -> Iterator[Any]:
        with super()._autocommit() as driver:
            driver.autocommit = True
            try:
                yield driver
            finally:
                if not driver.closed:
                    driver.autocommit = False


def lock_schema(connection: Connection, schema: str) -> None:
    """Hold off everybody else who would create or migrate the catalog in `schema`, until the transaction ends."""
    connection.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": f"headwater.catalog.{schema}"})


def has_catalog(connection: Connection, schema: str) -> bool:
    """Say whether `schema` holds a catalog."""
    query = text("SELECT to_regclass(:name) IS NOT NULL")
    return bool(connection.scalar(query, {"name": f"{schema}.warehouse"}))


def create_schema(connection: Connection, schema: str) -> None:
    """Make the schema; `schema` has passed `SCHEMA_NAME`, so it needs no quotes."""
    connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))


def _ensure_durable(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(ENSURE_DURABLE)
    cursor.close()
    connection.commit()


def _schema_name(url: URL) -> str:
    name = url.query.get("schema", DEFAULT_SCHEMA)
    if not isinstance(name, str) or not SCHEMA_NAME.fullmatch(name):
        raise SettingError(
            f'"{name}" cannot be the schema of a catalog',
            detail="Its name must begin with a small letter or _ and go on with small letters, digits or _.",
            hint="Write one ?schema=name at the end of the address.",
        )
    return name
