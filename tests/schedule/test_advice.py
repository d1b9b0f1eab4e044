"""Advice about schedules: what the history of a table and the changes of its sources make of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.options import StreamOptions
from headwater.model.tables import RefreshAction, RefreshMode, RefreshRecord, StreamTable, WhenFull
from headwater.schedule.advice import (
    INTERVALS,
    MOST_SHARE,
    SAMPLES_NEEDED,
    SAMPLES_USED,
    peak_window,
    refreshes_within,
    schedule_advice,
)
from headwater.schedule.due import BEHIND
from headwater.schedule.schedules import Cron, schedule_of

NOW = 1_700_000_000.0
DAY = 86_400.0
MIDNIGHT = NOW - NOW % DAY


def record(ms: float, action: RefreshAction = RefreshAction.DIFFERENTIAL, status: str = "COMPLETED") -> RefreshRecord:
    return RefreshRecord("a", 1.0, 2.0, action, status, 1, 1, 0, ms, 1, "", 1, 2)


def stream(schedule: str | None = "1s", **values: Any) -> StreamTable:
    return StreamTable("a", "SELECT 1", RefreshMode.AUTO, schedule, WhenFull.WARN, "{}", 1, **values)


def every(seconds: float, hours: float = 10.0) -> list[float]:
    """Return changes so long after each other, up to now."""
    count = int(hours * 3600 / seconds)
    return [NOW - seconds * i for i in range(count)]


def advice(records: Sequence[RefreshRecord], changes: Sequence[float], table: StreamTable | None = None) -> Any:
    return schedule_advice("a", table or stream(), records, changes, NOW)


class TestInterval:
    def test_too_little_history(self) -> None:
        few = advice([record(10.0)] * (SAMPLES_NEEDED - 1), every(10))
        assert (few.recommended_interval_seconds, few.peak_window_cron, few.confidence) == (None, None, 0.0)
        assert few.reasoning == "There are 19 refreshes in its history to judge by, at least 20 are needed."
        assert advice([record(10.0)] * SAMPLES_NEEDED, every(10)).recommended_interval_seconds == 1.0

    @pytest.mark.parametrize(
        "other",
        [record(10.0, status="FAILED"), record(10.0, RefreshAction.INITIAL), record(10.0, RefreshAction.NO_DATA)],
    )
    def test_what_does_not_count(self, other: RefreshRecord) -> None:
        assert advice([*[record(10.0)] * (SAMPLES_NEEDED - 1), other], every(10)).recommended_interval_seconds is None

    def test_only_the_newest_count(self) -> None:
        mended = [*[record(50.0)] * SAMPLES_USED, *[record(60_000.0)] * SAMPLES_USED]
        assert advice(mended, every(1)).recommended_interval_seconds == 1.0

    def test_quick_refreshes_may_come_every_second(self) -> None:
        assert advice([record(50.0)] * 40, every(1)).recommended_interval_seconds == 1.0

    def test_a_tenth_of_the_time_is_the_most(self) -> None:
        slow = advice([record(2_000.0)] * 40, every(1))
        assert slow.recommended_interval_seconds == 30.0
        assert "Every 30s they take 6.7% of the time." in slow.reasoning
        assert "Its schedule now is 1s: 200.0%." in slow.reasoning

    def test_rare_changes_cost_nothing_between_them(self) -> None:
        rare = advice([record(2_000.0)] * 40, every(600))
        assert rare.recommended_interval_seconds == 5.0, "short, but longer than a refresh"
        assert "Its sources changed 60 times in 9h50m." in rare.reasoning

    def test_bursts_count_as_what_refreshes_see_of_them(self) -> None:
        bursts = [t + 0.01 * i for t in every(600) for i in range(50)]
        assert advice([record(2_000.0)] * 40, [t - 1 for t in bursts]).recommended_interval_seconds == 5.0

    def test_unknown_changes_mean_always(self) -> None:
        unknown = advice([record(2_000.0)] * 40, [])
        assert unknown.recommended_interval_seconds == 30.0
        assert "not known when its sources change" in unknown.reasoning

    def test_unsteady_refreshes_ask_for_more_time(self) -> None:
        """The median is 1 s, but half of them lie 2 s or more away from it."""
        unsteady = [record(ms) for ms in (100.0, 1_000.0, 9_000.0, 200.0, 9_500.0)] * 8
        steady = advice([record(1_000.0)] * 40, every(3600)).recommended_interval_seconds
        assert advice(unsteady, every(3600)).recommended_interval_seconds > steady == 2.0

    def test_outliers_move_nothing(self) -> None:
        usual = [record(100.0 + i % 5) for i in range(60)]
        spiked = [*usual, *[record(600_000.0)] * 5]
        assert (
            advice(spiked, every(1)).recommended_interval_seconds
            == advice(usual, every(1)).recommended_interval_seconds
        )

    def test_what_takes_for_ever_is_due_once_a_day(self) -> None:
        assert advice([record(1e9)] * 40, every(1)).recommended_interval_seconds == INTERVALS[-1]

    @given(st.floats(1, 1e7), st.floats(5, 3600))
    @settings(deadline=None)
    def test_the_bounds_hold_and_shorter_would_break_them(self, ms: float, gap: float) -> None:
        changes = every(gap, hours=20)
        kept = advice([record(ms)] * 40, changes).recommended_interval_seconds

        def holds(interval: float) -> bool:
            share = refreshes_within(sorted(changes), interval) * ms / 1000 / max(NOW - changes[-1], interval)
            return ms / 1000 <= BEHIND * interval and share <= MOST_SHARE

        assert kept in INTERVALS
        assert holds(kept) or kept == INTERVALS[-1]
        assert not any(holds(i) for i in INTERVALS if i < kept)


class TestPromise:
    def promised(self, seconds: float, ms: float) -> Any:
        return advice([record(ms)] * 40, every(1), stream(options=StreamOptions(sla_seconds=seconds)))

    def test_kept_anyway(self) -> None:
        kept = self.promised(60.0, 90.0)
        assert kept.recommended_interval_seconds == 1.0
        assert "keeps its promise of 1m" in kept.reasoning

    def test_it_comes_before_costs(self) -> None:
        dear = self.promised(20.0, 2_000.0)
        assert dear.recommended_interval_seconds == 15.0
        assert "asks for more than the 30s that cost alone would give" in dear.reasoning

    def test_what_cannot_be_kept_is_said(self) -> None:
        broken = self.promised(3.0, 2_500.0)
        assert broken.recommended_interval_seconds == pytest.approx(2.5 / BEHIND)
        assert "cannot be kept" in broken.reasoning


class TestReplay:
    def test_by_hand(self) -> None:
        assert refreshes_within([], 10) == 0
        assert refreshes_within([5.0], 10) == 1
        assert refreshes_within([0.0, 1.0, 2.0], 10) == 2, "one at once, one for the others when it is due again"
        assert refreshes_within([0.0, 20.0, 40.0], 10) == 3
        assert refreshes_within([0.0, 1.0, 10.0, 10.5], 10) == 3

    @given(st.lists(st.floats(0, 1000), max_size=60), st.floats(0.1, 100))
    def test_no_more_than_changes_and_no_more_than_fit(self, times: list[float], interval: float) -> None:
        count = refreshes_within(sorted(times), interval)
        assert count <= len(times)
        assert (count == 0) == (not times)
        if times:
            assert count <= (max(times) - min(times)) / interval + 2
            assert count >= refreshes_within(sorted(times), 2 * interval)


class TestConfidence:
    def test_more_samples_and_steadier_ones_are_surer(self) -> None:
        few, many = advice([record(100.0)] * 20, every(60)), advice([record(100.0)] * 100, every(60))
        assert 0 < few.confidence < many.confidence == 1.0
        unsteady = advice([record(100.0 + 50 * (i % 7)) for i in range(100)], every(60))
        assert unsteady.confidence < many.confidence
        assert advice([record(100.0)] * 100, []).confidence == 0.5

    @given(st.lists(st.floats(0, 1e6), min_size=20, max_size=60), st.lists(st.floats(0, NOW), max_size=30))
    def test_it_lies_between_0_and_1(self, durations: list[float], changes: list[float]) -> None:
        assert 0 <= advice([record(ms) for ms in durations], changes).confidence <= 1

    def test_costs_are_spoken_of_where_full_is_no_dearer(self) -> None:
        assert "in full costs no more" in advice([record(9.0)] * 20, [], stream(full_ms=5.0, diff_ms=5.0)).reasoning
        assert "in full" not in advice([record(9.0)] * 20, [], stream(full_ms=5.0, diff_ms=4.0)).reasoning

    def test_a_present_schedule_that_is_no_duration_is_not_weighed(self) -> None:
        assert "Its schedule now" not in advice([record(9.0)] * 20, [], stream("@daily")).reasoning


def at_hours(hours: Sequence[int], days: int = 7, per_hour: int = 20) -> list[float]:
    """Return changes in these hours (UTC) of the last days."""
    return sorted(
        MIDNIGHT - day * DAY + hour * 3600 + i * 3600 / per_hour
        for day in range(1, days + 1)
        for hour in hours
        for i in range(per_hour)
    )


class TestPeakWindow:
    @pytest.mark.parametrize(
        ("hours", "interval", "cron"),
        [
            ([9], 10, "* 9 * * *"),
            ([8, 9, 10], 60, "* 8-10 * * *"),
            ([8, 9, 10], 300, "*/5 8-10 * * *"),
            ([8, 9, 10], 1800, "*/30 8-10 * * *"),
            ([8, 9, 10], 3600, "0 8,9,10 * * *"),
            ([8, 9, 10, 11], 7200, "0 8,10 * * *"),
            ([22, 23, 0, 1], 120, "*/2 22-23,0-1 * * *"),
            ([23, 0], 120, "*/2 23,0 * * *"),
            ([0, 1], 86_400, "0 0 * * *"),
        ],
    )
    def test_few_hours(self, hours: list[int], interval: float, cron: str) -> None:
        assert peak_window(at_hours(hours), interval) == cron
        assert isinstance(schedule_of(cron), Cron)

    def test_a_few_changes_beside_it_do_no_harm(self) -> None:
        assert peak_window(sorted([*at_hours([9, 10]), *at_hours([3], per_hour=5)]), 60) == "* 9-10 * * *"

    def test_all_day_long_is_no_window(self) -> None:
        assert peak_window(at_hours(range(24)), 60) is None
        assert peak_window(at_hours(range(8, 18)), 60) == "* 8-15 * * *", "eight of ten hours hold four fifths"
        assert peak_window(at_hours(range(7, 18)), 60) is None

    def test_too_few_days_or_changes(self) -> None:
        assert peak_window(at_hours([9], days=2, per_hour=60), 60) is None
        assert peak_window(at_hours([9], days=3, per_hour=60), 60) == "* 9 * * *"
        assert peak_window(at_hours([9], days=5, per_hour=5), 60) is None

    def test_it_is_part_of_the_advice(self) -> None:
        assert advice([record(50.0)] * 40, at_hours([9])).peak_window_cron == "* 9 * * *"
        assert advice([record(50.0)] * 40, every(60)).peak_window_cron is None
