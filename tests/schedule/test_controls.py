"""What operators say is obeyed in every way of dispatching: inline, by threads of their own, by a pool, and in groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from tests.schedule.running import MAKES, Time, names, scheduler

import headwater as hw
from headwater.model.events import EventKind
from headwater.model.tables import REREAD, SUSPENDED, RefreshAction
from headwater.schedule.scheduler import Scheduler
from headwater.schedule.workers import Crew, Inline, Pool, Spawned, Workers
from headwater.warehouse import Warehouse

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def wh(spark: SparkSession, tmp_path: Path) -> Iterator[Warehouse]:
    with hw.connect(tmp_path / "w", spark=spark) as made:
        made.sql("CREATE TABLE t (id INT PRIMARY KEY, k INT, v INT)")
        made.sql("INSERT INTO t VALUES (1, 1, 1), (2, 2, 2)")
        made.create_stream_table("sums", "SELECT k, sum(v) AS v FROM t GROUP BY k", schedule="1s")
        made.create_stream_table("counts", "SELECT count(*) AS n FROM t", schedule="1s")
        yield made


@pytest.fixture(params=[*MAKES, "group"])
def make(request: pytest.FixtureRequest, wh: Warehouse) -> Callable[[], Workers]:
    """Every way to have workers; and with both stream tables in a group."""
    if request.param == "group":
        wh.create_refresh_group("both", ["sums", "counts"])
        return MAKES["spawned"]
    return MAKES[request.param]


@pytest.fixture
def others(request: pytest.FixtureRequest) -> list[str]:
    """What is still refreshed when `sums` is not: nothing in a group, which waits as a whole."""
    return [] if "group" in request.node.callspec.id else ["counts"]


def insert(wh: Warehouse, number: int) -> None:
    wh.sql(f"INSERT INTO t VALUES ({number}, {number % 2}, {number})")


def reasons(wh: Warehouse, s: Scheduler, others: list[str]) -> str:
    """Tick, expect that only the others are refreshed, and return why `sums` is not."""
    report = s.tick()
    assert names(report) == others
    return dict(report.skipped)["sums"]


def catches_up(wh: Warehouse, s: Scheduler) -> None:
    """Tick, and expect that `sums` is refreshed."""
    assert "sums" in names(s.tick())
    assert all(v.equal for v in wh.verify())


# pausing --------------------------------------------------------------------------------------------------------------------


def test_a_paused_table_is_left_until_it_is_resumed(
    wh: Warehouse, make: Callable[[], Workers], others: list[str], spark: SparkSession
) -> None:
    time = Time()
    with scheduler(wh, time, make) as s:
        assert wh.pause_scheduler(["sums"]).paused == ("sums",)
        assert wh.pause_scheduler("sums").still_running == ()  # again changes nothing
        insert(wh, 3)
        assert "paused" in reasons(wh, s, others)
    with hw.connect(wh._ground.layout.location, spark=spark) as after_restart:
        time.now += 10
        with scheduler(after_restart, time, make) as s:
            assert "sums" not in names(s.tick())
            assert after_restart.resume_scheduler(["sums"]) == ("sums",)
            assert after_restart.resume_scheduler(["sums"]) == ()
            catches_up(after_restart, s)


def test_an_unknown_name_pauses_nothing(wh: Warehouse) -> None:
    with pytest.raises(hw.errors.UnknownTableError, match="sum"):
        wh.pause_scheduler(["counts", "sum"])
    with pytest.raises(hw.errors.WrongKindError):
        wh.pause_scheduler(["counts", "t"])
    assert wh.resume_all() == ()


def test_everything_is_paused_at_once(wh: Warehouse, make: Callable[[], Workers]) -> None:
    time = Time()
    with scheduler(wh, time, make) as s:
        assert wh.pause_all().paused == ("counts", "sums")
        insert(wh, 3)
        assert names(s.tick()) == []
        assert wh.refresh("sums").action is RefreshAction.DIFFERENTIAL  # by hand still works
        insert(wh, 4)
        time.now += 5
        assert names(s.tick()) == []
        wh.resume_all()
        assert sorted(names(s.tick())) == ["counts", "sums"]


def test_pausing_waits_for_what_runs_and_gives_up_in_time(
    wh: Warehouse, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, go_on = threading.Event(), threading.Event()
    real = wh._refresher.computer.computed

    def slow(*args: Any) -> Any:
        began.set()
        assert go_on.wait(60)
        return real(*args)

    monkeypatch.setattr(wh._refresher.computer, "computed", slow)
    place = wh._ground.layout.location
    time = Time()
    with (
        scheduler(wh, time, MAKES["pool"]) as s,
        hw.connect(place, spark=spark, settings={"scheduler_drain_timeout": 0.3}) as hasty,
        hw.connect(place, spark=spark) as patient,
    ):
        insert(wh, 3)
        ticking = threading.Thread(target=s.tick)
        ticking.start()
        assert began.wait(60)
        report = hasty.pause_scheduler(["sums", "counts"])
        assert set(report.still_running) <= {"sums", "counts"}
        assert report.still_running
        assert not hasty.drain(0.2)
        assert not hasty.is_drained()
        go_on.set()
        assert patient.pause_scheduler(["sums", "counts"]).still_running == ()
        ticking.join()
        assert patient.drain(10)
        assert patient.is_drained()
        insert(wh, 4)
        patient.resume_all()
        time.now += 5
        assert dict(s.tick().skipped)["sums"] == "the warehouse is drained"
        patient.undrain()
        assert not patient.is_drained()


def test_who_is_paused_while_a_tick_plans_is_not_begun(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler(wh, Time(), MAKES["inline"]) as s:
        insert(wh, 3)
        real = s._begin

        def meanwhile() -> Any:
            begun = real()
            wh.pause_all()
            return begun

        monkeypatch.setattr(s, "_begin", meanwhile)
        report = s.tick()
        assert (report.refreshed, report.failed) == ((), ())
    assert [r.n for r in wh.table("counts").collect()] == [2]


# gates, watermarks, tiers ---------------------------------------------------------------------------------------------------


def test_a_gated_source_holds_what_reads_it(wh: Warehouse, make: Callable[[], Workers]) -> None:
    with scheduler(wh, Time(), make) as s:
        wh.gate_source("t", "loading")
        assert [(g.source, g.reason, g.waiting) for g in wh.source_gates()] == [("t", "loading", ("counts", "sums"))]
        insert(wh, 3)
        assert reasons(wh, s, []) == "source t is gated"
        assert wh.ungate_source("t")
        assert not wh.ungate_source("t")
        catches_up(wh, s)
    with pytest.raises(hw.errors.WrongKindError):
        wh.gate_source("sums")


def test_sources_of_a_watermark_group_are_read_when_they_agree(wh: Warehouse, make: Callable[[], Workers]) -> None:
    wh.sql("CREATE TABLE u (id INT PRIMARY KEY, v INT)")
    wh.create_stream_table("joined", "SELECT t.id, t.v + u.v AS v FROM t JOIN u ON u.id = t.id", schedule="1s")
    wh.create_watermark_group("load", ["t", "u"], tolerance_seconds=5)
    with scheduler(wh, Time(), make) as s:
        wh.advance_watermark("t", 100)
        wh.sql("INSERT INTO u VALUES (1, 10)")
        assert "joined" in names(s.tick())  # a source without a mark does not count
        wh.advance_watermark("u", 90)
        wh.sql("INSERT INTO u VALUES (2, 20)")
        s._clock.begun.clear()
        s._now.now += 10  # type: ignore[attr-defined]
        report = s.tick()
        assert "joined" not in names(report)
        assert dict(report.skipped)["joined"] == "waits for the watermark of u, 10 s behind in group load"
        assert [(w.source, w.behind) for w in wh.watermarks()] == [("t", 0), ("u", 10)]
        with pytest.raises(hw.errors.StatementError, match="cannot go back"):
            wh.advance_watermark("u", 80)
        wh.advance_watermark("u", 95)
        assert "joined" in names(s.tick())
    assert sorted(tuple(r) for r in wh.table("joined").collect()) == [(1, 11), (2, 22)]
    wh.drop_watermark_group("load")
    with pytest.raises(hw.errors.UnknownGroupError):
        wh.drop_watermark_group("load")


def test_tiers_stretch_the_schedule(wh: Warehouse, make: Callable[[], Workers], others: list[str]) -> None:
    time = Time()
    wh.alter_stream_table("sums", tier="frozen")
    with scheduler(wh, time, make) as s:
        insert(wh, 3)
        assert "frozen" in reasons(wh, s, others)
        assert [e.kind for e in wh.events() if e.table == "sums"] == [EventKind.FROZEN_TIER_SKIP]
        wh.sql("ALTER STREAM TABLE sums SET (tier = warm)")
        catches_up(wh, s)
        insert(wh, 4)
        time.now += 1.5
        assert names(s.tick()) == (others or ["sums", "counts"])  # a group is as quick as its quickest member
        time.now += 0.6
        if others:
            assert names(s.tick()) == ["sums"]
    assert all(v.equal for v in wh.verify())


def test_without_tiered_scheduling_tiers_count_for_nothing(wh: Warehouse, spark: SparkSession) -> None:
    wh.alter_stream_table("sums", tier="frozen")
    with hw.connect(wh._ground.layout.location, spark=spark, settings={"tiered_scheduling": False}) as other:
        insert(other, 3)
        with scheduler(other, Time()) as s:
            assert sorted(names(s.tick())) == ["counts", "sums"]


# fuses ----------------------------------------------------------------------------------------------------------------------


def flooded(wh: Warehouse) -> None:
    wh.sql("INSERT INTO t SELECT 100 + id, id % 2, 1 FROM range(50)")


@pytest.mark.parametrize("action", ["apply", "reinitialize"])
def test_a_flood_blows_the_fuse(wh: Warehouse, make: Callable[[], Workers], others: list[str], action: str) -> None:
    wh.alter_stream_table("sums", fuse_ceiling=20)
    time = Time()
    with scheduler(wh, time, make) as s:
        insert(wh, 3)
        catches_up(wh, s)
        flooded(wh)
        time.now += 1
        assert "fuse has blown" in reasons(wh, s, others)
        assert [(f.stream_table, f.ceiling, f.pending) for f in wh.fuse_status()] == [("sums", 20, 50)]
        time.now += 100
        assert names(s.tick()) == []
        kinds = [e.kind for e in wh.events() if e.table == "sums"]
        assert kinds == [EventKind.FUSE_BLOWN_REMINDER, EventKind.FUSE_BLOWN] or EventKind.STALE_DATA in kinds
        report = wh.reset_fuse("sums", action)
        assert report is not None
        assert report.action is (RefreshAction.DIFFERENTIAL if action == "apply" else RefreshAction.FULL)
        assert wh.fuse_status()[0].blown_at is None
        insert(wh, 4)
        time.now += 1
        catches_up(wh, s)


def test_skipped_changes_are_owned_up_to(wh: Warehouse) -> None:
    wh.alter_stream_table("sums", fuse_mode="on", fuse_ceiling=20)
    time = Time()
    with scheduler(wh, time) as s:
        flooded(wh)
        assert "fuse has blown" in reasons(wh, s, ["counts"])
        assert wh.reset_fuse("sums", "skip_changes") is None
        assert names(s.tick()) == []
        assert not wh.verify("sums").equal
        status = next(x for x in wh.status() if x.name == "sums")
        assert "skipped" in (status.why_behind or "")
        assert wh.refresh("sums", full=True).action is RefreshAction.FULL
        assert wh.verify("sums").equal
        assert "skipped" not in (next(x for x in wh.status() if x.name == "sums").why_behind or "")
    with pytest.raises(hw.errors.PausedError, match="has not blown"):
        wh.reset_fuse("sums")
    with pytest.raises(hw.errors.StatementError, match="unknown action"):
        wh.reset_fuse("sums", "ignore")


# failures -------------------------------------------------------------------------------------------------------------------


def test_repeated_failures_suspend_a_table_until_it_is_resumed(wh: Warehouse, make: Callable[[], Workers]) -> None:
    time = Time()
    wh.create_stream_table("inverse", "SELECT id, 10 DIV v AS q FROM t", schedule="1s")
    wh.create_stream_table("above", "SELECT max(q) AS q FROM inverse", schedule="1s")
    with scheduler(wh, time, make) as s:
        for turn in range(3):
            wh.sql(f"INSERT INTO t VALUES ({turn + 3}, 0, 0)")
            time.now += 100
            assert "inverse" in {n for n, _ in s.tick().failed}
        status = {x.name: x for x in wh.status()}
        assert status["inverse"].status == SUSPENDED
        assert "DIVIDE_BY_ZERO" in (status["inverse"].last_error or "")
        assert "inverse" in (status["above"].why_behind or "")
        kinds = [e.kind for e in wh.events() if e.table == "inverse"]
        assert kinds.count(EventKind.REFRESH_FAILED) == 3
        assert EventKind.AUTO_SUSPENDED in kinds
        wh.sql("DELETE FROM t WHERE v = 0")
        time.now += 100
        assert {"inverse", "above"}.isdisjoint(names(s.tick()))
        assert wh.resume_stream_table("inverse")
        assert not wh.resume_stream_table("sums")
        wh.sql("INSERT INTO t VALUES (9, 0, 10)")
        time.now += 1
        assert {"inverse", "above"} <= set(names(s.tick()))
    assert all(v.equal for v in wh.verify())


def test_a_stuck_refresh_is_cancelled_at_its_timeout(wh: Warehouse, make: Callable[[], Workers]) -> None:
    time = Time()
    slow = "SELECT t.id, count(a.id) AS n FROM t CROSS JOIN r a CROSS JOIN r b CROSS JOIN r c WHERE a.id + b.id + c.id > t.v"
    wh.sql("CREATE TABLE r (id INT PRIMARY KEY)")
    wh.create_stream_table("slow", f"{slow} GROUP BY t.id", schedule="1s", timeout="1s")
    with scheduler(wh, time, make) as s:
        wh.sql("INSERT INTO r SELECT id FROM range(3000)")
        report = s.tick()
        assert [n for n, _ in report.failed] == ["slow"]
        assert "longer than 1 s" in report.failed[0][1]
        assert report.duration_ms < 60_000
        assert wh.spark.sparkContext.statusTracker().getActiveJobsIds() == []
        assert [e.kind for e in wh.events() if e.table == "slow"] == [EventKind.REFRESH_CANCELLED]
        wh.sql("DELETE FROM r")
        time.now += 100
        assert "slow" in names(s.tick())
    assert wh.verify("slow").equal


def test_refresh_timeout_seconds_is_the_timeout_of_all(wh: Warehouse, spark: SparkSession) -> None:
    slow = "SELECT t.id, count(a.id) AS n FROM t CROSS JOIN r a CROSS JOIN r b CROSS JOIN r c WHERE a.id + b.id + c.id > t.v"
    wh.sql("CREATE TABLE r (id INT PRIMARY KEY)")
    wh.create_stream_table("slow", f"{slow} GROUP BY t.id", schedule="1s")
    settings = {"refresh_timeout_seconds": 1.5}
    with hw.connect(wh._ground.layout.location, spark=spark, settings=settings) as other, scheduler(other, Time()) as s:
        other.sql("INSERT INTO r SELECT id FROM range(3000)")
        assert "longer than 1.5 s" in dict(s.tick().failed)["slow"]


def test_being_stopped_is_no_failure(wh: Warehouse, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler(wh, Time()) as s:
        real = wh._refresher.computer.computed

        def stopped(*args: Any) -> Any:
            s.cancel("the process ends")
            return real(*args)

        monkeypatch.setattr(wh._refresher.computer, "computed", stopped)
        insert(wh, 3)
        assert {n for n, _ in s.tick().failed} == {"sums", "counts"}
        assert [x.status for x in wh.status() if x.kind == "stream"] == ["ACTIVE", "ACTIVE"]
        monkeypatch.setattr(wh._refresher.computer, "computed", real)
        s._now.now += 2  # type: ignore[attr-defined]
        assert sorted(names(s.tick())) == ["counts", "sums"]


def test_what_must_be_read_anew_is_not_forgotten_over_failures(wh: Warehouse) -> None:
    wh.create_stream_table("inverse", "SELECT id, 10 DIV v AS q FROM t", schedule="1s")
    inverse = wh.lookup(wh.snapshot(), "inverse").id
    wh._catalog.set_stream_status(inverse, REREAD, "its changes were given up")
    time = Time()
    with scheduler(wh, time) as s:
        for turn in range(4):
            wh.sql(f"INSERT INTO t VALUES ({turn + 3}, 0, 0)")
            time.now += 100
            assert "inverse" in {n for n, _ in s.tick().failed}
        assert wh.snapshot().streams[inverse].status == REREAD
        wh.sql("UPDATE t SET v = 5 WHERE v = 0")
        wh.resume_stream_table("inverse")
        time.now += 100
        report = s.tick()
        assert {r.name: r.action for r in report.refreshed}["inverse"] is RefreshAction.FULL
    assert wh.verify("inverse").equal
    assert wh.snapshot().streams[inverse].status == "ACTIVE"


# sharing --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "shared"), [(5, True), (5, False), (250_000, True), (250_000, False)])
def test_the_changes_of_a_source_are_read_once_for_all_that_read_it(
    wh: Warehouse, spark: SparkSession, rows: int, shared: bool
) -> None:
    place = wh._ground.layout.location
    with hw.connect(place, spark=spark, settings={"enable_change_buffer_fanout": shared}) as other:
        for i in (1, 2):
            other.create_stream_table(f"more{i}", f"SELECT k, max(v) AS v, {i} AS i FROM t GROUP BY k", schedule="1s")
        source = other.lookup(other.snapshot(), "t").id
        with scheduler(other, Time(), MAKES["pool"]) as s:
            other.sql(f"INSERT INTO t SELECT 100 + id, id % 10, id FROM range({rows})")
            before = other._ground.reader.change_reads.counts().get(source, 0)
            assert sorted(names(s.tick())) == ["counts", "more1", "more2", "sums"]
            assert other._ground.reader.change_reads.counts()[source] - before == (1 if shared else 4)
        assert all(v.equal for v in other.verify())
        assert len(other.table("sums").collect()) == (5 if rows == 5 else 10)


@pytest.mark.parametrize("joined", [True, False])
def test_quick_refreshes_of_the_same_changes_are_one_commit(wh: Warehouse, spark: SparkSession, joined: bool) -> None:
    time = Time()
    place = wh._ground.layout.location
    with hw.connect(place, spark=spark, settings={"adaptive_batch_coalescing": joined}) as other:
        with scheduler(other, time) as s:
            insert(other, 3)
            s.tick()
            insert(other, 4)
            time.now += 1
            report = s.tick()
        assert sorted(names(report)) == ["counts", "sums"]
        assert len({r.version for r in report.refreshed}) == (1 if joined else 2)
        assert all(v.equal for v in other.verify())


def test_one_failure_of_a_batch_is_not_that_of_the_others(wh: Warehouse) -> None:
    time = Time()
    wh.create_stream_table("inverse", "SELECT id, 10 DIV v AS q FROM t", schedule="1s")
    with scheduler(wh, time) as s:
        insert(wh, 3)
        s.tick()
        insert(wh, 4)
        time.now += 1
        assert len({r.version for r in s.tick().refreshed}) == 1
        wh.sql("INSERT INTO t VALUES (5, 0, 0)")
        time.now += 1
        report = s.tick()
        assert sorted(r.name for r in report.refreshed) == ["counts", "sums"]
        assert [n for n, _ in report.failed] == ["inverse"]
    assert wh.verify("sums").equal


# quotas ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Spawned, Pool])
def test_a_quota_limits_what_a_warehouse_uses_at_once(
    wh: Warehouse, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: type[Spawned] | type[Pool]
) -> None:
    for i in range(3):
        wh.sql(f"CREATE TABLE t{i} (id INT PRIMARY KEY)")
        wh.create_stream_table(f"c{i}", f"SELECT count(*) AS n FROM t{i}", schedule="1s")
    settings = {"per_warehouse_worker_quota": 1, "adaptive_batch_coalescing": False}
    lock, running, most = threading.Lock(), [0], [0]
    with hw.connect(wh._ground.layout.location, spark=spark, settings=settings) as other:
        real = other._refresher.refresh_unit

        def counted(*args: Any, **kwargs: Any) -> Any:
            with lock:
                running[0] += 1
                most[0] = max(most[0], running[0])
            try:
                return real(*args, **kwargs)
            finally:
                with lock:
                    running[0] -= 1

        monkeypatch.setattr(other._refresher, "refresh_unit", counted)
        for i in range(3):
            other.sql(f"INSERT INTO t{i} VALUES (1)")
        crew = Crew(kind(4))
        with Scheduler(other._ground, other._refresher, other._maintenance.after_change, crew=crew) as s:
            assert sorted(names(s.tick())) == ["c0", "c1", "c2"]
    assert most == [2]  # a quota of one, and half of it more, at least one, while most workers are free


def test_an_inline_worker_is_one_worker(wh: Warehouse) -> None:
    assert Crew(Inline()).workers.capacity == 1


def test_one_process_serves_two_warehouses(wh: Warehouse, spark: SparkSession, tmp_path: Path) -> None:
    crew = Crew(Pool(2))
    with hw.connect(tmp_path / "other", spark=spark) as other:
        other.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        other.create_stream_table("n", "SELECT count(*) AS n FROM t", schedule="1s")
        with wh.scheduler(crew) as first, other.scheduler(crew) as second:
            first.start()
            second.start()
            insert(wh, 3)
            other.sql("INSERT INTO t VALUES (1)")
            for _ in range(300):
                if [r.n for r in wh.table("counts").collect()] == [3] and [r.n for r in other.table("n").collect()] == [
                    1
                ]:
                    break
                threading.Event().wait(0.1)
            allocation = {w.warehouse: w for w in wh.worker_allocation_status()}
            assert len(allocation) == 1
        assert [r.n for r in other.table("n").collect()] == [1]
    assert wh.verify("counts").equal
