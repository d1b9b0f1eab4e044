"""Who is due: schedules held against a clock.

A stream table with a duration is due so long after its last refresh began, one with a cron expression when a time of it has passed
since. A *calculated* one has no time of its own: it is due in the same tick as a stream table that reads it, so that this one finds it
fresh; one that nobody reads is due every `default_schedule_seconds`. All of it counts only for tables that have something to do.

A duration is stretched by the tier, by the back-off of a table that falls behind, and by its jitter. A promise of freshness comes
before all of them: with `sla_seconds` a table is due early enough to keep it, counted from the change, however far above that was.

A time of a cron expression counts if there was something to do by then, as far as this scheduler has seen: what changes later waits for
the next one. What was begun and came to nothing is due again at once; how soon it is tried, its troubles say (`blocks.py`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from headwater.catalog import Snapshot
from headwater.model.tables import StreamTable
from headwater.schedule.graph import Graph
from headwater.schedule.schedules import Calculated, Cron, Every, Manual, Schedule
from headwater.settings import Settings

MOST_BACKOFF = 8.0
BEHIND, OVERLOADED = 0.80, 0.95
"""Shares of its schedule that a refresh may take: above the first it is spoken of, above the second the schedule is stretched."""
_SLA_MARGIN = 0.2


@dataclass(slots=True)
class Clock:
    """What a scheduler remembers of time: when it began each table last, since when each has something to do, and how often it is put off.

    What was refreshed by others, or before this scheduler lived, stands in the catalog. `changed_since` says of each table since when
    there is a change that it does not show, its own or one further above.
    """

    started: float
    begun: dict[str, float] = field(default_factory=dict)
    waiting_since: dict[str, float] = field(default_factory=dict)
    changed_since: dict[str, float] = field(default_factory=dict)
    backoff: dict[str, float] = field(default_factory=dict)
    _before: dict[str, float | None] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)

    def last(self, stream: StreamTable) -> float | None:
        """Return when a table was begun last; None if it never was."""
        known = [t for t in (self.begun.get(stream.table_id), stream.refreshed_at) if t is not None]
        return max(known, default=None)

    def note_begun(self, nodes: Iterable[str], now: float) -> None:
        """Note that tables are begun now."""
        for node in nodes:
            self._before[node] = self.begun.get(node)
            self.begun[node] = now

    def put_back(self, node: str, until: float) -> None:
        """Note that what was begun came to nothing: it was not refreshed, and is due as before, though not before `until`."""
        before = self._before.pop(node, None)
        if before is None:
            self.begun.pop(node, None)
        else:
            self.begun[node] = before
        self._not_before[node] = until

    def not_before(self, node: str) -> float:
        """Return the earliest time for a table that came to nothing when it was begun last."""
        return self._not_before.get(node, float("-inf"))

    def note_waiting(self, nodes: Iterable[str], now: float, below: Iterable[str] = ()) -> None:
        """Note which tables have something to do, and which are below those."""
        wanted = set(nodes)
        _since(self.waiting_since, wanted, now)
        _since(self.changed_since, wanted.union(below), now)

    def note_taken(self, node: str, share: float) -> bool:
        """Note which share of its schedule a refresh took; return whether the table is put off more than before."""
        if share < OVERLOADED:
            self.backoff.pop(node, None)
            return False
        before = self.backoff.get(node, 1.0)
        self.backoff[node] = min(MOST_BACKOFF, 2 * before)
        return self.backoff[node] > before


def _since(known: dict[str, float], wanted: set[str], now: float) -> None:
    for node in known.keys() - wanted:
        del known[node]
    for node in wanted:
        known.setdefault(node, now)


@dataclass(frozen=True, slots=True)
class Due:
    """Who is due now, and when the first of the others will be."""

    now: frozenset[str]
    following: float | None


@dataclass(frozen=True, slots=True)
class Timing:
    """What decides when stream tables are due."""

    snapshot: Snapshot
    schedules: Mapping[str, Schedule]
    clock: Clock
    settings: Settings

    def due_at(self, node: str, schedule: Every | Cron) -> float | None:
        """Return when a stream table with a schedule of its own is due; None for never."""
        stream = self.snapshot.streams[node]
        last = self.clock.last(stream)
        match schedule:
            case Every():
                at: float | None = self.clock.started if last is None else last + self.interval(node, schedule)
            case Cron():
                at = schedule.following(self._counted_from(node, last))
        promise = self.promise(stream)
        first = min((t for t in (at, promise) if t is not None), default=None)
        return None if first is None else max(first, self.clock.not_before(node))

    def _counted_from(self, node: str, last: float | None) -> float:
        """Return the moment after which the next time of a cron expression counts."""
        if last is None:
            return self.clock.started
        since = self.clock.changed_since.get(node, self.clock.started)
        # What waited already when this scheduler began may have missed a time before.
        return max(last, since) if since > self.clock.started else last

    def interval(self, node: str, schedule: Every) -> float:
        """Return the time between two refreshes as it is now."""
        tier = self.snapshot.streams[node].options.tier
        factor = tier.factor if self.settings.tiered_scheduling else 1.0
        if self.settings.auto_backoff:
            factor *= self.clock.backoff.get(node, 1.0)
        spread = (zlib.crc32(node.encode()) % 1000) / 1000
        return schedule.seconds * factor * (1 + self.settings.schedule_jitter * spread)

    def wanted_at(self, node: str, reader: str) -> float:
        """Return since when a calculated table is wanted by one that reads it and is due.

        At once, unless it was refreshed since that one was: then that one is held back, and its own pace must do.
        """
        last, of_reader = (self.clock.last(self.snapshot.streams[n]) for n in (node, reader))
        if last is None or of_reader is None or last <= of_reader:
            return float("-inf")
        schedule = self.schedules[reader]
        pace = (
            self.interval(reader, schedule) if isinstance(schedule, Every) else self.settings.default_schedule_seconds
        )
        return last + pace

    def promise(self, stream: StreamTable) -> float | None:
        """Return when a refresh must begin to show what waits within the time promised."""
        since = self.clock.changed_since.get(stream.table_id)
        if stream.options.sla_seconds is None or since is None:
            return None
        takes = (stream.refresh_ms or 0.0) / 1000 * (1 + _SLA_MARGIN)
        return since + max(0.0, stream.options.sla_seconds * (1 - _SLA_MARGIN) - takes)


def due_tables(graph: Graph, candidates: Iterable[str], timing: Timing, now: float) -> Due:
    """Return those of the candidates that are due."""
    wanted = set(candidates)
    due: set[str] = set()
    following: list[float] = []
    for node in reversed([n for n in graph.order if n in wanted]):
        schedule = timing.schedules[node]
        at: float | None
        match schedule:
            case Manual():
                continue
            case Calculated():
                readers = [r for r in graph.dependents.get(node, ()) if not isinstance(timing.schedules[r], Manual)]
                if readers:
                    wanting = [timing.wanted_at(node, r) for r in readers if r in due]
                    promise = timing.promise(timing.snapshot.streams[node])
                    at = min((t for t in (*wanting, promise) if t is not None), default=None)
                    at = at if at is None else max(at, timing.clock.not_before(node))
                else:
                    at = timing.due_at(node, Every(timing.settings.default_schedule_seconds))
            case Every() | Cron():
                at = timing.due_at(node, schedule)
            case _:
                assert_never(schedule)
        if at is not None and at <= now:
            due.add(node)
        elif at is not None:
            following.append(at)
    return Due(frozenset(due), min(following, default=None))
