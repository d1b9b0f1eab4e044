"""Creating and opening a catalog.

Opening refuses what it cannot read, and a refusal changes nothing. An older format is migrated under a lock: of two
processes that open it at once the second waits and finds the work done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from sqlalchemy import URL, Connection, insert, make_url, select, text
from sqlalchemy.exc import ArgumentError

from headwater.catalog.connect import Database, Options, shown_url
from headwater.catalog.failures import CatalogExistsError
from headwater.catalog.migrate import Migrations, upgrade
from headwater.catalog.postgres import PostgresDatabase, create_schema, has_catalog, lock_schema
from headwater.catalog.sqlite import SqliteDatabase, check_file, create_file
from headwater.catalog.tables import FORMAT, warehouse
from headwater.errors import CatalogCorruptError, CatalogTooNewError, NotAWarehouseError, SettingError

CURRENT = Migrations(FORMAT)


@dataclass(frozen=True, slots=True)
class Opened:
    """An open catalog and who it is."""

    database: Database
    warehouse_id: str
    location: str


def create_catalog(url: str, location: str, options: Options, migrations: Migrations = CURRENT) -> Opened:
    """Make a new catalog at `url`; `location` is where the warehouse keeps its files."""
    target = catalog_url(url)

    def build(database: Database) -> None:
        database.write(_filled(database, location, migrations))

    if target.get_backend_name() == "sqlite":
        create_file(_path(target), options, build)
        return open_catalog(url, options, migrations)
    database = PostgresDatabase(target, options)
    try:
        build(database)
    except BaseException:
        database.close()
        raise
    return _opened(database)


def open_catalog(url: str, options: Options, migrations: Migrations = CURRENT) -> Opened:
    """Open the catalog at `url`, migrated to this format if it is older."""
    target = catalog_url(url)
    database: Database
    if target.get_backend_name() == "sqlite":
        check_file(_path(target))
        database = SqliteDatabase(_path(target), options)
    else:
        database = PostgresDatabase(target, options)
    try:
        if _checked_format(database, migrations) < migrations.format:
            database.write(_migrated(database, migrations))
        return _opened(database)
    except BaseException:
        database.close()
        raise


def catalog_url(url: str) -> URL:
    """Read a catalog's address: a path, `sqlite:///path`, or `postgresql://user@host/database`."""
    if "://" not in url:
        return URL.create("sqlite", database=url)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise SettingError(
            f'"{url}" is not an address of a catalog',
            detail=str(error),
            hint="Use a path, or postgresql://user@host/database.",
        ) from error
    backend = parsed.get_backend_name()
    if backend == "sqlite" and parsed.database:
        return parsed
    if backend in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    raise SettingError(
        f'"{shown_url(parsed)}" is not an address of a catalog',
        detail="A catalog is a SQLite file or a PostgreSQL database.",
        hint="Use a path, or postgresql://user@host/database.",
    )


def _path(url: URL) -> Path:
    return Path(url.database or "").absolute()


def _filled(database: Database, location: str, migrations: Migrations) -> Callable[[Connection], None]:
    """Return the work that builds the schema and writes the one row of `warehouse`."""

    def work(connection: Connection) -> None:
        if isinstance(database, PostgresDatabase):
            lock_schema(connection, database.schema)
            if has_catalog(connection, database.schema):
                raise CatalogExistsError(
                    f'there is already a catalog in schema "{database.schema}" of {database.url}',
                    hint="Connect to it, or name another schema: ?schema=name at the end of the address.",
                )
            create_schema(connection, database.schema)
        upgrade(connection, migrations)
        row = {
            "format": migrations.format,
            "warehouse_id": uuid4().hex,
            "location": location,
            "created_at": connection.scalar(select(database.now)),
            "version": 0,
            "generation": 0,
            "revision": 0,
            "horizon": 0,
        }
        connection.execute(insert(warehouse), row)

    return work


def _migrated(database: Database, migrations: Migrations) -> Callable[[Connection], None]:
    def work(connection: Connection) -> None:
        if isinstance(database, PostgresDatabase):
            lock_schema(connection, database.schema)
        upgrade(connection, migrations)
        connection.execute(text("UPDATE warehouse SET format = :format"), {"format": migrations.format})

    return work


def _checked_format(database: Database, migrations: Migrations) -> int:
    """Return the format of the catalog, or refuse what is none or is newer than this code."""
    if isinstance(database, PostgresDatabase):
        schema = database.schema
        if not database.read(lambda connection: has_catalog(connection, schema)):
            raise NotAWarehouseError(
                f'there is no catalog in schema "{schema}" of {database.url}',
                hint="Check the address, or create a warehouse there.",
            )
    # Only `format` is read: a newer catalog may have changed everything else.
    found = database.read(lambda connection: connection.execute(text("SELECT format FROM warehouse")).scalars().all())
    if len(found) != 1 or not isinstance(found[0], int):
        raise CatalogCorruptError(
            f"the catalog {database.url} is damaged",
            detail=f'Its table "warehouse" must hold one row with a format number, it holds {len(found)}.',
            hint="Restore it from a backup.",
        )
    if found[0] > migrations.format:
        raise CatalogTooNewError(
            f"the catalog {database.url} was written by a newer Headwater",
            detail=f"It has format {found[0]}, this version reads up to {migrations.format}.",
            hint="Upgrade Headwater here; the catalog was not changed.",
        )
    return found[0]


def _opened(database: Database) -> Opened:
    query = select(warehouse.c.warehouse_id, warehouse.c.location)
    row = database.read(lambda connection: connection.execute(query).one())
    return Opened(database, row.warehouse_id, row.location)
