"""Freshness of stream tables: how long changes wait that they do not show, and why.

    age(s)        =  the age of the oldest change that s has not read of what it reads itself
    staleness(s)  =  the largest age of s and of all stream tables that it reads, directly or not

So a change does not become fresh by waiting further up. One that a stream table above has shown counts from the commit that showed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from headwater.catalog import Snapshot
from headwater.model.control import Gate
from headwater.model.options import Tier
from headwater.model.reports import Freshness, Unseen
from headwater.schedule.blocks import Block, BlockKind, block_of
from headwater.schedule.schedules import Calculated, Cron, Every, Manual, Schedule, schedule_of
from headwater.settings import Settings


@dataclass(frozen=True, slots=True)
class Ages:
    """Ages of unseen changes by stream table, in seconds; a table that was never populated has none.

    `slowest` names for each stream table whose staleness is not its own the one above it where the oldest change waits.
    """

    own: Mapping[str, float]
    staleness: Mapping[str, float]
    slowest: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a stream table is meant to be refreshed: its schedule, and the time between two refreshes; None is never."""

    schedule: Schedule
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Present:
    """One moment as reports see it: a snapshot, the time, and what follows from both for every stream table."""

    snapshot: Snapshot
    settings: Settings
    now: float
    ages: Ages
    paces: Mapping[str, Pace]


def present_of(snapshot: Snapshot, unseen: Mapping[tuple[str, str], Unseen], settings: Settings, now: float) -> Present:
    """Return the present; `unseen` are the first changes that stream tables have not read of their sources."""
    return Present(snapshot, settings, now, ages_of(snapshot, unseen), paces(snapshot, settings))


def ages_of(snapshot: Snapshot, unseen: Mapping[tuple[str, str], Unseen]) -> Ages:
    """Return the ages of what stream tables have not seen. Circles do no harm: the oldest goes down first, each table takes one."""
    own = {i: 0.0 for i, stream in snapshot.streams.items() if stream.frontier is not None}
    for (stream_id, _), first in unseen.items():
        if stream_id in own:
            own[stream_id] = max(own[stream_id], first.seconds)
    staleness: dict[str, float] = {}
    slowest: dict[str, str] = {}
    for start in sorted(own, key=lambda i: (-own[i], snapshot.tables[i].name)):
        waiting = [start]
        while waiting:
            current = waiting.pop()
            if current in staleness:
                continue
            staleness[current] = own[start]
            if own.get(current, 0.0) < own[start]:
                slowest[current] = start
            waiting += snapshot.dependents.get(current, ())
    return Ages(own, {i: s for i, s in staleness.items() if i in own}, slowest)


def freshness_of(present: Present, table_id: str) -> Freshness:
    """Return how stale a stream table is and, if it is, the reason in a word or two."""
    snapshot, ages = present.snapshot, present.ages
    staleness = ages.staleness.get(table_id)
    if staleness == 0.0:
        return Freshness(0.0)
    blocked = blocked_reason(snapshot, table_id, present.settings, present.now)
    if staleness is None:
        return Freshness(None, blocked or "not populated")
    if ages.own[table_id] == 0.0:
        return Freshness(staleness, f"waits for {snapshot.tables[ages.slowest[table_id]].name}")
    return Freshness(staleness, blocked or _turn(present, table_id))


def blocked_reason(snapshot: Snapshot, table_id: str, settings: Settings, now: float) -> str | None:
    """Return in a word or two why a scheduler must not refresh a stream table now; None if it may."""
    block = block_of(snapshot, table_id, settings, now)
    return None if block is None else _word(snapshot, table_id, block)


def _word(snapshot: Snapshot, table_id: str, block: Block) -> str:
    match block.kind:
        case BlockKind.DRAINED | BlockKind.PAUSED | BlockKind.SUSPENDED | BlockKind.FROZEN:
            return str(block.kind.value)
        case BlockKind.FUSE:
            return "fuse blown"
        case BlockKind.GATED:
            gates = snapshot.notes.of(Gate)
            return f"gated: {', '.join(snapshot.tables[s].name for s in snapshot.sources[table_id] if s in gates)}"
        case BlockKind.WATERMARK | BlockKind.FAILED | BlockKind.ABOVE:
            return block.text
        case _:
            assert_never(block.kind)


def _turn(present: Present, table_id: str) -> str:
    """Say of a stream table that may be refreshed whether it is its turn."""
    pace = present.paces[table_id]
    last = present.snapshot.streams[table_id].refreshed_at
    if pace.seconds is None:
        return "manual"
    if last is None:
        return "due"
    if isinstance(pace.schedule, Cron):
        following = pace.schedule.following(last)
        return "due" if following is not None and following <= present.now else "not due"
    return "due" if last + pace.seconds <= present.now else "not due"


def paces(snapshot: Snapshot, settings: Settings) -> dict[str, Pace]:
    """Return how often each stream table is meant to be refreshed, its tier counted in.

    A calculated one has the shortest time of those that read it and are refreshed by schedule, and the default where nobody does. One
    with a cron expression has the time between the two that follow its last refresh.
    """
    found: dict[str, Pace] = {}
    for node in _readers_first(snapshot):
        stream = snapshot.streams[node]
        schedule = schedule_of(stream.schedule)
        tier = stream.options.tier if settings.tiered_scheduling else Tier.HOT
        seconds: float | None
        match schedule:
            case Manual():
                seconds = None
            case Every():
                seconds = schedule.seconds * tier.factor
            case Cron():
                seconds = _gap(schedule, stream.refreshed_at or 0.0)
            case Calculated():
                readers = [p for r in snapshot.dependents.get(node, ()) if (p := found.get(r)) and not _is_manual(p)]
                known = [p.seconds for p in readers if p.seconds is not None]
                seconds = min(known, default=None if readers else settings.default_schedule_seconds * tier.factor)
            case _:
                assert_never(schedule)
        found[node] = Pace(schedule, None if tier is Tier.FROZEN else seconds)
    return found


def overdue(pace: Pace, age: float, now: float) -> bool:
    """Say whether a change is so old that a stream table should have shown it twice over."""
    if pace.seconds is None:
        return False
    if not isinstance(pace.schedule, Cron):
        return age > 2 * pace.seconds
    first = pace.schedule.following(now - age)
    second = None if first is None else pace.schedule.following(first)
    return second is not None and second <= now


def _is_manual(pace: Pace) -> bool:
    return isinstance(pace.schedule, Manual)


def _gap(schedule: Cron, after: float) -> float | None:
    first = schedule.following(after)
    second = None if first is None else schedule.following(first)
    return None if first is None or second is None else second - first


def _readers_first(snapshot: Snapshot) -> list[str]:
    """Return the stream tables, each after those that read it; where they form a circle, in some order."""
    found: dict[str, None] = {}
    begun: set[str] = set()
    for start in snapshot.streams:
        work = [start]
        while work:
            node = work[-1]
            if node in begun:
                work.pop()
                found.setdefault(node)
                continue
            begun.add(node)
            work += [r for r in snapshot.dependents.get(node, ()) if r in snapshot.streams and r not in begun]
    return list(found)
