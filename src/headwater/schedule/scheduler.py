"""The scheduler: tick by tick it brings the stream tables that are due to one moment.

A tick asks the catalog once where it stands. If nothing moved, nothing is done. Otherwise the tables whose sources changed, and what
lies below them, are held against their schedules, and those that are due are refreshed in topological order, all to the moment at
which the tick began: what is committed meanwhile belongs to the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

from headwater.catalog import Snapshot
from headwater.errors import HeadwaterError
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import Refresher, RefreshReport
from headwater.refresh.moment import Moment, newest, pending_sources
from headwater.schedule.due import Clock, due_tables
from headwater.schedule.graph import Graph, empty_graph, rebuilt
from headwater.schedule.rounds import Round, round_of
from headwater.schedule.schedules import Schedule, schedule_of
from headwater.schedule.units import Unit, units_of
from headwater.schedule.workers import Inline, Workers
from headwater.store.ground import Ground

LOG = logging.getLogger("headwater.schedule")


@dataclass(frozen=True, slots=True)
class TickReport:
    """What a tick did. `skipped` says of tables with something to do why they were left."""

    version: int
    duration_ms: float
    refreshed: tuple[RefreshReport, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


class Scheduler:
    """Refreshes what is due. Use `tick` for one round, `run` to go on until `stop`, or `start` for a thread that does."""

    def __init__(
        self,
        ground: Ground,
        refresher: Refresher,
        after_refresh: Callable[[Iterable[str]], None],
        *,
        workers: Workers | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ground = ground
        self._refresher = refresher
        self._after_refresh = after_refresh
        self._now = now
        self._clock = Clock(now())
        self._snapshot: Snapshot | None = None
        self._graph: Graph = empty_graph()
        self._schedules: dict[str, Schedule] = {}
        self._always: set[str] = set()
        self._dirty: set[str] = set()
        self._recheck: set[str] = set()
        self._running: set[str] = set()
        self._running_units: set[Unit] = set()
        self._workers = workers or Inline()
        self._changed = threading.Condition(threading.RLock())
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    # life -------------------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Run in a thread of its own until `stop`."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="headwater-scheduler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Begin nothing any more, and wait for what runs."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._workers.close()

    def run(self, seen: Callable[[TickReport], None] | None = None) -> None:
        """Tick until `stop`."""
        interval = self._ground.settings.scheduler_interval_seconds
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                report = self.tick()
            except HeadwaterError as error:  # the catalog is busy or away: the next look may find it again
                LOG.warning("tick failed error=%s", error)
            else:
                if seen is not None:
                    seen(report)
            self._stop.wait(max(0.0, interval - (time.monotonic() - began)))

    # ticks ------------------------------------------------------------------------------------------------------------------

    def tick(self) -> TickReport:
        """Refresh what is due now to the version that is the newest now, and wait until all of it is done."""
        began = time.perf_counter()
        with self._changed:
            round_, skipped = self._begun_round()
            while True:
                self._dispatch(round_)
                if round_.is_over:
                    break
                if not self._can_begin(round_):
                    self._changed.wait()
        return self._report(round_, skipped, began)

    def _begun_round(self) -> tuple[Round, list[tuple[str, str]]]:
        """Look at the catalog and return what is to be done."""
        snapshot = self._ground.catalog.snapshot()
        self._look(snapshot)
        graph = self._graph
        candidates = graph.descendants(self._dirty) | self._dirty | self._always
        if not candidates:
            return round_of(newest(snapshot), (), graph), []
        settings = self._ground.settings
        now = self._now()
        due = due_tables(graph, candidates, self._schedules, self._clock, now, settings.default_schedule_seconds)
        due -= graph.descendants(self._running) | self._running
        groups = [d.members for d in graph.diamonds]
        skipped = [(snapshot.tables[n].name, "not due") for n in graph.order if n in self._dirty and n not in due]
        return round_of(newest(snapshot), units_of(graph, due, groups, fusible=due), graph), skipped

    def _can_begin(self, round_: Round) -> bool:
        return bool(round_.ready()) and len(self._running_units) < self._workers.capacity

    def _dispatch(self, round_: Round) -> None:
        """Begin what may begin, as far as there are workers."""
        for unit in round_.ready():
            if self._stop.is_set():
                round_.leave_out(unit, "the scheduler stops")
                continue
            if len(self._running_units) >= self._workers.capacity:
                break
            if unit not in round_.waits_for:
                continue
            moment = round_.begin(unit)
            now = self._now()
            self._clock.begun.update(dict.fromkeys(unit.members, now))
            self._running_units.add(unit)
            self._running.update(unit.members)
            self._workers.submit(partial(self._run_unit, round_, unit, moment))

    def _run_unit(self, round_: Round, unit: Unit, moment: Moment) -> None:
        """Refresh a unit; whatever comes of it ends up in the round."""
        try:
            reports = self._refresher.refresh_together(unit.members, at=moment)
            changed = [n for n, r in zip(unit.members, reports, strict=True) if r.action is not RefreshAction.NO_DATA]
            if changed:
                self._after_refresh(changed)
        except Exception as error:
            if not isinstance(error, HeadwaterError):
                LOG.exception("refresh failed unit=%s", unit.key)
            with self._changed:
                self._over(unit)
                round_.fail(unit, error)
        else:
            with self._changed:
                self._over(unit)
                self._recheck |= set(unit.members)
                round_.done(unit, zip(unit.members, reports, strict=True))

    def _over(self, unit: Unit) -> None:
        self._running_units.discard(unit)
        self._running -= set(unit.members)
        self._changed.notify_all()

    def _report(self, round_: Round, skipped: list[tuple[str, str]], began: float) -> TickReport:
        names = self._snapshot.tables if self._snapshot is not None else {}
        return TickReport(
            round_.moment.version,
            (time.perf_counter() - began) * 1000,
            tuple(r for r in round_.refreshed if r.action is not RefreshAction.NO_DATA),
            tuple((names[n].name, str(error)) for unit, error in round_.failed for n in unit.members),
            (*skipped, *((names[n].name, reason) for n, reason in round_.left_out)),
        )

    def _look(self, snapshot: Snapshot) -> None:
        """Take notice of what is new in the catalog."""
        before = self._snapshot
        if snapshot is before and not self._recheck:
            return
        if before is None or snapshot.generation != before.generation:
            sources = {n: snapshot.sources.get(n, ()) for n in snapshot.streams}
            self._graph = rebuilt(self._graph, sources)
            self._schedules = {n: schedule_of(s.schedule) for n, s in snapshot.streams.items()}
            self._always = {n for n, s in snapshot.streams.items() if self._refresher.definition(s).always}
            looked_at = set(snapshot.streams)
        else:
            moved = [t for t, at in snapshot.changed.items() if before.changed.get(t) != at]
            looked_at = {r for t in moved for r in self._graph.dependents.get(t, ())} | self._dirty | self._recheck
        self._dirty = {n for n in looked_at if pending_sources(snapshot, snapshot.streams[n])}
        self._recheck = set()
        self._snapshot = snapshot
