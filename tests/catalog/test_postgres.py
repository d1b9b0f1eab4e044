"""What holds on PostgreSQL alone: lost connections, commits of unknown outcome, locks, durability."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event as Signal

import psycopg
import pytest
from sqlalchemy import Connection, event
from tests.catalog.building import apply, create, inline
from tests.support.postgres import TestServer

from headwater.catalog import Catalog, CatalogUnavailableError, CommitUnknownError, Options
from headwater.errors import BusyError, SettingError
from headwater.model.events import Event, EventKind

pytestmark = pytest.mark.postgres


@pytest.fixture
def catalog(postgres_url: str) -> Iterator[Catalog]:
    with Catalog.create(postgres_url, location="/warehouse", options=Options(busy_timeout=0.2)) as catalog:
        catalog.commit(create("t"))
        yield catalog


def cut_connections(url: str) -> None:
    """End all other sessions in the database, as a failing network or a restart would."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_reads_and_writes_outlive_a_lost_connection(catalog: Catalog, postgres_url: str) -> None:
    for number, use in enumerate(
        (
            lambda: catalog.head(),
            lambda: catalog.manifest("t", 1),
            lambda: catalog.snapshot(0),
            lambda: apply(catalog, inline("b", "t")),
            lambda: catalog.acquire("l", "a", 10.0),
        )
    ):
        cut_connections(postgres_url)
        use()
        assert catalog.head().version == (1 if number < 3 else 2), "committed once"


def test_a_restarted_server_is_found_again(catalog: Catalog, postgres_server: TestServer) -> None:
    postgres_server.restart()
    assert catalog.head().version == 1
    assert apply(catalog, inline("b", "t")) == 2


def break_at_commit(catalog: Catalog, *, committed: bool) -> None:
    """Let the next COMMIT answer with a lost connection, after or before the server carried it out."""

    def lose(connection: Connection) -> None:
        driver = connection.connection.driver_connection
        assert driver is not None
        if committed:
            driver.execute("COMMIT")
        driver.close()

    event.listen(catalog._database._engine, "commit", lose, once=True)


def test_lost_commit_that_landed_returns_its_version(catalog: Catalog) -> None:
    break_at_commit(catalog, committed=True)
    assert apply(catalog, inline("b", "t")) == 2
    assert catalog.snapshot().tables["t"].row_count == 1


def test_lost_commit_that_did_not_land_is_not_repeated(catalog: Catalog) -> None:
    break_at_commit(catalog, committed=False)
    with pytest.raises(CatalogUnavailableError, match="Nothing was changed") as caught:
        apply(catalog, inline("b", "t"))
    assert not isinstance(caught.value, CommitUnknownError)
    assert catalog.snapshot().tables["t"].row_count == 0
    assert apply(catalog, inline("b", "t")) == 2


def test_lost_note_is_reported_as_unknown(catalog: Catalog) -> None:
    break_at_commit(catalog, committed=True)
    with pytest.raises(CommitUnknownError, match="Whether the commit took effect is not known"):
        catalog.acquire("l", "a", 10.0)
    assert catalog.lease_holder("l") is not None


def test_commit_whose_outcome_cannot_be_asked_is_unknown(catalog: Catalog) -> None:
    engine = catalog._database._engine

    def refuse(*_: object) -> None:
        raise psycopg.OperationalError("connection refused")

    break_at_commit(catalog, committed=True)
    event.listen(engine, "do_connect", refuse)
    try:
        with pytest.raises(CommitUnknownError):
            apply(catalog, inline("b", "t"))
    finally:
        event.remove(engine, "do_connect", refuse)
    assert catalog.head().version == 2


def test_held_row_lock_is_busy(catalog: Catalog, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as blocker:
        blocker.execute("SELECT * FROM headwater.warehouse FOR UPDATE")
        with pytest.raises(BusyError, match="locked by another writer"):
            apply(catalog, inline("b", "t"))
        assert catalog.snapshot().version == 1, "readers do not wait"
    assert apply(catalog, inline("b", "t")) == 2


def test_lease_cannot_change_hands_inside_a_commit(catalog: Catalog, postgres_url: str) -> None:
    token = catalog.acquire("l", "a", 0.05)
    assert token is not None
    with psycopg.connect(postgres_url) as commit:
        commit.execute("SELECT * FROM headwater.leases WHERE name = 'l' FOR SHARE")
        with ThreadPoolExecutor(1) as pool, pytest.raises(BusyError):
            pool.submit(lambda: [catalog.acquire("l", "b", 10.0) for _ in range(20)]).result()


def test_events_are_seen_in_the_order_of_their_ids(catalog: Catalog) -> None:
    """Who has seen an event has seen all with smaller ids, so that asking for newer ones is enough."""
    committing, seen = Signal(), Signal()

    def hold(_: Connection) -> None:
        committing.set()
        assert seen.wait(10.0)

    event.listen(catalog._database._engine, "commit", hold, once=True)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(catalog.record_events, [Event(EventKind.RESUMED, 1.0)])
        assert committing.wait(10.0)
        with pytest.raises(BusyError):
            catalog.record_events([Event(EventKind.RESUMED, 2.0)])
        assert catalog.events() == [], "readers do not wait"
        seen.set()
        first.result(10.0)
    catalog.record_events([Event(EventKind.RESUMED, 2.0)])
    assert [e.at for e in catalog.events()] == [2.0, 1.0]


def test_commits_wait_for_the_disk_even_if_the_database_does_not(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with Catalog.create(postgres_url, location="/warehouse") as catalog:
        assert catalog._database.first_row("SHOW synchronous_commit") == ("on",)
        levels = catalog._database.read(
            lambda connection: connection.exec_driver_sql("SHOW transaction_isolation").scalar()
        )
        assert levels == "read committed"


def test_time_is_the_servers(catalog: Catalog, postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    assert row is not None
    assert 0 <= catalog.now() - row[0] < 60


def test_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SettingError, match=r"pip install 'headwater\[postgres\]'"):
        Catalog.open("postgresql://host/db")
