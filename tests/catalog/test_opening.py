"""Creating, opening and refusing catalogs. A refusal changes nothing."""

from __future__ import annotations

import multiprocessing
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine
from tests.catalog.building import SCHEMA, create, define

from headwater.catalog import Catalog, CatalogExistsError, CatalogUnavailableError, Options
from headwater.catalog.migrate import SCRIPTS, Migrations, revision
from headwater.catalog.opening import catalog_url, create_catalog, open_catalog
from headwater.catalog.tables import FORMAT, metadata
from headwater.errors import CatalogCorruptError, CatalogTooNewError, NotAWarehouseError, SettingError
from headwater.model.commit import Commit, MoveFrontier
from headwater.model.control import NO_NOTES, Pause, noted
from headwater.model.options import DEFAULT_OPTIONS
from headwater.model.tables import RefreshMode, WhenFull

LATER_FORMAT = f'''
"""A column more."""

import sqlalchemy as sa
from alembic import op

revision = "{revision(FORMAT + 1)}"
down_revision = "{revision(FORMAT)}"


def upgrade() -> None:
    op.add_column("templates", sa.Column("used_at", sa.Double()))
'''

FIRST_FORMAT_ROWS = (
    "UPDATE warehouse SET version = 1, generation = 1",
    "INSERT INTO commits (version, uid, committed_at) VALUES (1, 'u', 1)",
    "INSERT INTO tables (id, name, name_key, kind, created) VALUES ('s', 's', 's', 'stream', 1)",
    "INSERT INTO table_states (table_id, version, moved, changed, base_version, base_changed, row_count, hash, next_row_id) "
    "VALUES ('s', 1, 1, 0, 1, 0, 0, 0, 0)",
    f"INSERT INTO table_schemas (table_id, version, schema) VALUES ('s', 1, '{SCHEMA.to_json()}')",
    "INSERT INTO streams (table_id, query, mode, schedule, definition, frontier, status) "
    "VALUES ('s', 'SELECT 1', 'DIFFERENTIAL', '1s', '', 1, 'ACTIVE')",
)
"""A stream table as the first format kept it."""


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def try_to_create(url: str) -> str:
    try:
        with Catalog.create(url, location="/warehouse") as catalog:
            return catalog.warehouse_id
    except CatalogExistsError:
        return "exists"


class TestSqlite:
    def test_a_path_and_a_url_are_the_same(self, tmp_path: Path) -> None:
        path = tmp_path / "new directory" / "100%.db"
        with Catalog.create(str(path), location="/warehouse") as catalog:
            assert catalog.url == str(path)
            assert catalog.shown_url.startswith("sqlite:///")
        assert path.exists()
        for url in (catalog.url, catalog.shown_url):
            with Catalog.open(url) as again:
                assert again.warehouse_id == catalog.warehouse_id

    def test_creation_leaves_one_file(self, tmp_path: Path) -> None:
        Catalog.create(str(tmp_path / "catalog.db"), location="/warehouse").close()
        assert [path.name for path in tmp_path.iterdir()] == ["catalog.db"]

    def test_of_several_creators_one_wins(self, tmp_path: Path) -> None:
        url = str(tmp_path / "catalog.db")
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(try_to_create, [url] * 4))
        assert sorted(result == "exists" for result in results) == [False, True, True, True]
        with Catalog.open(url) as catalog:
            assert catalog.warehouse_id in results

    def test_durability_settings(self, tmp_path: Path) -> None:
        with Catalog.create(str(tmp_path / "catalog.db"), location="/warehouse") as catalog:
            settings = [
                catalog._database.first_row(f"PRAGMA {name}")[0]
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            ]
        assert settings == ["wal", 2, 1, 30_000]

    def test_nothing_there(self, tmp_path: Path) -> None:
        for path in (tmp_path, tmp_path / "nothing.db", tmp_path / "no" / "directory.db"):
            with pytest.raises(NotAWarehouseError, match="there is no catalog"):
                Catalog.open(str(path))
        assert list(tmp_path.iterdir()) == []

    def test_database_of_another_application(self, tmp_path: Path) -> None:
        path = tmp_path / "other.db"
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE warehouse (format INTEGER)")
        connection.close()
        before = contents(tmp_path)
        with pytest.raises(NotAWarehouseError, match="is not a Headwater catalog"):
            Catalog.open(str(path))
        with pytest.raises(CatalogExistsError):
            Catalog.create(str(path), location="/warehouse")
        assert contents(tmp_path) == before

    @pytest.mark.parametrize("text", [b"", b"not a database, but long enough to hold a header " * 9])
    def test_file_that_is_no_database(self, tmp_path: Path, text: bytes) -> None:
        path = tmp_path / "catalog.db"
        path.write_bytes(text)
        with pytest.raises(CatalogCorruptError, match="is not a SQLite database"):
            Catalog.open(str(path))
        assert contents(tmp_path) == {"catalog.db": text}

    def test_damaged_pages(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        Catalog.create(str(path), location="/warehouse").close()
        whole = path.read_bytes()
        path.write_bytes(whole[:100] + b"\xff" * (len(whole) - 100))
        with pytest.raises(CatalogCorruptError, match="is damaged"):
            Catalog.open(str(path))
        path.write_bytes(whole)
        Catalog.open(str(path)).close()

    def test_catalog_without_its_row(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        Catalog.create(str(path), location="/warehouse").close()
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM warehouse")
        connection.close()
        with pytest.raises(CatalogCorruptError, match="must hold one row"):
            Catalog.open(str(path))

    def test_newer_format(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        Catalog.create(str(path), location="/warehouse").close()
        with sqlite3.connect(path) as connection:
            connection.execute(f"UPDATE warehouse SET format = {FORMAT + 1}")
        connection.close()
        before = contents(tmp_path)
        with pytest.raises(CatalogTooNewError, match=f"reads up to {FORMAT}"):
            Catalog.open(str(path))
        assert contents(tmp_path) == before

    def test_vanished_file_is_not_made_again(self, tmp_path: Path) -> None:
        path = tmp_path / "catalog.db"
        with Catalog.create(str(path), location="/warehouse") as catalog:
            catalog._database._engine.dispose()
            path.unlink()
            with pytest.raises(CatalogUnavailableError):
                catalog.head()
        assert not path.exists()

    def test_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        with pytest.raises(CatalogUnavailableError, match="cannot be created"):
            Catalog.create(str(tmp_path / "file" / "catalog.db"), location="/warehouse")


@pytest.mark.postgres
class TestPostgres:
    def test_schema_of_its_own(self, postgres_url: str) -> None:
        with (
            Catalog.create(postgres_url, location="/one") as one,
            Catalog.create(f"{postgres_url}&schema=second", location="/two") as two,
        ):
            one.commit(create("t"))
            assert (one.head().version, two.head().version) == (1, 0)
            with psycopg.connect(postgres_url) as connection:
                query = "SELECT schemaname, count(*) FROM pg_tables WHERE tablename = 'batches' GROUP BY 1 ORDER BY 1"
                assert connection.execute(query).fetchall() == [("headwater", 1), ("second", 1)]

    def test_password_is_not_shown(self, postgres_url: str) -> None:
        url = postgres_url.replace("postgres:@", "postgres:secret@")
        with Catalog.create(url, location="/warehouse") as catalog:
            assert catalog.url == url
            assert "secret" in url
            assert "secret" not in catalog.shown_url

    def test_of_several_creators_one_wins(self, postgres_url: str) -> None:
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(try_to_create, [postgres_url] * 4))
        assert sorted(result == "exists" for result in results) == [False, True, True, True]

    def test_database_without_a_catalog(self, postgres_url: str) -> None:
        with pytest.raises(NotAWarehouseError, match='there is no catalog in schema "headwater"'):
            Catalog.open(postgres_url)
        with psycopg.connect(postgres_url) as connection:
            assert connection.execute("SELECT to_regnamespace('headwater')").fetchone() == (None,)

    def test_newer_format(self, postgres_url: str) -> None:
        Catalog.create(postgres_url, location="/warehouse").close()
        with psycopg.connect(postgres_url) as connection:
            connection.execute(f"UPDATE headwater.warehouse SET format = {FORMAT + 1}")
        with pytest.raises(CatalogTooNewError):
            Catalog.open(postgres_url)

    def test_server_that_is_not_there(self, tmp_path: Path) -> None:
        url = f"postgresql://somebody:secret@/nothing?host={tmp_path}"
        with pytest.raises(CatalogUnavailableError) as caught:
            Catalog.open(url)
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite://", "postgresql://host:port/db"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(SettingError, match="is not an address of a catalog"):
        Catalog.open(url)


@pytest.mark.parametrize("name", ["Upper", "a b", "1x", "x;drop"])
def test_schema_names_that_are_refused(name: str) -> None:
    with pytest.raises(SettingError, match="cannot be the schema"):
        Catalog.open(f"postgresql://host/db?schema={name}")


def test_postgres_is_reached_by_psycopg() -> None:
    for url in ("postgresql://me@host/db", "postgres://me@host/db", "postgresql+psycopg://me@host/db"):
        assert catalog_url(url).drivername == "postgresql+psycopg"


class TestMigrations:
    @pytest.fixture
    def later(self, tmp_path: Path) -> Migrations:
        """The way to a format that does not exist yet."""
        directory = tmp_path / "later"
        directory.mkdir()
        (directory / "later.py").write_text(LATER_FORMAT)
        return Migrations(FORMAT + 1, (SCRIPTS / "versions", directory))

    def test_the_last_script_is_the_format(self) -> None:
        assert ScriptDirectory(str(SCRIPTS)).get_current_head() == revision(FORMAT)

    @pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
    def test_scripts_build_the_schema_that_the_code_uses(
        self, backend: str, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        address = str(tmp_path / "catalog.db") if backend == "sqlite" else request.getfixturevalue("postgres_url")
        Catalog.create(address, location="/warehouse").close()
        arguments = {} if backend == "sqlite" else {"options": "-c search_path=headwater"}
        engine = create_engine(catalog_url(address), connect_args=arguments)
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, metadata) == []
        engine.dispose()

    @pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
    def test_older_format_is_migrated_once(
        self, backend: str, tmp_path: Path, later: Migrations, request: pytest.FixtureRequest
    ) -> None:
        url = str(tmp_path / "catalog.db") if backend == "sqlite" else request.getfixturevalue("postgres_url")
        with Catalog.create(url, location="/warehouse") as catalog:
            catalog.commit(create("t"))
            catalog.template_put("k", "SELECT 1", 1)

        def migrate(_: int) -> tuple[str, int]:
            opened = open_catalog(url, Options(), later)
            row = opened.database.first_row("SELECT key, format FROM templates, warehouse WHERE used_at IS NULL")
            opened.database.close()
            return row[0], row[1]

        with ThreadPoolExecutor(3) as pool:
            assert list(pool.map(migrate, range(3))) == [("k", FORMAT + 1)] * 3
        with pytest.raises(CatalogTooNewError):
            Catalog.open(url)

    @pytest.mark.parametrize("backend", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
    @pytest.mark.parametrize("format_number", range(1, FORMAT))
    def test_stream_tables_of_older_formats_have_what_was_added_since(
        self, backend: str, format_number: int, tmp_path: Path, request: pytest.FixtureRequest
    ) -> None:
        url = str(tmp_path / "catalog.db") if backend == "sqlite" else request.getfixturevalue("postgres_url")
        old = create_catalog(url, "/warehouse", Options(), Migrations(format_number))
        old.database.write(lambda connection: [connection.exec_driver_sql(row) for row in FIRST_FORMAT_ROWS])
        old.database.close()
        with Catalog.open(url) as catalog:
            stream = catalog.snapshot().streams["s"]
            assert (stream.when_full, stream.query, stream.frontier) == (WhenFull.WARN, "SELECT 1", 1)
            assert (stream.mode, stream.schedule) == (RefreshMode.DIFFERENTIAL, "1s")
            assert (dict(stream.frontiers), stream.options) == ({}, DEFAULT_OPTIONS)
            assert (stream.refreshed_at, stream.refresh_ms) == (None, None)
            assert catalog.snapshot().notes == NO_NOTES
            assert (catalog.events(), catalog.schedulers()) == ([], [])
            catalog.note([noted("s", Pause(1.0))])
            assert catalog.snapshot().notes.get(Pause, "s") == Pause(1.0)
            catalog.commit(Commit((define("s", frontier=1, when_full=WhenFull.REFUSE),)))
            assert catalog.snapshot().streams["s"].when_full is WhenFull.REFUSE
            catalog.commit(Commit((MoveFrontier("s", 1, 2, began=5.0, ms=6.0),)))
            stream = catalog.snapshot().streams["s"]
            assert (stream.frontier, stream.refreshed_at, stream.refresh_ms) == (2, 5.0, 6.0)

    def test_failed_migration_changes_nothing(self, tmp_path: Path, later: Migrations) -> None:
        url = str(tmp_path / "catalog.db")
        Catalog.create(url, location="/warehouse").close()
        with (later.directories[1] / "later.py").open("a") as script:
            script.write("    op.execute('INSERT INTO nowhere VALUES (1)')\n")
        with pytest.raises(CatalogCorruptError):
            open_catalog(url, Options(), later)
        with Catalog.open(url) as catalog:
            assert catalog.head().version == 0


def test_the_catalog_can_be_opened_by_a_spawned_process(tmp_path: Path) -> None:
    url = str(tmp_path / "catalog.db")
    with Catalog.create(url, location="/warehouse") as catalog:
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_commit_once, args=(url,))
        process.start()
        process.join(60)
        assert process.exitcode == 0
        assert catalog.head().version == 1


def _commit_once(url: str) -> None:
    with Catalog.open(url) as catalog:
        catalog.commit(create("t"))
