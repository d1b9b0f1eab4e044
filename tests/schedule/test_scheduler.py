"""Ticks: what is due is refreshed, once, in order, to one moment; what is not, is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.schedule.running import MAKES, Time, names, scheduler

import headwater as hw
from headwater.errors import BusyError
from headwater.model.tables import RefreshAction
from headwater.schedule.scheduler import Scheduler
from headwater.schedule.workers import Workers
from headwater.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with hw.connect(tmp_path / "w", spark=spark) as made:
        made.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)")
        made.sql("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
        yield made


@pytest.fixture(params=MAKES)
def make(request: pytest.FixtureRequest) -> Callable[[], Workers]:
    """Every way to have workers."""
    return MAKES[request.param]


def test_each_table_is_refreshed_when_it_is_due_and_has_something_to_do(
    wh: Warehouse, make: Callable[[], Workers]
) -> None:
    time = Time()
    wh.create_stream_table("often", "SELECT k, sum(v) AS v FROM t GROUP BY k", schedule="10s")
    wh.create_stream_table("rarely", "SELECT count(*) AS n FROM often", schedule="1m")
    wh.create_stream_table("never", "SELECT max(v) AS v FROM t", schedule="manual")
    with scheduler(wh, time, make) as s:
        assert names(s.tick()) == []
        wh.sql("INSERT INTO t VALUES (3, 3, 3)")
        assert names(s.tick()) == ["often", "rarely"]
        wh.sql("INSERT INTO t VALUES (4, 4, 4)")
        report = s.tick()
        assert names(report) == []
        assert dict(report.skipped) == {"often": "not due", "never": "not due"}
        time.now += 10
        assert names(s.tick()) == ["often"]
        assert wh.table("rarely").collect()[0].n == 3
        time.now += 50
        assert names(s.tick()) == ["rarely"]
        assert wh.table("rarely").collect()[0].n == 4
        assert names(s.tick()) == []
    assert wh.verify("rarely").equal


def test_calculated_tables_are_refreshed_just_before_those_that_read_them(wh: Warehouse) -> None:
    time = Time()
    wh.create_stream_table("inner", "SELECT k, sum(v) AS v FROM t GROUP BY k")
    wh.create_stream_table("outer", "SELECT max(v) AS v FROM inner", schedule="1m")
    wh.create_stream_table("alone", "SELECT min(v) AS v FROM t")
    with scheduler(wh, time) as s:
        wh.sql("INSERT INTO t VALUES (3, 3, 30)")
        assert sorted(names(s.tick())) == ["alone", "inner", "outer"]
        wh.sql("INSERT INTO t VALUES (4, 4, -40)")
        time.now += 2
        assert names(s.tick()) == ["alone"]
        time.now += 58
        report = s.tick()
        assert names(report) == ["inner", "outer"]
        assert report.refreshed[1].rows_inserted == 0  # a new smallest value, the largest stays
        wh.sql("INSERT INTO t VALUES (5, 3, 5)")
        time.now += 60
        assert sorted(names(s.tick())) == ["alone", "inner", "outer"]
    assert [r.v for r in wh.table("outer").collect()] == [35]


def test_all_refreshes_of_a_tick_stand_for_its_moment(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    wh.create_stream_table("sums", "SELECT k, sum(v) AS v FROM t GROUP BY k", schedule="1s")
    wh.create_stream_table("both", "SELECT t.id, t.v, s.v AS total FROM t JOIN sums s ON s.k = t.k", schedule="1s")
    with scheduler(wh, Time()) as s:
        wh.sql("INSERT INTO t VALUES (3, 1, 10)")
        real = wh._refresher.refresh_unit

        def meanwhile(*args: Any, **kwargs: Any) -> Any:
            done = real(*args, **kwargs)
            wh.sql("UPDATE t SET v = v + 100 WHERE id = 1")
            return done

        monkeypatch.setattr(wh._refresher, "refresh_unit", meanwhile)
        wh.alter_stream_table("both", diamond_consistency="none")
        assert names(s.tick()) == ["sums", "both"]
    assert sorted(tuple(r) for r in wh.table("both").collect()) == [(1, 1, 11), (2, 2, 2), (3, 10, 11)]
    assert wh.verify("both").equal


def test_another_process_changes_and_defines(wh: Warehouse, spark: SparkSession) -> None:
    with hw.connect(wh._ground.layout.location, spark=spark) as other, scheduler(wh, Time()) as s:
        assert names(s.tick()) == []
        other.create_stream_table("late", "SELECT sum(v) AS v FROM t", schedule="1s")
        assert names(s.tick()) == []
        other.sql("INSERT INTO t VALUES (3, 3, 3)")
        assert names(s.tick()) == ["late"]
        other.drop_stream_table("late")
        other.sql("INSERT INTO t VALUES (4, 3, 3)")
        assert names(s.tick()) == []


def test_what_depends_on_a_failure_waits_and_its_siblings_do_not(wh: Warehouse, make: Callable[[], Workers]) -> None:
    time = Time()
    wh.create_stream_table("inverse", "SELECT id, 10 DIV v AS q FROM t", schedule="1s")
    wh.create_stream_table("above", "SELECT count(*) AS n, max(q) AS q FROM inverse", schedule="1s")
    wh.create_stream_table("beside", "SELECT count(*) AS n FROM t", schedule="1s")
    with scheduler(wh, time, make) as s:
        wh.sql("INSERT INTO t VALUES (3, 0, 0)")
        report = s.tick()
        assert [r.name for r in report.refreshed] == ["beside"]
        assert [n for n, _ in report.failed] == ["inverse"]
        assert "DIVIDE_BY_ZERO" in report.failed[0][1]
        assert dict(report.skipped) == {"above": "what it reads was not refreshed"}
        time.now += 60
        assert names(s.tick()) == []  # trying again cannot help before rows change
        wh.sql("UPDATE t SET v = 5 WHERE id = 3")
        time.now += 1
        assert sorted(names(s.tick())) == ["above", "beside", "inverse"]
    assert [tuple(r) for r in wh.table("above").collect()] == [(3, 10)]


def test_a_diamond_appears_in_one_commit(wh: Warehouse, make: Callable[[], Workers]) -> None:
    wh.create_stream_table("low", "SELECT k, min(v) AS v FROM t GROUP BY k", schedule="1s")
    wh.create_stream_table("high", "SELECT k, max(v) AS v FROM t GROUP BY k", schedule="1s")
    wh.create_stream_table("span", "SELECT l.k, h.v - l.v AS v FROM low l JOIN high h ON h.k = l.k", schedule="1s")
    with scheduler(wh, Time(), make) as s:
        wh.sql("INSERT INTO t VALUES (3, 1, 7), (4, 2, -7)")
        version = wh.version
        report = s.tick()
        assert names(report) == ["low", "high", "span"]
        assert {r.version for r in report.refreshed} == {version + 1}
    assert sorted(tuple(r) for r in wh.table("span").collect()) == [(1, 6), (2, 9)]
    assert all(v.equal for v in wh.verify())


def test_default_schedule_seconds_is_how_often_a_table_is_due_that_nobody_reads(
    wh: Warehouse, spark: SparkSession
) -> None:
    wh.create_stream_table("alone", "SELECT min(v) AS v FROM t")
    place = wh._ground.layout.location
    time = Time()
    for seconds in (5.0, 60.0):
        time.now += 1000
        with (
            hw.connect(place, spark=spark, settings={"default_schedule_seconds": seconds}) as wh_,
            scheduler(wh_, time) as s,
        ):
            wh_.sql("UPDATE t SET v = v - 1 WHERE id = 1")
            assert names(s.tick()) == ["alone"]
            wh_.sql("UPDATE t SET v = v - 1 WHERE id = 1")
            time.now += seconds - 1
            assert names(s.tick()) == []
            time.now += 1
            assert names(s.tick()) == ["alone"]


def test_scheduler_interval_seconds_is_the_time_between_two_looks(
    wh: Warehouse, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = wh._ground.layout.location
    for seconds in (1000.0, 2000.0):
        with (
            hw.connect(place, spark=spark, settings={"scheduler_interval_seconds": seconds}) as wh_,
            wh_.scheduler() as s,
        ):
            waited: list[float | None] = []

            def wait(
                signals: int, left: float | None = None, s: Scheduler = s, waited: list[float | None] = waited
            ) -> None:
                waited.append(left)
                s._stop.set()

            monkeypatch.setattr(s, "_await", wait)
            s.run()
            assert waited == [seconds]


def test_a_table_that_reads_the_clock_is_due_without_a_change(wh: Warehouse) -> None:
    time = Time()
    wh.create_stream_table("today", "SELECT current_date() AS d, count(*) AS n FROM t", schedule="1h")
    with scheduler(wh, time) as s:
        assert [(r.name, r.action) for r in s.tick().refreshed] == [("today", RefreshAction.FULL)]
        assert s.tick().refreshed == ()
        time.now += 3600
        assert [r.name for r in s.tick().refreshed] == ["today"]


def test_a_scheduler_in_the_background_refreshes_what_changes(wh: Warehouse) -> None:
    wh.create_stream_table("sums", "SELECT sum(v) AS v FROM t", schedule="0.1s")
    with wh.scheduler() as s:
        s.start()
        wh.sql("INSERT INTO t VALUES (3, 3, 3)")
        for _ in range(300):
            if [r.v for r in wh.table("sums").collect()] == [6]:
                break
            threading.Event().wait(0.1)
    assert [r.v for r in wh.table("sums").collect()] == [6]
    assert wh.verify("sums").equal


def test_what_changes_while_it_is_refreshed_is_refreshed_again(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    wh.create_stream_table("sums", "SELECT sum(v) AS v FROM t", schedule="1s")
    with scheduler(wh, time) as s:
        real = s._begin

        def meanwhile() -> Any:
            begun = real()
            monkeypatch.setattr(s, "_begin", real)
            wh.sql("INSERT INTO t VALUES (4, 4, 4)")
            return begun

        wh.sql("INSERT INTO t VALUES (3, 3, 3)")
        monkeypatch.setattr(s, "_begin", meanwhile)
        assert names(s.tick()) == ["sums"]
        assert [r.v for r in wh.table("sums").collect()] == [6]
        time.now += 1
        assert names(s.tick()) == ["sums"]
        assert [r.v for r in wh.table("sums").collect()] == [10]
        assert names(s.tick()) == []


def test_a_catalog_that_is_away_for_a_moment_does_not_end_the_scheduler(
    wh: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    wh.create_stream_table("sums", "SELECT sum(v) AS v FROM t", schedule="0.1s")
    real, away = wh._catalog.snapshot, [True, True]

    def snapshot(version: int | None = None) -> Any:
        if away and threading.current_thread().name == "headwater-scheduler":
            away.pop()
            raise BusyError("the catalog is locked")
        return real(version)

    monkeypatch.setattr(wh._catalog, "snapshot", snapshot)
    with wh.scheduler() as s:
        s.start()
        wh.sql("INSERT INTO t VALUES (3, 3, 3)")
        for _ in range(300):
            if [r.v for r in wh.table("sums").collect()] == [6]:
                break
            threading.Event().wait(0.1)
    assert not away
    assert [r.v for r in wh.table("sums").collect()] == [6]
