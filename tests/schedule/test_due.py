"""Who is due: every kind of schedule against tiers, back-off, jitter, promises and restarts."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.schedule.snapshots import NOW, snapshot_of

from headwater.catalog import Snapshot
from headwater.model.options import Tier
from headwater.schedule.due import BEHIND, MOST_BACKOFF, OVERLOADED, Clock, Due, Timing, due_tables
from headwater.schedule.graph import graph_of
from headwater.schedule.schedules import Every, schedule_of
from headwater.settings import Settings

HOT, WARM, COLD, FROZEN = Tier.HOT, Tier.WARM, Tier.COLD, Tier.FROZEN


def timing_of(snapshot: Snapshot, clock: Clock | None = None, **settings: Any) -> Timing:
    schedules = {n: schedule_of(s.schedule) for n, s in snapshot.streams.items()}
    return Timing(snapshot, schedules, clock or Clock(NOW), Settings(**settings))


def due(
    snapshot: Snapshot, now: float, clock: Clock | None = None, among: Iterable[str] | None = None, **settings: Any
) -> Due:
    """Return who is due of all stream tables, or of those that have something to do."""
    graph = graph_of(snapshot.sources)
    candidates = snapshot.streams if among is None else among
    return due_tables(graph, candidates, timing_of(snapshot, clock, **settings), now)


def one(**values: Any) -> Snapshot:
    """Return a snapshot of one stream table, refreshed at `NOW` if not said otherwise."""
    return snapshot_of({"a": "t"}, {"a": {"refreshed_at": NOW} | values})


def seconds_until_due(snapshot: Snapshot, clock: Clock | None = None, **settings: Any) -> float:
    """Return after how many seconds the table `a` is due, seen from `NOW`; it is not due before that."""
    at = due(snapshot, NOW, clock, **settings).following
    assert at is not None
    assert due(snapshot, at - 1e-3, clock, **settings).now == frozenset()
    assert due(snapshot, at, clock, **settings) == Due(frozenset("a"), None)
    return at - NOW


def waiting(nodes: str = "a", **values: Any) -> Clock:
    """Return the clock of a scheduler that began before `NOW` and has seen since then that these have something to do."""
    clock = Clock(NOW - 50, **values)
    clock.note_waiting(nodes, NOW)
    return clock


def moment(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class TestDurations:
    def test_due_so_long_after_the_last_refresh_began(self) -> None:
        assert seconds_until_due(one(schedule="10s")) == 10

    def test_a_change_after_a_longer_silence_is_due_at_once(self) -> None:
        assert due(one(schedule="10s"), NOW + 500).now == {"a"}

    def test_what_was_begun_here_counts_before_the_catalog_knows_of_it(self) -> None:
        assert seconds_until_due(one(refreshed_at=NOW - 100), Clock(NOW - 200, begun={"a": NOW - 4})) == 6

    def test_what_others_refreshed_counts_too(self) -> None:
        assert seconds_until_due(one(refreshed_at=NOW - 4), Clock(NOW - 200, begun={"a": NOW - 100})) == 6

    def test_never_refreshed_is_due_at_once(self) -> None:
        assert due(one(refreshed_at=None, schedule="1d"), NOW).now == {"a"}

    def test_only_those_with_something_to_do_are_due(self) -> None:
        two = snapshot_of({"a": "t", "b": "u"})
        assert due(two, NOW + 60).now == {"a", "b"}
        assert due(two, NOW + 60, among="b").now == {"b"}
        assert due(two, NOW + 60, among="") == Due(frozenset(), None)

    def test_following_is_the_first_of_the_others(self) -> None:
        three = snapshot_of(
            {"a": "t", "b": "t", "c": "t"},
            {n: {"refreshed_at": NOW, "schedule": s} for n, s in (("a", "5s"), ("b", "20s"), ("c", "30s"))},
        )
        assert due(three, NOW + 7) == Due(frozenset("a"), NOW + 20)


class TestTiers:
    @pytest.mark.parametrize(("tier", "seconds"), [(HOT, 10), (WARM, 20), (COLD, 100)])
    def test_a_tier_stretches_a_duration(self, tier: Tier, seconds: float) -> None:
        assert seconds_until_due(one(tier=tier)) == seconds
        assert seconds_until_due(one(tier=tier), tiered_scheduling=False) == 10

    def test_frozen_is_never_due(self) -> None:
        assert due(one(tier=FROZEN), NOW + 1e9).now == frozenset()
        assert due(one(tier=FROZEN), NOW + 10, tiered_scheduling=False).now == {"a"}

    @pytest.mark.parametrize("tier", [WARM, COLD])
    def test_cron_is_not_stretched(self, tier: Tier) -> None:
        assert due(one(tier=tier, schedule="@hourly"), NOW + 3600).now == {"a"}

    def test_a_calculated_table_that_nobody_reads_is_stretched(self) -> None:
        assert seconds_until_due(one(tier=WARM, schedule=None)) == 2


class TestBackOff:
    def test_a_slow_refresh_doubles_up_to_eight_times(self) -> None:
        clock = Clock(NOW)
        assert [clock.note_taken("a", OVERLOADED) for _ in range(5)] == [True, True, True, False, False]
        assert clock.backoff["a"] == MOST_BACKOFF == 8

    @pytest.mark.parametrize(("slow", "seconds"), [(0, 10), (1, 20), (2, 40), (3, 80), (4, 80)])
    def test_the_schedule_is_stretched_by_it(self, slow: int, seconds: float) -> None:
        clock = Clock(NOW)
        for _ in range(slow):
            clock.note_taken("a", 1.5)
        assert seconds_until_due(one(), clock) == seconds
        assert seconds_until_due(one(), clock, auto_backoff=False) == 10

    def test_one_quick_refresh_ends_it(self) -> None:
        clock = Clock(NOW, backoff={"a": 8.0, "b": 2.0})
        assert clock.note_taken("a", OVERLOADED - 0.001) is False
        assert clock.backoff == {"b": 2.0}

    def test_a_refresh_that_nearly_fills_its_schedule_is_not_put_off(self) -> None:
        clock = Clock(NOW)
        assert clock.note_taken("a", (BEHIND + OVERLOADED) / 2) is False
        assert seconds_until_due(one(), clock) == 10

    def test_tiers_and_back_off_multiply(self) -> None:
        assert seconds_until_due(one(tier=WARM), Clock(NOW, backoff={"a": 4.0})) == 80

    def test_the_back_off_of_one_table_is_not_that_of_another(self) -> None:
        assert seconds_until_due(one(), Clock(NOW, backoff={"b": 8.0})) == 10

    def test_cron_is_not_stretched(self) -> None:
        assert due(one(schedule="@hourly"), NOW + 3600, Clock(NOW, backoff={"a": 8.0})).now == {"a"}


class TestJitter:
    def test_it_spreads_tables_with_the_same_schedule(self) -> None:
        many = snapshot_of({f"a{i}": "t" for i in range(300)})
        spread = timing_of(many, schedule_jitter=0.5)
        lengths = [spread.interval(n, Every(10.0)) for n in many.streams]
        assert min(lengths) >= 10
        assert max(lengths) <= 15
        assert max(lengths) - min(lengths) > 4.5
        assert len({round(x, 2) for x in lengths}) > 200

    def test_it_is_the_same_for_a_table_in_every_process(self) -> None:
        """The checksum of "a" ends in 907: nine tenths of the half that may be added."""
        assert seconds_until_due(one(), schedule_jitter=0.5) == pytest.approx(10 * (1 + 0.5 * 0.907))

    def test_without_it_nothing_is_spread(self) -> None:
        assert seconds_until_due(one(), schedule_jitter=0.0) == 10

    def test_it_stretches_what_tiers_and_back_off_made(self) -> None:
        stretched = seconds_until_due(one(tier=COLD), Clock(NOW, backoff={"a": 2.0}), schedule_jitter=0.1)
        assert stretched == pytest.approx(10 * 10 * 2 * 1.0907)


class TestPromises:
    """A refresh has to begin so early that four fifths of the promised time are left for waiting and working together."""

    def promised(self, sla: float, **values: Any) -> tuple[Snapshot, Clock]:
        return one(schedule="1h", sla_seconds=sla, **values), waiting()

    def test_it_is_due_before_four_fifths_are_over(self) -> None:
        assert seconds_until_due(*self.promised(30.0)) == 24

    def test_the_time_that_a_refresh_takes_is_left(self) -> None:
        assert seconds_until_due(*self.promised(30.0, refresh_ms=10_000.0)) == 12

    def test_what_cannot_be_kept_is_due_at_once(self) -> None:
        snapshot, clock = self.promised(30.0, refresh_ms=60_000.0)
        assert due(snapshot, NOW, clock).now == {"a"}

    def test_without_a_promise_the_schedule_counts(self) -> None:
        _, clock = self.promised(30.0)
        assert seconds_until_due(one(schedule="1h"), clock) == 3600

    def test_without_a_change_that_waits_the_schedule_counts(self) -> None:
        assert seconds_until_due(one(schedule="1h", sla_seconds=30.0), waiting("")) == 3600

    def test_a_shorter_schedule_comes_first(self) -> None:
        clock = waiting()
        assert seconds_until_due(one(schedule="5s", sla_seconds=30.0), clock) == 5

    def test_it_comes_before_tier_back_off_and_jitter(self) -> None:
        clock = waiting(backoff={"a": 8.0})
        late = one(tier=COLD, sla_seconds=30.0)
        assert seconds_until_due(late, clock, schedule_jitter=0.5) == 24

    def test_it_comes_before_cron(self) -> None:
        clock = waiting()
        assert seconds_until_due(one(schedule="@yearly", sla_seconds=30.0), clock) == 24

    def test_a_calculated_table_may_promise_more_than_its_reader(self) -> None:
        clock = waiting()
        read = snapshot_of(
            {"a": "t", "b": "a"},
            {"a": {"schedule": None, "sla_seconds": 30.0}, "b": {"schedule": "1h", "refreshed_at": NOW}},
        )
        assert due(read, NOW + 23, clock) == Due(frozenset(), NOW + 24)
        assert due(read, NOW + 24, clock) == Due(frozenset("a"), NOW + 3600)

    def test_a_reader_that_promises_brings_what_it_reads(self) -> None:
        """The change waits for the reader, too, though it is further up."""
        clock = waiting("ab")
        read = snapshot_of(
            {"a": "t", "b": "a"},
            {"a": {"schedule": None}, "b": {"schedule": "1h", "refreshed_at": NOW, "sla_seconds": 30.0}},
        )
        assert due(read, NOW + 23, clock) == Due(frozenset(), NOW + 24)
        assert due(read, NOW + 24, clock).now == {"a", "b"}

    def test_manual_stays_manual(self) -> None:
        clock = waiting()
        assert due(one(schedule="manual", sla_seconds=1.0), NOW + 1e6, clock) == Due(frozenset(), None)


class TestCalculated:
    def test_due_in_the_same_tick_as_its_reader(self) -> None:
        read = snapshot_of({"a": "t", "b": "a"}, {"a": {"schedule": None}, "b": {"refreshed_at": NOW}})
        assert due(read, NOW + 9) == Due(frozenset(), NOW + 10)
        assert due(read, NOW + 10).now == {"a", "b"}

    def test_as_often_as_the_most_frequent_reader(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a", "c": "a"},
            {
                "a": {"schedule": None},
                "b": {"refreshed_at": NOW, "schedule": "1h"},
                "c": {"refreshed_at": NOW, "schedule": "7s"},
            },
        )
        assert due(read, NOW + 6).now == frozenset()
        assert due(read, NOW + 7).now == {"a", "c"}

    def test_through_several_of_them(self) -> None:
        chain = snapshot_of(
            {"a": "t", "b": "a", "c": "b"},
            {"a": {"schedule": None}, "b": {"schedule": "calculated"}, "c": {"refreshed_at": NOW}},
        )
        assert due(chain, NOW + 9).now == frozenset()
        assert due(chain, NOW + 10).now == {"a", "b", "c"}

    def test_for_a_reader_that_is_held_back_it_keeps_that_ones_pace(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a"}, {"a": {"schedule": None, "refreshed_at": NOW + 10}, "b": {"refreshed_at": NOW}}
        )
        assert due(read, NOW + 11).now == {
            "b"
        }  # due, but not begun: otherwise it would have been refreshed after what it reads
        assert due(read, NOW + 20).now == {"a", "b"}

    def test_its_own_last_refresh_does_not_matter_if_its_reader_was_refreshed_since(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a"}, {"a": {"schedule": None, "refreshed_at": NOW}, "b": {"refreshed_at": NOW}}
        )
        assert due(read, NOW + 10).now == {"a", "b"}

    def test_with_a_reader_by_cron(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a"}, {"a": {"schedule": None}, "b": {"schedule": "@hourly", "refreshed_at": NOW}}
        )
        hour = NOW + 3600 - NOW % 3600
        assert due(read, hour - 1) == Due(frozenset(), hour)
        assert due(read, hour).now == {"a", "b"}

    def test_where_nobody_reads_it_the_default_counts(self) -> None:
        assert seconds_until_due(one(schedule=None)) == 1
        assert seconds_until_due(one(schedule="calculated"), default_schedule_seconds=45.0) == 45

    def test_a_manual_reader_is_no_reader(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a"}, {"a": {"schedule": None, "refreshed_at": NOW}, "b": {"schedule": "manual"}}
        )
        assert due(read, NOW + 4.5, default_schedule_seconds=5.0) == Due(frozenset(), NOW + 5)
        assert due(read, NOW + 5, default_schedule_seconds=5.0).now == {"a"}

    def test_beside_a_manual_reader_the_others_count(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a", "c": "a"},
            {"a": {"schedule": None}, "b": {"schedule": "manual"}, "c": {"refreshed_at": NOW}},
        )
        assert due(read, NOW + 9).now == frozenset()
        assert due(read, NOW + 10).now == {"a", "c"}

    def test_a_reader_with_nothing_to_do_is_not_due(self) -> None:
        read = snapshot_of({"a": "t", "b": "a"}, {"a": {"schedule": None}})
        assert due(read, NOW + 60, among="a").now == frozenset()

    def test_a_table_above_with_its_own_schedule_does_not_wait_for_readers(self) -> None:
        read = snapshot_of(
            {"a": "t", "b": "a"}, {"a": {"refreshed_at": NOW}, "b": {"refreshed_at": NOW, "schedule": "1h"}}
        )
        assert due(read, NOW + 10).now == {"a"}


class TestManual:
    def test_never_due(self) -> None:
        assert due(one(schedule="manual", refreshed_at=None), NOW + 1e9) == Due(frozenset(), None)


class TestCron:
    NOON = moment("2023-11-15T12:00:00")

    def daily(self, refreshed: str | None) -> Snapshot:
        return one(schedule="0 6 * * *", refreshed_at=None if refreshed is None else moment(refreshed))

    def test_due_at_its_times_only(self) -> None:
        fresh, clock = self.daily("2023-11-15T06:00:00"), Clock(self.NOON)
        tomorrow = moment("2023-11-16T06:00:00")
        assert due(fresh, self.NOON, clock) == Due(frozenset(), tomorrow)
        assert due(fresh, tomorrow - 1, clock).now == frozenset()
        assert due(fresh, tomorrow, clock).now == {"a"}

    def test_a_time_missed_while_nobody_ran_is_made_up_for_once(self) -> None:
        """The scheduler of the night before refreshed it last on Monday; the one that begins at noon on Wednesday knows that."""
        missed, clock = self.daily("2023-11-13T06:00:01"), Clock(self.NOON)
        assert due(missed, self.NOON, clock).now == {"a"}
        clock.begun["a"] = self.NOON
        assert due(missed, self.NOON + 1, clock) == Due(frozenset(), moment("2023-11-16T06:00:00"))

    def test_a_restart_after_the_refresh_does_not_repeat_it(self) -> None:
        assert due(self.daily("2023-11-15T06:00:01"), self.NOON, Clock(self.NOON)).now == frozenset()

    def test_a_refresh_before_its_time_does_not_count_for_it(self) -> None:
        assert due(self.daily("2023-11-15T05:59:59"), self.NOON, Clock(self.NOON)).now == {"a"}

    def test_one_that_was_never_refreshed_waits_for_the_first_time_after_the_start(self) -> None:
        assert due(self.daily(None), self.NOON + 60, Clock(self.NOON)) == Due(
            frozenset(), moment("2023-11-16T06:00:00")
        )

    def test_in_its_zone(self) -> None:
        berlin = one(schedule="0 6 * * * Europe/Berlin", refreshed_at=moment("2023-11-15T05:00:00"))
        assert due(berlin, self.NOON, Clock(self.NOON)) == Due(frozenset(), moment("2023-11-16T05:00:00"))

    def test_a_change_that_came_after_its_time_waits_for_the_next_one(self) -> None:
        """Nothing had changed by six o'clock today. What changes at noon is shown at six tomorrow: that is what was asked for."""
        quiet = self.daily("2023-11-14T06:00:00")
        clock = Clock(moment("2023-11-13T00:00:00"))
        clock.note_waiting("a", self.NOON)
        assert due(quiet, self.NOON, clock) == Due(frozenset(), moment("2023-11-16T06:00:00"))


class TestClock:
    def test_since_when_a_table_waits(self) -> None:
        clock = Clock(NOW)
        clock.note_waiting("ab", NOW)
        clock.note_waiting("bc", NOW + 5)
        assert clock.waiting_since == {"b": NOW, "c": NOW + 5}
        clock.note_waiting("abc", NOW + 9)
        assert clock.waiting_since == {"a": NOW + 9, "b": NOW, "c": NOW + 5}, "a waits anew"
        clock.note_waiting("", NOW + 10)
        assert clock.waiting_since == {}

    def test_the_last_refresh_is_the_later_of_what_is_known(self) -> None:
        stream = one(refreshed_at=NOW).streams["a"]
        assert Clock(NOW).last(stream) == NOW
        assert Clock(NOW, begun={"a": NOW + 1}).last(stream) == NOW + 1
        assert Clock(NOW, begun={"a": NOW - 1}).last(stream) == NOW
        assert Clock(NOW).last(one(refreshed_at=None).streams["a"]) is None
