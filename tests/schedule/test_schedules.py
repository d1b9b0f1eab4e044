"""What users may write as a schedule, what it means, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

import headwater as hw
from headwater.errors import StatementError
from headwater.schedule.schedules import Calculated, Cron, Every, Manual, Schedule, duration_text, schedule_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("text", "schedule", "shown"),
    [
        (None, Calculated(), "calculated"),
        ("", Calculated(), "calculated"),
        ("CALCULATED", Calculated(), "calculated"),
        ("Manual", Manual(), "manual"),
        ("5", Every(5), "5s"),
        ("0.5", Every(0.5), "0.5s"),
        ("500 s", Every(500), "8m20s"),
        ("1h30m", Every(5400), "1h30m"),
        ("1H 30M", Every(5400), "1h30m"),
        ("2w3d4h5m6.5s", Every(2 * 604800 + 3 * 86400 + 4 * 3600 + 5 * 60 + 6.5), "2w3d4h5m6.5s"),
        ("*/5 * * * *", Cron("*/5 * * * *"), "*/5 * * * *"),
        ("*/10 * * * * *", Cron("*/10 * * * * *"), "*/10 * * * * *"),
        ("0 6 * * MON-FRI", Cron("0 6 * * MON-FRI"), "0 6 * * MON-FRI"),
        ("0 6 * * 1-5 Europe/Berlin", Cron("0 6 * * 1-5", "Europe/Berlin"), "0 6 * * 1-5 Europe/Berlin"),
        ("0 0 L * SUN UTC", Cron("0 0 L * SUN"), "0 0 L * SUN"),
        ("@Daily", Cron("@daily"), "@daily"),
        ("@hourly Asia/Kolkata", Cron("@hourly", "Asia/Kolkata"), "@hourly Asia/Kolkata"),
    ],
)
def test_what_is_written_is_understood_and_shown(text: str | None, schedule: Schedule, shown: str) -> None:
    assert schedule_of(text) == schedule
    assert str(schedule) == shown
    assert schedule_of(shown) == schedule


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "not understood"),
        ("-5s", "not understood"),
        ("5x", "not understood"),
        ("30m1h", "not understood"),
        ("1h1h", "not understood"),
        ("0s", "longer than nothing"),
        ("@noon", "not understood"),
        ("61 * * * *", "not understood"),
        ("* * * * * * *", "not understood"),
        ("0 6 * * * Europe/Nowhere", "time zone 'Europe/Nowhere'"),
        ("0 0 30 2 *", "not understood"),
    ],
)
def test_what_is_not_understood_is_refused(text: str, message: str) -> None:
    with pytest.raises(StatementError, match=message) as refused:
        schedule_of(text)
    assert refused.value.hint


def test_times_of_a_zone_follow_its_clock() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    six = Cron("0 6 * * *", "Europe/Berlin")
    before_the_change = datetime(2026, 3, 28, 12, tzinfo=UTC).timestamp()
    found = six.following(before_the_change)
    assert found == datetime(2026, 3, 29, 6, tzinfo=berlin).timestamp()
    assert found == datetime(2026, 3, 29, 4, tzinfo=UTC).timestamp()
    assert six.following(found) == datetime(2026, 3, 30, 6, tzinfo=berlin).timestamp()
    assert Cron("@daily").following(before_the_change) == datetime(2026, 3, 29, tzinfo=UTC).timestamp()


def test_durations_are_shown_as_they_are_written() -> None:
    assert [duration_text(s) for s in (0, 0.25, 1, 59.9, 60, 3601, 90_000)] == [
        "0s", "0.25s", "1s", "59.9s", "1m", "1h1s", "1d1h",
    ]  # fmt: skip


def test_a_schedule_that_is_not_understood_is_refused_where_it_is_given(spark: SparkSession, tmp_path: Path) -> None:
    with hw.connect(tmp_path / "w", spark=spark) as wh:
        wh.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        with pytest.raises(StatementError, match="schedule 'soon' is not understood"):
            wh.sql("CREATE STREAM TABLE s SCHEDULE 'soon' AS SELECT count(*) AS n FROM t")
        wh.sql("CREATE STREAM TABLE s SCHEDULE '0 6 * * * Europe/Berlin' AS SELECT count(*) AS n FROM t")
        with pytest.raises(StatementError, match="schedule '6am' is not understood"):
            wh.alter_stream_table("s", schedule="6am")
        (status,) = [x for x in wh.status() if x.name == "s"]
        assert status.schedule == "0 6 * * * Europe/Berlin"
