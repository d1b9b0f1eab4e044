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
from types import TracebackType
from typing import Self

from headwater.catalog import Snapshot
from headwater.errors import HeadwaterError
from headwater.model.tables import RefreshAction
from headwater.refresh.cycle import Refresher, RefreshReport
from headwater.refresh.moment import Moment, newest, pending_sources
from headwater.schedule.due import Clock, due_tables
from headwater.schedule.graph import Graph, empty_graph, rebuilt
from headwater.schedule.schedules import Schedule, schedule_of
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

    def run(self, seen: Callable[[TickReport], None] | None = None) -> None:
        """Tick until `stop`."""
        interval = self._ground.settings.scheduler_interval_seconds
        while not self._stop.is_set():
            began = time.monotonic()
            report = self.tick()
            if seen is not None:
                seen(report)
            self._stop.wait(max(0.0, interval - (time.monotonic() - began)))

    # ticks ------------------------------------------------------------------------------------------------------------------

    def tick(self) -> TickReport:
        """Refresh what is due now, to the version that is the newest now."""
        began = time.perf_counter()
        snapshot = self._ground.catalog.snapshot()
        self._look(snapshot)
        candidates = self._graph.descendants(self._dirty) | self._dirty | self._always
        if not candidates:
            return TickReport(snapshot.version, (time.perf_counter() - began) * 1000)
        default = self._ground.settings.default_schedule_seconds
        due = due_tables(self._graph, candidates, self._schedules, self._clock, self._now(), default)
        refreshed: list[RefreshReport] = []
        failed: list[tuple[str, str]] = []
        skipped = [(snapshot.tables[n].name, "not due") for n in self._graph.order if n in self._dirty and n not in due]
        moment = newest(snapshot)
        for node in self._graph.order:
            if node not in due or self._stop.is_set():
                continue
            stream = snapshot.streams[node]
            if node not in self._always and not moment.pending(stream, self._graph.sources[node]):
                continue
            moment = self._refreshed(node, moment, refreshed, failed, snapshot)
        return TickReport(
            snapshot.version, (time.perf_counter() - began) * 1000, tuple(refreshed), tuple(failed), tuple(skipped)
        )

    def _refreshed(
        self,
        node: str,
        moment: Moment,
        refreshed: list[RefreshReport],
        failed: list[tuple[str, str]],
        snapshot: Snapshot,
    ) -> Moment:
        self._clock.begun[node] = self._now()
        try:
            report = self._refresher.refresh(node, at=moment)
        except HeadwaterError as error:
            failed.append((snapshot.tables[node].name, str(error)))
            return moment
        self._dirty.discard(node)
        refreshed.append(report)
        if report.action is RefreshAction.NO_DATA:
            return moment
        self._after_refresh([node])
        return moment.with_refreshed(node, report.version) if report.rows_inserted or report.rows_deleted else moment

    def _look(self, snapshot: Snapshot) -> None:
        """Take notice of what is new in the catalog."""
        before = self._snapshot
        if snapshot is before:
            return
        if before is None or snapshot.generation != before.generation:
            sources = {n: snapshot.sources.get(n, ()) for n in snapshot.streams}
            self._graph = rebuilt(self._graph, sources)
            self._schedules = {n: schedule_of(s.schedule) for n, s in snapshot.streams.items()}
            self._always = {n for n, s in snapshot.streams.items() if self._refresher.definition(s).always}
            looked_at = set(snapshot.streams)
        else:
            moved = [t for t, at in snapshot.changed.items() if before.changed.get(t) != at]
            looked_at = {r for t in moved for r in self._graph.dependents.get(t, ())} | self._dirty
        self._dirty = {n for n in looked_at if pending_sources(snapshot, snapshot.streams[n])}
        self._snapshot = snapshot
