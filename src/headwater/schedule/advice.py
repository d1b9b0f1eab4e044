"""Advice: which schedule a stream table can keep at a reasonable cost.

Two things decide. A refresh must end before the next one is due; so the schedule is longer than a slow refresh takes:

    slow  =  median + 3 * 1.4826 * MAD        of the durations; outliers do not move it

And refreshing must not take more than a tenth of the time. How many refreshes a schedule means depends on when sources really change:
a table whose sources change once an hour costs one refresh an hour, be its schedule a second. So the commits of the sources are
replayed against schedule after schedule, and the shortest that keeps both bounds is it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

from headwater.model.reports import ScheduleAdvice
from headwater.model.tables import RefreshAction, RefreshRecord, StreamTable
from headwater.schedule.due import BEHIND
from headwater.schedule.schedules import Every, duration_text, schedule_of

SAMPLES_NEEDED = 20
SAMPLES_USED = 200
MOST_SHARE = 0.10
"""Of the time a stream table may be spent on refreshing it."""
INTERVALS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400)
"""The schedules that are considered, in seconds."""

_CERTAIN_SAMPLES = 100
_MAD_TO_DEVIATION = 1.4826
_PEAK_HOURS = 8
_PEAK_SHARE = 0.8
_PEAK_DAYS = 3
_PEAK_CHANGES = 60
_HOUR, _DAY = 3600.0, 86_400.0


@dataclass(frozen=True, slots=True)
class Durations:
    """What refreshes took, in seconds: the usual, how far it spreads, and a slow one."""

    usual: float
    spread: float

    @property
    def slow(self) -> float:
        return self.usual + 3 * self.spread


def schedule_advice(
    name: str, stream: StreamTable, records: Sequence[RefreshRecord], changes: Sequence[float], now: float
) -> ScheduleAdvice:
    """Return which schedule fits a stream table.

    `records` are lines of its history, newest first, `changes` the times of the commits that changed its sources; where none are known
    it is taken to have something to do whenever it is due.
    """
    samples = [r.duration_ms / 1000 for r in records if _counts(r)][:SAMPLES_USED]
    if len(samples) < SAMPLES_NEEDED:
        reasoning = (
            f"There are {len(samples)} refreshes in its history to judge by, at least {SAMPLES_NEEDED} are needed."
        )
        return ScheduleAdvice(name, stream.schedule, None, None, 0.0, reasoning)
    times = sorted(changes)
    took = _durations(samples)
    interval = next(
        (float(i) for i in INTERVALS if took.slow <= BEHIND * i and _share(took, times, i, now) <= MOST_SHARE),
        float(INTERVALS[-1]),
    )
    promise = stream.options.sla_seconds
    kept = interval if promise is None else min(interval, _within(promise, took))
    reasons = [
        f"{len(samples)} refreshes took {_span(took.usual)} at the median, and {_span(took.slow)} when slow.",
        _change_reason(times, now),
        f"Every {duration_text(kept)} they take {_share(took, times, kept, now):.1%} of the time.",
        _present_reason(stream, took, times, now),
        "" if promise is None else _promise_reason(promise, took, interval, kept),
        _cost_reason(stream),
    ]
    return ScheduleAdvice(
        name,
        stream.schedule,
        kept,
        peak_window(times, kept),
        _confidence(samples, took, times),
        " ".join(r for r in reasons if r),
    )


def _counts(record: RefreshRecord) -> bool:
    return record.status == "COMPLETED" and record.action in (RefreshAction.DIFFERENTIAL, RefreshAction.FULL)


def _durations(samples: Sequence[float]) -> Durations:
    middle = median(samples)
    return Durations(middle, _MAD_TO_DEVIATION * median(abs(s - middle) for s in samples))


def refreshes_within(times: Sequence[float], interval: float) -> int:
    """Return how often a stream table would have been refreshed: at a change, but not sooner than `interval` after the last time."""
    count, last = 0, -math.inf
    for time in times:
        if time > last:  # not seen by the refresh before
            last = max(time, last + interval)
            count += 1
    return count


def _share(took: Durations, times: Sequence[float], interval: float, now: float) -> float:
    """Return which share of the time refreshing would have taken."""
    if len(times) < 2:
        return took.usual / interval
    return refreshes_within(times, interval) * took.usual / max(now - times[0], interval)


def _within(promise: float, took: Durations) -> float:
    """Return the longest schedule that keeps a promise of freshness; where there is none, the shortest that refreshes can keep up with."""
    longest = promise - took.slow
    kept = [float(i) for i in INTERVALS if i <= longest]
    return kept[-1] if kept else max(took.slow / BEHIND, longest)


def _confidence(samples: Sequence[float], took: Durations, times: Sequence[float]) -> float:
    """Return how sure the advice is: many samples, alike, and with known changes of the sources make it sure."""
    enough = math.sqrt(min(1.0, len(samples) / _CERTAIN_SAMPLES))
    steady = 1 / (1 + took.spread / took.usual) if took.usual > 0 else 1.0
    known = 1.0 if len(times) >= SAMPLES_NEEDED else 0.5
    return round(enough * steady * known, 2)


def _change_reason(times: Sequence[float], now: float) -> str:
    if len(times) < 2:
        return "It is not known when its sources change, so it is taken to have something to do every time."
    return f"Its sources changed {len(times)} times in {_span(now - times[0])}."


def _present_reason(stream: StreamTable, took: Durations, times: Sequence[float], now: float) -> str:
    schedule = schedule_of(stream.schedule)
    if not isinstance(schedule, Every):
        return ""
    return f"Its schedule now is {schedule}: {_share(took, times, schedule.seconds, now):.1%}."


def _promise_reason(promise: float, took: Durations, wanted: float, kept: float) -> str:
    if kept + took.slow > promise:
        return f"Its promise of {duration_text(promise)} cannot be kept by refreshes that slow."
    if kept < wanted:
        return f"Its promise of {duration_text(promise)} asks for more than the {duration_text(wanted)} that cost alone would give."
    return f"That keeps its promise of {duration_text(promise)}."


def _cost_reason(stream: StreamTable) -> str:
    if stream.full_ms is None or stream.diff_ms is None or stream.diff_ms < stream.full_ms:
        return ""
    return "Refreshing it in full costs no more than from changes, so a longer schedule saves the most."


def _span(seconds: float) -> str:
    """Return a length of time to two digits or so."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return duration_text(round(seconds, 1) if seconds < 60 else 60 * round(seconds / 60))


def peak_window(times: Sequence[float], interval: float) -> str | None:
    """Return a cron expression for the hours of the day (UTC) in which sources change, if these are few; None if they are not.

    Few: at most eight in a row hold four fifths of the changes of three days or more.
    """
    if len(times) < _PEAK_CHANGES or times[-1] - times[0] < (_PEAK_DAYS - 1) * _DAY:
        return None
    per_hour = Counter(datetime.fromtimestamp(t, UTC).hour for t in times)
    if len({datetime.fromtimestamp(t, UTC).date() for t in times}) < _PEAK_DAYS:
        return None
    for length in range(1, _PEAK_HOURS + 1):
        start = max(range(24), key=lambda h: _changes_in(per_hour, h, length))
        if _changes_in(per_hour, start, length) >= _PEAK_SHARE * len(times):
            return _cron([(start + i) % 24 for i in range(length)], interval)
    return None


def _changes_in(per_hour: Counter[int], start: int, length: int) -> int:
    return sum(per_hour[(start + i) % 24] for i in range(length))


def _cron(hours: Sequence[int], interval: float) -> str:
    """Return a cron expression that comes about every `interval` seconds within the hours."""
    if interval > 30 * 60:
        step = max(1, round(interval / _HOUR))
        return f"0 {','.join(str(h) for h in hours[::step])} * * *"
    minutes = "*" if interval <= 60 else f"*/{round(interval / 60)}"
    return f"{minutes} {_ranges(hours)} * * *"


def _ranges(hours: Sequence[int]) -> str:
    """Return hours in a row, which may pass midnight, as the field of a cron expression."""
    after = hours.index(0) if 0 in hours else len(hours)
    parts = [p for p in (hours[:after], hours[after:]) if p]
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
