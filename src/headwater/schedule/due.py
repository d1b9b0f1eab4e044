"""Who is due: schedules held against a clock.

A stream table with a duration is due so long after its last refresh began, one with a cron expression when a time of it has passed
since. A *calculated* one has no time of its own: it is due in the same tick as a stream table that reads it, so that this one finds it
fresh; one that nobody reads is due every `default_schedule_seconds`. All of it counts only for tables that have something to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.schedule.graph import Graph
from headwater.schedule.schedules import Calculated, Cron, Every, Manual, Schedule


@dataclass(slots=True)
class Clock:
    """When each stream table was begun last, by this scheduler. What was never begun is due at once, unless it waits for its time."""

    started: float
    begun: dict[str, float] = field(default_factory=dict)

    def is_due(self, node: str, schedule: Every | Cron, now: float) -> bool:
        """Say whether a stream table with a schedule of its own is due."""
        match schedule:
            case Every():
                return node not in self.begun or now - self.begun[node] >= schedule.seconds
            case Cron():
                following = schedule.following(self.begun.get(node, self.started))
                return following is not None and following <= now


def due_tables(
    graph: Graph, candidates: Iterable[str], schedules: Mapping[str, Schedule], clock: Clock, now: float, default: float
) -> set[str]:
    """Return those of the candidates that are due."""
    wanted = set(candidates)
    due: set[str] = set()
    for node in reversed([n for n in graph.order if n in wanted]):
        schedule = schedules[node]
        match schedule:
            case Manual():
                continue
            case Calculated():
                readers = [r for r in graph.dependents.get(node, ()) if not isinstance(schedules[r], Manual)]
                is_due = any(r in due for r in readers) if readers else clock.is_due(node, Every(default), now)
            case Every() | Cron():
                is_due = clock.is_due(node, schedule, now)
        if is_due:
            due.add(node)
    return due
