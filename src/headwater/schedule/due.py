"""Who is due: schedules held against a clock.

A stream table with a duration is due so long after its last refresh began, one with a cron expression when a time of it has passed
since. A *calculated* one has no time of its own: it is due in the same tick as a stream table that reads it, so that this one finds it
fresh; one that nobody reads is due every `default_schedule_seconds`. All of it counts only for tables that have something to do.

A duration is stretched by the tier, by the back-off of a table that falls behind, and by its jitter. A promise of freshness comes
before all of them: with `sla_seconds` a table is due early enough to keep it.
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

    What was refreshed by others, or before this scheduler lived, stands in the catalog.
    """

    started: float
    begun: dict[str, float] = field(default_factory=dict)
    waiting_since: dict[str, float] = field(default_factory=dict)
    backoff: dict[str, float] = field(default_factory=dict)

    def last(self, stream: StreamTable) -> float | None:
        """Return when a table was begun last; None if it never was."""
        known = [t for t in (self.begun.get(stream.table_id), stream.refreshed_at) if t is not None]
        return max(known, default=None)

    def note_waiting(self, nodes: Iterable[str], now: float) -> None:
        """Note which tables have something to do."""
        wanted = set(nodes)
        for node in self.waiting_since.keys() - wanted:
            del self.waiting_since[node]
        for node in wanted:
            self.waiting_since.setdefault(node, now)

    def note_taken(self, node: str, share: float) -> bool:
        """Note which share of its schedule a refresh took; return whether the table is put off more than before."""
        if share < OVERLOADED:
            self.backoff.pop(node, None)
            return False
        before = self.backoff.get(node, 1.0)
        self.backoff[node] = min(MOST_BACKOFF, 2 * before)
        return self.backoff[node] > before


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
                at = schedule.following(self.clock.started if last is None else last)
        promise = self.promise(stream)
        return at if promise is None or at is None else min(at, promise)

    def interval(self, node: str, schedule: Every) -> float:
        """Return the time between two refreshes as it is now."""
        tier = self.snapshot.streams[node].options.tier
        factor = tier.factor if self.settings.tiered_scheduling else 1.0
        if self.settings.auto_backoff:
            factor *= self.clock.backoff.get(node, 1.0)
        spread = (zlib.crc32(node.encode()) % 1000) / 1000
        return schedule.seconds * factor * (1 + self.settings.schedule_jitter * spread)

    def promise(self, stream: StreamTable) -> float | None:
        """Return when a refresh must begin to show what waits within the time promised."""
        since = self.clock.waiting_since.get(stream.table_id)
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
                    at = now if any(r in due for r in readers) else timing.promise(timing.snapshot.streams[node])
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
