"""Connections and transactions.

    read     one short transaction; tried a second time when its connection turns out to be lost
    write    one transaction that is the only writer (SQLite) or waits for row locks (PostgreSQL)

A write whose connection is lost before COMMIT was sent is tried a second time too: a server never commits what it was
not told to. Once COMMIT was sent the outcome is unknown, and only asking the database can tell: `landed` is that
question. Nothing is ever sent twice on a guess.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar

from sqlalchemy import URL, ColumnElement, Connection, Double, Engine, Table, bindparam
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from headwater.catalog.failures import CommitUnknownError, catalog_error, is_lost
from headwater.errors import BusyError, ClosedError

T = TypeVar("T")

Clock = Callable[[], float]

WRITE = "headwater_write"
"""Execution option of the connections that are going to write: SQLite begins them with the write lock."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to connect. `clock` gives epoch seconds; without one PostgreSQL's or, for SQLite, this host's is used.

    `busy_timeout` is how long, in seconds, a writer waits for the others.
    """

    clock: Clock | None = None
    busy_timeout: float = 30.0


class Database:
    """The catalog's database: transactions, errors and time, alike for SQLite and PostgreSQL.

    Safe to share between threads: every call borrows a connection of its own. `url` never shows a password.
    """

    def __init__(self, engine: Engine, options: Options) -> None:
        self._engine = engine
        self._writers = engine.execution_options(**{WRITE: True})
        self._repeatable = engine
        self._busy_timeout = options.busy_timeout
        self._closed = False
        self.url = shown_url(engine.url)
        self.now: ColumnElement[float] = bindparam("clock_now", callable_=options.clock or time.time, type_=Double)

    def close(self) -> None:
        """Close all idle connections; borrowed ones close when they are given back."""
        self._closed = True
        self._engine.dispose()

    def insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        """Return an insert into `table` that may say what to do on a conflict; each database has its own kind."""
        return sqlite.insert(table)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one read transaction."""
        return self._read(self._engine, work)

    def read_snapshot(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one read transaction whose statements all see the same moment."""
        return self._read(self._repeatable, work)

    def first_row(self, sql: str) -> tuple[Any, ...]:
        """Return the first row of a statement without parameters, by the shortest way there is."""
        self._check_open()
        try:
            with self._autocommit() as driver:
                return tuple(driver.execute(sql).fetchone())
        except Exception:
            # Any failure is met again, and named, on the ordinary way.
            return tuple(self.read(lambda connection: connection.exec_driver_sql(sql).one()))

    def write(self, work: Callable[[Connection], T], landed: Callable[[Connection], bool] | None = None) -> T:
        """Run `work` in one write transaction and return its result once it is durable."""
        with self._turn():
            try:
                return self._write(work, landed)
            except SQLAlchemyError as error:
                if not is_lost(error):
                    raise catalog_error(error, self.url) from error
            try:
                return self._write(work, landed)
            except SQLAlchemyError as error:
                raise catalog_error(error, self.url) from error

    def _read(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        self._check_open()
        try:
            with engine.connect() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            if not is_lost(error):
                raise catalog_error(error, self.url) from error
        try:
            with engine.connect() as connection:
                return work(connection)
        except SQLAlchemyError as error:
            raise catalog_error(error, self.url) from error

    def _write(self, work: Callable[[Connection], T], landed: Callable[[Connection], bool] | None) -> T:
        self._check_open()
        with self._writers.connect() as connection:
            transaction = connection.begin()
            result = work(connection)
            try:
                transaction.commit()
                return result
            except SQLAlchemyError as error:
                cause = error
        return self._settled(result, cause, landed)

    def _settled(self, result: T, cause: SQLAlchemyError, landed: Callable[[Connection], bool] | None) -> T:
        """Find out whether a COMMIT that answered with an error took effect."""
        unknown = CommitUnknownError(
            "the catalog did not confirm a commit",
            detail=f"{self.url}: {str(cause.__cause__ or cause).strip()}. Whether the commit took effect is not known.",
            hint="Once the catalog can be reached again, look whether the change is there before repeating it.",
        )
        if landed is None:
            raise unknown from cause
        try:
            with self._writers.connect() as connection, connection.begin():
                done = landed(connection)
        except SQLAlchemyError:
            raise unknown from cause
        if done:
            return result
        raise catalog_error(cause, self.url) from cause

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Wait until this thread may write; a database with row locks needs no queue here."""
        yield

    @contextmanager
    def _autocommit(self) -> Iterator[Any]:
        """Lend the driver's own connection, outside any transaction."""
        borrowed = self._engine.pool.connect()
        try:
            yield borrowed.driver_connection
        except BaseException:
            borrowed.invalidate()
            raise
        finally:
            borrowed.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("the catalog was closed", hint="Connect again.")


class Queue:
    """Lets one thread of this process write at a time: waiting in line costs less than polling a file lock."""

    def __init__(self, timeout: float) -> None:
        self._lock = Lock()
        self._timeout = timeout

    @contextmanager
    def turn(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=self._timeout):
            raise BusyError(
                "the catalog is locked by another writer",
                detail=f"Another thread of this process has been writing for {self._timeout:g} s.",
                hint="Nothing was changed; try again.",
            )
        try:
            yield
        finally:
            self._lock.release()


def shown_url(url: URL) -> str:
    """Return `url` as it may appear in a message: without its password and without the name of the driver."""
    return url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)
