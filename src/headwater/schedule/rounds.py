"""A round: the units of one tick on their way, each begun when all that it reads are done.

A round stands for one moment. Units that are done add the versions of their commits to it, so that those after them read them there.
Where a unit fails, those that read it are left out: their turn comes with a later round.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport
from headwater.refresh.moment import Moment
from headwater.refresh.shared import SharedChanges
from headwater.schedule.graph import Graph
from headwater.schedule.units import Unit, UnitKind


@dataclass(slots=True)
class Round:
    """Not safe for threads by itself: the scheduler that owns it calls it under its lock."""

    moment: Moment
    waits_for: dict[Unit, set[Unit]]
    shared: SharedChanges | None = None
    running: set[Unit] = field(default_factory=set)
    refreshed: list[RefreshReport] = field(default_factory=list)
    failed: list[tuple[str, Exception]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return not self.waits_for and not self.running

    @property
    def waiting(self) -> set[str]:
        """The stream tables that have not been begun."""
        return {n for unit in self.waits_for for n in unit.members}

    def ready(self) -> list[Unit]:
        """Return the units that may begin."""
        return [u for u, others in self.waits_for.items() if not others]

    def begin(self, unit: Unit) -> Moment:
        """Note that a unit runs, and return the moment that it refreshes to."""
        del self.waits_for[unit]
        self.running.add(unit)
        return self.moment

    def end(self, unit: Unit, outcomes: Iterable[tuple[str, RefreshReport | Exception]]) -> None:
        """Note what came of a unit; who is not named was left out because one before it failed."""
        told = dict(outcomes)
        stopped = set(unit.members) - told.keys()
        for node, outcome in told.items():
            if isinstance(outcome, Exception):
                self.failed.append((node, outcome))
                stopped.add(node)
            elif outcome.action is not RefreshAction.NO_DATA:
                self.refreshed.append(outcome)
                if outcome.rows_inserted or outcome.rows_deleted:
                    self.moment = self.moment.with_refreshed(node, outcome.version)
        reason = WITH_IT if unit.kind is UnitKind.GROUP else WAITS
        self.left_out += [(n, reason) for n in unit.members if n not in told]
        if stopped:
            self._leave_out_below(unit)
        self.running.discard(unit)
        for others in self.waits_for.values():
            others.discard(unit)

    def leave_out(self, unit: Unit, reason: str) -> None:
        """Leave a unit out that may not begin, and what reads it."""
        del self.waits_for[unit]
        self.left_out += [(n, reason) for n in unit.members]
        self._leave_out_below(unit)

    def _leave_out_below(self, unit: Unit) -> None:
        for other in [u for u, others in self.waits_for.items() if unit in others]:
            if other in self.waits_for:
                self.leave_out(other, WAITS)


WAITS = "what it reads was not refreshed"
WITH_IT = "a table that is refreshed with it failed"


def round_of(moment: Moment, units: Iterable[Unit], graph: Graph, shared: SharedChanges | None = None) -> Round:
    """Return a round of units, none of them begun."""
    ordered = list(units)
    home = {n: u for u in ordered for n in u.members}
    waits_for = {
        u: {home[s] for n in u.members for s in graph.sources[n] if s in home and home[s] is not u} for u in ordered
    }
    return Round(moment, waits_for, shared)
