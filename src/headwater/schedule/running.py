"""Running one unit: on which terms, and what follows from what came of it.

Whatever happens in here ends up as an outcome per stream table; nothing is raised.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headwater.catalog import Snapshot
from headwater.engine.cancelling import Cancellation
from headwater.errors import BusyError, CancelledError, HeadwaterError, brief
from headwater.model.control import Noted, Trouble, noted
from headwater.model.events import EventKind
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import Failing, MemberError, Outcomes, Refresher, RefreshReport, Terms
from headwater.refresh.moment import Moment
from headwater.refresh.shared import SharedChanges
from headwater.schedule.blocks import block_of
from headwater.schedule.telling import Teller
from headwater.schedule.troubles import is_failure, trouble_after
from headwater.schedule.units import Unit, UnitKind
from headwater.schedule.watchdog import Watchdog
from headwater.store.ground import Ground

LOG = logging.getLogger("headwater.schedule")

_FAILING = {
    UnitKind.SINGLE: Failing.APART,
    UnitKind.GROUP: Failing.TOGETHER,
    UnitKind.CHAIN: Failing.CHAIN,
    UnitKind.BATCH: Failing.APART,
}


@dataclass(frozen=True, slots=True)
class Errand:
    """A unit to be refreshed to a moment, as it was decided by what `snapshot` showed."""

    unit: Unit
    moment: Moment
    snapshot: Snapshot
    shared: SharedChanges | None


class Runner:
    """Runs units for one scheduler."""

    def __init__(self, ground: Ground, refresher: Refresher, teller: Teller, now: Callable[[], float]) -> None:
        self._ground = ground
        self._refresher = refresher
        self._teller = teller
        self._now = now
        self._watchdog = Watchdog()

    def run(self, errand: Errand, cancellation: Cancellation) -> Outcomes:
        """Refresh a unit and return what came of each of its stream tables."""
        unit = errand.unit
        try:
            with self._watchdog.watching(cancellation, self._timeout(errand)):
                terms = Terms(cancellation, errand.shared, lambda snapshot: self._refused(errand, snapshot))
                outcomes = self._refresher.refresh_unit(
                    unit.members, _FAILING[unit.kind], at=errand.moment, terms=terms
                )
        except MemberError as failed:
            outcomes = self._of_all(errand, failed)
        except Exception as error:
            if not isinstance(error, HeadwaterError):
                LOG.exception("refresh failed unit=%s", unit.key)
            outcomes = dict.fromkeys(unit.members, error)
        try:
            self._note(errand, outcomes)
        except Exception as error:  # the catalog is away: the next failure is counted again
            LOG.warning("outcome not noted unit=%s error=%s", unit.key, brief(error))
        return outcomes

    def _timeout(self, errand: Errand) -> float:
        """Return how long a unit may take: as long as all of its members together; 0 for ever."""
        options = [errand.snapshot.streams[n].options.timeout_seconds for n in errand.unit.members]
        seconds = [self._ground.settings.refresh_timeout_seconds if s is None else s for s in options]
        return sum(seconds) if all(seconds) else 0.0

    def _refused(self, errand: Errand, snapshot: Snapshot) -> str | None:
        """Say why a unit must not run after all: somebody said so meanwhile, or was faster."""
        now = self._now()
        for node in errand.unit.members:
            if node not in snapshot.streams:
                return "it was dropped"
            block = block_of(snapshot, node, self._ground.settings, now)
            if block is not None:
                return block.text
            if snapshot.streams[node].refreshed_at != errand.snapshot.streams[node].refreshed_at:
                return "it was just refreshed by somebody else"
        return None

    def _of_all(self, errand: Errand, failed: MemberError) -> Outcomes:
        """Return what came of all where one failed: the others were left out, or all met somebody else."""
        if not isinstance(failed.error, HeadwaterError):
            LOG.error("refresh failed unit=%s", errand.unit.key, exc_info=failed.error)
        if isinstance(failed.error, BusyError):
            return dict.fromkeys(errand.unit.members, failed.error)
        return {failed.table_id: failed.error}

    def _note(self, errand: Errand, outcomes: Outcomes) -> None:
        """Tell what happened, and note who is in trouble."""
        now = self._now()
        notes: list[Noted] = []
        for node, outcome in outcomes.items():
            name = errand.snapshot.tables[node].name
            if isinstance(outcome, RefreshReport):
                self._tell(name, outcome, now)
                continue
            if not is_failure(outcome):
                continue
            before = errand.snapshot.notes.get(Trouble, node)
            read = max((errand.moment.version, *errand.moment.later.values()))
            trouble = trouble_after(before, outcome, now, read)
            notes.append(noted(node, trouble))
            kind = EventKind.REFRESH_CANCELLED if isinstance(outcome, CancelledError) else EventKind.REFRESH_FAILED
            told = {"error_kind": trouble.kind.value, "errors": trouble.errors, "error": trouble.message}
            self._teller.tell(kind, now, name, **told)
            if trouble.errors >= self._ground.settings.max_consecutive_errors:
                self._ground.catalog.suspend_stream(node, trouble.message)
                self._teller.tell(EventKind.AUTO_SUSPENDED, now, name, errors=trouble.errors, error=trouble.message)
        self._ground.catalog.note(notes)

    def _tell(self, name: str, report: RefreshReport, now: float) -> None:
        if report.action is not RefreshAction.NO_DATA:
            self._teller.tell(
                EventKind.REFRESH_COMPLETED,
                now,
                name,
                action=report.action.value,
                rows_inserted=report.rows_inserted,
                rows_deleted=report.rows_deleted,
                ms=round(report.duration_ms, 1),
                version=report.version,
            )
