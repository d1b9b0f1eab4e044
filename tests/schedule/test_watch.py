"""Watching: fuses that blow, changes that wait too long or are too many, watermarks that stand still, and each told once."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.catalog.building import apply, create, inline, managed, statements
from tests.schedule.snapshots import NOW, snapshot_of

from headwater.catalog import Catalog, Snapshot
from headwater.model.commit import Commit, CreateTable, DefineStream, MoveFrontier
from headwater.model.control import Blown, Watermark, WatermarkGroup, noted
from headwater.model.events import Event, EventKind
from headwater.model.options import FuseMode, StreamOptions, Tier
from headwater.model.tables import REREAD, RefreshMode, TableKind, WhenFull
from headwater.schedule.due import Clock, Timing
from headwater.schedule.schedules import schedule_of
from headwater.schedule.telling import Teller
from headwater.schedule.watch import Watch, fuse_ceiling, rows_waiting
from headwater.settings import Settings

ON, OFF, AUTO = FuseMode.ON, FuseMode.OFF, FuseMode.AUTO


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    Catalog.create(str(path), location="/warehouse").close()
    return path


@pytest.fixture
def catalog(empty: Path, tmp_path: Path) -> Iterator[Catalog]:
    with Catalog.open(str(shutil.copy(empty, tmp_path))) as catalog:
        catalog.commit(create("t", "u"))
        yield catalog


class Watching:
    """A watch over a catalog, and what it has told."""

    def __init__(self, catalog: Catalog, **settings: Any) -> None:
        self.catalog = catalog
        self.settings = Settings(**settings)
        self.teller = Teller(catalog)
        self.events: list[Event] = []
        self.teller.listen(self.events.append)
        self.watch = Watch(catalog, self.settings, self.teller)
        self.clock = Clock(NOW)

    def told(self) -> list[tuple[EventKind, str | None]]:
        """Return what was told since this was asked last."""
        told = [(e.kind, e.table) for e in self.events]
        self.events.clear()
        return told

    def blown(self, now: float = NOW, nodes: str = "a") -> dict[str, Blown]:
        return self.watch.blown_fuses(self.catalog.snapshot(), nodes, now)

    def look(self, snapshot: Snapshot, behind: str, now: float) -> list[tuple[EventKind, str | None]]:
        """Look once at those that have something to do; return what was told."""
        self.clock.note_waiting(behind, now)
        schedules = {n: schedule_of(s.schedule) for n, s in snapshot.streams.items()}
        self.watch.look(Timing(snapshot, schedules, self.clock, self.settings), behind, now)
        return self.told()

    def write(self, rows: int, table: str = "t") -> int:
        """Commit change rows to a table."""
        return apply(
            self.catalog, inline(f"b{self.catalog.head().version}", table, inserts=rows - rows // 3, deletes=rows // 3)
        )


def define(catalog: Catalog, node: str, *sources: str, frontier: int | None = 1, **options: Any) -> None:
    """Make a stream table with options."""
    defined = DefineStream(
        node, "SELECT 1", RefreshMode.AUTO, "1s", WhenFull.WARN, "{}", sources, frontier, StreamOptions(**options)
    )
    catalog.commit(Commit((CreateTable(managed(node, kind=TableKind.STREAM)), defined)))


def refreshed(catalog: Catalog, node: str) -> None:
    """Let a stream table stand for the newest version."""
    snapshot = catalog.snapshot()
    apply(catalog, MoveFrontier(node, snapshot.streams[node].frontier, snapshot.version))


class TestCeilings:
    @pytest.mark.parametrize(
        ("mode", "own", "setting", "ceiling"),
        [
            (OFF, 5, 7, 0),
            (ON, 5, 7, 5),
            (ON, 5, 0, 5),
            (AUTO, 5, 7, 5),
            (AUTO, 5, 0, 5),
            (AUTO, 0, 7, 7),
            (AUTO, 0, 0, 0),
        ],
    )
    def test_its_own_or_that_of_the_settings(self, mode: FuseMode, own: int, setting: int, ceiling: int) -> None:
        stream = snapshot_of({"a": "t"}, {"a": {"fuse_mode": mode, "fuse_ceiling": own}}).streams["a"]
        assert fuse_ceiling(stream, Settings(fuse_default_ceiling=setting)) == ceiling


class TestRowsWaiting:
    def test_inserted_and_deleted_rows_after_the_frontier(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        watching.write(100)
        define(catalog, "a", "t", "u", frontier=catalog.head().version)
        watching.write(10)
        watching.write(5, "u")
        snapshot = catalog.snapshot()
        assert rows_waiting(catalog, snapshot, "a") == {"a": 15}
        refreshed(catalog, "a")
        assert rows_waiting(catalog, catalog.snapshot(), "a") == {"a": 0}

    def test_each_source_from_where_it_was_read(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", "u", frontier=1)
        watching.write(3)
        watching.write(7)
        snapshot = catalog.snapshot()
        stream = replace(snapshot.streams["a"], frontiers={"t": snapshot.version - 1})
        assert rows_waiting(catalog, replace(snapshot, streams={"a": stream}), "a") == {"a": 7}

    def test_what_was_never_populated_is_left_out(self, catalog: Catalog) -> None:
        define(catalog, "a", "t", frontier=None)
        define(catalog, "b", "t")
        Watching(catalog).write(4)
        assert rows_waiting(catalog, catalog.snapshot(), "ab") == {"b": 4}

    def test_one_question_for_all(self, catalog: Catalog) -> None:
        for node in "abc":
            define(catalog, node, "t", "u")
        snapshot = catalog.snapshot()
        with statements(catalog) as asked:
            rows_waiting(catalog, snapshot, "abc")
            assert len(asked) == 1
            rows_waiting(catalog, snapshot, "")
            assert len(asked) == 1


class TestFuses:
    def test_more_than_the_ceiling_blows_it(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", fuse_mode=ON, fuse_ceiling=10)
        watching.write(11)
        assert watching.blown(NOW + 5) == {"a": Blown(NOW + 5, 11, 10)}
        assert catalog.snapshot().notes.of(Blown) == {"a": Blown(NOW + 5, 11, 10)}, "for every process"
        (event,) = watching.events
        assert (event.kind, event.table, dict(event.data)) == (
            EventKind.FUSE_BLOWN,
            "a",
            {"pending": 11, "ceiling": 10},
        )

    def test_as_many_as_the_ceiling_do_not(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", fuse_mode=ON, fuse_ceiling=10)
        watching.write(10)
        assert watching.blown() == {}
        assert catalog.snapshot().notes.of(Blown) == {}
        assert watching.told() == []

    def test_only_of_those_that_are_about_to_be_refreshed(self, catalog: Catalog) -> None:
        watching = Watching(catalog, fuse_default_ceiling=10)
        define(catalog, "a", "t")
        define(catalog, "b", "t")
        watching.write(11)
        assert watching.blown(nodes="b").keys() == {"b"}
        assert watching.blown(nodes="").keys() == set()

    def test_each_by_its_own_ceiling(self, catalog: Catalog) -> None:
        watching = Watching(catalog, fuse_default_ceiling=10)
        define(catalog, "a", "t", fuse_ceiling=100)
        define(catalog, "b", "t", fuse_mode=OFF)
        define(catalog, "c", "t")
        watching.write(50)
        assert watching.blown(nodes="abc").keys() == {"c"}

    def test_without_fuses_nothing_is_asked(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t")
        snapshot = catalog.snapshot()
        with statements(catalog) as asked:
            assert watching.watch.blown_fuses(snapshot, "a", NOW) == {}
        assert asked == []

    def test_the_first_population_blows_none(self, catalog: Catalog) -> None:
        watching = Watching(catalog, fuse_default_ceiling=1)
        define(catalog, "a", "t", frontier=None)
        watching.write(50)
        assert watching.blown() == {}

    def test_sensitivity_counts_ticks_in_a_row(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", fuse_ceiling=10, fuse_sensitivity=3)
        watching.write(50)
        assert [bool(watching.blown(NOW + i)) for i in range(3)] == [False, False, True]

    def test_a_tick_below_the_ceiling_begins_the_count_anew(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", fuse_ceiling=10, fuse_sensitivity=2)
        watching.write(50)
        assert watching.blown() == {}
        refreshed(catalog, "a")
        watching.write(5)
        assert watching.blown() == {}
        watching.write(50)
        assert watching.blown() == {}
        assert watching.blown().keys() == {"a"}

    def test_after_it_was_mended_it_counts_anew(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", fuse_ceiling=10, fuse_sensitivity=2)
        watching.write(50)
        assert [bool(watching.blown()) for _ in range(4)] == [False, True, False, True]

    def test_tables_are_counted_apart(self, catalog: Catalog) -> None:
        watching = Watching(catalog)
        define(catalog, "a", "t", fuse_ceiling=10, fuse_sensitivity=2)
        define(catalog, "b", "t", fuse_ceiling=10, fuse_sensitivity=1)
        watching.write(50)
        assert watching.blown(nodes="ab").keys() == {"b"}
        assert watching.blown(nodes="a").keys() == {"a"}


STALE, FROZEN, REBUILD = EventKind.STALE_DATA, EventKind.FROZEN_TIER_SKIP, EventKind.REINITIALIZE_NEEDED
BLOWN_AGAIN = EventKind.FUSE_BLOWN_REMINDER


class TestStale:
    def test_told_once_after_twice_the_schedule(self, catalog: Catalog) -> None:
        watching, one = Watching(catalog), snapshot_of({"a": "t"})
        assert watching.look(one, "a", NOW) == []
        assert watching.look(one, "a", NOW + 20) == []
        assert watching.look(one, "a", NOW + 20.1) == [(STALE, "A")]
        assert watching.look(one, "a", NOW + 60) == []

    def test_told_anew_when_it_comes_back(self, catalog: Catalog) -> None:
        watching, one = Watching(catalog), snapshot_of({"a": "t"})
        watching.look(one, "a", NOW)
        assert watching.look(one, "a", NOW + 30) == [(STALE, "A")]
        assert watching.look(one, "", NOW + 31) == []
        assert watching.look(one, "a", NOW + 32) == []
        assert watching.look(one, "a", NOW + 62) == [(STALE, "A")]

    def test_a_table_is_stale_by_its_stretched_schedule(self, catalog: Catalog) -> None:
        watching, warm = Watching(catalog), snapshot_of({"a": "t"}, {"a": {"tier": Tier.WARM}})
        watching.look(warm, "a", NOW)
        assert watching.look(warm, "a", NOW + 40) == []
        assert watching.look(warm, "a", NOW + 41) == [(STALE, "A")]

    @pytest.mark.parametrize("schedule", ["manual", "@hourly", None])
    def test_only_durations_can_be_late(self, catalog: Catalog, schedule: str | None) -> None:
        watching, one = Watching(catalog), snapshot_of({"a": "t"}, {"a": {"schedule": schedule}})
        watching.look(one, "a", NOW)
        assert watching.look(one, "a", NOW + 1e6) == []

    def test_who_has_nothing_to_do_is_not_late(self, catalog: Catalog) -> None:
        watching, two = Watching(catalog), snapshot_of({"a": "t", "b": "u"})
        watching.look(two, "b", NOW)
        assert watching.look(two, "b", NOW + 100) == [(STALE, "B")]


class TestHeld:
    def test_a_frozen_table_with_something_to_do_is_told_once(self, catalog: Catalog) -> None:
        watching, frozen = Watching(catalog), snapshot_of({"a": "t"}, {"a": {"tier": Tier.FROZEN}})
        assert watching.look(frozen, "a", NOW) == [(FROZEN, "A")]
        assert watching.look(frozen, "a", NOW + 1e6) == [], "it is never late"
        assert watching.look(frozen, "", NOW + 1e6) == []
        assert watching.look(frozen, "a", NOW + 1e6) == [(FROZEN, "A")]

    def test_without_tiers_none_is_frozen(self, catalog: Catalog) -> None:
        watching = Watching(catalog, tiered_scheduling=False)
        assert watching.look(snapshot_of({"a": "t"}, {"a": {"tier": Tier.FROZEN}}), "a", NOW) == []

    def test_one_whose_changes_were_given_up_is_told_once(self, catalog: Catalog) -> None:
        watching, lost = Watching(catalog), snapshot_of({"a": "t"}, {"a": {"status": REREAD}})
        assert watching.look(lost, "a", NOW) == [(REBUILD, "A")]
        assert watching.look(lost, "a", NOW + 1) == []

    def test_a_blown_fuse_is_spoken_of_again_and_again(self, catalog: Catalog) -> None:
        watching = Watching(catalog, fuse_reminder_seconds=60.0)
        blown = snapshot_of({"a": "t"}, {"a": {"schedule": "manual"}}, notes=[noted("a", Blown(NOW, 50, 10))])
        told = [watching.look(blown, "a", NOW + seconds) for seconds in (0, 59, 60, 61, 119, 120, 180)]
        once = [(BLOWN_AGAIN, "A")]
        assert told == [[], [], once, [], [], once, once]

    def test_one_that_was_mended_is_not(self, catalog: Catalog) -> None:
        assert Watching(catalog).look(snapshot_of({"a": "t"}), "a", NOW + 60) == []


GROWTH, PRESSURE = EventKind.BUFFER_GROWTH_WARNING, EventKind.CHANGE_BUFFER_BACKPRESSURE


class TestBuffers:
    def watching(self, catalog: Catalog) -> Watching:
        define(catalog, "a", "t")
        return Watching(catalog, buffer_alert_threshold=10, backpressure_consecutive_limit=3, buffer_check_seconds=5.0)

    def looks(self, watching: Watching, *seconds: float) -> list[list[EventKind]]:
        """Look at these times; return what was told of buffers at each."""
        snapshot = watching.catalog.snapshot()
        told = [watching.look(snapshot, "a", NOW + s) for s in seconds]
        return [[kind for kind, _ in each if kind in (GROWTH, PRESSURE)] for each in told]

    def test_a_warning_at_first_and_pressure_after_so_many_looks(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        watching.write(11)
        assert self.looks(watching, 0, 5, 10, 15, 20) == [[GROWTH], [], [PRESSURE], [], []]

    def test_as_many_as_the_threshold_are_no_warning(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        watching.write(10)
        assert self.looks(watching, 0, 5, 10, 15) == [[], [], [], []]

    def test_not_every_look_counts_the_rows(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        watching.write(11)
        assert self.looks(watching, 0, 1, 2, 3, 4.9, 5, 9.9, 10) == [[GROWTH], [], [], [], [], [], [], [PRESSURE]]
        snapshot = catalog.snapshot()
        with statements(catalog) as asked:
            watching.look(snapshot, "a", NOW + 11)
        assert asked == []

    def test_once_they_are_few_again_it_begins_anew(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        watching.write(11)
        assert self.looks(watching, 0, 5) == [[GROWTH], []]
        refreshed(catalog, "a")
        watching.write(3)
        assert self.looks(watching, 10) == [[]]
        watching.write(11)
        assert self.looks(watching, 15, 20, 25) == [[GROWTH], [], [PRESSURE]]

    def test_and_once_nothing_waits(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        watching.write(11)
        assert self.looks(watching, 0, 5) == [[GROWTH], []]
        assert watching.look(catalog.snapshot(), "", NOW + 10) == []
        assert self.looks(watching, 15) == [[GROWTH]]

    def test_with_a_limit_of_one_both_come_at_once(self, catalog: Catalog) -> None:
        define(catalog, "a", "t")
        watching = Watching(catalog, buffer_alert_threshold=10, backpressure_consecutive_limit=1)
        watching.write(11)
        assert self.looks(watching, 0, 5) == [[GROWTH, PRESSURE], []]

    def test_what_they_say(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        watching.write(12)
        heard: list[Event] = []
        watching.teller.listen(heard.append)
        self.looks(watching, 0, 5, 10)
        found = {e.kind: dict(e.data) for e in heard}
        assert found[GROWTH] == {"rows": 12, "limit": 10}
        assert found[PRESSURE] == {"rows": 12, "cycles": 3}


STUCK, RESUMED = EventKind.WATERMARK_STUCK, EventKind.WATERMARK_RESUMED


class TestWatermarks:
    def marked(self, at: float, group: tuple[str, ...] = ("t", "u"), **others: float) -> Snapshot:
        marks = [noted(n, Watermark(0.0, moved)) for n, moved in ({"t": at} | others).items()]
        return snapshot_of(
            {"a": "t u"}, {"a": {"schedule": "manual"}}, notes=[*marks, noted("g", WatermarkGroup(group))]
        )

    def watching(self, catalog: Catalog) -> Watching:
        return Watching(catalog, watermark_holdback_timeout=60.0)

    def test_stuck_is_told_once_and_so_is_that_it_moved_again(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        assert watching.look(self.marked(NOW), "a", NOW + 60) == []
        assert watching.look(self.marked(NOW), "a", NOW + 61) == [(STUCK, "T")]
        assert watching.look(self.marked(NOW), "a", NOW + 500) == []
        assert watching.look(self.marked(NOW + 500), "a", NOW + 501) == [(RESUMED, "T")]
        assert watching.look(self.marked(NOW + 500), "a", NOW + 502) == []
        assert watching.look(self.marked(NOW + 500), "a", NOW + 561) == [(STUCK, "T")]

    def test_one_that_moves_is_neither(self, catalog: Catalog) -> None:
        watching = self.watching(catalog)
        told = [watching.look(self.marked(NOW + s), "a", NOW + s + 59) for s in range(0, 300, 50)]
        assert told == [[]] * 6

    def test_nobody_needs_to_have_something_to_do(self, catalog: Catalog) -> None:
        """A loader that stopped changes nothing any more: that is when it matters."""
        assert self.watching(catalog).look(self.marked(NOW), "", NOW + 61) == [(STUCK, "T")]

    def test_without_a_timeout_none_is_stuck(self, catalog: Catalog) -> None:
        assert Watching(catalog).look(self.marked(NOW), "a", NOW + 1e9) == []

    def test_a_source_of_no_group_is_not_looked_at(self, catalog: Catalog) -> None:
        outside = self.marked(NOW + 61, ("t", "u"), v=NOW)
        assert self.watching(catalog).look(outside, "a", NOW + 62) == []

    def test_a_source_without_a_mark_is_not_stuck(self, catalog: Catalog) -> None:
        assert self.watching(catalog).look(self.marked(NOW + 61), "a", NOW + 62) == []

    def test_a_dropped_source_is_left_out(self, catalog: Catalog) -> None:
        gone = self.marked(NOW + 61, ("t", "gone"), gone=NOW)
        assert self.watching(catalog).look(gone, "a", NOW + 62) == []

    def test_each_source_is_told_of(self, catalog: Catalog) -> None:
        told = self.watching(catalog).look(self.marked(NOW, u=NOW - 5), "a", NOW + 61)
        assert sorted(name or "" for _, name in told) == ["T", "U"]


class TestPromises:
    BREACH = EventKind.PREDICTED_SLA_BREACH

    def began(
        self, catalog: Catalog, waited: float | None, takes_ms: float | None, sla: float | None = 10.0
    ) -> list[Event]:
        watching = Watching(catalog)
        one = snapshot_of({"a": "t"}, {"a": {"sla_seconds": sla, "refresh_ms": takes_ms}})
        if waited is not None:
            watching.clock.note_waiting("a", NOW - waited)
        timing = Timing(one, {"a": schedule_of("10s")}, watching.clock, watching.settings)
        watching.watch.beginning(timing, "a", NOW)
        return watching.events

    def test_told_when_it_will_be_a_fifth_late(self, catalog: Catalog) -> None:
        (event,) = self.began(catalog, waited=9.0, takes_ms=3_100.0)
        assert (event.kind, event.table) == (self.BREACH, "A")
        assert event.data == {"expected": pytest.approx(12.1), "promised": 10.0}

    @pytest.mark.parametrize(
        ("waited", "takes_ms", "sla"),
        [(9.0, 3_000.0, 10.0), (9.0, None, 10.0), (None, 60_000.0, 10.0), (90.0, 60_000.0, None)],
        ids=["a fifth exactly", "not known how long it takes", "nothing waits", "nothing promised"],
    )
    def test_not_told_otherwise(
        self, catalog: Catalog, waited: float | None, takes_ms: float | None, sla: float | None
    ) -> None:
        assert self.began(catalog, waited, takes_ms, sla) == []
