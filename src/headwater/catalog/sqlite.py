"""The catalog in a SQLite file: one host, any number of processes and threads.

    journal_mode = WAL         readers never wait for a writer, nor the writer for them
    synchronous = FULL         a commit is on the disk before it returns: sources are told to forget what was committed
    BEGIN IMMEDIATE            a writer takes the lock before it reads; a deferred one fails when another came between
    foreign_keys = ON          an entry without its table cannot exist

A new file is built beside its place and moved there whole, so a catalog exists complete or not at all.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote
from uuid import uuid4

from sqlalchemy import URL, Connection, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from headwater.catalog.connect import WRITE, Database, Options, Queue
from headwater.catalog.failures import CatalogExistsError, CatalogUnavailableError
from headwater.errors import CatalogCorruptError, NotAWarehouseError

APPLICATION_ID = 0x48445754
"""Marks the file as ours, in its header ("HDWT")."""

MAGIC = b"SQLite format 3\x00"
APPLICATION_ID_OFFSET = 68
HEADER_BYTES = 100

PRAGMAS = (
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA fullfsync = ON",
    "PRAGMA foreign_keys = ON",
    "PRAGMA journal_size_limit = 67108864",
    "PRAGMA cache_size = -16384",
)
"""Set on every connection. `fullfsync` is for macOS, where a plain fsync does not reach the disk."""


class SqliteDatabase(Database):
    """A `Database` in the file `path`, which must exist."""

    def __init__(self, path: Path, options: Options) -> None:
        def connect() -> sqlite3.Connection:
            # mode=rw: a file that has vanished is an error, not a new and empty catalog.
            return sqlite3.connect(
                f"file:{quote(str(path))}?mode=rw",
                uri=True,
                timeout=options.busy_timeout,
                isolation_level=None,
                check_same_thread=False,
            )

        engine = create_engine(
            URL.create("sqlite", database=str(path)),
            creator=connect,
            poolclass=QueuePool,
            pool_size=8,
            max_overflow=56,
            pool_use_lifo=True,
            pool_timeout=options.busy_timeout,
        )
        event.listen(engine, "connect", _set_pragmas)
        event.listen(engine, "begin", _begin)
        super().__init__(engine, options)
        self._queue = Queue(options.busy_timeout)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with self._queue.turn():
            yield


def _set_pragmas(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITE, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def check_file(path: Path) -> None:
    """Refuse what is not a catalog by its first bytes, before SQLite touches the file."""
    if path.is_dir() or not path.exists():
        raise NotAWarehouseError(
            f'there is no catalog at "{path}"',
            hint="Check the path, or create a warehouse there.",
        )
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except OSError as error:
        raise CatalogUnavailableError(
            f'the catalog "{path}" cannot be read',
            detail=str(error),
            hint="Check the permissions of the file and its directory.",
        ) from error
    if len(header) < HEADER_BYTES or not header.startswith(MAGIC):
        raise CatalogCorruptError(
            f'the file "{path}" is not a SQLite database',
            detail="Its header is damaged or belongs to another kind of file.",
            hint="Restore it from a backup, or check the path.",
        )
    (application_id,) = struct.unpack_from(">I", header, APPLICATION_ID_OFFSET)
    if application_id != APPLICATION_ID:
        raise NotAWarehouseError(
            f'the SQLite database "{path}" is not a Headwater catalog',
            detail="It belongs to another application; nothing in it was changed.",
            hint="Check the path, or create a warehouse in another place.",
        )


def create_file(path: Path, options: Options, build: Callable[[Database], None]) -> None:
    """Make a catalog at `path` by `build`; whoever comes second finds the first one's and fails."""
    if path.exists():
        raise _exists(path)
    unfinished = path.with_name(f"{path.name}.new-{uuid4().hex}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(unfinished)) as connection:
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database = SqliteDatabase(unfinished, options)
        try:
            build(database)
        finally:
            database.close()
        _sync(unfinished, path.parent)
        _move(unfinished, path)
        _sync(path.parent)
    except (OSError, sqlite3.Error) as error:
        raise CatalogUnavailableError(
            f'the catalog "{path}" cannot be created',
            detail=str(error),
            hint="Check the free space and the permissions of the directory.",
        ) from error
    finally:
        for rest in (unfinished, Path(f"{unfinished}-wal"), Path(f"{unfinished}-shm")):
            with suppress(OSError):
                rest.unlink()


def _move(source: Path, target: Path) -> None:
    """Give `source` the name `target` unless that is taken: a link fails then, where a rename would overwrite."""
    try:
        os.link(source, target)
    except FileExistsError as error:
        raise _exists(target) from error
    except OSError:  # a file system without hard links
        if target.exists():
            raise _exists(target) from None
        source.rename(target)


def _exists(path: Path) -> CatalogExistsError:
    return CatalogExistsError(
        f'there is already a catalog at "{path}"',
        hint="Connect to it, or choose another place.",
    )


def _sync(*paths: Path) -> None:
    """Bring files and directories to the disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
