"""Diagnostics: the questions of the catalog behind them, the answers without any Spark, and all of it on a real warehouse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from tests.catalog.building import (
    CatalogContract,
    ManualClock,
    OnPostgres,
    OnSqlite,
    apply,
    create,
    define,
    inline,
    managed,
    postgres_server,  # noqa: F401
    postgres_url,  # noqa: F401
    refresh_record,
)

import headwater as hw
from headwater.catalog import Catalog, Options, Snapshot
from headwater.catalog.freshness import change_times, oldest_unseen, refresh_totals
from headwater.diagnostics import Diagnostics
from headwater.errors import ClosedError, StatementError, UnknownTableError, WrongKindError
from headwater.model.commit import CreateTable, DefineStream, DropTable, MoveFrontier
from headwater.model.control import Pause, noted
from headwater.model.reports import ChangeBuffer, RefreshTotals, Severity, Unseen
from headwater.model.tables import RefreshAction, RefreshMode, StreamTable, Table, TableKind, WhenFull
from headwater.refresh.cycle import Refresher
from headwater.refresh.definition import Definition
from headwater.settings import Settings
from headwater.store.columns import Columns
from headwater.store.ground import Ground
from headwater.store.layout import Layout
from headwater.store.reading import Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.warehouse import Warehouse


def stream(name: str, *sources: str, **values: Any) -> tuple[CreateTable, DefineStream]:
    return CreateTable(managed(name, kind=TableKind.STREAM)), define(name, *sources, **values)


class FreshnessContract(CatalogContract):
    """Versions here: 1 creates t, u and the stream tables, later ones are said."""

    @pytest.fixture
    def made(self, catalog: Catalog) -> Catalog:
        tables = (CreateTable(managed("t")), CreateTable(managed("u")))
        apply(catalog, *tables, *stream("a", "t", "u"), *stream("b", "a"))
        return catalog

    def test_what_was_never_populated_has_seen_nothing_and_misses_nothing(
        self, made: Catalog, clock: ManualClock
    ) -> None:
        apply(made, inline("b1", "t"))
        assert oldest_unseen(made._database) == made.oldest_unseen() == {}

    def test_the_first_change_after_the_frontier_counts(self, made: Catalog, clock: ManualClock) -> None:
        apply(made, MoveFrontier("a", None, 1))
        clock.advance(100)
        first = apply(made, inline("b1", "t"))
        clock.advance(10)
        apply(made, inline("b2", "t"))
        second = apply(made, inline("b3", "u"))
        clock.advance(5)
        assert made.oldest_unseen() == {("a", "t"): Unseen(first, 15.0), ("a", "u"): Unseen(second, 5.0)}
        apply(made, MoveFrontier("a", 1, first))
        assert made.oldest_unseen() == {("a", "t"): Unseen(second - 1, 5.0), ("a", "u"): Unseen(second, 5.0)}
        apply(made, MoveFrontier("a", first, second))
        assert made.oldest_unseen() == {}

    def test_a_source_that_was_read_at_another_version(self, made: Catalog, clock: ManualClock) -> None:
        apply(made, MoveFrontier("b", None, 1))
        own = apply(made, inline("b1", "a"), MoveFrontier("a", None, 1))
        assert made.oldest_unseen() == {("b", "a"): Unseen(own, 0.0)}
        apply(made, MoveFrontier("b", 1, 1, {"a": own}))
        assert made.oldest_unseen() == {}
        clock.advance(3)
        later = apply(made, inline("b2", "a"))
        assert made.oldest_unseen() == {("b", "a"): Unseen(later, 0.0)}

    def test_commits_that_change_no_rows_are_no_changes(self, made: Catalog, clock: ManualClock) -> None:
        apply(made, inline("b1", "t"))
        apply(made, MoveFrontier("a", None, 2))
        apply(made, define("a", "t", "u", query="SELECT 1", frontier=2))
        made.set_stream_status("a", "ACTIVE", "no")
        apply(made, *stream("c", "t"))
        assert made.oldest_unseen() == {}
        assert change_times(made._database, "t", 10) == [clock.time]

    def test_what_vacuum_forgot_looks_younger_never_older(self, made: Catalog, clock: ManualClock) -> None:
        apply(made, MoveFrontier("a", None, 1))
        ages = []
        for number in range(5):
            clock.advance(10)
            ages.append(apply(made, inline(f"b{number}", "t")))
        clock.advance(10)
        assert made.oldest_unseen()["a", "t"] == Unseen(ages[0], 50.0)
        made.forget_versions(ages[3])
        found = made.oldest_unseen()["a", "t"]
        assert ages[0] <= found.version <= ages[3]
        assert found.seconds == 20.0

    def test_dropped_stream_tables_miss_nothing(self, made: Catalog) -> None:
        apply(made, MoveFrontier("a", None, 1), MoveFrontier("b", None, 1))
        apply(made, inline("b1", "t"))
        assert made.oldest_unseen().keys() == {("a", "t")}
        apply(made, DropTable("b"), DropTable("a"))
        assert made.oldest_unseen() == {}

    def test_one_query_for_any_number_of_stream_tables(self, catalog: Catalog) -> None:
        names = [f"s{i}" for i in range(40)]
        apply(catalog, CreateTable(managed("t")), *(c for n in names for c in stream(n, "t")))
        apply(catalog, *(MoveFrontier(n, None, 1) for n in names))
        apply(catalog, inline("b1", "t"))
        with counted(catalog) as statements:
            assert len(catalog.oldest_unseen()) == 40
        assert len(statements) == 1

    def test_times_of_changes(self, made: Catalog, clock: ManualClock) -> None:
        times = []
        for number in range(4):
            clock.advance(10)
            apply(made, inline(f"b{number}", "t"))
            times.append(clock.time)
        clock.advance(1)
        apply(made, inline("other", "u"))
        assert change_times(made._database, "t", 10) == times
        assert change_times(made._database, "t", 2) == times[2:]
        assert change_times(made._database, "nothing", 2) == []

    def test_totals(self, made: Catalog) -> None:
        assert refresh_totals(made._database) == RefreshTotals()
        made.record(refresh_record("a", status="COMPLETED", bytes_written=100))
        made.record(refresh_record("a", status="COMPLETED", action=RefreshAction.FULL))
        made.record(refresh_record("b", status="COMPLETED", action=RefreshAction.INITIAL))
        made.record(refresh_record("b", status="FAILED", error="no", rows_inserted=99))
        made.record(refresh_record("b", status="ROLLED_BACK", rows_inserted=99))
        with counted(made) as statements:
            found = refresh_totals(made._database)
        assert found == RefreshTotals(3, 1, 1, 2, 9, 9, 100, 3, 37.5)
        assert len(statements) == 1


class TestFreshnessOnSqlite(OnSqlite, FreshnessContract):
    def test_it_searches_the_key_and_stops_at_the_first(self, made: Catalog) -> None:
        """A table that is not refreshed must not make the question dearer with every commit."""
        apply(made, MoveFrontier("a", None, 1))
        for number in range(200):
            apply(made, inline(f"b{number}", "t"))
        with counted(made) as statements:
            made.oldest_unseen()
        steps = made._database.read(
            lambda connection: [
                row[3] for row in connection.exec_driver_sql("EXPLAIN QUERY PLAN " + statements[0][0], statements[0][1])
            ]
        )
        assert not [s for s in steps if "SCAN table_states" in s or "SCAN commits" in s], steps
        assert not [s for s in steps if "TEMP B-TREE" in s], steps


class TestFreshnessOnPostgres(OnPostgres, FreshnessContract):
    pass


@contextmanager
def counted(catalog: Catalog) -> Iterator[list[tuple[str, Any]]]:
    """Collect the statements that are sent to the database."""
    found: list[tuple[str, Any]] = []

    def before(_: Any, __: Any, statement: str, parameters: Any, *___: Any) -> None:
        if statement != "BEGIN":
            found.append((statement, parameters))

    engine = catalog._database._engine
    event.listen(engine, "before_cursor_execute", before)
    try:
        yield found
    finally:
        event.remove(engine, "before_cursor_execute", before)


# without Spark --------------------------------------------------------------------------------------------------------------


class NoSpark:
    """An engine that must not be asked for anything."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"engine.{name}")


class Looked(Diagnostics):
    """Diagnostics over a catalog, with nothing to compute with."""

    def __init__(self, catalog: Catalog, location: Path) -> None:
        layout = Layout(location)
        settings = Settings()
        nothing: Any = NoSpark()
        reader = Reader(catalog, layout, Columns(layout, 0), local_rows=1, driver_rows=1)
        self._catalog = catalog
        self._ground = Ground(catalog, layout, nothing, reader, nothing, settings, "test")
        self._refresher = Refresher(self._ground)

    def snapshot(self) -> Snapshot:
        return self._catalog.snapshot()

    def lookup(self, snapshot: Snapshot, name: str) -> Table:
        table = snapshot.table(name)
        if table is None:
            raise UnknownTableError(name, [])
        return table

    def _stream(self, snapshot: Snapshot, name: str) -> tuple[Table, StreamTable]:
        table = self.lookup(snapshot, name)
        if table.id not in snapshot.streams:
            raise WrongKindError(f'"{name}" is not a stream table')
        return table, snapshot.streams[table.id]


def defined(name: str, *sources: str, schedule: str = "1m", always: bool = False) -> DefineStream:
    text = Definition("SELECT 1", False, {}, (), (), None, always).to_json()
    return DefineStream(name, "SELECT 1", RefreshMode.FULL, schedule, WhenFull.ALLOW, text, sources)


class TestWithoutSpark:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def catalog(self, tmp_path: Path, clock: ManualClock) -> Iterator[Catalog]:
        url = str(tmp_path / "catalog.db")
        Catalog.create(url, location=str(tmp_path)).close()
        with Catalog.open(url, options=Options(clock=clock)) as opened:
            yield opened

    @pytest.fixture
    def looked(self, catalog: Catalog, tmp_path: Path) -> Looked:
        """A source t, a and b over it, c over both; a is behind by one batch of three rows."""
        catalog.commit(create("t"))
        made = [CreateTable(managed(n, kind=TableKind.STREAM)) for n in "abc"]
        apply(catalog, *made, defined("a", "t"), defined("b", "t"), defined("c", "a", "b"))
        apply(catalog, *(MoveFrontier(n, None, 2) for n in "abc"))
        apply(catalog, inline("b1", "t", 2, 1, hash_change=0), inline("b0", "t", 5), MoveFrontier("b", 2, 4))
        return Looked(catalog, tmp_path)

    def test_staleness(self, looked: Looked, clock: ManualClock) -> None:
        clock.advance(30)
        assert [looked.get_staleness(n) for n in "abc"] == [30.0, 0.0, 30.0]
        assert {i: (f.staleness_seconds, f.reason) for i, f in looked.freshness(looked.snapshot()).items()} == {
            "a": (30.0, "due"),
            "b": (0.0, None),
            "c": (30.0, "waits for a"),
        }
        with pytest.raises(WrongKindError):
            looked.get_staleness("t")
        with pytest.raises(UnknownTableError):
            looked.get_staleness("nothing")

    def test_buffers(self, looked: Looked, clock: ManualClock) -> None:
        clock.advance(30)
        assert looked.change_buffer_sizes() == [
            ChangeBuffer("a", "t", 8, 10, 30.0, 2),
            ChangeBuffer("b", "t", 0, 0, None, 0),
            ChangeBuffer("c", "a", 0, 0, None, 0),
            ChangeBuffer("c", "b", 0, 0, None, 0),
        ]

    def test_a_constant_number_of_queries(self, looked: Looked, catalog: Catalog) -> None:
        def asked() -> dict[str, int]:
            found = {}
            for name in ("change_buffer_sizes", "health_check", "diamond_groups", "explain_dag", "refresh_timeline"):
                with counted(catalog) as statements:
                    getattr(looked, name)()
                found[name] = len(statements)
            with counted(catalog) as statements:
                looked.freshness(looked.snapshot())
            return {**found, "freshness": len(statements)}

        looked.snapshot()
        few = asked()
        names = [f"s{i}" for i in range(30)]
        apply(catalog, *(CreateTable(managed(n, kind=TableKind.STREAM)) for n in names))
        apply(catalog, *(defined(n, "t", "a") for n in names))
        apply(catalog, *(MoveFrontier(n, None, 3) for n in names))
        looked.snapshot()
        assert len(looked.change_buffer_sizes()) == 64
        assert asked() == few
        assert few == {
            "change_buffer_sizes": 4,
            "health_check": 6,
            "diamond_groups": 0,
            "explain_dag": 1,
            "refresh_timeline": 1,
            "freshness": 2,
        }

    def test_health(self, looked: Looked, catalog: Catalog, clock: ManualClock) -> None:
        clock.advance(121)
        checks = {c.check: c for c in looked.health_check()}
        assert checks["scheduler_running"].severity is Severity.ERROR
        assert checks["stale_tables"].severity is Severity.WARN
        assert checks["paused"].severity is Severity.OK
        catalog.note([noted("a", Pause(clock.time))])
        catalog.show_scheduler("o", clock.time, 60.0, json.dumps({"state": "running", "workers": 2}))
        checks = {c.check: c for c in looked.health_check()}
        assert checks["scheduler_running"].severity is Severity.OK
        assert checks["paused"].severity is Severity.WARN

    def test_timeline(self, looked: Looked, catalog: Catalog) -> None:
        for name in ("a", "b", "a", "gone"):
            catalog.record(refresh_record(name))
        assert [e.name for e in looked.refresh_timeline()] == ["(dropped)", "a", "b", "a"]
        assert [e.name for e in looked.refresh_timeline(2)] == ["(dropped)", "a"]

    def test_graph(self, looked: Looked) -> None:
        assert {d.member for d in looked.diamond_groups()} == {"a", "b", "c"}
        assert looked.dependency_tree("c").text.splitlines()[0] == "c (FULL, 1m)"
        assert [n.name for n in looked.dependency_tree("a").nodes] == ["a", "t"]
        assert looked.explain_dag().startswith("flowchart LR\n")
        assert looked.explain_dag("dot").startswith("digraph")
        with pytest.raises(StatementError):
            looked.explain_dag("png")
        with pytest.raises(UnknownTableError):
            looked.dependency_tree("nothing")

    def test_advice(self, looked: Looked, catalog: Catalog, clock: ManualClock) -> None:
        for number in range(30):
            clock.advance(60)
            apply(catalog, inline(f"x{number}", "t"))
            catalog.record(refresh_record("a", status="COMPLETED", duration_ms=1_900.0))
        found = looked.recommend_schedule("a")
        assert found.recommended_interval_seconds == 5.0
        assert "Its sources changed 31 times" in found.reasoning
        assert [a.stream_table for a in looked.schedule_recommendations()] == ["a", "b", "c"]
        assert looked.schedule_recommendations()[0] == found
        assert looked.recommend_schedule("b").recommended_interval_seconds is None
        with pytest.raises(WrongKindError):
            looked.recommend_schedule("t")

    def test_a_table_that_reads_the_clock_always_has_something_to_do(
        self, looked: Looked, catalog: Catalog, clock: ManualClock
    ) -> None:
        apply(catalog, CreateTable(managed("d", kind=TableKind.STREAM)), defined("d", "t", always=True))
        for _ in range(30):
            catalog.record(refresh_record("d", status="COMPLETED", duration_ms=1_900.0))
        assert looked.recommend_schedule("d").recommended_interval_seconds == 30.0

    def test_workers_and_numbers(self, looked: Looked, catalog: Catalog, clock: ManualClock) -> None:
        assert (
            looked.worker_allocation_status() == looked.cluster_worker_summary() == looked.scheduler_diagnostics() == []
        )
        data = {"host": "h", "pid": 1, "warehouse": "w", "workers": 4, "active": 2, "queued": 1, "ticks": 8}
        catalog.show_scheduler("o", clock.time, 60.0, json.dumps(data))
        clock.advance(5)
        assert (looked.worker_allocation_status()[0].workers_used, looked.cluster_worker_summary()[0].workers) == (2, 4)
        (status,) = looked.scheduler_diagnostics()
        assert (status.ticks, status.alive_since) == (8, clock.time - 5)
        catalog.record(refresh_record("a", status="COMPLETED"))
        numbers = looked.metrics_summary()
        assert (numbers["refreshes_total"], numbers["rows_changed_total"], numbers["workers_active"]) == (1, 3, 2)
        assert (numbers["staleness_max_seconds"], numbers["pending_stream_tables"]) == (5.0, 1)
        clock.advance(60)
        assert looked.scheduler_diagnostics() == [], "it is dead"
        assert looked.metrics_summary()["workers"] == 0

    def test_a_closed_catalog_says_so(self, looked: Looked, catalog: Catalog) -> None:
        catalog.close()
        for question in (looked.health_check, looked.metrics_summary, looked.scheduler_diagnostics):
            with pytest.raises(ClosedError):
                question()


# on a real warehouse --------------------------------------------------------------------------------------------------------


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with hw.connect(tmp_path / "w", spark=spark) as made:
        made.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)")
        made.sql("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
        yield made


def test_a_warehouse_over_time(wh: Warehouse, tmp_path: Path) -> None:
    wh.create_stream_table("totals", "SELECT k, sum(v) AS v FROM t GROUP BY k", schedule="10m")
    wh.create_stream_table("counts", "SELECT k, count(*) AS n FROM t GROUP BY k", schedule="10m")
    joined = "SELECT totals.k, v, n FROM totals JOIN counts ON totals.k = counts.k"
    wh.create_stream_table("both", joined, diamond_consistency="none")
    assert [wh.get_staleness(n) for n in ("totals", "counts", "both")] == [0.0, 0.0, 0.0]
    wh.sql("INSERT INTO t VALUES (3, 3, 3), (4, 3, 4)")
    stale = wh.get_staleness("both")
    assert stale is not None
    assert 0 < stale < 60
    assert [(b.stream_table, b.pending_rows) for b in wh.change_buffer_sizes() if b.pending_rows] == [
        ("counts", 2),
        ("totals", 2),
    ]
    assert {f.reason for f in wh.freshness(wh.snapshot()).values()} == {"due", "waits for counts"}
    report = wh.refresh("totals")
    assert (report.action, report.rows_inserted) == (RefreshAction.DIFFERENTIAL, 1)
    assert wh.get_staleness("totals") == 0.0
    assert [(b.stream_table, b.source_table) for b in wh.change_buffer_sizes() if b.pending_rows] == [
        ("both", "totals"),
        ("counts", "t"),
    ]
    wh.sql("DELETE FROM t WHERE id = 4")
    totals = wh.snapshot().table("totals")
    assert totals is not None
    assert wh.freshness(wh.snapshot())[totals.id].reason == "not due"
    wh.refresh()
    assert all(f.staleness_seconds == 0.0 for f in wh.freshness(wh.snapshot()).values())
    newest = wh.refresh_timeline(3)
    assert (newest[0].name, {e.name for e in newest}) == ("both", {"both", "counts", "totals"})
    assert {e.action for e in newest} == {RefreshAction.DIFFERENTIAL}
    assert {d.member: d.is_convergence for d in wh.diamond_groups()} == {"totals": False, "counts": False, "both": True}
    numbers = wh.metrics_summary()
    assert numbers["refreshes_total"] == numbers["refreshes_completed_total"] == len(wh.refresh_timeline()) == 7
    assert numbers["change_reads_total"] > 0
    assert {c.check for c in wh.health_check() if c.severity is not Severity.OK} == {"scheduler_running"}
    with hw.connect(tmp_path / "w") as other:
        other.health_check()
        other.schedule_recommendations()
        assert other.explain_dag().count("subgraph") == 1
        assert other.metrics_summary()["stream_tables"] == 3
        assert not other._ground.engine.is_started


def test_rows_of_a_merged_batch_are_counted_from_the_frontier_on(wh: Warehouse) -> None:
    wh.create_stream_table("totals", "SELECT k, sum(v) AS v FROM t GROUP BY k", schedule="manual")
    wh.create_stream_table("late", "SELECT max(v) AS v FROM t", schedule="manual")
    for number in range(10, 30):
        wh.insert("t", [{"id": number, "k": 1, "v": 1}])
    assert wh.refresh("totals").action is RefreshAction.DIFFERENTIAL
    for number in range(30, 80):
        wh.insert("t", [{"id": number, "k": 2, "v": 1}])
    table = wh.snapshot().table("t")
    assert table is not None
    frontier = next(s.frontier for i, s in wh.snapshot().streams.items() if wh.snapshot().tables[i].name == "totals")
    assert frontier is not None
    merged = [b for b in wh._catalog.manifest(table.id, wh.version).batches if b.merged]
    assert [b for b in merged if b.first_version <= frontier < b.last_version], "a batch lies across the frontier"
    assert {b.stream_table: b.pending_rows for b in wh.change_buffer_sizes()} == {"totals": 50, "late": 70}
