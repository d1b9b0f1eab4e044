"""Builders for catalog tests: short ways to say what a commit holds, and the two databases that must behave alike."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from tests.support.postgres import TestServer, postgres_server, postgres_url

from headwater.catalog import Catalog, Options
from headwater.catalog.tables import metadata
from headwater.model.commit import AddBatch, Change, Commit, CreateTable, DefineStream
from headwater.model.schema import Field, TableSchema
from headwater.model.tables import (
    Batch,
    BatchFormat,
    DataFile,
    FileRole,
    RefreshAction,
    RefreshMode,
    RefreshRecord,
    Table,
    TableKind,
    WhenFull,
)

__all__ = ["postgres_server", "postgres_url"]

LOCATION = "/warehouse"
"""Where the test catalogs say their files are."""

SCHEMA = TableSchema((Field("id", "BIGINT", nullable=False), Field("region", "STRING")), ("id",))


class ManualClock:
    """A clock that moves when told to."""

    def __init__(self) -> None:
        self.time = 1_000_000.0

    def __call__(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds


class OnSqlite:
    """Runs a contract on SQLite: a copy of a catalog that is made once."""

    @pytest.fixture(scope="class")
    @classmethod
    def empty(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        path = tmp_path_factory.mktemp("catalog") / "catalog.db"
        Catalog.create(str(path), location=LOCATION).close()
        return path

    @pytest.fixture
    def url(self, empty: Path, tmp_path: Path) -> str:
        return str(shutil.copy(empty, tmp_path))


class OnPostgres:
    """Runs a contract on PostgreSQL: one catalog for all tests, emptied before each."""

    pytestmark = pytest.mark.postgres

    @pytest.fixture(scope="class")
    @classmethod
    def empty(cls, postgres_server: TestServer) -> Iterator[str]:
        name = postgres_server.create_database()
        url = postgres_server.url(name)
        Catalog.create(url, location=LOCATION).close()
        yield url
        postgres_server.drop_database(name)

    @pytest.fixture
    def url(self, empty: str) -> str:
        names = (table.name for table in reversed(metadata.sorted_tables) if table.name != "warehouse")
        emptied = "".join(f"DELETE FROM {name};" for name in names)
        with psycopg.connect(empty, options="-c search_path=headwater") as connection:
            connection.execute(emptied + "UPDATE warehouse SET version = 0, generation = 0, revision = 0, horizon = 0")
        return empty


class CatalogContract:
    """What every contract class has: a fresh catalog on a clock that stands still."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def catalog(self, url: str, clock: ManualClock) -> Iterator[Catalog]:
        with Catalog.open(url, options=Options(clock=clock)) as catalog:
            yield catalog


@contextmanager
def statements(catalog: Catalog) -> Iterator[list[str]]:
    """Collect what a catalog asks its database, without what only begins a transaction."""
    database, asked = catalog._database, []
    shortest = database.first_row

    def seen(connection: object, cursor: object, text: str, *_: object) -> None:
        if not text.startswith("BEGIN"):
            asked.append(text)

    def first_row(sql: str) -> tuple[Any, ...]:
        asked.append(sql)
        return shortest(sql)

    event.listen(database._engine, "before_cursor_execute", seen)
    database.first_row = first_row  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        del database.first_row
        event.remove(database._engine, "before_cursor_execute", seen)


def managed(table_id: str, name: str | None = None, **values: Any) -> Table:
    return Table(table_id, name or table_id, values.pop("kind", TableKind.MANAGED), SCHEMA, 0, 0, 0, **values)


def create(*table_ids: str) -> Commit:
    return Commit(tuple(CreateTable(managed(table_id)) for table_id in table_ids))


def define(
    table_id: str,
    *sources: str,
    query: str = "SELECT 1",
    frontier: int | None = None,
    when_full: WhenFull = WhenFull.WARN,
) -> DefineStream:
    return DefineStream(table_id, query, RefreshMode.AUTO, "1s", when_full, '{"time_zone": "UTC"}', sources, frontier)


def inline(batch_id: str, table_id: str, inserts: int = 1, deletes: int = 0, **values: Any) -> AddBatch:
    batch = Batch(batch_id, table_id, BatchFormat.INLINE, inserts, deletes, 5, inline=batch_id.encode())
    return AddBatch(batch, **values)


def data_file(file_id: str, table_id: str, write_id: str, **values: Any) -> DataFile:
    path = f"{table_id}/{file_id}.parquet"
    return DataFile(file_id, table_id, values.pop("role", FileRole.BASE), path, 10, 1000, write_id, **values)


def inserted(batch_id: str, table_id: str, *files: DataFile, **values: Any) -> AddBatch:
    rows = sum(file.rows for file in files)
    return AddBatch(Batch(batch_id, table_id, BatchFormat.INSERT, rows, 0, 1000), files, **values)


def apply(catalog: Catalog, *changes: Change, **values: Any) -> int:
    return catalog.commit(Commit(changes, **values))


def write_into_base(catalog: Catalog, batch_id: str, table_id: str) -> int:
    """Commit one insert batch of one file into the base."""
    write_id = catalog.open_write("test", 60.0, ())
    file = data_file(f"f-{batch_id}", table_id, write_id)
    return apply(catalog, inserted(batch_id, table_id, file, into_base=True), write_ids=(write_id,))


def refresh_record(table_id: str, **values: Any) -> RefreshRecord:
    defaults: dict[str, Any] = {
        "started_at": 10.0,
        "finished_at": 11.0,
        "action": RefreshAction.DIFFERENTIAL,
        "status": "OK",
        "rows_in": 3,
        "rows_inserted": 2,
        "rows_deleted": 1,
        "duration_ms": 12.5,
        "spark_jobs": 1,
        "reason": "few changes",
        "frontier_from": 1,
        "frontier_to": 2,
    }
    return RefreshRecord(table_id, **{**defaults, **values})
