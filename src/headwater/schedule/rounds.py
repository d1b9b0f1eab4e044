"""A round: the units of one tick on their way, each begun when all that it reads are done.

A round stands for one moment. Units that are done add the versions of their commits to it, so that those after them read them there.
Where a stream table fails, the units that read it are left out: their turn comes with a later round. Those that read only others of
its unit, which were refreshed, go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.errors import BusyError, brief
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import RefreshReport
from headwater.refresh.moment import Moment
from headwater.refresh.shared import SharedChanges
from headwater.schedule.graph import Graph
from headwater.schedule.units import Unit, UnitKind


@dataclass(slots=True)
class Round:
    """Not safe for threads by itself: the scheduler that owns it calls it under its lock.

    `readers` are for each stream table the units that read it.
    """

    moment: Moment
    waits_for: dict[Unit, set[Unit]]
    readers: Mapping[str, tuple[Unit, ...]]
    shared: SharedChanges | None = None
    running: set[Unit] = field(default_factory=set)
    refreshed: list[RefreshReport] = field(default_factory=list)
    failed: list[tuple[str, Exception]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    _ready: dict[Unit, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ready.update(dict.fromkeys(u for u, others in self.waits_for.items() if not others))

    @property
    def is_over(self) -> bool:
        return not self.waits_for and not self.running

    @property
    def waiting(self) -> set[str]:
        """The stream tables that have not been begun."""
        return {n for unit in self.waits_for for n in unit.members}

    def ready(self) -> list[Unit]:
        """Return the units that may begin."""
        return list(self._ready)

    def begin(self, unit: Unit) -> Moment:
        """Note that a unit runs, and return the moment that it refreshes to."""
        del self.waits_for[unit]
        del self._ready[unit]
        self.running.add(unit)
        return self.moment

    def end(
        self, unit: Unit, outcomes: Iterable[tuple[str, RefreshReport | Exception]], reason: str | None = None
    ) -> None:
        """Note what came of a unit; who is not named was left out for the reason, or because another one failed."""
        told = dict(outcomes)
        stopped = set(unit.members) - told.keys()
        for node, outcome in told.items():
            if isinstance(outcome, Exception):
                stopped.add(node)
            if isinstance(outcome, BusyError):  # somebody else is at it, which is no failure
                self.left_out.append((node, brief(outcome)))
            elif isinstance(outcome, Exception):
                self.failed.append((node, outcome))
            elif outcome.action is not RefreshAction.NO_DATA:
                self.refreshed.append(outcome)
                if outcome.rows_inserted or outcome.rows_deleted:
                    self.moment = self.moment.with_refreshed(node, outcome.version)
        reason = reason or (WAITS if unit.kind is UnitKind.CHAIN else WITH_IT)
        self.left_out += [(n, reason) for n in unit.members if n not in told]
        self._leave_out_below(stopped)
        self.running.discard(unit)
        for other in self._reading(unit.members):
            self.waits_for[other].discard(unit)
            if not self.waits_for[other]:
                self._ready[other] = None

    def leave_out(self, unit: Unit, reason: str) -> None:
        """Leave a unit out that may not begin, and what reads it."""
        self._drop(unit, reason)
        self._leave_out_below(unit.members)

    def leave_out_all(self, reason: str) -> None:
        """Leave out all that have not been begun."""
        for unit in list(self.waits_for):
            self._drop(unit, reason)

    def _leave_out_below(self, nodes: Iterable[str]) -> None:
        below = self._reading(nodes)
        while below:
            unit = below.pop()
            if unit in self.waits_for:
                self._drop(unit, WAITS)
                below += self._reading(unit.members)

    def _drop(self, unit: Unit, reason: str) -> None:
        del self.waits_for[unit]
        self._ready.pop(unit, None)
        self.left_out += [(n, reason) for n in unit.members]

    def _reading(self, nodes: Iterable[str]) -> list[Unit]:
        """Return the units that read one of the stream tables and wait."""
        return [u for n in nodes for u in self.readers.get(n, ()) if u in self.waits_for]


WAITS = "what it reads was not refreshed"
WITH_IT = "a table that is refreshed with it failed"


def round_of(moment: Moment, units: Iterable[Unit], graph: Graph, shared: SharedChanges | None = None) -> Round:
    """Return a round of units, none of them begun."""
    home = {n: u for u in units for n in u.members}
    waits_for: dict[Unit, set[Unit]] = {u: set() for u in home.values()}
    readers: dict[str, dict[Unit, None]] = {}
    for node, unit in home.items():
        for source in graph.sources[node]:
            if source in home and home[source] is not unit:
                waits_for[unit].add(home[source])
                readers.setdefault(source, {})[unit] = None
    return Round(moment, waits_for, {n: tuple(found) for n, found in readers.items()}, shared)
